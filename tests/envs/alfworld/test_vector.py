"""Many games in one process: what Gymnasium's vector environment answers, slot by slot."""

from __future__ import annotations

import random

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from vectors import same

from agentgym.vector import TextVectorEnv

KINDS = {
    "plain": {},
    "small": {"difficulty": "small", "expert": True, "reward": "verl"},
    "lenient": {"strict": False, "command_style": "put", "max_steps": 9},
}


def make(number, mode="NextStep", **kwargs):
    """Ours and Gymnasium's of the same games."""
    chosen = {"catalogue": "builtin:20"} | kwargs
    if "data" in kwargs:
        del chosen["catalogue"]
    ours = gym.make_vec(
        "AlfWorld-v0",
        num_envs=number,
        vectorization_mode="vector_entry_point",
        autoreset_mode=mode,
        **chosen,
    )
    theirs = gym.make_vec(
        "AlfWorld-v0",
        num_envs=number,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        **chosen,
    )
    assert type(ours) is TextVectorEnv
    assert type(theirs) is gym.vector.SyncVectorEnv
    return ours, theirs


def policy(rng, infos):
    """Admissible actions, the oracle's where it is asked, and now and then nonsense."""
    plans = infos.get("reference", [()] * len(infos["turn"]))
    for listed, plan in zip(infos["admissible_actions"], plans, strict=True):
        draw = rng.random()
        if draw < 0.05:
            yield rng.choice(("", "sing", "go to moon 1", "LOOK "))
        elif draw < 0.7 and plan:
            yield plan[0]
        else:
            yield rng.choice(listed)


def play(ours, theirs, steps, seed):
    """Play both alike and assert the same answers; returns how many games were won and lost."""
    rng = random.Random(seed)
    answer = ours.reset(seed=seed)
    same(answer, theirs.reset(seed=seed))
    infos, won, lost = answer[1], 0, 0
    for _ in range(steps):
        actions = tuple(policy(rng, infos))
        answer = ours.step(actions)
        same(answer, theirs.step(actions))
        _, _, terminated, truncated, infos = answer
        won, lost = won + int(terminated.sum()), lost + int(truncated.sum())
        over = terminated | truncated
        if ours.autoreset_mode is AutoresetMode.DISABLED and over.any():
            answer = ours.reset(options={"reset_mask": over})
            same(answer, theirs.reset(options={"reset_mask": over.copy()}))
            for key in ("admissible_actions", "reference"):
                if key in infos:
                    infos[key] = np.where(over, answer[1][key], infos[key])
    return won, lost


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [1, 5, 24])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_it_equals_gymnasiums(mode, number, kind):
    ours, theirs = make(number, mode, **KINDS[kind])
    won, lost = play(ours, theirs, max(60, 360 // number), seed=number)
    assert lost > 0 or kind == "small"
    assert won > 0 or kind != "small"


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_it_equals_gymnasiums_on_official_games(official, mode):
    ours, theirs = make(20, mode, data=official, split="valid_seen", expert=True)
    won, _ = play(ours, theirs, 80, seed=1)
    assert won > 20


def test_a_task_for_each_slot():
    ours, _ = make(3)
    tasks = ours.envs[0].unwrapped.tasks
    chosen = [tasks.ids("train")[4], tasks.ids("valid_seen")[2], tasks.ids("valid_unseen")[9]]
    observations, infos = ours.reset(seed=3, options={"task_id": chosen})
    assert infos["task_id"].tolist() == chosen
    assert infos["split"].tolist() == ["train", "valid_seen", "valid_unseen"]
    for observation, task_id in zip(observations, chosen, strict=True):
        alone = gym.make("AlfWorld-v0", catalogue="builtin:20")
        assert alone.reset(options={"task_id": task_id})[0] == observation
    with pytest.raises(KeyError, match="unknown task_id 'train/none'"):
        ours.reset(options={"task_id": [chosen[0], "train/none", None]})


def test_a_split_for_each_slot():
    ours = gym.make_vec(
        "AlfWorld-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        split=["valid_seen", "valid_unseen"],
        max_steps=1,
        autoreset_mode="SameStep",
    )
    ours.reset(seed=0)
    for _ in range(3):
        infos = ours.step(["look", "look"])[-1]
        assert infos["split"].tolist() == ["valid_seen", "valid_unseen"]
        assert infos["final_info"]["split"].tolist() == ["valid_seen", "valid_unseen"]
    with pytest.raises(ValueError, match=r"split must be one of .*, got 'test'"):
        gym.make_vec("AlfWorld-v0", num_envs=2, split=["train", "test"])


def test_slots_share_the_games():
    ours, _ = make(4)
    assert len({id(env.unwrapped.source) for env in ours.envs}) == 1
    task_id = ours.envs[0].unwrapped.tasks.ids("train")[0]
    ours.reset(options={"task_id": task_id})
    assert len({id(env.unwrapped.sim.world) for env in ours.envs}) == 1
    assert len({id(env.unwrapped.sim) for env in ours.envs}) == 4


def test_branching_in_every_slot():
    ours, _ = make(3, expert=True)
    _, infos = ours.reset(seed=0)
    plan = infos["reference"][0]
    state = ours.envs[0].unwrapped.clone_state()
    ours.reset(options={"task_id": infos["task_id"][0]})
    ours.step([plan[0], "look", "inventory"])
    for env in ours.envs:
        env.unwrapped.restore_state(state)
    for command in plan:
        *_, terminated, _, infos = ours.step([command] * 3)
    assert terminated.all()
    assert infos["turn"].tolist() == [len(plan)] * 3
