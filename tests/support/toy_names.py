"""A small environment for tests of cloning: read a list, take what the goal names, then leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import agentgym
from agentgym.env import Outcome, TextEnv
from agentgym.prompts import EnvPrompt
from agentgym.tasks import TaskSet

KINDS = ("axe", "bell", "cup", "drum", "egg", "fan")
CODES = tuple(f"{letter}{digit}" for letter in "klmn" for digit in range(1, 5))


SPEC = agentgym.EnvSpec(
    id="ToyNames-v0",
    env="toy_names:ToyNames",
    prompt="toy_names:ToyPrompt",
    oracle="toy_names:demonstrate",
    vocabulary="toy_names:vocabulary",
    variants="toy_names:variants",
    tiny={"items": 3},
)


class ToyNames(TextEnv):
    """Take the item of the kind asked for, by its code.

    Args:
        items: Items on the list.
        world: Which codes go with which kinds.
        max_steps: Step limit.
        kwargs: See :class:`agentgym.TextEnv`.
    """

    def __init__(
        self, *, items: int = 4, world: int = 0, max_steps: int | None = 6, **kwargs: Any
    ) -> None:
        super().__init__(max_steps=max_steps, **kwargs)
        self.items, self.world = items, world
        self.tasks = TaskSet(
            {
                "train": [f"train-{number}" for number in range(40)],
                "test": [f"test-{number}" for number in range(20)],
            },
            train_split="train",
            eval_splits=("test",),
        )
        self.listed: dict[str, str] = {}
        self.wanted, self.taken = "", ""

    def _begin(self, task_id: str) -> Outcome:
        kinds = self.np_random.permutation(KINDS)[: self.items]
        codes = self.np_random.permutation(CODES)[: self.items]
        self.listed = {str(k): str(c) for k, c in zip(kinds, codes, strict=True)}
        self.wanted, self.taken = str(self.np_random.choice(kinds)), ""
        return Outcome(self._page())

    def _page(self) -> str:
        return ", ".join(f"{kind} {code}" for kind, code in self.listed.items())

    def _act(self, action: str) -> Outcome:
        if not self.is_admissible(action):
            return Outcome("no such thing", action_valid=False)
        if action == "leave":
            won = bool(self.taken) and self.listed[self.wanted] == self.taken
            return Outcome("over", float(won), terminated=True, score=float(won), success=won)
        self.taken = action[len("take[") : -1]
        return Outcome(f"{self.taken} taken")

    def is_admissible(self, action: str) -> bool:
        return action in ("leave", *(f"take[{code}]" for code in self.listed.values()))

    def goal(self) -> str:
        return f"take the {self.wanted}"


class ToyPrompt(EnvPrompt):
    """The goal, then the list."""

    def first(self, observation: str, info) -> str:
        return f"{info['goal']}: {observation}"


def demonstrate(env, rng, noise: float) -> Iterator[str]:
    """Take the right item, or any with probability ``noise``; then leave."""
    world = env.unwrapped
    codes = list(world.listed.values())
    wrong = rng.random() < noise
    yield f"take[{codes[int(rng.random() * len(codes))] if wrong else world.listed[world.wanted]}]"
    yield "leave"


def vocabulary(**env_args: Any) -> list[str]:
    """What should be one token."""
    return ["take the", "take[", "]", "taken", "leave", "no such thing", ",", ":", *KINDS, *CODES]


def variants(number: int, **env_args: Any) -> list[dict[str, Any]]:
    """Arguments of ``number`` worlds."""
    return [{"world": other} for other in range(1, number + 1)]


agentgym.register(SPEC)
