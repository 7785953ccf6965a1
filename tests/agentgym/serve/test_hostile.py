"""Clients and environments of a server that do what they should not."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time

import pytest
from adapter_battery import LEDGER, BatteryDoors
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from agentgym.serve.background import served
from agentgym.serve.client import RemoteEnv, RemoteError
from agentgym.serve.server import Limits
from agentgym.serve.sessions import Session
from agentgym.serve.wire import SESSION_HEADER

RAISED = {"cancelled": asyncio.CancelledError, "interrupted": KeyboardInterrupt}


class Rude(BatteryDoors):
    """Doors that do what an action, or the task, says.

    Args:
        gate: What ``say wait`` waits for.
        kwargs: See :class:`adapter_battery.BatteryDoors`.
    """

    def __init__(self, gate=None, **kwargs):
        super().__init__(**kwargs)
        self.gate = gate

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed, options=options)
        if self.gate is not None and self.task_id == "train-7":
            self.gate.wait(60)
        return result

    def step(self, action):
        if action in RAISED:
            raise RAISED[action]
        if action == "say wait":
            self.gate.wait(60)
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {} if action == "say bare" else info


def eventually(condition, seconds=60.0):
    """Wait for something that another thread does; true as soon as it has happened."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def threads():
    """Those in which environments are."""
    return sum(thread.name == "agentgym-env" for thread in threading.enumerate())


@pytest.fixture
def gate():
    held = threading.Event()
    yield held
    held.set()


@pytest.fixture
def wire():
    """A connection that speaks for itself."""
    with (
        served(lambda: Rude()) as server,
        connect(server.url + "/ws", proxy=None) as connection,
    ):
        LEDGER.__init__()

        def ask(**message):
            connection.send(json.dumps(message))
            return json.loads(connection.recv())

        connection.ask = ask
        yield connection


@pytest.mark.parametrize("action", RAISED)
def test_whatever_an_environment_raises_ends_its_episode_alone(action):
    with served(lambda: Rude()) as server:
        env = RemoteEnv(server.url, patience_s=10)
        env.reset(seed=0, options={"task_id": "train-0"})
        text, reward, terminated, truncated, info = env.step(action)
        assert (text, reward, terminated, truncated) == ("", 0.0, False, True)
        assert info["stop_reason"] == "infra_error"
        env.reset(seed=0, options={"task_id": "train-0"})
        assert env.step("say a")[0] == "You said a."
        env.close()


def test_an_info_without_the_suites_keys_is_completed():
    with served(lambda: Rude()) as server:
        env = RemoteEnv(server.url, patience_s=10)
        env.reset(seed=0)
        text, *_, info = env.step("say bare")
        assert (text, info["goal"], info["admissible_actions"]) == ("You said bare.", "", None)
        env.close()


def test_an_episode_that_hangs_in_its_reset_ends_with_its_first_step(gate):
    with served(lambda: Rude(gate), limits=Limits(call_s=0.5)) as server:
        env = RemoteEnv(server.url)
        text, info = env.reset(seed=0, options={"task_id": "train-7"})
        assert (text, info["stop_reason"]) == ("", "deadline")
        text, reward, terminated, truncated, info = env.step("say a")
        assert (text, reward, terminated, truncated) == ("", 0.0, False, True)
        assert info["stop_reason"] == "deadline"
        env.reset(seed=0, options={"task_id": "train-0"})
        assert env.step("say a")[0] == "You said a."
        env.close()


@pytest.mark.parametrize("opening", ["[", '{"type":"reset","data":'])
def test_json_that_is_nested_too_deep_is_no_json(wire, opening):
    wire.send(opening * 20_000)
    assert json.loads(wire.recv())["data"]["code"] == "INVALID_JSON"
    assert wire.ask(type="reset")["type"] == "observation"


def test_a_refusal_carries_its_number_too(wire):
    told = wire.ask(type="jump", request_id=7)
    assert (told["request_id"], told["data"]["code"]) == (7, "UNKNOWN_TYPE")
    for number in (True, 1.5, "x" * 201):
        told = wire.ask(type="reset", request_id=number)
        assert told["data"]["code"] == "VALIDATION_ERROR"
        assert "request_id" in told["data"]["message"]


def test_a_number_stands_for_one_request(wire):
    wire.ask(type="reset", data={"seed": 1, "task_id": "train-0"}, request_id=1)
    for number in (2, 3):
        step = wire.ask(type="step", data={"action": f"say {number}"}, request_id=number)
        assert step["data"]["observation"]["text"] == f"You said {number}."
    for number, action in ((3, "say other"), (2, "say 2"), (1, "say 1")):
        told = wire.ask(type="step", data={"action": action}, request_id=number)
        assert told["request_id"] == number
        assert f"request_id {number} was used" in told["data"]["message"]
    assert LEDGER.actions == ["say 2", "say 3"]


def test_what_comes_late_over_an_old_connection_is_not_carried_out(gate):
    """Nor does an old connection's close end the session."""
    with served(lambda: Rude(gate)) as server:
        env = RemoteEnv(server.url)
        env.reset(seed=1, options={"task_id": "train-0"})
        LEDGER.__init__()
        old, env._connection = env._connection, None
        for number, action in enumerate(("say wait", "say late"), 100):
            step = {"type": "step", "data": {"action": action}, "request_id": number}
            old.send(json.dumps(step))
        old.send(json.dumps({"type": "close"}))
        answers = []
        new = threading.Thread(target=lambda: answers.append(env.step("say a")[0]))
        new.start()
        assert eventually(lambda: server.sessions.counters["resumed"] == 1)
        gate.set()
        new.join()
        with pytest.raises(ConnectionClosed, match="another connection has taken"):
            old.recv(timeout=60)
        assert answers == ["You said a."]
        assert env.step("say b")[0] == "You said b."
        assert LEDGER.actions == ["say wait", "say a", "say b"]
        assert server.sessions.counters == {"opened": 1, "resumed": 1}
        env.close()


def test_a_request_that_is_too_long_is_given_up_at_once():
    with served(lambda: Rude()) as server:
        env = RemoteEnv(server.url, patience_s=1e9)
        env.reset(seed=0)
        with pytest.raises(RemoteError, match="takes no request as long as this"):
            env.step("say " + "x" * (1 << 20))
        assert env.step("say a")[0] == "You said a."
        env.close()


def test_sessions_whose_clients_are_silent_end_side_by_side():
    """A client that does not even answer a farewell holds up nobody."""
    with served(lambda: Rude()) as server:
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        lines = [
            "GET /ws HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", "",
        ]  # fmt: skip
        silent = [socket.create_connection((server.host, server.port)) for _ in range(12)]
        for each in silent:
            each.sendall("\r\n".join(lines).encode())
        assert eventually(lambda: len(server.sessions) == 12)
        server.sessions.limits = Limits(idle_s=0.01)
        # One after the other, each would be waited for ten seconds.
        assert eventually(lambda: len(server.sessions) == 0, 30)
        for each in silent:
            each.close()


def test_a_session_that_ends_in_a_call_that_hangs_leaves_no_thread_behind(gate):
    before = threads()
    with served(lambda: Rude(gate), limits=Limits(call_s=1)) as server:
        wires = [connect(server.url + "/ws", proxy=None).__enter__() for _ in range(3)]
        for each in wires:
            each.send(json.dumps({"type": "reset", "data": {"task_id": "train-7"}}))
        assert eventually(lambda: LEDGER.resets["train-7", None] >= 3)
        server.sessions.limits = Limits(call_s=1, session_s=0.01)
        assert eventually(lambda: len(server.sessions) == 0)
        time.sleep(1.5)  # the call comes to its deadline
        gate.set()
        assert eventually(lambda: threads() == before)
        for each in wires:
            each.close()


def test_environments_that_hang_while_closing_are_waited_for_together(gate, monkeypatch):
    class Slow(Rude):
        def close(self):
            gate.wait(60)
            super().close()

    def note(session, seconds):
        waited.append(seconds)
        join(session, seconds)

    join, waited = Session.join, []
    monkeypatch.setattr(Session, "join", note)
    with served(lambda: Slow(), limits=Limits(call_s=1)) as server:
        envs = [RemoteEnv(server.url) for _ in range(4)]
        for env in envs:
            env.reset(seed=0)
    assert 0 < waited[0] <= 1
    assert waited[1:] == [0.0] * 3
    for env in envs:
        env.close()


@pytest.mark.parametrize("name", [SESSION_HEADER, "Authorization"])
def test_a_header_that_stands_there_twice_names_nothing(name):
    with served(lambda: Rude(), token="word") as server:
        env = RemoteEnv(server.url, token="word")
        env.reset(seed=0)
        value = env._session if name == SESSION_HEADER else "Bearer word"
        headers = [("Authorization", "Bearer word"), (name, value), (name, value)]
        if name == SESSION_HEADER:
            with connect(server.url + "/ws", additional_headers=headers, proxy=None) as twice:
                assert json.loads(twice.recv())["data"]["code"] == "SESSION_ERROR"
        else:
            with pytest.raises(Exception, match="401"):
                connect(server.url + "/ws", additional_headers=headers[1:], proxy=None)
        env.close()


@pytest.mark.parametrize("url", ["ws://me:s3cret@h:1", "ws://h:1/?token=s3cret", "ws://h:1#s3cret"])
def test_a_token_in_the_url_is_refused_and_not_repeated(url):
    with pytest.raises(ValueError, match="token=") as told:
        RemoteEnv(url)
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize("token", ["s3cret\n", " s3cret", "s3cr\u00e9t", "s3cret\udcff"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_repeated(token):
    with pytest.raises(ValueError, match="printable ASCII") as told:
        RemoteEnv("ws://h:1", token=token)
    assert "s3cr" not in str(told.value)
    with pytest.raises(ValueError, match="printable ASCII"), served(lambda: Rude(), token=token):
        pass


def test_a_token_is_not_logged(caplog):
    caplog.set_level("INFO")
    with served(lambda: Rude(), token="s3cret") as server:
        env = RemoteEnv(server.url, token="s3cret")
        env.reset(seed=0)
        env.close()
        with pytest.raises(RemoteError, match="answers 401") as told:
            RemoteEnv(server.url, token="s3cret-wrong").reset(seed=0)
    assert "s3cret" not in caplog.text + str(told.value)


def test_a_server_of_another_kind_is_told_apart():
    from websockets.sync.server import serve

    def talk(connection):
        for raw in connection:
            number = json.loads(raw)["request_id"]
            connection.send(answers.pop(0).replace("NUMBER", str(number)))

    answers = [
        "no JSON", "[]", '{"type": "observation", "data": {}}',
        '{"type": "observation", "data": {}, "request_id": NUMBER}',
    ]  # fmt: skip
    with serve(talk, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        env = RemoteEnv(f"ws://127.0.0.1:{server.socket.getsockname()[1]}", patience_s=1e9)
        for _ in list(answers):
            with pytest.raises(RemoteError, match="is no `python -m agentgym serve`"):
                env.reset(seed=0)
        env.close()
        server.shutdown()
        thread.join()


def test_there_is_no_such_port():
    with (
        pytest.raises(ValueError, match="port must be 0 to 65535, got 70000"),
        served(lambda: Rude(), port=70000),
    ):
        pass


def test_nothing_is_left_open():
    folder = "/proc/self/fd"
    if not os.path.isdir(folder):
        pytest.skip("only Linux counts open files there")
    counts = []
    for _ in range(3):
        with served(lambda: Rude(), limits=Limits(sessions=8)) as server:
            for number in range(6):
                env = RemoteEnv(server.url)
                env.reset(seed=number)
                if number % 2:
                    env._connection.socket.shutdown(2)
                    env.step("say a")
                if number < 3:
                    env.close()
                else:
                    env._drop()
        counts.append((threading.active_count(), len(os.listdir(folder))))
    assert counts[1] == counts[2]
