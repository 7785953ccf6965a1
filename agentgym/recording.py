"""Trajectories as plain JSON values, to be read by people and by other programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentgym.trajectory import Trajectory, Turn

__all__ = ["finite", "plain", "readable", "spelled"]

# Nothing that an environment tells on purpose is nested deeper.
_DEEPEST = 64


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


def plain(value: Any) -> Any:
    """Anything an environment tells, as JSON values.

    Mappings become objects, sequences, sets and arrays lists, NumPy's scalars numbers; numbers that
    JSON does not know become texts (see :func:`spelled`), and so does everything else. Nothing is
    refused: what an environment tells besides must not cost the episode.
    """
    return _plain(value, ())


def _plain(value: Any, within: tuple[int, ...]) -> Any:
    """``within`` has the identities of what holds the value: some things hold themselves."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return spelled(float(value))
    if id(value) not in within and len(within) < _DEEPEST:
        inner = (*within, id(value))
        if isinstance(value, Mapping):
            return {_text(key): _plain(item, inner) for key, item in value.items()}
        if isinstance(value, np.ndarray):
            return _plain(value.tolist(), inner)
        if isinstance(value, list | tuple):
            return [_plain(item, inner) for item in value]
        if isinstance(value, set | frozenset):
            return [_plain(item, inner) for item in sorted(value, key=_text)]
    return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__} that str() fails on>"


def spelled(value: float) -> float | str:
    """The number, or its name where JSON has none for it.

    The names are ``NaN``, ``Infinity`` and ``-Infinity``; ``float`` reads them back.
    """
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def finite(value: float) -> float | None:
    """The number, or None where it is infinite or none."""
    return float(value) if math.isfinite(value) else None
