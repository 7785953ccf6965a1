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

__all__ = ["EnvironmentFault", "InlineSeat", "Seat", "ThreadSeat", "check_reset", "check_step"]


class EnvironmentFault(RuntimeError):
    """An environment raised, hung, or returned something that is not of Gymnasium's form."""


class Seat(Protocol):
    """Runs calls into one environment."""

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the environment.

        Raises:
            EnvironmentFault: If the call raises or takes longer than the deadline.
        """
        ...

    def close(self) -> None:
        """Close the environment, or abandon it where it cannot be reached."""
        ...


class InlineSeat:
    """Calls the environment in the event loop: deterministic order, no protection from a hang."""

    def __init__(self, make_env: Callable[[], gym.Env[Any, Any]]) -> None:
        try:
            self._env = make_env()
        except Exception as error:
            raise EnvironmentFault(f"making the environment failed: {error!r}") from error

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See :class:`Seat`."""
        try:
            return getattr(self._env, method)(*args, **kwargs)
        except Exception as error:
            raise EnvironmentFault(f"{method}() raised {error!r}") from error

    def close(self) -> None:
        """See :class:`Seat`."""
        with contextlib.suppress(Exception):  # a fault while closing has no one left to hurt
            self._env.close()


class ThreadSeat:
    """Calls the environment on a thread of its own; one that hangs is abandoned.

    The thread is a daemon: Python cannot stop it, and it must not keep the program alive.

    Args:
        make_env: Makes the environment, on the thread.
        deadline: Seconds that one call may take.
    """

    def __init__(self, make_env: Callable[[], gym.Env[Any, Any]], deadline: float) -> None:
        self._deadline = deadline
        self._jobs: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        thread = threading.Thread(
            target=_serve, args=(make_env, self._jobs), name="agentgym-env", daemon=True
        )
        thread.start()

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """See :class:`Seat`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._jobs.put((loop, future, method, args, kwargs))
        try:
            return await asyncio.wait_for(future, self._deadline)
        except TimeoutError:
            raise EnvironmentFault(
                f"{method}() did not return within {self._deadline:g} s"
            ) from None

    def close(self) -> None:
        """See :class:`Seat`."""
        self._jobs.put(None)


def _serve(
    make_env: Callable[[], gym.Env[Any, Any]], jobs: queue.SimpleQueue[tuple[Any, ...] | None]
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
            fault = EnvironmentFault(f"{method}() raised {error!r}")
            fault.__cause__ = error
        # The loop may be gone by the time a hung call returns.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, future, result, fault)
    if env is not None:
        with contextlib.suppress(Exception):
            env.close()


def _settle(future: asyncio.Future[Any], result: Any, fault: EnvironmentFault | None) -> None:
    if future.done():
        return
    if fault is not None:
        future.set_exception(fault)
    else:
        future.set_result(result)


def check_reset(result: Any) -> tuple[str, dict[str, Any]]:
    """Verify what ``reset`` returned.

    Raises:
        EnvironmentFault: If it is not ``(text, dict)``.
    """
    if not isinstance(result, tuple) or len(result) != 2:
        raise EnvironmentFault(f"reset() returned {_short(result)}, not (observation, info)")
    observation, info = result
    return _text(observation, "reset"), _dict(info, "reset")


def check_step(result: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
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
    try:
        number = float(reward)
    except (TypeError, ValueError):
        raise EnvironmentFault(f"step() returned reward {_short(reward)}, not a number") from None
    if not math.isfinite(number):
        raise EnvironmentFault(f"step() returned the non-finite reward {number!r}")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, (bool, np.bool_)):
            raise EnvironmentFault(f"step() returned {name}={_short(flag)}, not a bool")
    return (
        _text(observation, "step"),
        number,
        bool(terminated),
        bool(truncated),
        _dict(info, "step"),
    )


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise EnvironmentFault(f"{where}() returned observation {_short(value)}, not a str")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise EnvironmentFault(f"{where}() returned text with a lone surrogate") from None
    return value


def _dict(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise EnvironmentFault(f"{where}() returned info {_short(value)}, not a dict")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
