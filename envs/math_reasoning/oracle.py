"""The oracle: writes the steps that lead to the answer, and errs where it is asked to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from envs.math_reasoning.env import MathReasoningEnv
from envs.math_reasoning.word_problems import Step

__all__ = ["demonstrate", "response"]


class _Random(Protocol):
    def random(self) -> float:
        """A number in [0, 1)."""
        ...


#: Slips of the pen.
_SLIPS = (1, -1, 2, -2, 10, -10)


def response(env: MathReasoningEnv, rng: _Random, noise: float = 0.0) -> str:
    r"""A response to the current task: reasoning steps, then the boxed answer.

    Args:
        env: The environment, after ``reset``.
        rng: Source of randomness.
        noise: Probability in [0, 1] that a step's result is wrong; later steps build on it. Where
            the steps come with the data, the last one alone may be wrong.
    """
    problem = env.problem
    if problem is None:
        answer = env.task.answer
        if rng.random() < noise:
            answer = _wrong(answer, rng)
        lines = [line for line in env.task.reference if "\\boxed" not in line]
        return env.reference_joiner.join([*lines, f"The answer is \\boxed{{{answer}}}."])

    def write(result: int) -> int:
        if rng.random() >= noise:
            return result
        slipped = result + _SLIPS[int(rng.random() * len(_SLIPS))]
        return slipped if slipped > 0 else result + 1

    steps: tuple[Step, ...] = problem.worked(write)
    if env.compact:
        return " ".join([*(step.compact() for step in steps), f"\\boxed{{{steps[-1].result}}}"])
    lines = [step.sentence(problem.theme) for step in steps]
    return "\n".join([*lines, f"The answer is \\boxed{{{steps[-1].result}}}."])


def _wrong(answer: str, rng: _Random) -> str:
    if answer.lstrip("-").isdigit():
        return str(int(answer) + _SLIPS[int(rng.random() * len(_SLIPS))])
    return f"{answer}+1"


def demonstrate(env: Any, rng: _Random, noise: float = 0.0) -> Iterator[str]:
    """Play the episode that ``env`` has begun.

    Args:
        env: A MathReasoning environment after ``reset``, wrapped or not.
        rng: Source of randomness (NumPy's or the standard library's).
        noise: How often a step is wrong, between 0 and 1; 0 is always right.

    Raises:
        ValueError: If ``noise`` is out of range.
    """
    if not 0.0 <= noise <= 1.0:
        raise ValueError(f"noise must be between 0 and 1, got {noise!r}")
    inner: MathReasoningEnv = env.unwrapped
    for _ in range(inner.turns):
        yield response(inner, rng, noise)
