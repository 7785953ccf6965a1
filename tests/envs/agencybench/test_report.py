"""Metrics over an evaluation, and progress through a scenario."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest

from agentgym.evaluation import EpisodeResult
from agentgym.progress import INADMISSIBLE, MALFORMED, make_progress
from agentgym.registry import load, spec
from envs.agencybench.calls import write_call
from envs.agencybench.metrics import AttemptRecord, ScenarioRecord, TaskRecord
from envs.agencybench.report import metrics, record_of, record_to_json


def record(*scores):
    tasks = tuple(
        TaskRecord(f"t{n}", tuple(AttemptRecord(s, 1.0, {"submit": 1}, 10, 5) for s in task))
        for n, task in enumerate(scores)
    )
    return ScenarioRecord("code/units", "Code", tasks)


def result(played, **more):
    details = {} if played is None else {"record": record_to_json(played)}
    numbers = {"score": 0.0, "reward": 0.0, "turns": 1, **more}
    return EpisodeResult(
        "g", 0, "code/units", "Code", 0, "failed", False, False, details=details, **numbers
    )


def test_records_come_back_from_json():
    played = record((0.2, None, 1.0), ())
    assert record_of(json.loads(json.dumps(record_to_json(played)))) == played


def test_metrics_of_an_evaluation():
    made = metrics([result(record((0.2, 1.0), ())), result(record((1.0,), (0.5,))), result(None)])
    assert made["savg"] == pytest.approx(62.5)
    assert made["att"] == pytest.approx(1.0)
    assert made["pass@1_tasks"] == 25.0
    assert made["pass@2_scenarios"] == 50.0
    assert made["calls/submit"] == 4.0
    assert made["without_record"] == 1.0
    assert made["e_tok"] == pytest.approx(62.5 / (60 / 1e6 / 2))
    counted = [result(record((1.0,)), prompt_tokens=900_000, action_tokens=100_000)]
    assert metrics(counted)["e_tok"] == pytest.approx(100.0)
    assert all(value is None or isinstance(value, float) for value in made.values())


def test_the_command_line_writes_them(tmp_path):
    from agentgym.cli import main

    out = tmp_path / "result.json"
    words = ["eval", "--env", "AgencyBench-v0", "--policy", "oracle", "--out", str(out)]
    words += ["--env-arg", "scenario=research/harbour", "sandbox=auto"]
    assert main(words) == 0
    made = json.loads(out.read_text("utf-8"))
    assert made["metrics"]["savg"] == 100.0
    assert made["metrics"]["calls/submit"] == 4.0


def test_progress_through_a_scenario():
    entry = spec("AgencyBench-v0")
    env = gym.make("AgencyBench-v0", scenario="mcp/issuedesk")
    watch = make_progress(entry, "compact")()
    watch.reset(*env.reset(seed=0))
    states, actions = [watch.state()], []
    for action in load(entry.oracle)(env, np.random.default_rng(0), 0.0):
        actions.append(watch.abstract(action, True, True))
        observation, reward, terminated, _, info = env.step(action)
        watch.update(action, True, observation, float(reward), info)
        states.append(watch.state())
        if terminated:
            break
    env.close()
    assert states[0] == "agency MCP task=0 attempt=0 fresh"
    assert "agency MCP task=2 attempt=0 written" in states
    assert actions[:3] == ["mcp_list_tools", "mcp_call:new", "mcp_call:new"]
    assert "mcp_call:seen" in actions
    assert len(set(states)) <= 14
    assert watch.abstract("hm", False, False) == MALFORMED
    assert watch.abstract(write_call("nothing"), True, False) == INADMISSIBLE
    assert not watch.shareable("s", MALFORMED)
    assert watch.context("a") == watch.context("A ")
