"""Guidance in the environments of the suite, and the algorithms on MathReasoning."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from scripted import ScriptedPolicy
from templates import char_tokenizer
from toy_training import Bench

from adapters.policies.causal_lm import CausalLM
from agentgym.collector import Collector
from agentgym.guidance import Guidance
from agentgym.prompts import make_renderer
from agentgym.trajectory import EpisodeSpec
from trainers.algorithm import Algorithm
from trainers.command_line import with_preset
from trainers.config import TrainConfig
from trainers.g2rpoa import G2RPOA, G2RPOAConfig
from trainers.grpo import GRPO, GRPOConfig
from trainers.li2sao import Li2SAO, Li2SAOConfig
from trainers.lisao import LiSAO, LiSAOConfig
from trainers.setup import Setup, World
from trainers.sft import SFTConfig, demonstrations, learn, new_tiny

TOKENIZER = char_tokenizer("compact")


def world(env: str, *env_arg: str, length: int = 3) -> World:
    return World.open(G2RPOAConfig(env=env, env_arg=env_arg, model="tiny", guidance_length=length))


def play(one: World, specs: list[EpisodeSpec], answer: str) -> list[Any]:
    policy = ScriptedPolicy(TOKENIZER, lambda request, text: answer)
    renderer = make_renderer("conversation", TOKENIZER, one.prompt)
    made = Collector(one.make_env, renderer, policy, None, one.make_expert_env)
    try:
        return asyncio.run(made.collect(specs))
    finally:
        made.close()


@pytest.mark.parametrize("env", ["AlfWorld-v0", "WebShop-v0"])
def test_the_oracle_of_a_world_plays_the_first_turns(env: str) -> None:
    """What it does is what it would do alone, and what is seen is what would be seen."""
    one = world(env, "max_steps=6")
    ids, split = one.training_tasks()
    assert ids is not None
    specs = [
        EpisodeSpec(ids[number], split, 5, "g", number, Guidance(2, 1.0) if number % 2 else None)
        for number in range(4)
    ]
    for spec, played in zip(specs, play(one, specs, "xyzzy"), strict=True):
        replayed = [turn for turn in played.turns if turn.replayed]
        assert len(replayed) == (2 if spec.guidance else 0)
        assert len(played.turns) == 6
        assert all(turn.text == "xyzzy" for turn in played.turns[len(replayed) :])
        env_alone = one.make_expert_env()
        observation, info = env_alone.reset(
            seed=5, options={"task_id": spec.task_id, "split": split}
        )
        for turn in replayed:
            assert turn.observation == observation
            assert turn.action == info["reference"][0]
            assert turn.action_valid
            observation, reward, _, _, info = env_alone.step(turn.action)
            assert turn.reward == reward
        env_alone.close()


def test_guidance_on_mathreasoning_tells_steps_and_no_answer() -> None:
    one = world("MathReasoning-v0", "steps=(2,2)", length=99)
    specs = [
        EpisodeSpec(f"train-{number}", "train", 0, "g", number, Guidance(99, 1.0))
        for number in range(20)
    ]
    for spec, played in zip(specs, play(one, specs, "13; \\boxed{13}"), strict=True):
        (turn,) = played.turns
        env = one.make_env()
        env.reset(options={"task_id": spec.task_id})
        answer = env.unwrapped.task.answer
        env.close()
        told = TOKENIZER.decode(turn.response_ids[: turn.given].tolist())
        assert told.endswith("=")
        assert Fraction(answer) not in [Fraction(number) for number in re.findall(r"\d+", told)]
        assert turn.text == told + "13; \\boxed{13}"
        assert played.details["answer"] == "13"


ALGORITHMS: dict[str, tuple[type[Algorithm], type[TrainConfig], dict[str, Any]]] = {
    "grpo": (GRPO, GRPOConfig, {"group_size": 4}),
    "lisao": (LiSAO, LiSAOConfig, {}),
    "li2sao": (Li2SAO, Li2SAOConfig, {"group_size": 4, "gate_max_steps": 1, "gate_min_steps": 1}),
    "g2rpoa": (G2RPOA, G2RPOAConfig, {"group_size": 4, "guidance_length": 12, "guided_share": 0.5}),
}


@pytest.fixture(scope="module")
def beginner() -> CausalLM:
    """A tiny model that sometimes writes a box."""
    config = with_preset(SFTConfig, "tiny", "tiny")
    changes = {"episodes": 200, "worlds": 1, "slips": 0.0, "noise": 0.0, "updates": 100}
    config = dataclasses.replace(config, env="MathReasoning-v0", **changes)
    one = World.open(config)
    pools = demonstrations(config, one)
    lm = new_tiny(one, pools[-1], 0)
    learn(config, Setup.around(config, one, lm), pools, lambda text: None)
    return lm


@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_steps_on_mathreasoning(
    name: str, beginner: CausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm, kind, changes = ALGORITHMS[name]
    config = kind(
        env="MathReasoning-v0", model="tiny", trajectories=32, minibatches=2, learning_rate=1e-3,
        critic_learning_rate=1e-3, freeze_attention=False, max_action_tokens=24, max_context=256,
        invalid_penalty=0.5, **changes,
    )  # fmt: skip
    monkeypatch.setattr("toy_training.toy_rounds.build_model", lambda *_: beginner.clone())
    one = Bench(algorithm, config)
    before = {key: value.clone() for key, value in one.learner.weights().items()}
    for _ in range(2):
        metrics = one.step()
        assert np.isfinite(metrics["loss_policy"])
        assert metrics["updates_skipped"] == 0
    after = one.learner.weights()
    assert any(not torch.equal(before[key], after[key]) for key in before)
    if name == "g2rpoa":
        assert metrics["guided_frac"] == 0.5
        assert 0 < metrics["given_mean"] <= 12
    if name == "li2sao":
        assert metrics["switch_step"] == 1
    one.close()
