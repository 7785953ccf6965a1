"""Scenarios whose tasks build up one page, ``index.html``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym.dice import Dice
from envs.agencybench.assessment import Assessment
from envs.agencybench.scenario import Check, Finding, Scenario, Task, World

__all__ = ["page_scenario"]

_Part = tuple[float, str, Callable[[Assessment], Finding]]


def page_scenario(
    scenario_id: str,
    capability: str,
    brief: str,
    queries: Sequence[tuple[str, str]],
    parts: Sequence[Mapping[str, _Part]],
    build: Callable[[Dice], World],
    page: Path,
) -> Scenario:
    """A scenario whose every check looks at the page with a browser.

    Args:
        scenario_id: For instance ``game/lightgrid``.
        capability: What the benchmark calls its kind.
        brief: What all tasks have in common.
        queries: What each task asks for, and its rubric.
        parts: The checks of each task: name to weight, what is required, and how it is looked at.
        build: Makes the workspace.
        page: The finished page; the oracle writes it.
    """

    def solve(world: World, task: int) -> list[tuple[str, dict[str, Any]]]:
        return [("write_file", {"path": "index.html", "content": page.read_text("utf-8")})]

    tasks = tuple(
        Task(
            f"subtask{number}",
            query,
            "- `index.html`",
            rubric,
            tuple(
                Check(name, weight, required, run, frozenset({"browser"}), "dom")
                for name, (weight, required, run) in checks.items()
            ),
        )
        for number, ((query, rubric), checks) in enumerate(zip(queries, parts, strict=True), 1)
    )
    return Scenario(scenario_id, capability, brief, tasks, build, oracle=solve)
