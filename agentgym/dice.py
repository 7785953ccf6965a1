"""Random draws that come out the same in every version of Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Dice"]

T = TypeVar("T")


class Dice(random.Random):
    """Draws that come out the same in every version of Python.

    The standard library promises that of ``random()`` alone, so everything here is made of it.
    """

    def pick(self, values: Sequence[T]) -> T:
        """One of ``values``."""
        return values[int(self.random() * len(values))]

    def weighted(self, values: Sequence[T], weights: Sequence[float]) -> T:
        """One of ``values``, each as likely as its weight says."""
        left = self.random() * sum(weights)
        for value, weight in zip(values, weights, strict=True):
            left -= weight
            if left < 0:
                return value
        return values[-1]

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return low + int(self.random() * (high - low + 1))

    def draw(self, values: Sequence[T], size: int) -> tuple[T, ...]:
        """``size`` different places of ``values``, in random order."""
        pool = list(values)
        for place in range(size):
            other = place + int(self.random() * (len(pool) - place))
            pool[place], pool[other] = pool[other], pool[place]
        return tuple(pool[:size])

    def walk(self, values: Sequence[T], size: int) -> list[T]:
        """``size`` different places of ``values`` in an order that costs two draws.

        Takes equal odd steps around ``values``, whose length must be a power of two.
        """
        start, step = (
            self.between(0, len(values) - 1),
            2 * self.between(0, len(values) // 2 - 1) + 1,
        )
        return [values[(start + place * step) % len(values)] for place in range(size)]
