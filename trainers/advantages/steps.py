"""Decisions as rows: what step-level credit compares, one row for each turn of each rollout.

Prompting does not matter here. A row is a turn whether it was a prompt of its own (windowed) or a
part of one long sequence (conversation), and rows are made from recorded trajectories before
anything is packed or padded, so that no row can stand twice.
"""

# ruff: noqa: N815 - shape suffixes on array fields, as on arguments

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from agentgym.progress import canonical_text
from agentgym.trajectory import Trajectory, Turn
from trainers.advantages.turns import BoolArray, FloatArray, IntArray

__all__ = [
    "Anchor",
    "PenaltyOn",
    "StepRows",
    "anchor_groups",
    "canonical_action",
    "discounted_returns",
    "step_rows",
]

Anchor = Literal["observation", "observation_state"]
PenaltyOn = Literal["format", "invalid"]


@dataclass
class StepRows:
    """Turns of several rollouts, in order of rollout and turn; arrays have one entry a row.

    Attributes:
        group_R: Number of the group (rollouts of one task and seed) that the row belongs to.
        trajectory_R: Number of the rollout; its rows stand together, in order of time.
        task_R: Id of the task.
        observation_R: What the action answered, without history.
        action_R: Number of the canonical action, see :func:`canonical_action`.
        rewards_R: Reward of the turn.
        bad_R: The row is to pay the penalty.
        extra_R: What is added to the score of the row's rollout, beside its rewards.
        state_R: Progress state before the action; empty where progress was not watched.
        abstract_R: Kind of the action.
        shareable_R: Other tasks may learn from the row.
        context_R: Name of the concrete situation.
    """

    group_R: IntArray
    trajectory_R: IntArray
    task_R: list[str]
    observation_R: list[str]
    action_R: IntArray
    rewards_R: FloatArray
    bad_R: BoolArray
    extra_R: FloatArray
    state_R: list[str]
    abstract_R: list[str]
    shareable_R: BoolArray
    context_R: list[str]

    def __len__(self) -> int:
        return len(self.rewards_R)

    def scores(self, penalty: float) -> FloatArray:
        """Undiscounted return of the row's rollout, less the penalty on rows that are to pay it.

        Of one rollout, the rows differ by their own penalty alone (GiGPO).
        """
        totals = np.bincount(self.trajectory_R, weights=self.rewards_R)
        return totals[self.trajectory_R] + self.extra_R - penalty * self.bad_R

    def returns(self, gamma: float, penalty: float) -> FloatArray:
        """Discounted return from the row on, less the penalty on rows that are to pay it.

        The penalty does not reach earlier rows.
        """
        return discounted_returns(self.rewards_R, self.trajectory_R, gamma) - penalty * self.bad_R


def step_rows(
    trajectories: Sequence[Trajectory],
    *,
    penalty_on: PenaltyOn = "format",
    extra: ArrayLike | None = None,
) -> StepRows:
    """Rows of recorded rollouts.

    Turns that were not sampled (replayed ones) are no decisions of the policy and make no row.

    Args:
        trajectories: The rollouts.
        penalty_on: Which rows pay the penalty: those of the wrong form, or inadmissible ones too.
        extra: What is added to each rollout's score.

    Raises:
        ValueError: If a rollout stands twice: padding by repetition would change what every row
            is compared with, so nothing may be repeated before advantages are assigned.
    """
    seen: set[tuple[str, int]] = set()
    groups: dict[str, int] = {}
    actions: dict[tuple[str, str], int] = {}
    known: dict[tuple[str, bool, bool], int] = {}
    turns: list[Turn] = []
    task: list[str] = []
    group, trajectory, action = list[int](), list[int](), list[int]()
    rewards: list[float] = []
    for number, item in enumerate(trajectories):
        place = (item.spec.group_id, item.spec.member)
        if place in seen:
            raise ValueError(
                f"member {place[1]} of group {place[0]!r} stands twice among the rollouts; "
                "repeated rows belong after the advantages, not before"
            )
        seen.add(place)
        code = groups.setdefault(place[0], len(groups))
        waiting = 0.0  # earned before the first row
        for turn in item.turns:
            if not turn.n_actions:
                if trajectory and trajectory[-1] == number:
                    rewards[-1] += turn.reward
                else:
                    waiting += turn.reward
                continue
            key = (turn.action, turn.format_ok, turn.action_valid)
            if key not in known:
                known[key] = actions.setdefault(canonical_action(*key), len(actions))
            turns.append(turn)
            group.append(code)
            trajectory.append(number)
            task.append(item.task_id)
            action.append(known[key])
            rewards.append(turn.reward + waiting)
            waiting = 0.0
    everything = penalty_on == "invalid"
    bad = [not (turn.format_ok and (turn.action_valid or not everything)) for turn in turns]
    number_R = np.asarray(trajectory, np.int64)
    added = np.zeros(len(trajectories)) if extra is None else np.asarray(extra, np.float64)
    return StepRows(
        group_R=np.asarray(group, np.int64),
        trajectory_R=number_R,
        task_R=task,
        observation_R=[turn.observation for turn in turns],
        action_R=np.asarray(action, np.int64),
        rewards_R=np.asarray(rewards, np.float64),
        bad_R=np.asarray(bad, np.bool_),
        extra_R=added[number_R],
        state_R=[turn.state for turn in turns],
        abstract_R=[turn.abstract_action for turn in turns],
        shareable_R=np.asarray([turn.shareable for turn in turns], np.bool_),
        context_R=[turn.context_key for turn in turns],
    )


def canonical_action(action: str, format_ok: bool, admissible: bool) -> tuple[str, str]:
    """What makes two actions the same: their fate, and their text up to case and blanks.

    Actions of different fates never count as the same (BLPO).
    """
    fate = "malformed" if not format_ok else "ok" if admissible else "inadmissible"
    return fate, canonical_text(action)


def discounted_returns(rewards_R: ArrayLike, trajectory_R: ArrayLike, gamma: float) -> FloatArray:
    """``G_t = r_t + gamma G_{t+1}`` within each rollout.

    Args:
        rewards_R: Reward of each row.
        trajectory_R: Rollout of each row. Rows of one rollout stand in order of time; rows of
            other rollouts may stand between them.
        gamma: Discount of one turn.
    """
    rewards = np.asarray(rewards_R, np.float64).tolist()
    owners = np.asarray(trajectory_R).tolist()
    ahead: dict[Hashable, float] = {}
    out = [0.0] * len(rewards)
    for row in range(len(rewards) - 1, -1, -1):
        owner = owners[row]
        out[row] = ahead[owner] = rewards[row] + gamma * ahead.get(owner, 0.0)
    return np.asarray(out, np.float64)


def anchor_groups(
    group_R: Sequence[int] | IntArray,
    anchor_R: Sequence[Hashable],
    similarity: float | None = None,
) -> IntArray:
    """Number the groups of rows that answered the same situation in the same group.

    Args:
        group_R: Group of rollouts of each row.
        anchor_R: The situation, as a rule the observation.
        similarity: None asks for equality. Else texts are clustered greedily in the order of the
            rows: a row joins the first cluster of its group whose first member is as similar
            (``difflib``'s ratio), or founds one (GiGPO; 0.95, search 0.9).

    Returns:
        Numbers in order of first appearance.

    Raises:
        ValueError: The similarity lies outside (0, 1].
    """
    if similarity is not None:
        if not 0.0 < similarity <= 1.0:
            raise ValueError(f"similarity must lie in (0, 1], or be None, got {similarity}")
        anchor_R = _clustered(group_R, anchor_R, similarity)
    codes: dict[tuple[int, Hashable], int] = {}
    numbered = [
        codes.setdefault(key, len(codes))
        for key in zip(np.asarray(group_R).tolist(), anchor_R, strict=True)
    ]
    return np.asarray(numbered, np.int64)


def _clustered(
    group_R: Sequence[int] | IntArray, anchor_R: Sequence[Hashable], similarity: float
) -> list[Hashable]:
    """Replace each text by the first member of its cluster."""
    first: dict[int, list[tuple[str, SequenceMatcher[str]]]] = {}
    known: dict[tuple[int, str], str] = {}
    out: list[Hashable] = []
    for group, anchor in zip(np.asarray(group_R).tolist(), anchor_R, strict=True):
        text = str(anchor)
        if (group, text) not in known:
            # The same text always finds the same cluster: earlier ones do not change.
            known[group, text] = _representative(first.setdefault(group, []), text, similarity)
        out.append(known[group, text])
    return out


def _representative(
    clusters: list[tuple[str, SequenceMatcher[str]]], text: str, similarity: float
) -> str:
    for representative, matcher in clusters:
        matcher.set_seq1(text)
        # Two upper bounds of the ratio come first; they cost far less.
        if (
            matcher.real_quick_ratio() >= similarity
            and matcher.quick_ratio() >= similarity
            and matcher.ratio() >= similarity
        ):
            return representative
    matcher = SequenceMatcher(None, "", text)
    clusters.append((text, matcher))
    return text
