"""Recorded episodes for people to read. Everything a model or a page said is hostile text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trainers.metrics import format_number
from trainers.report.markup import safe

__all__ = ["choose_episodes", "episode_html", "page_html"]

_MAX_PAGE = 6000
_MAX_TURNS = 40

# Pages written as text mark their controls in pairs: "[button] Buy Now [button_]".
_CONTROL = re.compile(r"\[([a-z][a-z ]{0,30})\] ([^\n]{0,300}?) \[\1_\]")
_THINK = re.compile(r"&lt;think&gt;.*?(?:&lt;/think&gt;|$)", re.DOTALL)


def choose_episodes(rows: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Choose a few telling episodes: good and bad late ones, a half-good one, an early one of each.

    Args:
        rows: Rows of ``trajectories.jsonl``.

    Returns:
        (why it is shown, row), most interesting first, no row twice.
    """
    usable = [row for row in rows if isinstance(row.get("turns"), list) and row["turns"]]
    if not usable:
        return []
    last, first = max(row["step"] for row in usable), min(row["step"] for row in usable)
    middle = (first + last) / 2
    late = sorted((r for r in usable if r["step"] >= middle), key=lambda r: -r["step"])
    early = sorted((r for r in usable if r["step"] < middle), key=lambda r: r["step"])
    good = [row for row in late if row.get("success")]
    bad = [row for row in late if not row.get("success")]
    partial = sorted(bad, key=lambda r: -(r.get("score") or 0.0))
    failed = sorted(bad, key=lambda r: r.get("score") or 0.0)
    wanted = [
        *(("solved, late in training", row) for row in good[:2]),
        *(("closest miss, late in training", row) for row in partial[:1]),
        *(("failed, late in training", row) for row in failed),
        *(("solved, early in training", row) for row in early if row.get("success")),
        *(("failed, early in training", row) for row in early if not row.get("success")),
    ]
    chosen: list[tuple[str, dict[str, Any]]] = []
    count: dict[str, int] = {}
    for why, row in wanted:
        most = 2 if why == "solved, late in training" else 1
        if count.get(why, 0) < most and not any(row is other for _, other in chosen):
            chosen.append((why, row))
            count[why] = count.get(why, 0) + 1
    return chosen


def episode_html(why: str, row: dict[str, Any], *, is_open: bool = False) -> str:
    """One episode as a foldable card."""
    score, reward = row.get("score"), row.get("reward")
    if row.get("success"):
        badge = '<span class="badge good">solved</span>'
    elif isinstance(score, int | float) and score > 0:
        badge = f'<span class="badge warn">score {safe(format_number(score, 3))}</span>'
    else:
        badge = '<span class="badge bad">not solved</span>'
    turns = row["turns"]
    facts = [
        why,
        f"step {row['step']}",
        str(row.get("source") or ""),
        f"{len(turns)} turn{'s' if len(turns) != 1 else ''}",
        f"reward {_number(reward)}",
        f"ended: {row.get('stop_reason')}",
    ]
    goal = str(row.get("goal") or row.get("task_id") or "")
    shown = "".join(_turn_html(i, turn) for i, turn in enumerate(turns[:_MAX_TURNS], 1))
    if len(turns) > _MAX_TURNS:
        shown += f'<li class="soft small">{len(turns) - _MAX_TURNS} more turns are not shown</li>'
    error = row.get("error")
    fault = f'<p class="alert bad">{safe(str(error))}</p>' if error else ""
    return (
        f'<details class="card episode"{" open" if is_open else ""}><summary>{badge}'
        f'<span class="goal">{safe(_cut(goal, 400))}</span>'
        f'<span class="soft small">{safe(" · ".join(filter(None, facts)))}</span></summary>'
        f'{fault}<ol class="turns">{shown}</ol></details>'
    )


def page_html(text: str) -> str:
    """A page of text, escaped: one line for each part, paired controls drawn as chips."""
    lines = _cut(text, _MAX_PAGE).replace(" [SEP] ", "\n")
    lines = re.sub(r"\n{3,}", "\n\n", lines).strip("\n")
    drawn = _CONTROL.sub(
        lambda m: f'<span class="chip{" on" if "clicked" in m[1] else ""}">{m[2]}</span>',
        safe(lines),
    )
    # Controls on lines of their own stand side by side: a page of options stays short.
    return re.sub(r'</span>\n *(?=<span class="chip)', "</span> ", drawn)


def _turn_html(number: int, turn: dict[str, Any]) -> str:
    action, text = str(turn.get("action") or ""), str(turn.get("text") or "")
    flags = []
    if turn.get("format_ok") is False:
        flags.append('<span class="badge bad">wrong form</span>')
    if turn.get("action_valid") is False:
        flags.append('<span class="badge warn">inadmissible</span>')
    if turn.get("reward"):
        flags.append(f'<span class="badge good">reward {safe(_number(turn["reward"]))}</span>')
    if turn.get("finish_reason") in ("length", "context_overflow", "abort"):
        flags.append(f'<span class="badge warn">{safe(str(turn["finish_reason"]))}</span>')
    raw = ""
    if text.strip() and text.strip() != action.strip():
        inner = _THINK.sub(
            lambda m: f'<span class="think">{m[0]}</span>', safe(_cut(text, _MAX_PAGE))
        )
        raw = f'<div class="raw mono">{inner}</div>'
    page = page_html(str(turn.get("observation") or ""))
    return (
        f'<li class="turn"><span class="no">{number}</span><div>'
        + (f'<div class="page mono">{page}</div>' if page else "")
        + raw
        + f'<div class="said"><span class="arrow">→</span><span class="act mono">'
        f"{safe(_cut(action, 2000)) or '<i>(nothing)</i>'}</span>{''.join(flags)}"
        "</div></div></li>"
    )


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[... {len(text) - limit} more characters]"


def _number(value: Any) -> str:
    return format_number(value, 3) if isinstance(value, int | float) else "-"
