"""Settings that every trainer shares.

A trainer's own config is a dataclass that extends :class:`TrainConfig`; its fields become flags
(:mod:`trainers.command_line`). Values are checked before any work begins, and each refusal says
what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from agentgym.arguments import parse_pairs
from agentgym.parsing import ActionFormat
from agentgym.prompts import PromptMode
from trainers.advantages.gae import EndRule
from trainers.advantages.kl import KLKind
from trainers.aggregation import Aggregation
from trainers.losses import Correction, CorrectionLevel, PolicyLossKind

__all__ = [
    "PlayConfig",
    "Preset",
    "TrainConfig",
    "not_negative",
    "parse_env_args",
    "positive",
    "require",
]

Preset = Literal["auto", "tiny", "paper"]


@dataclass(kw_only=True)
class PlayConfig:
    """What it takes to play episodes: environment, model, prompts, sampling.

    Attributes:
        env: Id of a registered environment; ``package:Id`` imports the package first.
        env_arg: Arguments of the environment, each ``KEY=VALUE`` (Python literals or text).
        model: ``tiny`` (built and warm-started here), a model folder, or a hub id.
        policy: Engine that samples: ``torch`` in this process, or ``vllm`` in its own.
        engines: Engines behind the policy (``vllm``).
        on_update: What becomes of running requests when weights are published (``vllm``):
            ``recompute`` reads their tokens again under the new weights, ``keep`` goes on with old
            keys and values (such tokens stay out of the loss), ``abort`` ends their episodes,
            ``wait`` lets them end first.
        engine_memory: Share of a GPU's memory that an engine takes (``vllm``).
        preset: ``paper`` has the published hyper-parameters, ``tiny`` those that suit the tiny
            model; ``auto`` takes ``tiny`` with ``--model tiny`` and ``paper`` otherwise.
        seed: Seed of tasks, sampling and shuffling.
        slots: Episodes in flight.
        prompt_mode: One append-only conversation an episode, or a fresh prompt a decision.
        window: Observation/action pairs quoted in windowed prompts.
        action_format: ``tags`` or ``bare``; None takes ``bare`` for the tiny model, else ``tags``.
        on_rewrite: What to do with a chat template that rewrites earlier turns.
        temperature: Sampling temperature; the learner's log-probs use the same.
        max_action_tokens: Most tokens of one action.
        max_context: Most tokens of an episode (of a prompt and its answer, with windowed
            prompts); None takes what the model allows, at most 8192.
        invalid_penalty: Subtracted from the return, times the share of inadmissible or malformed
            actions.
        turn_deadline: Seconds for one environment call or generation; None for no limit. A limit
            makes outcomes depend on the clock.
        episode_deadline: Seconds for one episode; None for no limit.
        device: Torch device; None takes CUDA where there is one.
        threads: Torch threads for one operation on CPU.
    """

    env: str = "WebShop-v0"
    env_arg: tuple[str, ...] = ()
    model: str = "tiny"
    policy: Literal["torch", "vllm"] = "torch"
    engines: int = 1
    on_update: Literal["recompute", "keep", "abort", "wait"] = "recompute"
    engine_memory: float = 0.4
    preset: Preset = "auto"
    seed: int = 0

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

    device: str | None = None
    threads: int = 1

    #: Field of the registry's entries with an environment's own changes of the preset ``tiny``.
    TINY_OF_ENV: ClassVar[str] = "tiny_training"
    #: Fields that differ from the defaults in the preset ``tiny``; subclasses extend it.
    TINY: ClassVar[Mapping[str, Any]] = {
        "max_action_tokens": 24,
        "max_context": 1024,
    }

    def validate(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: With the offending value and what would be right.
        """
        self._check_choices()
        self._check(
            "at least 1", lambda v: v >= 1, "slots", "max_action_tokens", "threads", "engines"
        )
        self._check("above 0 and at most 1", lambda v: 0 < v <= 1, "engine_memory")
        require(
            self.policy == "vllm" or self.engines == 1, "engines", self.engines,
            "1 with --policy torch",
        )  # fmt: skip
        self._check("0 or more", lambda v: v >= 0, "seed", "window")
        self._check("a finite number above 0", positive, "temperature")
        self._check("a finite number, 0 or more", not_negative, "invalid_penalty")
        self._check(
            "a finite number above 0, or None",
            lambda v: v is None or positive(v),
            "turn_deadline",
            "episode_deadline",
        )
        self._check("at least 2, or None", lambda v: v is None or v >= 2, "max_context")
        require(bool(self.model), "model", self.model, "tiny, a folder, or a hub id")
        parse_env_args(self.env_arg)

    @property
    def needs_reference(self) -> bool:
        """Whether episodes begin with parts of a reference, so that there has to be one."""
        return False

    @property
    def progress_preset(self) -> str | None:
        """Progress abstraction that annotates the turns of training episodes; None for none."""
        return None

    def _check(self, right: str, ok: Callable[[Any], bool], *names: str) -> None:
        for name in names:
            require(ok(getattr(self, name)), name, getattr(self, name), right)

    def _check_choices(self) -> None:
        """Verify fields that must be one of several words; Python code can set anything."""
        for name, hint in get_type_hints(type(self)).items():
            choices = list(_choices(hint))
            value = getattr(self, name, None)
            if choices and value not in choices:
                require(False, name, value, f"one of {', '.join(map(str, choices))}")


@dataclass(kw_only=True)
class TrainConfig(PlayConfig):
    """What every trainer can be told.

    Attributes:
        steps: Optimisation steps in all, those before a resume included.
        staleness: 0 samples and learns in turn; above, sampling goes on while the learner steps,
            and a token may be this many weight versions old.
        parity_every: Steps between comparisons of the engine's log-probs with the learner's on a
            fixed text; 0 for none. None compares at each step with ``--policy vllm`` and never
            with ``torch``, which runs the learner's own code.
        parity_bound: Mean difference in nats above which the run ends; None takes 1e-3 where the
            engine computes in float32 and 0.2 elsewhere.
        run_dir: Where the run is written; None makes a new folder under ``runs/``.
        resume: Run directory to continue. Its configuration is used; ``--steps`` may be raised.
        critic: Folder of a pretrained critic (what ``trainers.value_pretrain`` writes).
        trajectories: Trajectories of one step (N). Groups divide it.
        task_order: ``easy_first`` plays the easier training tasks first (a curriculum), where the
            environment ranks them.
        order_stretch: Sort so many tasks of the shuffled order at a time, so that a run that does
            not get through all of them meets hard ones too; None sorts all.
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
        clip_low: Lower clipping distance (``dis``: width of the band below 1); None for no bound.
        clip_high: Upper clipping distance (``dis``: width of the band above 1); None for no bound.
        dual_clip: Bound of dual clipping (``ppo`` and ``gspo``), or None.
        dis_stop_gradient: The DIS factor carries no gradient. The paper does not say; without
            this, tokens of log-prob below -1 would be pushed the wrong way.
        dis_closed_band: The end points of the DIS band are accepted too. The paper's text says
            so, its equation does not.
        dis_keep_rejected: Tokens that DIS rejects stay in the denominator, so that rejecting
            weakens the step. False needs ``--aggregation token_mean`` and puts a whole minibatch
            into one forward pass.
        aggregation: How token losses become one number.
        constant_length: Divisor of the ``constant`` aggregation, in tokens.
        entropy_coef: Weight of the entropy bonus.
        kl_coef: Weight of the KL to the initial policy; 0 keeps no reference model.
        kl_kind: Estimator of the KL.
        kl_in: Put the KL into the loss or into the reward.
        old_logprobs: Ratio against the sampler's log-probs, or against those that the learner
            recomputes before the first update.
        correction: Correction for the mismatch of sampler and learner (needs
            ``--old-logprobs recompute``): ``truncate`` is TIS, ``mask`` is MIS/IcePop, ``none``
            the plain ratio, ``off`` no correction.
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
        eval_also: Further splits, evaluated before and after training.
        checkpoint_every: Steps between checkpoints.
        keep_checkpoints: How many to keep, beside the one with the best sampled success.
        logged_trajectories: Readable episodes written each step.
    """

    steps: int = 200
    staleness: int = 0
    parity_every: int | None = None
    parity_bound: float | None = None
    run_dir: Path | None = None
    resume: Path | None = None
    critic: Path | None = None

    trajectories: int = 128
    task_order: Literal["shuffled", "easy_first"] = "shuffled"
    order_stretch: int | None = None

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
    eval_also: tuple[str, ...] = ()
    checkpoint_every: int = 25
    keep_checkpoints: int = 2
    logged_trajectories: int = 4

    TINY: ClassVar[Mapping[str, Any]] = {
        **PlayConfig.TINY,
        "steps": 150,
        "trajectories": 64,
        "learning_rate": 5e-4,
        "decay_steps": 150,
        "decay_to": 0.05,
        "adam_betas": (0.9, 0.99),
        "minibatches": 2,
        "critic_learning_rate": 2e-3,
        "freeze_attention": False,
        "eval_every": 25,
    }

    def validate(self) -> None:
        """See :meth:`PlayConfig.validate`."""
        super().validate()
        self._check(
            "at least 1",
            lambda v: v >= 1,
            "steps",
            "trajectories",
            "epochs",
            "minibatches",
            "microbatch_tokens",
            "critic_updates",
            "eval_episodes",
            "checkpoint_every",
            "keep_checkpoints",
        )
        self._check(
            "0 or more",
            lambda v: v >= 0,
            "staleness",
            "warmup_steps",
            "eval_every",
            "logged_trajectories",
        )
        self._check(
            "a finite number above 0",
            positive,
            "learning_rate",
            "critic_learning_rate",
            "grad_clip",
        )
        self._check(
            "a finite number, 0 or more",
            not_negative,
            "weight_decay",
            "kl_coef",
            "entropy_coef",
            "vf_coef",
        )
        self._check(
            "two numbers in [0, 1)",
            lambda v: len(v) == 2 and all(0 <= beta < 1 for beta in v),
            "adam_betas",
        )
        optional = ("decay_steps", "order_stretch")
        self._check("at least 1, or None", lambda v: v is None or v >= 1, *optional)
        self._check("between 0 and 1", lambda v: 0 <= v <= 1, "decay_to")
        self._check(
            f"at most --trajectories ({self.trajectories})",
            lambda v: v <= self.trajectories,
            "minibatches",
        )
        self._check("0 or more, or None", lambda v: v is None or v >= 0, "parity_every")
        self._check(
            "a finite number above 0, or None", lambda v: v is None or positive(v), "parity_bound"
        )
        self._check_loss()
        self._check_critic()
        self._check("an existing folder", lambda v: v is None or Path(v).is_dir(), "resume")

    def _check_loss(self) -> None:
        self._check(
            "between 0 and 1 (the bound is 1 minus it), or None",
            lambda v: v is None or 0 <= v <= 1,
            "clip_low",
        )
        self._check(
            "0 or more (the bound is 1 plus it), or None",
            lambda v: v is None or v >= 0,
            "clip_high",
        )
        self._check("above 1, or None", lambda v: v is None or v > 1, "dual_clip")
        require(
            self.dual_clip is None or self.loss in ("ppo", "gspo"),
            "dual_clip",
            self.dual_clip,
            f"None with --loss {self.loss}",
        )
        require(
            self.loss != "dis" or self.dis_keep_rejected or self.aggregation == "token_mean",
            "dis_keep_rejected",
            False,
            "used with --aggregation token_mean",
        )
        require(
            self.aggregation != "constant" or (self.constant_length or 0) >= 1,
            "constant_length",
            self.constant_length,
            "at least 1 with --aggregation constant",
        )
        require(
            self.correction == "off" or self.old_logprobs == "recompute",
            "correction",
            self.correction,
            "used with --old-logprobs recompute (else both sides of its ratio are the same)",
        )
        require(
            0 <= self.correction_low <= self.correction_high,
            "correction_low",
            self.correction_low,
            f"between 0 and --correction-high ({self.correction_high})",
        )
        require(
            not (self.kl_kind == "k1" and self.kl_in == "loss" and self.kl_coef > 0),
            "kl_kind",
            self.kl_kind,
            "k2 or k3 in the loss (the gradient of k1 averages to 0), or go with --kl-in reward",
        )

    def _check_critic(self) -> None:
        self._check("a number above 0, or None", lambda v: v is None or positive(v), "value_clip")
        if self.critic_trunk == "shared":
            require(
                not self.freeze_attention and self.critic_updates == 1,
                "critic_trunk",
                "shared",
                "used with --freeze-attention False and --critic-updates 1: actor and critic are "
                "one network with one optimiser",
            )
            require(self.critic is None, "critic", self.critic, "used with --critic-trunk own")
        if self.critic is not None and self.resume is None:
            # Weights that do not fit are found out once the model is there.
            from trainers.critic import check_critic_folder

            check_critic_folder(self.critic)


def require(ok: bool, name: str, value: Any, right: str) -> None:
    """Raise unless ``ok``.

    Raises:
        ValueError: Naming the flag, its value and what would be right.
    """
    if not ok:
        raise ValueError(f"--{name.replace('_', '-')} is {value}; it must be {right}")


def parse_env_args(pairs: Sequence[str]) -> dict[str, Any]:
    """The arguments of ``--env-arg``; see :func:`agentgym.arguments.parse_pairs`."""
    return parse_pairs(pairs, "--env-arg")


def positive(value: float) -> bool:
    """Whether a number is finite and above 0."""
    return math.isfinite(value) and value > 0


def not_negative(value: float) -> bool:
    """Whether a number is finite and 0 or more."""
    return math.isfinite(value) and value >= 0


def _choices(hint: Any) -> Iterable[Any]:
    """The words of a ``Literal``, also within a union with None; nothing for other types."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
        return
    parts = get_args(hint)
    if get_origin(hint) is ClassVar or not any(get_origin(part) is Literal for part in parts):
        return
    for part in parts:
        if get_origin(part) is Literal:
            yield from get_args(part)
        elif part is type(None):
            yield None
