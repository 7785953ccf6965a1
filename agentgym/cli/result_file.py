"""What an evaluation writes: a row an episode, and the result file."""

from __future__ import annotations

import dataclasses
import math
import platform
import urllib.parse
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import agentgym
from agentgym.evaluation import EpisodeResult, summarize
from agentgym.recording import finite, plain, readable
from agentgym.registry import EnvSpec, load
from agentgym.trajectory import Trajectory

__all__ = ["result_of", "row_of", "show"]

_FORMAT = "agentgym-evaluation/1"
_NAMES = tuple(field.name for field in dataclasses.fields(EpisodeResult))
# Sums of rewards may be beyond all numbers, which is null in a file.
_FLOATS = ("score", "reward")


def row_of(
    trajectory: Trajectory, result: EpisodeResult, odd_ends: Mapping[str, int], keep: str
) -> dict[str, Any]:
    """An episode as JSON values.

    Args:
        trajectory: What was played.
        result: Its numbers.
        odd_ends: How often its answers ended for other reasons than the usual ones.
        keep: ``numbers``, ``text`` or ``tokens``.
    """
    row = {name: getattr(result, name) for name in _NAMES}
    row |= {name: finite(row[name]) for name in _FLOATS}
    row["details"] = plain(result.details)
    if odd_ends:
        row["odd_ends"] = dict(odd_ends)
    if keep != "numbers":
        episode = readable(trajectory, tokens=keep == "tokens")
        row |= {name: episode[name] for name in ("split", "goal", "terminated")}
        row["steps"] = episode["turns"]
    return row


def result_of(
    about: Mapping[str, Any],
    entry: EnvSpec,
    base_url: str | None,
    planned: int,
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The content of the result file, as far as it follows from the episodes.

    Args:
        about: What was evaluated.
        entry: The environment.
        base_url: Where the model was.
        planned: Episodes to play.
        rows: Those that were.
    """
    results = [_read(row) for row in rows]
    played = [item for item in results if not item.lost]
    out = {
        "format": _FORMAT,
        **about,
        "server": _server(base_url),
        "complete": len(played) == planned,
        "episodes_planned": planned,
        "summary": summarize(results, entry.diagnostics),
        "episodes": [
            {name: row[name] for name in row if name not in ("details", "steps")} for row in rows
        ],
        "software": {"python": platform.python_version(), "agentgym": agentgym.__version__},
    }
    if entry.metrics is not None and played:
        measure = load(entry.metrics, entry.extra)
        try:
            out["metrics"] = plain(measure(played))
        except Exception as error:  # what was played stands
            out["metrics"], out["metrics_error"] = None, f"{type(error).__name__}: {error}"
            warnings.warn(
                f"the measures of {entry.id} failed: {out['metrics_error']}", stacklevel=2
            )
    return out


def _read(row: Mapping[str, Any]) -> EpisodeResult:
    values: dict[str, Any] = {name: row[name] for name in _NAMES if name in row}
    values |= {name: math.nan for name in _FLOATS if values[name] is None}
    return EpisodeResult(**values)


def _server(base_url: str | None) -> str | None:
    """Where the model was, without a login that the address may hold."""
    if base_url is None:
        return None
    parts = urllib.parse.urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def show(result: dict[str, Any]) -> None:
    """Print the result as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{result['env']} {result['split'] or ''}, {result['policy']}")
    table.add_column("tasks", overflow="fold")
    for heading in ("episodes", "lost", "success", "95 %", "score", "turns", "tokens"):
        table.add_column(heading, justify="right", no_wrap=True)
    summary = result["summary"]
    rows = {**summary["by_type"], "all": summary["all"]} if len(summary["by_type"]) > 1 else {
        "all": summary["all"]
    }  # fmt: skip
    for name, part in rows.items():
        if not part["episodes"]:
            table.add_row(name, "0", str(part["lost"]))
            continue
        ends = [f"{end:.0%}" if end is not None else "?" for end in part["success"]["interval"]]
        table.add_row(
            name,
            str(part["episodes"]),
            str(part["lost"]),
            f"{part['success']['mean']:.1%}",
            "-".join(ends),
            f"{part['score']['mean']:.3f}",
            f"{part['turns']['mean']:.1f}",
            f"{part['action_tokens']['mean']:.0f}",
        )
    Console().print(table)
