from __future__ import annotations

import gc
import json
import pickle
import runpy
import sys
from pathlib import Path

import pytest
import torch
import trl
from adapter_battery import ENV_ID, LEDGER, SPEC, DeadlineBattery, Played, TokenBattery
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

import agentgym
from adapters.policies.tiny import build_tiny
from adapters.policies.tokenization import build_tokenizer
from adapters.task_rows import task_rows
from adapters.trl import EnvironmentTool, Rollouts, environment_factory, episode_reward
from agentgym.info import ABORTED

ROOT = Path(__file__).resolve().parents[3]
torch.set_num_threads(1)
agentgym.register(SPEC)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


def settings(folder, **changes):
    return GRPOConfig(
        output_dir=str(folder), use_cpu=True, bf16=False, report_to=[], logging_steps=1,
        save_strategy="no", disable_tqdm=True, gradient_checkpointing=False,
        **({
            "per_device_train_batch_size": 4, "num_generations": 4, "max_steps": 2,
            "max_completion_length": 256, "learning_rate": 1e-2,
        } | changes),
    )  # fmt: skip


@pytest.fixture
def tiny():
    words = ["open", "say", "hello", "door", "doors", "wrong", "prize", "train", "Find the prize."]
    return build_tiny(build_tokenizer(words))


def make_trainer(lm, rollouts, rows, folder, **changes):
    return GRPOTrainer(
        model=lm.model,
        processing_class=lm.tokenizer,
        reward_funcs=episode_reward,
        rollout_func=rollouts,
        train_dataset=Dataset.from_list(rows),
        args=settings(folder, **changes),
    )


def script(trainer, actions):
    """Answers in place of the model: the n-th action after n answers."""
    tokenizer = trainer.processing_class
    end = tokenizer.eos_token_id

    def generate(prompts, images, multimodal, num_generations):
        assert num_generations == 1
        answers = [
            [*tokenizer.encode(actions[ids.count(end)], add_special_tokens=False), end]
            for ids in prompts
        ]
        return answers, [[-0.5] * len(answer) for answer in answers]

    trainer._generate_single_turn = generate


class TestRolloutFunc(TokenBattery, DeadlineBattery):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path, tiny):
        self.folder, self.lm = tmp_path, tiny

    def play(self, jobs, actions, **env_args):
        rows = [{"task_id": job.task_id, "seed": job.seed} for job in jobs]
        rows = [{"prompt": json.dumps(row), **row} for row in rows]
        rollouts = Rollouts(ENV_ID, action_format="bare", **env_args)
        trainer = make_trainer(self.lm, rollouts, rows, self.folder)
        script(trainer, actions)
        prompts = [row["prompt"] for row in rows]
        prompt_ids, ids, masks, _, logprobs, extra, *_ = trainer._generate(prompts)
        decode = self.lm.tokenizer.decode
        played = []
        for place in range(len(jobs)):
            own = [token for token, mine in zip(ids[place], masks[place], strict=True) if mine]
            assert len(ids[place]) == len(logprobs[place])
            assert {x for x, mine in zip(logprobs[place], masks[place], strict=True) if mine} <= {
                -0.5
            }
            reward = extra["episode_return"][place]
            lost = extra["stop_reason"][place] == "infra_error"
            assert lost is (reward is None)
            first = (
                None
                if "reset" in env_args.get("faults", {}).values()
                else decode(prompt_ids[place])
            )
            played.append(
                Played(
                    reward or 0.0,
                    True,
                    extra["truncated"][place] or lost,
                    extra["stop_reason"][place],
                    first,
                    ids[place],
                    [bool(mine) for mine in masks[place]],
                    decode(own),
                    decode(ids[place]),
                )
            )
        return played


class TestEnvironmentTool(DeadlineBattery):
    """The class that TRL drives, as TRL drives it."""

    knows_truncation = False

    def play(self, jobs, actions, **env_args):
        factory = pickle.loads(pickle.dumps(environment_factory(ENV_ID, **env_args)))
        tool, played = factory(), []
        for job in jobs:
            first = tool.reset(task_id=job.task_id, seed=job.seed, prompt="", other=3)
            said = ""
            for action in actions:
                said = tool.act(action)
                if "The episode is over" in said:
                    break
            assert tool.act("say more") == "The episode is over."
            reason = said.rpartition(": ")[2].removesuffix(".")
            reward = tool.get_reward()
            assert (reward is None) is (reason in ABORTED)
            played.append(Played(reward or 0.0, "over" in said, None, reason, first or None))
        del tool
        gc.collect()  # TRL never closes its environments
        return played


def test_the_model_can_call_one_method_and_nothing_else():
    public = [name for name in vars(EnvironmentTool) if not name.startswith("_")]
    assert public == ["reset", "act", "get_reward"]


def test_episodes_stay_within_the_completion_length(tmp_path, tiny):
    rows = task_rows(ENV_ID, 2)
    rollouts = Rollouts(ENV_ID, action_format="bare")
    trainer = make_trainer(tiny, rollouts, rows, tmp_path, max_completion_length=60)
    script(trainer, ["say hello"] * 6)
    _, ids, *_, extra, _, _ = trainer._generate([row["prompt"] for row in rows])
    assert max(map(len, ids)) <= 60
    assert extra["stop_reason"] == ["max_tokens"] * 2
    assert extra["truncated"] == [True] * 2


def test_the_real_trainer_samples_learns_and_leaves_lost_episodes_out(tmp_path, tiny):
    """Two steps with the model's own tokens; one task's environment fails at each step."""
    rows = [row for row in task_rows(ENV_ID, 40) if row["task_id"] in ("train-0", "train-1")]
    rollouts = Rollouts(
        ENV_ID, turn_tokens=4, action_format="bare", faults={"train-1": "step"}, max_steps=2
    )
    seen = []

    def bonus(completion_ids, stop_reason, success, **_):
        seen.extend(stop_reason)
        return [None if reason == "infra_error" else float(len(ids) % 3)
                for ids, reason in zip(completion_ids, stop_reason, strict=True)]  # fmt: skip

    trainer = GRPOTrainer(
        model=tiny.model, processing_class=tiny.tokenizer, reward_funcs=[episode_reward, bonus],
        rollout_func=rollouts, train_dataset=Dataset.from_list(rows),
        args=settings(tmp_path, max_steps=4),
    )  # fmt: skip
    before = {name: value.clone() for name, value in tiny.model.state_dict().items()}
    trainer.train()
    assert any(
        not torch.equal(before[name], value) for name, value in tiny.model.state_dict().items()
    )
    assert {"max_turns", "infra_error"} <= set(seen)
    for group in range(0, len(rollouts.trajectories), 4):
        members = rollouts.trajectories[group : group + 4]
        assert len({(item.spec.seed, item.task_id) for item in members}) == 1
    assert len([row for row in trainer.state.log_history if "loss" in row]) == 4


def byte_tokenizer():
    """Bytes, Qwen's markers, and the template of TRL for tool calls."""
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: n for n, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )  # fmt: skip
    assert set(specials) <= set(tokenizer.all_special_tokens)
    templates = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen2_5.jinja").read_text("utf-8")
    return tokenizer


def test_the_real_trainer_calls_the_environment_as_a_tool(tmp_path):
    tokenizer = byte_tokenizer()
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1,
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip
    rows = [
        {**row, "prompt": [{"role": "user", "content": "Play. "}]} for row in task_rows(ENV_ID, 4)
    ]
    LEDGER.__init__()
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        environment_factory=environment_factory(ENV_ID),
        train_dataset=Dataset.from_list(rows),
        args=settings(tmp_path, max_steps=1, max_completion_length=2000),
    )
    end = tokenizer.eos_token_id

    def generate(prompts, images, multimodal, num_generations, has_tool_images=False):
        answers = []
        for ids in prompts:
            text = tokenizer.decode(ids)
            number = text.count("</tool_call>") - text.count("\n</tool_call><|im_end|>")
            number = text.count('"act", "arguments"')
            call = json.dumps({"name": "act", "arguments": {"action": f"open {number + 1}"}})
            over = "The episode is over" in text
            answer = "Done." if over else f"<tool_call>\n{call}\n</tool_call>"
            answers.append([*tokenizer.encode(answer), end])
        return answers, None

    trainer._generate_single_turn = generate
    trainer.train()
    (log,) = [row for row in trainer.state.log_history if "reward" in row]
    assert log["rewards/EnvironmentTool/mean"] == 1.0
    assert log["tools/failure_frequency"] == 0.0
    assert sum(LEDGER.resets.values()) == 4
    assert len(LEDGER.resets) == 1  # one task and seed for the group
    assert ("open 1" in LEDGER.actions) is True


def test_the_example_trains(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["trl_webshop.py", "2"])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples/adapters/trl_webshop.py"), run_name="__main__")
    assert "reward" in capsys.readouterr().out


def test_wrong_arguments_and_prompts_are_told(tiny, tmp_path):
    with pytest.raises(TypeError, match="'nope'"):
        Rollouts(ENV_ID, nope=1)
    rollouts = Rollouts(ENV_ID, action_format="bare")
    trainer = make_trainer(tiny, rollouts, [{"prompt": "Buy a shirt."}], tmp_path)
    with pytest.raises(ValueError, match="got 'Buy a shirt"):
        trainer._generate(["Buy a shirt."])
    with pytest.raises(KeyError, match="unknown task_id 'x'"):
        trainer._generate(['{"task_id": "x", "seed": 1}'])
