from __future__ import annotations

import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from adapter_battery import ENV_ID, DeadlineBattery, Played
from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import DummyVecEnv

from adapters.hashed_text import hashed
from adapters.sb3 import ActionScores, ScoringPolicy, make

ROOT = Path(__file__).resolve().parents[3]
torch.set_num_threads(1)


def number_of(env, action):
    """The number of an action; what is said does not matter."""
    offered = env.guarded.info["admissible_actions"]
    return len(offered) - 1 if action.startswith("say") else offered.index(action)


class TestBattery(DeadlineBattery):
    resets_by_itself = True

    def play(self, jobs, actions, **env_args):
        vec = DummyVecEnv([lambda: make(ENV_ID, size=16, max_actions=8, **env_args)])
        played = []
        for job in jobs:
            vec.seed(job.seed)
            vec.set_options({"task_id": job.task_id})
            vec.reset()
            env, reward = vec.envs[0], 0.0
            for action in actions:
                number = 0 if env.guarded.error is not None else number_of(env, action)
                assert vec.env_method("action_masks")[0][number]
                _, rewards, dones, (info,) = vec.step([number])
                reward += float(rewards[0])
                if dones[0]:
                    break
            assert info["terminal_observation"]["actions"].shape == (8, 16)
            reason = info["stop_reason"] and str(info["stop_reason"])
            played.append(Played(reward, bool(dones[0]), info["TimeLimit.truncated"], reason))
        vec.close()
        return played


def test_the_checker_of_the_library_has_nothing_to_say():
    env = make("WebShop-v0", difficulty="small", size=16)
    # Rows of a matrix are an image to it; there is no other form for them.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*unconventional shape", UserWarning)
        check_env(env)
    env.close()


def test_hashes_are_the_same_everywhere():
    code = "from adapters.hashed_text import hashed; print(hashed('a red mug 1', 32).tolist())"
    out = subprocess.run(
        [sys.executable, "-c", code],
        check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": "7"},
    )  # fmt: skip
    assert eval(out.stdout) == hashed("a red mug 1", 32).tolist()
    assert np.array_equal(hashed("mug, red", 32), hashed("Red mug", 32))
    assert not np.array_equal(hashed("red mug", 32), hashed("red mug", 32, b"other"))
    assert np.linalg.norm(hashed("mug", 4096)) == pytest.approx(1.0)


def test_features_hold_what_the_agent_is_shown_and_nothing_else():
    """Two episodes with the same texts have the same features, whatever their scores."""
    env = make("AlfWorld-v0", difficulty="small", max_actions=32)
    seen, info = env.reset(seed=0)
    offered = info["admissible_actions"]
    assert np.array_equal(seen["goal"], hashed(info["goal"], 128))
    assert np.array_equal(seen["actions"][1], hashed(offered[1], 128))
    assert not seen["replies"].any()
    assert not seen["actions"][len(offered) :].any()
    assert env.action_masks().tolist() == [True] * len(offered) + [False] * (32 - len(offered))
    assert set(seen) == {"goal", "observation", "actions", "replies"}
    seen, *_ = env.step(offered.index("look"))
    place = env.guarded.info["admissible_actions"].index("look")
    assert np.array_equal(seen["replies"][place], seen["observation"])
    env.close()


def test_the_goal_is_part_of_what_the_first_observation_says():
    env = gym.make("AlfWorld-v0", difficulty="small")
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        assert info["goal"] in observation


def test_environments_that_do_not_fit_are_refused():
    env = make("AlfWorld-v0", max_actions=4)
    with pytest.raises(ValueError, match=r"offers \d+ actions; .* max_actions=4"):
        env.reset(seed=0)
    with pytest.raises(KeyError, match="unknown task_id 'nowhere'"):
        env.reset(seed=0, options={"task_id": "nowhere"})


def test_every_action_is_scored_by_the_same_weights():
    """Reordering the actions reorders their scores, and padding changes none."""
    env = make("AlfWorld-v0", difficulty="small", max_actions=32)
    seen, info = env.reset(seed=1)
    torch.manual_seed(0)
    scores = ActionScores(env.observation_space)
    count = len(info["admissible_actions"])
    order = list(range(count))[::-1] + list(range(count, 32))
    there = {name: torch.as_tensor(value)[None] for name, value in seen.items()}
    moved = there | {name: there[name][:, order] for name in ("actions", "replies")}
    with torch.no_grad():
        first, second = scores(there)[0], scores(moved)[0]
    torch.testing.assert_close(first[:32][order], second[:32])
    torch.testing.assert_close(first[32:], second[32:])


def test_a_model_learns_saves_and_loads(tmp_path):
    """The weights move, and come back from a file as they were."""
    vec = DummyVecEnv([lambda: make("AlfWorld-v0", difficulty="small", size=32, max_actions=32)])
    model = MaskablePPO(ScoringPolicy, vec, n_steps=64, batch_size=32, n_epochs=2, seed=0)
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(128)
    after = model.policy.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    model.save(tmp_path / "model.zip")
    loaded = MaskablePPO.load(tmp_path / "model.zip")
    seen = vec.reset()
    masks = np.stack(vec.env_method("action_masks"))
    for chosen in (model, loaded):
        assert chosen.predict(seen, action_masks=masks, deterministic=True)[0].shape == (1,)
    for name, value in after.items():
        assert torch.equal(value, loaded.policy.state_dict()[name])
    vec.close()


def test_the_example_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["sb3_alfworld.py", "512"])
    runpy.run_path(str(ROOT / "examples/adapters/sb3_alfworld.py"), run_name="__main__")
    assert "success" in capsys.readouterr().out
