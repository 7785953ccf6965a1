"""verl's own worker of agent loops, with its own configuration; its server is played here."""

from __future__ import annotations

import asyncio
import json
import runpy
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from adapter_battery import ENV_ID, IDLE, LEDGER, SPEC, WINNING, Job, Played, TokenBattery
from hydra import compose, initialize_config_dir
from transformers import LlamaConfig
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.workers.rollout.replica import TokenOutput

import agentgym
from adapters.policies.tokenization import build_tokenizer
from adapters.verl import verl_rows, write_config

ROOT = Path(__file__).resolve().parents[3]
WORDS = ["open", "say", "hello", "door", "doors", "wrong", "prize", "train", "Find the prize."]
torch.set_num_threads(1)
agentgym.register(SPEC)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with what verl reads of a model here: its configuration and its tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = build_tokenizer(WORDS)
    tokenizer.save_pretrained(folder)
    LlamaConfig(vocab_size=len(tokenizer), architectures=["LlamaForCausalLM"]).save_pretrained(
        folder
    )
    return folder


class Server:
    """Answers with the n-th action after n answers; keeps what it was asked."""

    def __init__(self, tokenizer, actions, **changes):
        self.tokenizer, self.actions, self.changes = tokenizer, actions, changes
        self.asked = []

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        assert type(prompt_ids) is list
        await asyncio.sleep(0)
        end = self.tokenizer.eos_token_id
        action = self.actions[prompt_ids.count(end)]
        ids = [*self.tokenizer.encode(action, add_special_tokens=False), end]
        ids = ids[: sampling_params["max_tokens"]]
        self.asked.append((request_id, len(prompt_ids), sampling_params))
        steps = len(self.asked)
        told = {
            "log_probs": [-0.5] * len(ids) if sampling_params["logprobs"] else None,
            "stop_reason": "completed",
            "extra_fields": {"min_global_steps": steps, "max_global_steps": steps},
        }
        return TokenOutput(token_ids=ids, **(told | self.changes))


@pytest.fixture
def collect(model, tmp_path):
    """Has verl play jobs: the batch that its trainer gets, and the server."""

    def run(jobs, actions, *, overrides=(), changes=None, turn_tokens=None, **env_args):
        settings = {"action_format": "bare"}
        path = tmp_path / "loops.yaml"
        write_config(path, ENV_ID, settings=settings, env_args=env_args, turn_tokens=turn_tokens)
        with initialize_config_dir(str(files("verl") / "trainer" / "config"), version_base=None):
            config = compose(
                "ppo_trainer",
                [
                    f"actor_rollout_ref.model.path={model}",
                    f"actor_rollout_ref.rollout.agent.agent_loop_config_path={path}",
                    "actor_rollout_ref.rollout.name=vllm",
                    "actor_rollout_ref.rollout.calculate_log_probs=True",
                    "actor_rollout_ref.rollout.prompt_length=100",
                    "actor_rollout_ref.rollout.response_length=300",
                    *overrides,
                ],
            )
        server = Server(None, actions, **(changes or {}))
        worker = AgentLoopWorker(config, server)
        server.tokenizer = worker.tokenizer
        rows = [
            {
                "agent_name": "agentgym", "index": place,
                "raw_prompt": [{"role": "user", "content": "replaced"}],
                "extra_info": {"task_id": job.task_id, "seed": job.seed},
            }
            for place, job in enumerate(jobs)
        ]  # fmt: skip
        columns = {}
        for name in rows[0]:
            columns[name] = np.empty(len(rows), object)
            columns[name][:] = [row[name] for row in rows]
        batch = DataProto(batch=None, non_tensor_batch=columns, meta_info={"global_steps": 1})
        return asyncio.run(worker.generate_sequences(batch)), server

    return run


class TestBattery(TokenBattery):
    @pytest.fixture(autouse=True)
    def _collect(self, _ledger, collect):
        self.collect = collect

    def play(self, jobs, actions, **env_args):
        out, server = self.collect(jobs, actions, **env_args)
        decode, tensors, told = server.tokenizer.decode, out.batch, out.non_tensor_batch
        played = []
        for place in range(len(jobs)):
            there = tensors["attention_mask"][place, 100:].bool()
            before = tensors["attention_mask"][place, :100].bool()
            prompt = tensors["prompts"][place][before].tolist()
            ids = tensors["responses"][place][there].tolist()
            mask = tensors["response_mask"][place][there].bool()
            logprobs = tensors["rollout_log_probs"][place][there]
            failed = bool(told["failed"][place])
            reason = told["stop_reason"][place]
            assert failed is (reason == "infra_error")
            if failed:
                assert not mask.any()
            else:
                assert set(logprobs[mask].tolist()) == {-0.5}
                assert told["min_global_steps"][place] <= told["max_global_steps"][place]
            own = [token for token, mine in zip(ids, mask, strict=True) if mine]
            played.append(
                Played(
                    float(tensors["rm_scores"][place].sum()), True,
                    bool(told["truncated"][place]) or failed, reason, decode(prompt), ids,
                    mask.tolist(), decode(own), decode(ids),
                )
            )  # fmt: skip
        return played


def test_an_episode_stays_within_the_response(collect):
    """What the environment says counts too; the last answer is cut to what is left."""
    job = [Job("train-0", 5)]
    whole, _ = collect(job, IDLE)
    length = int(whole.batch["response_mask"].shape[1])
    long = int(whole.batch["attention_mask"][0, 100:].sum())
    assert long < length == 300
    limit = f"actor_rollout_ref.rollout.response_length={long - 2}"
    out, server = collect(job, IDLE, overrides=[limit])
    assert out.batch["responses"].shape[1] == long - 2
    assert int(out.batch["attention_mask"][0, 100:].sum()) <= long - 2
    assert out.non_tensor_batch["stop_reason"][0] in ("context_overflow", "max_turns")
    first = server.asked[0][1]
    assert all(asked[1] + asked[2]["max_tokens"] <= first + long - 2 for asked in server.asked)


def test_one_request_id_an_episode_and_verl_s_sampling(collect):
    jobs = [Job("train-0", 5), Job("train-1", 5)]
    sampling = ["actor_rollout_ref.rollout.temperature=0.7"]
    _, server = collect(jobs, IDLE, turn_tokens=7, overrides=sampling)
    assert len({asked[0] for asked in server.asked}) == 2
    assert {asked[2]["temperature"] for asked in server.asked} == {0.7}
    assert {asked[2]["max_tokens"] for asked in server.asked} == {7}


def test_a_prompt_that_is_too_long_is_refused(collect):
    short = ["actor_rollout_ref.rollout.prompt_length=5"]
    with pytest.raises(ValueError, match=r"'train-0'.* tokens, more .*prompt_length=5"):
        collect([Job("train-0", 5)], IDLE, overrides=short)
    assert LEDGER.made == LEDGER.closed


def test_an_aborted_request_ends_one_episode(collect):
    out, _ = collect([Job("train-0", 5)], IDLE, changes={"stop_reason": "aborted"})
    assert not out.batch["response_mask"].any()
    assert float(out.non_tensor_batch["failed"][0]) == 1.0


def test_log_probs_that_were_asked_for_must_come(collect):
    with pytest.raises(ValueError, match="returned 0 logprobs for"):
        collect([Job("train-0", 5)], WINNING, changes={"log_probs": None})
    off = ["actor_rollout_ref.rollout.calculate_log_probs=False"]
    out, _ = collect([Job("train-0", 5)], WINNING, overrides=off)
    assert "rollout_log_probs" not in out.batch
    assert float(out.batch["rm_scores"].sum()) == 1.0


def test_rows_hold_what_verl_reads_of_them():
    rows = verl_rows(ENV_ID, 3, "doors", seed=4)
    assert [row["extra_info"]["seed"] for row in rows] == [4, 5, 6]
    for place, row in enumerate(rows):
        named = {name: row["extra_info"][name] for name in ("task_id", "seed")}
        assert json.loads(row["prompt"][0]["content"]) == named
        assert (row["agent_name"], row["extra_info"]["index"]) == ("doors", place)
        assert {"data_source", "reward_model"} <= set(row)


def test_the_example_writes_what_verl_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples/adapters/verl_webshop.py"), run_name="__main__")
    assert "agent_loop_config_path" in capsys.readouterr().out
    assert json.loads((tmp_path / "agentgym.yaml").read_text())[0]["env_id"] == "WebShop-v0"
    assert (tmp_path / "train.parquet").exists()
