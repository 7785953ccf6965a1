"""What the configurations refuse, what they say then, and how the command line is read."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import agentgym
from trainers.blpo import BLPOConfig
from trainers.command_line import parse_args, with_preset
from trainers.config import PlayConfig, TrainConfig, parse_env_args
from trainers.g2rpoa import G2RPOAConfig
from trainers.gigpo import GiGPOConfig
from trainers.grpo import GRPOConfig
from trainers.li2sao import Li2SAOConfig
from trainers.lisao import LiSAOConfig
from trainers.run_dir import RunDir
from trainers.sft import SFTConfig

COMMON: list[tuple[dict[str, Any], str]] = [
    ({"slots": 0}, "--slots is 0; it must be at least 1"),
    ({"max_action_tokens": 0}, "--max-action-tokens is 0"),
    ({"threads": 0}, "--threads is 0"),
    ({"seed": -1}, "--seed is -1; it must be 0 or more"),
    ({"window": -1}, "--window is -1"),
    ({"temperature": 0.0}, "--temperature is 0.0; it must be a finite number above 0"),
    ({"temperature": math.inf}, "--temperature is inf"),
    ({"invalid_penalty": -0.1}, "--invalid-penalty is -0.1"),
    ({"turn_deadline": 0.0}, "--turn-deadline is 0.0"),
    ({"episode_deadline": math.nan}, "--episode-deadline is nan"),
    ({"max_context": 1}, "--max-context is 1; it must be at least 2, or None"),
    ({"model": ""}, "--model is ; it must be tiny, a folder, or a hub id"),
    ({"env_arg": ("max_steps",)}, "'max_steps' is not of the form KEY=VALUE"),
    ({"env_arg": ("a=1", "a=2")}, "names 'a' twice"),
    ({"policy": "magic"}, "--policy is magic; it must be one of torch"),
    ({"prompt_mode": "chat"}, "--prompt-mode is chat; it must be one of conversation, windowed"),
    ({"action_format": "json"}, "--action-format is json; it must be one of tags, bare, None"),
    ({"on_rewrite": "ignore"}, "--on-rewrite is ignore"),
    ({"preset": "huge"}, "--preset is huge; it must be one of auto, tiny, paper"),
    ({"steps": 0}, "--steps is 0; it must be at least 1"),
    ({"trajectories": 0}, "--trajectories is 0"),
    ({"epochs": 0}, "--epochs is 0"),
    ({"minibatches": 0}, "--minibatches is 0"),
    ({"microbatch_tokens": 0}, "--microbatch-tokens is 0"),
    ({"critic_updates": 0}, "--critic-updates is 0"),
    ({"eval_episodes": 0}, "--eval-episodes is 0"),
    ({"checkpoint_every": 0}, "--checkpoint-every is 0"),
    ({"keep_checkpoints": 0}, "--keep-checkpoints is 0"),
    ({"staleness": -1}, "--staleness is -1; it must be 0 or more"),
    ({"warmup_steps": -1}, "--warmup-steps is -1"),
    ({"eval_every": -1}, "--eval-every is -1"),
    ({"logged_trajectories": -1}, "--logged-trajectories is -1"),
    ({"learning_rate": 0.0}, "--learning-rate is 0.0; it must be a finite number above 0"),
    ({"learning_rate": math.nan}, "--learning-rate is nan"),
    ({"critic_learning_rate": -1.0}, "--critic-learning-rate is -1.0"),
    ({"grad_clip": 0.0}, "--grad-clip is 0.0"),
    ({"weight_decay": -1.0}, "--weight-decay is -1.0; it must be a finite number, 0 or more"),
    ({"kl_coef": -1.0}, "--kl-coef is -1.0"),
    ({"entropy_coef": math.inf}, "--entropy-coef is inf"),
    ({"vf_coef": -1.0}, "--vf-coef is -1.0"),
    ({"adam_betas": (0.9, 1.0)}, r"--adam-betas is \(0.9, 1.0\); it must be two numbers in"),
    ({"decay_steps": 0}, "--decay-steps is 0; it must be at least 1, or None"),
    ({"decay_to": 1.5}, "--decay-to is 1.5; it must be between 0 and 1"),
    ({"trajectories": 8, "minibatches": 9}, r"--minibatches is 9; it must be at most --traj"),
    ({"loss": "ppo2"}, "--loss is ppo2; it must be one of ppo, dis, cispo, gspo, reinforce"),
    ({"clip_low": 1.5}, r"--clip-low is 1.5; it must be between 0 and 1 \(the bound is 1 minus"),
    ({"clip_high": -0.1}, "--clip-high is -0.1; it must be 0 or more"),
    ({"loss": "ppo", "dual_clip": 1.0}, "--dual-clip is 1.0; it must be above 1, or None"),
    ({"loss": "dis", "dual_clip": 3.0}, "--dual-clip is 3.0; it must be None with --loss dis"),
    (
        {"loss": "dis", "dis_keep_rejected": False, "aggregation": "seq_mean_token_sum"},
        "--dis-keep-rejected is False; it must be used with --aggregation token_mean",
    ),
    ({"aggregation": "mean"}, "--aggregation is mean; it must be one of token_mean"),
    ({"aggregation": "constant"}, "--constant-length is None; it must be at least 1 with --aggr"),
    ({"correction": "mask"}, "--correction is mask; it must be used with --old-logprobs recomp"),
    (
        {"correction_low": 3.0},
        r"--correction-low is 3.0; it must be between 0 and --correction-high \(2.0\)",
    ),
    ({"correction_low": math.nan}, "--correction-low is nan"),
    ({"kl_kind": "k1", "kl_coef": 0.1}, "--kl-kind is k1; it must be k2 or k3 in the loss"),
    ({"kl_kind": "k4"}, "--kl-kind is k4; it must be one of k1, k2, k3"),
    ({"kl_in": "both"}, "--kl-in is both; it must be one of loss, reward"),
    ({"on_length_limit": "drop"}, "--on-length-limit is drop; it must be one of keep, mask"),
    ({"value_clip": 0.0}, "--value-clip is 0.0; it must be a number above 0, or None"),
    ({"end_max_turns": "fail"}, "--end-max-turns is fail; it must be one of bootstrap, zero, d"),
    ({"critic_trunk": "shared"}, "--critic-trunk is shared; it must be used with --freeze-att"),
    (
        {"critic_trunk": "shared", "critic_updates": 1, "freeze_attention": True},
        "actor and critic are one network with one optimiser",
    ),
    ({"resume": Path("/nowhere")}, "--resume is /nowhere; it must be an existing folder"),
    ({"critic": Path("/nowhere")}, "--critic is /nowhere, which has no critic.safetensors"),
]
OWN: list[tuple[type[TrainConfig], dict[str, Any], str]] = [
    (GRPOConfig, {"group_size": 1}, "--group-size is 1; it must be at least 2: advantages"),
    (GRPOConfig, {"group_size": 5}, r"--trajectories is 128; it must be a multiple of --group-s"),
    (GRPOConfig, {"adv_ddof": 2}, "--adv-ddof is 2; it must be 0 or 1"),
    (GRPOConfig, {"adv_eps": -1.0}, "--adv-eps is -1.0"),
    (GRPOConfig, {"adv_std": "tokens"}, "--adv-std is tokens; it must be one of none, group, b"),
    (GRPOConfig, {"adv_center": "median"}, "--adv-center is median; it must be one of mean, loo"),
    (GRPOConfig, {"adv_norm": "group_std"}, "--adv-norm is group_std; it must be one of none,"),
    (GRPOConfig, {"max_resamples": 0}, "--max-resamples is 0"),
    (GRPOConfig, {"overlong_cache": 0}, "--overlong-cache is 0"),
    (GRPOConfig, {"overlong_length": 100}, r"--overlong-length is 100; it must be at least --ov"),
    (LiSAOConfig, {"gamma": 1.1}, "--gamma is 1.1; it must be between 0 and 1"),
    (LiSAOConfig, {"turn_gamma": -0.1}, "--turn-gamma is -0.1"),
    (LiSAOConfig, {"turn_lambda": math.nan}, "--turn-lambda is nan"),
    (LiSAOConfig, {"lambda_alpha": 0.0}, "--lambda-alpha is 0.0; it must be above 0"),
    (LiSAOConfig, {"critic_warmup_steps": -1}, "--critic-warmup-steps is -1"),
    (
        LiSAOConfig,
        {"critic_warmup_steps": 3, "critic_trunk": "shared", "critic_updates": 1},
        "--critic-warmup-steps is 3; it must be 0 with --critic-trunk shared",
    ),
    (LiSAOConfig, {"credit_level": "word"}, "--credit-level is word; it must be one of token,"),
    (LiSAOConfig, {"end_length_limit": "x"}, "--end-length-limit is x"),
    (LiSAOConfig, {"end_deadline": "x"}, "--end-deadline is x"),
    (Li2SAOConfig, {"group_size": 1}, "--group-size is 1"),
    (Li2SAOConfig, {"trajectories": 12}, "--trajectories is 12"),
    (Li2SAOConfig, {"gamma": 0.99}, "--gamma is 0.99; it must be 1: the returns of a group"),
    (Li2SAOConfig, {"credit_level": "turn"}, "--turn-gamma is 0.99; it must be 1"),
    (Li2SAOConfig, {"adv_norm": "group_std"}, "--adv-norm is group_std; it must be one of none"),
    (Li2SAOConfig, {"critic_target": "mean"}, "--critic-target is mean; it must be one of group_"),
    (Li2SAOConfig, {"critic_center": "x"}, "--critic-center is x"),
    (Li2SAOConfig, {"gate_mode": "x"}, "--gate-mode is x; it must be one of skill, fixed_step"),
    (Li2SAOConfig, {"gate_positions": "x"}, "--gate-positions is x"),
    (Li2SAOConfig, {"gate_beta": 1.0}, r"--gate-beta is 1.0; it must be in \[0, 1\)"),
    (Li2SAOConfig, {"level_beta": 1.0}, "--level-beta is 1.0"),
    (Li2SAOConfig, {"gate_patience": 0}, "gate patience must be >= 1, got 0"),
    (Li2SAOConfig, {"gate_min_steps": -1}, "gate min_steps must be >= 0, got -1"),
    (Li2SAOConfig, {"gate_max_steps": -1}, "gate max_steps must be >= 0 or None, got -1"),
    (Li2SAOConfig, {"gate_tau": math.nan}, "thresholds must be numbers"),
    (Li2SAOConfig, {"gate_mode": "fixed_step"}, "'fixed_step' needs switch_step >= 0"),
    (Li2SAOConfig, {"switch_step": 3}, "'skill' takes no switch_step"),
    (
        Li2SAOConfig,
        {"gate_mode": "per_step_gate", "gate_tau_off": 0.0},
        "tau_off works with gate mode 'skill' only",
    ),
    (
        Li2SAOConfig,
        {
            "gate_mode": "critic_only_warmup",
            "switch_step": 3,
            "critic_trunk": "shared",
            "critic_updates": 1,
        },
        "--gate-mode is critic_only_warmup; it must be another mode with --critic-trunk shared",
    ),
]


KINDS: list[type[TrainConfig]] = [
    GRPOConfig,
    GiGPOConfig,
    BLPOConfig,
    LiSAOConfig,
    Li2SAOConfig,
]


@pytest.mark.parametrize(("changes", "message"), COMMON, ids=lambda value: str(value)[:40])
def test_bad_values_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LiSAOConfig(**changes).validate()


@pytest.mark.parametrize(("kind", "changes", "message"), OWN, ids=lambda value: str(value)[:40])
def test_bad_values_of_one_trainer_are_refused(
    kind: type[TrainConfig], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**changes).validate()


def test_a_pretrained_critic_foresees_returns_not_centred_ones(tmp_path: Path) -> None:
    (tmp_path / "critic.safetensors").write_bytes(b"")
    (tmp_path / "critic.json").write_text(json.dumps({"format": "agentgym-critic-1"}))
    with pytest.raises(ValueError, match="--critic-target raw or group_mean"):
        Li2SAOConfig(critic=tmp_path).validate()
    Li2SAOConfig(critic=tmp_path, critic_target="raw").validate()
    with pytest.raises(ValueError, match="--critic-trunk own"):
        LiSAOConfig(
            critic=tmp_path, critic_trunk="shared", critic_updates=1, freeze_attention=False
        ).validate()
    (tmp_path / "critic.json").write_text("{}")
    with pytest.raises(ValueError, match="does not describe a critic"):
        LiSAOConfig(critic=tmp_path).validate()


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_documented(kind: type[TrainConfig]) -> None:
    documented: set[str] = set()
    for base in kind.__mro__:
        documented |= set(re.findall(r"^        ([a-z_0-9]+): ", base.__doc__ or "", re.MULTILINE))
    assert {field.name for field in fields(kind)} <= documented


@pytest.mark.parametrize("kind", KINDS)
def test_presets_are_valid_and_say_their_name(kind: type[TrainConfig]) -> None:
    tiny, paper = with_preset(kind), with_preset(kind, model="some/model")
    tiny.validate()
    paper.validate()
    assert (tiny.preset, paper.preset) == ("tiny", "paper")
    assert (tiny.learning_rate, paper.learning_rate) == (kind.TINY["learning_rate"], 1e-6)
    assert with_preset(kind, "paper").model == "tiny"
    assert set(kind.TINY) <= {field.name for field in fields(kind)}


@pytest.mark.parametrize("env", agentgym.registered())
def test_what_an_environment_changes_of_the_tiny_preset(env: str) -> None:
    entry = agentgym.spec(env)
    sft = with_preset(SFTConfig, "tiny", env=env)
    sft.validate()
    assert {name: getattr(sft, name) for name in entry.tiny_cloning} == entry.tiny_cloning
    known = {field.name for kind in (*KINDS, G2RPOAConfig) for field in fields(kind)}
    assert set(entry.tiny_training) <= known
    for kind in KINDS:
        config = with_preset(kind, "tiny", env=env)
        config.validate()
        for name in {field.name for field in fields(kind)} & set(entry.tiny_training):
            assert getattr(config, name) == entry.tiny_training[name]
    assert with_preset(GRPOConfig, model="a/b", env=env).invalid_penalty == 0.0
    assert with_preset(GRPOConfig, env="Unknown-v0").env == "Unknown-v0"


def test_flags_outrank_what_an_environment_changes() -> None:
    config = parse_args(GRPOConfig, ["--env", "AlfWorld-v0", "--invalid-penalty", "0.5"])
    assert (config.invalid_penalty, config.eval_also) == (0.5, ("valid_seen",))


def test_published_hyperparameters() -> None:
    sao = LiSAOConfig()
    assert (sao.trajectories, sao.critic_updates, sao.lambda_alpha) == (128, 2, 1.5)
    assert (sao.learning_rate, sao.critic_learning_rate) == (1e-6, 5e-6)
    assert (sao.loss, sao.clip_low, sao.clip_high) == ("dis", 0.8, 3.0)
    li2sao = Li2SAOConfig()
    assert (li2sao.gate_tau, li2sao.gate_patience, li2sao.gate_min_steps) == (0.0, 3, 10)
    assert (li2sao.gate_max_steps, li2sao.critic_center, li2sao.group_size) == (None, "loo", 8)


def test_the_command_line_knows_presets(capsys: pytest.CaptureFixture[str]) -> None:
    config = parse_args(GRPOConfig, ["--model", "a/b", "--clip-high", "None", "--seed=3"])
    assert (config.preset, config.clip_high, config.seed) == ("paper", None, 3)
    config = parse_args(GRPOConfig, ["--env-arg", "a=1", "b=x", "--adam_betas", "0.5", "0.6"])
    assert (config.preset, config.env_arg) == ("tiny", ("a=1", "b=x"))
    again = parse_args(GRPOConfig, ["--env-arg", "a=1", "--steps", "3", "--env_arg", "b=x"])
    assert (again.env_arg, again.steps) == (("a=1", "b=x"), 3)
    assert config.adam_betas == (0.5, 0.6)
    for arguments, message in (
        (["--preset", "big"], "--preset is big; it must be auto, tiny or paper"),
        (["--group-size", "1"], "--group-size is 1"),
        (["--resume", "/nowhere"], "--resume is /nowhere; it must be an existing run directory"),
    ):
        with pytest.raises(SystemExit, match="2"):
            parse_args(GRPOConfig, arguments)
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        parse_args(GRPOConfig, ["--stepps", "3"])
    assert parse_args(GRPOConfig, []).preset == "tiny"


def test_help_shows_the_values_that_would_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse_args(Li2SAOConfig, ["--help", "--model", "a/b"], "python -m trainers.li2sao")
    text = capsys.readouterr().out
    assert "python -m trainers.li2sao" in text
    assert "Train with groups first" in text
    assert "Attributes:" not in text
    for flag in ("--gate-tau", "--env-arg", "--critic", "--resume", "--staleness"):
        assert flag in text


def test_a_stored_configuration_comes_back_as_it_was(tmp_path: Path) -> None:
    config = LiSAOConfig(
        lambda_alpha=math.inf,
        env_arg=("max_steps=8",),
        run_dir=tmp_path,
        clip_low=None,
        adam_betas=(0.1, 0.2),
        steps=7,
    )
    RunDir.create(tmp_path, "lisao", config, total_steps=7).close("stopped")
    back = parse_args(LiSAOConfig, ["--resume", str(tmp_path)])
    for field in fields(config):
        if field.name not in ("run_dir", "resume"):
            assert getattr(back, field.name) == getattr(config, field.name), field.name
    assert back.resume == tmp_path
    assert parse_args(LiSAOConfig, ["--resume", str(tmp_path), "--steps", "9"]).steps == 9


def test_environment_arguments_are_literals_or_text() -> None:
    assert parse_env_args(["a=1", "b=0.5", "c=True", "d=small", "e=x=y", "f=None"]) == {
        "a": 1, "b": 0.5, "c": True, "d": "small", "e": "x=y", "f": None,
    }  # fmt: skip
    for wrong in ("a", "=1", "1a=2", "a b=1"):
        with pytest.raises(ValueError, match="KEY=VALUE"):
            parse_env_args([wrong])


def test_play_settings_stand_alone() -> None:
    assert with_preset(PlayConfig).max_action_tokens == PlayConfig.TINY["max_action_tokens"]
