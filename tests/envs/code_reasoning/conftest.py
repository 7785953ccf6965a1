"""One sandbox for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from code_judging import LIMITS, made

from agentgym.sandbox import Level, Limits, Sandbox, shared_sandbox
from envs.code_reasoning.scoring import Score, score
from envs.code_reasoning.tasks import CodeTask


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The sandbox that environments share; what needs one cannot be tested without."""
    return shared_sandbox("auto", minimum=Level.FULL, packages=False, workers=8)


@pytest.fixture
def judge(sandbox: Sandbox) -> Callable[..., Score]:
    """Judge code against a task, or against tests of the function ``f``."""

    def judged(code: str, tests: object, limits: Limits = LIMITS, **row: object) -> Score:
        task = tests if isinstance(tests, CodeTask) else made(tests, **row)
        return score(task, code, sandbox, limits)

    return judged
