"""The charts of a report, section by section; what a run did not log is left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym.info import StopReason
from trainers.report.chart import Chart, Column, Interval, Line, Mark, Rule, draw, draw_columns
from trainers.report.data import Axis, RunData, mean, moving_average, number
from trainers.report.markup import safe

__all__ = ["AXIS_LABELS", "POLICY_MODES", "chart_sections", "mode_color"]

AXIS_LABELS: dict[Axis, str] = {
    "step": "step",
    "trajectories": "trajectories",
    "action_tokens": "action tokens",
}
# Evaluations in these modes play the policy; any other mode is a baseline.
POLICY_MODES = ("sampled", "greedy")
_STOP_COLORS = {
    StopReason.SOLVED: 2,
    StopReason.FAILED: 4,
    StopReason.MAX_TURNS: 1,
    StopReason.MAX_TOKENS: 3,
    StopReason.CONTEXT_OVERFLOW: 0,
    StopReason.DEADLINE: 6,
    StopReason.INFRA_ERROR: 7,
    StopReason.CANCELLED: 5,
}
_MAX_COLUMNS = 40


@dataclass(frozen=True, slots=True)
class _Panel:
    """One chart of the grid: metrics that share an axis."""

    title: str
    about: str
    names: tuple[str, ...]
    percent: bool = False
    zero: bool = False
    labels: tuple[str, ...] = ()


_UPDATE = (
    _Panel("Policy loss", "its value says little; jumps do", ("loss_policy",)),
    _Panel("Entropy", "nats per token", ("entropy",), zero=True),
    _Panel(
        "Gradient norms",
        "before clipping",
        ("grad_norm_actor", "grad_norm_critic"),
        zero=True,
        labels=("policy", "critic"),
    ),
    _Panel(
        "Importance ratio",
        "learner to sampler",
        ("ratio_mean", "ratio_max", "ratio_min"),
        labels=("mean", "largest", "smallest"),
    ),
    _Panel(
        "Tokens held back",
        "share of action tokens",
        (
            "dis_rejected_low",
            "dis_rejected_high",
            "dis_rejected_nonfinite",
            "clip_frac",
            "is_rejected",
        ),
        percent=True,
        labels=("rejected, low", "rejected, high", "not finite", "clipped", "correction cut"),
    ),
    _Panel(
        "Learner against sampler",
        "difference of log-probs before the update, nats",
        ("logp_diff_max", "logp_diff_mean"),
        labels=("largest", "mean"),
    ),
    _Panel("KL to the reference", "nats", ("kl_k1", "kl_k2", "kl_k3"), labels=("k1", "k2", "k3")),
    _Panel("Advantages", "over action tokens", ("adv_rms", "adv_mean"), labels=("RMS", "mean")),
    _Panel("Groups without signal", "all returns equal", ("frac_zero_variance",), percent=True),
    _Panel("Learning rates", "", ("lr_actor", "lr_critic"), zero=True, labels=("policy", "critic")),
    _Panel("Supervised loss", "nats per token", ("loss_sft",), zero=True),
    _Panel("Accuracy", "action tokens predicted", ("action_accuracy",), percent=True),
)
_CREDIT = (
    _Panel(
        "Terms of the advantage",
        "root mean square over rows",
        ("adv_episode_rms", "adv_step_rms", "adv_progress_rms"),
        zero=True,
        labels=("episode", "step", "progress, where active"),
    ),
    _Panel(
        "Rows with a term",
        "share of the decisions",
        ("local_active", "progress_active", "shareable_rows", "singleton_rows"),
        percent=True,
        labels=("local", "progress", "shareable", "situation occurred once"),
    ),
    _Panel(
        "Memory", "cells", ("memory_cells", "memory_states"), zero=True, labels=("cells", "states")
    ),
)
_BEHAVIOUR = (
    _Panel(
        "Faults",
        "share of turns, and of episodes cut off",
        ("invalid_action_rate", "format_error_rate", "truncated_frac"),
        percent=True,
        labels=("inadmissible", "wrong form", "cut off"),
    ),
    _Panel("Turns", "mean of an episode", ("turns_mean",), zero=True),
)
_TIME = (
    _Panel(
        "Seconds a step",
        "wall clock",
        ("step_s", "generate_s", "learn_s", "sync_s", "wait_s", "eval_s"),
        zero=True,
        labels=("whole step", "generate", "learn", "publish", "wait", "evaluate"),
    ),
    _Panel("Sampling speed", "action tokens per second", ("tokens_per_s",), zero=True),
    _Panel(
        "Staleness",
        "weight versions behind, oldest token",
        ("staleness_mean", "staleness_max"),
        zero=True,
        labels=("mean", "largest"),
    ),
    _Panel(
        "Dropped",
        "per step",
        ("dropped_stale", "dropped_infra", "groups_dropped"),
        zero=True,
        labels=("too stale", "faults", "groups"),
    ),
)


def chart_sections(run: RunData) -> list[tuple[str, str, str]]:
    """The chart sections: (anchor, heading, HTML), empty ones left out."""
    sections = [
        ("learning", "Learning", _learning(run)),
        ("critic", "Critic and switch", _critic(run)),
        ("behaviour", "Behaviour", _behaviour(run)),
        ("update", "Policy update", _panels(run, _UPDATE)),
        ("credit", "Step-level credit", _panels(run, _CREDIT)),
        ("time", "Time and staleness", _panels(run, _TIME)),
    ]
    return [section for section in sections if section[2]]


def mode_color(mode: str) -> int:
    """Colour of an evaluation mode."""
    return {"sampled": 0, "greedy": 3}.get(mode, 7)


def _learning(run: RunData) -> str:
    cards = []
    for axis in AXIS_LABELS:
        chart = _success_chart(run, axis)
        if chart is not None:
            title = f"Success against {'steps' if axis == 'step' else AXIS_LABELS[axis]}"
            about = "whiskers: 95% intervals of evaluations" if run.evaluations else ""
            cards.append(_card(title, about, draw(chart), wide=axis == "step"))
    for name, title, about in (
        ("reward_mean", "Reward", "mean return of the step's episodes"),
        ("score_mean", "Score", "mean final score of the step's episodes"),
    ):
        if run.has(name):
            lines = _smoothed(run, name, "step", 0, "")
            chart = Chart(
                title,
                lines,
                marks=_marks(run, "step", short=True),
                zero=True,
                x_range=(0, run.last_step),
            )
            cards.append(_card(title, about, draw(chart)))
    return _grid(cards)


def _success_chart(run: RunData, axis: Axis) -> Chart | None:
    if not run.has_axis(axis):
        return None
    lines = _smoothed(run, "success_rate", axis, 2, "training") if run.has("success_rate") else []
    rules = []
    splits = {split for split, _ in run.evaluations}
    for (split, mode), evaluations in run.evaluations.items():
        points = [(e.at[axis], e.interval()) for e in evaluations]
        found = [(x, p) for x, p in points if p is not None]
        if not found:
            continue
        name = mode if len(splits) == 1 else f"{split}, {mode}"
        if mode not in POLICY_MODES and len(found) == 1:
            rules.append(Rule(found[0][1][0], f"{name} {100 * found[0][1][0]:.1f}%"))
            continue
        order = sorted(splits).index(split)
        lines.append(
            Line(
                [x for x, _ in found],
                [p[0] for _, p in found],
                f"{split}, {mode}",
                mode_color(mode) if order == 0 else (mode_color(mode) + 4 + order) % 8,
                "solid" if mode != "greedy" else "dashed",
                intervals=[
                    Interval(x, *p, _interval_note(split, mode, axis, x, p)) for x, p in found
                ],
            )
        )
    if not lines:
        return None
    # A baseline far above everything (an oracle) would squeeze the curves; the table has it.
    top = max((y for line in lines for y in line.ys if math.isfinite(y)), default=1.0)
    return Chart(
        f"Success against {AXIS_LABELS[axis]}",
        lines,
        x_label=AXIS_LABELS[axis],
        percent=True,
        marks=_marks(run, axis),
        rules=[rule for rule in rules if rule.y <= 1.25 * top],
        x_range=(0, run.position(math.inf, axis)),
        width=940 if axis == "step" else 460,
        height=320 if axis == "step" else 250,
    )


def _interval_note(
    split: str, mode: str, axis: Axis, x: float, point: tuple[float, float, float]
) -> str:
    text = f"{split}, {mode}, {AXIS_LABELS[axis]} {x:,.0f}: {100 * point[0]:.1f}%"
    if math.isfinite(point[1]):
        text += f" [{100 * point[1]:.1f}, {100 * point[2]:.1f}]"
    return text


def _critic(run: RunData) -> str:
    marks = _marks(run, "step")
    cards = []
    if run.has("skill_raw", "skill_ema"):
        tau = run.setting("tau", "gate_tau")
        level = float(tau) if isinstance(tau, int | float) else 0.0
        lines = []
        if run.has("skill_turn_start"):
            xs, ys = run.series("skill_turn_start")
            lines.append(Line(xs, ys, "S at turn starts", 6, "dotted"))
        if run.has("skill_raw"):
            xs, ys = run.series("skill_raw")
            lines.append(Line(xs, ys, "S, each step", 7, faint=True, dots=len(xs) <= 120))
        if run.has("skill_ema"):
            xs, ys = run.series("skill_ema")
            lines.append(Line(xs, ys, "S, moving average", 0))
        end = math.ceil(1.15 * max((x for line in lines for x in line.xs), default=0))
        chart = Chart(
            "Skill of the critic",
            lines,
            marks=marks,
            rules=[Rule(level, f"threshold {level:g}")],
            log=False,
            x_range=(0, min(run.last_step, end)),
            width=940,
            height=290,
        )
        about = (
            "S = 1 - (critic's squared error) / (group baseline's), on values from before the "
            "update; the critic takes over once the average stays above the threshold"
        )
        cards.append(_card("Skill of the critic, S", about, draw(chart), wide=True))
    if run.has("explained_variance", "explained_variance_mse"):
        cards.append(
            _panel(
                run,
                _Panel(
                    "Explained variance",
                    "of the critic's targets, before the update",
                    ("explained_variance", "explained_variance_mse"),
                    zero=True,
                    labels=("classical", "mean-square form"),
                ),
            )
        )
    level_panel = _Panel(
        "Level",
        "what the critic says and what it is taught",
        ("value_mean", "target_mean", "baseline_b"),
        labels=("value", "target", "b"),
    )
    loss_panel = _Panel("Critic loss", "mean of its updates", ("loss_value",), zero=True)
    cards += [_panel(run, panel) for panel in (level_panel, loss_panel)]
    return _grid(cards)


def _behaviour(run: RunData) -> str:
    names = [name for name in run.names if name.startswith("stop/")]
    cards = []
    if names:
        columns = _stop_columns(run, names)
        series = [(str(r), c) for r, c in _STOP_COLORS.items() if f"stop/{r}" in names]
        drawing = draw_columns("Why episodes ended", columns, series)
        cards.append(_card("Why episodes ended", "share of the episodes", drawing, wide=True))
    cards += [_panel(run, panel) for panel in _BEHAVIOUR]
    return _grid(cards)


def _stop_columns(run: RunData, names: Sequence[str]) -> list[Column]:
    rows = [row for row in run.rows if any(name in row for name in names)]
    size = max(1, math.ceil(len(rows) / _MAX_COLUMNS))
    columns = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        # NaN compares false, so that max(0, NaN) is 0: what is not a share counts as none.
        means = {
            name.removeprefix("stop/"): mean(
                [min(max(0.0, number(row.get(name), 0.0)), 1e100) for row in part]
            )
            for name in names
        }
        told = {key: value for key, value in means.items() if value > 0}
        total = sum(told.values())
        shares = {key: value / total for key, value in told.items()}
        columns.append(Column(str(part[0]["step"]), shares))
    return columns


def _panels(run: RunData, panels: Sequence[_Panel]) -> str:
    return _grid([_panel(run, panel) for panel in panels])


def _panel(run: RunData, panel: _Panel) -> str:
    lines = []
    for i, name in enumerate(panel.names):
        if not run.has(name):
            continue
        xs, ys = run.series(name)
        # Reject shares and the like: curves that are zero throughout only clutter the legend.
        if len(panel.names) > 2 and i > 0 and not any(ys):
            continue
        label = panel.labels[i] if panel.labels else ""
        lines.append(Line(xs, ys, label, i, dots=len(xs) <= 30))
    if not lines:
        return ""
    about = panel.about
    if len(lines) == 1 and lines[0].label:
        about = f"{lines[0].label}, {about}" if about else lines[0].label
        lines[0].label = ""
    chart = Chart(
        panel.title,
        lines,
        x_range=(0, run.last_step),
        percent=panel.percent,
        zero=panel.zero,
        marks=_marks(run, "step", short=True),
    )
    return _card(panel.title, about, draw(chart))


def _smoothed(run: RunData, name: str, axis: Axis, color: int, label: str) -> list[Line]:
    xs, ys = run.series(name, axis)
    width = max(1, round(len(xs) / 20)) | 1
    if width == 1:
        return [Line(xs, ys, label, color, dots=len(xs) <= 30)]
    smooth = f"{label} ({width}-step mean)" if label else f"mean of {width} steps"
    return [
        Line(xs, ys, "", color, faint=True),
        Line(xs, moving_average(ys, width), smooth, color),
    ]


def _marks(run: RunData, axis: Axis, *, short: bool = False) -> list[Mark]:
    marks = []
    for switch in run.switches:
        text = "critic takes over" if switch.to == "single" else "back to groups"
        if not short:
            text += f" after step {switch.step}" + (" (forced)" if switch.forced else "")
        marks.append(Mark(run.position(switch.step, axis), text))
    return marks if len(marks) <= 6 else [Mark(mark.x) for mark in marks]


def _card(title: str, about: str, body: str, *, wide: bool = False) -> str:
    note = f'<p class="soft small">{safe(about)}</p>' if about else ""
    return f'<div class="card{" wide" if wide else ""}"><h3>{safe(title)}</h3>{note}{body}</div>'


def _grid(cards: Sequence[str]) -> str:
    shown = "".join(filter(None, cards))
    return f'<div class="grid2">{shown}</div>' if shown else ""
