from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import gymnasium as gym
import pytest
from adapter_battery import ENV_ID, LEDGER, SPEC, AdapterBattery, BatteryDoors, Played
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import agentgym
from agentgym.cli import main
from agentgym.guarded import env_maker
from agentgym.serve.background import served
from agentgym.serve.client import RemoteEnv, RemoteError
from agentgym.serve.server import Limits, _Door
from agentgym.serve.wire import SESSION_HEADER
from benchmarks.serve_load import VICTIM_SESSIONS, load

ROOT = Path(__file__).resolve().parents[3]


def eventually(condition, seconds=60.0):
    """Wait for something that another thread does; true as soon as it has happened."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def break_connection(env):
    """Cut the wire under a client."""
    env._connection.socket.shutdown(2)


class Gate:
    """Holds the calls of :class:`Held` until it is opened."""

    def __init__(self):
        self.open, self.waiting = threading.Event(), threading.Event()


class Held(BatteryDoors):
    """Doors whose ``say wait`` waits for a gate."""

    def __init__(self, gate, **kwargs):
        super().__init__(**kwargs)
        self.gate = gate

    def step(self, action):
        if action == "say wait":
            self.gate.waiting.set()
            self.gate.open.wait(60)
        return super().step(action)


@pytest.fixture
def gate():
    held = Gate()
    yield held
    held.open.set()


class TestBattery(AdapterBattery):
    def play(self, jobs, actions, **env_args):
        played = []
        with served(env_maker(ENV_ID, **env_args)) as server:
            env = RemoteEnv(server.url)
            for job in jobs:
                first, _ = env.reset(seed=job.seed, options={"task_id": job.task_id})
                total = 0.0
                for action in actions:
                    _, reward, terminated, truncated, info = env.step(action)
                    total += reward
                    if terminated or truncated:
                        break
                reason = info["stop_reason"]
                played.append(Played(total, terminated or truncated, truncated, reason, first))
            env.close()
            assert eventually(lambda: len(server.sessions) == 0)
        assert eventually(lambda: LEDGER.closed == LEDGER.made)
        return played


def test_a_remote_episode_is_the_local_one():
    local = gym.make("WebShop-v0", difficulty="small")
    with served(env_maker("WebShop-v0", difficulty="small")) as server:
        remote = RemoteEnv(server.url)
        for seed in range(2):
            assert remote.reset(seed=seed) == local.reset(seed=seed)
            for _ in range(4):
                action = local.action_space.sample()
                assert remote.step(action) == local.step(action)
        assert remote.state()["step_count"] == 4
        remote.close()


def test_a_request_is_carried_out_once():
    with served(lambda: BatteryDoors()) as server:
        LEDGER.__init__()
        with connect(server.url + "/ws", proxy=None) as wire:

            def ask(**message):
                wire.send(json.dumps(message))
                return json.loads(wire.recv())

            ask(type="reset", data={"seed": 1, "task_id": "train-0"}, request_id=1)
            step = {"type": "step", "data": {"action": "say a"}, "request_id": "x"}
            first, again = ask(**step), ask(**step)
            assert first == again
            assert first["request_id"] == "x"
            assert LEDGER.actions == ["say a"]
            assert ask(type="state")["data"]["step_count"] == 1


class Telling(BatteryDoors):
    """Doors that tell what JSON has no words for."""

    def step(self, action):
        *rest, info = super().step(action)
        odd = {"loss": float("nan"), "best": float("inf"), ("a", 1): {2}, "kind": Exception}
        return (*rest, {**info, "details": {**info["details"], **odd}})


def test_what_is_told_is_json_whatever_the_environment_tells():
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    with served(lambda: Telling()) as server, connect(server.url + "/ws", proxy=None) as wire:
        for message in ({"type": "reset"}, {"type": "step", "data": {"action": "say a"}}):
            wire.send(json.dumps(message))
            answer = json.loads(wire.recv(), parse_constant=refuse)
    details = answer["data"]["metadata"]["info"]["details"]
    assert (details["loss"], details["best"]) == ("NaN", "Infinity")
    assert details["('a', 1)"] == [2]


def test_a_client_comes_back_after_its_connection_broke():
    with served(lambda: BatteryDoors()) as server:
        LEDGER.__init__()
        env = RemoteEnv(server.url)
        env.reset(seed=3, options={"task_id": "train-0"})
        for number in range(5):
            break_connection(env)
            text, *_ = env.step(f"say {number}")
            assert text == f"You said {number}."
        assert env.reconnects == 5
        assert LEDGER.actions == [f"say {number}" for number in range(5)]
        assert server.sessions.counters["resumed"] == 5
        assert len(server.sessions) == 1
        env.close()


def test_a_late_reply_is_never_taken_for_the_next_one(gate):
    with served(lambda: Held(gate)) as server:
        LEDGER.__init__()
        env = RemoteEnv(server.url, reply_s=0.05)
        env.reset(seed=3, options={"task_id": "train-0"})
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(env.step("say wait")[0]))
        waiting.start()
        assert gate.waiting.wait(60)
        assert eventually(lambda: env.reconnects >= 2)
        gate.open.set()
        waiting.join()
        assert answers == ["You said wait."]
        assert [env.step(f"say {n}")[0] for n in range(3)] == [f"You said {n}." for n in range(3)]
        assert LEDGER.actions == ["say wait", "say 0", "say 1", "say 2"]
        env.close()


def test_an_environment_that_hangs_ends_its_episode_alone(gate):
    with served(lambda: Held(gate), limits=Limits(call_s=3)) as server:
        env, other = RemoteEnv(server.url), RemoteEnv(server.url)
        for each in (env, other):
            each.reset(seed=3, options={"task_id": "train-0"})
        text, reward, terminated, truncated, info = env.step("say wait")
        assert (text, reward, terminated, truncated) == ("", 0.0, False, True)
        assert info["stop_reason"] == "deadline"
        assert "did not return within 3 s" in info["details"]["error"]
        assert other.step("say a")[0] == "You said a."
        with pytest.raises(RemoteError, match="send a reset first"):
            env.step("say b")
        env.reset(seed=3, options={"task_id": "train-1"})
        assert env.step("say c")[0] == "You said c."
        env.close()
        other.close()


def test_sessions_are_bounded():
    with served(lambda: BatteryDoors(), limits=Limits(sessions=2)) as server:
        envs = [RemoteEnv(server.url) for _ in range(3)]
        for env in envs[:2]:
            env.reset(seed=0)
        with pytest.raises(RemoteError, match="CAPACITY_REACHED: all 2 sessions"):
            envs[2].reset(seed=0)
        envs[0].close()
        assert eventually(lambda: len(server.sessions) == 1)
        envs[2].reset(seed=0)
        assert server.sessions.counters == {"opened": 3, "refused": 1, "closed": 1}
        for env in envs:
            env.close()


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(resume_s=0.01), "lost"),
        (Limits(idle_s=0.01), "idle"),
        (Limits(session_s=0.01), "expired"),
    ],
)
def test_sessions_end_in_time(limits, why):
    LEDGER.__init__()
    with served(lambda: BatteryDoors()) as server:
        env = RemoteEnv(server.url)
        env.reset(seed=0)
        server.sessions.limits = limits
        if why == "lost":
            break_connection(env)
        assert eventually(lambda: len(server.sessions) == 0)
        assert server.sessions.counters[why] == 1
        assert eventually(lambda: LEDGER.closed == LEDGER.made == 1)
        with pytest.raises(RemoteError, match="SESSION_ERROR"):
            env.step("say a")
        server.sessions.limits = Limits()
        env.reset(seed=0)  # a new session
        env.close()


def test_a_session_of_a_client_without_numbers_ends_with_its_connection():
    """OpenEnv's own clients cannot come back."""
    with served(lambda: BatteryDoors()) as server:
        with connect(server.url + "/ws", proxy=None) as wire:
            wire.send(json.dumps({"type": "reset", "data": {"seed": 1, "episode_id": "e"}}))
            told = json.loads(wire.recv())
            assert set(told) == {"type", "data"}
            assert set(told["data"]) == {"observation", "reward", "done", "metadata"}
            assert told["data"]["reward"] is None
        assert eventually(lambda: server.sessions.counters["lost"] == 1)


def test_a_token_is_asked_for():
    with served(lambda: BatteryDoors(), token="s3cret") as server:
        for wrong in (None, "other", "s3cret2"):
            with pytest.raises(RemoteError, match="answers 401"):
                RemoteEnv(server.url, token=wrong).reset(seed=0)
        env = RemoteEnv(server.url, token="s3cret")
        env.reset(seed=0)
        env.close()
        base = server.url.replace("ws:", "http:")
        assert json.load(urllib.request.urlopen(base + "/health")) == {"status": "healthy"}
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(base + "/metadata")
        asked = urllib.request.Request(
            base + "/metadata", headers={"Authorization": "Bearer s3cret"}
        )
        assert json.load(urllib.request.urlopen(asked))["counters"]["opened"] == 1


def test_others_cannot_reach_a_server_without_a_token():
    with (
        pytest.raises(ValueError, match=r"on 0\.0\.0\.0 others can connect"),
        served(lambda: BatteryDoors(), host="0.0.0.0"),
    ):
        pass


def test_web_pages_and_other_paths_are_refused():
    with served(lambda: BatteryDoors()) as server:
        with pytest.raises(InvalidStatus, match="403"):
            connect(server.url + "/ws", origin="http://evil.example", proxy=None)
        with pytest.raises(InvalidStatus, match="404"):
            connect(server.url + "/other", proxy=None)


def test_a_session_cannot_be_guessed():
    with served(lambda: BatteryDoors()) as server:
        env = RemoteEnv(server.url)
        env.reset(seed=0)
        assert len(env._session) >= 24
        headers = {SESSION_HEADER: env._session[:-1] + "!"}
        with connect(server.url + "/ws", additional_headers=headers, proxy=None) as wire:
            assert json.loads(wire.recv())["data"]["code"] == "SESSION_ERROR"
        env.close()


@pytest.mark.parametrize(
    ("raw", "code", "word"),
    [
        ("{", "INVALID_JSON", "JSON"),
        ("[]", "VALIDATION_ERROR", "object"),
        ('{"type": "jump"}', "UNKNOWN_TYPE", "'jump'"),
        ('{"type": "step", "data": {"action": 3}}', "VALIDATION_ERROR", "got 3"),
        ('{"type": "step", "data": {"action": "say a"}}', "EXECUTION_ERROR", "reset first"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR", "got -1"),
        ('{"type": "reset", "data": {"sed": 1}}', "VALIDATION_ERROR", "'sed'"),
        ('{"type": "reset", "data": {"task_id": "x"}}', "EXECUTION_ERROR", "unknown task_id 'x'"),
        ('{"type": "reset", "data": {"split": "x"}}', "EXECUTION_ERROR", "unknown split 'x'"),
        ('{"type": "reset", "request_id": [1]}', "VALIDATION_ERROR", "request_id"),
    ],
)
def test_what_is_wrong_is_told_and_the_session_goes_on(raw, code, word):
    with served(lambda: BatteryDoors()) as server, connect(server.url + "/ws", proxy=None) as wire:
        wire.send(raw)
        told = json.loads(wire.recv())
        assert told["type"] == "error"
        assert told["data"]["code"] == code
        assert word in told["data"]["message"]
        wire.send('{"type": "reset"}')
        assert json.loads(wire.recv())["type"] == "observation"


def test_a_handshake_that_breaks_leaves_no_session_behind(monkeypatch):
    def break_off(door, connection, request, response):
        name(door, connection, request, response)
        raise RuntimeError("the client is gone")

    name = _Door.name_session
    monkeypatch.setattr(_Door, "name_session", break_off)
    with served(lambda: BatteryDoors()) as server:
        with pytest.raises(InvalidStatus, match="500"):
            connect(server.url + "/ws", proxy=None)
        assert server.sessions.counters["opened"] == 1
        assert eventually(lambda: len(server.sessions) == 0)
        assert server.sessions.counters["lost"] == 1


def test_a_server_that_is_not_there_is_given_up():
    env = RemoteEnv("ws://127.0.0.1:9", patience_s=0.2)
    with pytest.raises(RemoteError, match=r"no answer within 0\.2 s"):
        env.reset(seed=0)
    with pytest.raises(ValueError, match="like ws://"):
        RemoteEnv("127.0.0.1:9")


@pytest.mark.parametrize("sessions", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_no_reply_is_lost_or_crossed_under_load(sessions):
    args = {"difficulty": "small"}
    limits = Limits(sessions=sessions + 8, resume_s=600)
    with served(env_maker("WebShop-v0", **args), limits=limits) as server:
        tally = load(server, "WebShop-v0", args, sessions=sessions, episodes=1, kill=0.2, victims=1)
        assert (tally.lost, tally.crossed) == (0, 0)
        assert tally.replies >= 2 * sessions
        assert tally.reconnects > 0
        assert server.sessions.counters["opened"] == sessions + VICTIM_SESSIONS
        server.sessions.limits = Limits(resume_s=0.01)  # those of the process that was killed
        assert eventually(lambda: len(server.sessions) == 0)


@pytest.mark.torch  # the command line reads its flags with tyro, which comes with it
def test_the_command_serves_until_it_is_told_to_stop():
    command = [sys.executable, "-m", "agentgym", "serve", "--env", "WebShop-v0", "--port", "0"]
    environ = os.environ | {"AGENTGYM_TOKEN": "word"}
    with subprocess.Popen(
        [*command, "--env-arg", "difficulty=small"], stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        told = process.stdout.readline()
        assert told.startswith("serving WebShop-v0 at ws://127.0.0.1:")
        assert "a token is asked for" in told
        env = RemoteEnv(told.split()[3].rstrip(";"), token="word")
        env.reset(seed=0)
        env.close()
        process.send_signal(signal.SIGTERM)
        assert "opened 1" in process.stdout.read()
        assert process.wait() == 0


@pytest.mark.torch
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--env", "Nowhere-v0"], "unknown environment 'Nowhere-v0'"),
        (["--env", "WebShop-v0", "--env-arg", "difficulty=tiny"], "tiny"),
        (["--env", "WebShop-v0", "--env-arg", "nope=1"], "WebShop-v0 cannot be made: "),
        (["--env", "WebShop-v0", "--port", "70000"], "port must be 0 to 65535, got 70000"),
        (["--env", "WebShop-v0", "--call-deadline", "nan"], "call_s must be positive, got nan"),
        (["--env", "WebShop-v0", "--host", "0.0.0.0"], "give a token"),
        (["--env", "WebShop-v0", "--max-sessions", "0"], "sessions must be positive, got 0"),
    ],
)
def test_the_command_refuses_what_cannot_work(words, told, capsys, monkeypatch):
    monkeypatch.delenv("AGENTGYM_TOKEN", raising=False)
    assert main(["serve", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.torch
def test_the_command_does_not_wait_for_an_environment_that_hangs(capsys, monkeypatch, gate):
    monkeypatch.setattr(BatteryDoors, "__init__", lambda self, **_: gate.open.wait(60))
    agentgym.register(SPEC)
    assert main(["serve", "--env", ENV_ID, "--call-deadline", "0.2"]) == 2
    assert "making the environment did not return within 0.2 s" in capsys.readouterr().err


@pytest.mark.torch
def test_the_container_calls_the_command_as_it_is(monkeypatch):
    text = (ROOT / "docker" / "serve.Dockerfile").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    entry, words = (
        json.loads(re.search(rf"^{name} (\[.*\])$", text, re.MULTILINE)[1])
        for name in ("ENTRYPOINT", "CMD")
    )
    assert entry[:4] == ["python", "-m", "agentgym", "serve"]
    (shown,) = re.findall(r"^# +docker run .* agentgym-serve (.+)$", text, re.MULTILINE)
    parsed = []

    async def note(config):
        parsed.append(config)

    monkeypatch.setattr("agentgym.cli.serve.serve", note)
    for given in (words, shown.split()):
        assert main([*entry[3:], *given]) == 0
    for config in parsed:
        assert (config.host, config.port, config.env) == ("0.0.0.0", 8000, "WebShop-v0")
    assert re.findall(r"^EXPOSE (\d+)$", text, re.MULTILINE) == ["8000"]
    assert "http://127.0.0.1:8000/health" in text
    assert f"-e {parsed[0].token_variable}=" in text
    # What the installation needs is there: the extra, the packages, and files they are made with.
    assert re.findall(r"pip install [^.]*'\.\[(.+)\]'", text) == ["serve"]
    assert "serve" in project["project"]["optional-dependencies"]
    found = project["tool"]["setuptools"]["packages"]["find"]["include"]
    folders = re.findall(r"^COPY (\w+) (\w+)$", text, re.MULTILINE)
    assert {there for _, there in folders} == {name.rstrip("*") for name in found}
    assert all(here == there and (ROOT / here).is_dir() for here, there in folders)
    files = re.search(r"^COPY (.+) \./$", text, re.MULTILINE)[1].split()
    needed = {project["project"]["readme"], *project["project"]["license-files"]}
    assert set(files) == {"pyproject.toml", *needed}
    assert all((ROOT / name).is_file() for name in files)
