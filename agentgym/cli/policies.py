"""Policies by name. No other module of the suite's core names an adapter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from agentgym.policy import Completion, Policy, Request
from agentgym.registry import EnvSpec, load

__all__ = ["POLICIES", "SCRIPTED", "Meter", "Used", "actor", "open_policy"]

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


@dataclass(slots=True)
class Used:
    """What one episode took of a policy.

    Attributes:
        prompt_tokens: Tokens read, over all generations.
        action_tokens: Tokens generated.
        error: What went wrong last, if anything did.
        odd_ends: How often answers ended for a reason that the policy has no word for, by the
            engine's word.
    """

    prompt_tokens: int = 0
    action_tokens: int = 0
    error: str | None = None
    odd_ends: Counter[str] = field(default_factory=Counter)


class Meter:
    """A policy that counts the tokens of each episode.

    Where the engine reports its own counts (``details["usage"]``), they stand; else prompt and
    answer are counted as they travel.

    Args:
        policy: Does the work.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._used: dict[str, Used] = {}

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
        used = self._used.setdefault(_episode(request.session), Used())
        used.prompt_tokens += usage["prompt_tokens"]
        used.action_tokens += usage["completion_tokens"]
        used.error = completion.details.get("error", used.error)
        if "finish_reason" in completion.details:
            used.odd_ends[str(completion.details["finish_reason"])] += 1
        return completion

    def take(self, group_id: str, member: int) -> Used:
        """What an episode that has ended took."""
        return self._used.pop(f"{group_id}/{member}", None) or Used()

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
