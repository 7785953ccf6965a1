"""BLPO's memory: what kinds of action were worth in states of progress, over tasks and updates.

A cell holds the effects of one kind of action in one state: weighted count, sum and sum of squares,
and how much of the evidence came from which unit (a concrete situation, or a task). All of it loses
half of its weight every ``half_life`` updates. Decay is lazy: numbers are kept on the scale of an
earlier update and only compared on a common one, so that an update costs what it touches.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

__all__ = ["CellView", "Effect", "MemoryMismatch", "ProgressMemory"]

_VERSION = 1
_DROPPED = 1e-10  # a unit of less weight is forgotten
_REBASE = 32  # half-lives after which the scale is renewed, long before anything overflows
_FOREVER = 1e15  # updates that no run lives to see


class MemoryMismatch(ValueError):
    """A stored memory does not fit the settings it is to be loaded with."""


class Effect(NamedTuple):
    """What a kind of action was worth in one situation, relative to the others there.

    Attributes:
        state: State of progress.
        action: Kind of action.
        unit: Where the evidence is from.
        value: Return relative to the situation's mean.
        weight: How much it counts.
    """

    state: str
    action: str
    unit: str
    value: float
    weight: float = 1.0


class CellView(NamedTuple):
    """A cell's numbers at some update.

    Attributes:
        weight: W, the decayed number of effects.
        mean: mu = S / W.
        variance: Unbiased weighted variance of the effects, 0 where one effect is all there is.
        support: Kish's effective number of units.
    """

    weight: float
    mean: float
    variance: float
    support: float


@dataclass(slots=True)
class _Cell:
    """W, S, Q and R, and the weights of the units, on the scale of the state's base."""

    weight: float = 0.0
    total: float = 0.0
    square: float = 0.0
    weight_square: float = 0.0
    units: dict[str, float] = field(default_factory=dict)
    units_total: float = 0.0
    units_square: float = 0.0

    def grow(self, factor: float) -> None:
        self.weight *= factor
        self.total *= factor
        self.square *= factor
        self.weight_square *= factor * factor
        least = min(_DROPPED, 1e-7 * self.weight)  # something is left of every cell
        self.units = {unit: w * factor for unit, w in self.units.items() if w * factor > least}
        self.units_total, self.units_square = _sums(self.units)


@dataclass(slots=True)
class _State:
    """Cells of one state; ``union`` takes each unit with its largest weight in any of them."""

    base: int
    cells: dict[str, _Cell] = field(default_factory=dict)
    union: dict[str, float] = field(default_factory=dict)
    union_total: float = 0.0
    union_square: float = 0.0

    def unite(self) -> None:
        self.union = {}
        for cell in self.cells.values():
            for unit, weight in cell.units.items():
                if weight > self.union.get(unit, 0.0):
                    self.union[unit] = weight
        self.union_total, self.union_square = _sums(self.union)


def _sums(weights: Mapping[str, float]) -> tuple[float, float]:
    # Correctly rounded, so that the order of the units does not matter.
    return math.fsum(weights.values()), math.fsum(w * w for w in weights.values())


class ProgressMemory:
    """Cells by state and kind of action.

    Args:
        half_life: Updates after which evidence counts half.
        min_weight: Cells of less weight are forgotten.
        max_cells: Where there are more, those that were written longest ago are forgotten.

    Attributes:
        step: Number of updates so far.
        evicted: Cells forgotten so far.

    Raises:
        ValueError: A setting is out of range.
    """

    def __init__(
        self, half_life: float = 8.0, min_weight: float = 1e-4, max_cells: int = 200_000
    ) -> None:
        if not (math.isfinite(half_life) and half_life > 0):
            raise ValueError(f"half_life must be a finite number above 0, got {half_life}")
        if not 0.0 < min_weight < 1.0:
            raise ValueError(f"min_weight must lie between 0 and 1, got {min_weight}")
        if max_cells < 1:
            raise ValueError(f"max_cells must be at least 1, got {max_cells}")
        self.half_life, self.min_weight, self.max_cells = half_life, min_weight, max_cells
        self.step = 0
        self.evicted = 0
        self._states: dict[str, _State] = {}
        self._written: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._expiring: dict[int, list[tuple[str, str]]] = {}
        self._due: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._written)

    @property
    def states(self) -> int:
        """Number of states with a cell."""
        return len(self._states)

    # Time ---------------------------------------------------------------------------------------

    def tick(self, updates: int = 1) -> None:
        """Let time pass, and forget what has lost its weight."""
        for _ in range(updates):
            self.step += 1
            for key in self._expiring.pop(self.step, ()):
                if self._due.get(key) != self.step:  # of a cell that was forgotten since
                    continue
                weight = self._weight(*key)
                if weight < self.min_weight:
                    self._forget(key)
                else:
                    self._watch(key, weight)

    def _growth(self, state: _State) -> float:
        # Beyond this all is forgotten; a larger power would overflow.
        return float(2.0 ** min((self.step - state.base) / self.half_life, 1000.0))

    def _weight(self, state: str, action: str) -> float:
        own = self._states[state]
        return own.cells[action].weight / self._growth(own)

    def _watch(self, key: tuple[str, str], weight: float) -> None:
        """Look at the cell again when it can have lost its weight."""
        left = self.half_life * math.log2(weight / self.min_weight)
        left = min(max(left, 1.0), _FOREVER)
        due = self._due[key] = self.step + math.ceil(left)
        self._expiring.setdefault(due, []).append(key)

    # Writing ------------------------------------------------------------------------------------

    def absorb(self, effects: Iterable[Effect]) -> int:
        """Add effects of the present update; returns how many there were.

        Raises:
            ValueError: An effect is not finite, or its weight is not above 0.
        """
        count = 0
        for effect in effects:
            if not (math.isfinite(effect.value) and effect.weight > 0):
                raise ValueError(f"an effect needs a finite value and a weight above 0: {effect}")
            self._add(effect)
            count += 1
        while len(self._written) > self.max_cells:
            self._forget(next(iter(self._written)))
        return count

    def _add(self, effect: Effect) -> None:
        key = (effect.state, effect.action)
        state = self._states.get(effect.state)
        if state is None:
            state = self._states[effect.state] = _State(self.step)
        elif self.step - state.base > _REBASE * self.half_life:
            factor = 1.0 / self._growth(state)
            for cell in state.cells.values():
                cell.grow(factor)
            state.base = self.step
            state.unite()
        fresh = effect.action not in state.cells
        cell = state.cells.setdefault(effect.action, _Cell())
        weight = effect.weight * self._growth(state)
        cell.weight += weight
        cell.total += weight * effect.value
        cell.square += weight * effect.value**2
        cell.weight_square += weight * weight
        before = cell.units.get(effect.unit, 0.0)
        after = cell.units[effect.unit] = before + weight
        cell.units_total += weight
        cell.units_square += after * after - before * before
        most = state.union.get(effect.unit, 0.0)
        if after > most:
            state.union[effect.unit] = after
            state.union_total += after - most
            state.union_square += after * after - most * most
        self._written[key] = None
        self._written.move_to_end(key)
        if fresh:
            self._watch(key, max(effect.weight, self.min_weight))

    def _forget(self, key: tuple[str, str]) -> None:
        del self._written[key], self._due[key]
        self.evicted += 1
        name, action = key
        state = self._states[name]
        del state.cells[action]
        if state.cells:
            state.unite()
        else:
            del self._states[name]

    # Reading ------------------------------------------------------------------------------------

    def cells(self, state: str) -> dict[str, CellView]:
        """The cells of a state now, by kind of action; empty for an unknown state."""
        own = self._states.get(state)
        if own is None:
            return {}
        growth = self._growth(own)
        return {action: _view(cell, growth) for action, cell in own.cells.items()}

    def union_support(self, state: str) -> float:
        """Kish's effective number of units over all cells of a state.

        Each unit counts with its largest weight in any cell.
        """
        own = self._states.get(state)
        return 0.0 if own is None else _kish(own.union_total, own.union_square)

    def units(self, state: str, action: str) -> dict[str, float]:
        """Weight now of each unit of a cell.

        Raises:
            KeyError: There is no such cell.
        """
        own = self._states[state]
        growth = self._growth(own)
        return {unit: weight / growth for unit, weight in own.cells[action].units.items()}

    def moments(self, state: str, action: str) -> tuple[float, float, float, float]:
        """W, S, Q and R of a cell now: sums of weight, value, square, and squared weight.

        Raises:
            KeyError: There is no such cell.
        """
        own = self._states[state]
        growth, cell = self._growth(own), own.cells[action]
        return (
            cell.weight / growth,
            cell.total / growth,
            cell.square / growth,
            cell.weight_square / growth**2,
        )

    def strongest(
        self, count: int, score: Callable[[Mapping[str, CellView]], Mapping[str, float]]
    ) -> list[dict[str, Any]]:
        """The states in which the memory has most to say, for people to read.

        Args:
            count: Most cells; of a state all cells are shown or none.
            score: Advantage of each kind of action, by the cells of a state; see
                :func:`trainers.advantages.blpo.reliable_scores`. States are ranked by their
                largest; states without any are left out.

        Returns:
            Cells, the best of a state first: dicts with ``state``, ``action``, ``mean``,
            ``deviation`` (standard deviation of its effects), ``support``, ``weight`` and
            ``advantage``.
        """
        found: list[list[dict[str, Any]]] = []
        for state in self._states:
            if self.union_support(state) < 2.0 - 1e-9:
                continue
            views = self.cells(state)
            scores = score(views)
            rows: list[dict[str, Any]] = [
                {
                    "state": state,
                    "action": action,
                    "mean": view.mean,
                    "deviation": math.sqrt(view.variance),
                    "support": view.support,
                    "weight": view.weight,
                    "advantage": scores[action],
                }
                for action, view in views.items()
                if action in scores
            ]
            if rows:
                found.append(sorted(rows, key=lambda row: (-row["advantage"], row["action"])))
        found.sort(key=lambda rows: (-max(abs(r["advantage"]) for r in rows), rows[0]["state"]))
        shown: list[dict[str, Any]] = []
        for rows in found:
            if len(shown) + len(rows) <= count:
                shown += rows
        return shown

    # State --------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Plain values and arrays that resume the memory exactly."""
        actions: dict[str, int] = {}
        units: dict[str, int] = {}
        order = {key: place for place, key in enumerate(self._written)}
        cells: list[tuple[int, int, int]] = []
        sums: list[tuple[float, ...]] = []
        unit_of: list[int] = []
        unit_weight: list[float] = []
        for number, (name, state) in enumerate(self._states.items()):
            for action, cell in state.cells.items():
                place = order[name, action]
                cells.append((number, actions.setdefault(action, len(actions)), place))
                sums.append(
                    (
                        cell.weight,
                        cell.total,
                        cell.square,
                        cell.weight_square,
                        cell.units_total,
                        cell.units_square,
                        len(cell.units),
                    )
                )
                unit_of += [units.setdefault(unit, len(units)) for unit in cell.units]
                unit_weight += cell.units.values()
        states = self._states.values()
        return {
            "version": _VERSION,
            "half_life": self.half_life,
            "step": self.step,
            "evicted": self.evicted,
            "states": list(self._states),
            "actions": list(actions),
            "units": list(units),
            "base": np.array([state.base for state in states], np.int64),
            "union": np.array(
                [(state.union_total, state.union_square) for state in states], np.float64
            ).reshape(-1, 2),
            "cells": np.array(cells, np.int64).reshape(-1, 3),
            "sums": np.array(sums, np.float64).reshape(-1, 7),
            "unit_of": np.array(unit_of, np.int64),
            "unit_weight": np.array(unit_weight, np.float64),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            MemoryMismatch: It was kept with another half-life, or by another version.
        """
        if state["version"] != _VERSION:
            raise MemoryMismatch(
                f"the stored memory has version {state['version']}, this is version {_VERSION}"
            )
        if state["half_life"] != self.half_life:
            raise MemoryMismatch(
                f"the stored memory has a half-life of {state['half_life']} updates, not "
                f"{self.half_life}: its weights would mean something else"
            )
        self.step, self.evicted = int(state["step"]), int(state["evicted"])
        names, actions, units = state["states"], state["actions"], state["units"]
        self._states = {
            name: _State(int(base), union_total=float(total), union_square=float(square))
            for name, base, (total, square) in zip(
                names, state["base"], state["union"].tolist(), strict=True
            )
        }
        unit_of, unit_weight = state["unit_of"].tolist(), state["unit_weight"].tolist()
        places: list[tuple[int, tuple[str, str]]] = []
        at = 0
        for (number, action, place), numbers in zip(
            state["cells"].tolist(), state["sums"].tolist(), strict=True
        ):
            end = at + int(numbers[6])
            held = {
                units[unit]: weight
                for unit, weight in zip(unit_of[at:end], unit_weight[at:end], strict=True)
            }
            own = self._states[names[number]]
            weight, total, square, weight_square, units_total, units_square, _ = numbers
            own.cells[actions[action]] = _Cell(
                weight, total, square, weight_square, held, units_total, units_square
            )
            for unit, weight in held.items():
                if weight > own.union.get(unit, 0.0):
                    own.union[unit] = weight
            places.append((place, (names[number], actions[action])))
            at = end
        self._written = OrderedDict((key, None) for _, key in sorted(places))
        self._expiring, self._due = {}, {}
        for key in self._written:
            self._watch(key, max(self._weight(*key), self.min_weight))


def _view(cell: _Cell, growth: float) -> CellView:
    mean = cell.total / cell.weight
    freedom = cell.weight - cell.weight_square / cell.weight
    variance = 0.0
    if freedom > 1e-6 * growth:
        variance = max(cell.square - cell.total * mean, 0.0) / freedom
    return CellView(
        cell.weight / growth, mean, variance, _kish(cell.units_total, cell.units_square)
    )


def _kish(total: float, square: float) -> float:
    """``(sum w)^2 / sum w^2``."""
    return total * total / square if square > 0 else 0.0
