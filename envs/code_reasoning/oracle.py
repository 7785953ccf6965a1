"""The oracle: writes the reference solution, and errs where it is asked to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from envs.code_reasoning.env import CodeReasoningEnv
from envs.code_reasoning.generator import Step
from envs.code_reasoning.operations import OPERATIONS

__all__ = ["demonstrate", "solution"]


class _Random(Protocol):
    def random(self) -> float:
        """A number in [0, 1)."""
        ...


def solution(env: CodeReasoningEnv, rng: _Random, noise: float = 0.0) -> str:
    """Code for the current task.

    Args:
        env: The environment, after ``reset``.
        rng: Source of randomness.
        noise: Probability in [0, 1] that a step is another one than asked for: the operation with
            another constant, or another operation. Of a solution that comes with the data, the
            last line is then left out.

    Raises:
        ValueError: If the data hold no solution of the task.
    """
    program = env.program
    if program is None:
        pieces = env.task.reference
        if not pieces:
            raise ValueError(f"the data hold no solution of task {env.task.id!r}")
        if rng.random() < noise:
            pieces = pieces[:-1] or pieces
        return "\n".join(pieces)
    steps = [step if rng.random() >= noise else _other(step, rng) for step in program.plan.steps]
    return env.reference_joiner.join(program.solution(steps))


def _other(step: Step, rng: _Random) -> Step:
    """A step as someone writes it who misreads the instruction."""
    operation = step.operation
    if isinstance(step.constant, int) and rng.random() < 0.5:
        return step._replace(constant=step.constant + (1 if step.constant < operation.high else -1))
    alike = [
        other
        for other in OPERATIONS
        if (other.takes, other.gives) == (operation.takes, operation.gives)
        and other is not operation
        and bool(other.short) >= bool(operation.short)
        and not other.letters
    ]
    other = alike[int(rng.random() * len(alike))] if alike else operation
    return Step(other, other.low if other.has_constant else None)


def demonstrate(env: Any, rng: _Random, noise: float = 0.0) -> Iterator[str]:
    """Play the episode that ``env`` has begun.

    Args:
        env: A CodeReasoning environment after ``reset``, wrapped or not.
        rng: Source of randomness (NumPy's or the standard library's).
        noise: How often a step is wrong, between 0 and 1; 0 is always right.

    Raises:
        ValueError: If ``noise`` is out of range, or the data hold no solution.
    """
    if not 0.0 <= noise <= 1.0:
        raise ValueError(f"noise must be between 0 and 1, got {noise!r}")
    inner: CodeReasoningEnv = env.unwrapped
    for _ in range(inner.turns):
        yield solution(inner, rng, noise)
