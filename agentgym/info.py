"""The typed ``info`` dictionary that every environment returns, and why episodes end."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NotRequired, TypedDict


class StopReason(StrEnum):
    """Why an episode ended; every finished trajectory has exactly one.

    ``SOLVED`` and ``FAILED`` are terminations decided by the environment. ``MAX_TURNS`` is its
    step limit (a truncation). The others are decided outside the environment, by the collector.
    """

    SOLVED = "solved"
    FAILED = "failed"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    CONTEXT_OVERFLOW = "context_overflow"
    DEADLINE = "deadline"
    INFRA_ERROR = "infra_error"
    CANCELLED = "cancelled"


#: Faults of something else than the policy: such an episode counts nowhere.
LOST = frozenset({StopReason.INFRA_ERROR, StopReason.CANCELLED})
#: Episodes that libraries without these reasons should not train on.
ABORTED = LOST | {StopReason.DEADLINE}


class Info(TypedDict):
    """What ``reset`` and ``step`` return beside the observation.

    The keys are the same in every environment. Values are plain data without clocks, object
    identities or arrays that a later step would change.

    Attributes:
        task_id: Stable id of the task being played.
        task_type: Kind of task within the environment (for per-type statistics).
        split: Split the task belongs to.
        goal: The instruction the agent can see.
        admissible_actions: Every action accepted now, or None where they cannot be listed. A
            free-text action stands as a literal pattern, for instance ``search[<query>]``.
        action_valid: The environment accepted the last action as admissible (True after reset).
        score: Progress in [0, 1] by the environment's own measure.
        success: The task is solved.
        stop_reason: Why the episode ended, or None while it runs.
        turn: Number of actions taken so far.
        details: What only this environment has; JSON-able and documented by its class.
        reference: With ``expert=True``, the oracle's remaining actions or reference steps.
    """

    task_id: str
    task_type: str
    split: str
    goal: str
    admissible_actions: tuple[str, ...] | None
    action_valid: bool
    score: float
    success: bool
    stop_reason: StopReason | None
    turn: int
    details: dict[str, Any]
    reference: NotRequired[tuple[str, ...]]


def stop_reason(info: Info, terminated: bool) -> StopReason:
    """Why an episode ended: what the environment says, or else what its flags mean."""
    given = info.get("stop_reason")
    if given is not None:
        return StopReason(given)
    if terminated:
        return StopReason.SOLVED if info.get("success") else StopReason.FAILED
    return StopReason.MAX_TURNS
