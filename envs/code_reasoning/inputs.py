"""Arguments for the tests of generated functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentgym.dice import Dice

__all__ = ["draw_inputs"]

_WORDS = (
    "sun", "river", "stone", "Apple", "tree", "north", "Level", "radar", "cat", "noon", "green",
    "Otter", "is", "a", "on", "rain", "east", "tin", "Anna", "cart", "ten", "seed", "ear", "STOP",
    "nest", "tea", "mirror", "oar", "Toast", "rat",
)  # fmt: skip


def draw_inputs(
    kind: str, parameter: tuple[int, int] | None, dice: Dice, most: int
) -> Iterator[tuple[Any, ...]]:
    """Different arguments of a function, at most so many; the first are ordinary ones.

    Args:
        kind: Kind of the first argument, a key of :data:`~envs.code_reasoning.operations.KINDS`.
        parameter: Smallest and largest value of a second argument, or None.
        dice: Source of randomness.
        most: Number of draws.
    """
    seen = set()
    for draw in range(most):
        # From the fourth on every third is an edge of the domain, as long as there are edges.
        edge = draw // 3 - 1 if draw > 3 and draw % 3 == 0 else None
        args: tuple[Any, ...] = (_DRAWS[kind](dice, edge),)
        if parameter is not None:
            args += (dice.between(parameter[0], min(parameter[1], parameter[0] + 10)),)
        key = repr(args)
        if key not in seen:
            seen.add(key)
            yield args


def _number(dice: Dice, edge: int | None) -> int:
    edges = (0, 1, 2)
    if edge is not None and edge < len(edges):
        return edges[edge]
    return dice.between(3, 30) if dice.random() < 0.6 else dice.between(31, 400)


def _list(dice: Dice, edge: int | None) -> list[int]:
    if edge is not None and edge < 2:
        return [] if edge == 0 else [dice.between(-9, 20)]
    values = [dice.between(-9, 30) for _ in range(dice.between(3, 8))]
    chance = dice.random()
    if chance < 0.2:  # equal to its reverse
        return values[:4] + values[:4][::-1]
    if chance < 0.5:  # with repeats
        values += [dice.pick(values) for _ in range(3)]
    return values


def _text(dice: Dice, edge: int | None) -> str:
    if edge is not None and edge < 2:
        return "" if edge == 0 else dice.pick("aeRtz")
    words = [dice.pick(_WORDS) for _ in range(dice.between(1, 4))]
    chance = dice.random()
    if chance < 0.2:
        half = "".join(words[:2])
        return half + half[::-1]
    return ("  " if chance < 0.3 else " ").join(words)


def _words(dice: Dice, edge: int | None) -> list[str]:
    if edge is not None and edge < 2:
        return [] if edge == 0 else [dice.pick(_WORDS)]
    words = [dice.pick(_WORDS) for _ in range(dice.between(2, 6))]
    return [*words, words[0]] if dice.random() < 0.4 else words


def _dictionary(dice: Dice, edge: int | None) -> dict[str, int]:
    if edge is not None and edge < 2:
        return {} if edge == 0 else {dice.pick(_WORDS): dice.between(0, 20)}
    keys = dice.draw(_WORDS, dice.between(2, 6))
    entries = {key: dice.between(0, 20) for key in keys}
    if dice.random() < 0.3:
        entries[keys[0].swapcase()] = dice.between(0, 20)
    return entries


_DRAWS = {"n": _number, "l": _list, "s": _text, "w": _words, "d": _dictionary}
