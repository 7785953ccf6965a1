"""Keeping within a server's rate limits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["Admission", "Throttle"]

_WINDOW = 60.0


@dataclass(slots=True)
class Admission:
    """A request that was let through.

    Attributes:
        at: When, in seconds of the event loop's clock.
        tokens: Tokens it counts for; an estimate until :meth:`Throttle.correct`.
    """

    at: float
    tokens: int


class Throttle:
    """Lets requests through in the order they came, so many in any 60 seconds.

    Args:
        requests: Most requests a minute; None for no limit.
        tokens: Most tokens (prompt and answer) a minute; None for no limit. A request larger than
            that waits for an empty minute.
        sleep: How to wait.

    Raises:
        ValueError: If a limit is below 1.
    """

    def __init__(
        self,
        requests: int | None = None,
        tokens: int | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        for name, value in (("requests", requests), ("tokens", tokens)):
            if value is not None and value < 1:
                raise ValueError(f"{name} a minute must be >= 1 or None, got {value!r}")
        self._requests, self._tokens, self._sleep = requests, tokens, sleep
        self._recent: deque[Admission] = deque()
        self._paused_until = 0.0
        self._turn = asyncio.Lock()

    async def admit(self, tokens: int) -> Admission:
        """Wait until one more request, of about so many tokens, is within the limits."""
        clock = asyncio.get_running_loop().time
        async with self._turn:
            while (wait := self._wait(clock(), tokens)) > 0:
                await self._sleep(wait)
            admission = Admission(clock(), tokens)
            if self._requests is not None or self._tokens is not None:
                self._recent.append(admission)
            return admission

    def correct(self, admission: Admission, tokens: int) -> None:
        """Count what a request really took."""
        admission.tokens = tokens

    def pause(self, seconds: float) -> None:
        """Let nothing through for a while: the server has said when to come back."""
        until = asyncio.get_running_loop().time() + seconds
        self._paused_until = max(self._paused_until, until)

    def _wait(self, now: float, tokens: int) -> float:
        """Seconds until the request may go, as far as is known now."""
        while self._recent and self._recent[0].at <= now - _WINDOW:
            self._recent.popleft()
        wait = self._paused_until - now
        if self._requests is not None and len(self._recent) >= self._requests:
            wait = max(wait, self._recent[-self._requests].at + _WINDOW - now)
        if self._tokens is not None:
            room = self._tokens - tokens
            for earlier in reversed(self._recent):
                room -= earlier.tokens
                if room < 0:
                    wait = max(wait, earlier.at + _WINDOW - now)
                    break
        return wait
