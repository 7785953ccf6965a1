"""A number with the powers of base units that it carries."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction


class Quantity:
    """An exact value times powers of base units, such as 7/2 m s^-2."""

    def __init__(self, value: Fraction, powers: Mapping[str, int] | None = None) -> None:
        self.value = value
        self.powers = {name: power for name, power in (powers or {}).items() if power}

    def times(self, other: Quantity) -> Quantity:
        """The product."""
        powers = dict(self.powers)
        for name, power in other.powers.items():
            powers[name] = powers.get(name, 0) + power
        return Quantity(self.value * other.value, powers)

    def to_power(self, exponent: int) -> Quantity:
        """The power; a negative one of 0 raises ZeroDivisionError."""
        powers = {name: power * exponent for name, power in self.powers.items()}
        return Quantity(self.value**exponent, powers)

    def same_kind(self, other: Quantity) -> bool:
        """Whether both carry the same powers of base units."""
        return self.powers == other.powers

    def __str__(self) -> str:
        parts = [str(self.value)]
        for name in sorted(self.powers):
            power = self.powers[name]
            parts.append(name if power == 1 else f"{name}^{power}")
        return " ".join(parts)
