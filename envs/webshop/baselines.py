"""What the fixed rule and the oracle reach, to be printed beside a policy's evaluation.

The rule searches the whole instruction, opens the first result, clicks the options that match and
buys. The oracle knows the hidden goal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agentgym.trajectory import EpisodeSpec
from envs.webshop.oracle import demonstrate
from envs.webshop.rule import FixedRule

__all__ = [
    "Actor",
    "Outcome",
    "Rates",
    "baselines",
    "oracle_actions",
    "play",
    "rates",
    "rule_actions",
]

Actor = Callable[[gym.Env[str, str]], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one episode went.

    Attributes:
        task_id: What was asked for.
        score: Reward of the purchase; 0 without one.
        success: Whether it is 1.
        turns: Actions taken.
        first: Whether the first result was bought; None without a purchase.
    """

    task_id: str
    score: float
    success: bool
    turns: int
    first: bool | None


@dataclass(frozen=True, slots=True)
class Rates:
    """Averages over episodes.

    Attributes:
        episodes: Number of episodes.
        success: Share with reward 1.
        score: Mean reward.
        turns: Mean number of actions.
        first: Share of the purchases that were the first result.
    """

    episodes: int
    success: float
    score: float
    turns: float
    first: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Rates:
        """The averages; zeros where there is nothing to average."""
        number = max(len(outcomes), 1)
        bought = [o.first for o in outcomes if o.first is not None]
        return cls(
            len(outcomes),
            sum(o.success for o in outcomes) / number,
            sum(o.score for o in outcomes) / number,
            sum(o.turns for o in outcomes) / number,
            sum(bought) / max(len(bought), 1),
        )


def rule_actions(env: gym.Env[str, str]) -> Iterator[str]:
    """The fixed rule's actions, one for each state of ``env``."""
    rule, shop_env = FixedRule(), env.unwrapped
    while True:
        yield rule.act(shop_env.goal(), shop_env.admissible_actions())  # type: ignore[attr-defined]


def oracle_actions(env: gym.Env[str, str]) -> Iterator[str]:
    """The oracle's actions, one for each state of ``env``."""
    return demonstrate(env, _Never(), 0.0)


class _Never:
    def random(self) -> float:
        raise AssertionError("the oracle without noise draws nothing")


def play(env: gym.Env[str, str], actor: Actor, task_id: str, seed: int = 0) -> Outcome:
    """One episode."""
    _, info = env.reset(seed=seed, options={"task_id": task_id})
    for action in actor(env):
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    first = info["details"].get("first_result")
    return Outcome(task_id, info["score"], info["success"], info["turn"], first)


def rates(env: gym.Env[str, str], actor: Actor, task_ids: Iterable[str]) -> Rates:
    """Averages over some tasks."""
    return Rates.of([play(env, actor, task_id) for task_id in task_ids])


def baselines(env: gym.Env[Any, Any], specs: Sequence[EpisodeSpec]) -> dict[str, dict[str, float]]:
    """Rule and oracle on the episodes of an evaluation.

    Args:
        env: A WebShop environment.
        specs: Episodes; each names its task.

    Returns:
        Name of the baseline to quantity to value, under the names of a run's log.
    """
    out: dict[str, dict[str, float]] = {}
    for name, actor in (("rule", rule_actions), ("oracle", oracle_actions)):
        found = Rates.of([play(env, actor, str(spec.task_id), spec.seed) for spec in specs])
        out[name] = {
            "success": found.success,
            "score": found.score,
            "turns": found.turns,
            "first_result_share": found.first,
            "n": found.episodes,
        }
    return out
