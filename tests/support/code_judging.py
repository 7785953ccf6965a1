"""Tasks to judge code against."""

from __future__ import annotations

from agentgym.sandbox import Limits
from envs.code_reasoning.dataset import load
from envs.code_reasoning.tasks import CodeTask

#: Generous, since machines that run tests are busy.
LIMITS = Limits(seconds=60.0, cpu_seconds=10, memory=512 << 20, output=4 << 10, flood=4 << 20)


def made(tests: object, **row: object) -> CodeTask:
    """A task with these tests of a function ``f``."""
    rows = [{"question": "Write f.", "entry_point": "f", "tests": tests, **row}]
    return load(rows)["train"][0]
