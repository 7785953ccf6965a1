from __future__ import annotations

import asyncio
import json
import os
import runpy
import sys
import threading
import types
from pathlib import Path

import pytest
import verifiers.v1 as vf
from adapter_battery import ENV_ID, BatteryDoors, Job, Played, TokenBattery
from chat_server import Answer, ChatServer, always
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import adapters.verifiers
from adapters.task_rows import task_rows
from adapters.verifiers import AgentGymTaskset, ChatHarness

ROOT = Path(__file__).resolve().parents[3]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Bytes and ChatML's markers, in a folder."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: n for n, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"], chat_template=CHATML,
    )  # fmt: skip
    made.save_pretrained(folder := str(tmp_path_factory.mktemp("tokenizer")))
    return PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.fixture(autouse=True)
def _plugin(monkeypatch):
    """A module as a user writes it."""
    module = types.ModuleType("battery_plugin")
    module.__all__ = adapters.verifiers.__all__
    for name in module.__all__:
        setattr(module, name, getattr(adapters.verifiers, name))
    monkeypatch.setitem(sys.modules, "battery_plugin", module)


def make_env(env_args, **settings):
    taskset = {"id": "battery_plugin", "env_id": ENV_ID, "env_args": env_args, "num_tasks": 2}
    config = {"taskset": taskset, "action_format": "bare", **settings}
    return vf.load_environment(vf.resolve_env_config(config))


def task_of(env, job):
    task = next(iter(env.taskset))
    return task.with_data(task_id=job.task_id, seed=job.seed)


def episodes(env, client, jobs):
    """The episodes of the jobs, all at once."""

    async def run():
        context = vf.ModelContext(model="tiny", client=client)
        async with env.serving():
            return await asyncio.gather(
                *(env.run_episode(task_of(env, job), context) for job in jobs)
            )

    return asyncio.run(run())


class TestBattery(TokenBattery):
    """With Verifiers' client for training, on an engine that answers as it is told."""

    @pytest.fixture(autouse=True)
    def _tokenizer(self, tokenizer):
        self.tokenizer = tokenizer

    def play(self, jobs, actions, **env_args):
        tokenizer = self.tokenizer

        def generate(number, body):
            said = tokenizer.decode(body["token_ids"]).count("<|im_start|>assistant\n") - 1
            ids = [*tokenizer.encode(actions[said]), tokenizer.eos_token_id]
            content = [{"token": f"token_id:{token}", "logprob": -0.5} for token in ids]
            choice = {
                "index": 0, "token_ids": ids, "finish_reason": "stop",
                "logprobs": {"content": content},
            }  # fmt: skip
            return Answer(body=json.dumps({"request_id": "1", "choices": [choice]}).encode())

        with ChatServer(generate) as server:
            client = vf.TrainClientConfig(
                base_url=server.url, renderer={"name": "default"},
                renderer_model_name=tokenizer.name_or_path,
            )  # fmt: skip
            found = episodes(make_env(env_args), client, jobs)
        return [self.played(episode) for episode in found]

    def played(self, episode):
        if episode.errors:
            assert episode.ok is False
            assert episode.errors[-1].type == "EnvError"
            assert "is broken" in episode.errors[-1].message
            return Played(0.0, True, True, "infra_error")
        (trace,) = episode.traces
        (branch,) = trace.branches
        assert episode.ok
        facts = trace.info["agentgym"]
        assert facts["stop_reason"] == trace.stop_condition
        assert facts["truncated"] is trace.is_truncated is bool(trace.metrics["truncated"])
        ids, mask = branch.token_ids, branch.sampled_mask
        assert {x for x, mine in zip(branch.logprobs, mask, strict=True) if mine} == {-0.5}
        decode = self.tokenizer.decode
        own = [token for token, mine in zip(ids, mask, strict=True) if mine]
        return Played(
            trace.rewards["episode_return"].score, True, trace.is_truncated, trace.stop_condition,
            trace.messages[0].content, ids, mask, decode(own), decode(ids),
        )  # fmt: skip


def completion(text):
    choice = {
        "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text},
    }  # fmt: skip
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    return Answer(body=json.dumps(body).encode())


def test_tasks_are_those_of_the_rows():
    tasks = list(make_env({}).taskset)
    rows = task_rows(ENV_ID, 2)
    assert [(task.data.task_id, task.data.seed) for task in tasks] == [
        (row["task_id"], row["seed"]) for row in rows
    ]
    assert [task.key for task in tasks] == [f"{row['task_id']}#{row['seed']}" for row in rows]
    assert AgentGymTaskset.task_type().data_type().model_validate_json(
        tasks[0].data.model_dump_json()
    ) == tasks[0].data  # fmt: skip


def test_instructions_are_the_system_prompt_and_answers_are_parsed():
    answers = ["<think>Hm.</think><action>say hello</action>", "say what"] * 9
    with ChatServer(lambda number, body: completion(answers[len(body["messages"]) // 2 - 1])) as it:
        client = vf.EvalClientConfig(base_url=it.url, api_key_var="NONE")
        (episode,) = episodes(make_env({}, action_format="tags"), client, [Job("train-0", 1)])
    (trace,) = episode.traces
    assert "exactly one action" in it.seen[0].body["messages"][0]["content"]
    assert it.seen[0].body["messages"][0]["role"] == "system"
    assert [message.role for message in trace.messages[:3]] == ["system", "user", "assistant"]
    assert len(it.seen) == 6
    assert trace.stop_condition == "max_turns"
    assert trace.info["agentgym"]["format_ok"] is False
    assert trace.metrics == {"score": 0.0, "success": 0.0, "truncated": 1.0}


def test_limits_of_the_agent_end_an_episode():
    with ChatServer(lambda number, body: completion("say hello")) as server:
        client = vf.EvalClientConfig(base_url=server.url, api_key_var="NONE")
        env = make_env({}, player={"max_turns": 2})
        (episode,) = episodes(env, client, [Job("train-0", 1)])
    (trace,) = episode.traces
    assert (trace.stop_condition, trace.is_truncated) == ("max_turns", True)
    assert trace.info["agentgym"]["stop_reason"] is None
    assert trace.rewards["episode_return"].score == 0.0


def test_a_model_that_cannot_be_reached_is_the_models_fault():
    with ChatServer(always()) as server:
        server.answer = lambda number, body: Answer(status=400, error={"message": "no such model"})
        client = vf.EvalClientConfig(base_url=server.url, api_key_var="NONE")
        (episode,) = episodes(make_env({}), client, [Job("train-0", 1)])
    assert episode.ok is False
    assert "no such model" in episode.traces[0].last_error.message


def test_an_environment_that_hangs_fails_its_episode(monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(BatteryDoors, "step", lambda self, action: go_on.wait(60))
    with ChatServer(lambda number, body: completion("say hello")) as server:
        client = vf.EvalClientConfig(base_url=server.url, api_key_var="NONE")
        (episode,) = episodes(make_env({}, call_s=0.2), client, [Job("train-0", 1)])
    go_on.set()
    assert episode.ok is False
    assert "did not return within 0.2 s" in episode.errors[-1].message


def test_the_library_finds_the_harness_of_the_plugin():
    env = make_env({})
    assert {type(harness) for harness in env._harnesses.values()} == {ChatHarness}


def test_the_example_runs(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "examples/adapters"))
    with ChatServer(lambda *_: completion("<action>search[red shirt]</action>")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        runpy.run_path(str(ROOT / "examples/adapters/verifiers_webshop.py"), run_name="__main__")
    assert "max_turns" in capsys.readouterr().out
    assert os.environ["OPENAI_BASE_URL"]
