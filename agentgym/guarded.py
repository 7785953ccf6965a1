"""An environment whose faults are results: what adapters and the server hand to others."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from agentgym.info import Info, StopReason, stop_reason
from agentgym.seats import FAULTS, EnvironmentFault, EnvironmentHang, check_reset, check_step
from agentgym.tasks import TaskSet

__all__ = ["GuardedEnv", "blank_info", "check_task", "env_maker"]


def env_maker(env_id: str, **env_args: Any) -> Callable[[], gym.Env[Any, Any]]:
    """A function that makes the environment, such as :class:`GuardedEnv` takes."""
    return lambda: gym.make(env_id, **env_args)


class GuardedEnv:
    """One environment, played an episode after the other, that never raises while it plays.

    Where the environment raises or returns nonsense, the episode ends: truncated, without reward,
    with ``stop_reason`` ``infra_error``, or ``deadline`` where it hangs (see
    :class:`agentgym.timed.TimedEnv`). The next :meth:`reset` makes a new environment. A task or
    split that does not exist is the caller's mistake and raises.

    Args:
        make_env: Makes the environment.

    Attributes:
        error: What went wrong in the current episode, or None.
        info: The last info.
        over: The episode has ended, or none has begun.
    """

    def __init__(self, make_env: Callable[[], gym.Env[Any, Any]]) -> None:
        self._make_env = make_env
        self._env: gym.Env[Any, Any] | None = make_env()
        self.error: str | None = None
        self.info: Info = blank_info()
        self.over = True

    @property
    def env(self) -> gym.Env[Any, Any]:
        """The environment itself; a new one after a fault."""
        if self._env is None:
            self._env = self._make_env()
        return self._env

    def reset(
        self,
        *,
        seed: int | None = None,
        task_id: str | None = None,
        split: str | None = None,
    ) -> tuple[str, Info]:
        """Start an episode.

        Args:
            seed: Seed of the episode; the same for all members of a group.
            task_id: Task; None draws one.
            split: Split to draw from, or the split of the task.

        Returns:
            Observation and info; after a fault an empty observation, with the reason in info.

        Raises:
            KeyError: If there is no such task.
            ValueError: If there is no such split, or the seed is negative.
            TypeError: If the seed is no whole number.
        """
        if seed is not None and (seed := operator.index(seed)) < 0:  # NumPy's are numbers, too
            raise ValueError(f"seed must be 0 or more, got {seed}")
        self.error, self.over, self.info = None, False, blank_info()
        options = {"task_id": task_id, "split": split}
        try:
            env = self.env
            tasks = getattr(env.unwrapped, "tasks", None)
        except FAULTS as error:
            return "", self._fault(error)
        check_task(tasks, task_id, split)
        try:
            observation, info = check_reset(
                env.reset(seed=seed, options={k: v for k, v in options.items() if v is not None})
            )
        except FAULTS as error:
            return "", self._fault(error)
        self.info = _complete(info)
        return observation, self.info

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Apply one action; the five values of Gymnasium.

        Raises:
            RuntimeError: If no episode has begun, or the last one is over. A fault in ``reset``
                ends the episode with its first step.
        """
        if self.over:
            raise RuntimeError("no episode is running; call reset() first")
        if self.error is not None:  # the reset failed
            return self._failed()
        try:
            observation, reward, terminated, truncated, info = check_step(self.env.step(action))
        except FAULTS as error:
            self._fault(error)
            return self._failed()
        self.info = _complete(info)
        self.over = terminated or truncated
        if self.over and self.info["stop_reason"] is None:
            self.info = {**self.info, "stop_reason": stop_reason(self.info, terminated)}
        return observation, reward, terminated, truncated, self.info

    def close(self) -> None:
        """Close the environment; a second time changes nothing."""
        env, self._env = self._env, None
        if env is not None:
            with contextlib.suppress(*FAULTS):  # a fault while closing has no one left to hurt
                env.close()

    def _failed(self) -> tuple[str, float, bool, bool, Info]:
        self.over = True
        return "", 0.0, False, True, self.info

    def _fault(self, error: BaseException) -> Info:
        known, hung = isinstance(error, EnvironmentFault), isinstance(error, EnvironmentHang)
        self.error = str(error) if known else f"{type(error).__name__}: {error}"
        self.close()
        self.info = {
            **self.info,
            "success": False,
            "score": 0.0,
            "stop_reason": StopReason.DEADLINE if hung else StopReason.INFRA_ERROR,
            "details": {**self.info["details"], "error": self.error},
        }
        return self.info


def check_task(tasks: TaskSet | None, task_id: str | None, split: str | None) -> None:
    """Refuse a task or split that an environment has not; one without tasks is not asked.

    Raises:
        KeyError: If there is no such task.
        ValueError: If there is no such split.
    """
    if tasks is not None and task_id is not None:
        tasks.split_of(task_id)
    if tasks is not None and split is not None:
        tasks.ids(split)


def _complete(info: Info) -> Info:
    """With all keys; an environment of another origin may lack some."""
    blank = blank_info()
    return info if info.keys() >= blank.keys() else {**blank, **info}


def blank_info() -> Info:
    """The info of an episode of which nothing is known yet."""
    return {
        "task_id": "", "task_type": "default", "split": "", "goal": "", "admissible_actions": None,
        "action_valid": True, "score": 0.0, "success": False, "stop_reason": None, "turn": 0,
        "details": {},
    }  # fmt: skip
