"""A third party's environment: guess a number, told whether to go higher or lower.

All that the suite needs of it is :class:`GuessNumber` and the entry at the end. With this file on
the path, ``gym.make("guess_number:GuessNumber-v0")`` works, and so does
``python -m trainers.grpo --env guess_number:GuessNumber-v0``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import agentgym
from agentgym.info import Info
from agentgym.prompts import EnvPrompt


class GuessNumber(agentgym.TextEnv):
    """Find the hidden number within the step limit.

    Observation: ``Higher.``, ``Lower.`` or, at the end, ``Right.``.
    Action: a number in digits. Anything else is inadmissible and changes nothing.
    Reward: 1 for the right number, else 0.
    Termination: the number is found. Truncation: ``max_steps`` guesses.

    Args:
        highest: Numbers run from 1 to this.
        max_steps: Step limit.
        kwargs: See :class:`agentgym.TextEnv`.
    """

    def __init__(self, *, highest: int = 100, max_steps: int = 10, **kwargs: Any) -> None:
        super().__init__(max_steps=max_steps, **kwargs)
        self.highest = highest
        numbers = range(1, highest + 1)
        # A task is a number; every tenth one is kept for the test. The ids say what they are.
        self.tasks = agentgym.TaskSet(
            {
                "train": [f"number-{n}" for n in numbers if n % 10],
                "test": [f"number-{n}" for n in numbers if n % 10 == 0],
            },
            train_split="train",
            eval_splits=("test",),
        )
        self.low, self.high, self.number = 1, highest, 0

    def _begin(self, task_id: str) -> agentgym.Outcome:
        self.number = int(task_id.removeprefix("number-"))
        self.low, self.high = 1, self.highest
        return agentgym.Outcome(f"I have a number between 1 and {self.highest}.")

    def _act(self, action: str) -> agentgym.Outcome:
        if not self.is_admissible(action):
            return agentgym.Outcome("Please say a number in digits.", action_valid=False)
        guess = int(action)
        if guess == self.number:
            return agentgym.Outcome("Right.", reward=1.0, terminated=True, score=1.0, success=True)
        if guess < self.number:
            self.low = max(self.low, guess + 1)
        else:
            self.high = min(self.high, guess - 1)
        return agentgym.Outcome(
            "Higher." if guess < self.number else "Lower.",
            score=1 - (self.high - self.low + 1) / self.highest,
            details={"interval": [self.low, self.high]},
        )

    def is_admissible(self, action: str) -> bool:
        """Any number of at most nine digits is accepted."""
        return action.isascii() and action.isdigit() and len(action) <= 9

    def goal(self) -> str:
        """What the agent is asked to do."""
        return "Guess my number."

    def reference(self) -> tuple[str, ...]:
        """The oracle knows."""
        return (str(self.number),)


class GuessPrompt(EnvPrompt):
    """Says the goal before the first observation."""

    def first(self, observation: str, info: Info) -> str:
        """The first user message."""
        return f"{info['goal']} {observation}"


def demonstrate(env: Any, rng: np.random.Generator, noise: float) -> Iterator[str]:
    """Halve the interval, with chance ``noise`` a random number instead; for warm starts."""
    game: GuessNumber = env.unwrapped
    while True:
        middle = (game.low + game.high) // 2
        yield str(int(rng.integers(1, game.highest + 1)) if rng.random() < noise else middle)


def vocabulary(**_: Any) -> list[str]:
    """Words that the tiny policy's tokenizer should know."""
    return ["Higher.", "Lower.", "Right.", *map(str, range(1, 101))]


agentgym.register(
    agentgym.EnvSpec(
        id="GuessNumber-v0",
        env="guess_number:GuessNumber",
        prompt="guess_number:GuessPrompt",
        oracle="guess_number:demonstrate",
        vocabulary="guess_number:vocabulary",
    )
)
