"""What fixed ways of playing reach, to be printed beside a policy's evaluation.

``random`` draws an admissible command each turn. ``expert`` searches, by what the text has shown.
``oracle`` knows where everything is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym

from agentgym.trajectory import EpisodeSpec
from envs.alfworld.expert import demonstrate

__all__ = ["Actor", "baselines", "expert_actions", "oracle_actions", "random_actions"]

#: From an environment and a seed to one action for each state of the environment.
Actor = Callable[[gym.Env[Any, Any], int], Iterator[str]]


def random_actions(env: gym.Env[Any, Any], seed: int) -> Iterator[str]:
    """Any admissible command, each as likely as the others."""
    rng, inner = random.Random(seed), env.unwrapped
    while True:
        yield rng.choice(inner.admissible_actions())  # type: ignore[attr-defined]


def expert_actions(env: gym.Env[Any, Any], seed: int) -> Iterator[str]:
    """The exploring expert without noise."""
    return demonstrate(env, random.Random(seed), 0.0)


def oracle_actions(env: gym.Env[Any, Any], seed: int) -> Iterator[str]:
    """The oracle's plan."""
    return iter(env.unwrapped.reference())  # type: ignore[attr-defined]


_ACTORS: dict[str, Actor] = {
    "random": random_actions,
    "expert": expert_actions,
    "oracle": oracle_actions,
}


def baselines(env: gym.Env[Any, Any], specs: Sequence[EpisodeSpec]) -> dict[str, dict[str, float]]:
    """Random commands, exploring expert and oracle on the episodes of an evaluation.

    Args:
        env: An AlfWorld environment with the native engine.
        specs: Episodes; each names its task.

    Returns:
        Name of the baseline to quantity to value, under the names of a run's log.
    """
    found = {}
    for name, actor in _ACTORS.items():
        won = turns = refused = 0
        for spec in specs:
            options = {} if spec.task_id is None else {"task_id": spec.task_id}
            _, info = env.reset(seed=spec.seed, options=options)
            for action in actor(env, spec.seed):
                _, _, terminated, truncated, info = env.step(action)
                refused += not info["action_valid"]
                if terminated or truncated:
                    break
            won += info["success"]
            turns += info["turn"]
        number = max(len(specs), 1)
        found[name] = {
            "success": won / number,
            "score": won / number,
            "turns": turns / number,
            "invalid_rate": refused / max(turns, 1),
            "n": len(specs),
        }
    return found
