"""Baselines on the episodes of an evaluation."""

from __future__ import annotations

import gymnasium as gym
import pytest

import agentgym
from agentgym.registry import load
from agentgym.trajectory import EpisodeSpec
from envs.alfworld.baselines import baselines


@pytest.mark.parametrize("difficulty", ["small", "full"])
def test_random_expert_oracle(difficulty):
    env = gym.make("AlfWorld-v0", difficulty=difficulty)
    ids = env.unwrapped.tasks.ids("valid_unseen")[:60]
    specs = [EpisodeSpec(task_id, "valid_unseen", seed, "e") for seed, task_id in enumerate(ids)]
    found = baselines(env, specs)
    assert list(found) == ["random", "expert", "oracle"]
    assert found["oracle"]["success"] == 1.0
    assert found["random"]["success"] < 0.2 < found["expert"]["success"]
    assert found["oracle"]["turns"] < found["expert"]["turns"] < found["random"]["turns"]
    assert found["random"]["invalid_rate"] == found["oracle"]["invalid_rate"] == 0.0
    assert all(numbers["n"] == 60 for numbers in found.values())
    assert baselines(env, specs) == found


def test_registered():
    assert load(agentgym.spec("AlfWorld-v0").baselines) is baselines
