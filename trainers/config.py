"""Settings that every trainer shares, and how the command line is read.

A trainer's own config is a dataclass that extends :class:`TrainConfig`; its fields become flags.
Values are checked before any work begins, and each refusal says what would be right.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from agentgym.parsing import ActionFormat
from agentgym.prompts import PromptMode
from agentgym.registry import missing_extra
from trainers.advantages.gae import EndRule
from trainers.advantages.kl import KLKind
from trainers.aggregation import Aggregation
from trainers.losses import Correction, CorrectionLevel, PolicyLossKind
from trainers.run_dir import RunDirError, read_config

__all__ = ["Preset", "TrainConfig", "parse_args", "parse_env_args"]

Preset = Literal["auto", "tiny", "paper"]
Config = TypeVar("Config", bound="TrainConfig")


@dataclass(kw_only=True)
class TrainConfig:
    """What every trainer can be told.

    Attributes:
        env: Id of a registered environment.
        env_arg: Arguments of the environment, each ``KEY=VALUE`` (Python literals or text).
        model: ``tiny`` (built and warm-started here), a model folder, or a hub id.
        policy: Engine that samples.
        preset: ``paper`` has the published hyper-parameters, ``tiny`` those that suit the tiny
            model; ``auto`` takes ``tiny`` with ``--model tiny`` and ``paper`` otherwise.
        steps: Optimisation steps in all, those before a resume included.
        seed: Seed of tasks, sampling and shuffling.
        staleness: 0 samples and learns in turn; above, sampling goes on while the learner steps,
            and a token may be this many weight versions old.
        run_dir: Where the run is written; None makes a new folder under ``runs/``.
        resume: Run directory to continue. Its configuration is used; ``--steps`` may be raised.
        critic: Folder of a pretrained critic (what ``trainers.value_pretrain`` writes).
        trajectories: Trajectories of one step (N). Groups divide it.
        slots: Episodes in flight.
        prompt_mode: One append-only conversation an episode, or a fresh prompt a decision.
        window: Observation/action pairs quoted in windowed prompts.
        action_format: ``tags`` or ``bare``; None takes ``bare`` for the tiny model, else ``tags``.
        on_rewrite: What to do with a chat template that rewrites earlier turns.
        temperature: Sampling temperature; the learner's log-probs use the same.
        max_action_tokens: Most tokens of one action.
        max_context: Most tokens of an episode; None takes what the model allows, at most 8192.
        invalid_penalty: Subtracted from the return, times the share of inadmissible or malformed
            actions.
        turn_deadline: Seconds for one environment call or generation; None for no limit.
        episode_deadline: Seconds for one episode; None for no limit.
        learning_rate: Peak learning rate of the actor.
        adam_betas: Exponential decay rates of AdamW.
        weight_decay: Decoupled weight decay.
        warmup_steps: Steps of linear warm-up.
        decay_steps: Steps over which the rate then falls linearly to ``decay_to`` of its peak;
            None keeps it constant. Independent of ``steps``, so that a resumed run is the same.
        decay_to: Final fraction of the learning rate.
        grad_clip: Largest gradient norm.
        epochs: Passes over a batch.
        minibatches: Optimiser updates a pass.
        microbatch_tokens: Most padded tokens of one forward pass; has no effect on results but
            rounding.
        loss: Policy loss.
        clip_low: Lower clipping distance (``dis``: width of the band below 1).
        clip_high: Upper clipping distance (``dis``: width of the band above 1).
        dual_clip: Bound of dual clipping, or None.
        dis_stop_gradient: The DIS factor carries no gradient; see
            :class:`trainers.losses.DisOptions` for this and the next two.
        dis_closed_band: The end points of the DIS band are accepted too.
        dis_keep_rejected: Tokens that DIS rejects stay in the denominator. False needs the whole
            minibatch in one microbatch.
        aggregation: How token losses become one number.
        constant_length: Divisor of the ``constant`` aggregation, in tokens.
        entropy_coef: Weight of the entropy bonus.
        kl_coef: Weight of the KL to the initial policy; 0 keeps no reference model.
        kl_kind: Estimator of the KL.
        kl_in: Put the KL into the loss or into the reward.
        old_logprobs: Ratio against the sampler's log-probs, or against those that the learner
            recomputes before the first update.
        correction: Correction for the mismatch of sampler and learner (needs ``recompute``):
            ``truncate`` is TIS, ``mask`` is MIS/IcePop.
        correction_level: Over what its ratio is taken.
        correction_low: Lower bound of ``mask``.
        correction_high: Upper bound of both.
        on_length_limit: What to do with episodes that ran out of tokens: ``keep`` them as they
            are, or ``mask`` them from the loss (they still count in group statistics).
        critic_learning_rate: Learning rate of the critic.
        critic_updates: Critic updates for each actor update (K).
        critic_trunk: ``own``: a copy of the policy's trunk. ``shared``: the policy's own, one
            optimiser.
        freeze_attention: Train only MLPs, norms and head of the critic; None means True for
            pretrained models and False for the tiny one.
        value_clip: Clip of the value loss, or None.
        vf_coef: Weight of the value loss on a shared trunk.
        end_max_turns: Value after an episode that the environment's step limit cut off. The
            limits of the built-in environments are part of their tasks, hence ``zero``.
        eval_every: Evaluate each so many steps; 0 only before and after.
        eval_episodes: Episodes of one evaluation.
        eval_split: Split for evaluation; None takes the last evaluation split.
        checkpoint_every: Steps between checkpoints.
        keep_checkpoints: How many to keep.
        logged_trajectories: Readable episodes written each step.
        device: Torch device; None takes CUDA where there is one.
        threads: Torch threads for one operation on CPU.
    """

    env: str = "WebShop-v0"
    env_arg: tuple[str, ...] = ()
    model: str = "tiny"
    policy: Literal["torch"] = "torch"
    preset: Preset = "auto"
    steps: int = 200
    seed: int = 0
    staleness: int = 0
    run_dir: Path | None = None
    resume: Path | None = None
    critic: Path | None = None

    trajectories: int = 128
    slots: int = 64
    prompt_mode: PromptMode = "conversation"
    window: int = 2
    action_format: ActionFormat | None = None
    on_rewrite: Literal["refuse", "branch"] = "refuse"
    temperature: float = 1.0
    max_action_tokens: int = 512
    max_context: int | None = None
    invalid_penalty: float = 0.0
    turn_deadline: float | None = None
    episode_deadline: float | None = None

    learning_rate: float = 1e-6
    adam_betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    warmup_steps: int = 0
    decay_steps: int | None = None
    decay_to: float = 0.1
    grad_clip: float = 1.0
    epochs: int = 1
    minibatches: int = 1
    microbatch_tokens: int = 16384

    loss: PolicyLossKind = "ppo"
    clip_low: float | None = 0.2
    clip_high: float | None = 0.2
    dual_clip: float | None = None
    dis_stop_gradient: bool = True
    dis_closed_band: bool = False
    dis_keep_rejected: bool = True
    aggregation: Aggregation = "token_mean"
    constant_length: int | None = None
    entropy_coef: float = 0.0
    kl_coef: float = 0.0
    kl_kind: KLKind = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    old_logprobs: Literal["rollout", "recompute"] = "rollout"
    correction: Correction | Literal["off"] = "off"
    correction_level: CorrectionLevel = "token"
    correction_low: float = 0.5
    correction_high: float = 2.0
    on_length_limit: Literal["keep", "mask"] = "keep"

    critic_learning_rate: float = 5e-6
    critic_updates: int = 2
    critic_trunk: Literal["own", "shared"] = "own"
    freeze_attention: bool | None = None
    value_clip: float | None = None
    vf_coef: float = 0.5
    end_max_turns: EndRule = "zero"

    eval_every: int = 0
    eval_episodes: int = 200
    eval_split: str | None = None
    checkpoint_every: int = 25
    keep_checkpoints: int = 2
    logged_trajectories: int = 4

    device: str | None = None
    threads: int = 1

    #: Fields that differ from the defaults in the preset ``tiny``; trainers extend it.
    TINY = {  # noqa: RUF012 - not a field: no annotation
        "trajectories": 64,
        "max_action_tokens": 24,
        "max_context": 1024,
        "learning_rate": 7e-4,
        "adam_betas": (0.9, 0.99),
        "minibatches": 2,
        "critic_learning_rate": 2e-3,
        "freeze_attention": False,
        "eval_every": 25,
    }

    def validate(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: With the offending value and what would be right.
        """
        positive = (
            "steps", "trajectories", "slots", "max_action_tokens", "epochs", "minibatches",
            "microbatch_tokens", "critic_updates", "eval_episodes", "checkpoint_every",
            "keep_checkpoints", "threads",
        )  # fmt: skip
        for name in positive:
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        natural = (
            "seed",
            "staleness",
            "window",
            "warmup_steps",
            "eval_every",
            "logged_trajectories",
        )
        for name in natural:
            _require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        rates = ("learning_rate", "critic_learning_rate", "temperature", "grad_clip")
        for name in rates:
            value = getattr(self, name)
            _require(math.isfinite(value) and value > 0, name, value, "a finite number above 0")
        for name in ("weight_decay", "kl_coef", "entropy_coef", "invalid_penalty", "vf_coef"):
            value = getattr(self, name)
            _require(math.isfinite(value) and value >= 0, name, value, "a finite number >= 0")
        for name in ("turn_deadline", "episode_deadline", "max_context", "value_clip"):
            value = getattr(self, name)
            _require(value is None or value > 0, name, value, "a number above 0, or None")
        _require(0 <= self.decay_to <= 1, "decay_to", self.decay_to, "between 0 and 1")
        _require(
            self.decay_steps is None or self.decay_steps >= 1,
            "decay_steps", self.decay_steps, "at least 1, or None",
        )  # fmt: skip
        _require(
            all(0 <= beta < 1 for beta in self.adam_betas),
            "adam_betas", self.adam_betas, "two numbers in [0, 1)",
        )  # fmt: skip
        _require(
            self.aggregation != "constant" or (self.constant_length or 0) >= 1,
            "constant_length", self.constant_length, "at least 1 with --aggregation constant",
        )  # fmt: skip
        _require(
            self.minibatches <= self.trajectories,
            "minibatches", self.minibatches, f"at most --trajectories ({self.trajectories})",
        )  # fmt: skip
        _require(
            self.correction == "off" or self.old_logprobs == "recompute",
            "correction", self.correction, "used with --old-logprobs recompute (else both sides "
            "of its ratio are the same)",
        )  # fmt: skip
        _require(
            not (self.kl_kind == "k1" and self.kl_in == "loss" and self.kl_coef > 0),
            "kl_kind", self.kl_kind, "k2 or k3 in the loss (the gradient of k1 averages to 0), or "
            "--kl-in reward",
        )  # fmt: skip
        if self.critic_trunk == "shared":
            _require(
                not self.freeze_attention and self.critic_updates == 1,
                "critic_trunk", "shared", "used with --freeze-attention False and "
                "--critic-updates 1: actor and critic are one network with one optimiser",
            )  # fmt: skip
            _require(self.critic is None, "critic", self.critic, "used with --critic-trunk own")
        for name in ("resume", "critic"):
            path = getattr(self, name)
            _require(path is None or Path(path).is_dir(), name, path, "an existing folder")
        parse_env_args(self.env_arg)


def _require(ok: bool, name: str, value: Any, right: str) -> None:
    if not ok:
        raise ValueError(f"--{name.replace('_', '-')} is {value}; it must be {right}")


def parse_env_args(pairs: Sequence[str]) -> dict[str, Any]:
    """``["difficulty=small", "max_steps=8"]`` to keyword arguments.

    Values are Python literals where they can be read as such, else text.

    Raises:
        ValueError: If an entry has no ``=`` or no identifier before it.
    """
    out: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--env-arg {pair!r} is not of the form KEY=VALUE")
        try:
            out[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            out[key] = text
    return out


def with_preset(kind: type[Config], preset: Preset, model: str) -> Config:
    """Defaults of a trainer's config under a preset."""
    name = preset if preset != "auto" else ("tiny" if model == "tiny" else "paper")
    changes: Mapping[str, Any] = kind.TINY if name == "tiny" else {}
    return kind(**{**changes, "model": model, "preset": name})


def parse_args(kind: type[Config], argv: Sequence[str] | None = None, program: str = "") -> Config:
    """Read the command line into a trainer's config.

    The preset is looked up first, so that ``--help`` shows the values that would be used. With
    ``--resume`` the configuration comes from the run directory, and only ``--steps`` may be given
    beside it.

    Raises:
        SystemExit: For ``--help``, or with status 2 for flags or values that are refused.
    """
    try:
        import tyro
    except ModuleNotFoundError as error:
        raise missing_extra("tyro", "torch") from error
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        preset = _peek(arguments, "--preset") or "auto"
        if preset not in get_args(Preset):
            raise ValueError(f"--preset is {preset}; it must be auto, tiny or paper")
        resume = _peek(arguments, "--resume")
        if resume is not None:
            default = _stored_config(kind, Path(resume), arguments)
        else:
            model = _peek(arguments, "--model") or "tiny"
            default = with_preset(kind, preset, model)  # type: ignore[arg-type]
        config = tyro.cli(
            kind,
            args=arguments,
            default=default,
            prog=program or None,
            description=(kind.__doc__ or "").strip().split("\n\nAttributes:")[0],
            config=(tyro.conf.FlagConversionOff,),
        )
        config = dataclasses.replace(config, preset=default.preset)
        config.validate()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    return config


def _stored_config(kind: type[Config], folder: Path, arguments: Sequence[str]) -> Config:
    """The configuration of the run that is resumed.

    Raises:
        ValueError: If it is no run of this trainer, or flags would change it.
    """
    flags = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    others = sorted(set(flags) - {"--resume", "--steps", "--help"})
    if others:
        raise ValueError(
            f"{', '.join(others)} cannot be given with --resume: the run keeps the configuration "
            "it was started with; only --steps may be raised"
        )
    if not folder.is_dir():
        raise ValueError(f"--resume is {folder}; it must be an existing run directory")
    try:
        about = read_config(folder)
    except RunDirError as error:
        raise ValueError(str(error)) from error
    stored = about["config"]
    names = {field.name for field in dataclasses.fields(kind)}
    if set(stored) != names:
        odd = sorted(set(stored) ^ names)
        raise ValueError(
            f"{folder} is a run of {about['name']!r} with other settings than this trainer's "
            f"(they differ in {', '.join(odd[:5])}); resume it with python -m "
            f"trainers.{about['name']} of the version that made it"
        )
    values = dict(stored)
    for field in dataclasses.fields(kind):
        if values[field.name] is None:
            continue
        if "Path" in str(field.type):
            values[field.name] = Path(values[field.name])
        elif isinstance(values[field.name], list):
            values[field.name] = tuple(values[field.name])
    return kind(**{**values, "run_dir": None, "resume": folder})


def _peek(arguments: Sequence[str], flag: str) -> str | None:
    for at, word in enumerate(arguments):
        if word == flag and at + 1 < len(arguments):
            return arguments[at + 1]
        if word.startswith(flag + "="):
            return word[len(flag) + 1 :]
    return None
