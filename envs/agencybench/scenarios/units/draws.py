"""What is drawn in code/units: the units of an episode, and the inputs of an assessment."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from agentgym.dice import Dice
from envs.agencybench.scenarios.units.reference.conversion import NoRoute, find_factor

__all__ = ["PLAIN", "Graph", "conversions", "dimensional", "graph", "mismatched", "plain", "table"]

_FIRST = ("br", "dr", "fl", "gl", "kr", "pl", "sk", "tr", "v", "z")
_MIDDLE = ("a", "e", "i", "o", "u")
_LAST = ("lm", "nd", "rk", "st", "th", "x", "zz")


def _word(dice: Dice, taken: set[str]) -> str:
    while True:
        word = dice.pick(_FIRST) + dice.pick(_MIDDLE) + dice.pick(_LAST)
        if word not in taken:
            taken.add(word)
            return word


def table(dice: Dice) -> dict[str, Any]:
    """Units of an episode: some that everybody knows, and some that nobody does."""
    units: dict[str, Any] = {
        "m": ["1", {"m": 1}],
        "km": ["1000", {"m": 1}],
        "cm": ["1/100", {"m": 1}],
        "kg": ["1", {"kg": 1}],
        "g": ["1/1000", {"kg": 1}],
        "s": ["1", {"s": 1}],
        "min": ["60", {"s": 1}],
        "h": ["3600", {"s": 1}],
        "N": ["1", {"kg": 1, "m": 1, "s": -2}],
    }
    taken = set(units)
    kinds: tuple[dict[str, int], ...] = ({"m": 1}, {"kg": 1}, {"s": 1}, {"m": 1, "s": -1}, {"m": 2})
    for powers in kinds:
        factor = Fraction(dice.between(2, 40), dice.between(2, 15))
        units[_word(dice, taken)] = [str(factor), dict(powers)]
    return units


# Expressions without units ----------------------------------------------------------------------

PLAIN = ("exponent", "leading", "power", "sign", "grouping", "errors")


def plain(group: str, dice: Dice) -> list[str]:
    """Expressions that show one kind of fault, and a few that show none."""

    def n() -> int:
        return dice.between(2, 9)

    made = {
        "exponent": [
            f"{n()}e{n()}",
            f"{n()}.{n()}E-{n()} * {n()}",
            f"{n()} - {n()}.e+{n()}",
            f"({n()}e-1 + {n()})^2",
        ],
        "leading": [f".{n()}", f"{n()} + .{n()}{n()}", f".{n()} * .{n()}", f"-.{n()}e1"],
        "power": [f"{n()}^2^3", f"2^{dice.between(2, 3)}^2", f"{n()}^-{n()}", f"({n()}^2)^3"],
        "sign": [f"-{n()}^2", f"{n()} - -{n()}^2", f"(-{n()})^2", f"-{n()}^2 * -{n()}"],
        "grouping": [
            f"{n()} - {n()} - {n()}",
            f"{n()} / {n()} / {n()}",
            f"{n()} - {n()} + {n()} - {n()}",
            f"{n()} / {n()} * {n()}",
        ],
        "errors": [
            f"{n()} +",
            f"{n()} {n()}",
            f"({n()} * {n()}",
            f"{n()} $ {n()}",
            f"{n()} / ({n() + 1} - {n()} * 0 - {n()} * 0) )",
            f"{n()}{n()} / 0",
            "",
            f"{n()} * * {n()}",
        ],
    }[group]
    return [*made, f"({n()} + {n()}) * {n()}", f"{n()}.{n()} + {n()} / {n()}"]


# Expressions with units -------------------------------------------------------------------------


def _product(dice: Dice, names: list[str]) -> str:
    parts = []
    for place in range(dice.between(2, 4)):
        unit = dice.pick(names)
        power = f"^{dice.pick((-2, 2, 3))}" if dice.random() < 0.4 else ""
        factor = f"{dice.between(2, 30)} {unit}{power}" if dice.random() < 0.6 else f"{unit}{power}"
        parts.append(factor if not place else f"{dice.pick('*/')} {factor}")
    return " ".join(parts)


def dimensional(dice: Dice, units: dict[str, Any]) -> list[str]:
    """Products, quotients, powers and sums of units."""
    names = list(units)
    made = [_product(dice, names) for _ in range(8)]
    for _ in range(4):
        unit = dice.pick(names)
        made.append(f"({dice.between(2, 9)} {unit} + {dice.between(2, 9)} {unit} / 2)^2")
    return made


def mismatched(dice: Dice, units: dict[str, Any]) -> list[str]:
    """Expressions that add or raise what cannot be."""
    made: list[str] = []
    while len(made) < 6:
        first, second = dice.draw(list(units), 2)
        if units[first][1] != units[second][1]:
            made.append(f"{dice.between(2, 9)} {first} {dice.pick('+-')} {second}")
    names = list(units)
    made += [f"2^({dice.between(2, 9)} {dice.pick(names)})", f"{dice.pick(names)} - 1"]
    return made


def conversions(dice: Dice, units: dict[str, Any]) -> list[tuple[str, str]]:
    """A value and a unit of its kind."""
    made: list[tuple[str, str]] = []
    names = list(units)
    while len(made) < 10:
        first = dice.pick(names)
        same = [name for name in names if units[name][1] == units[first][1]]
        second = dice.pick(same)
        if dice.random() < 0.5:
            made.append((f"{dice.between(2, 90)}.{dice.between(1, 9)} {first}", second))
        else:
            other = dice.pick(names)
            made.append((f"{dice.between(2, 90)} {first} / {other}", f"{second} / {other}"))
    return made


# Conversions by neighbours ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Graph:
    """Units with their neighbours, and what is asked of them.

    Attributes:
        source: Unit to start from.
        target: Unit to reach.
        edges: Unit to neighbour to factor.
        factor: What is right; None where there is no route.
        near: Units that are no farther from the source than the target is; all that can be reached
            where there is no route.
    """

    source: str
    target: str
    edges: dict[str, dict[str, str]]
    factor: Fraction | None
    near: frozenset[str]


def graph(dice: Dice, routed: bool) -> Graph:
    """A graph with cycles on which the naive search never arrives."""
    while True:
        made = _graph(dice, routed)
        if made is not None:
            return made


def _graph(dice: Dice, routed: bool) -> Graph | None:
    taken: set[str] = set()
    names = [_word(dice, taken) for _ in range(dice.between(14, 24))]
    worth = {name: Fraction(dice.between(1, 60), dice.between(1, 12)) for name in names}
    edges: dict[str, dict[str, str]] = {name: {} for name in names}

    def join(a: str, b: str) -> None:
        edges[a][b], edges[b][a] = str(worth[a] / worth[b]), str(worth[b] / worth[a])

    islands = [names] if routed else [names[:-4], names[-4:]]
    for island in islands:
        for place in range(1, len(island)):
            join(island[place], island[max(0, place - dice.between(1, 3))])
        for _ in range(len(island) // 3):
            a, b = dice.draw(island, 2)
            join(a, b)
    source = islands[0][0]
    target = dice.pick(islands[-1][1:])
    distance = {source: 0}
    wave = [source]
    for unit in wave:
        for other in edges[unit]:
            if other not in distance:
                distance[other] = distance[unit] + 1
                wave.append(other)
    seen, at = set(), source
    while at not in seen:
        seen.add(at)
        at = min(edges[at])
    if target in seen or distance.get(target, 9) < 2:
        return None
    try:
        factor = find_factor(
            source, target, lambda unit: {k: Fraction(v) for k, v in edges[unit].items()}
        )
    except NoRoute:
        factor = None
    far = distance.get(target, len(names))
    near = frozenset(name for name, steps in distance.items() if steps <= far)
    return Graph(source, target, edges, factor, near)
