"""Play a third party's environment with the rollout collector and a scripted policy.

No model and no third-party library beyond the core: the "policy" halves the interval. Everything
that a language model would do passes through the same interfaces: token ids in; token ids,
log-probs and a weight version out.

    python examples/play_with_collector.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import guess_number  # noqa: F401 - importing it registers the environment
import gymnasium as gym
import numpy as np

from agentgym.collector import Collector, CollectorConfig
from agentgym.packing import pack
from agentgym.policy import Completion, FinishReason, Request
from agentgym.prompts import make_renderer
from agentgym.registry import load, spec
from agentgym.trajectory import EpisodeSpec, group_trajectories

USER, ASSISTANT, END = 0x110000, 0x110001, 0x110002  # ids beyond every character


class Characters:
    """A tokenizer of characters with a chat template: the two methods that the suite needs."""

    names = {USER: "<user>", ASSISTANT: "<assistant>", END: "<end>"}  # noqa: RUF012

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: Any) -> str:
        """Render messages to text."""
        text = "".join(f"<{m['role']}>{m['content']}<end>" for m in conversation)
        return text + "<assistant>" if kwargs.get("add_generation_prompt") else text

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Text to ids."""
        for token, name in self.names.items():
            text = text.replace(name, chr(0xE000 + token - USER))
        return [USER + ord(c) - 0xE000 if 0xE000 <= ord(c) < 0xE003 else ord(c) for c in text]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Ids to text."""
        return "".join(self.names.get(token) or chr(token) for token in token_ids)


class Halving:
    """A policy that reads the conversation and answers with the middle of what is left."""

    version, max_context = 0, 4096

    def __init__(self, tokenizer: Characters) -> None:
        self.tokenizer = tokenizer

    async def generate(self, request: Request) -> Completion:
        """Continue a prompt."""
        low, high, guess = 1, 100, 0
        for part in self.tokenizer.decode(list(request.token_ids)).split("<end>"):
            if part.startswith("<assistant>") and part != "<assistant>":
                guess = int(part.removeprefix("<assistant>"))
            low = guess + 1 if part == "<user>Higher." else low
            high = guess - 1 if part == "<user>Lower." else high
        ids = (*self.tokenizer.encode(str((low + high) // 2)), END)
        n = len(ids)
        # A deterministic policy: each token had probability one.
        return Completion(ids, np.zeros(n, np.float32), np.zeros(n, np.int32), FinishReason.STOP)

    async def load_weights(self, state: Mapping[str, Any], version: int) -> None:
        """There are none."""

    def release(self, session: str) -> None:
        """There is no cache."""

    async def aclose(self) -> None:
        """There is nothing to stop."""


def main() -> None:
    """Play groups of two replicas of five tasks and pack what was recorded."""
    entry = spec("GuessNumber-v0")
    tokenizer = Characters()
    collector = Collector(
        make_env=lambda: gym.make("GuessNumber-v0"),
        renderer=make_renderer("conversation", tokenizer, load(entry.prompt)("bare")),
        policy=Halving(tokenizer),
        config=CollectorConfig(slots=4),
    )
    env: Any = gym.make("GuessNumber-v0")
    test = env.unwrapped.tasks.ids("test")[:5]
    specs = [
        EpisodeSpec(task, "test", seed=0, group_id=task, member=member)
        for task in test
        for member in range(2)
    ]
    trajectories = asyncio.run(collector.collect(specs))
    collector.close()
    for group in group_trajectories(trajectories):
        first = group.trajectories[0]
        guesses = " ".join(turn.action for turn in first.turns)
        print(f"{group.group_id} x{len(group)}: {guesses} -> {first.stop_reason}")
    rows = pack(trajectories)
    sampled = sum(int(row.action_mask.sum()) for row in rows)
    print(f"{len(rows)} rows, {sampled} sampled tokens of {sum(len(row) for row in rows)}")


if __name__ == "__main__":
    main()
