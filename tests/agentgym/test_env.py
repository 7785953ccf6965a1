from __future__ import annotations

import json
import warnings

import gymnasium as gym
import numpy as np
import pytest
import toy_text
from gymnasium.utils.env_checker import check_env
from processes import run_ok

import agentgym
from agentgym import StopReason, TextEnv, group_reset
from agentgym.info import Info

agentgym.register(toy_text.SPEC)


@pytest.mark.parametrize("kwargs", [{}, {"expert": True}, {"max_steps": None}])
def test_gymnasium_finds_nothing_to_warn_about(kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make("ToyDoors-v0", **kwargs).unwrapped)


def test_make_adds_no_wrapper():
    env = gym.make("ToyDoors-v0", doors=7)
    assert env is env.unwrapped
    assert env.doors == 7


def wrong_doors(env):
    return [action for action in env.admissible_actions()[:-1] if action not in env.reference()]


def test_info_has_exactly_the_typed_keys():
    env = toy_text.ToyDoors(expert=True)
    observation, info = env.reset(seed=3, options={"task_id": "test-2"})
    assert set(info) == set(Info.__annotations__)
    expected = {
        "task_id": "test-2",
        "task_type": "doors",
        "split": "test",
        "goal": "Find the prize.",
        "admissible_actions": ("open 1", "open 2", "open 3", "open 4", "say <word>"),
        "action_valid": True,
        "score": 0.0,
        "success": False,
        "stop_reason": None,
        "turn": 0,
        "details": {"locked": []},
        "reference": (f"open {env.prize}",),
    }
    assert info == expected
    assert observation.endswith("test-2: 4 doors.")
    assert env.task_id == "test-2"
    json.dumps(info)
    assert "reference" not in toy_text.ToyDoors().reset(seed=3)[1]


def test_solving_terminates_with_a_reason():
    env = toy_text.ToyDoors(expert=True)
    _, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(info["reference"][0])
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["stop_reason"] is StopReason.SOLVED
    assert info["success"]
    assert info["score"] == 1.0
    assert info["reference"] == ()
    assert observation in env.observation_space


def test_failure_is_told_from_success():
    class Trap(toy_text.ToyDoors):
        def _act(self, action):
            return agentgym.Outcome("Gone.", terminated=True, score=0.25)

    env = Trap()
    env.reset(seed=0)
    *_, info = env.step("open 1")
    assert info["stop_reason"] is StopReason.FAILED
    assert (info["success"], info["score"]) == (False, 0.25)


def test_step_limit_truncates_on_the_very_step():
    env = toy_text.ToyDoors(max_steps=3)
    env.reset(seed=0)
    for turn in (1, 2, 3):
        _, _, terminated, truncated, info = env.step("say hello")
        assert (terminated, truncated) == (False, turn == 3)
        assert info["turn"] == turn
        assert info["stop_reason"] == (StopReason.MAX_TURNS if turn == 3 else None)
    with pytest.raises(RuntimeError, match=r"has ended; call reset\(\)"):
        env.step("say hello")
    env.reset(seed=0)
    assert env.step("say hello")[4]["turn"] == 1


def test_termination_wins_over_the_limit():
    env = toy_text.ToyDoors(max_steps=1)
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step(*env.reference())
    assert (terminated, truncated) == (True, False)
    assert info["stop_reason"] is StopReason.SOLVED


def test_without_a_limit_it_goes_on():
    env = toy_text.ToyDoors(max_steps=None)
    env.reset(seed=0)
    assert not any(any(env.step("look")[2:4]) for _ in range(300))


@pytest.mark.parametrize("text", ["", "open 99", "say ", "open one", "\n", "打开 1", "open 1 "])
def test_inadmissible_text_is_a_flag(text):
    env = toy_text.ToyDoors()
    env.reset(seed=0)
    assert not env.is_admissible(text) or text == "say "
    *_, terminated, truncated, info = env.step(text)
    assert not info["action_valid"]
    assert not terminated
    assert not truncated


@pytest.mark.parametrize("action", [None, 3, b"open 1", ["open 1"], np.int64(2)])
def test_an_action_that_is_no_text_is_a_type_error(action):
    env = toy_text.ToyDoors()
    env.reset(seed=0)
    with pytest.raises(TypeError, match="action must be a str, got"):
        env.step(action)


def test_stepping_before_the_first_reset_is_refused():
    env = toy_text.ToyDoors()
    with pytest.raises(RuntimeError, match=r"has not been reset"):
        env.step("open 1")
    with pytest.raises(RuntimeError, match=r"reset\(\) first"):
        _ = env.task_id


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"task": "x"}, ValueError, r"unknown reset options .*task.*known: task_id, split"),
        ({"task_id": "nope"}, KeyError, r"unknown task_id 'nope'.*'train-0'"),
        ({"task_id": 3}, ValueError, r"task_id must be a str, got 3"),
        ({"split": "dev"}, ValueError, r"unknown split 'dev'.*train.*validation.*test"),
        ({"split": ""}, ValueError, r"unknown split ''"),
        ({"split": []}, ValueError, r"split must be a str, got \[\]"),
        (5, ValueError, r"options must be a dict or None, got 5"),
        ({"task_id": "test-1", "split": "train"}, ValueError, r"in split 'test', not in 'train'"),
    ],
)
def test_reset_options_that_make_no_sense(options, error, words):
    env = toy_text.ToyDoors()
    with pytest.raises(error, match=words):
        env.reset(seed=0, options=options)
    with pytest.raises(RuntimeError):
        env.step("open 1")


@pytest.mark.parametrize("value", [0, -3, 2.0, True, "8"])
def test_max_steps_must_be_a_positive_int(value):
    with pytest.raises(
        ValueError, match=f"max_steps must be a positive int or None, got {value!r}"
    ):
        toy_text.ToyDoors(max_steps=value)


@pytest.mark.parametrize("value", ["false", 1, None])
def test_expert_must_be_a_bool(value):
    with pytest.raises(ValueError, match=f"expert must be True or False, got {value!r}"):
        toy_text.ToyDoors(expert=value)


def test_render_modes():
    env = gym.make("ToyDoors-v0", render_mode="ansi")
    assert env.render() is None
    observation, _ = env.reset(seed=0)
    assert env.render() == observation
    assert env.render() != (seen := env.step("say hi")[0])
    assert env.render() == seen
    assert toy_text.ToyDoors().render() is None
    with pytest.raises(ValueError, match="'human' is not among"):
        toy_text.ToyDoors(render_mode="human")


def test_splits_choose_where_tasks_are_drawn():
    drawn = {toy_text.ToyDoors().reset(seed=seed)[1]["split"] for seed in range(5)}
    assert drawn == {"train"}
    env = toy_text.ToyDoors(split="validation")
    assert env.reset(seed=0)[1]["split"] == "validation"
    assert env.reset(seed=0, options={"split": "test"})[1]["split"] == "test"
    assert env.reset(seed=0)[1]["split"] == "validation"
    seen = {env.reset(seed=seed)[1]["task_id"] for seed in range(40)}
    assert seen == {"validation-0", "validation-1", "validation-2"}


@pytest.mark.parametrize("seed", range(5))
def test_an_episode_does_not_depend_on_how_its_task_was_chosen(seed):
    env = toy_text.ToyDoors()
    drawn, info = env.reset(seed=seed)
    prize = env.prize
    named, _ = env.reset(seed=seed, options={"task_id": info["task_id"]})
    assert (named, env.prize) == (drawn, prize)


def test_resets_without_a_seed_go_on_with_the_generator():
    first, second = toy_text.ToyDoors(), toy_text.ToyDoors()
    for env in (first, second):
        env.reset(seed=11)
    sequences = [[env.reset()[0] for _ in range(6)] for env in (first, second)]
    assert sequences[0] == sequences[1]
    assert len(set(sequences[0])) > 1


def test_global_randomness_is_neither_read_nor_written():
    def play(global_seed):
        np.random.seed(global_seed)
        before = np.random.get_state()[1].copy()
        env = toy_text.ToyDoors()
        texts = [env.reset(seed=5)[0], env.step("open 1")[0], env.reset()[0]]
        assert (np.random.get_state()[1] == before).all()
        return texts

    assert play(0) == play(1)


RECORD = """
import gymnasium as gym, json, sys
import agentgym, toy_text
agentgym.register(toy_text.SPEC)
out = []
env = gym.make("ToyDoors-v0")
for seed in range(4):
    out.append(env.reset(seed=seed, options={"split": ["train", "test"][seed % 2]}))
    for door in range(1, 5):
        if not out[-1][-1]["stop_reason"]:
            out.append(env.step(f"open {door}"))
print(json.dumps(out))
"""


def test_the_same_seed_gives_the_same_episode_in_another_process():
    runs = [run_ok(RECORD, PYTHONHASHSEED=hash_seed) for hash_seed in ("1", "2")]
    assert runs[0] == runs[1]
    assert len(json.loads(runs[0])) > 8


def test_a_fault_at_reset_leaves_no_episode_to_step():
    class Broken(toy_text.ToyDoors):
        def _begin(self, task_id):
            raise OSError("no world")

    env = Broken()
    with pytest.raises(OSError, match="no world"):
        env.reset(seed=0)
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("open 1")


def test_expert_without_an_oracle_says_so():
    class Lost(toy_text.ToyDoors):
        reference = TextEnv.reference

    with pytest.raises(NotImplementedError, match="Lost has no oracle"):
        Lost(expert=True).reset(seed=0)


def test_group_reset_starts_replicas():
    envs = [gym.make("ToyDoors-v0") for _ in range(4)]
    results = group_reset(envs, "test-3", seed=9, split="test")
    assert len({observation for observation, _ in results}) == 1
    assert all(info == results[0][1] for _, info in results)
    assert len({env.unwrapped.prize for env in envs}) == 1
    with pytest.raises(ValueError, match="in split 'test', not in 'train'"):
        group_reset(envs, "test-3", seed=9, split="train")


def test_group_reset_notices_an_unseeded_environment():
    class Unseeded(toy_text.ToyDoors):
        calls = 0

        def _begin(self, task_id):
            Unseeded.calls += 1
            return agentgym.Outcome(f"world {Unseeded.calls}")

    with pytest.raises(RuntimeError, match=r"replicas of task 'train-0' with seed 1 differ"):
        group_reset([Unseeded(), Unseeded()], "train-0", seed=1)


def test_legal_actions_are_sampled_while_an_episode_runs():
    env = toy_text.ToyDoors()
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(30):
        action = env.action_space.sample()
        assert env.is_admissible(action)
        if any(env.step(action)[2:4]):
            env.reset()
