"""GiGPO's two terms (arXiv 2505.10978), and HGPO's levels of history (arXiv 2602.22817).

``A = A_episode + omega * A_step``. The episode term compares rollouts of one task; the step term
compares what was done in the same situation, in whatever rollout and at whatever time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from trainers.advantages.group import Std
from trainers.advantages.steps import anchor_groups
from trainers.advantages.turns import BoolArray, FloatArray, IntArray

__all__ = [
    "HgpoWeights",
    "action_means",
    "episode_advantages",
    "history_advantages",
    "history_weights",
    "local_advantages",
]

HgpoWeights = Literal["formula", "release"]
_SAME = 1e-8  # scores that differ by no more are equal; as in trainers.advantages.group


def episode_advantages(
    scores_R: ArrayLike,
    group_R: IntArray,
    trajectory_R: IntArray,
    *,
    cross_steps: bool,
    std: Std = "group",
    eps: float = 1e-6,
    ddof: int = 1,
) -> FloatArray:
    """Score of each row relative to its group.

    Args:
        scores_R: Score of each row, see :meth:`trainers.advantages.steps.StepRows.scores`.
        group_R: Group of each row, numbered from 0.
        trajectory_R: Rollout of each row.
        cross_steps: Mean and deviation over all rows of a group, so that long rollouts weigh more
            (GiGPO's release). False takes the first row of each rollout: every rollout once.
        std: Divide by the deviation of the group (``mean_std_norm``), of all that is compared in
            the batch, or by nothing (``mean_norm``).
        eps: Added to the deviation.
        ddof: 1 for the sample deviation, as in the release.

    Returns:
        One advantage a row. A group of one entry has nobody to be compared with: 0 (the release
        returns the score itself). In a group where all that is compared is equal nothing is divided
        by its deviation, so that what is left, penalties of single rows, stays as small as it is.
    """
    scores = np.asarray(scores_R, np.float64)
    members = slice(None) if cross_steps else np.unique(trajectory_R, return_index=True)[1]
    code, R = group_R[members], scores[members]
    G = int(group_R.max()) + 1 if len(group_R) else 0
    n_G = np.bincount(code, minlength=G)
    mean_G = np.bincount(code, weights=R, minlength=G) / np.maximum(n_G, 1)
    square_G = np.bincount(code, weights=(R - mean_G[code]) ** 2, minlength=G)
    low_G, high_G = np.full(G, np.inf), np.full(G, -np.inf)
    np.minimum.at(low_G, code, R)
    np.maximum.at(high_G, code, R)
    even_G = high_G - low_G <= _SAME
    centered = scores - mean_G[group_R]
    centered[(n_G < 2)[group_R] | (even_G[group_R] & (np.abs(centered) <= _SAME))] = 0.0
    if std == "none":
        return centered
    if std == "batch":
        return centered / (_deviation(R, ddof) + eps)
    scale_G = np.where(even_G, 1.0, np.sqrt(square_G / np.maximum(n_G - ddof, 1)) + eps)
    return centered / scale_G[group_R]


def action_means(returns_R: FloatArray, anchor_R: IntArray, action_R: ArrayLike) -> FloatArray:
    """Mean return of the rows that took the same action in the same situation (BLPO's Q)."""
    pairs = np.stack([anchor_R, np.asarray(action_R, np.int64)])
    _, code = np.unique(pairs, axis=1, return_inverse=True)
    code = code.reshape(-1)
    sums = np.bincount(code, weights=returns_R)
    return (sums / np.maximum(np.bincount(code), 1))[code]


def local_advantages(
    returns_R: ArrayLike,
    anchor_R: IntArray,
    action_R: ArrayLike | None = None,
    *,
    std: Std = "group",
    eps: float = 1e-6,
    ddof: int = 1,
) -> tuple[FloatArray, BoolArray]:
    """Return of each row relative to what was earned from the same situation.

    ``(Q - mean) / (std + eps)`` with mean and deviation over the rows of the situation. Without
    ``action_R``, Q is the row's own return: GiGPO's step term. With it, Q is the mean over the
    rows that took the same action, so that equal actions get equal credit: BLPO's local term.

    Args:
        returns_R: Discounted return of each row.
        anchor_R: Situation of each row, see :func:`trainers.advantages.steps.anchor_groups`.
        action_R: Action of each row, or None.
        std: Divide by the deviation within the situation, by that of all returns of the batch, or
            by nothing.
        eps: Added to the deviation; also what counts as no spread.
        ddof: 1 for the sample deviation.

    Returns:
        The advantages, 0 where inactive, and whether each row is active: its situation was met
        twice, the returns differ, and so do the Q.
    """
    returns = np.asarray(returns_R, np.float64)
    if not len(returns):
        return np.zeros(0), np.zeros(0, np.bool_)
    n = np.bincount(anchor_R)
    mean = np.bincount(anchor_R, weights=returns) / np.maximum(n, 1)
    square = np.bincount(anchor_R, weights=(returns - mean[anchor_R]) ** 2)
    variance = square / np.maximum(n - ddof, 1)
    q = returns if action_R is None else action_means(returns, anchor_R, action_R)
    centered = q - mean[anchor_R]
    widest = np.zeros(len(n))
    np.maximum.at(widest, anchor_R, np.abs(centered))
    active = ((n >= 2) & (variance > eps**2) & (widest > eps))[anchor_R]
    if std == "group":
        scale = np.sqrt(variance)[anchor_R] + eps
    else:
        scale = np.full(len(returns), _deviation(returns, ddof) + eps if std == "batch" else 1.0)
    return np.where(active, centered / scale, 0.0), active


def _deviation(values: FloatArray, ddof: int) -> float:
    return float(values.std(ddof=ddof)) if len(values) > ddof else 0.0


# HGPO ---------------------------------------------------------------------------------------------


def history_weights(levels: int, alpha: float, first: int = 0) -> FloatArray:
    """``w_k`` in proportion to ``(k + 1) ** alpha``, summing to 1.

    Args:
        levels: Number of levels.
        alpha: Exponent; 0 weighs all levels alike.
        first: Index of the first level; the release counts from 1 where there is no episode term.
    """
    raw = np.power(np.arange(first + 1, first + levels + 1, dtype=np.float64), alpha)
    return np.asarray(raw / raw.sum())


def history_advantages(
    returns_R: FloatArray,
    group_R: IntArray,
    trajectory_R: IntArray,
    observation_R: Sequence[str],
    *,
    history: int,
    alpha: float = 1.0,
    weights: HgpoWeights = "formula",
    base_R: FloatArray | None = None,
    std: Std = "group",
    eps: float = 1e-6,
) -> FloatArray:
    """HGPO: step terms for ever longer histories, averaged.

    Level k compares rows of a group whose last k + 1 observations are the same. Levels whose
    advantage is 0 (the history occurred once, or the returns are equal) are left out and the
    weights of the others are scaled up.

    Args:
        returns_R: Discounted return of each row.
        group_R: Group of each row.
        trajectory_R: Rollout of each row; rows of one stand together in order of time.
        observation_R: Observation of each row.
        history: Longest history (K); levels run from 0 to K. At the beginning of an episode the
            history is as long as there is.
        alpha: See :func:`history_weights`.
        weights: ``formula`` counts levels from 0 and takes the sample deviation; ``release`` does
            what the published code does: it counts from 1 without ``base_R``, and takes the
            population's.
        base_R: Episode term to be the first level, or None for no episode term.
        std: See :func:`local_advantages`.
        eps: Added to the deviation.
    """
    released = weights == "release"
    levels = [] if base_R is None else [base_R]
    pasts = _histories(trajectory_R, observation_R, history)
    for k in range(history + 1):
        anchor = anchor_groups(group_R, [past[-(k + 1) :] for past in pasts])
        own, _ = local_advantages(returns_R, anchor, std=std, eps=eps, ddof=0 if released else 1)
        levels.append(own)
    A_LR = np.stack(levels)
    first = 1 if released and base_R is None else 0
    # A return equal to its mean can differ from it by rounding, which depends on the rows' order.
    w_LR = np.where(np.abs(A_LR) > _SAME, history_weights(len(levels), alpha, first)[:, None], 0.0)
    total = w_LR.sum(0)
    return np.divide((w_LR * A_LR).sum(0), total, out=np.zeros(len(total)), where=total > 0)


def _histories(
    trajectory_R: IntArray, observation_R: Sequence[str], history: int
) -> list[tuple[str, ...]]:
    """The last observations before each action, the present one last."""
    out: list[tuple[str, ...]] = []
    owner, past = -1, tuple[str, ...]()
    for trajectory, observation in zip(trajectory_R.tolist(), observation_R, strict=True):
        past = (observation,) if trajectory != owner else (*past, observation)[-(history + 1) :]
        owner = trajectory
        out.append(past)
    return out
