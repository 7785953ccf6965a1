"""Group-relative advantages: GRPO, Dr.GRPO, RLOO, and what becomes of damaged groups.

A group is a set of rollouts of one task from one seed. Each member's return is compared with the
returns of the other members, and the difference is the advantage of all its action tokens.
"""

# ruff: noqa: N815 - shape suffixes on array fields, as on arguments

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from trainers.advantages.turns import BoolArray, FloatArray, IntArray

Center = Literal["mean", "loo"]
Std = Literal["none", "group", "batch"]
AdvantageNorm = Literal["none", "batch_std", "whiten"]


@dataclass(frozen=True)
class GroupAdvantages:
    """Advantages of ``N`` rollouts and an account of everything that was left out.

    Attributes:
        advantages_N: Advantage of each rollout; exactly 0 for dropped members and for members of
            zero-variance groups.
        centered_N: Return minus baseline, before any division by a standard deviation; NaN for
            dropped members.
        baseline_N: What was subtracted: the group's mean, or the mean of the other members; NaN
            for dropped members.
        mean_N: Mean return of the member's group; NaN for dropped members.
        kept_N: False for members that must not be trained on.
        zero_variance_N: True for kept members whose group's returns are all equal.
        members_invalid: Members dropped because the caller marked them invalid.
        members_nonfinite: Members dropped because their return is not finite.
        groups: Number of groups given.
        groups_kept: Groups with an advantage.
        groups_zero_variance: Kept groups whose returns are all equal.
        groups_too_few: Groups dropped because too few of their planned members are valid.
        groups_single: Groups dropped because one valid member is left: it has no one to be
            compared with.
    """

    advantages_N: FloatArray
    centered_N: FloatArray
    baseline_N: FloatArray
    mean_N: FloatArray
    kept_N: BoolArray
    zero_variance_N: BoolArray
    members_invalid: int
    members_nonfinite: int
    groups: int
    groups_kept: int
    groups_zero_variance: int
    groups_too_few: int
    groups_single: int

    def metrics(self) -> dict[str, float]:
        """Counts for the run's log; the zero-variance fraction is among kept groups."""
        return {
            "groups": float(self.groups),
            "groups_kept": float(self.groups_kept),
            "groups_too_few": float(self.groups_too_few),
            "groups_single": float(self.groups_single),
            "members_invalid": float(self.members_invalid),
            "members_nonfinite": float(self.members_nonfinite),
            "zero_variance_fraction": self.groups_zero_variance / max(self.groups_kept, 1),
        }


def check_group_size(group_size: int, algorithm: str) -> None:
    """Refuse a group size that leaves nobody to compare with, when the config is read.

    Raises:
        ValueError: ``group_size`` is below 2.
    """
    if group_size < 2:
        raise ValueError(
            f"{algorithm} compares rollouts of one task with each other: group_size must be >= 2, "
            f"got {group_size}"
        )


def group_advantages(
    returns_N: ArrayLike,
    group_N: Sequence[Hashable],
    *,
    valid_N: ArrayLike | None = None,
    center: Center = "mean",
    std: Std = "none",
    ddof: int = 1,
    eps: float = 1e-6,
    planned_size: int | None = None,
    min_valid_fraction: float = 0.5,
    zero_variance_tol: float = 1e-8,
) -> GroupAdvantages:
    """Advantage of each rollout relative to its group.

    ====================  ======  =====  ====================================================
    name                  center  std    advantage
    ====================  ======  =====  ====================================================
    GRPO                  mean    group  ``(R_i - mu_g) / (s_g + eps)``, arXiv 2402.03300
    Dr.GRPO               mean    none   ``R_i - mu_g``, arXiv 2503.20783
    RLOO                  loo     none   ``R_i - mean_{j != i} R_j = G/(G-1) (R_i - mu_g)``
    batch scale (TRL)     mean    batch  ``(R_i - mu_g) / (s_batch + eps)``
    ====================  ======  =====  ====================================================

    Dropping comes first: invalid members and members with a non-finite return leave their group;
    a group keeps going on the valid rest (its mean and deviation are those of the rest) if they
    are at least ``min_valid_fraction`` of the planned size, and at least two.

    Args:
        returns_N: Undiscounted return of each rollout.
        group_N: Group id of each rollout; any order, any hashable.
        valid_N: False for rollouts that did not really take place (``infra_error``,
            ``cancelled``). All valid when omitted.
        center: Subtract the group's mean, or the mean of the *other* members (unbiased, where the
            former shrinks the expected advantage by ``1 - 1/G``).
        std: Divide by the standard deviation of the group, of all kept returns of the batch, or
            by nothing.
        ddof: 1 divides squared deviations by ``G - 1``. The GRPO paper does not say; both large
            public implementations take the sample deviation.
        eps: Added to the deviation. The paper does not say; verl has 1e-6, TRL 1e-4.
        planned_size: Rollouts planned a group, for the minimum below; the number present when
            omitted.
        min_valid_fraction: Half, as GLM-5 does (which fills the gap by repeating members; here
            the statistics are simply those of the valid members, so that nobody counts twice).
        zero_variance_tol: A group whose largest and smallest return differ by no more is a
            zero-variance group. Judged per group whatever ``std`` is, and its advantages are
            exactly 0 rather than a rounding error over ``eps``.

    Returns:
        `GroupAdvantages`, arrays in the order given.

    Raises:
        ValueError: Shapes differ or an option is out of range.
    """
    if center not in ("mean", "loo"):
        raise ValueError(f"center must be 'mean' or 'loo', got {center!r}")
    if std not in ("none", "group", "batch"):
        raise ValueError(f"std must be 'none', 'group' or 'batch', got {std!r}")
    if ddof not in (0, 1):
        raise ValueError(f"ddof must be 0 or 1, got {ddof}")
    if not 0.0 <= min_valid_fraction <= 1.0:
        raise ValueError(f"min_valid_fraction must lie in [0, 1], got {min_valid_fraction}")

    returns = np.asarray(returns_N, dtype=np.float64)
    group, G = _group_codes(group_N)
    if returns.shape != group.shape:
        raise ValueError(
            f"returns_N and group_N differ in length: {returns.shape} and {group.shape}"
        )
    valid = np.ones(returns.size, np.bool_) if valid_N is None else np.asarray(valid_N, np.bool_)
    if valid.shape != returns.shape:
        raise ValueError(f"valid_N has shape {valid.shape}, returns_N {returns.shape}")

    # Who stays.
    finite = np.isfinite(returns)
    usable = valid & finite
    present_G = np.bincount(group, minlength=G)
    usable_G = np.bincount(group[usable], minlength=G)
    planned_G = present_G if planned_size is None else np.maximum(present_G, planned_size)
    too_few_G = usable_G < min_valid_fraction * planned_G
    too_few_G |= usable_G == 0
    single_G = ~too_few_G & (usable_G == 1)
    kept_G = ~(too_few_G | single_G)
    kept = usable & kept_G[group]

    # Statistics of the kept members. Dropped returns may be NaN, so they are never read.
    code, R = group[kept], returns[kept]
    n_G = np.bincount(code, minlength=G)
    sum_G = np.bincount(code, weights=R, minlength=G)
    mean_G = sum_G / np.maximum(n_G, 1)
    low_G, high_G = np.full(G, np.inf), np.full(G, -np.inf)
    np.minimum.at(low_G, code, R)
    np.maximum.at(high_G, code, R)
    zero_variance_G = kept_G.copy()
    zero_variance_G[kept_G] = high_G[kept_G] - low_G[kept_G] <= zero_variance_tol

    baseline = mean_G[code] if center == "mean" else (sum_G[code] - R) / (n_G[code] - 1)
    centered = np.where(zero_variance_G[code], 0.0, R - baseline)

    if std == "group":
        square_G = np.bincount(code, weights=(R - mean_G[code]) ** 2, minlength=G)
        scale = np.sqrt(square_G / np.maximum(n_G - ddof, 1))[code] + eps
    elif std == "batch":
        scale = np.full(R.size, (R.std(ddof=ddof) if R.size else 0.0) + eps)
    else:
        scale = np.ones(R.size)
    # A zero-variance group divided by a zero deviation (eps may be 0) stays 0, never NaN.
    advantage = np.divide(centered, scale, out=np.zeros_like(centered), where=centered != 0.0)

    return GroupAdvantages(
        advantages_N=_spread(advantage, kept, fill=0.0),
        centered_N=_spread(centered, kept, fill=np.nan),
        baseline_N=_spread(baseline, kept, fill=np.nan),
        mean_N=_spread(mean_G[code], kept, fill=np.nan),
        kept_N=kept,
        zero_variance_N=kept & zero_variance_G[group],
        members_invalid=int((~valid).sum()),
        members_nonfinite=int((valid & ~finite).sum()),
        groups=G,
        groups_kept=int(kept_G.sum()),
        groups_zero_variance=int(zero_variance_G.sum()),
        groups_too_few=int(too_few_G.sum()),
        groups_single=int(single_G.sum()),
    )


@dataclass(frozen=True)
class DynamicSample:
    """Outcome of one filtering of DAPO's dynamic sampling.

    Attributes:
        keep_N: Rollouts of groups whose returns differ.
        kept_groups: Ids of those groups, in order of first appearance.
        released_groups: Ids of all others. Whoever scheduled them must free their places, or an
            asynchronous producer waits for them forever.
    """

    keep_N: BoolArray
    kept_groups: tuple[Hashable, ...]
    released_groups: tuple[Hashable, ...]


def dynamic_sample(group_N: Sequence[Hashable], advantages: GroupAdvantages) -> DynamicSample:
    """Keep the groups that teach something (DAPO, arXiv 2503.14476, section 3.2).

    Groups whose members all earned the same have zero advantage; DAPO drops them and samples more
    prompts until the batch is full, so that its effective size does not shrink as training goes on.

    Args:
        group_N: Group id of each rollout, as given to `group_advantages`.
        advantages: What `group_advantages` returned for them.
    """
    keep = advantages.kept_N & ~advantages.zero_variance_N
    kept = dict.fromkeys(group for group, stays in zip(group_N, keep, strict=True) if stays)
    released = tuple(group for group in dict.fromkeys(group_N) if group not in kept)
    return DynamicSample(keep, tuple(kept), released)


def soft_overlong_penalty(
    lengths_N: ArrayLike, *, max_length: int = 20480, cache_length: int = 4096
) -> FloatArray:
    """DAPO's penalty for answers that come close to the length limit (equation 13).

    0 up to ``max_length - cache_length`` tokens, then linear to -1 at ``max_length``, -1 above.
    To be added to the reward of the rollout.

    Args:
        lengths_N: Generated tokens of each rollout.
        max_length: Length limit in tokens (DAPO: 20480).
        cache_length: Width of the slope in tokens (DAPO: 4096).

    Raises:
        ValueError: Not ``0 < cache_length <= max_length``.
    """
    if not 0 < cache_length <= max_length:
        raise ValueError(
            f"cache_length must lie in 1..max_length ({max_length}), got {cache_length}"
        )
    lengths = np.asarray(lengths_N, dtype=np.float64)
    return np.clip((max_length - cache_length - lengths) / cache_length, -1.0, 0.0)


def normalise(
    advantages: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    how: AdvantageNorm = "whiten",
    ddof: int = 0,
    eps: float = 1e-8,
) -> FloatArray:
    """Bring the advantages of a whole batch to unit scale.

    Args:
        advantages: Advantages of all tokens of the batch, any shape.
        mask: True on action tokens, same shape; all of them when omitted. Values off the mask are
            neither read nor counted, and come out as 0.
        how: ``"whiten"`` subtracts the mean and divides by the standard deviation, as PPO
            implementations do. ``"batch_std"`` only divides, by the deviation *about zero*: no
            advantage changes sign, zero stays zero (members of zero-variance groups keep a zero
            policy gradient), and a common offset cannot blow up the scale, as it would with the
            deviation about the mean. ``"none"`` leaves the values as they are.
        ddof: 0 for the population deviation, 1 for the sample deviation (``"whiten"`` only).
        eps: Added to the deviation.

    Returns:
        Float64 array of the shape given; zeros when the mask is empty.

    Raises:
        ValueError: Shapes differ, ``how`` is unknown, or an advantage on the mask is not finite.
    """
    values = np.asarray(advantages, dtype=np.float64)
    chosen = np.ones(values.shape, np.bool_) if mask is None else np.asarray(mask).astype(np.bool_)
    if chosen.shape != values.shape:
        raise ValueError(f"mask has shape {chosen.shape}, advantages {values.shape}")
    x = values[chosen]
    if not np.isfinite(x).all():
        raise ValueError(f"{int((~np.isfinite(x)).sum())} advantages on the mask are not finite")
    if how == "whiten":
        spread = x.std(ddof=ddof) if x.size > ddof else 0.0
        x = (x - x.mean()) / (spread + eps) if x.size else x
    elif how == "batch_std":
        x = x / (np.sqrt(np.mean(x**2)) + eps) if x.size else x
    elif how != "none":
        raise ValueError(f"how must be 'none', 'batch_std' or 'whiten', got {how!r}")
    out = np.zeros(values.shape, dtype=np.float64)
    out[chosen] = x
    return out


def _group_codes(group_N: Sequence[Hashable]) -> tuple[IntArray, int]:
    """Number groups by first appearance, so that order and type of ids change nothing."""
    codes: dict[Hashable, int] = {}
    numbered = [codes.setdefault(group, len(codes)) for group in group_N]
    return np.asarray(numbered, dtype=np.int64), len(codes)


def _spread(values: FloatArray, kept_N: BoolArray, *, fill: float) -> FloatArray:
    out = np.full(kept_N.shape, fill, dtype=np.float64)
    out[kept_N] = values
    return out
