"""Output that is kept in part: its head and its tail."""

from __future__ import annotations

from collections import deque

__all__ = ["Kept"]


class Kept:
    """The head and the tail of a stream.

    Args:
        limit: Bytes to keep, half of them from the head.
    """

    def __init__(self, limit: int) -> None:
        self._head_limit = (limit + 1) // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take more of the stream."""
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        if len(data) > self._tail_limit:
            data = data[len(data) - self._tail_limit :]
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._tail_limit:
            self._tail_size -= len(self._tail.popleft())

    @property
    def head(self) -> bytes:
        """The first bytes."""
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        """The last bytes, none of which are in the head."""
        joined = b"".join(self._tail)
        return joined[max(0, len(joined) - self._tail_limit) :]
