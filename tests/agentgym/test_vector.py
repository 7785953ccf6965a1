"""The vector environment beside Gymnasium's own, and what it does beyond it."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import toy_text
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from vectors import same

import agentgym
from agentgym.env import Outcome
from agentgym.vector import TextVectorEnv, make_text_vector

agentgym.register(toy_text.SPEC)
MODES = list(AutoresetMode)


def both(number, mode, make=None):
    """Ours and Gymnasium's, of the same environments."""
    makers = [make or partial(gym.make, "ToyDoors-v0")] * number
    return TextVectorEnv(makers, autoreset_mode=mode), SyncVectorEnv(makers, autoreset_mode=mode)


def actions_for(rng, number, infos):
    """Mostly doors, now and then speech or nonsense."""
    words = ("say ключ", "sing", "", "open 1", "open 2", "open 3", "open 4")
    return [words[int(rng.integers(len(words)))] for _ in range(number)]


def compare(ours, theirs, steps, seed=0):
    """Step both with the same actions and assert the same answers; returns the ends seen."""
    rng = np.random.default_rng(seed)
    answer = ours.reset(seed=seed)
    same(answer, theirs.reset(seed=seed))
    ends = 0
    for _ in range(steps):
        actions = actions_for(rng, ours.num_envs, answer[-1])
        answer = ours.step(actions)
        same(answer, theirs.step(actions))
        over = answer[2] | answer[3]
        ends += int(over.sum())
        if ours.autoreset_mode is AutoresetMode.DISABLED and over.any():
            # Gymnasium's takes the mask out of the options it is given.
            answer = ours.reset(options={"reset_mask": over})
            same(answer, theirs.reset(options={"reset_mask": over.copy()}))
    return ends


@pytest.mark.parametrize("number", [1, 2, 7, 32])
@pytest.mark.parametrize("mode", MODES)
def test_it_equals_gymnasiums(mode, number):
    ours, theirs = both(number, mode)
    assert ours.metadata == theirs.metadata
    assert ours.metadata["autoreset_mode"] is mode
    assert ours.num_envs == theirs.num_envs == number
    for name in ("single_action_space", "action_space", "observation_space"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert compare(ours, theirs, 60) > 3
    ours.close()
    assert ours.closed


class Uneven(toy_text.ToyDoors):
    """Its info differs in form from step to step."""

    def _details(self):
        forms = (
            {},
            {"count": 1},
            {"count": 2.5, "inner": {"array": np.array([self._turn, 2])}},
            {"count": np.int64(3), "inner": {"array": np.array([5, 6]), "deep": {"word": "x"}}},
            {"final_obs": "a name of Gymnasium's"},
            {"none": None, "pair": (1, 2), "list": [1], "big": 1 << 40, "flag": True},
        )
        return forms[(self.prize + self._turn) % len(forms)]


@pytest.mark.parametrize("mode", MODES)
def test_infos_of_many_forms(mode):
    ours, theirs = both(9, mode, Uneven)
    assert compare(ours, theirs, 80, seed=3) > 3


@pytest.mark.parametrize("mode", MODES)
def test_numbers_none_and_nested_info_in_every_slot(mode):
    class Even(toy_text.ToyDoors):
        def _details(self):
            level = self._turn
            return {
                "whole": level, "real": level / 2, "flag": level > 1, "single": np.float32(level),
                "none": None, "sometimes": None if level % 2 else "word", "pair": (level, "x"),
                "same": [1, 2], "inner": {"deep": {"level": level}, "word": "w"},
            }  # fmt: skip

    ours, theirs = both(5, mode, Even)
    assert compare(ours, theirs, 40, seed=1) > 3


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_through_make_vec(mode):
    envs = gym.make_vec(
        "ToyDoors-v0",
        num_envs=3,
        vectorization_mode="vector_entry_point",
        autoreset_mode=mode,
        doors=6,
        max_steps=2,
    )
    assert type(envs) is TextVectorEnv
    assert envs.metadata["autoreset_mode"] == AutoresetMode(mode)
    assert envs.spec.id == "ToyDoors-v0"
    assert envs.get_attr("doors") == (6, 6, 6)
    observations, infos = envs.reset(seed=1)
    assert observations in envs.observation_space
    assert infos["task_type"].tolist() == ["doors"] * 3
    assert type(gym.make_vec("ToyDoors-v0", num_envs=2)) is TextVectorEnv


def test_a_spec_makes_the_same_again():
    envs = gym.make_vec("ToyDoors-v0", num_envs=2, autoreset_mode="SameStep", doors=6)
    again = gym.make_vec(envs.spec)
    assert again.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    same(again.reset(seed=4), envs.reset(seed=4))


def test_gymnasiums_vector_wrappers_take_it():
    envs = gym.wrappers.vector.RecordEpisodeStatistics(
        gym.make_vec("ToyDoors-v0", num_envs=2, max_steps=2)
    )
    envs.reset(seed=0)
    envs.step(["sing", "sing"])
    _, _, _, truncated, infos = envs.step(["sing", "sing"])
    assert truncated.all()
    assert infos["episode"]["l"].tolist() == [2, 2]


# Seeds and options -------------------------------------------------------------------------------


def single(seed, **options):
    return gym.make("ToyDoors-v0").reset(seed=seed, options=options)


def test_seeds():
    envs = make_text_vector("ToyDoors-v0", num_envs=3)
    assert envs.reset(seed=5)[0] == tuple(single(seed)[0] for seed in (5, 6, 7))
    assert envs.reset(seed=np.int64(5))[0] == tuple(single(seed)[0] for seed in (5, 6, 7))
    assert envs.reset(seed=[9, 5, 9])[0] == tuple(single(seed)[0] for seed in (9, 5, 9))
    first = envs.reset(seed=[9, None, 9])[0]
    assert first[0] == first[2] == single(9)[0]
    assert envs.np_random_seed[0] == 9
    with pytest.raises(ValueError, match="seed must have one entry for each of the 3 slots, got 2"):
        envs.reset(seed=[1, 2])


def test_a_task_for_each_slot():
    envs = make_text_vector("ToyDoors-v0", num_envs=3)
    options = {"task_id": ["train-3", None, "test-0"], "split": [None, "validation", "test"]}
    before = {name: list(value) for name, value in options.items()}
    observations, infos = envs.reset(seed=2, options=options)
    assert options == before
    assert infos["task_id"][0] == "train-3"
    assert infos["task_id"][2] == "test-0"
    assert infos["split"].tolist() == ["train", "validation", "test"]
    assert observations[0] == single(2, task_id="train-3")[0]
    assert observations[1] == single(3, split="validation")[0]
    group = envs.reset(seed=[7, 7, 7], options={"task_id": "train-1"})
    assert len(set(group[0])) == 1
    assert envs.reset(options={"split": "test"})[1]["split"].tolist() == ["test"] * 3
    tasks = np.array(["train-0", "train-1", "train-2"])
    assert envs.reset(options={"task_id": tasks})[1]["task_id"].tolist() == tasks.tolist()


def test_a_split_for_each_slot_stays():
    splits = ("train", "validation", None)
    envs = make_text_vector("ToyDoors-v0", num_envs=3, split=splits, max_steps=1)
    assert envs.reset(seed=0)[1]["split"].tolist() == ["train", "validation", "train"]
    envs.step(["sing"] * 3)
    infos = envs.step(["sing"] * 3)[-1]
    assert infos["turn"].tolist() == [0, 0, 0]
    assert infos["split"].tolist() == ["train", "validation", "train"]
    assert make_text_vector("ToyDoors-v0", num_envs=2, split="test").reset(seed=0)[1][
        "split"
    ].tolist() == ["test", "test"]
    with pytest.raises(ValueError, match="split must have one entry for each of the 3 slots"):
        make_text_vector("ToyDoors-v0", num_envs=3, split=["train"])


@pytest.mark.parametrize("mode", MODES)
def test_resetting_some_slots(mode):
    envs = make_text_vector("ToyDoors-v0", num_envs=3, autoreset_mode=mode)
    envs.reset(seed=0)
    _, infos = before = envs.reset(
        seed=[8, None, 9],
        options={"reset_mask": [True, False, True], "task_id": ["test-1", "unused", "test-2"]},
    )
    assert before[0][0] == single(8, task_id="test-1")[0]
    assert infos["task_id"].tolist() == ["test-1", None, "test-2"]
    assert infos["_task_id"].tolist() == [True, False, True]
    assert infos["turn"].tolist() == [0, 0, 0]


def test_a_slot_that_is_over_can_be_reset_by_hand_in_every_mode():
    envs = make_text_vector("ToyDoors-v0", num_envs=2, max_steps=2)
    envs.reset(seed=0)
    envs.step(["sing", "sing"])
    envs.step(["sing", "sing"])
    envs.reset(options={"reset_mask": np.array([True, False])})
    infos = envs.step(["sing", "sing"])[-1]
    assert infos["turn"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([True, False], r"must hold 3 booleans, got bool values of shape \(2,\)"),
        ([1, 0, 1], "must hold 3 booleans, got int64"),
        ([False] * 3, "selects no slot"),
    ],
)
def test_bad_masks(mask, message):
    envs = make_text_vector("ToyDoors-v0", num_envs=3)
    with pytest.raises(ValueError, match=message):
        envs.reset(options={"reset_mask": mask})


def test_bad_options():
    envs = make_text_vector("ToyDoors-v0", num_envs=3)
    with pytest.raises(ValueError, match="task_id must have one entry for each of the 3 slots"):
        envs.reset(options={"task_id": ["train-0"]})
    with pytest.raises(ValueError, match="reset options must be a dict or None, got 'train'"):
        envs.reset(options="train")
    with pytest.raises(ValueError, match="unknown reset options"):
        envs.reset(options={"colour": "red"})
    with pytest.raises(KeyError, match="unknown task_id 'train-99'"):
        envs.reset(options={"task_id": "train-99"})


@pytest.mark.parametrize("number", [0, -1, True, 2.0, "2"])
def test_bad_numbers(number):
    with pytest.raises(ValueError, match="num_envs must be a positive int"):
        make_text_vector("ToyDoors-v0", num_envs=number)
    with pytest.raises(ValueError, match="at least one"):
        TextVectorEnv([])


def test_bad_mode():
    with pytest.raises(ValueError, match="Sometimes"):
        make_text_vector("ToyDoors-v0", autoreset_mode="Sometimes")


# Steps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (["sing"] * 2, ValueError, "actions must have one entry for each of the 3 slots, got 2"),
        ("sing", TypeError, "actions must be 3 texts, got 'sing'"),
        (None, TypeError, "actions must be 3 texts, got None"),
        (["sing", "sing", 3], TypeError, "the action of slot 2 must be a str, got int: 3"),
    ],
)
def test_bad_actions_move_no_slot(actions, error, message):
    envs = make_text_vector("ToyDoors-v0", num_envs=3)
    with pytest.raises(RuntimeError, match="has not been reset"):
        envs.step(["sing"] * 3)
    envs.reset(seed=0)
    with pytest.raises(error, match=message):
        envs.step(actions)
    assert envs.step(["sing"] * 3)[-1]["turn"].tolist() == [1, 1, 1]


def test_actions_come_in_any_form():
    envs = make_text_vector("ToyDoors-v0", num_envs=2)
    envs.reset(seed=0)
    for actions in (["sing"] * 2, ("sing",) * 2, np.array(["sing"] * 2), iter(["sing"] * 2)):
        answer = envs.step(actions)
    assert answer[-1]["turn"].tolist() == [4, 4]


def test_an_ended_slot_is_not_stepped_in_the_mode_disabled():
    envs = make_text_vector(
        "ToyDoors-v0", num_envs=3, max_steps=3, autoreset_mode=AutoresetMode.DISABLED
    )
    envs.reset(seed=0)
    envs.reset(options={"reset_mask": [True, False, True]})
    for _ in range(3):
        envs.step(["sing"] * 3)
    with pytest.raises(RuntimeError, match=r"the slots \[0, 1, 2\] have ended; reset them"):
        envs.step(["sing"] * 3)
    envs.reset(options={"reset_mask": [True, True, False]})
    with pytest.raises(RuntimeError, match=r"the slots \[2\] have ended"):
        envs.step(["sing"] * 3)
    assert envs.get_attr("_turn") == (0, 0, 3)


def test_what_was_answered_is_not_changed_later():
    envs = make_text_vector("ToyDoors-v0", num_envs=2, autoreset_mode="SameStep", max_steps=2)
    first = envs.reset(seed=0)
    second = envs.step(["sing", "open 1"])
    kept = first[1]["turn"].copy(), second[1].copy(), second[-1]["turn"].copy()
    second[-1]["_turn"][:] = False
    third = envs.step(["sing", "sing"])
    assert third[-1]["_turn"].all()
    assert third[-1]["_task_id"].all()
    assert (first[1]["turn"] == kept[0]).all()
    assert (second[1] == kept[1]).all()
    assert (second[-1]["turn"] == kept[2]).all()


def test_legal_actions_of_each_slot():
    envs = make_text_vector("ToyDoors-v0", num_envs=4)
    envs.reset(seed=0)
    assert envs.action_space.seed(1)
    for _ in range(20):
        drawn = envs.action_space.sample()
        assert drawn in envs.action_space
        for env, action in zip(envs.envs, drawn, strict=True):
            assert env.unwrapped._over or env.unwrapped.is_admissible(action)
        envs.step(drawn)
    twin = make_text_vector("ToyDoors-v0", num_envs=4)
    twin.reset(seed=0)
    envs.reset(seed=0)
    envs.action_space.seed(3)
    twin.action_space.seed(3)
    assert envs.action_space.sample() == twin.action_space.sample()


def test_a_failing_slot_raises_as_it_is():
    class Failing(toy_text.ToyDoors):
        def _act(self, action):
            if action == "break":
                raise OSError("the door fell off")
            return Outcome("fine")

    envs = TextVectorEnv([Failing] * 2)
    envs.reset(seed=0)
    with pytest.raises(OSError, match="the door fell off"):
        envs.step(["fine", "break"])
