"""Where one environment sits while the collector drives it: inline, or on a thread it may lose."""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from agentgym.info import Info, StopReason

__all__ = [
    "FAULTS",
    "EnvironmentFault",
    "EnvironmentHang",
    "InlineSeat",
    "Seat",
    "ThreadSeat",
    "check_reference",
    "check_reset",
    "check_step",
]


#: What an environment may raise without ending the run; Ctrl-C is the user's, not its own.
FAULTS = (Exception, SystemExit, asyncio.CancelledError)
_REASONS = frozenset(str(reason) for reason in StopReason)


class EnvironmentFault(RuntimeError):
    """An environment raised, hung, or returned something that is not of Gymnasium's form."""


class EnvironmentHang(EnvironmentFault):
    """A call into an environment did not return in time."""


class Seat(Protocol):
    """Runs calls into one environment."""

    @property
    def busy(self) -> bool:
        """Whether a call is still running, so that the environment's state is unknown."""
        ...

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the environment.

        Raises:
            EnvironmentFault: If the call raises.
            EnvironmentHang: If it takes longer than the deadline.
        """
        ...

    @property
    def closed(self) -> bool:
        """Whether the environment has been closed."""
        ...

    def close(self) -> None:
        """Close the environment, as soon as a call that still runs has returned."""
        ...

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the close, for ``seconds`` or the deadline; whether it has happened."""
        ...


class InlineSeat:
    """Calls the environment in the event loop: deterministic order, no protection from a hang."""

    busy = False

    def __init__(self, make_env: Callable[[], gym.Env[Any, Any]]) -> None:
        self.closed = False
        try:
            self._env = make_env()
        except FAULTS as error:
            raise EnvironmentFault(f"making the environment failed: {_short(error)}") from error

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See :class:`Seat`."""
        try:
            return getattr(self._env, method)(*args, **kwargs)
        except FAULTS as error:
            raise EnvironmentFault(f"{method}() raised {_short(error)}") from error

    def close(self) -> None:
        """See :class:`Seat`."""
        with contextlib.suppress(*FAULTS):  # a fault while closing has no one left to hurt
            self._env.close()
        self.closed = True

    def join(self, seconds: float | None = None) -> bool:
        """See :class:`Seat`."""
        return True


class ThreadSeat:
    """Calls the environment on a thread of its own; one that hangs is abandoned.

    The thread is a daemon: Python cannot stop it, and it must not keep the program alive.

    Args:
        make_env: Makes the environment, on the thread, within the first call.
        deadline: Seconds that one call may take.
    """

    def __init__(self, make_env: Callable[[], gym.Env[Any, Any]], deadline: float) -> None:
        self._deadline = min(deadline, threading.TIMEOUT_MAX)  # of which `join` wants no more
        self._jobs: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._free = threading.Event()
        self._free.set()
        self._thread = threading.Thread(
            target=_serve,
            args=(make_env, self._jobs, self._free),
            name="agentgym-env",
            daemon=True,
        )
        self._thread.start()

    @property
    def busy(self) -> bool:
        """See :class:`Seat`."""
        return not self._free.is_set()

    @property
    def closed(self) -> bool:
        """See :class:`Seat`."""
        return not self._thread.is_alive()

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See :class:`Seat`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._free.clear()
        self._jobs.put((loop, future, method, args, kwargs))
        try:
            async with asyncio.timeout(self._deadline) as clock:
                return await future
        except TimeoutError:
            if not clock.expired():
                raise
            raise EnvironmentHang(
                f"{method}() did not return within {self._deadline:g} s"
            ) from None

    def close(self) -> None:
        """See :class:`Seat`."""
        self._jobs.put(None)

    def join(self, seconds: float | None = None) -> bool:
        """See :class:`Seat`."""
        self._thread.join(self._deadline if seconds is None else seconds)
        return not self._thread.is_alive()


def _serve(
    make_env: Callable[[], gym.Env[Any, Any]],
    jobs: queue.SimpleQueue[tuple[Any, ...] | None],
    free: threading.Event,
) -> None:
    env: gym.Env[Any, Any] | None = None
    while (job := jobs.get()) is not None:
        loop, future, method, args, kwargs = job
        result: Any = None
        fault: EnvironmentFault | None = None
        try:
            if env is None:
                env = make_env()
            result = getattr(env, method)(*args, **kwargs)
        except BaseException as error:
            doing = f"{method}() raised" if env is not None else "making the environment failed:"
            fault = EnvironmentFault(f"{doing} {_short(error)}")
            fault.__cause__ = error
        free.set()
        # The loop may be gone by the time a hung call returns.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, future, result, fault)
    if env is not None:
        with contextlib.suppress(BaseException):
            env.close()


def _settle(future: asyncio.Future[Any], result: Any, fault: EnvironmentFault | None) -> None:
    if future.done():
        return
    if fault is not None:
        future.set_exception(fault)
    else:
        future.set_result(result)


def check_reset(result: Any) -> tuple[str, Info]:
    """Verify what ``reset`` returned.

    Raises:
        EnvironmentFault: If it is not ``(text, info)``.
    """
    if not isinstance(result, tuple) or len(result) != 2:
        raise EnvironmentFault(f"reset() returned {_short(result)}, not (observation, info)")
    observation, info = result
    return _text(observation, "observation", "reset"), _info(info, "reset")


def check_reference(info: Info) -> tuple[str, ...]:
    """The reference of an environment made with ``expert=True``.

    Raises:
        EnvironmentFault: If there is none, or it is not a tuple of texts.
    """
    if "reference" not in info:
        raise EnvironmentFault("info has no 'reference', though expert=True asks for one")
    reference: Any = info["reference"]
    if not isinstance(reference, (tuple, list)) or not all(isinstance(i, str) for i in reference):
        raise EnvironmentFault(f"info['reference'] is {_short(reference)}, not a tuple of str")
    return tuple(reference)


def check_step(result: Any) -> tuple[str, float, bool, bool, Info]:
    """Verify what ``step`` returned.

    Raises:
        EnvironmentFault: If it is not Gymnasium's five values with a text and a finite reward.
    """
    if not isinstance(result, tuple) or len(result) != 5:
        raise EnvironmentFault(
            f"step() returned {_short(result)}, not the five values (observation, reward, "
            "terminated, truncated, info)"
        )
    observation, reward, terminated, truncated, info = result
    return (
        _text(observation, "observation", "step"),
        _number(reward, "reward", "step"),
        _flag(terminated, "terminated", "step"),
        _flag(truncated, "truncated", "step"),
        _info(info, "step"),
    )


def _info(info: Any, where: str) -> Info:
    """Verify the keys that the suite reads; an environment of another origin may lack them."""
    if not isinstance(info, dict):
        raise EnvironmentFault(f"{where}() returned info {_short(info)}, not a dict")
    for name in ("task_id", "task_type", "split", "goal"):
        if name in info:
            _text(info[name], f"info[{name!r}]", where)
    for name in ("action_valid", "success"):
        if name in info:
            _flag(info[name], f"info[{name!r}]", where)
    if "score" in info and not 0 <= _number(info["score"], "info['score']", where) <= 1:
        raise EnvironmentFault(
            f"{where}() returned info['score']={_short(info['score'])}, not within [0, 1]"
        )
    if not isinstance(info.get("details", {}), dict):
        raise EnvironmentFault(
            f"{where}() returned info['details']={_short(info['details'])}, not a dict"
        )
    actions = info.get("admissible_actions")
    if actions is not None and not (
        isinstance(actions, (tuple, list)) and all(isinstance(item, str) for item in actions)
    ):
        raise EnvironmentFault(
            f"{where}() returned info['admissible_actions']={_short(actions)}, "
            "not a tuple of str or None"
        )
    reason = info.get("stop_reason")
    if reason is not None and not (isinstance(reason, str) and reason in _REASONS):
        raise EnvironmentFault(
            f"{where}() returned info['stop_reason']={_short(reason)}; known reasons are "
            f"{', '.join(StopReason)}"
        )
    return info  # type: ignore[return-value]


def _text(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise EnvironmentFault(f"{where}() returned {name} {_short(value)}, not a str")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise EnvironmentFault(f"{where}() returned {name} with a lone surrogate") from None
    return value


def _number(value: Any, name: str, where: str) -> float:
    try:
        # Text that reads as a number is a mistake of its author, not a number.
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise EnvironmentFault(f"{where}() returned {name} {_short(value)}, not a finite number")
    return number


def _flag(value: Any, name: str, where: str) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise EnvironmentFault(f"{where}() returned {name}={_short(value)}, not a bool")
    return bool(value)


def _short(value: Any) -> str:
    """A short repr, even of objects whose own fails."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__} whose repr() fails>"
    return text if len(text) <= 200 else text[:197] + "..."
