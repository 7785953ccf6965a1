"""Several runs in one picture: mean and range over the seeds of each algorithm."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.files import write_atomically
from agentgym.statistics import mean_interval
from trainers.metrics import format_number
from trainers.report.chart import Chart, Interval, Line, Rule, draw, legend
from trainers.report.data import Axis, RunData, load_run, mean, moving_average
from trainers.report.markup import safe
from trainers.report.page import document, headline_numbers
from trainers.report.sections import AXIS_LABELS, POLICY_MODES
from trainers.report.style import standalone_style

__all__ = ["compose", "mean_line", "write_comparison"]

_GRID = 160
_AXES: tuple[Axis, ...] = ("trajectories", "action_tokens")
_LEAST_POINTS = 3  # evaluations of a run that make a curve


@dataclass(frozen=True, slots=True)
class _Source:
    """What the curves show: an evaluation, or success in training where split is None."""

    split: str | None
    mode: str = ""

    @property
    def label(self) -> str:
        return "training episodes" if self.split is None else f"{self.split} split, {self.mode}"


def write_comparison(
    run_dirs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    title: str | None = None,
    split: str | None = None,
    mode: str = "sampled",
    names: Sequence[str] | None = None,
) -> list[Path]:
    """Draw success against trajectories and against action tokens for several runs.

    Runs of one name (as a rule: the algorithm) are seeds of one curve: their mean, a band from the
    least to the largest, and each run as a thin line. Curves show the evaluations where every run
    has at least three, else the training episodes, smoothed.

    Args:
        run_dirs: The run directories.
        out: Path of the picture; its suffix is replaced.
        title: Heading; by default the environment.
        split: Evaluation split to show; by default one that all runs have.
        mode: Evaluation mode to show.
        names: What each run is called, where runs of one algorithm are to be told apart.

    Returns:
        The files written: an SVG that stands alone, and an HTML page with the numbers.

    Raises:
        RunDirError: A folder holds no run.
        ValueError: No run is given, or none has anything to draw.
    """
    if not run_dirs:
        raise ValueError("at least one run directory is needed")
    runs = [load_run(path) for path in run_dirs]
    if names is not None:
        runs = [
            replace(run, about={**run.about, "name": name})
            for run, name in zip(runs, names, strict=True)
        ]
    source = _source(runs, split, mode)
    groups: dict[str, list[RunData]] = {}
    for run in runs:
        groups.setdefault(run.name, []).append(run)
    charts = [chart for axis in _AXES if (chart := _chart(groups, source, axis)) is not None]
    if not charts:
        raise ValueError(
            "none of the runs has success_rate or evaluations to draw: "
            + ", ".join(str(run.path) for run in runs)
        )
    environments = sorted({str(run.setting("env", "env_id", "environment") or "") for run in runs})
    heading = title or " and ".join(filter(None, environments)) or "Comparison"
    key = [
        (_group_label(name, members), i % 8, "solid")
        for i, (name, members) in enumerate(groups.items())
    ]
    target = Path(out)
    return [
        write_atomically(
            target.with_suffix(".svg"), compose(charts, key, f"{heading}: success, {source.label}")
        ),
        write_atomically(target.with_suffix(".html"), _page(charts, groups, heading, source)),
    ]


def _source(runs: Sequence[RunData], split: str | None, mode: str) -> _Source:
    """What all runs have: the evaluation asked for, else training success."""
    shared = set.intersection(
        *(
            {
                place
                for place, evaluations in run.evaluations.items()
                if sum(e.interval() is not None for e in evaluations) >= _LEAST_POINTS
            }
            for run in runs
        )
    )
    fitting = sorted(place for place in shared if place[1] == mode and split in (None, place[0]))
    if split is not None and not fitting:
        raise ValueError(
            f"not every run has {_LEAST_POINTS} evaluations of split {split!r} in mode {mode!r}; "
            f"all runs have: {sorted(shared) or 'none'}"
        )
    if not fitting:
        return _Source(None)
    return _Source(*next((place for place in fitting if place[0] == "test"), fitting[0]))


def _curve(run: RunData, source: _Source, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """A run's curve without gaps; empty if it has none."""
    if not run.has_axis(axis):
        return np.zeros(0), np.zeros(0)
    if source.split is None:
        xs, ys = run.series("success_rate", axis)
        ys = moving_average(ys, max(1, round(len(ys) / 15)) | 1)
    else:
        points = [
            (e.at[axis], interval[0])
            for e in run.evaluations[source.split, source.mode]
            if (interval := e.interval()) is not None
        ]
        xs, ys = [x for x, _ in points], [y for _, y in points]
    x, y = np.asarray(xs, float), np.asarray(ys, float)
    keep = np.isfinite(x) & np.isfinite(y)
    return x[keep], y[keep]


def _chart(groups: dict[str, list[RunData]], source: _Source, axis: Axis) -> Chart | None:
    lines: list[Line] = []
    means: list[Line] = []
    for index, (name, members) in enumerate(groups.items()):
        color = index % 8
        curves = [(run, *_curve(run, source, axis)) for run in members]
        curves = [(run, x, y) for run, x, y in curves if len(x)]
        if not curves:
            continue
        marks = [m for run, x, y in curves for m in _takeovers(run, x, y, axis)]
        if len(curves) == 1:
            _, x, y = curves[0]
            means.append(Line(x.tolist(), y.tolist(), name, color, intervals=marks))
            continue
        lines += [Line(x.tolist(), y.tolist(), "", color, faint=True) for _, x, y in curves]
        means.append(mean_line([(x, y) for _, x, y in curves], name, color, marks))
    if not means:
        return None
    rules = []
    rates = [_baseline(run, source) for members in groups.values() for run in members]
    told = [rate for rate in rates if rate is not None]
    if told and len(told) == len(rates):
        rules.append(Rule(mean(told), "fixed rule"))
    return Chart(
        f"Success against {AXIS_LABELS[axis]}, {source.label}",
        [*lines, *means],
        x_label=AXIS_LABELS[axis],
        percent=True,
        rules=rules,
        width=470,
        height=320,
    )


def mean_line(
    curves: Sequence[tuple[np.ndarray, np.ndarray]],
    name: str,
    color: int,
    marks: Sequence[Interval] = (),
) -> Line:
    """Mean and range of several curves (x, y), where all of them have data."""
    low, high = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if not low < high:  # no common stretch: the single runs remain
        return Line([], [], name, color, intervals=marks)
    grid = np.linspace(low, high, _GRID)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    band = (values.min(0).tolist(), values.max(0).tolist())
    return Line(grid.tolist(), values.mean(0).tolist(), name, color, band=band, intervals=marks)


def _takeovers(run: RunData, x: np.ndarray, y: np.ndarray, axis: Axis) -> list[Interval]:
    """Dots where the critic took over."""
    found = []
    for switch in run.switches:
        if switch.to == "single":
            place = run.position(switch.step, axis)
            level = float(np.interp(place, x, y))
            forced = " (forced)" if switch.forced else ""
            note = f"{run.path.name}: critic takes over after step {switch.step}{forced}"
            found.append(Interval(place, level, math.nan, math.nan, note))
    return found


def _baseline(run: RunData, source: _Source) -> float | None:
    """The fixed rule's rate on the split shown (on any split for training curves)."""
    for (split, mode), evaluations in run.evaluations.items():
        if mode == "rule" and source.split in (None, split):
            interval = evaluations[-1].interval()
            return None if interval is None else interval[0]
    return None


def _group_label(name: str, members: Sequence[RunData]) -> str:
    return f"{name} ({len(members)} seed{'s' if len(members) > 1 else ''})"


def _caption(source: _Source, groups: dict[str, list[RunData]]) -> str:
    text = f"Success, {source.label}."
    if any(len(members) > 1 for members in groups.values()):
        text += " Line: mean over seeds; band: least to largest; thin: single runs."
    if any(s.to == "single" for members in groups.values() for r in members for s in r.switches):
        text += " Dots: the critic takes over."
    return text


def compose(charts: Sequence[Chart], key: Sequence[tuple[str, int, str]], heading: str) -> str:
    """Charts side by side with one legend, as an SVG file that needs nothing else.

    Args:
        charts: The charts.
        key: Label, colour and style of each kind of line.
        heading: What is shown.
    """
    width, gap = 960.0, 14.0
    shown, height = legend(key, 24, width - 20, top=44)
    top = 44 + height + 8
    each = (width - gap * (len(charts) + 1)) / len(charts)
    parts = []
    for i, chart in enumerate(charts):
        plain = Chart(
            chart.title,
            [_unlabelled(line) for line in chart.lines],
            x_label=chart.x_label,
            percent=True,
            rules=chart.rules,
            width=each,
            height=320,
        )
        place = (
            f'<svg x="{gap + i * (each + gap):.1f}" y="{top:.1f}" width="{each:.1f}" height="320" '
        )
        parts.append(draw(plain).replace("<svg ", place, 1))
    total = top + 320 + 14
    return (
        '<svg class="chart" xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {width:.0f} {total:.0f}" '
        f'width="{width:.0f}" height="{total:.0f}" role="img" aria-label="{safe(heading)}">'
        f"<style>{standalone_style()}</style>"
        f'<rect width="100%" height="100%" rx="10" style="fill:var(--card)"/>'
        f'<text class="head" x="24" y="28">{safe(heading)}</text>'
        f"{shown}{''.join(parts)}</svg>\n"
    )


def _unlabelled(line: Line) -> Line:
    return Line(
        line.xs,
        line.ys,
        "",
        line.color,
        line.style,
        line.faint,
        line.dots,
        line.band,
        line.intervals,
    )


def _page(
    charts: Sequence[Chart], groups: dict[str, list[RunData]], heading: str, source: _Source
) -> str:
    cards = "".join(
        f'<div class="card"><h3>Success against {safe(chart.x_label)}</h3>{draw(chart)}</div>'
        for chart in charts
    )
    return document(
        f"{heading}: comparison",
        f'<header><div class="in"><h1>{safe(heading)}<small>comparison of '
        f"{', '.join(map(safe, groups))}</small></h1>"
        f'<p class="soft">{safe(_caption(source, groups))}</p></div></header>'
        f'<main><div class="grid2">{cards}</div><h2>Means over seeds</h2>{_means(groups)}'
        f"<h2>Runs</h2>{_runs_table(groups)}"
        "<footer>Intervals of means are Student's t over seeds, at 95%; with few seeds they are "
        "wide, as they should be.</footer></main>",
    )


def _means(groups: dict[str, list[RunData]]) -> str:
    rows = []
    for name, members in groups.items():
        found: dict[tuple[str, str], list[tuple[float | None, float]]] = {}
        for run in members:
            for row in headline_numbers(run):
                if row["mode"] in POLICY_MODES:
                    before = None if row["before"] is None else row["before"].interval()[0]
                    place = (row["split"], row["mode"])
                    found.setdefault(place, []).append((before, row["after"].interval()[0]))
        for (split, mode), pairs in found.items():
            changes = [after - before for before, after in pairs if before is not None]
            rows.append(
                f"<tr><td>{safe(name)}</td><td>{safe(split)}</td><td>{safe(mode)}</td>"
                f'<td class="n">{len(pairs)}</td>'
                + _mean_cell([b for b, _ in pairs if b is not None])
                + _mean_cell([a for _, a in pairs])
                + _mean_cell(changes, signed=True)
                + "</tr>"
            )
    if not rows:
        return '<p class="soft">The runs logged no evaluations.</p>'
    return (
        '<div class="card scroll"><table><tr><th>run</th><th>split</th><th>mode</th>'
        '<th class="n">seeds</th><th class="n">before</th><th class="n">after</th>'
        f'<th class="n">change (points)</th></tr>{"".join(rows)}</table></div>'
    )


def _mean_cell(values: Sequence[float], *, signed: bool = False) -> str:
    if not values:
        return '<td class="n">-</td>'
    mean, low, high = mean_interval(values)
    sign = "+" if signed else ""
    unit = "" if signed else "%"
    text = f"<b>{100 * mean:{sign}.1f}{unit}</b>"
    if math.isfinite(low):
        text += f' <span class="soft">[{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]</span>'
    return f'<td class="n">{text}</td>'


def _runs_table(groups: dict[str, list[RunData]]) -> str:
    rows = []
    for name, members in groups.items():
        for run in members:
            marks = [s for s in run.switches if s.to == "single"]
            cells: list[Any] = [
                run.path.name,
                run.setting("seed"),
                run.status.get("state"),
                f"{run.last_step:,}",
                _last(run, "trajectories"),
                _last(run, "action_tokens"),
                ", ".join(f"{s.step}{' (forced)' if s.forced else ''}" for s in marks) or "-",
            ]
            told = "; ".join(
                f"{row['split']} {row['mode']} "
                + ("" if row["before"] is None else f"{100 * row['before'].interval()[0]:.1f} → ")
                + f"{100 * row['after'].interval()[0]:.1f}%"
                for row in headline_numbers(run)
                if row["mode"] in POLICY_MODES
            )
            rows.append(
                f"<tr><td>{safe(name)}</td>"
                + "".join(f"<td>{safe(str(cell))}</td>" for cell in cells)
                + f"<td>{safe(told)}</td></tr>"
            )
    head = "run,folder,seed,state,steps,trajectories,action tokens,critic took over,success"
    titles = "".join(f"<th>{title}</th>" for title in head.split(","))
    return f'<div class="card scroll"><table><tr>{titles}</tr>{"".join(rows)}</table></div>'


def _last(run: RunData, name: str) -> str:
    _, values = run.series(name)
    return format_number(values[-1], 9) if values else "-"
