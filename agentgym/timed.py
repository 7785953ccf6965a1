"""A deadline for each call into an environment, for callers that do not await."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium as gym

from agentgym.guarded import check_task, env_maker
from agentgym.registry import spec
from agentgym.seats import EnvironmentHang
from agentgym.tasks import TaskSet

__all__ = ["CheckedMaker", "TimedEnv", "timed_maker"]

_Job = tuple[int, Callable[[], Any]]
_Reply = tuple[int, Any, BaseException | None]
_CLOSING = -1
_CHECKED: dict[str, TaskSet | None] = {}


class TimedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An environment on a thread of its own, where it is made, played and closed.

    A call that does not return in time raises, and so do all that follow; the environment is closed
    when the call returns, if ever. The thread is a daemon: Python cannot stop it, and it must not
    keep the program alive.

    Args:
        make_env: Makes the environment.
        seconds: How long making it, or one call, may take.

    Raises:
        ValueError: If the time is not positive, or longer than anybody can wait.
    """

    def __init__(self, make_env: Callable[[], gym.Env[Any, Any]], seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"the deadline of a call must be positive, got {seconds!r}")
        if seconds > threading.TIMEOUT_MAX:
            raise ValueError(f"nobody can wait {seconds!r} s for a call; None is for no deadline")
        self._seconds, self._hung, self._number = seconds, "", 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[_Reply] = queue.SimpleQueue()
        made: list[gym.Env[Any, Any]] = []
        threading.Thread(
            target=_serve,
            args=(self._jobs, self._replies),
            name="agentgym-timed-env",
            daemon=True,
        ).start()
        # Also where nobody closes it: else the thread would wait for ever.
        self._end = weakref.finalize(self, _finish, self._jobs, made)
        try:
            self._call("making the environment", lambda: made.append(make_env()))
            super().__init__(made[0])
        except BaseException:
            self._end()
            raise

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """See :class:`gymnasium.Env`.

        Raises:
            EnvironmentHang: If it does not return in time.
        """
        return self._call("reset()", lambda: self.env.reset(seed=seed, options=options))

    def step(self, action: Any) -> Any:
        """See :class:`gymnasium.Env`.

        Raises:
            EnvironmentHang: If it does not return in time.
        """
        return self._call("step()", lambda: self.env.step(action))

    def close(self) -> None:
        """Close the environment; after a call that hangs, as soon as that returns."""
        if self._end.alive:
            self._end()
            if not self._hung:
                found = self._reply(_CLOSING)
                if found is not None and found[2] is not None:
                    raise found[2]

    def _call(self, name: str, call: Callable[[], Any]) -> Any:
        if self._hung:
            raise EnvironmentHang(self._hung)
        if not self._end.alive:
            raise RuntimeError("the environment has been closed")
        self._number += 1
        self._jobs.put((self._number, call))
        found = self._reply(self._number)
        if found is None:
            self._hung = f"{name} did not return within {self._seconds:g} s"
            raise EnvironmentHang(self._hung)
        if found[2] is not None:
            raise found[2]
        return found[1]

    def _reply(self, number: int) -> _Reply | None:
        end = time.monotonic() + self._seconds
        try:
            # Another number is of a call whose caller was interrupted while it waited.
            while (found := self._replies.get(timeout=end - time.monotonic()))[0] != number:
                pass
        except (queue.Empty, ValueError):  # a negative timeout
            return None
        return found


def _serve(jobs: queue.SimpleQueue[_Job | None], replies: queue.SimpleQueue[_Reply]) -> None:
    while (job := jobs.get()) is not None:
        number, call = job
        result: Any = None
        fault: BaseException | None = None
        try:
            result = call()
        except BaseException as error:
            fault = error
        replies.put((number, result, fault))
        del job, call, result, fault  # or an environment that nobody refers to would live on here


def _finish(jobs: queue.SimpleQueue[_Job | None], made: list[gym.Env[Any, Any]]) -> None:
    """Close the environment when what still runs has returned, then end the thread."""
    jobs.put((_CLOSING, lambda: made[0].close() if made else None))
    jobs.put(None)


def timed_maker(
    env_id: str, *, deadline: float | None = 600.0, **env_args: Any
) -> Callable[[], gym.Env[Any, Any]]:
    """A function that makes an environment whose calls have a deadline.

    Args:
        env_id: Id of the environment.
        deadline: See :class:`TimedEnv`; None for no limit, and no thread.
        **env_args: Arguments of the environment.
    """
    make_env = env_maker(env_id, **env_args)
    return make_env if deadline is None else lambda: TimedEnv(make_env, deadline)


class CheckedMaker:
    """The same, having made one: for players whose episodes bear one that cannot be made.

    Wrong arguments would be a fault of every episode there. One is made once in a process.

    Args:
        env_id: Id of the environment.
        **env_args: See :func:`timed_maker`.

    Raises:
        KeyError: If there is no such environment.
        Exception: Whatever it says of its arguments.
    """

    def __init__(self, env_id: str, **env_args: Any) -> None:
        spec(env_id)
        self._make_env = timed_maker(env_id, **env_args)
        key = f"{env_id} {env_args!r}"
        if key not in _CHECKED:
            env = self._make_env()
            _CHECKED[key] = getattr(env.unwrapped, "tasks", None)
            with contextlib.suppress(Exception):  # says nothing of the arguments
                env.close()
        self._tasks = _CHECKED[key]

    def __call__(self) -> gym.Env[Any, Any]:
        """Make one."""
        return self._make_env()

    def check(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Refuse rows whose task or split there is not: else their episodes would be faults.

        Raises:
            KeyError: If there is no such task.
            ValueError: If there is no such split.
        """
        for row in rows:
            check_task(self._tasks, row.get("task_id"), row.get("split"))
