"""Policies by name. No other module of the suite's core names an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from agentgym.policy import Completion, Policy, Request
from agentgym.registry import EnvSpec, load

__all__ = ["POLICIES", "SCRIPTED", "Meter", "actor", "open_policy"]

#: Name to entry point of ``open_policy(**options) -> (policy, tokenizer)``, and the extra it needs.
POLICIES: dict[str, tuple[str, str | None]] = {
    "openai": ("adapters.policies.openai_policy:open_policy", None),
    "torch": ("adapters.policies.torch_policy:open_policy", "torch"),
    "vllm": ("adapters.policies.vllm_policy:open_policy", "vllm"),
}

#: Ways of acting that read no prompt.
SCRIPTED = ("oracle", "random")

#: From an environment just reset, its info and a seed to its actions.
Actor = Callable[[gym.Env[Any, Any], Mapping[str, Any], int], Iterator[str]]


def open_policy(name: str, options: Mapping[str, Any]) -> tuple[Policy, Any]:
    """The policy of that name and the tokenizer that its prompts are rendered with.

    Raises:
        ValueError: If it is unknown, or an option does not suit it.
        ImportError: If what it needs is not installed.
    """
    if name not in POLICIES:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join([*POLICIES, *SCRIPTED])}")
    opened: tuple[Policy, Any] = load(*POLICIES[name])(**options)
    return opened


def actor(name: str, entry: EnvSpec) -> Actor:
    """The scripted way of acting of that name.

    Raises:
        ValueError: If it is unknown, or the environment has no oracle.
    """
    if name == "random":
        return _random
    if name != "oracle":
        raise ValueError(f"unknown script {name!r}; known: {', '.join(SCRIPTED)}")
    if entry.oracle is None:
        raise ValueError(f"{entry.id} has no oracle")
    demonstrate = load(entry.oracle, entry.extra)

    def play(env: gym.Env[Any, Any], info: Mapping[str, Any], seed: int) -> Iterator[str]:
        actions: Iterator[str] = demonstrate(env, np.random.default_rng(seed), 0.0)
        return actions

    return play


def _random(env: gym.Env[Any, Any], info: Mapping[str, Any], seed: int) -> Iterator[str]:
    """Any admissible action, as the action space draws it."""
    env.action_space.seed(seed)
    while True:
        yield str(env.action_space.sample())


class Meter:
    """A policy that counts the tokens of each episode.

    Where the engine reports its own counts (``details["usage"]``), they stand; else prompt and
    answer are counted as they travel.

    Args:
        policy: Does the work.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._usage: dict[str, list[int]] = {}
        self._errors: dict[str, str] = {}

    @property
    def version(self) -> int:
        """See :class:`~agentgym.policy.Policy`."""
        return self.policy.version

    @property
    def max_context(self) -> int:
        """See :class:`~agentgym.policy.Policy`."""
        return self.policy.max_context

    async def generate(self, request: Request) -> Completion:
        """See :class:`~agentgym.policy.Policy`."""
        completion = await self.policy.generate(request)
        usage = completion.details.get("usage") or {
            "prompt_tokens": len(request.token_ids),
            "completion_tokens": len(completion.token_ids),
        }
        episode = _episode(request.session)
        totals = self._usage.setdefault(episode, [0, 0])
        totals[0] += usage["prompt_tokens"]
        totals[1] += usage["completion_tokens"]
        if "error" in completion.details:
            self._errors[episode] = completion.details["error"]
        return completion

    def take(self, group_id: str, member: int) -> tuple[int, int, str | None]:
        """Prompt tokens and generated tokens of an episode that has ended, and what went wrong."""
        episode = f"{group_id}/{member}"
        prompt, generated = self._usage.pop(episode, (0, 0))
        return prompt, generated, self._errors.pop(episode, None)

    async def load_weights(self, state: Mapping[str, Any], version: int) -> None:
        """See :class:`~agentgym.policy.Policy`."""
        await self.policy.load_weights(state, version)

    def release(self, session: str) -> None:
        """See :class:`~agentgym.policy.Policy`."""
        self.policy.release(session)

    async def aclose(self) -> None:
        """See :class:`~agentgym.policy.Policy`."""
        await self.policy.aclose()


def _episode(session: str | None) -> str:
    """The collector names a session ``<group>/<member>#<serial>``."""
    return (session or "").rpartition("#")[0]
