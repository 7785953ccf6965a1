from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import skyrl_gym
from adapter_battery import ENV_ID, SPEC, DeadlineBattery, Played

import agentgym
from adapters.skyrl_gym import SkyRLEnv, register
from agentgym.info import ABORTED

ROOT = Path(__file__).resolve().parents[3]


class TestBattery(DeadlineBattery):
    knows_truncation = False

    def play(self, jobs, actions, **env_args):
        skyrl_gym.envs.registration.registry.pop(f"agentgym/{ENV_ID}", None)
        name = register(ENV_ID, action_format="bare", **env_args)
        played = []
        for job in jobs:
            extras = {"task_id": job.task_id, "seed": job.seed, "max_turns": 9}
            env = skyrl_gym.make(name, env_config={}, extras=extras)
            messages, _ = env.init([{"role": "user", "content": "replaced"}])
            total = 0.0
            for action in actions:
                out = env.step(action)
                total += out["reward"]
                assert bool(out["observations"]) != out["done"]
                if out["done"]:
                    break
            facts = out["metadata"]
            assert facts["truncated"] is (facts["stop_reason"] != "solved")
            first = messages[-1]["content"]
            played.append(Played(total, out["done"], None, facts["stop_reason"], first))
            metrics = env.get_metrics()
            assert metrics["return"] == total
            assert metrics["infra_error"] == (facts["stop_reason"] in ABORTED)
            env.close()
        return played


def test_metrics_are_averaged_by_the_library():
    metrics = []
    for actions in (("open 1", "open 2", "open 3", "open 4"), ("say a",) * 6):
        env = SkyRLEnv(
            extras={"task_id": "train-0", "seed": 5}, env_id=ENV_ID, action_format="bare"
        )
        env.init([])
        for action in actions:
            if env.step(action)["done"]:
                break
        metrics.append(env.get_metrics())
        env.close()
    assert SkyRLEnv.aggregate_metrics(metrics)["success"] == 0.5


def test_the_example_runs(capsys):
    runpy.run_path(str(ROOT / "examples/adapters/skyrl_webshop.py"), run_name="__main__")
    assert "score" in capsys.readouterr().out


def test_registering_again_changes_nothing_and_other_settings_want_another_name():
    agentgym.register(SPEC)
    name = register(ENV_ID, known_as="mine", action_format="bare")
    assert register(ENV_ID, known_as="mine", action_format="bare") == name == "mine"
    with pytest.raises(ValueError, match="choose another known_as"):
        register(ENV_ID, known_as="mine", action_format="tags")
    other = register(ENV_ID, known_as="other", action_format="tags")
    for each, asked in ((name, False), (other, True)):
        env = skyrl_gym.make(each, env_config={}, extras={"seed": 1})
        messages, _ = env.init([])
        assert ("<action>" in str(messages)) is asked
        env.close()
    with pytest.raises(KeyError, match="unknown environment 'Nowhere-v0'"):
        register("Nowhere-v0")
