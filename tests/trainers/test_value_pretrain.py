"""Value pretraining: what the critic learns, on what it is judged, and what it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy_rounds
from toy_training import SMALL, assert_same, make_config, make_trainer, rollout

from agentgym.info import StopReason
from trainers.critic import Critic, read_critic_facts
from trainers.lisao import LiSAO, LiSAOConfig
from trainers.setup import Setup, World
from trainers.value_pretrain import (
    ValuePretrainConfig,
    _cursors,
    main,
    monte_carlo_credit,
    pretrain,
)


def config(folder: Path | None, **changes: Any) -> ValuePretrainConfig:
    names = ("env", "model", "action_format", "slots", "max_action_tokens", "max_context")
    base = {name: SMALL[name] for name in names}
    base |= {"episodes": 24, "held_out": 8, "batch": 8, "epochs": 2, "learning_rate": 1e-2}
    base |= {"freeze_attention": False, "slots": 16}
    return ValuePretrainConfig(**(base | {"out": folder} | changes))


def run(settings: ValuePretrainConfig, said: list[str] | None = None) -> dict[str, Any]:
    world = World.open(settings)
    setup = Setup.around(settings, world, toy_rounds.build_model())
    return pretrain(settings, setup, (said if said is not None else []).append)


def test_targets_are_monte_carlo_returns() -> None:
    credit = monte_carlo_credit(rollout([2, 0, 1], [0.5, 0.25, 1.0]), 1.0, 0.0)
    assert [t.tolist() for t in credit.targets] == [[1.75, 1.75], [], [1.0]]
    assert [len(a) for a in credit.advantages] == [2, 0, 1]
    credit = monte_carlo_credit(rollout([2, 1], [0.0, 1.0]), 0.5, 0.0)
    assert np.concatenate(credit.targets) == pytest.approx([0.25, 0.5, 1.0])
    # A cut-off episode counts with what it was seen to earn.
    credit = monte_carlo_credit(rollout([1], [0.5], StopReason.MAX_TURNS), 1.0, 0.0)
    assert credit.targets[0].tolist() == [0.5]


def test_tasks_to_judge_by_are_not_learned_from(tmp_path: Path) -> None:
    settings = config(tmp_path)
    learning, judging = _cursors(World.open(settings), settings)
    assert learning.ids
    assert judging.ids
    assert not set(learning.ids) & set(judging.ids)
    assert len(learning.ids) + len(judging.ids) == 12
    assert len(judging.ids) == 3
    again = _cursors(World.open(settings), replace(settings, seed=1))
    assert again[1].ids != judging.ids
    seeds = [{spec.seed for spec in cursor.take(20, 1)} for cursor in (learning, judging)]
    assert not seeds[0] & seeds[1]


def test_a_pretrained_critic_explains_returns_it_has_not_seen(tmp_path: Path) -> None:
    said: list[str] = []
    told = ("told=True",)
    facts = run(config(tmp_path / "critic", episodes=192, held_out=48, env_arg=told), said)
    assert facts["explained_variance_mse"] > 0.5
    assert facts["explained_variance"] >= facts["explained_variance_mse"]
    assert 1 <= facts["best_epoch"] <= 2
    assert (facts["episodes"], facts["held_out"]) == (192, 48)
    assert facts["target_mean"] == pytest.approx(facts["value_mean"], abs=0.15)
    assert read_critic_facts(tmp_path / "critic") == json.loads(
        json.dumps({k: facts[k] for k in facts} | _heading(tmp_path / "critic"))
    )
    assert any("held-out error" in line for line in said)
    # It is what the trainer loads, and it says the same there.
    trainer = make_trainer(
        LiSAO,
        make_config(LiSAOConfig, run_dir=tmp_path / "run", critic=tmp_path / "critic"),
    )
    critic = Critic(toy_rounds.build_model())
    critic.load(tmp_path / "critic", trainer.setup.lm.tokenizer)
    assert_same(dict(critic.state_dict()), dict(trainer.learner.critic.state_dict()))
    assert trainer.run() == 0
    with pytest.raises(ValueError, match=r"--gamma is 0\.9; it must be 1\.0, with which"):
        LiSAOConfig(critic=tmp_path / "critic", gamma=0.9).validate()


def _heading(folder: Path) -> dict[str, Any]:
    written = read_critic_facts(folder)
    return {name: written[name] for name in ("format", "trunk", "vocabulary")}


def test_the_policy_is_not_touched_and_equal_seeds_give_equal_critics(tmp_path: Path) -> None:
    lm = toy_rounds.build_model()
    before = {name: value.clone() for name, value in lm.model.state_dict().items()}
    settings = config(tmp_path / "a")
    pretrain(settings, Setup.around(settings, World.open(settings), lm), lambda text: None)
    assert_same(before, dict(lm.model.state_dict()))
    run(config(tmp_path / "b"))
    run(config(tmp_path / "c", seed=1))
    weights = [(tmp_path / name / "critic.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]


def test_the_best_epoch_is_kept(tmp_path: Path) -> None:
    """With an absurd learning rate nothing is better than the start, which says 0."""
    facts = run(config(tmp_path / "critic", learning_rate=3.0, epochs=1))
    assert facts["best_epoch"] == 0
    critic = Critic(toy_rounds.build_model())
    critic.load(tmp_path / "critic", toy_rounds.build_model().tokenizer)
    assert not critic.head.weight.any()


def test_frozen_attention_is_that_of_the_policy(tmp_path: Path) -> None:
    told = ("told=True",)
    facts = run(config(tmp_path / "critic", freeze_attention=True, env_arg=told, episodes=64))
    assert facts["best_epoch"] > 0
    lm = toy_rounds.build_model()
    critic = Critic(lm)
    critic.load(tmp_path / "critic", lm.tokenizer)
    own = dict(lm.model.base_model.named_parameters())
    for name, value in critic.trunk.named_parameters():
        changed = not torch.equal(value, own[name])
        assert changed == ("self_attn" not in name and "embed" not in name), name


def test_a_fault_in_every_episode_is_an_error(tmp_path: Path) -> None:
    settings = config(tmp_path / "critic", env_arg=("fault=1",), episodes=2, held_out=1, slots=1)
    world = World.open(settings)
    setup = Setup.around(settings, world, toy_rounds.build_model())
    setup.renderer.prompt.first = lambda observation, info: 1 / 0  # type: ignore[method-assign]
    with pytest.raises((ValueError, ZeroDivisionError)):
        pretrain(settings, setup, lambda text: None)
    assert not (tmp_path / "critic").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"out": None}, "--out is None; it must be a folder to write the critic to"),
        ({"episodes": 0}, "--episodes is 0; it must be at least 1"),
        ({"held_out": 0}, "--held-out is 0"),
        ({"epochs": 0}, "--epochs is 0"),
        ({"batch": 0}, "--batch is 0"),
        ({"microbatch_tokens": 0}, "--microbatch-tokens is 0"),
        ({"learning_rate": 0.0}, "--learning-rate is 0.0"),
        ({"grad_clip": float("nan")}, "--grad-clip is nan"),
        ({"weight_decay": -1.0}, "--weight-decay is -1.0"),
        ({"gamma": 1.5}, "--gamma is 1.5; it must be between 0 and 1"),
        ({"adam_betas": (0.9, 1.0)}, "--adam-betas is"),
        ({"slots": 0}, "--slots is 0"),
    ],
    ids=str,
)
def test_bad_values_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        config(tmp_path, **changes).validate()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    with pytest.raises(ValueError, match="a folder that is missing or empty"):
        config(tmp_path).validate()


def test_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        Setup,
        "make",
        classmethod(
            lambda cls, settings, world, say: cls.around(settings, world, toy_rounds.build_model())
        ),
    )
    arguments = [
        *("--env", "toy_rounds:ToyRounds-v0", "--model", "random", "--action-format", "bare"),
        *("--max-action-tokens", "4", "--max-context", "128", "--slots", "16"),
        *("--episodes", "16", "--held-out", "8", "--epochs", "1"),
    ]
    assert main([*arguments, "--out", str(tmp_path / "critic")]) == 0
    assert "explained variance on 8 episodes held out" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--out", str(tmp_path / "critic")])
    assert "missing or empty" in capsys.readouterr().err
    assert main([*arguments, "--out", str(tmp_path / "b"), "--env-arg", "speed=1"]) == 2
    assert "does not suit ToyRounds-v0" in capsys.readouterr().err
