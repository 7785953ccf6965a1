"""A run directory as a report sees it: series, evaluations, switches, whatever of it is there."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

from agentgym.statistics import wilson_interval
from trainers.metrics import MetricError, describe, describe_eval
from trainers.run_dir import (
    read_config,
    read_findings,
    read_metrics,
    read_status,
    read_trajectories,
)

__all__ = [
    "Axis",
    "Evaluation",
    "RunData",
    "Switch",
    "load_run",
    "mean",
    "moving_average",
    "number",
]

Axis = Literal["step", "trajectories", "action_tokens"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation of one split in one mode.

    Attributes:
        at: Where on each axis it took place.
        numbers: Quantity (``success``, ``n``, ...) to value.
    """

    at: dict[Axis, float]
    numbers: dict[str, float]

    def interval(self) -> tuple[float, float, float] | None:
        """Success with its 95 % interval (NaN ends without ``n``), or None."""
        success = self.numbers.get("success", math.nan)
        if not math.isfinite(success):
            return None
        n = self.numbers.get("n", 0)
        if not 0 <= success <= 1 or not 1 <= n <= 1e12:
            return success, math.nan, math.nan
        return (success, *wilson_interval(success, int(n)))


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of phase after ``step``."""

    step: int
    to: str
    forced: bool


@dataclass
class RunData:
    """Everything a report needs, in memory.

    Attributes:
        path: The run directory.
        about: Content of ``config.json``.
        status: Content of ``status.json``, with the true state.
        rows: Rows of ``metrics.jsonl``.
        trajectories: Rows of ``trajectories.jsonl``.
        problems: What could not be read.
        findings: Content of ``findings.json``.
    """

    path: Path
    about: dict[str, Any]
    status: dict[str, Any]
    rows: list[dict[str, Any]]
    trajectories: list[dict[str, Any]]
    problems: list[str] = field(default_factory=list)
    findings: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Kind of run, as a rule the algorithm."""
        return str(self.about["name"])

    @property
    def last_step(self) -> int:
        """Step of the last row, 0 without rows."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @cached_property
    def _positions(self) -> dict[Axis, list[float]]:
        """For each row, where it stands on each axis; counts that a row lacks carry over."""
        axes: dict[Axis, list[float]] = {"step": [], "trajectories": [], "action_tokens": []}
        last: dict[Axis, float] = dict.fromkeys(axes, 0.0)
        for row in self.rows:
            for axis, places in axes.items():
                value = number(row.get(axis))
                last[axis] = last[axis] if value is None or math.isnan(value) else value
                places.append(last[axis])
        return axes

    def has(self, *names: str) -> bool:
        """Whether any row has any of these metrics."""
        return any(name in self.names for name in names)

    @cached_property
    def names(self) -> list[str]:
        """Metrics that occur, in order of first appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def has_axis(self, axis: Axis) -> bool:
        """Whether the run tells where it stands on an axis."""
        return axis == "step" or self.has(axis)

    def series(self, name: str, axis: Axis = "step") -> tuple[list[float], list[float]]:
        """A metric's values against an axis; rows without it are left out."""
        xs, ys = [], []
        for row, x in zip(self.rows, self._positions[axis], strict=True):
            value = number(row.get(name))
            if value is not None:
                xs.append(x)
                ys.append(value)
        return xs, ys

    def position(self, step: float, axis: Axis) -> float:
        """Where on an axis the run stood after a step."""
        place = 0.0
        for row, x in zip(self.rows, self._positions[axis], strict=True):
            if row["step"] > step:
                break
            place = x
        return step if axis == "step" and math.isfinite(step) else place

    @cached_property
    def evaluations(self) -> dict[tuple[str, str], list[Evaluation]]:
        """(split, mode) to its evaluations in order of time."""
        found: dict[tuple[str, str], list[Evaluation]] = {}
        for index, row in enumerate(self.rows):
            here: dict[tuple[str, str], dict[str, float]] = {}
            for name in row:
                place, value = describe_eval(name), number(row[name])
                if place is not None and value is not None:
                    here.setdefault(place[:2], {})[place[2]] = value
            for key, numbers in here.items():
                at = {axis: places[index] for axis, places in self._positions.items()}
                found.setdefault(key, []).append(Evaluation(at, numbers))
        return found

    @cached_property
    def switches(self) -> list[Switch]:
        """Changes of phase, from the phase itself or else from ``switch_step``."""
        found: list[Switch] = []
        previous: Any = None
        for before, row in zip([None, *self.rows], self.rows, strict=False):
            phase = row.get("phase")
            if phase is None:
                continue
            if previous is not None and phase != previous and before is not None:
                found.append(Switch(int(before["step"]), str(phase), self._forced(row)))
            previous = phase
        told = [row for row in self.rows if math.isfinite(number(row.get("switch_step"), math.nan))]
        if told and not any(switch.to == "single" for switch in found):
            step = told[0]["switch_step"]
            found.append(Switch(int(step), "single", self._forced(told[0])))
        return found

    def _forced(self, row: dict[str, Any]) -> bool:
        later = [r for r in self.rows if r["step"] >= row["step"] and "forced" in r]
        return bool(later and later[0]["forced"])

    def setting(self, *names: str) -> Any:
        """First configuration value of one of these names, at any depth, outermost first."""
        level: list[Any] = [self.about["config"]]
        while level:
            for part in level:
                for name in names:
                    if isinstance(part, dict) and part.get(name) is not None:
                        return part[name]
            level = [item for part in level for item in _children(part)]
        return None


def load_run(path: str | os.PathLike[str]) -> RunData:
    """Read a run directory, finished or not.

    Damaged rows do not prevent a report: they are told in ``problems``.

    Raises:
        RunDirError: The folder holds no run.
    """
    folder = Path(path)
    about = read_config(folder)
    problems: list[str] = []
    parts: list[list[dict[str, Any]]] = []
    for read in (read_metrics, read_trajectories):
        try:
            rows = [row for row in read(folder) if isinstance(row.get("step"), int)]
        except (OSError, RuntimeError) as error:
            problems.append(str(error))
            rows = []
        parts.append(rows)
    try:
        findings = read_findings(folder)
    except (OSError, RuntimeError) as error:
        problems.append(str(error))
        findings = {}
    return RunData(folder, about, read_status(folder), parts[0], parts[1], problems, findings)


@overload
def number(value: Any) -> float | None: ...
@overload
def number(value: Any, default: float) -> float: ...
def number(value: Any, default: float | None = None) -> float | None:
    """A logged value as a number; the default if it is none."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return default


def moving_average(values: list[float], width: int) -> list[float]:
    """Centred mean over ``width`` (odd) values, fewer at the ends; non-finite ones do not count."""
    half = width // 2
    smooth = []
    for i in range(len(values)):
        reach = min(half, i, len(values) - 1 - i)
        window = [v for v in values[i - reach : i + reach + 1] if math.isfinite(v)]
        smooth.append(mean(window))
    return smooth


def mean(values: Sequence[float]) -> float:
    """Mean of finite numbers of any size; NaN of none."""
    return sum(value / len(values) for value in values) if values else math.nan


def label_of(name: str) -> str:
    """Short heading of a metric; the name itself if the table does not know it."""
    try:
        return describe(name).label
    except MetricError:
        return name


def _children(part: Any) -> Iterator[Any]:
    if isinstance(part, dict):
        yield from part.values()
    elif isinstance(part, list):
        yield from part
