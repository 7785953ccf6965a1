"""How far behind the learner a rollout may be, bounded at admission and again at consumption."""

from __future__ import annotations


def rollout_capacity(
    max_staleness: int, version: int, accepted: int, running: int, batch_size: int
) -> int:
    """Rollouts that may be started now (AReaL, arXiv 2505.24298).

    ``(eta + version + 1) B - (accepted + running)``: all that the learner can have consumed by the
    time its weights are ``eta`` updates ahead, minus all that was ever admitted. With ``eta = 0``
    exactly one batch a version may be under way. The bound is on the aggregate, not on the single
    rollout, hence `too_stale` at consumption.

    Args:
        max_staleness: ``eta``, in weight versions.
        version: The learner's current weight version.
        accepted: Rollouts completed and accepted since version 0. After resuming from a checkpoint
            this must be set to ``version * batch_size``.
        running: Rollouts under way. Dropped ones must be subtracted, or the producer stops.
        batch_size: Rollouts the learner consumes in one step.

    Returns:
        The number, 0 if there is no room.
    """
    if min(max_staleness, version, accepted, running) < 0 or batch_size < 1:
        raise ValueError(
            "counts must be >= 0 and batch_size >= 1, got "
            f"{max_staleness=}, {version=}, {accepted=}, {running=}, {batch_size=}"
        )
    return max(0, (max_staleness + version + 1) * batch_size - (accepted + running))


def too_stale(oldest_version: int, current_version: int, max_staleness: int) -> bool:
    """Whether a rollout must be dropped: its *oldest* action token decides (GLM-5's rule).

    Args:
        oldest_version: Smallest weight version among the action tokens (of the whole group, for
            group algorithms).
        current_version: The learner's version.
        max_staleness: Largest lag that is still trained on.
    """
    return current_version - oldest_version > max_staleness
