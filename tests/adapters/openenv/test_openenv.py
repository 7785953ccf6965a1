from __future__ import annotations

import contextlib
import json
import runpy
import socket
import threading
import time
import urllib.request
from pathlib import Path

import pytest
import uvicorn
from adapter_battery import ENV_ID, LEDGER, AdapterBattery, DeadlineBattery, Played
from openenv.core import GenericEnvClient

from adapters.openenv import TextAction, TextClient, create_app
from agentgym.guarded import env_maker
from agentgym.serve.background import served

ROOT = Path(__file__).resolve().parents[3]


@contextlib.contextmanager
def library_server(**env_args):
    """OpenEnv's own server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    app = create_app(ENV_ID, max_sessions=4, **env_args)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def own_server(**env_args):
    """``python -m agentgym serve``."""
    with served(env_maker(ENV_ID, **env_args)) as server:
        yield server.url


def closed_soon():
    end = time.monotonic() + 60
    while LEDGER.closed + LEDGER.hung < LEDGER.made and time.monotonic() < end:
        time.sleep(0.01)


class _Battery(AdapterBattery):
    knows_truncation = False
    server = None

    def play(self, jobs, actions, **env_args):
        played = []
        with type(self).server(**env_args) as url:
            with TextClient(base_url=url).sync() as env:
                for job in jobs:
                    first = env.reset(seed=job.seed, task_id=job.task_id)
                    total = 0.0
                    for action in actions:
                        result = env.step(TextAction(action=action))
                        total += result.reward
                        if result.done:
                            break
                    told = result.metadata
                    assert result.observation.metadata == told
                    reason = told["info"]["stop_reason"]
                    assert told["truncated"] is (reason != "solved")
                    played.append(Played(total, result.done, None, reason, first.observation.text))
            closed_soon()
        return played


class TestLibraryServer(_Battery, DeadlineBattery):
    server = staticmethod(library_server)


class TestOwnServer(_Battery):
    server = staticmethod(own_server)


@pytest.mark.parametrize("server", [library_server, own_server])
def test_the_generic_client_plays_too(server):
    with server() as url, GenericEnvClient(base_url=url).sync() as env:
        result = env.reset(seed=1, task_id="train-0")
        assert result.observation["goal"] == "Find the prize."
        assert result.observation["admissible_actions"][0] == "open 1"
        result = env.step({"action": "say hello"})
        assert result.observation["text"] == "You said hello."
        assert env.state()["step_count"] == 1


@pytest.mark.parametrize("server", [library_server, own_server])
def test_a_task_that_is_not_there_is_refused_and_the_session_goes_on(server):
    with server() as url, TextClient(base_url=url).sync() as env:
        with pytest.raises(RuntimeError, match="unknown task_id 'train-99'"):
            env.reset(seed=1, task_id="train-99")
        assert "train-1:" in env.reset(seed=1, task_id="train-1").observation.text
        assert env.step("say hello").observation.text == "You said hello."


def test_sessions_play_beside_each_other_up_to_their_number():
    with library_server() as url, contextlib.ExitStack() as stack:
        envs = [stack.enter_context(TextClient(base_url=url).sync()) for _ in range(4)]
        for number, env in enumerate(envs):
            env.reset(seed=1, task_id=f"train-{number}")
        for number, env in enumerate(envs):
            assert env.step("say hello").metadata["info"]["task_id"] == f"train-{number}"
        with pytest.raises((RuntimeError, OSError), match=r"(?i)capacity|sessions"):
            stack.enter_context(TextClient(base_url=url).sync()).reset(seed=1)


def test_tasks_can_be_found():
    def ask(path, **body):
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(
            f"{base}/{path}", data, {"Content-Type": "application/json"}
        )
        return json.load(urllib.request.urlopen(request))

    with library_server() as base:
        names = [split["name"] for split in ask(f"{ENV_ID}/splits")]
        assert names == ["train", "validation", "test"]
        number = ask(f"{ENV_ID}/num_tasks", split="test")["num_tasks"]
        tasks = ask(f"{ENV_ID}/tasks", split="test")["tasks"]
        assert tasks == [{"id": f"test-{index}", "index": index} for index in range(number)]
        assert ask(f"{ENV_ID}/task", split="test", index=1)["task"] == tasks[1]
    closed_soon()
    assert LEDGER.closed == LEDGER.made > 0


def test_the_example_runs(capsys):
    runpy.run_path(str(ROOT / "examples/adapters/openenv_webshop.py"), run_name="__main__")
    assert "score" in capsys.readouterr().out
