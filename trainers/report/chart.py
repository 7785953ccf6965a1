"""Line charts and stacked columns as small SVG, without a plotting library.

Colours are CSS variables (``--c0`` ... ``--c7``), so that one drawing serves light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainers.metrics import format_number
from trainers.report.markup import safe
from trainers.report.scales import Scale, choose_scale

__all__ = [
    "Chart",
    "Column",
    "Interval",
    "Line",
    "Mark",
    "Rule",
    "draw",
    "draw_columns",
    "draw_strip",
    "legend",
]

_MAX_POINTS = 400
_MAX_HOVER = 60
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 14.0, 12.0, 38.0
_LEGEND_ROW = 17.0
_CHARACTER = 6.1  # average width in the 11 px font


@dataclass(frozen=True, slots=True)
class Interval:
    """A point with its interval."""

    x: float
    y: float
    low: float
    high: float
    note: str = ""


@dataclass(slots=True)
class Line:
    """One curve.

    Attributes:
        xs: Abscissae, increasing.
        ys: Ordinates; a non-finite one leaves a gap.
        label: Legend text; empty for none.
        color: Index of the colour.
        style: ``solid``, ``dashed`` or ``dotted``.
        faint: Thin and pale, for raw data behind a smoothed curve.
        dots: Draw a dot at each point.
        band: Lower and upper edge of a shaded band.
        intervals: Points drawn with whiskers.
    """

    xs: Sequence[float]
    ys: Sequence[float]
    label: str = ""
    color: int = 0
    style: str = "solid"
    faint: bool = False
    dots: bool = False
    band: tuple[Sequence[float], Sequence[float]] | None = None
    intervals: Sequence[Interval] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line."""

    x: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal line."""

    y: float
    label: str = ""
    color: int | None = None


@dataclass(slots=True)
class Chart:
    """A chart.

    Attributes:
        title: Name for screen readers (headings are the page's business).
        lines: Curves, the first drawn first.
        x_label: Text under the axis.
        percent: Ordinates are shares.
        marks: Vertical lines.
        rules: Horizontal lines.
        log: Logarithmic ordinate; None lets the data decide.
        zero: Include 0.
        x_range: Abscissae to show; those of the data by default.
        width: Of the drawing, in its own units (about pixels).
        height: Likewise.
    """

    title: str
    lines: Sequence[Line]
    x_label: str = "step"
    percent: bool = False
    marks: Sequence[Mark] = ()
    rules: Sequence[Rule] = ()
    log: bool | None = None
    zero: bool = False
    x_range: tuple[float, float] | None = None
    width: float = 460
    height: float = 240


@dataclass(frozen=True, slots=True)
class Column:
    """One stacked column: shares that sum to 1 at most, by series name."""

    label: str
    shares: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Frame:
    x: Scale
    y: Scale
    left: float
    top: float
    right: float
    bottom: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        return (
            self.left + self.x(x) * (self.right - self.left),
            self.bottom - self.y(y) * (self.bottom - self.top),
        )

    def clamp(self, py: float) -> float:
        return min(max(py, self.top), self.bottom)


def draw(chart: Chart) -> str:
    """The chart as one ``<svg>`` element."""
    named = [(line.label, line.color, line.style) for line in chart.lines if line.label]
    key, key_height = legend(named, _LEFT, chart.width - _RIGHT)
    labelled = any(mark.label for mark in chart.marks)
    frame = _frame(chart, key_height + (14 if labelled else 0))
    outside = 0
    body = [_grid(chart, frame)]
    body += [_rule(rule, frame) for rule in chart.rules]
    body += [_mark(mark, frame) for mark in chart.marks]
    for line in chart.lines:
        drawn, beyond = _line(line, frame, chart.percent)
        body.append(drawn)
        outside += beyond
    if outside:
        text = f"{outside} point{'s' if outside > 1 else ''} beyond the axis"
        body.append(_text(frame.right, frame.top + 11, text, "tick end"))
    if not any(math.isfinite(y) for line in chart.lines for y in line.ys):
        middle = (frame.left + frame.right) / 2
        body.append(_text(middle, (frame.top + frame.bottom) / 2, "no finite values", "tick mid"))
    return (
        f'<svg class="chart" viewBox="0 0 {_n(chart.width)} {_n(chart.height)}" role="img" '
        f'aria-label="{safe(chart.title)}" xmlns="http://www.w3.org/2000/svg">'
        f"{key}{''.join(body)}</svg>"
    )


def draw_columns(
    title: str,
    columns: Sequence[Column],
    series: Sequence[tuple[str, int]],
    *,
    x_label: str = "step",
    width: float = 940,
    height: float = 230,
) -> str:
    """Stacked columns of shares as one ``<svg>`` element.

    Args:
        title: Name for screen readers.
        columns: From left to right.
        series: Name and colour index, from the bottom up.
        x_label: Text under the axis.
        width: Of the drawing.
        height: Likewise.
    """
    key, key_height = legend([(n, c, "block") for n, c in series], _LEFT, width - _RIGHT)
    top, bottom = _TOP + key_height, height - _BOTTOM
    left, right = _LEFT, width - _RIGHT
    body = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        y = bottom - tick * (bottom - top)
        body.append(
            f'<line class="grid" x1="{_n(left)}" x2="{_n(right)}" y1="{_n(y)}" y2="{_n(y)}"/>'
        )
        body.append(_text(left - 7, y + 3.5, f"{round(100 * tick)}%", "tick end"))
    slot = (right - left) / max(len(columns), 1)
    gap = min(3.0, slot * 0.2)
    stride = max(1, math.ceil(len(columns) * 46 / (right - left)))
    for i, column in enumerate(columns):
        x, base = left + i * slot + gap / 2, bottom
        for name, color in series:
            share = column.shares.get(name, 0.0)
            if not 0 < share <= 1.0001:
                continue
            tall = share * (bottom - top)
            base -= tall
            hint = safe(f"{x_label} {column.label}: {name} {100 * share:.1f}%")
            body.append(
                f'<rect class="f{color}" x="{_n(x)}" y="{_n(base)}" width="{_n(slot - gap)}" '
                f'height="{_n(tall)}"><title>{hint}</title></rect>'
            )
        if i % stride == 0:
            body.append(_text(x + (slot - gap) / 2, bottom + 15, column.label, "tick mid"))
    body.append(_text((left + right) / 2, height - 5, x_label, "axis mid"))
    return (
        f'<svg class="chart" viewBox="0 0 {_n(width)} {_n(height)}" role="img" '
        f'aria-label="{safe(title)}" xmlns="http://www.w3.org/2000/svg">{key}{"".join(body)}</svg>'
    )


def draw_strip(
    title: str,
    points: Sequence[tuple[tuple[float, float, float], int]],
    ticks: Sequence[tuple[float, str]] = (),
) -> str:
    """Shares with their intervals on one line from 0 to 1, as one small ``<svg>`` element.

    Args:
        title: Name for screen readers.
        points: ((share, low, high), colour index).
        ticks: (share, name) of short vertical lines.
    """
    width, height, middle = 240.0, 30.0, 12.0
    scale = width - 12

    def at(share: float) -> str:
        return _n(6 + min(max(share, 0.0), 1.0) * scale)

    body = [f'<line class="base" x1="6" x2="{_n(width - 6)}" y1="{middle}" y2="{middle}"/>']
    for share, text in ((0.0, "0%"), (0.5, "50%"), (1.0, "100%")):
        side = {0.0: "start", 1.0: "end"}.get(share, "mid")
        body.append(_text(6 + share * scale, height - 2, text, f"tiny {side}"))
    for share, name in ticks:
        hint = safe(f"{name} {100 * share:.1f}%")
        body.append(
            f'<line class="mark" x1="{at(share)}" x2="{at(share)}" y1="4" y2="20">'
            f"<title>{hint}</title></line>"
        )
    for (share, low, high), color in points:
        if math.isfinite(low) and math.isfinite(high):
            body.append(f'<path class="s{color} thick" d="M{at(low)},{middle}H{at(high)}"/>')
        body.append(
            f'<circle class="f{color} ring" cx="{at(share)}" cy="{middle}" r="4.5">'
            f"<title>{100 * share:.1f}%</title></circle>"
        )
    return (
        f'<svg class="chart" viewBox="0 0 {_n(width)} {_n(height)}" role="img" '
        f'aria-label="{safe(title)}" xmlns="http://www.w3.org/2000/svg">{"".join(body)}</svg>'
    )


def legend(
    entries: Iterable[tuple[str, int, str]], left: float, right: float, top: float = 0.0
) -> tuple[str, float]:
    """Legend rows and their height; entries are (label, colour, style)."""
    parts, x, y, rows = [], left, top + 11.0, 0
    for label, color, style in entries:
        width = 23 + _CHARACTER * len(label) + 11
        if rows == 0 or (x + width > right and x > left):
            x, y, rows = left, top + 11.0 + _LEGEND_ROW * rows, rows + 1
        if style == "block":
            parts.append(
                f'<rect class="f{color}" x="{_n(x + 4)}" y="{_n(y - 9)}" '
                'width="11" height="11" rx="2"/>'
            )
        else:
            parts.append(
                f'<line class="s{color} {style}" x1="{_n(x)}" x2="{_n(x + 18)}" y1="{_n(y - 4)}" '
                f'y2="{_n(y - 4)}"/>'
            )
        parts.append(_text(x + 23, y, label, "key"))
        x += width
    return "".join(parts), _LEGEND_ROW * rows


def _frame(chart: Chart, head: float) -> _Frame:
    xs = [x for line in chart.lines for x in line.xs]
    xs += [mark.x for mark in chart.marks]
    xs += chart.x_range or ()
    ys = [y for line in chart.lines for y in line.ys]
    anchor = [rule.y for rule in chart.rules] + [0.0] * chart.zero
    for line in chart.lines:
        for interval in line.intervals:
            ys += [interval.low, interval.high]
            xs.append(interval.x)
        for edge in line.band or ():
            ys += edge
    return _Frame(
        x=choose_scale(xs, tight=True, log=False, count=max(3, round(chart.width / 90))),
        y=choose_scale(ys, percent=chart.percent, anchor=anchor, log=chart.log),
        left=_LEFT,
        top=_TOP + head,
        right=chart.width - _RIGHT,
        bottom=chart.height - _BOTTOM,
    )


def _grid(chart: Chart, frame: _Frame) -> str:
    parts = []
    for tick in frame.y.ticks:
        _, y = frame.at(frame.x.low, tick)
        parts.append(
            f'<line class="grid" x1="{_n(frame.left)}" x2="{_n(frame.right)}" y1="{_n(y)}" '
            f'y2="{_n(y)}"/>'
        )
        parts.append(_text(frame.left - 7, y + 3.5, frame.y.label(tick), "tick end"))
    for tick in frame.x.ticks:
        x, _ = frame.at(tick, frame.y.low)
        parts.append(
            f'<line class="notch" x1="{_n(x)}" x2="{_n(x)}" y1="{_n(frame.bottom)}" '
            f'y2="{_n(frame.bottom + 4)}"/>'
        )
        parts.append(_text(x, frame.bottom + 16, frame.x.label(tick), "tick mid"))
    parts.append(
        f'<line class="base" x1="{_n(frame.left)}" x2="{_n(frame.right)}" '
        f'y1="{_n(frame.bottom)}" y2="{_n(frame.bottom)}"/>'
    )
    middle = (frame.left + frame.right) / 2
    parts.append(_text(middle, chart.height - 5, chart.x_label, "axis mid"))
    return "".join(parts)


def _rule(rule: Rule, frame: _Frame) -> str:
    _, y = frame.at(frame.x.low, rule.y)
    color = "rule" if rule.color is None else f"rule s{rule.color}"
    return (
        f'<line class="{color}" x1="{_n(frame.left)}" x2="{_n(frame.right)}" y1="{_n(y)}" '
        f'y2="{_n(y)}"/>' + _text(frame.right - 2, y - 4, rule.label, "note end")
    )


def _mark(mark: Mark, frame: _Frame) -> str:
    x, _ = frame.at(mark.x, frame.y.low)
    where = x - frame.left
    width = _CHARACTER * len(mark.label) / 2
    side = (
        "end" if where + width > frame.right - frame.left else "start" if where < width else "mid"
    )
    return (
        f'<line class="mark" x1="{_n(x)}" x2="{_n(x)}" y1="{_n(frame.top - 3)}" '
        f'y2="{_n(frame.bottom)}"><title>{safe(mark.label)}</title></line>'
        + _text(x, frame.top - 6, mark.label, f"note {side}")
    )


def _line(line: Line, frame: _Frame, percent: bool) -> tuple[str, int]:
    parts = []
    if line.band is not None:
        parts.append(_band(line, frame))
    points = [
        (*frame.at(x, y), x, y) if math.isfinite(x) and math.isfinite(y) else None
        for x, y in zip(line.xs, line.ys, strict=True)
    ]
    beyond = sum(
        1 for p in points if p is not None and not frame.top - 0.5 <= p[1] <= frame.bottom + 0.5
    )
    path, alone = [], []
    for run in _runs(points):
        run = _thin(run)
        if len(run) == 1:
            alone.append(run[0])
            continue
        path.append("M" + "L".join(f"{_n(px)},{_n(frame.clamp(py))}" for px, py, *_ in run))
    if path:
        kind = " faint" if line.faint else ""
        parts.append(f'<path class="s{line.color} {line.style}{kind}" d="{"".join(path)}"/>')
    drawn = [point for point in points if point is not None]
    for px, py, *_ in drawn if line.dots else alone:
        size = 1.6 if line.faint else 3
        parts.append(
            f'<circle class="f{line.color}{" faint" if line.faint else ""}" cx="{_n(px)}" '
            f'cy="{_n(frame.clamp(py))}" r="{size}"/>'
        )
    for item in line.intervals:
        parts.append(_whisker(item, line.color, frame))
    if not line.faint:
        shown = drawn[:: max(1, math.ceil(len(drawn) / _MAX_HOVER))]
        for px, py, x, y in shown:
            value = f"{100 * y:.1f}%" if percent else format_number(y)
            hint = safe(f"{line.label or 'value'} at {format_number(x, 6)}: {value}")
            parts.append(
                f'<circle class="hover" cx="{_n(px)}" cy="{_n(frame.clamp(py))}" r="7">'
                f"<title>{hint}</title></circle>"
            )
    return "".join(parts), beyond


def _band(line: Line, frame: _Frame) -> str:
    lows, highs = line.band or ((), ())
    edge = [
        (frame.at(x, low), frame.at(x, high))
        for x, low, high in zip(line.xs, lows, highs, strict=True)
        if math.isfinite(low) and math.isfinite(high)
    ]
    if len(edge) < 2:
        return ""
    there = [f"{_n(high[0])},{_n(frame.clamp(high[1]))}" for _, high in edge]
    back = [f"{_n(low[0])},{_n(frame.clamp(low[1]))}" for low, _ in reversed(edge)]
    return f'<path class="band f{line.color}" d="M{"L".join(there + back)}Z"/>'


def _whisker(item: Interval, color: int, frame: _Frame) -> str:
    x, y = frame.at(item.x, item.y)
    parts = []
    if math.isfinite(item.low) and math.isfinite(item.high):
        low, high = (frame.clamp(frame.at(item.x, v)[1]) for v in (item.low, item.high))
        parts.append(
            f'<path class="s{color} whisker" d="M{_n(x)},{_n(low)}V{_n(high)}'
            f'M{_n(x - 3)},{_n(low)}h6M{_n(x - 3)},{_n(high)}h6"/>'
        )
    parts.append(
        f'<circle class="f{color} ring" cx="{_n(x)}" cy="{_n(frame.clamp(y))}" r="3.6">'
        f"<title>{safe(item.note)}</title></circle>"
    )
    return "".join(parts)


_Point = tuple[float, float, float, float]


def _runs(points: Sequence[_Point | None]) -> list[list[_Point]]:
    """Stretches between the gaps."""
    runs: list[list[_Point]] = [[]]
    for point in points:
        if point is not None:
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _thin(run: list[_Point]) -> list[_Point]:
    """At most about `_MAX_POINTS` points; of each stretch left out, its extremes stay."""
    if len(run) <= _MAX_POINTS:
        return run
    size = math.ceil(len(run) / (_MAX_POINTS / 2))
    kept: list[_Point] = [run[0]]
    for start in range(1, len(run) - 1, size):
        piece = run[start : min(start + size, len(run) - 1)]
        kept += sorted({min(piece, key=lambda p: p[1]), max(piece, key=lambda p: p[1])})
    return [*kept, run[-1]]


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}">{safe(text)}</text>' if text else ""


def _n(value: float) -> str:
    text = f"{value:.1f}"
    return text.removesuffix(".0")
