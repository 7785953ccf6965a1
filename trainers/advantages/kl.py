"""Schulman's estimators of KL(pi || ref) from single samples, and KL as a reward penalty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from trainers.advantages.turns import FloatArray

KLKind = Literal["k1", "k2", "k3"]


def kl_terms(log_ratio: Any, kind: KLKind, expm1: Callable[[Any], Any]) -> Any:
    """Per-sample estimator from ``d = log pi - log ref``, for arrays of any library.

    ``k1 = d`` (unbiased), ``k2 = d^2 / 2`` (biased, always >= 0),
    ``k3 = exp(-d) - 1 + d`` (unbiased, always >= 0).

    Args:
        log_ratio: ``d``, any shape.
        kind: Which estimator.
        expm1: ``exp(x) - 1`` of the array's library; it keeps ``k3`` exact for small ``d``.

    Raises:
        ValueError: ``kind`` is unknown.
    """
    if kind == "k1":
        return log_ratio
    if kind == "k2":
        return 0.5 * log_ratio * log_ratio
    if kind == "k3":
        return expm1(-log_ratio) + log_ratio
    raise ValueError(f"KL estimator must be 'k1', 'k2' or 'k3', got {kind!r}")


def kl_penalized_rewards(
    rewards_n: ArrayLike,
    logp_n: ArrayLike,
    logp_ref_n: ArrayLike,
    *,
    beta: float,
    kind: KLKind = "k1",
) -> FloatArray:
    """Token rewards minus ``beta`` times the KL estimate at each action token.

    As a reward the estimate is a number, so ``k1`` is right here: its expectation is the KL
    divergence, and the policy gradient does the rest. (As a *loss* its gradient averages to zero;
    see `trainers.losses.kl_loss`.)

    Args:
        rewards_n: Rewards placed on action tokens of one rollout.
        logp_n: Log-probabilities of the policy that acted.
        logp_ref_n: Log-probabilities of the reference policy.
        beta: Weight of the penalty.
        kind: Estimator.

    Raises:
        ValueError: Shapes differ, or a log-probability is not finite.
    """
    rewards, logp, logp_ref = (
        np.asarray(x, dtype=np.float64) for x in (rewards_n, logp_n, logp_ref_n)
    )
    if not rewards.shape == logp.shape == logp_ref.shape:
        raise ValueError(
            f"rewards, logp and logp_ref differ in shape: {rewards.shape}, {logp.shape}, "
            f"{logp_ref.shape}"
        )
    log_ratio = logp - logp_ref
    if not np.isfinite(log_ratio).all():
        raise ValueError("a log-probability is not finite; the rollout cannot be penalised for it")
    return rewards - beta * kl_terms(log_ratio, kind, np.expm1)
