"""Task progress in AgencyBench: how far an attempt has come, and what nothing may change."""

from __future__ import annotations

import random

import pytest
from agency_probe import miniature
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.registry import load, spec
from envs.agencybench import catalogue
from envs.agencybench.calls import write_call
from envs.agencybench.env import AgencyBenchEnv
from envs.agencybench.oracle import demonstrate
from envs.agencybench.progress import AgencyProgress

SUBMIT = write_call("submit")
START = {"task_type": "Code", "goal": "Write.", "details": {"task": 0, "attempt": 1}}


@pytest.fixture
def env(monkeypatch):
    monkeypatch.delenv("AGENCYBENCH_DATA", raising=False)
    monkeypatch.setattr(catalogue, "BUILTIN", {"test/miniature": ""})
    monkeypatch.setattr("envs.agencybench.env.builtin", lambda name: miniature(2))
    monkeypatch.setattr("envs.agencybench.env.BUILTIN", {"test/miniature": ""})
    made = AgencyBenchEnv(max_steps=None)
    yield made
    made.close()


def play(env, actions, made=None):
    """(state before, kind, accepted, state after) of each action, until the episode ends."""
    made = made or AgencyProgress("AgencyBench-v0")
    observation, info = env.reset(seed=0)
    made.reset(observation, info)
    told = []
    for action in actions:
        before = made.state()
        observation, reward, terminated, truncated, info = env.step(action)
        valid = info["action_valid"]
        kind = made.abstract(action, True, valid)
        made.update(action, valid, observation, reward, info)
        told.append((before, kind, valid, made.state()))
        if terminated or truncated:
            break
    return told


def write(name, text):
    return write_call("write_file", {"path": name, "content": text})


def read(name):
    return write_call("read_file", {"path": name})


def shell(command):
    return write_call("run_shell_command", {"command": command})


def begun():
    made = AgencyProgress("AgencyBench-v0")
    made.reset("", START)
    return made


def test_the_registry_knows_it():
    assert load(spec("AgencyBench-v0").abstractions["compact"]) is AgencyProgress


def test_an_attempt_goes_through_its_stages():
    made = begun()
    kinds, stages = [], []
    for action in (
        shell("ls"),
        read("a.txt"),
        read("a.txt"),
        write("a.txt", "1"),
        write("b.txt", "1"),
        shell("cat a.txt"),
        read("c.txt"),
        write("b.txt", "2"),
    ):
        kinds.append(made.abstract(action, True, True))
        made.update(action, True, "", 0.0, START)
        stages.append(made.state().rpartition(" ")[2])
    assert kinds == [
        "run_shell_command", "read_file:new", "read_file:seen", "write_file:seen",
        "write_file:new", "run_shell_command", "read_file:new", "write_file:seen",
    ]  # fmt: skip
    # What ran before anything was written says nothing of it.
    assert stages == ["fresh", "read", "read", "written", "written", "run", "run", "written"]


def test_a_submission_begins_an_attempt_or_a_task(env):
    actions = [write("1.txt", "0.1"), SUBMIT, write("1.txt", "1"), SUBMIT, read("1.txt")]
    told = play(env, actions)
    heads = [before.rpartition(" ")[0] for before, *_ in told]
    assert heads[0] == heads[1] != heads[2] == heads[3] != heads[4]
    assert [before.rpartition(" ")[2] for before, *_ in told] == [
        "fresh", "written", "fresh", "written", "fresh",
    ]  # fmt: skip
    # A file that was written in an earlier attempt counts as new in the next.
    assert [kind for _, kind, *_ in told] == [
        "write_file:new", "submit", "write_file:new", "submit", "read_file:new",
    ]  # fmt: skip
    assert "task=0" in heads[0]
    assert "task=1" in heads[4]


REFUSED = ["", "no call", write_call("dance"), write_call("read_file", {"paths": 1}), "{", "[]"]


def test_states_depend_on_the_past_alone_and_refused_actions_change_none(env):
    good = [read("keep.txt"), write("1.txt", "0.5"), write("2.txt", "1"), SUBMIT, shell("ls")]
    for seed in range(6):
        rng = random.Random(seed)
        actions = [rng.choice(REFUSED if rng.random() < 0.4 else good) for _ in range(10)]
        told = play(env, actions)
        for before, kind, valid, after in told:
            assert valid or (before == after and kind in ("malformed", "inadmissible"))
        again = play(env, [*actions[:5], SUBMIT, SUBMIT])
        assert [step[0] for step in again[:5]] == [step[0] for step in told[:5]]


def test_every_action_of_the_oracle_is_of_the_kind_the_table_says():
    env = AgencyBenchEnv(scenario="code/units", max_steps=None)
    observation, info = env.reset(seed=0)
    made = AgencyProgress("AgencyBench-v0")
    made.reset(observation, info)
    kinds = []
    for action in demonstrate(env, random.Random(0)):
        kinds.append(made.abstract(action, True, True))
        if len(kinds) == 4 or kinds[-1] == "submit":
            break
        observation, reward, *_, info = env.step(action)
        assert info["action_valid"]
        made.update(action, True, observation, reward, info)
    env.close()
    tools = {"read_file", "write_file", "replace", "run_shell_command", "run_python", "submit"}
    assert kinds
    for kind in kinds:
        tool, _, path = kind.partition(":")
        assert tool in tools
        assert path in ("", "new", "seen")
        assert made.shareable(made.state(), kind)


def test_refused_calls_are_not_shared_and_contexts_are_of_the_task():
    made, other = begun(), AgencyProgress("x")
    other.reset("", {**START, "goal": "Read."})
    assert made.abstract("no call", True, True) == "malformed"
    assert made.abstract(SUBMIT, True, False) == "inadmissible"
    assert [made.shareable("z", kind) for kind in ("malformed", "inadmissible", "submit")] == [
        False, False, True,
    ]  # fmt: skip
    assert made.context("a") == made.context(" A ")
    assert len({made.context("a"), made.context("b"), other.context("a")}) == 3


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=20)), max_size=5))
@settings(max_examples=30, derandomize=True, deadline=None, database=None)
def test_no_text_breaks_it(steps):
    made = begun()
    for action, observation in steps:
        assert made.abstract(action, True, True)
        made.update(action, True, observation, 0.0, {})
        assert made.state()
        assert made.context(observation)
