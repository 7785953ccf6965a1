"""Recorded trajectories made of numbers that tell where they belong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentgym.info import StopReason
from agentgym.packing import Credit
from agentgym.policy import FinishReason
from agentgym.trajectory import EpisodeSpec, Trajectory, Turn


def turn(
    context: Sequence[int], action: Sequence[int], *, extends: bool = True, **changes: object
) -> Turn:
    """A turn whose log-prob of token ``i`` is ``-i`` and whose weight version is 3."""
    ids = np.array(action, np.int32)
    values: dict = {
        "context_ids": np.array(context, np.int32),
        "extends": extends,
        "action_ids": ids,
        "logprobs": -ids.astype(np.float32),
        "versions": np.full(len(ids), 3, np.int32),
        "trainable": np.ones(len(ids), bool),
        "finish_reason": FinishReason.STOP,
    }
    return Turn(**(values | changes))


def trajectory(
    turns: Sequence[Turn],
    *,
    tail: Sequence[int] = (),
    group: str = "g",
    member: int = 0,
    **changes: object,
) -> Trajectory:
    """A finished episode of these turns."""
    values: dict = {
        "spec": EpisodeSpec("task", "train", 0, group, member),
        "turns": list(turns),
        "tail_ids": np.array(tail, np.int32),
        "stop_reason": StopReason.FAILED,
        "terminated": True,
    }
    return Trajectory(**(values | changes))


def credit(played: Trajectory, offset: float = 0.0) -> Credit:
    """An advantage of ``offset + token id`` and ten times that as the target."""
    advantages = [offset + turn.action_ids.astype(np.float64) for turn in played.turns]
    return Credit(advantages, [10 * array for array in advantages])
