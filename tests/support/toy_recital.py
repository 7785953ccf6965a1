"""A one-answer environment with a worked solution, and rounds with an oracle: toys for guidance."""

from __future__ import annotations

import toy_rounds

import agentgym
from agentgym.env import Outcome, TextEnv
from agentgym.guidance import Solution
from agentgym.prompts import EnvPrompt
from agentgym.tasks import TaskSet

SPEC = agentgym.EnvSpec(
    id="ToyRecital-v0", env="toy_recital:ToyRecital", prompt="toy_recital:RecitalPrompt"
)
ORACLE = agentgym.EnvSpec(
    id="ToyOracle-v0", env="toy_recital:ToyOracle", prompt="toy_rounds:ToyPrompt"
)
TEXT = "abc def gah; it is 7"


class ToyRecital(TextEnv):
    """Write an answer that has an even (or odd) number of letters; ``TEXT`` is a solution.

    Args:
        ranked: Tasks are ranked by their number, backwards.
        empty: There are no reference steps.
        kwargs: See :class:`agentgym.TextEnv`.
    """

    def __init__(self, *, ranked: bool = True, empty: bool = False, **kwargs) -> None:
        super().__init__(max_steps=1, **kwargs)
        self.empty = empty
        self.tasks = TaskSet(
            {
                "train": [f"train-{number}" for number in range(12)],
                "test": [f"test-{number}" for number in range(6)],
            },
            train_split="train",
            eval_splits=("test",),
            difficulty=(lambda name: -int(name.rpartition("-")[2]) // 3) if ranked else None,
        )

    def _begin(self, task_id: str) -> Outcome:
        return Outcome(f"round of {task_id}", details={"heard": ""})

    def _act(self, action: str) -> Outcome:
        right = len(action) % 2 == int(self.task_id.rpartition("-")[2]) % 2
        return Outcome(
            "over", float(right), terminated=True, score=float(right), success=right,
            details={"heard": action},
        )  # fmt: skip

    def goal(self) -> str:
        return "Recite."

    def reference(self) -> tuple[str, ...]:
        return () if self.empty else tuple(TEXT.split("; "))


class RecitalPrompt(EnvPrompt):
    """The reference is one response, and its end is the answer."""

    def solution(self, info) -> Solution | None:
        if not info["reference"]:
            return None
        return Solution(TEXT, TEXT.index("7"))


class ToyOracle(toy_rounds.ToyRounds):
    """Rounds whose oracle knows a word of the right length."""

    def reference(self) -> tuple[str, ...]:
        return ("ab" if self.parity == 0 else "abc",) * (2 - self.hits)


agentgym.register(SPEC)
agentgym.register(ORACLE)
