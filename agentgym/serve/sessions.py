"""The sessions of a server: one environment each, on a thread that may be lost."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agentgym.guarded import GuardedEnv, blank_info
from agentgym.info import Info, StopReason
from agentgym.seats import EnvironmentFault, EnvironmentHang, ThreadSeat
from agentgym.serve import wire
from agentgym.serve.wire import WireError

__all__ = ["Limits", "Session", "Sessions"]

_IDS_KEPT = 1024  # numbers of a session's last requests


@dataclass(frozen=True, slots=True)
class Limits:
    """What sessions may use.

    Attributes:
        sessions: Most sessions at a time, those that wait for their client included.
        call_s: Seconds that one call into an environment may take; then the episode ends with
            ``deadline``, and the next reset gets a new environment.
        session_s: Seconds that a session may last; None for no limit.
        idle_s: Seconds without a message after which a session ends.
        resume_s: Seconds that a session waits for its client after the connection broke.
    """

    sessions: int = 256
    call_s: float = 60.0
    session_s: float | None = None
    idle_s: float = 600.0
    resume_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("sessions", "call_s", "session_s", "idle_s", "resume_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value!r}")


class Session:
    """One client's environment.

    Requests are carried out one after another. A request that comes again under the same
    ``request_id`` (because the client has missed the reply) gets the same reply and does nothing;
    one before the last, or another one under a number that was used, gets an error.

    Args:
        make_env: Makes the environment.
        call_s: See :class:`Limits`.

    Attributes:
        id: Its name, which cannot be guessed.
        connection: Who talks to the client now, or None.
        resumable: Its client numbers its requests, so it can come back for a reply.
        abandoned: Its environment was in a call when it ended.
    """

    def __init__(self, make_env: Callable[[], gym.Env[Any, Any]], call_s: float) -> None:
        self.id = secrets.token_urlsafe(18)
        self.connection: Any = None
        self.resumable = self.abandoned = False
        self.born = self.touched = time.monotonic()
        self._make_env, self._call_s = make_env, call_s
        self._seat = self._new_seat()
        self._queue = asyncio.Lock()
        self._last: tuple[dict[str, Any], asyncio.Future[dict[str, Any]]] | None = None
        self._used: deque[str | int] = deque(maxlen=_IDS_KEPT)
        self._info: Info = blank_info()
        self._steps, self._playing, self._ended = 0, False, False

    async def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Carry out a message and return the answer.

        The work goes on if the caller is cancelled: its client may come back for the answer.
        """
        self.touched = time.monotonic()
        request_id = message.get("request_id")
        if request_id is None or self._last is None or self._last[0] != message:
            if request_id in self._used:
                told = f"request_id {request_id!r} was used for another request, or long ago"
                return wire.error(WireError("VALIDATION_ERROR", told, request_id))
            if request_id is not None:
                self.resumable = True
                self._used.append(request_id)
            self._last = message, asyncio.ensure_future(self._answer(message))
        reply = await asyncio.shield(self._last[1])
        self.touched = time.monotonic()
        return reply if request_id is None else {**reply, "request_id": request_id}

    @property
    def working(self) -> bool:
        """A request is being carried out."""
        return self._last is not None and not self._last[1].done()

    def close(self) -> None:
        """End it; an environment that hangs is abandoned."""
        self._ended, self.abandoned = True, self._seat.busy
        self._seat.close()

    @property
    def closed(self) -> bool:
        """Whether its environment has been closed, or never will be."""
        return self.abandoned or self._seat.closed

    def join(self, seconds: float) -> None:
        """Wait until its environment is closed, for no longer than that."""
        if not self.closed:
            self._seat.join(seconds)

    def _new_seat(self) -> ThreadSeat:
        # A guarded environment has the methods that a seat calls.
        return ThreadSeat(lambda: GuardedEnv(self._make_env), self._call_s)  # type: ignore[arg-type, return-value]

    async def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        async with self._queue:
            try:
                if message["type"] == "reset":
                    return await self._reset(wire.read_reset(message))
                if message["type"] == "step":
                    return await self._step(wire.read_step(message))
            except WireError as fault:
                return wire.error(fault)
            return {
                "type": "state",
                "data": {
                    "episode_id": None,
                    "step_count": self._steps,
                    "task_id": self._info["task_id"],
                    "playing": self._playing,
                },
            }

    async def _reset(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self._seat.busy:  # lost in a call that hangs
            self._replace()
        try:
            text, self._info = await self._seat.call("reset", **asked)
        except EnvironmentFault as fault:
            cause = fault.__cause__
            if isinstance(cause, KeyError | ValueError):
                raise WireError("EXECUTION_ERROR", str((*cause.args, fault)[0])) from None
            if isinstance(cause, Exception):
                raise WireError("FACTORY_ERROR", str(fault)) from None
            return self._lost(fault, reward=None)
        self._steps, self._playing = 0, True
        return wire.observation(text, None, False, False, self._info)

    async def _step(self, action: str) -> dict[str, Any]:
        if not self._playing:
            raise WireError("EXECUTION_ERROR", "no episode is running; send a reset first")
        self._steps += 1
        try:
            result = await self._seat.call("step", action)
        except EnvironmentFault as fault:
            return self._lost(fault, reward=0.0)
        text, reward, terminated, truncated, self._info = result
        self._playing = not (terminated or truncated)
        return wire.observation(text, reward, terminated, truncated, self._info)

    def _lost(self, fault: EnvironmentFault, reward: float | None) -> dict[str, Any]:
        """It hangs, or raised what its guard does not catch."""
        self._replace()
        self._playing = False
        hung = isinstance(fault, EnvironmentHang)
        self._info = {
            **self._info,
            "success": False,
            "stop_reason": StopReason.DEADLINE if hung else StopReason.INFRA_ERROR,
            "details": {**self._info["details"], "error": str(fault)},
        }
        return wire.observation("", reward, False, True, self._info)

    def _replace(self) -> None:
        self._seat.close()
        if not self._ended:  # else nobody would close the new one
            self._seat = self._new_seat()


class Sessions:
    """All sessions of a server.

    ``counters`` tells how many were ``opened``, ``resumed``, ``refused`` (no room), and ended
    because they were ``closed`` by their client, ``lost`` (it did not come back), ``idle`` or
    ``expired``.

    Args:
        make_env: Makes an environment.
        limits: What they may use.
    """

    def __init__(self, make_env: Callable[[], gym.Env[Any, Any]], limits: Limits) -> None:
        self._make_env, self.limits = make_env, limits
        self._open: dict[str, Session] = {}
        self._detached: dict[str, float] = {}  # since when, oldest first
        self._ending: list[Session] = []
        self.counters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def attach(self, session_id: str | None, connection: Any) -> tuple[Session, Any]:
        """A new session, or the one that a client comes back to; and its connection until now.

        Raises:
            WireError: If there is no room, or no such session (any more).
        """
        if session_id is not None:
            session = self._open.get(session_id)
            if session is None:
                raise WireError("SESSION_ERROR", "there is no such session, or it has ended")
            self.counters["resumed"] += 1
        else:
            if len(self._open) >= self.limits.sessions:
                self.counters["refused"] += 1
                raise WireError(
                    "CAPACITY_REACHED", f"all {self.limits.sessions} sessions are in use"
                )
            session = Session(self._make_env, self.limits.call_s)
            self._open[session.id] = session
            self.counters["opened"] += 1
        self._detached.pop(session.id, None)
        before, session.connection = session.connection, connection
        session.touched = time.monotonic()
        return session, before

    def detach(self, session: Session, connection: Any) -> None:
        """The connection broke; another may have taken over already."""
        if session.connection is not connection or session.id not in self._open:
            return
        session.connection = None
        if session.resumable:
            self._detached[session.id] = time.monotonic()
        else:
            self.end(session, "lost")

    def let_go(self) -> None:
        """Detach connections that broke within the handshake: nobody else notices."""
        for session in list(self._open.values()):
            connection = session.connection
            if connection is None or connection.agentgym_talks:
                continue
            if connection.state.name == "CLOSED":
                self.detach(session, connection)

    def end(self, session: Session, why: str) -> None:
        """Close a session; a second time changes nothing."""
        if self._open.pop(session.id, None) is not None:
            self._detached.pop(session.id, None)
            self.counters[why] += 1
            session.connection = None
            session.close()
            self._ending = [other for other in self._ending if not other.closed]
            self._ending.append(session)

    def overdue(self) -> list[tuple[Session, str]]:
        """Sessions whose time is up, and why."""
        now, limits = time.monotonic(), self.limits
        found = []
        for session in self._open.values():
            gone = self._detached.get(session.id)
            if limits.session_s is not None and now - session.born > limits.session_s:
                found.append((session, "expired"))
            elif gone is not None and now - gone > limits.resume_s:
                found.append((session, "lost"))
            elif now - session.touched > limits.idle_s and not session.working:
                found.append((session, "idle"))
        return found

    def close(self) -> None:
        """End all of them, within the time of one call.

        When it returns, their environments are closed, but for those that hang.
        """
        for session in list(self._open.values()):
            self.end(session, "shutdown")
        end = time.monotonic() + self.limits.call_s
        for session in self._ending:
            session.join(max(0.0, end - time.monotonic()))
        self._ending = []
