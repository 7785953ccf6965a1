"""Recorded experience: turns, trajectories and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentgym.guidance import Guidance
from agentgym.info import LOST, StopReason
from agentgym.policy import FinishReason

__all__ = ["EpisodeSpec", "Trajectory", "TrajectoryGroup", "Turn", "group_trajectories"]

# Outcomes that say nothing about the policy; such trajectories are dropped from every statistic.


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """An episode to play.

    Attributes:
        task_id: Task; None lets the environment draw one from ``split`` with ``seed``.
        split: Split of the task, or None.
        seed: Seed of the environment.
        group_id: Group of replicas this episode belongs to.
        member: Index within the group.
        guidance: How much of the reference is given at its beginning; None samples everything.
    """

    task_id: str | None
    split: str | None
    seed: int
    group_id: str
    member: int = 0
    guidance: Guidance | None = None


@dataclass(slots=True)
class Turn:
    """One decision: the tokens read before it and the tokens sampled.

    Attributes:
        context_ids: Tokens fed since the previous turn (``extends``) or the whole prompt.
        extends: The context continues the previous turn's sequence; False starts a new one.
        action_ids: Sampled tokens, exactly as the engine produced them; shape (n,).
        logprobs: Their log-probs at sampling time; float32 (n,).
        versions: Weight version of each; int32 (n,).
        trainable: Whether each may enter the loss; bool (n,).
        finish_reason: Why the generation ended.
        text: The decoded response without the stop token, what was given of it included.
        action: What was sent to the environment.
        format_ok: The text had the form the parser asks for.
        action_valid: The environment accepted the action as admissible.
        reward: Environment reward of this turn.
        observation: The text the action answered, for reports.
        score: ``info["score"]`` after the action.
        state: Name of the progress state before the action, where progress is watched.
        abstract_action: Kind of the action.
        shareable: Other tasks may learn from this kind of action in this state.
        context_key: Name of the concrete situation, the same in every run.
        given: How many of the last context tokens belong to the response: it was begun with them
            (see :mod:`agentgym.guidance`), or, where nothing was sampled, consists of them.
    """

    context_ids: np.ndarray
    extends: bool
    action_ids: np.ndarray
    logprobs: np.ndarray
    versions: np.ndarray
    trainable: np.ndarray
    finish_reason: FinishReason
    text: str = ""
    action: str = ""
    format_ok: bool = True
    action_valid: bool = True
    reward: float = 0.0
    observation: str = ""
    score: float = 0.0
    state: str = ""
    abstract_action: str = ""
    shareable: bool = False
    context_key: str = ""
    given: int = 0

    @property
    def n_actions(self) -> int:
        """Number of sampled tokens."""
        return len(self.action_ids)

    @property
    def response_ids(self) -> np.ndarray:
        """The whole response: what was given of it, and what was sampled."""
        if not self.given:
            return self.action_ids
        return np.concatenate([self.context_ids[-self.given :], self.action_ids])

    @property
    def replayed(self) -> bool:
        """Whether the turn was given as a whole: it is the oracle's, not the policy's."""
        return self.given > 0 and not self.n_actions


@dataclass(slots=True)
class Trajectory:
    """One episode.

    Attributes:
        spec: What was asked for.
        turns: The decisions, in order.
        task_id: Task that was played.
        task_type: Kind of task.
        split: Split of the task.
        goal: The instruction the agent saw.
        terminated: The environment ended the episode by its rules.
        truncated: It was cut off.
        stop_reason: Why it ended.
        score: Final score in [0, 1].
        success: The task was solved.
        tail_ids: Context after the last action, fed to the critic to bootstrap a truncated
            episode; int32 (k,), empty where it is not needed or exceeds the policy's context.
        tail_extends: ``tail_ids`` continues the last turn's sequence; False where it is a whole
            prompt of its own (windowed mode).
        details: ``info["details"]`` of the last step.
        error: What went wrong, for ``INFRA_ERROR`` and ``DEADLINE``.
    """

    spec: EpisodeSpec
    turns: list[Turn] = field(default_factory=list)
    task_id: str = ""
    task_type: str = ""
    split: str = ""
    goal: str = ""
    terminated: bool = False
    truncated: bool = False
    stop_reason: StopReason = StopReason.CANCELLED
    score: float = 0.0
    success: bool = False
    tail_ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    tail_extends: bool = True
    details: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def rewards(self) -> np.ndarray:
        """Reward of each turn; float64 (turns,)."""
        return np.array([turn.reward for turn in self.turns], np.float64)

    @property
    def total_reward(self) -> float:
        """Undiscounted return R."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def n_actions(self) -> int:
        """Number of sampled tokens."""
        return sum(turn.n_actions for turn in self.turns)

    @property
    def given(self) -> int:
        """How much was given: turns of the oracle, or else tokens of the first response."""
        replayed = sum(turn.replayed for turn in self.turns)
        return replayed or sum(turn.given for turn in self.turns)

    @property
    def usable(self) -> bool:
        """Whether the episode says something about the policy and holds anything to learn from."""
        return self.stop_reason not in LOST and self.n_actions > 0

    @property
    def min_version(self) -> int:
        """Oldest weight version among the sampled tokens (-1 if there is none)."""
        return min((int(turn.versions.min()) for turn in self.turns if turn.n_actions), default=-1)


@dataclass(slots=True)
class TrajectoryGroup:
    """Replicas of one (task, seed).

    Attributes:
        group_id: Name of the group.
        trajectories: The members, by member index.
    """

    group_id: str
    trajectories: list[Trajectory]

    def __len__(self) -> int:
        return len(self.trajectories)

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.trajectories)


def group_trajectories(trajectories: Iterable[Trajectory]) -> list[TrajectoryGroup]:
    """Sort trajectories into their groups, in order of first appearance and member index."""
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.spec.group_id, []).append(trajectory)
    return [
        TrajectoryGroup(name, sorted(members, key=lambda item: item.spec.member))
        for name, members in groups.items()
    ]
