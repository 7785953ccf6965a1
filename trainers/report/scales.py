"""Axes: ranges that show the data, round ticks, and their labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainers.metrics import format_number

__all__ = ["Scale", "choose_scale", "round_ticks", "short_number"]


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps data to [0, 1].

    Attributes:
        low: Data at 0; greater than 0 where ``log``.
        high: Data at 1.
        ticks: Where ticks stand, inside the range.
        log: Logarithmic.
        percent: Ticks are labelled as percentages.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False
    percent: bool = False

    def __call__(self, value: float) -> float:
        """Position of a finite value; outside the range it lies outside [0, 1]."""
        if self.log:
            if value <= 0:
                return -1.0
            return math.log(value / self.low) / math.log(self.high / self.low)
        # Halves, because the difference of two huge numbers may overflow.
        return (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)

    def label(self, tick: float) -> str:
        """Text of a tick, with as many digits as tell it from its neighbours."""
        if self.log:
            return short_number(tick)
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else abs(tick) or 1.0
        if self.percent:
            digits = max(0, -math.floor(math.log10(step * 100) + 1e-9)) if step > 0 else 0
            return f"{100 * tick:.{digits}f}%"
        return short_number(tick, step)


def choose_scale(
    values: Iterable[float],
    *,
    percent: bool = False,
    anchor: Sequence[float] = (),
    log: bool | None = None,
    count: int = 5,
    tight: bool = False,
) -> Scale:
    """Choose a range for data.

    Args:
        values: The data; non-finite ones are ignored, and so is the size beyond 1e300.
        percent: Shares in [0, 1]: the range starts at 0 and never needs to pass 0 or 1.
        anchor: Values that must be inside, however far from the data (thresholds, zero).
        log: Logarithmic or not; None lets data decide: positive and spread over more than three
            decades.
        count: About how many ticks.
        tight: Range is exactly that of the data (for step axes).
    """
    data = sorted(_tame(v) for v in values if math.isfinite(v))
    if not data:
        data = [0.0, 1.0]
    if log is None:
        log = not percent and data[0] > 0 and data[-1] / data[0] > 1e3
    if log and data[0] > 0:
        return _log_scale(data[0], data[-1], count)
    low, high = (data[0], data[-1]) if tight else _robust_range(data)
    fixed = [_tame(v) for v in anchor if math.isfinite(v)]
    low, high = min([low, *fixed]), max([high, *fixed])
    if percent and low >= 0:
        low, high = 0.0, min(1.0, high * 1.08) if high <= 1 else high
        high = high or 0.05
    elif not tight:
        margin = 0.06 * (high - low)
        low = low if low == 0 or low in fixed else low - margin
        high = high if high == 0 else high + margin
    if not high > low:
        pad = abs(low) * 0.5 or 1.0
        low, high = (0.0, high) if tight and high > 0 else (low - pad, high + pad)
    ticks = tuple(t for t in round_ticks(low, high, count) if low <= t <= high)
    return Scale(low, high, ticks, percent=percent)


def round_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten that lie in [low, high], about ``count``."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"a finite range is needed, got [{low!r}, {high!r}]")
    raw = high / count - low / count
    if raw <= 0 or not math.isfinite(raw):
        return [low, high]
    power = 10.0 ** math.floor(math.log10(raw))
    if power == 0:  # below the smallest normal numbers
        return [low, high]
    step = next((m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, 1 - math.floor(math.log10(step))) if step < 1 else 0
    if last - first > 20 * count:  # a range so narrow that its ends are nearly equal
        return [low, high]
    return [round(i * step, digits) if digits < 300 else i * step for i in range(first, last + 1)]


def short_number(value: float, step: float | None = None) -> str:
    """A tick label: ``12k``, ``1.5M``, ``0.25``; ``step`` is the distance to the next tick."""
    if value == 0:
        return "0"
    size = max(abs(value), abs(step) if step else 0)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if unit <= size < 1e12 and size >= 1e4:
            return format_number(value / unit, 4) + letter
    if step and 1e-4 <= abs(step) < 1e6 and abs(value) < 1e6:
        digits = max(0, -math.floor(math.log10(abs(step)) + 1e-9))
        return f"{value:.{digits}f}"
    return format_number(value, 3)


def _tame(value: float) -> float:
    """Keep clear of the ends of the number range, where margins and steps over- or underflow."""
    return 0.0 if abs(value) < 1e-290 else min(max(value, -1e300), 1e300)


def _log_scale(low: float, high: float, count: int) -> Scale:
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    first, last = max(first, -307), min(last, 307)
    if first >= last:
        last = first + 1
    stride = max(1, math.ceil((last - first) / count))
    ticks = tuple(10.0**e for e in range(first, last + 1, stride))
    return Scale(10.0**first, 10.0**last, ticks, log=True)


def _robust_range(data: list[float]) -> tuple[float, float]:
    """Range of sorted data, without the few values so far out that they would hide the rest."""
    low, high = data[0], data[-1]
    if len(data) < 20:
        return low, high
    cut = max(1, len(data) // 50)
    inner_low, inner_high = data[cut], data[-1 - cut]
    inner = inner_high / 2 - inner_low / 2
    reach = 8 * inner if inner > 0 else max(abs(inner_high), 1e-12)
    return (
        low if low / 2 >= inner_low / 2 - reach else inner_low - reach / 4,
        high if high / 2 <= inner_high / 2 + reach else inner_high + reach / 4,
    )
