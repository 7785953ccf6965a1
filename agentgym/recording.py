"""Trajectories as plain JSON values, to be read by people and by other programs."""

from __future__ import annotations

import math
from typing import Any

from agentgym.trajectory import Trajectory, Turn

__all__ = ["finite", "readable"]


def readable(trajectory: Trajectory, *, tokens: bool = False) -> dict[str, Any]:
    """One episode.

    Args:
        trajectory: The episode.
        tokens: With the ids, log-probs, versions and trainable flags of every turn.

    Returns:
        JSON values, but for ``details``, which is the environment's own.
    """
    spec = trajectory.spec
    return {
        "task_id": trajectory.task_id or spec.task_id,
        "task_type": trajectory.task_type,
        "split": trajectory.split or spec.split,
        "seed": spec.seed,
        "group_id": spec.group_id,
        "member": spec.member,
        "goal": trajectory.goal,
        "stop_reason": str(trajectory.stop_reason),
        "terminated": trajectory.terminated,
        "truncated": trajectory.truncated,
        "success": bool(trajectory.success),
        "score": finite(trajectory.score),
        "reward": finite(trajectory.total_reward),
        "action_tokens": trajectory.n_actions,
        "error": trajectory.error,
        "details": trajectory.details,
        "turns": [_turn(turn, tokens) for turn in trajectory.turns],
    }


def _turn(turn: Turn, tokens: bool) -> dict[str, Any]:
    out: dict[str, Any] = {
        "observation": turn.observation,
        "text": turn.text,
        "action": turn.action,
        "reward": finite(turn.reward),
        "score": finite(turn.score),
        "format_ok": bool(turn.format_ok),
        "action_valid": bool(turn.action_valid),
        "finish_reason": str(turn.finish_reason),
        "context_tokens": len(turn.context_ids),
        "action_tokens": turn.n_actions,
    }
    if turn.state:  # progress was watched
        out |= {
            "state": turn.state,
            "abstract_action": turn.abstract_action,
            "shareable": bool(turn.shareable),
            "context_key": turn.context_key,
        }
    if tokens:
        out |= {
            "extends": bool(turn.extends),
            "context_ids": [int(token) for token in turn.context_ids],
            "action_ids": [int(token) for token in turn.action_ids],
            "logprobs": [float(value) for value in turn.logprobs],
            "versions": [int(version) for version in turn.versions],
            "trainable": [bool(flag) for flag in turn.trainable],
        }
    elif turn.n_actions:
        out["versions"] = [int(turn.versions.min()), int(turn.versions.max())]
    else:
        out["versions"] = []
    return out


def finite(value: float) -> float | None:
    """The number, or None where it is infinite or none."""
    return float(value) if math.isfinite(value) else None
