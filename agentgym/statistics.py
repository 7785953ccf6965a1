"""Intervals for shares and means, without SciPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["mean_interval", "newcombe_interval", "t_quantile", "wilson_interval"]

_Z95 = 1.959963984540054


def wilson_interval(share: float, n: int, z: float = _Z95) -> tuple[float, float]:
    """Score interval of a binomial share (Wilson 1927); 95 % by default.

    Args:
        share: Successes / n, in [0, 1].
        n: Trials, >= 1.
        z: Normal quantile of the two-sided interval.

    Returns:
        Lower and upper end, both in [0, 1].
    """
    if n < 1 or not 0.0 <= share <= 1.0:
        raise ValueError(f"a share in [0, 1] of n >= 1 trials is needed, got {share!r} of {n!r}")
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low, high = (centre - half) / scale, (centre + half) / scale
    # At the ends the formula gives the bound exactly; rounding must not move it past.
    return (0.0 if share == 0 else max(low, 0.0), 1.0 if share == 1 else min(high, 1.0))


def newcombe_interval(
    before: float, n_before: int, after: float, n_after: int
) -> tuple[float, float]:
    """95 % interval of ``after - before`` for two independent shares (Newcombe 1998, method 10).

    Two evaluations on the same tasks are positively correlated; the interval is then too wide,
    never too narrow.
    """
    low_b, high_b = wilson_interval(before, n_before)
    low_a, high_a = wilson_interval(after, n_after)
    difference = after - before
    return (
        difference - math.hypot(after - low_a, high_b - before),
        difference + math.hypot(high_a - after, before - low_b),
    )


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95 % Student-t interval; the ends are NaN for fewer than two values."""
    if not values:
        raise ValueError("the mean of no value is asked for")
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan, math.nan
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    half = t_quantile(len(values) - 1) * math.sqrt(variance / len(values))
    return mean, mean - half, mean + half


def t_quantile(degrees: int, probability: float = 0.975) -> float:
    """Quantile of Student's t distribution for probabilities above 1/2, by bisection.

    The distribution function for integer degrees of freedom is a finite trigonometric sum
    (Abramowitz and Stegun 26.7.3 and 26.7.4).
    """
    if degrees < 1 or not 0.5 < probability < 1.0:
        raise ValueError(
            f"degrees >= 1, 1/2 < probability < 1 needed: {degrees!r}, {probability!r}"
        )
    low, high = 0.0, 1.0
    while _t_cdf(high, degrees) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return high


def _t_cdf(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees % 2:
        term, total = cosine, 0.0
        for k in range(1, (degrees - 1) // 2 + 1):
            total += term
            term *= cosine * cosine * (2 * k) / (2 * k + 1)
        inside = 2 / math.pi * (angle + sine * total)
    else:
        term, total = 1.0, 0.0
        for k in range(1, degrees // 2 + 1):
            total += term
            term *= cosine * cosine * (2 * k - 1) / (2 * k)
        inside = sine * total
    return 0.5 + inside / 2
