"""research/harbour as a scenario."""

from __future__ import annotations

import json
from typing import Any

from agentgym.dice import Dice
from envs.agencybench.scenario import Scenario, Task, World
from envs.agencybench.scenarios.harbour import tasks
from envs.agencybench.scenarios.harbour.corpus import draw
from envs.agencybench.scenarios.harbour.service import Pages

__all__ = ["scenario"]


def _build(dice: Dice) -> World:
    registry = draw(dice)
    files = {"assignment.md": tasks.brief_file(registry).encode()}
    answers = [answer for _, answer, _ in tasks.questions(registry)["answers"].values()]
    figures = [str(conflict.value) for conflict in registry.conflicts]
    return World(files, registry, Pages(registry), secrets=(*answers, *figures))


def _solve(world: World, task: int) -> list[tuple[str, dict[str, Any]]]:
    calls: list[tuple[str, dict[str, Any]]] = []
    if task == 0:
        calls.append(("read_file", {"path": "assignment.md"}))
        calls.append(("web_search", {"query": tasks.questions(world.gold)["S"]}))
    for path, value in tasks.solutions(world.gold)[task].items():
        text = value if isinstance(value, str) else json.dumps(value, indent=1)
        calls.append(("write_file", {"path": path, "content": text}))
    return calls


def scenario() -> Scenario:
    """The scenario, ready to be played."""
    made = tuple(
        Task(f"subtask{number}", query, deliverables, rubric, checks, ("assignment.md",))
        for number, ((query, deliverables, rubric), checks) in enumerate(
            zip(tasks.QUERIES, tasks.CHECKS, strict=True), 1
        )
    )
    return Scenario("research/harbour", "Research", tasks.BRIEF, made, _build, oracle=_solve)
