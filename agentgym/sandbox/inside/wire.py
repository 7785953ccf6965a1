"""Messages over a Unix socket: a JSON object, bytes, and file descriptors."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["MAX_FDS", "Closed", "Message", "receive", "send"]

#: Most file descriptors in one message.
MAX_FDS = 64
_HEAD = struct.Struct("!IQ")
_MAX_JSON = 256 << 20
_MAX_BLOB = 1 << 32
_DAY = 86400.0  # longer than that calls of the kernel do not wait


class Closed(Exception):
    """The other side is gone."""


class Message:
    """A message that was received.

    Attributes:
        data: Its JSON object.
        blob: Its bytes.
        fds: Its file descriptors, which the receiver has to close.
    """

    __slots__ = ("blob", "data", "fds")

    def __init__(self, data: dict[str, Any], blob: bytes, fds: list[int]) -> None:
        self.data, self.blob, self.fds = data, blob, fds

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.fds = []


def send(
    connection: socket.socket,
    data: dict[str, Any],
    blob: bytes = b"",
    fds: Sequence[int] = (),
    deadline: float | None = None,
) -> None:
    """Send one message.

    Args:
        connection: A stream socket of the Unix family.
        data: JSON object.
        blob: Bytes that go along.
        fds: File descriptors that go along; the sender keeps its own.
        deadline: Time of ``time.monotonic()`` until when it has to be sent.

    Raises:
        Closed: If the other side is gone.
        TimeoutError: At the deadline.
        ValueError: If there are too many descriptors.
    """
    if len(fds) > MAX_FDS:
        raise ValueError(f"at most {MAX_FDS} descriptors go into a message, got {len(fds)}")
    text = json.dumps(data).encode()
    head = _HEAD.pack(len(text), len(blob)) + text
    try:
        _wait(connection, deadline)
        sent = socket.send_fds(connection, [head], list(fds)) if fds else connection.send(head)
        for part in (memoryview(head)[sent:], memoryview(blob)):
            done = 0
            while done < len(part):
                _wait(connection, deadline)
                done += connection.send(part[done : done + (1 << 20)])
    except (BrokenPipeError, ConnectionError) as error:
        raise Closed(str(error)) from None


def receive(connection: socket.socket, deadline: float | None = None) -> Message:
    """Receive one message.

    Raises:
        Closed: If the other side is gone, or does not speak this protocol.
        TimeoutError: At the deadline.
    """
    fds: list[int] = []
    try:
        head = bytearray()
        while len(head) < _HEAD.size:
            _wait(connection, deadline)
            part, new, _, _ = socket.recv_fds(connection, _HEAD.size - len(head), MAX_FDS)
            fds += new
            if not part:
                raise Closed("the other side closed the connection")
            head += part
        for fd in fds:
            os.set_inheritable(fd, False)
        text_size, blob_size = _HEAD.unpack(head)
        if text_size > _MAX_JSON or blob_size > _MAX_BLOB:
            raise Closed("the other side does not speak this protocol")
        text = _exactly(connection, text_size, deadline)
        blob = _exactly(connection, blob_size, deadline)
        data = json.loads(text)
        if not isinstance(data, dict):
            raise Closed("the other side does not speak this protocol")
    except BaseException as error:
        for fd in fds:
            os.close(fd)
        if isinstance(error, (ConnectionError, json.JSONDecodeError, UnicodeDecodeError)):
            raise Closed(str(error)) from None
        raise
    return Message(data, bytes(blob), fds)


def _exactly(connection: socket.socket, size: int, deadline: float | None) -> bytearray:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        _wait(connection, deadline)
        got = connection.recv_into(view[done:])
        if not got:
            raise Closed("the other side closed the connection")
        done += got
    return data


def _wait(connection: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        connection.settimeout(None)
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(min(left, _DAY))
