"""The environment: spaces, info, rewards, ends, branching, and its arguments."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
import subprocess
import sys
import warnings

import gymnasium as gym
import pytest
from alfworld_room import GOALS, SOLUTIONS
from gymnasium.utils.env_checker import check_env

import agentgym
from agentgym import StopReason, group_reset
from agentgym.info import Info
from envs.alfworld.dataset import DatasetError
from envs.alfworld.env import AlfWorldEnv
from envs.alfworld.pddl import GameError


def make(**kwargs):
    return gym.make("AlfWorld-v0", data="rooms", **kwargs).unwrapped


def task(kind, split="train"):
    return {"task_id": f"{split}/{kind}-room/t1"}


def solve(env, kind, **options):
    env.reset(seed=0, options=task(kind) | options)
    return [env.step(command) for command in SOLUTIONS[kind]]


@pytest.mark.parametrize(
    "kwargs", [{}, {"strict": False}, {"command_style": "put"}, {"reward": "verl"}]
)
def test_gymnasium_finds_nothing_to_warn_about(rooms, kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(**kwargs))


def test_info_at_reset(rooms):
    observation, info = make().reset(seed=1, options=task("pick_and_place_simple"))
    assert observation.startswith("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle")
    assert set(info) == set(Info.__annotations__) - {"reference"}
    assert info["task_id"] == "train/pick_and_place_simple-room/t1"
    assert info["task_type"] == "pick_and_place_simple"
    assert info["split"] == "train"
    assert info["goal"] == "do pick_and_."
    assert info["admissible_actions"][0] == "go to cabinet 1"
    assert info["action_valid"] is True
    assert info["stop_reason"] is None
    assert info["details"] == {
        "reason": None, "moves": 0, "engine": "native", "difficulty": "full", "max_steps": 50,
    }  # fmt: skip
    json.dumps(info)


@pytest.mark.parametrize("kind", GOALS)
def test_solving(rooms, kind):
    env = make()
    *before, last = solve(env, kind)
    for _, reward, terminated, truncated, info in before:
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert (info["score"], info["success"], info["stop_reason"]) == (0.0, False, None)
    _, reward, terminated, truncated, info = last
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert (info["score"], info["success"]) == (1.0, True)
    assert info["stop_reason"] is StopReason.SOLVED
    assert info["task_type"] == kind
    assert info["turn"] == info["details"]["moves"] == len(SOLUTIONS[kind])
    with pytest.raises(RuntimeError, match="ended"):
        env.step("look")


def test_inadmissible_actions_take_a_step_and_have_a_reason(rooms):
    env = make()
    env.reset(seed=0, options=task("pick_and_place_simple"))
    observation, reward, terminated, _, info = env.step("open fridge 1")
    assert (observation, reward, terminated) == ("Nothing happens.", 0.0, False)
    assert info["action_valid"] is False
    assert info["details"]["reason"] == "not_here"
    assert (info["turn"], info["details"]["moves"]) == (1, 0)
    _, _, _, _, info = env.step("go to fridge 1")
    assert info["action_valid"] is True
    assert info["details"]["reason"] is None
    assert (info["turn"], info["details"]["moves"]) == (2, 1)


def test_verl_reward(rooms):
    env = make(reward="verl")
    _, info = env.reset(seed=0, options=task("pick_and_place_simple"))
    assert info["details"]["invalid_penalty"] == 0.0
    _, reward, _, _, info = env.step("jump")
    assert (reward, info["details"]["invalid_penalty"]) == (0.0, 0.1)
    for command in SOLUTIONS["pick_and_place_simple"]:
        _, reward, _, _, info = env.step(command)
        assert info["details"]["invalid_penalty"] == 0.0
    assert reward == 10.0
    assert "invalid_penalty" not in make().reset(seed=0)[1]["details"]


@pytest.mark.parametrize(
    ("kwargs", "limit"),
    [({}, 50), ({"difficulty": "small"}, 20), ({"max_steps": 3}, 3)],
)
def test_step_limit(rooms, kwargs, limit):
    env = make(**kwargs)
    _, info = env.reset(seed=0)
    assert info["details"]["max_steps"] == env.max_steps == limit
    assert info["details"]["difficulty"] == kwargs.get("difficulty", "full")
    for turn in range(1, limit + 1):
        _, reward, terminated, truncated, info = env.step("look" if turn % 2 else "sing")
        assert (reward, terminated, truncated) == (0.0, False, turn == limit)
    assert info["stop_reason"] is StopReason.MAX_TURNS
    assert info["success"] is False


def test_winning_on_the_last_step_terminates(rooms):
    env = make(max_steps=len(SOLUTIONS["pick_and_place_simple"]))
    _, _, terminated, truncated, info = solve(env, "pick_and_place_simple")[-1]
    assert (terminated, truncated) == (True, False)
    assert info["stop_reason"] is StopReason.SOLVED


def test_seeds_choose_tasks(rooms):
    env, other = make(), make()
    first = [env.reset(seed=5)[1]["task_id"], *(env.reset()[1]["task_id"] for _ in range(9))]
    again = [other.reset(seed=5)[1]["task_id"], *(other.reset()[1]["task_id"] for _ in range(9))]
    assert first == again
    assert len(set(first)) > 1
    assert all(task_id.startswith("train/") for task_id in first)
    seen = make(split="valid_seen").reset(seed=5)[1]["task_id"]
    assert seen.startswith("valid_seen/")
    named = env.reset(options={"split": "valid_seen"})[1]
    assert named["split"] == "valid_seen"


def test_replicas_agree(rooms):
    envs = [make() for _ in range(3)]
    results = group_reset(envs, "train/look_at_obj_in_light-room/t1", seed=4)
    assert len({observation for observation, _ in results}) == 1
    envs[0].step("go to desk 1")
    assert envs[1].sim.clone_state() == envs[2].sim.clone_state() != envs[0].sim.clone_state()
    assert envs[0].sim.world is envs[1].sim.world


def test_branching(rooms):
    env = make()
    kind = "pick_heat_then_place_in_recep"
    env.reset(seed=0, options=task(kind))
    for command in SOLUTIONS[kind][:4]:
        env.step(command)
    fork = pickle.loads(pickle.dumps(env.clone_state()))
    ends = []
    for _ in range(2):
        env.restore_state(fork)
        assert env._turn == 4
        for command in SOLUTIONS[kind][4:]:
            result = env.step(command)
        ends.append(result)
    assert ends[0] == ends[1]
    assert ends[0][2] is True
    assert ends[0][4]["turn"] == len(SOLUTIONS[kind])
    with pytest.raises(RuntimeError, match="ended"):
        env.step("look")


def test_a_finished_episode_is_cloned_and_restored(rooms):
    kind = "pick_and_place_simple"
    for env, reason in ((make(), StopReason.SOLVED), (make(max_steps=2), StopReason.MAX_TURNS)):
        env.reset(seed=0, options=task(kind))
        for command in SOLUTIONS[kind]:
            observation, *_, info = env.step(command)
            if info["stop_reason"]:
                break
        assert info["stop_reason"] is reason
        state = pickle.loads(pickle.dumps(env.clone_state()))
        env.reset(seed=1)
        assert env.restore_state(state) == (observation, info)
        assert env.observation == observation
        assert env.clone_state() == state
        with pytest.raises(RuntimeError, match="ended"):
            env.step("look")
        assert env.reset(seed=0, options=task(kind))[1]["stop_reason"] is None


def test_a_state_goes_to_another_environment_and_task(rooms):
    first, second = make(expert=True), make(expert=True)
    kind = "pick_cool_then_place_in_recep"
    first.reset(seed=0, options=task(kind))
    for command in SOLUTIONS[kind][:3]:
        observation, *_, info = first.step(command)
    state = first.clone_state()
    assert second.restore_state(state) == (observation, info)  # never reset before
    second.reset(seed=3, options=task("look_at_obj_in_light", "valid_seen"))
    drawn = second.np_random.bit_generator.state
    assert second.restore_state(state) == (observation, info)
    assert second.np_random.bit_generator.state == drawn
    for env in (first, second):
        for command in info["reference"]:
            assert env.is_admissible(command)
            answer = env.step(command)
        assert answer[2]
    assert first.clone_state() == second.clone_state()
    assert state.turn == 3


def test_states_that_cannot_be_restored(rooms):
    env = make()
    with pytest.raises(RuntimeError, match="no episode yet"):
        env.clone_state()
    env.reset(seed=0)
    state = env.clone_state()
    with pytest.raises(TypeError, match="takes what clone_state returned, got None"):
        env.restore_state(None)
    with pytest.raises(KeyError, match="unknown task_id 'train/none/t1'"):
        env.restore_state(dataclasses.replace(state, task_id="train/none/t1"))
    small = dataclasses.replace(state.sim, spots=state.sim.spots[:1])
    with pytest.raises(ValueError, match="is of a world with 1 objects"):
        env.restore_state(dataclasses.replace(state, sim=small))
    env.close()
    with pytest.raises(RuntimeError, match="closed"):
        env.restore_state(state)


def test_is_admissible(rooms):
    env = make()
    assert not env.is_admissible("look")
    assert env.admissible_actions() is None
    env.reset(seed=0)
    assert env.is_admissible(" look ")
    assert not env.is_admissible("LOOK")
    assert env.action_space.sample() in env.admissible_actions()
    lenient = make(strict=False)
    lenient.reset(seed=0)
    assert lenient.is_admissible("LOOK")
    _, _, _, _, info = lenient.step("LOOK")
    assert info["action_valid"] is True


def test_wordings(rooms):
    env = make(command_style="put")
    _, info = env.reset(seed=0)
    assert "help" not in info["admissible_actions"]
    assert env.step("go to fridge 1")[0].startswith("You arrive at loc ")


def test_render_and_close(rooms):
    env = make(render_mode="ansi")
    observation, _ = env.reset(seed=0)
    assert env.render() == observation
    env.close()
    with pytest.raises(RuntimeError, match="no episode"):
        _ = env.sim
    with pytest.raises(RuntimeError, match="closed"):
        env.reset()


def test_junk_never_raises(rooms):
    env = make(max_steps=None)
    env.max_steps = None
    env.reset(seed=0)
    rng = random.Random(0)
    letters = "gotakemvpu \n\t\"'()[]{}<>\\/%\x00\ud800é看1234567890"
    for _ in range(500):
        text = "".join(rng.choice(letters) for _ in range(rng.randrange(30)))
        observation, _, _, _, info = env.step(text)
        assert info["details"]["reason"] if not info["action_valid"] else observation


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"engine": "unity"}, r"engine must be one of \('native', 'textworld'\), got 'unity'"),
        ({"difficulty": "hard"}, "difficulty must be one of"),
        ({"command_style": "place"}, "command_style must be one of"),
        ({"reward": "dense"}, "reward must be one of"),
        ({"split": "test"}, "no games of split 'test'"),
        ({"max_steps": 0}, "max_steps must be a positive int"),
        ({"render_mode": "human"}, "render_mode 'human'"),
        ({"strict": "no"}, "strict must be True or False, got 'no'"),
        ({"engine": "textworld", "strict": False}, "strict=False is a reading of the native"),
    ],
)
def test_bad_arguments(rooms, kwargs, message):
    with pytest.raises(ValueError, match=message):
        make(**kwargs)


def test_unknown_tasks_and_options(rooms):
    env = make()
    with pytest.raises(KeyError, match="unknown task_id 'train/none/t1'"):
        env.reset(options={"task_id": "train/none/t1"})
    with pytest.raises(ValueError, match="is in split 'train'"):
        env.reset(options=task("pick_and_place_simple") | {"split": "valid_seen"})


def test_bad_data(tmp_path):
    with pytest.raises(DatasetError, match="does not exist"):
        gym.make("AlfWorld-v0", data=tmp_path / "nowhere")
    trial = tmp_path / "json_2.1.1" / "train" / "look_at_obj_in_light-A-B-C-1" / "trial_1"
    trial.mkdir(parents=True)
    (trial / "game.tw-pddl").write_text('{"pddl_domain": "')
    with pytest.raises(DatasetError, match=r"1 of 1 game files .*trial_1.* is cut short"):
        gym.make("AlfWorld-v0", data=tmp_path)
    (trial / "game.tw-pddl").write_text('{"pddl_domain": "", "solvable": true}')
    env = gym.make("AlfWorld-v0", data=tmp_path)
    with pytest.raises(GameError, match=r"cannot be played natively: it has no 'grammar'"):
        env.reset(seed=0)
    with pytest.raises(DatasetError, match=r"no games of split 'valid_seen'; it has train \(1\)"):
        gym.make("AlfWorld-v0", data=tmp_path / "json_2.1.1", split="valid_seen")


def test_making_it_loads_neither_textworld_nor_torch():
    code = (
        "import sys, agentgym; agentgym.registry.load('envs.alfworld.env:AlfWorldEnv');"
        "print({'textworld', 'alfworld', 'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_it_is_registered():
    assert "AlfWorld-v0" in agentgym.registered()
    assert agentgym.registry.load(agentgym.spec("AlfWorld-v0").env) is AlfWorldEnv


@pytest.mark.data
def test_official_episode(official):
    env = gym.make("AlfWorld-v0", data=official, split="valid_seen").unwrapped
    observation, info = env.reset(seed=3)
    assert observation.endswith(f"Your task is to: {info['goal']}")
    world = env.source.world(info["task_id"])
    for command in world.walkthrough:
        assert env.is_admissible(command)
        _, _, terminated, _, info = env.step(command)
    assert terminated
    assert info["success"]


@pytest.mark.data
def test_the_same_episode_in_another_process(official):
    code = (
        "import agentgym, gymnasium as gym, hashlib, random\n"
        f"env = gym.make('AlfWorld-v0', data={str(official)!r}, split='valid_seen').unwrapped\n"
        "rng = random.Random(0)\n"
        "seen = hashlib.sha256()\n"
        "for seed in range(5):\n"
        "    observation, info = env.reset(seed=seed)\n"
        "    for _ in range(30):\n"
        "        seen.update(repr((observation, sorted(info.items()))).encode())\n"
        "        observation, _, done, _, info = env.step(rng.choice(info['admissible_actions']))\n"
        "        if done: break\n"
        "print(seen.hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": salt, "PATH": ""},
        ).stdout
        for salt in ("1", "2")
    }  # fmt: skip
    assert len(digests) == 1
