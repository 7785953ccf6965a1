"""The base class of every environment: text in, text out, tasks by id, one step API."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym
import numpy as np

from agentgym.info import Info, StopReason
from agentgym.spaces import UnicodeText
from agentgym.tasks import TaskSet

__all__ = ["Outcome", "TextEnv", "group_reset"]


@dataclass(slots=True)
class Outcome:
    """What a subclass reports about the state it is now in.

    Attributes:
        observation: Text the agent sees.
        reward: Reward of the step (ignored after reset).
        action_valid: Whether the action was admissible.
        terminated: Whether the task has ended by its own rules.
        score: Progress in [0, 1].
        success: Whether the task is solved.
        details: Environment-specific facts, JSON-able; never changed after it is handed over.
    """

    observation: str
    reward: float = 0.0
    action_valid: bool = True
    terminated: bool = False
    score: float = 0.0
    success: bool = False
    details: dict[str, Any] = field(default_factory=dict)


class TextEnv(gym.Env[str, str]):
    """A multi-turn text environment with named tasks.

    Subclasses set ``tasks`` and implement ``_begin`` and ``_act`` (and, where they can be listed,
    ``admissible_actions``). This class does what all share: choosing the task, the step limit,
    the typed ``info``, and refusing to step an episode that is over.

    ``reset(seed=..., options={"task_id": ..., "split": ...})``: a given ``task_id`` wins; else one
    is drawn from ``split`` (default: the split the environment was made with) with the
    environment's own generator. The same seed and task give the same episode in any process,
    whether the task was named or drawn.

    Args:
        split: Split that ``reset`` draws from; None means the training split.
        max_steps: Step limit; reaching it sets ``truncated``. None means no limit.
        expert: Put the oracle's remaining actions into ``info["reference"]``.
        render_mode: ``"ansi"`` returns the current observation from ``render``.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's own shape

    #: Longest observation and action, in characters.
    max_observation_chars: ClassVar[int] = 1 << 17
    max_action_chars: ClassVar[int] = 1 << 16

    tasks: TaskSet

    def __init__(
        self,
        *,
        split: str | None = None,
        max_steps: int | None = None,
        expert: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if max_steps is not None and (
            isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1
        ):
            raise ValueError(f"max_steps must be a positive int or None, got {max_steps!r}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(
                f"render_mode {render_mode!r} is not among {self.metadata['render_modes']}"
            )
        if not isinstance(expert, bool):  # the text "false" would count as true
            raise ValueError(f"expert must be True or False, got {expert!r}")
        self.split = split
        self.max_steps = max_steps
        self.expert = expert
        self.render_mode = render_mode
        self.observation_space = UnicodeText(self.max_observation_chars)
        self.action_space = UnicodeText(
            self.max_action_chars, min_length=0, legal_actions=self._legal_actions
        )
        self._task_id: str | None = None
        self._task_split = ""
        self._turn = 0
        self._over = True
        self._last: Outcome | None = None
        self._stop_reason: StopReason | None = None

    # What a subclass provides -----------------------------------------------------------------

    @abstractmethod
    def _begin(self, task_id: str) -> Outcome:
        """Start ``task_id``; randomness comes from ``self.np_random`` alone."""

    @abstractmethod
    def _act(self, action: str) -> Outcome:
        """Apply one action. Malformed text is an inadmissible action, never an exception."""

    def admissible_actions(self) -> tuple[str, ...] | None:
        """Every action accepted now, or None where they cannot be listed."""
        return None

    def is_admissible(self, action: str) -> bool:
        """Whether the environment would accept ``action`` now."""
        listed = self.admissible_actions()
        return True if listed is None else action in listed

    def goal(self) -> str:
        """The instruction of the current task that the agent can see."""
        return ""

    def task_type(self) -> str:
        """Kind of the current task."""
        return "default"

    def reference(self) -> tuple[str, ...]:
        """The oracle's remaining actions from the current state.

        Raises:
            NotImplementedError: If this environment has no oracle.
        """
        raise NotImplementedError(f"{type(self).__name__} has no oracle; make it without expert")

    # Gymnasium's interface --------------------------------------------------------------------

    def reset(  # type: ignore[override]
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Start an episode; see the class docstring for ``options``.

        Raises:
            KeyError: If ``task_id`` is unknown.
            ValueError: If an option is unknown, or the task is not in the split asked for.
        """
        super().reset(seed=seed)
        if options is not None and not isinstance(options, dict):
            raise ValueError(f"reset options must be a dict or None, got {options!r}")
        options = options or {}
        unknown = set(options) - {"task_id", "split"}
        if unknown:
            raise ValueError(
                f"unknown reset options {sorted(map(repr, unknown))}; known: task_id, split"
            )
        task_id, split = options.get("task_id"), options.get("split")
        if split is not None and not isinstance(split, str):
            raise ValueError(f"split must be a str, got {split!r}")
        # Drawn even where the task is named: the episode's own randomness must not depend on that.
        draw = int(self.np_random.integers(1 << 62))
        if task_id is None:
            split = self.split if split is None else split
            split = self.tasks.train_split if split is None else split
            task_id = self.tasks.sample(np.random.default_rng(draw), split)
        else:
            if not isinstance(task_id, str):
                raise ValueError(f"task_id must be a str, got {task_id!r}")
            home = self.tasks.split_of(task_id)
            if split is not None and split != home:
                raise ValueError(f"task {task_id!r} is in split {home!r}, not in {split!r}")
            split = home
        self._task_id, self._task_split = task_id, split
        self._turn, self._over, self._stop_reason = 0, True, None
        self._last = self._begin(task_id)
        self._over = False
        return self._last.observation, self._info(self._last, None)

    def step(  # type: ignore[override]
        self, action: str
    ) -> tuple[str, SupportsFloat, bool, bool, Info]:
        """Apply ``action``.

        Raises:
            RuntimeError: Before the first reset, or after the episode has ended.
            TypeError: If ``action`` is not a string.
        """
        if self._over:
            state = "not been reset" if self._task_id is None else "ended"
            raise RuntimeError(f"the episode has {state}; call reset() before step()")
        if not isinstance(action, str):
            raise TypeError(f"action must be a str, got {type(action).__name__}: {action!r}")
        self._turn += 1
        outcome = self._last = self._act(action)
        truncated = (
            not outcome.terminated and self.max_steps is not None and self._turn >= self.max_steps
        )
        reason: StopReason | None = None
        if outcome.terminated:
            reason = StopReason.SOLVED if outcome.success else StopReason.FAILED
        elif truncated:
            reason = StopReason.MAX_TURNS
        self._over, self._stop_reason = reason is not None, reason
        return (
            outcome.observation,
            outcome.reward,
            outcome.terminated,
            truncated,
            self._info(outcome, reason),
        )

    def render(self) -> str | None:
        """The current observation, with ``render_mode="ansi"``."""
        if self.render_mode == "ansi" and self._last is not None:
            return self._last.observation
        return None

    # Shared machinery -------------------------------------------------------------------------

    @property
    def task_id(self) -> str:
        """Id of the current task.

        Raises:
            RuntimeError: Before the first reset.
        """
        if self._task_id is None:
            raise RuntimeError("no task yet; call reset() first")
        return self._task_id

    @property
    def observation(self) -> str:
        """What the agent sees now.

        Raises:
            RuntimeError: Before the first reset.
        """
        if self._last is None:
            raise RuntimeError("nothing has been seen yet; call reset() first")
        return self._last.observation

    def _info(self, outcome: Outcome, reason: StopReason | None) -> Info:
        info: Info = {
            "task_id": self.task_id,
            "task_type": self.task_type(),
            "split": self._task_split,
            "goal": self.goal(),
            "admissible_actions": self.admissible_actions(),
            "action_valid": outcome.action_valid,
            "score": outcome.score,
            "success": outcome.success,
            "stop_reason": reason,
            "turn": self._turn,
            "details": outcome.details,
        }
        if self.expert:
            info["reference"] = () if reason is not None else self.reference()
        return info

    def _legal_actions(self) -> tuple[str, ...] | None:
        return None if self._over else self.admissible_actions()


def group_reset(
    envs: list[gym.Env[str, str]], task_id: str, seed: int, split: str | None = None
) -> list[tuple[str, Info]]:
    """Start G replicas of one (task, seed): the same first observation in each.

    Args:
        envs: The G environments.
        task_id: Task that all play.
        seed: Seed that all are given.
        split: Split of the task, checked where given.

    Returns:
        One ``(observation, info)`` for each environment.

    Raises:
        RuntimeError: If the replicas disagree, which means an environment is not seeded.
    """
    options: dict[str, Any] = {"task_id": task_id} | ({"split": split} if split else {})
    results: list[tuple[str, Any]] = [env.reset(seed=seed, options=dict(options)) for env in envs]
    if len({observation for observation, _ in results}) > 1:
        raise RuntimeError(f"replicas of task {task_id!r} with seed {seed} differ at reset")
    return results
