"""Rows of step-level credit from small tables, as a spec writes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentgym.info import StopReason
from agentgym.policy import FinishReason
from agentgym.trajectory import EpisodeSpec, Trajectory, Turn


def step(
    observation: str,
    action: str = "act",
    reward: float = 0.0,
    *,
    state: str = "",
    kind: str = "",
    context: str = "",
    shareable: bool | None = None,
    format_ok: bool = True,
    valid: bool = True,
    tokens: int = 1,
) -> Turn:
    """One decision. It can be shared if it has a state, unless something else is said."""
    return Turn(
        context_ids=np.arange(2, dtype=np.int32),
        extends=False,
        action_ids=np.ones(tokens, np.int32),
        logprobs=np.full(tokens, -1.0, np.float32),
        versions=np.zeros(tokens, np.int32),
        trainable=np.ones(tokens, bool),
        finish_reason=FinishReason.STOP,
        action=action,
        format_ok=format_ok,
        action_valid=valid,
        reward=reward,
        observation=observation,
        state=state,
        abstract_action=kind,
        shareable=bool(state) if shareable is None else shareable,
        context_key=context,
    )


def rollout(group: str, member: int, turns: Sequence[Turn], task: str = "") -> Trajectory:
    """One rollout of a group."""
    return Trajectory(
        spec=EpisodeSpec(task or group, None, 0, group, member),
        turns=list(turns),
        task_id=task or group,
        terminated=True,
        stop_reason=StopReason.FAILED,
    )


def single_steps(
    group: str, rows: Sequence[tuple[str, float]], *, state: str = "z", context: str = ""
) -> list[Trajectory]:
    """Rollouts of one step each: (kind of action, reward), all from one situation."""
    return [
        rollout(
            group,
            member,
            [
                step(
                    "x",
                    f"{kind} it",
                    reward,
                    state=state,
                    kind=kind,
                    context=context or f"c-{group}",
                )
            ],
        )
        for member, (kind, reward) in enumerate(rows)
    ]
