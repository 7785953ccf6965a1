from __future__ import annotations

import gc
import random
import runpy
from pathlib import Path

import gem
import numpy as np
import pytest
from adapter_battery import ENV_ID, LEDGER, SPEC, DeadlineBattery, Played

import agentgym
from adapters.gem import GemEnv, register

ROOT = Path(__file__).resolve().parents[3]


class TestBattery(DeadlineBattery):
    def play(self, jobs, actions, **env_args):
        gem.envs.registration.ENV_REGISTRY.pop(f"agentgym:{ENV_ID}", None)
        name = register(ENV_ID, action_format="bare", **env_args)
        played = []
        for job in jobs:  # GEM's vector environments overwrite the last info of an episode
            env = gem.make(name, task_id=job.task_id)
            first, _ = env.reset(seed=job.seed)
            total = 0.0
            for action in actions:
                _, reward, terminated, truncated, info = env.step(action)
                total += reward
                if terminated or truncated:
                    break
            ended = terminated or truncated
            played.append(Played(total, ended, truncated, info["stop_reason"], first))
            env.close()
        return played


def test_what_a_model_writes_is_parsed():
    env = GemEnv(ENV_ID, task_id="train-0")
    text, _ = env.reset(seed=1)
    assert "exactly one action" in text
    assert "Admissible actions: open 1" in text
    *_, info = env.step("<think>Left.</think><action>say hello</action>")
    assert (info["action_valid"], info["format_ok"]) == (True, True)
    *_, info = env.step("say hello")
    assert (info["action_valid"], info["format_ok"]) == (True, False)
    assert env.sample_random_action().startswith("<action>")
    env.close()


def test_the_global_generators_are_left_alone():
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist()
    env = GemEnv("WebShop-v0", difficulty="small")
    env.reset(seed=1)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    env.close()


def test_episodes_without_a_seed_follow_from_the_first():
    def firsts(env):
        found = [env.reset()[1]["task_id"] for _ in range(3)]
        env.close()
        return found

    one = GemEnv("WebShop-v0", seed=7, difficulty="small")
    other = one.spawn()
    assert firsts(one) == firsts(other)
    third = one.spawn(seed=8)
    assert firsts(third)[:2] == firsts(one.spawn(seed=7))[1:]
    with pytest.raises(ValueError, match="same_state"):
        one.spawn(same_state=True)


def vectorized(**settings):
    agentgym.register(SPEC)
    gem.envs.registration.ENV_REGISTRY.pop(f"agentgym:{ENV_ID}", None)
    name = register(ENV_ID, action_format="bare", **settings)
    return gem.make_vec([name] * 3, task_id="train-2", seed=40)


def test_a_group_plays_one_episode_in_a_vector_environment():
    LEDGER.__init__()
    vector = vectorized()
    observations, _ = vector.reset(seed=[7, 7, 7])
    assert len(set(observations)) == 1
    assert "train-2" in observations[0]
    assert LEDGER.resets == {("train-2", 7): 3}
    _, rewards, terminated, truncated, infos = vector.step(["say hello", "open 9", "open 1"])
    assert infos[0]["stop_reason"] is None
    assert not truncated.any()
    assert rewards.tolist() == [float(ended) for ended in terminated]
    vector.reset()  # each goes on with its next seed
    assert LEDGER.resets == {("train-2", 7): 3, ("train-2", 8): 3}


def test_environments_that_nobody_closes_are_closed():
    LEDGER.__init__()
    vector = vectorized()
    vector.reset(seed=1)
    assert (LEDGER.made, LEDGER.closed) == (3, 0)
    del vector
    gc.collect()
    assert (LEDGER.made, LEDGER.closed) == (3, 3)


def test_the_example_runs(capsys):
    runpy.run_path(str(ROOT / "examples/adapters/gem_webshop.py"), run_name="__main__")
    assert "score" in capsys.readouterr().out


def test_registering_again_changes_nothing_and_other_settings_want_another_id():
    name = register(ENV_ID, known_as="mine", action_format="bare")
    assert register(ENV_ID, known_as="mine", action_format="bare") == name == "mine"
    with pytest.raises(ValueError, match="choose another known_as"):
        register(ENV_ID, known_as="mine", action_format="tags")
    other = register(ENV_ID, known_as="other", action_format="tags")
    assert [gem.make(each)._settings["action_format"] for each in (name, other)] == ["bare", "tags"]
    with pytest.raises(KeyError, match="unknown environment 'Nowhere-v0'"):
        register("Nowhere-v0")
