"""One sandbox for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from code_judging import LIMITS, made

from agentgym.sandbox import Level, Limits, Sandbox, SandboxUnavailable, shared_sandbox
from envs.code_reasoning.scoring import Score, score
from envs.code_reasoning.tasks import CodeTask


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """A sandbox that isolates fully; what needs one cannot be tested without."""
    try:
        return shared_sandbox("auto", minimum=Level.FULL, packages=False, workers=8)
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox on this machine: {error}")


@pytest.fixture
def judge(sandbox: Sandbox) -> Callable[..., Score]:
    """Judge code against a task, or against tests of the function ``f``."""

    def judged(code: str, tests: object, limits: Limits = LIMITS, **row: object) -> Score:
        task = tests if isinstance(tests, CodeTask) else made(tests, **row)
        return score(task, code, sandbox, limits)

    return judged
