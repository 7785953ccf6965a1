"""Where rewards are sparse and groups small, the memory is what a table learns from."""

from __future__ import annotations

import numpy as np
import pytest
import toy_corridor

from trainers.algorithm import Algorithm
from trainers.blpo import BLPO, BLPOConfig
from trainers.gigpo import GiGPO, GiGPOConfig
from trainers.grpo import GRPO, GRPOConfig

SMALL = {"trajectories": 32, "group_size": 2}


def curve(algorithm: Algorithm, seed: int) -> list[float]:
    return toy_corridor.learn(algorithm, updates=30, seed=seed)


def test_a_table_that_knows_nothing_seldom_gets_through():
    assert toy_corridor.success(np.zeros((2, 4, 4))) == pytest.approx(0.0376, abs=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_blpo_learns_before_gigpo_and_gigpo_before_grpo(seed):
    """Sixteen tasks with two rollouts each: most groups are failed throughout."""
    grpo = curve(GRPO(GRPOConfig(**SMALL)), seed)
    gigpo = curve(GiGPO(GiGPOConfig(**SMALL)), seed)
    assert np.mean(gigpo) > np.mean(grpo) + 0.005
    for estimator in ("paper", "ours"):
        blpo = curve(BLPO(BLPOConfig(**SMALL, estimator=estimator, tau=0.005)), seed)
        assert blpo[-1] > 0.6 > 0.2 > gigpo[-1], estimator
