"""What fixed ways of answering reach, to be printed beside a policy's evaluation.

``identity`` returns the first argument; ``oracle`` writes the reference solution.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from agentgym.trajectory import EpisodeSpec
from envs.code_reasoning.env import CodeReasoningEnv
from envs.code_reasoning.oracle import solution

__all__ = ["baselines"]


def _identity(env: CodeReasoningEnv) -> str:
    return "\n".join(f"def {name}(x, *rest): return x" for name in env.task.names)


def _oracle(env: CodeReasoningEnv) -> str:
    return solution(env, random.Random(0)) if env.task.reference else _identity(env)


_RULES: dict[str, Callable[[CodeReasoningEnv], str]] = {"identity": _identity, "oracle": _oracle}


def baselines(env: gym.Env[Any, Any], specs: Sequence[EpisodeSpec]) -> dict[str, dict[str, float]]:
    """The identity and the oracle on the episodes of an evaluation.

    Args:
        env: A CodeReasoning environment.
        specs: Episodes; each names its task.

    Returns:
        Name of the baseline to quantity to value, under the names of a run's log.
    """
    inner: CodeReasoningEnv = env.unwrapped  # type: ignore[assignment]
    found = {}
    for name, rule in _RULES.items():
        won = reached = 0.0
        for spec in specs:
            options = {} if spec.task_id is None else {"task_id": spec.task_id}
            env.reset(seed=spec.seed, options=options)
            *_, info = env.step(rule(inner))
            won += info["success"]
            reached += info["score"]
        number = max(len(specs), 1)
        found[name] = {"success": won / number, "score": reached / number, "n": len(specs)}
    return found
