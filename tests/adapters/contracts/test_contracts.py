"""Adapters for libraries that cannot be installed here, against stand-ins for what they call."""

from __future__ import annotations

import asyncio
import http.cookies
import importlib.metadata
import json
import socket
import sys
import threading
import types
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
import torch
from adapter_battery import ENV_ID, SPEC, DeadlineBattery, Played, TokenBattery
from templates import KEEPING, CharTokenizer

import agentgym
from adapters.nemo_gym import make_server

agentgym.register(SPEC)


class Tokenizer(CharTokenizer):
    """With the one attribute more that trainers read."""

    @property
    def eos_token_id(self):
        return self.stop_id


@pytest.fixture
def tokenizer():
    return Tokenizer(KEEPING["compact"])


def answer_of(tokenizer, prompt, actions):
    """The n-th action after n answers."""
    text = actions[list(prompt).count(tokenizer.stop_id)]
    return [*tokenizer.encode(text), tokenizer.stop_id]


def played(job_reward, reason, truncated, prompt, ids, mask, tokenizer):
    own = [token for token, mine in zip(ids, mask, strict=True) if mine]
    return Played(
        job_reward, True, truncated, reason, tokenizer.decode(prompt) or None, ids,
        [bool(mine) for mine in mask], tokenizer.decode(own), tokenizer.decode(ids),
    )  # fmt: skip


# AReaL --------------------------------------------------------------------------------------------


@dataclass
class Generation:
    """AReaL's ``GenerationHyperparameters``."""

    max_new_tokens: int = 32
    n_samples: int = 4
    stop_token_ids: list[int] = field(default_factory=list)

    def new(self, **changes: Any) -> Generation:
        return Generation(**(vars(self) | changes))

    def new_with_stop_and_pad_token_ids(self, tokenizer: Any) -> Generation:
        return self.new(stop_token_ids=[tokenizer.eos_token_id])


@dataclass
class ModelRequest:
    rid: str
    input_ids: list[int]
    gconfig: Generation
    tokenizer: Any


@pytest.fixture
def areal(monkeypatch):
    api = types.ModuleType("areal.api")
    api.ModelRequest, api.RolloutWorkflow = ModelRequest, object
    monkeypatch.setitem(sys.modules, "areal", types.ModuleType("areal"))
    monkeypatch.setitem(sys.modules, "areal.api", api)
    version = importlib.metadata.version
    monkeypatch.setattr(
        "adapters.versions.version", lambda name: "1.0.4" if name == "areal" else version(name)
    )
    monkeypatch.delitem(sys.modules, "adapters.areal", raising=False)
    import adapters.areal

    yield adapters.areal
    sys.modules.pop("adapters.areal", None)


class TestAReaL(TokenBattery, DeadlineBattery):
    @pytest.fixture(autouse=True)
    def _library(self, areal, tokenizer):
        self.areal, self.tokenizer = areal, tokenizer

    def play(self, jobs, actions, **env_args):
        tokenizer, found = self.tokenizer, []

        class Engine:
            async def agenerate(self, request):
                assert request.gconfig.n_samples == 1
                assert request.gconfig.stop_token_ids == [tokenizer.stop_id]
                ids = answer_of(tokenizer, request.input_ids, actions)
                return types.SimpleNamespace(
                    output_tokens=ids, output_logprobs=[-0.5] * len(ids),
                    output_versions=[3] * len(ids), stop_reason="stop",
                )  # fmt: skip

        workflow = self.areal.AgentGymWorkflow(
            ENV_ID, tokenizer, Generation(), 5000, action_format="bare", **env_args
        )
        episodes = []
        play = workflow._player.play

        async def kept(row, ask):
            episodes.append(await play(row, ask))
            return episodes[-1]

        workflow._player.play = kept
        for job in jobs:
            row = {"task_id": job.task_id, "seed": job.seed}
            result = asyncio.run(workflow.arun_episode(Engine(), row))
            episode = episodes[-1]
            if result is None:  # rejected: what AReaL does with it is its own affair
                found.append(Played(0.0, True, True, str(episode.stop_reason)))
                continue
            assert {value.shape[0] for value in result.values()} == {1}
            widths = {value.shape[1] for name, value in result.items() if name != "rewards"}
            assert len(widths) == 1
            assert result["attention_mask"].all()
            mask = result["loss_mask"][0].bool()
            assert (result["versions"][0][mask] == 3).all()
            assert (result["versions"][0][~mask] == -1).all()
            assert (result["logprobs"][0][mask] == -0.5).all()
            assert result["input_ids"].dtype == torch.int32
            start = int(mask.int().argmax())
            ids = result["input_ids"][0].tolist()
            found.append(
                played(
                    float(result["rewards"][0]), str(episode.stop_reason), episode.truncated,
                    ids[:start], ids[start:], mask[start:].tolist(), tokenizer,
                )
            )  # fmt: skip
        return found


# slime --------------------------------------------------------------------------------------------


@dataclass
class Sample:
    """slime's ``Sample``."""

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"

    metadata: dict[str, Any]
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    reward: float | None = None
    status: Status = Status.PENDING


class TestSlime(TokenBattery, DeadlineBattery):
    @pytest.fixture(autouse=True)
    def _library(self, monkeypatch, tokenizer):
        self.tokenizer = tokenizer
        self.actions: list[str] = []
        version = importlib.metadata.version
        monkeypatch.setattr(
            "adapters.versions.version", lambda name: "0.3.1" if name == "slime" else version(name)
        )

        async def post(url, payload):
            assert url == "http://127.0.0.1:30000/generate"
            assert payload["return_logprob"] is True
            assert payload["sampling_params"]["temperature"] == 1.0
            ids = answer_of(tokenizer, payload["input_ids"], self.actions)
            pairs = [[-0.5, token, None] for token in ids]
            return {
                "text": "",
                "meta_info": {"output_token_logprobs": pairs, "finish_reason": {"type": "stop"}},
            }

        rollout = types.ModuleType("slime.rollout.sglang_rollout")
        rollout.GenerateState = lambda args: types.SimpleNamespace(tokenizer=tokenizer)
        net = types.ModuleType("slime.utils.http_utils")
        net.post = post
        for name in ("slime", "slime.rollout", "slime.utils"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, "slime.rollout.sglang_rollout", rollout)
        monkeypatch.setitem(sys.modules, "slime.utils.http_utils", net)

    def play(self, jobs, actions, **env_args):
        from adapters.slime import make_generate

        self.actions = list(actions)
        generate = make_generate(
            ENV_ID, turn_tokens=32, max_tokens=5000, action_format="bare", **env_args
        )
        args = types.SimpleNamespace(sglang_router_ip="127.0.0.1", sglang_router_port=30000)
        found = []
        for job in jobs:
            sample = Sample({"task_id": job.task_id, "seed": job.seed, "own": 1})
            sample = asyncio.run(generate(args, sample, {"temperature": 1.0}))
            reason = sample.metadata["stop_reason"]
            failed = reason == "infra_error"
            assert sample.status is (Sample.Status.ABORTED if failed else Sample.Status.COMPLETED)
            assert sample.metadata["own"] == 1
            count = sample.response_length
            assert count == len(sample.loss_mask) == len(sample.rollout_log_probs)
            assert any(sample.loss_mask) is not failed
            prompt, ids = sample.tokens[:-count], sample.tokens[-count:]
            truncated = sample.metadata["truncated"] or failed
            found.append(
                played(
                    sample.reward, reason, truncated, [] if failed else prompt, ids,
                    sample.loss_mask, self.tokenizer,
                )
            )  # fmt: skip
        return found


# NeMo Gym -----------------------------------------------------------------------------------------


def test_another_slime_is_refused(monkeypatch):
    from adapters.slime import make_generate

    with pytest.raises(ImportError, match=r"'slime' is not installed; .* >=0\.3,<0\.4"):
        make_generate(ENV_ID, turn_tokens=8, max_tokens=99)
    monkeypatch.setattr("adapters.versions.version", lambda name: "0.4.0")
    with pytest.raises(ImportError, match=r"slime 0\.4\.0 .* tested with >=0\.3,<0\.4"):
        make_generate(ENV_ID, turn_tokens=8, max_tokens=99)


class Agent:
    """Asks as NeMo Gym's ``gymnasium_agent`` does: JSON, and the server's cookies given back."""

    def __init__(self, server):
        self.base = f"http://127.0.0.1:{server.server_address[1]}"
        self.cookies: dict[str, str] = {}

    def post(self, path, **body):
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        request = urllib.request.Request(
            self.base + path,
            json.dumps({"responses_create_params": {"input": []}, **body}).encode(),
            {"Content-Type": "application/json", "Cookie": cookie},
        )  # fmt: skip
        with urllib.request.urlopen(request) as reply:
            told = http.cookies.SimpleCookie(reply.headers["Set-Cookie"])
            self.cookies |= {name: morsel.value for name, morsel in told.items()}
            return json.load(reply)

    def step(self, text):
        parts = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"type": "message", "role": "assistant", "content": parts, "status": "completed"}
        thought = {"type": "reasoning", "summary": []}
        return self.post("/step", response={"output": [thought, message]})


@pytest.fixture
def serve():
    servers = []

    def start(**settings):
        servers.append(make_server(ENV_ID, action_format="bare", **settings))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class TestNeMoGym(DeadlineBattery):
    @pytest.fixture(autouse=True)
    def _server(self, _ledger, serve):
        self.serve = serve

    def play(self, jobs, actions, **env_args):
        server, found = self.serve(**env_args), []
        for job in jobs:
            agent = Agent(server)
            first = agent.post("/reset", task_id=job.task_id, seed=job.seed)
            total = 0.0
            for action in actions:
                told = agent.step(action)
                total += told["reward"]
                if told["terminated"] or told["truncated"]:
                    break
            done = told["terminated"] or told["truncated"]
            reason = told["info"]["stop_reason"]
            found.append(Played(total, done, told["truncated"], reason, first["observation"]))
        return found


def test_nemo_gym_bounds_its_sessions_and_says_what_is_wrong(serve):
    server = serve(max_sessions=1)
    first, second = Agent(server), Agent(server)
    first.post("/reset", task_id="train-0", seed=1)
    second.post("/reset", task_id="train-0", seed=1)
    assert second.step("say a")["observation"].startswith("You said a.")
    for call, status in (
        (lambda: first.step("say b"), 400),  # ended: there is room for one
        (lambda: second.post("/verify"), 404),
        (lambda: second.post("/reset", task_id="nowhere"), 400),
        (lambda: second.post("/step", response={}), 400),
    ):
        with pytest.raises(urllib.error.HTTPError) as told:
            call()
        assert told.value.code == status
        assert json.load(told.value)["detail"]


@pytest.mark.parametrize("body", [b"[1]", b"null", b"[" * 100_000, b"\xff"])
def test_nemo_gym_answers_whatever_it_is_sent(serve, body):
    server = serve()
    request = urllib.request.Request(Agent(server).base + "/reset", body)
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(request, timeout=60)
    agent = Agent(server)
    agent.post("/reset", task_id="train-0", seed=1)
    for output in (None, "x", [1], [{"type": "message", "content": [1]}]):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            agent.post("/step", response={"output": output})
    assert agent.step("say a")["observation"].startswith("You said a.")


def test_nemo_gym_waits_for_no_body_of_negative_length(serve):
    with socket.create_connection(serve().server_address, timeout=60) as wire:
        wire.sendall(b"POST /reset HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n")
        assert b" 400 " in wire.recv(100)


def test_nemo_gym_keeps_no_session_that_could_not_begin(serve):
    server = serve()
    for row in ({"task_id": "nowhere"}, {"split": "nowhere"}, {"seed": "a"}):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            Agent(server).post("/reset", **row)
    assert len(server.sessions._open) == 0
    with pytest.raises(TypeError, match="'nope'"):
        serve(nope=1)


def test_nemo_gym_takes_no_cookie_that_it_did_not_make_and_no_web_page(serve):
    base = Agent(serve()).base
    odd = {"Cookie": 'agentgym_session="a\\012Evil: 1"'}
    with urllib.request.urlopen(urllib.request.Request(base + "/reset", b"{}", odd)) as reply:
        assert reply.headers["Evil"] is None
        assert len(reply.headers.get_all("Set-Cookie")) == 1
    page = urllib.request.Request(base + "/reset", b"{}", {"Origin": "http://evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(page)
