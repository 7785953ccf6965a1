from __future__ import annotations

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from adapter_battery import ENV_ID, IDLE, SPEC, WINNING, DeadlineBattery, Played, TokenBattery
from templates import KEEPING, CharTokenizer
from tensordict import lazy_stack
from torchrl.collectors.llm import LLMCollector
from torchrl.data import LazyStackStorage, ReplayBuffer
from torchrl.modules.llm import TransformersWrapper
from torchrl.modules.llm.policies import Tokens
from torchrl.objectives.llm import GRPOLoss, MCAdvantage

import agentgym
from adapters.policies.tiny import build_tiny
from adapters.policies.tokenization import build_tokenizer
from adapters.task_rows import task_rows
from adapters.torchrl import TokenEnv
from agentgym.info import ABORTED

ROOT = Path(__file__).resolve().parents[3]
torch.set_num_threads(1)
agentgym.register(SPEC)


class Tokenizer(CharTokenizer):
    """With what the adapter reads besides."""

    pad_token_id = 0

    @property
    def eos_token_id(self):
        return self.stop_id


TOKENIZER = Tokenizer(KEEPING["compact"])


def scripted(actions, tokenizer=TOKENIZER):
    """A policy with the keys of TorchRL's wrappers: the n-th action after n answers."""

    def policy(tensordict):
        answered = []
        for prompt in tensordict.get(("tokens", "prompt"), as_list=True):
            text = actions[int((prompt == tokenizer.stop_id).sum())]
            answer = torch.tensor([*tokenizer.encode(text), tokenizer.stop_id])
            whole = torch.cat([prompt, answer])
            answered.append(Tokens(prompt=prompt, response=answer, full=whole))
        tensordict["tokens"] = lazy_stack(answered)
        return tensordict

    return policy


def make(rows, **settings):
    return TokenEnv(ENV_ID, TOKENIZER, rows, action_format="bare", **settings)


def roll(env, actions, steps):
    """Turn for turn, with TorchRL's own resets in between; (num_envs, steps)."""
    policy = scripted(actions)
    return env.rollout(steps, policy, break_when_any_done=False, return_contiguous=False)


def reasons(rolled, place):
    return [row["next", "stop_reason"] for row in rolled[place].unbind(0)]


class TestBattery(TokenBattery, DeadlineBattery):
    resets_by_itself = True

    def play(self, jobs, actions, **env_args):
        rows = [{"task_id": job.task_id, "seed": job.seed} for job in jobs]
        env = make(rows, num_envs=len(rows), **env_args)
        rolled = roll(env, actions, len(actions))
        env.close()
        played = []
        for place in rolled.unbind(0):
            turns = place.unbind(0)
            ends = [number for number, turn in enumerate(turns) if turn["next", "done"]]
            turns = turns[: ends[0] + 1]
            first, end = turns[0]["tokens", "prompt"], turns[-1]["next"]
            ids, mask = end["tokens", "prompt"], end["masks", "all_assistant_mask"]
            own = torch.cat([turn["tokens", "response"] for turn in turns])
            assert torch.equal(ids[mask], own)
            for turn, after in itertools.pairwise(turns):
                whole = torch.cat([turn["tokens", "prompt"], turn["tokens", "response"]])
                assert torch.equal(after["tokens", "prompt"][: len(whole)], whole)
                assert after["masks", "all_attention_mask"].all()
            assert bool(end["failed"]) is (end["stop_reason"] in ABORTED)
            assert bool(end["success"]) is (end["stop_reason"] == "solved")
            assert bool(end["done"]) is bool(end["terminated"] | end["truncated"])
            assert not any(turn["stop_reason"] for turn in turns)
            assert "reward" not in turns[0]
            played.append(
                Played(
                    float(sum(turn["next", "reward"] for turn in turns)),
                    bool(end["done"]),
                    bool(end["truncated"]),
                    end["stop_reason"],
                    TOKENIZER.decode(first.tolist()),
                    ids[len(first) :].tolist(),
                    mask[len(first) :].tolist(),
                    TOKENIZER.decode(ids[mask].tolist()),
                    TOKENIZER.decode(ids.tolist()),
                )
            )
        return played


def test_each_row_is_played_as_often_as_the_group_is_large():
    """Whichever place becomes free takes the next member."""
    rows = [{"task_id": f"train-{number}", "seed": number} for number in range(3)]
    env = make(rows, num_envs=2, group_size=3, max_steps=2)
    rolled = roll(env, IDLE, 10)
    firsts = {}
    for place in rolled.unbind(0):
        for turn in place.unbind(0)[::2]:  # two turns an episode
            text = TOKENIZER.decode(turn["tokens", "prompt"].tolist())
            firsts.setdefault(int(turn["group"]), []).append(text)
    assert sorted(map(len, firsts.values())) == [1, 3, 3, 3]
    assert all(len(set(texts)) == 1 for texts in firsts.values())
    assert firsts[3][0] == firsts[0][0]  # after the last row comes the first again
    env.close()


def test_a_seed_draws_the_order_of_the_rows():
    rows = [{"task_id": f"train-{number}", "seed": number} for number in range(8)]
    env, firsts = make(rows, num_envs=8), []
    for seed in (None, 3, 3, 4):
        if seed is not None:
            env.set_seed(seed)
        prompts = env.reset().get(("tokens", "prompt"), as_list=True)
        firsts.append([TOKENIZER.decode(ids.tolist()) for ids in prompts])
    assert firsts[1] == firsts[2]
    assert len({tuple(found) for found in firsts}) == 3
    assert all(sorted(found) == sorted(firsts[0]) for found in firsts)
    env.close()


def test_an_episode_whose_next_prompt_is_too_long_is_cut_off():
    rows = [{"task_id": "train-0", "seed": 5}]
    whole = roll(make(rows), IDLE, 3)
    lengths = [len(turn["tokens", "prompt"]) for turn in whole[0].unbind(0)]
    env = make(rows, max_prompt_tokens=lengths[2] - 1)
    cut = roll(env, IDLE, 2)
    assert reasons(cut, 0) == ["", "max_tokens"]
    assert bool(cut[0, 1]["next", "truncated"])
    last = cut[0, 1]
    assert torch.equal(last["next", "tokens", "prompt"], last["tokens", "full"])
    env.close()
    short = make(rows, max_prompt_tokens=lengths[0] - 1)
    with pytest.raises(ValueError, match=rf"'train-0' has {lengths[0]} tokens, more than max_pro"):
        short.reset()
    short.close()


def test_an_answer_without_its_last_token_is_read_all_the_same():
    env = make([{"task_id": "train-0", "seed": 5}])
    seen = env.reset()
    answer = torch.tensor(TOKENIZER.encode("say hello"))
    seen["tokens"] = lazy_stack([Tokens(prompt=seen[0]["tokens", "prompt"], response=answer)])
    after = TOKENIZER.decode(env.step(seen)[0]["next", "tokens", "prompt"].tolist())
    assert "say hello<eos>You said hello." in after
    env.close()


def test_what_cannot_work_is_refused():
    rows = task_rows(ENV_ID, 1)
    for given, changes in ((rows, {"num_envs": 0}), (rows, {"group_size": 0}), ([], {})):
        with pytest.raises(ValueError, match=r"at least one, got \d rows, num_envs=\d, group_size"):
            make(given, **changes)
    with pytest.raises(ValueError, match="token 0 is the padding and ends answers"):
        make(rows, stop_token_ids=[0])


def test_a_real_model_is_collected_from_and_learns():
    """TorchRL's collector, grouping and loss, whose mask is exactly what was sampled."""
    torch.manual_seed(0)
    words = ["open", "say", "hello", "door", "doors", "wrong", "prize", "train", "Find the prize."]
    lm = build_tiny(build_tokenizer(words))
    lm.model.eval()
    rows = task_rows(ENV_ID, 20)
    env = TokenEnv(
        ENV_ID, lm.tokenizer, rows, num_envs=4, group_size=4, action_format="bare", max_steps=3
    )
    shared = {"tokenizer": lm.tokenizer, "input_mode": "tokens"}
    sampling = {"max_new_tokens": 4, "do_sample": True}
    policy = TransformersWrapper(lm.model, generate_kwargs=sampling, **shared)
    scorer = TransformersWrapper(lm.model, generate=False, **shared)
    collector = LLMCollector(
        env, policy=policy, dialog_turns_per_batch=24, total_dialog_turns=24,
        yield_completed_trajectories=True,
    )  # fmt: skip
    advantage = MCAdvantage(4, prompt_key="group", trajectory_return="sum")
    buffer = ReplayBuffer(storage=LazyStackStorage(100), batch_size=8, transform=advantage)
    (batch,) = list(collector)
    assert bool(batch["next", "done"].any())
    assert {row["next", "stop_reason"] for row in batch.unbind(0)} == {"", "max_turns"}
    with torch.no_grad():
        batch["log_probs"] = scorer(batch.copy())["log_probs"]
    # The rewards of doors are zero for a model that knows nothing.
    batch["next", "reward"] = torch.rand(batch["next", "reward"].shape)
    buffer.extend(batch)
    assert len(buffer) >= 12
    sample = buffer.sample()
    mask = scorer.get_dist(sample.copy(), mask_key=("masks", "all_attention_mask")).mask
    lengths = [len(row["tokens", "response"]) for row in sample.unbind(0)]
    assert mask.sum(-1).tolist() == [len(row["tokens", "full"]) for row in sample.unbind(0)]
    loss_module = GRPOLoss(scorer, masking_strategy="sft")
    loss = loss_module(sample)
    assert float(loss.kl_approx) == pytest.approx(0.0, abs=1e-6)
    assert loss_module.actor_network._get_sft_dist(sample).mask.sum(-1).tolist() == lengths
    loss.loss_objective.backward()
    assert any(
        weight.grad is not None and float(weight.grad.abs().sum()) > 0
        for weight in lm.model.parameters()
    )
    collector.shutdown()
    env.close()


def test_the_log_prob_of_first_tokens_has_to_be_computed_again():
    """What the documentation says of the tested version; look at it again with the next."""
    torch.manual_seed(0)
    lm = build_tiny(build_tokenizer(["open", "door"]))
    env = TokenEnv(ENV_ID, lm.tokenizer, task_rows(ENV_ID, 1), action_format="bare")
    shared = {"tokenizer": lm.tokenizer, "input_mode": "tokens"}
    sampling = {"max_new_tokens": 4, "do_sample": True}
    seen = TransformersWrapper(lm.model.eval(), generate_kwargs=sampling, **shared)(env.reset())
    scorer = TransformersWrapper(lm.model, generate=False, **shared)
    with torch.no_grad():
        scored = scorer(seen.copy())[0]["log_probs", "full"]
    recorded = seen[0]["log_probs", "response"]
    assert float(recorded[0]) == 0.0
    assert float(scored[-len(recorded)]) < -0.1
    np.testing.assert_allclose(recorded[1:], scored[1 - len(recorded) :], atol=1e-5)
    env.close()


def test_the_example_runs(capsys):
    runpy.run_path(str(ROOT / "examples/adapters/torchrl_webshop.py"), run_name="__main__")
    assert "turns" in capsys.readouterr().out


def test_winning_actions_win_through_the_collector():
    """Completed episodes come out of TorchRL's collector whole."""
    env = make([{"task_id": "train-0", "seed": 5}], num_envs=2)
    collector = LLMCollector(
        env, policy=scripted(WINNING), dialog_turns_per_batch=4, total_dialog_turns=4,
        yield_completed_trajectories=True,
    )  # fmt: skip
    (batch,) = list(collector)
    assert float(batch["next", "reward"].sum()) == float(batch["next", "done"].sum())
    assert bool(batch[-1]["next", "success"])
    collector.shutdown()
    env.close()
