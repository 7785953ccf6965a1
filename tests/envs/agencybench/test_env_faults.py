"""What a hostile or clumsy agent, and a machine that fails, do to the environment."""

from __future__ import annotations

import gc
import os
import tempfile

import pytest
from agency_probe import miniature

from agentgym.info import StopReason
from agentgym.sandbox import SandboxError, open_sandbox
from envs.agencybench import env as module
from envs.agencybench.calls import write_call
from envs.agencybench.env import AgencyBenchEnv
from envs.agencybench.toolbox import TOOLS

SUBMIT = write_call("submit")


@pytest.fixture
def make(monkeypatch):
    monkeypatch.delenv("AGENCYBENCH_DATA", raising=False)
    monkeypatch.setattr(module, "builtin", lambda name: miniature(2))
    monkeypatch.setattr(module, "BUILTIN", {"test/miniature": ""})
    made = []

    def factory(**arguments):
        made.append(AgencyBenchEnv(**arguments))
        made[-1].reset(seed=0)
        return made[-1]

    yield factory
    for env in made:
        env.close()


def put(env, name, text):
    return env.step(write_call("write_file", {"path": name, "content": str(text)}))


def shell(env, command):
    return env.step(write_call("run_shell_command", {"command": command}))


# Workspaces that cannot be copied ---------------------------------------------------------------

_LARGE = "truncate -s 40M a; truncate -s 40M b"


def test_a_workspace_that_is_too_large_scores_nothing_and_ends_nothing(make):
    env = make(attempts=3)
    put(env, "1.txt", 1)
    shell(env, _LARGE)
    observation, reward, terminated, truncated, info = env.step(SUBMIT)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert "holds more than 67108864 bytes" in observation
    verdict = info["details"]["verdict"]
    assert (verdict["score"], verdict["error"]) == (0.0, False)
    assert {check["state"] for check in verdict["checks"]} == {"fail"}
    # It is as it was, and the agent can make it smaller.
    shell(env, "rm a")
    *_, info = env.step(SUBMIT)
    assert info["details"]["scores"] == [1.0, 0.0]
    assert info["details"]["task"] == 1


def test_too_many_files_score_nothing(make):
    env = make()
    shell(env, "i=0; while [ $i -lt 30 ]; do mkdir d$i; i=$((i+1)); done; cd d1; "
               "for a in 1 2; do seq 1 12000 | sed s/^/$a./ | xargs touch; done")  # fmt: skip
    observation, reward, *_ = env.step(SUBMIT)
    assert "holds more than 20000 files" in observation
    assert reward == 0.0


@pytest.mark.parametrize("carry", ["best", "first", "last"])
def test_what_was_not_kept_is_not_put_back(make, carry):
    env = make(attempts=2, carry=carry)
    shell(env, _LARGE)
    env.step(SUBMIT)
    shell(env, "rm a; touch second")
    put(env, "1.txt", 0.1)
    env.step(SUBMIT)
    listing = shell(env, "ls")[0]
    assert "second" in listing  # the first attempt left nothing to go back to


def test_a_budget_that_ends_on_a_large_workspace_still_scores(make):
    env = make(max_steps=2)
    shell(env, _LARGE)
    _, reward, terminated, truncated, info = put(env, "1.txt", 1)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["stop_reason"] == StopReason.MAX_TURNS
    assert info["details"]["record"]["tasks"][0]["attempts"][0]["score"] == 0.0


# Calls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("character", ["\0", "\x1b", "é", "\u202e", "\U0001f600"])
def test_no_character_in_any_argument_raises(make, character):
    env = make(max_steps=None)
    odd = f"a{character}b"
    values = {"string": odd, "integer": odd, "boolean": odd, "list": [odd], "object": {odd: odd}}
    for name, spec in TOOLS.items():
        if name == "submit":
            continue
        arguments = {key: values[p.kind] for key, p in spec.parameters.items()}
        for given in (arguments, {k: v for k, v in arguments.items() if spec.parameters[k].required
                                  or spec.parameters[k].kind == "string"}):  # fmt: skip
            observation, _, terminated, truncated, info = env.step(write_call(name, given))
            assert (terminated, truncated) == (False, False)
            assert info["details"]["infra_error"] is False
            assert not set(observation) & {"\0", "\x1b"}


def test_a_wrong_expression_is_explained(make):
    env = make()
    observation, *_ = env.step(write_call("search_file_content", {"pattern": "("}))
    assert "grep" in observation
    assert "parenthes" in observation


# A machine that fails ---------------------------------------------------------------------------


def test_a_sandbox_that_cannot_be_started_ends_the_episode(make, monkeypatch):
    env = make()

    def refuse(*_args, **_kwargs):
        raise SandboxError("no more processes")

    monkeypatch.setattr(env.episode.session, "_start", refuse)
    observation, reward, terminated, truncated, info = shell(env, "echo x")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["stop_reason"] == StopReason.INFRA_ERROR
    assert "no fault of yours" in observation


def test_an_environment_that_nobody_closes_leaves_nothing(make, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    with open_sandbox() as sandbox:
        before = len(os.listdir("/proc/self/fd"))
        env = AgencyBenchEnv(sandbox=sandbox)
        env.reset(seed=0)
        shell(env, "sleep 600 &")
        assert len(os.listdir(tmp_path)) == 1
        del env
        gc.collect()
        assert os.listdir(tmp_path) == []
        assert len(os.listdir("/proc/self/fd")) == before


def test_two_environments_share_a_sandbox_and_nothing_else(make):
    with open_sandbox() as sandbox:
        one, other = (AgencyBenchEnv(sandbox=sandbox) for _ in range(2))
        one.reset(seed=0)
        other.reset(seed=0)
        put(one, "1.txt", 1)
        shell(one, "touch /tmp/mine; sleep 600 &")
        assert "mine" not in shell(other, "ls /tmp; ls")[0]
        assert "1.txt" not in shell(other, "ls")[0]
        assert other.step(SUBMIT)[1] == pytest.approx(0.1)
        other.close()
        assert one.step(SUBMIT)[1] == pytest.approx(0.5)
        one.reset(seed=0)  # in the midst of an episode
        assert "1.txt" not in shell(one, "ls; ls /tmp")[0]
        one.close()


@pytest.mark.parametrize(
    ("name", "value"), [("max_seconds", "5"), ("pass_threshold", "0.5"), ("call_cost", True)]
)
def test_arguments_of_another_kind_are_named(make, name, value):
    with pytest.raises(ValueError, match=name):
        AgencyBenchEnv(**{name: value})


def test_a_command_ends_with_the_time_of_the_episode(make):
    env = make(max_seconds=1.5)
    call = write_call("run_shell_command", {"command": "echo begun; sleep 600", "timeout": 600})
    observation, _, terminated, truncated, info = env.step(call)
    assert (terminated, truncated) == (False, True)
    assert info["stop_reason"] == StopReason.DEADLINE
    assert "begun" in observation
    assert "(episode deadline)" in observation
    assert info["details"]["record"] is not None


def test_a_command_that_takes_its_sandbox_along_is_no_lost_episode(make, monkeypatch):
    """A command that cannot be killed in time says nothing about the infrastructure."""
    env = make(max_steps=None)
    shell(env, "echo begun")
    handle = env.episode.session._engine.handle

    def slow(*_args, **_kwargs):
        raise TimeoutError

    monkeypatch.setattr(handle, "ask", slow)
    *_, truncated, info = shell(env, "sync")
    assert not truncated
    observation, _, _, truncated, info = shell(env, "echo again")
    assert "again" in observation
    assert (truncated, info["details"]["infra_error"]) == (False, False)
    env.episode.session._engine.handle.kill()  # by somebody else
    *_, truncated, info = shell(env, "echo again")
    assert (truncated, info["stop_reason"]) == (True, StopReason.INFRA_ERROR)


def test_a_sandbox_that_somebody_closed_is_had_anew(make):
    env = make()
    env.episode.sandbox.close()
    *_, truncated, info = shell(env, "echo x")
    assert (truncated, info["stop_reason"]) == (True, StopReason.INFRA_ERROR)
    env.reset(seed=1)
    assert "again" in shell(env, "echo again")[0]
