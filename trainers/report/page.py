"""The report of one run: one HTML file that needs nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from agentgym.statistics import newcombe_interval
from trainers.evaluation import type_table
from trainers.metrics import MetricError, describe, format_metric, format_number
from trainers.report.chart import draw_strip
from trainers.report.data import Evaluation, RunData, mean, number
from trainers.report.episodes import choose_episodes, episode_html
from trainers.report.markup import safe
from trainers.report.memory import memory_html
from trainers.report.sections import POLICY_MODES, chart_sections, mode_color
from trainers.report.style import PAGE_STYLE

__all__ = ["document", "headline_numbers", "render_run"]

_STATES = {
    "finished": ("good", "finished"),
    "stopped": ("warn", "stopped"),
    "failed": ("bad", "failed"),
    "running": ("", "running"),
    "killed": ("bad", "interrupted"),
}
_SPLIT_ORDER = ("test", "valid_unseen", "valid_seen", "validation")


def document(title: str, body: str, style: str = PAGE_STYLE) -> str:
    """A whole HTML page around a body."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)}</title><style>{style}</style></head>\n<body>{body}</body></html>\n"
    )


def render_run(run: RunData) -> str:
    """The report's HTML."""
    sections = [("result", "Result", _result(run)), *chart_sections(run)]
    sections.append(("memory", "Memory", memory_html(run.findings)))
    episodes = choose_episodes(run.trajectories)
    if episodes:
        cards = [episode_html(why, row, is_open=i == 0) for i, (why, row) in enumerate(episodes)]
        sections.append(("episodes", "Episodes", "".join(cards)))
    sections.append(("numbers", "All numbers", _numbers(run)))
    sections.append(("configuration", "Configuration", _configuration(run)))
    shown = [section for section in sections if section[2]]
    links = "".join(f'<a href="#{anchor}">{safe(title)}</a>' for anchor, title, _ in shown)
    body = "".join(
        f'<section id="{anchor}"><h2>{safe(title)}</h2>{content}</section>'
        for anchor, title, content in shown
    )
    version = run.about.get("software", {}).get("agentgym", "")
    return document(
        f"{run.name} · {_environment(run)}" if _environment(run) else run.name,
        f'{_header(run)}<nav><div class="in">{links}</div></nav><main>{body}'
        f"<footer>Written by agentgym {safe(str(version))} from {safe(run.path.name)}. "
        "Intervals of shares are Wilson's, those of changes Newcombe's, at 95%.</footer></main>",
    )


def headline_numbers(run: RunData) -> list[dict[str, Any]]:
    """First and last success of each split and mode.

    Returns:
        Dicts with ``split``, ``mode``, ``before`` and ``after`` (`Evaluation`; ``before`` is None
        where there was only one) and ``change`` ((difference, low, high) or None), policy modes
        first, test splits first.
    """
    found = []
    for (split, mode), evaluations in run.evaluations.items():
        told = [e for e in evaluations if e.interval() is not None]
        if not told:
            continue
        before, after = (told[0] if len(told) > 1 else None), told[-1]
        found.append(
            {
                "split": split,
                "mode": mode,
                "before": before,
                "after": after,
                "change": None if before is None else _change(before, after),
            }
        )
    return sorted(found, key=lambda row: (_mode_rank(row["mode"]), _split_rank(row["split"])))


def _header(run: RunData) -> str:
    state = str(run.status.get("state"))
    kind, word = _STATES.get(state, ("", state))
    total = run.status.get("total_steps")
    progress = f"{run.last_step:,}" + (f" of {total:,}" if isinstance(total, int) else "")
    facts: list[tuple[str, str]] = [("steps", progress)]
    for label, value in (
        ("environment", _environment(run)),
        ("model", run.setting("model")),
        ("preset", run.setting("preset")),
        ("seed", run.setting("seed")),
    ):
        if value not in (None, ""):
            facts.append((label, str(value)))
    for label, name in (
        ("trajectories", "trajectories"),
        ("action tokens", "action_tokens"),
        ("wall clock", "elapsed_s"),
        ("CPU", "cpu_s"),
    ):
        _, values = run.series(name)
        if values and math.isfinite(values[-1]):
            is_time = name.endswith("_s")
            facts.append((label, _duration(values[-1]) if is_time else f"{values[-1]:,.0f}"))
    facts.append(("started", _time(run.about.get("created"))))
    environment = _environment(run)
    return (
        f'<header><div class="in"><h1>{safe(run.name)}'
        + (f"<small>{safe(environment)}</small>" if environment else "")
        + f' <span class="badge {kind}" style="vertical-align:middle">{safe(word)}</span></h1>'
        f'<code class="soft">{safe(" ".join(map(str, run.about.get("command", []))))}</code>'
        '<div class="facts">'
        + "".join(f"<div><span>{safe(k)}</span>{safe(v)}</div>" for k, v in facts if v)
        + f"</div>{_alerts(run, state)}</div></header>"
    )


def _alerts(run: RunData, state: str) -> str:
    told: list[tuple[str, str]] = []
    total, detail = run.status.get("total_steps"), str(run.status.get("detail") or "")
    at = f"after step {run.last_step}" + (f" of {total}" if isinstance(total, int) else "")
    if state == "killed":
        told.append(("bad", f"The run was interrupted {at}: its process died without closing it."))
    elif state == "failed":
        told.append(("bad", f"The run failed {at}. {detail}"))
    elif state == "stopped":
        told.append(("", f"The run was stopped {at}. {detail}"))
    elif state == "running":
        told.append(("", f"The run was still going on when this report was written, {at}."))
    elif state == "unknown":
        told.append(
            ("", f"How the run ended is not known; the last row is of step {run.last_step}.")
        )
    elif isinstance(total, int) and run.last_step < total:
        told.append(("", f"The run ended {at}."))
    resumed = [s for s in run.status.get("sessions", [])[1:] if isinstance(s, dict)]
    if resumed:
        steps = ", ".join(str(session.get("from_step", "?")) for session in resumed)
        told.append(("", f"The run was resumed from step {steps}."))
    told += [("bad", f"Not everything could be read: {problem}") for problem in run.problems]
    if not run.rows:
        told.append(("", "The run has not logged a step yet."))
    return "".join(f'<p class="alert {kind}">{safe(text)}</p>' for kind, text in told)


def _result(run: RunData) -> str:
    rows = headline_numbers(run)
    policy = [row for row in rows if row["mode"] in POLICY_MODES]
    rules = {
        row["split"]: row["after"].interval()[0]
        for row in rows
        if row["mode"] not in POLICY_MODES and row["mode"] != "oracle"
    }
    cards = "".join(_headline_card(row, rules.get(row["split"])) for row in policy)
    if not cards:
        cards = _training_card(run)
    parts = [
        f'<div class="cards">{cards}</div>' if cards else "",
        _evaluation_table(rows),
        _type_table(run),
    ]
    switches = [s for s in run.switches if s.to == "single"]
    if run.has("skill_raw", "skill_ema", "switch_step") or switches:
        parts.append(_switch_note(run))
    return "".join(parts)


def _headline_card(row: dict[str, Any], rule: float | None) -> str:
    after: Evaluation = row["after"]
    value, low, high = after.interval() or (math.nan,) * 3
    big = f"{100 * value:.1f}%"
    if row["before"] is not None:
        first = row["before"].interval()[0]
        big = f'<span class="from">{100 * first:.1f}% →</span> {big}'
    lines = []
    if math.isfinite(low):
        n = after.numbers.get("n", 0)
        lines.append(f"after: [{100 * low:.1f}, {100 * high:.1f}], n = {n:,.0f}")
    change = ""
    if row["change"] is not None:
        difference, least, most = row["change"]
        side = "up" if difference > 0 else "down" if difference < 0 else ""
        change = f'<span class="delta {side}">{100 * difference:+.1f} points</span>'
        if math.isfinite(least):
            change += f' <span class="soft">[{100 * least:+.1f}, {100 * most:+.1f}]</span>'
    return (
        f'<div class="card headline"><h3>{safe(row["split"])}, {safe(row["mode"])}</h3>'
        f'<p class="big">{big}</p><div class="small">{change}</div>'
        f'<div class="soft small">{safe("; ".join(lines))}</div>{_strip(row, rule)}</div>'
    )


def _strip(row: dict[str, Any], rule: float | None) -> str:
    """Before and after with their intervals on a line from 0 to 100 %."""
    points = [
        (evaluation.interval(), color)
        for evaluation, color in ((row["before"], 7), (row["after"], mode_color(row["mode"])))
        if evaluation is not None
    ]
    ticks = [(rule, "baseline")] if rule is not None else []
    return draw_strip(f"{row['split']}, {row['mode']}: success", points, ticks)


def _training_card(run: RunData) -> str:
    _, values = run.series("success_rate")
    values = [v for v in values if math.isfinite(v)]
    if not values:
        return ""
    part = max(1, len(values) // 10)
    first, last = mean(values[:part]), mean(values[-part:])
    return (
        '<div class="card headline"><h3>training episodes</h3><p class="big">'
        f'<span class="from">{100 * first:.1f}% →</span> {100 * last:.1f}%</p>'
        f'<div class="soft small">success in the first and last {part} steps; no evaluation was '
        "logged</div></div>"
    )


def _evaluation_table(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    quantities = [
        ("score", "score"),
        ("turns", "turns"),
        ("invalid_rate", "inadmissible"),
        ("truncated_frac", "cut off"),
        ("first_result_share", "first result bought"),
    ]
    used = [
        (key, label)
        for key, label in quantities
        if any(e is not None and key in e.numbers for r in rows for e in (r["before"], r["after"]))
    ]
    head = "".join(f'<th class="n">{safe(label)}</th>' for _, label in used)
    body = []
    for row in rows:
        for when, evaluation in (("before", row["before"]), ("after", row["after"])):
            if evaluation is None:
                continue
            when = when if row["before"] is not None else "once"
            success, low, high = evaluation.interval()
            interval = f"[{100 * low:.1f}, {100 * high:.1f}]" if math.isfinite(low) else ""
            n = evaluation.numbers.get("n")
            cells = "".join(
                f'<td class="n">{_quantity(row, key, evaluation.numbers.get(key))}</td>'
                for key, _ in used
            )
            body.append(
                f"<tr><td>{safe(row['split'])}</td><td>{safe(row['mode'])}</td>"
                f'<td>{when}</td><td class="n">{evaluation.at["step"]:,.0f}</td>'
                f'<td class="n"><b>{100 * success:.1f}%</b></td>'
                f'<td class="n soft">{interval}</td>'
                f'<td class="n">{"" if n is None else format_number(n, 6)}</td>{cells}</tr>'
            )
    return (
        '<div class="card scroll" style="margin-top:14px"><table><tr><th>split</th><th>mode</th>'
        '<th></th><th class="n">step</th><th class="n">success</th><th class="n">95% interval</th>'
        f'<th class="n">episodes</th>{head}</tr>{"".join(body)}</table></div>'
    )


def _type_table(run: RunData) -> str:
    """Success by type of task, before and after."""
    rows = type_table(
        [
            {name: value for name in row if (value := number(row[name])) is not None}
            for row in run.rows
        ]
    )
    if not rows:
        return ""
    types = sorted({name for row in rows for name in row} - {"split", "mode"})
    head = "".join(f'<th class="n">{safe(name)}</th>' for name in types)
    body = "".join(
        f"<tr><td>{safe(row['split'])}</td><td>{safe(row['mode'])}</td>"
        + "".join(f'<td class="n">{safe(row.get(name, ""))}</td>' for name in types)
        + "</tr>"
        for row in rows
    )
    return (
        '<div class="card scroll" style="margin-top:14px"><table><caption>Success by type of task'
        f"</caption><tr><th>split</th><th>mode</th>{head}</tr>{body}</table></div>"
    )


def _quantity(row: dict[str, Any], key: str, value: float | None) -> str:
    if value is None:
        return ""
    name = f"eval/{row['split']}/{row['mode']}/{key}"
    if describe(name).unit == "fraction":
        return safe(format_metric(name, value))
    return f"{value:.3f}" if key == "score" else f"{value:.2f}"


def _switch_note(run: RunData) -> str:
    told = []
    for switch in run.switches:
        if switch.to == "single":
            why = "forced by its step limit" if switch.forced else "by its own criterion"
            told.append(f"The critic took over after step {switch.step}, {why}.")
        else:
            told.append(f"After step {switch.step} training went back to groups.")
    if not told:
        _, ema = run.series("skill_ema")
        last = f" (last average S = {format_number(ema[-1], 3)})" if ema else ""
        told.append(f"The critic has not taken over{last}.")
    return f'<p style="margin-top:14px">{safe(" ".join(told[:8]))}</p>'


def _numbers(run: RunData) -> str:
    rows = []
    for name in sorted(run.names, key=lambda name: name.startswith("eval/")):
        _, values = run.series(name)
        finite = [v for v in values if math.isfinite(v)]
        if name == "step" or not values:
            continue
        try:
            metric = describe(name)
            unit, about = metric.unit, metric.description
        except MetricError:
            unit, about = "", ""
        odd = len(values) - len(finite)
        cells = [
            values[0],
            values[-1],
            min(finite, default=math.nan),
            max(finite, default=math.nan),
        ]
        rows.append(
            f"<tr><td><code>{safe(name)}</code></td>"
            + "".join(f'<td class="n">{format_number(v)}</td>' for v in cells)
            + f'<td class="n">{len(values):,}</td><td>{safe(unit)}</td><td>{safe(about)}'
            + (f' <b class="down">{odd} not finite</b>' if odd else "")
            + "</td></tr>"
        )
    if not rows:
        return ""
    return (
        '<details class="fold"><summary>Every metric: first, last, least, largest, and what it '
        f"means ({len(rows)})</summary>"
        '<div class="card scroll"><table><tr><th>metric</th><th class="n">first</th>'
        '<th class="n">last</th><th class="n">least</th><th class="n">largest</th>'
        f'<th class="n">rows</th><th>unit</th><th>meaning</th></tr>{"".join(rows)}</table></div>'
        "</details>"
    )


def _configuration(run: RunData) -> str:
    software = run.about.get("software", {})
    return "".join(
        f'<details class="fold"><summary>{title}</summary>'
        f"<pre>{safe(json.dumps(content, indent=2, ensure_ascii=False))}</pre></details>"
        for title, content in (
            ("Configuration of the run", run.about["config"]),
            ("Software and machine", software),
            ("Sessions", run.status.get("sessions", [])),
        )
        if content
    )


def _environment(run: RunData) -> str:
    return str(run.setting("env", "env_id", "environment") or "")


def _change(before: Evaluation, after: Evaluation) -> tuple[float, float, float]:
    first, last = before.interval(), after.interval()
    assert first is not None
    assert last is not None
    difference = last[0] - first[0]
    n_first, n_last = number(before.numbers.get("n")), number(after.numbers.get("n"))
    if not (math.isfinite(first[1]) and math.isfinite(last[1]) and n_first and n_last):
        return difference, math.nan, math.nan
    return (difference, *newcombe_interval(first[0], int(n_first), last[0], int(n_last)))


def _mode_rank(mode: str) -> tuple[int, str]:
    order = (*POLICY_MODES, "rule", "oracle")
    return (order.index(mode) if mode in order else len(order), mode)


def _split_rank(split: str) -> tuple[int, str]:
    return (_SPLIT_ORDER.index(split) if split in _SPLIT_ORDER else len(_SPLIT_ORDER), split)


def _time(stamp: object) -> str:
    return str(stamp or "").replace("T", " ").replace("+00:00", " UTC")


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
