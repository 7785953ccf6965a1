"""A small environment for tests: doors, one of which hides a prize, described in many scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

import agentgym
from agentgym.env import Outcome, TextEnv
from agentgym.prompts import EnvPrompt
from agentgym.tasks import TaskSet

SYMBOLS = ("🦊", "鍵", "ß", "👩‍🚀", "e\u0301", "𝔘", "ключ", "\u200f→")
SPEC = agentgym.EnvSpec(
    id="ToyDoors-v0",
    env="toy_text:ToyDoors",
    prompt="toy_text:ToyPrompt",
    oracle="toy_text:demonstrate",
    vocabulary="toy_text:vocabulary",
)


class ToyDoors(TextEnv):
    """Open the door with the prize; a wrong door locks.

    Args:
        doors: Number of doors.
        max_steps: Step limit.
        kwargs: See :class:`agentgym.TextEnv`.
    """

    max_observation_chars = 400

    def __init__(self, *, doors: int = 4, max_steps: int | None = 6, **kwargs) -> None:
        super().__init__(max_steps=max_steps, **kwargs)
        self.doors = doors
        self.tasks = TaskSet(
            {
                "train": [f"train-{number}" for number in range(8)],
                "validation": lambda: [f"validation-{number}" for number in range(3)],
                "test": [f"test-{number}" for number in range(5)],
            },
            train_split="train",
            eval_splits=("validation", "test"),
        )
        self.prize, self.locked, self.sign = 0, frozenset(), ""

    def _begin(self, task_id: str) -> Outcome:
        self.prize = int(self.np_random.integers(self.doors)) + 1
        self.sign = SYMBOLS[int(self.np_random.integers(len(SYMBOLS)))]
        self.locked = frozenset()
        return Outcome(f"{self.sign} {task_id}: {self.doors} doors.", details=self._details())

    def _act(self, action: str) -> Outcome:
        if action == "overflow":
            return Outcome("x" * (self.max_observation_chars + 1))
        if action not in self.admissible_actions()[:-1]:
            spoken = re.fullmatch(r"say (.+)", action)
            text = f"You said {spoken[1][:20]}." if spoken else "Nothing happens."
            return Outcome(text, action_valid=bool(spoken), details=self._details())
        number = int(action.removeprefix("open "))
        if number == self.prize:
            return Outcome(
                f"The prize {self.sign}!", 1.0, True, True, 1.0, True, details=self._details()
            )
        self.locked |= {number}
        return Outcome(
            f"Door {number} was wrong. {self.sign}",
            score=len(self.locked) / self.doors,
            details=self._details(),
        )

    def _details(self) -> dict:
        return {"locked": sorted(self.locked)}

    def admissible_actions(self) -> tuple[str, ...]:
        doors = (number for number in range(1, self.doors + 1) if number not in self.locked)
        return (*(f"open {number}" for number in doors), "say <word>")

    def is_admissible(self, action: str) -> bool:
        return action in self.admissible_actions()[:-1] or action.startswith("say ")

    def goal(self) -> str:
        return "Find the prize."

    def task_type(self) -> str:
        return "doors"

    def reference(self) -> tuple[str, ...]:
        return (f"open {self.prize}",)


class ToyPrompt(EnvPrompt):
    """Words around the doors."""


def demonstrate(env, rng: np.random.Generator, noise: float) -> Iterator[str]:
    """The right door at once."""
    yield from env.unwrapped.reference()


def vocabulary(**_: object) -> list[str]:
    """Words of the environment."""
    return ["open", "say", "door", "doors"]
