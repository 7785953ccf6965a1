"""What share of each scenario of a clone is decided by rule, and that the docs say so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envs.agencybench.upstream.checks.table import checks_for
from envs.agencybench.upstream.policies import SCENARIOS
from envs.agencybench.upstream.sections import Sections

DOCS = Path(__file__).resolve().parents[3] / "docs" / "agencybench.md"
SECTIONS = Sections("q", "d", "r", "rubric")
#: What rules may need: a browser, where a page is built.
BY_RULE = frozenset({"browser"})


def share(name):
    """Mean over the tasks of the weight that rules decide, in percent."""
    shares = []
    for number in range(1, SCENARIOS[name].tasks + 1):
        checks = checks_for(name, number, SECTIONS)
        total = sum(check.weight for check in checks)
        shares.append(sum(c.weight for c in checks if c.needs <= BY_RULE) / total)
    return round(100 * sum(shares) / len(shares))


def documented():
    """The docs' table: scenario to tasks and percent; ``Game/1-10`` stands for ten."""
    made = {}
    rows = re.findall(r"^\| (\w+)/(\d+)(?:-(\d+))? \| (\d+) \| (\d+) % \|", DOCS.read_text(), re.M)
    for capability, first, last, tasks, percent in rows:
        for number in range(int(first), int(last or first) + 1):
            made[f"{capability}/scenario{number}"] = (int(tasks), int(percent))
    return made


def test_the_table_of_the_docs_is_the_one_of_the_checks():
    real = {name: (policy.tasks, share(name)) for name, policy in SCENARIOS.items()}
    assert len(real) == 32
    assert sum(tasks for tasks, _ in real.values()) == 138
    table = "\n".join(f"{name}: {tasks} tasks, {part} %" for name, (tasks, part) in real.items())
    assert documented() == real, table


@pytest.mark.parametrize("name", SCENARIOS)
def test_checks_of_a_task_have_names_and_weights_of_their_own(name):
    for number in range(1, SCENARIOS[name].tasks + 1):
        checks = checks_for(name, number, SECTIONS)
        assert len({check.id for check in checks}) == len(checks)
        assert sum(check.weight for check in checks) > 0
        assert all(check.required for check in checks)
