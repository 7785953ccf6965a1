"""How much of a solution is given to the policy, and to how many rollouts of a group (G2RPO-A).

The schedules of guidance in arXiv 2508.13023 and in its published code, in exact arithmetic:
success rates are ratios of counts, so lengths are computed as fractions and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

__all__ = [
    "ControllerMode",
    "GuidanceKind",
    "GuidanceSchedule",
    "LengthController",
    "ZeroRule",
    "exact",
    "guided_count",
    "linear_length",
    "scaled_length",
]

GuidanceKind = Literal["none", "fixed", "linear", "adaptive"]
ControllerMode = Literal["sliding", "cycle"]
ZeroRule = Literal["double", "keep", "epsilon"]
Signal = Literal["all", "unguided"]

# Larger than any count of rollouts that a rate is taken over; 1/6 and 0.1 mean what they say.
_DENOMINATOR = 10**6
_EPSILON = Fraction(1, 10**8)


def exact(number: float | Fraction) -> Fraction:
    """The ratio of small integers that a floating-point number stands for."""
    return (
        number if isinstance(number, Fraction) else Fraction(number).limit_denominator(_DENOMINATOR)
    )


def guided_count(share: float, size: int) -> int:
    """Rollouts of a group that are guided: ``ceil(alpha n)``, the same in every group.

    Args:
        share: alpha, in [0, 1].
        size: n, rollouts of a group.

    Raises:
        ValueError: If ``share`` is out of range.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"the share of guided rollouts must lie in [0, 1], got {share!r}")
    return math.ceil(exact(share) * size)


def linear_length(first: int, last: int, step: int, steps: int) -> int:
    """Length at one step of a linear decay: ``max(last, floor(first - (s-1)/(S-1) (first-last)))``.

    Args:
        first: Length at step 1.
        last: Length at the end, at most ``first``.
        step: s, from 1.
        steps: S. Where it is 1, and after step S, the length is ``last``.
    """
    if steps <= 1 or step >= steps:
        return last
    return max(last, math.floor(first - Fraction(step - 1, steps - 1) * (first - last)))


def scaled_length(
    length: int | Fraction,
    history: Sequence[Fraction],
    rate: Fraction,
    *,
    factor: float | None = 2.0,
    zero: ZeroRule = "double",
) -> Fraction:
    """The next length before rounding: ``l * mean(history) / rate`` (arXiv 2508.13023).

    A rising success rate shortens guidance, a falling one lengthens it. Without bounds and with a
    history of one, ``length * rate of the step before`` never changes.

    Args:
        length: l.
        history: Rates of the steps before, at least one.
        rate: Rate of this step.
        factor: The length is multiplied and divided by this at most; None for no bound.
        zero: Where a rate is 0 the formula says nothing. ``double`` takes its limits: times
            ``factor`` (2 without one) where only this rate is 0, divided by it where only the
            history is. ``keep`` leaves the length, as the published code does. ``epsilon`` adds
            1e-8 to both rates always, as an independent reproduction does. Two zeros change
            nothing under any rule.
    """
    before = Fraction(sum(history), len(history))
    bound = None if factor is None else exact(factor)
    if zero == "epsilon":
        change = (before + _EPSILON) / (rate + _EPSILON)
    elif before and rate:
        change = before / rate
    elif before == rate or zero == "keep":
        change = Fraction(1)
    else:
        most = bound or Fraction(2)
        change = most if before else 1 / most
    if bound is not None:
        change = max(1 / bound, min(bound, change))
    return change * length


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidanceSchedule:
    """Settings of a :class:`LengthController`.

    Attributes:
        kind: ``none``, ``fixed``, ``linear`` decay or ``adaptive``.
        length: First length, in tokens or turns. 0 is no guidance, under every kind.
        longest: Longest length of ``adaptive``; the first one where it is None.
        last: Last length of ``linear``.
        steps: Steps of ``linear``.
        window: T, steps before that a rate is compared with.
        mode: ``sliding`` changes the length after each step; ``cycle`` collects T steps, compares
            the next one with them, and begins anew (the published code).
        factor: See :func:`scaled_length`.
        zero: See :func:`scaled_length`.

    Raises:
        ValueError: If a value is out of range.
    """

    kind: GuidanceKind = "adaptive"
    length: int = 3072
    longest: int | None = None
    last: int = 0
    steps: int = 1
    window: int = 2
    mode: ControllerMode = "sliding"
    factor: float | None = 2.0
    zero: ZeroRule = "double"

    def __post_init__(self) -> None:
        for name, choices in (
            ("kind", ("none", "fixed", "linear", "adaptive")),
            ("mode", ("sliding", "cycle")),
            ("zero", ("double", "keep", "epsilon")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")
        if self.length < 0:
            raise ValueError(f"length must be >= 0, got {self.length!r}")
        if self.longest is not None and self.longest < self.length:
            raise ValueError(f"longest must be >= length ({self.length}), got {self.longest!r}")
        if not 0 <= self.last <= self.length:
            raise ValueError(f"last must lie in 0..length ({self.length}), got {self.last!r}")
        if self.steps < 1 or self.window < 1:
            raise ValueError(f"steps and window must be >= 1, got {self.steps} and {self.window}")
        if self.factor is not None and not (1 < self.factor < math.inf):
            raise ValueError(f"factor must be above 1, or None, got {self.factor!r}")


class LengthController:
    """The length of guidance, step after step.

    ``length`` holds for a whole step; ``observe`` is called once at its end.

    Args:
        schedule: How it changes.
    """

    def __init__(self, schedule: GuidanceSchedule) -> None:
        self.schedule = schedule
        self._step = 0
        self._adapted = schedule.length
        self._rates: list[Fraction] = []

    @property
    def length(self) -> int:
        """Tokens or turns given in the coming step."""
        schedule = self.schedule
        if schedule.kind == "none" or not schedule.length:
            return 0
        if schedule.kind == "linear":
            return linear_length(schedule.length, schedule.last, self._step + 1, schedule.steps)
        return self._adapted

    def observe(self, rate: float | Fraction | None) -> None:
        """Take in the success rate of the step.

        Args:
            rate: In [0, 1]; None where nothing was played well enough to tell, which changes
                nothing but the number of steps.

        Raises:
            ValueError: If the rate is out of range.
        """
        self._step += 1
        if rate is None or self.schedule.kind != "adaptive" or not self.schedule.length:
            return
        new = exact(rate)
        if not 0 <= new <= 1:
            raise ValueError(f"a success rate lies in [0, 1], got {rate!r}")
        window, sliding = self.schedule.window, self.schedule.mode == "sliding"
        if len(self._rates) >= (1 if sliding else window):
            schedule = self.schedule
            scaled = scaled_length(
                self._adapted, self._rates, new, factor=schedule.factor, zero=schedule.zero
            )
            longest = schedule.length if schedule.longest is None else schedule.longest
            self._adapted = max(1, min(longest, math.floor(scaled)))
            if not sliding:
                self._rates = []
                return
        self._rates = [*self._rates, new][-window:]

    def state_dict(self) -> dict[str, Any]:
        """Plain values that restore the controller exactly, also through JSON."""
        return {
            "step": self._step,
            "length": self._adapted,
            "rates": [[rate.numerator, rate.denominator] for rate in self._rates],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._step, self._adapted = int(state["step"]), int(state["length"])
        self._rates = [Fraction(int(above), int(below)) for above, below in state["rates"]]
