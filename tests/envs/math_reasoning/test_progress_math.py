"""Task progress in MathReasoning."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from agentgym.registry import load, spec
from envs.math_reasoning.progress import MathProgress


def play(env, *actions):
    made = MathProgress("MathReasoning-v0")
    observation, info = env.reset(seed=0)
    made.reset(observation, info)
    told = []
    for action in actions:
        before = made.state()
        observation, reward, terminated, truncated, info = env.step(action)
        valid = info["action_valid"]
        kind = made.abstract(action, True, valid)
        made.update(action, valid, observation, reward, info)
        told.append((before[before.index("wrong=") :], kind))
        if terminated or truncated:
            break
    return told


def test_the_registry_knows_it():
    assert load(spec("MathReasoning-v0").abstractions["compact"]) is MathProgress


def test_wrong_answers_and_calls_are_counted():
    env = gym.make(
        "MathReasoning-v0", difficulty="small", turns=4, tools=("calculator",), tool_calls=3
    )
    told = play(
        env,
        "I do not know",
        "<calculator>2*3</calculator>",
        "<calculator>2*</calculator>",
        "x = 2; y = 3; z = 4; \\boxed{-1}",
        "\\boxed{-2}",
    )
    assert told == [
        ("wrong=0 calls=0 last=start", "inadmissible"),
        ("wrong=0 calls=0 last=start", "call:calculator"),
        ("wrong=0 calls=1 last=result", "call:calculator"),
        ("wrong=0 calls=2+ last=error", "answer:3+"),
        ("wrong=1 calls=2+ last=wrong", "answer:0"),
    ]


@pytest.mark.parametrize("difficulty", ["small", "full"])
def test_the_oracle_answers_with_its_steps(difficulty):
    demonstrate = load(spec("MathReasoning-v0").oracle)
    env = gym.make("MathReasoning-v0", difficulty=difficulty)
    for seed in range(5):
        env.reset(seed=seed)
        (action,) = demonstrate(env, np.random.default_rng(seed), 0.0)
        steps = len(env.unwrapped.problem.steps) if hasattr(env.unwrapped.problem, "steps") else 0
        made = MathProgress("x")
        made.reset(*env.reset(seed=seed))
        kind = made.abstract(action, True, True)
        assert kind in ("answer:1-2", "answer:3+")
        if steps:
            assert kind == ("answer:1-2" if action.count("=") < 3 else "answer:3+")


def test_malformed_and_inadmissible_responses_are_not_shared():
    made = MathProgress("x")
    made.reset("2 + 2?", {"goal": "2 + 2?"})
    assert made.abstract("\\boxed{4}", False, True) == "malformed"
    assert [made.shareable("z", b) for b in ("malformed", "inadmissible", "answer:0")] == [
        False, False, True,
    ]  # fmt: skip
    assert made.context("a") != made.context("b")
