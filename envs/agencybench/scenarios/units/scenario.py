"""code/units as a scenario."""

from __future__ import annotations

import inspect
import json

from agentgym.dice import Dice
from envs.agencybench.scenario import Scenario, Task, World
from envs.agencybench.scenarios.units import draws, oracle, reference, texts
from envs.agencybench.scenarios.units.checks import CHECKS, sources
from envs.agencybench.scenarios.units.faults import SEEDED, replaced

__all__ = ["scenario"]


def _build(dice: Dice) -> World:
    table = draws.table(dice)
    code = replaced(sources(), SEEDED.values())
    code.pop("__main__.py")
    files = {f"units/{name}": text.encode() for name, text in code.items()}
    files["units/table.json"] = (json.dumps(table, indent=1) + "\n").encode()
    files["README.md"] = texts.README.format(a=list(table)[-5]).encode()
    files["CHANGELOG.md"] = texts.CHANGELOG.encode()
    functions = ("calculate", "convert", "find_factor")
    interface = {
        "names": sorted(reference.__all__),
        "parameters": {
            name: list(inspect.signature(getattr(reference, name)).parameters) for name in functions
        },
    }
    return World(files, gold={"table": table, "interface": interface})


def scenario() -> Scenario:
    """The scenario, ready to be played."""
    tasks = tuple(
        Task(
            id=f"subtask{number}",
            query=query,
            deliverables=deliverables,
            rubric=rubric,
            checks=checks,
            protected=("units/table.json",),
        )
        for number, ((query, deliverables, rubric), checks) in enumerate(
            zip(texts.QUERIES, CHECKS, strict=True), 1
        )
    )
    return Scenario("code/units", "Code", texts.BRIEF, tasks, _build, oracle=oracle.solve)
