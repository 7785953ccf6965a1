"""Finding a conversion between units that are known only by their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction


class NoRoute(LookupError):
    """No chain of conversions leads to the unit."""


def find_factor(
    source: str, target: str, neighbours: Callable[[str], Mapping[str, Fraction]]
) -> Fraction:
    """How many ``target`` one ``source`` is.

    Args:
        source: Unit to start from.
        target: Unit to reach.
        neighbours: Costly. For a unit: the units it converts to directly, each with how many of
            them one of it is.
    """
    reached = {source: Fraction(1)}
    if source == target:
        return reached[source]
    wave = [source]
    while wave:
        following = []
        for unit in wave:
            for other, factor in neighbours(unit).items():
                if other in reached:
                    continue
                reached[other] = reached[unit] * Fraction(factor)
                if other == target:
                    return reached[other]
                following.append(other)
        wave = following
    raise NoRoute(f"no conversion leads from {source!r} to {target!r}")
