"""What a memory of task progress has learnt: the states and kinds of action that tell most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from trainers.metrics import format_number
from trainers.report.markup import safe

__all__ = ["memory_html"]

_QUANTITIES = ("mean", "deviation", "support", "advantage")


def memory_html(findings: Mapping[str, Any]) -> str:
    """The memory of ``findings.json`` as cards, one a state; empty where there is none to show.

    Args:
        findings: Content of the file.
    """
    memory = findings.get("memory")
    if not isinstance(memory, dict) or not isinstance(memory.get("strongest"), list):
        return ""
    rows = [row for row in memory["strongest"] if _complete(row)]
    if not rows:
        return ""
    widest = max(abs(row["mean"]) for row in rows) or 1.0
    cards = [
        _state_card(state, list(own), widest)
        for state, own in groupby(rows, key=lambda row: str(row["state"]))
    ]
    facts = [
        f"{_count(memory.get('cells'))} cells in {_count(memory.get('states'))} states",
        f"half-life {_count(memory.get('half_life'))} updates",
        f"after step {_count(findings.get('step'))}",
    ]
    return (
        '<p class="soft small">What kinds of action were worth in states of progress, over all '
        "tasks and recent updates: mean return relative to the same situation, its deviation, the "
        "effective number of situations that it is known from, and the advantage that comes of it. "
        f"The states with most to say come first. {safe('; '.join(facts))}.</p>"
        f'<div class="grid2">{"".join(cards)}</div>'
    )


def _state_card(state: str, rows: list[dict[str, Any]], widest: float) -> str:
    body = "".join(
        f'<tr><td class="mono">{safe(row["action"])}</td><td>{_bar(row["mean"] / widest)}</td>'
        f'<td class="n"><b>{row["mean"]:+.3f}</b></td>'
        f'<td class="n soft">{row["deviation"]:.2f}</td>'
        f'<td class="n">{row["support"]:.1f}</td><td class="n">{row["advantage"]:+.2f}</td></tr>'
        for row in rows
    )
    return (
        f'<div class="card scroll"><h3 class="mono">{safe(state)}</h3><table>'
        '<tr><th>action</th><th>effect</th><th class="n">mean</th><th class="n">sd</th>'
        f'<th class="n">support</th><th class="n">advantage</th></tr>{body}</table></div>'
    )


def _bar(share: float) -> str:
    """A bar from the middle to the right for what is good, to the left for what is bad."""
    width = 50 * min(abs(share), 1.0)
    start = 50.0 if share > 0 else 50.0 - width
    side = "up" if share > 0 else "down"
    return (
        f'<span class="effect"><i class="{side}" style="left:{start:.1f}%;width:{width:.1f}%"></i>'
        "</span>"
    )


def _complete(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and "state" in row
        and "action" in row
        and all(
            isinstance(row.get(name), int | float) and math.isfinite(row[name])
            for name in _QUANTITIES
        )
    )


def _count(value: Any) -> str:
    return format_number(value, 6) if isinstance(value, int | float) else "?"
