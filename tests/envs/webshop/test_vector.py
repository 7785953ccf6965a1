"""Many shops in one process: what Gymnasium's vector environment answers, slot by slot."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from vectors import same


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_it_equals_gymnasiums(mode):
    kwargs = {"difficulty": "small", "max_steps": 6}
    ours = gym.make_vec("WebShop-v0", num_envs=5, autoreset_mode=mode, **kwargs)
    theirs = gym.make_vec(
        "WebShop-v0",
        num_envs=5,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        **kwargs,
    )
    same(ours.reset(seed=2), theirs.reset(seed=2))
    ours.action_space.seed(0)
    ends = 0
    for _ in range(40):
        actions = ours.action_space.sample()
        answer = ours.step(actions)
        same(answer, theirs.step(actions))
        over = answer[2] | answer[3]
        ends += int(over.sum())
        if mode is AutoresetMode.DISABLED and over.any():
            mask = np.array(over)
            same(
                ours.reset(options={"reset_mask": over}), theirs.reset(options={"reset_mask": mask})
            )
    assert ends > 20
