"""Value pretraining: teach a critic the returns of a frozen policy, before any policy update.

SAO (arXiv 2607.07508) starts from a critic that was pretrained on values. This command plays
episodes with the policy as it is, fits the critic to their Monte-Carlo returns by mean squared
error, judges it on episodes it has not seen, and writes the folder that ``--critic`` of
:mod:`trainers.lisao` loads::

    python -m trainers.value_pretrain --env WebShop-v0 --out critics/webshop
    python -m trainers.lisao --env WebShop-v0 --critic critics/webshop
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from agentgym.packing import Credit, pack
from agentgym.trajectory import Trajectory
from trainers.advantages.gae import reward_to_go
from trainers.advantages.turns import concatenate, place_turn_rewards, split_by_turn, turn_index
from trainers.algorithm import Plan, explained_metrics, turn_rewards
from trainers.command_line import parse_args
from trainers.config import PlayConfig, require
from trainers.critic import Critic, default_freeze
from trainers.cursor import TaskCursor
from trainers.loop import REFUSALS, torch_threads
from trainers.rollouts import SyncSource
from trainers.setup import Setup, World, announce
from trainers.value_learner import ValueLearner, ValueOptions

__all__ = ["ValuePretrainConfig", "main", "monte_carlo_credit", "pretrain"]

_HELD_OUT_SEED = 0x4E1D


@dataclass(kw_only=True)
class ValuePretrainConfig(PlayConfig):
    """Pretrain a critic on the returns of a frozen policy.

    Attributes:
        out: Folder to write the critic to; missing or empty.
        episodes: Episodes to learn from.
        held_out: Episodes to judge by, of tasks that are not learned from (of the same tasks
            where the environment lists fewer than two).
        epochs: Passes over the episodes. The critic with the smallest error on the episodes held
            out is kept.
        batch: Episodes of one update.
        learning_rate: Learning rate of the critic; SAO's is 5e-6.
        adam_betas: Exponential decay rates of AdamW.
        weight_decay: Decoupled weight decay.
        grad_clip: Largest gradient norm.
        microbatch_tokens: Most padded tokens of one forward pass.
        freeze_attention: Train only MLPs, norms and head; None means True for pretrained models
            and False for the tiny one. Training takes it up with its own setting.
        gamma: Discount per action token.
    """

    out: Path | None = None
    episodes: int = 2048
    held_out: int = 256
    epochs: int = 3
    batch: int = 32
    learning_rate: float = 5e-6
    adam_betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    microbatch_tokens: int = 16384
    freeze_attention: bool | None = None
    gamma: float = 1.0

    TINY: ClassVar[Mapping[str, Any]] = {
        **PlayConfig.TINY,
        "learning_rate": 2e-3,
        "adam_betas": (0.9, 0.99),
        "freeze_attention": False,
    }

    def validate(self) -> None:
        """See :meth:`trainers.config.PlayConfig.validate`."""
        super().validate()
        require(self.out is not None, "out", self.out, "a folder to write the critic to")
        folder = Path(self.out or "")
        empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
        require(empty, "out", self.out, "a folder that is missing or empty")
        counts = ("episodes", "held_out", "epochs", "batch", "microbatch_tokens")
        self._check("at least 1", lambda v: v >= 1, *counts)
        finite = "a finite number above 0"
        self._check(finite, lambda v: 0 < v < float("inf"), "learning_rate", "grad_clip")
        self._check("0 or more", lambda v: 0 <= v < float("inf"), "weight_decay")
        self._check("between 0 and 1", lambda v: 0 <= v <= 1, "gamma")
        self._check(
            "two numbers in [0, 1)",
            lambda v: len(v) == 2 and all(0 <= beta < 1 for beta in v),
            "adam_betas",
        )


def pretrain(
    config: ValuePretrainConfig,
    setup: Setup | None = None,
    say: Callable[[str], None] = announce,
) -> dict[str, Any]:
    """Play, fit, judge and write.

    Args:
        config: Settings.
        setup: Environment and model; made from the config when omitted.
        say: Is told how it goes.

    Returns:
        The description written beside the weights; ``explained_variance`` and
        ``explained_variance_mse`` are of the episodes held out.

    Raises:
        ValueError: If something asked for does not exist or does not fit together, or no episode
            could be played.
    """
    config.validate()
    assert config.out is not None
    world = World.open(config) if setup is None else setup.world
    learning, judging = _cursors(world, config)
    setup = setup or Setup.make(config, world, say)
    torch.manual_seed(config.seed)
    collector = setup.collector(setup.policy(), config.temperature)
    source = SyncSource(collector, learning, lambda: False)
    try:
        seen = _play(source, config.episodes, config, say)
        source.cursor = judging
        unseen = _play(source, config.held_out, config, say)
    finally:
        source.close()

    freeze = config.freeze_attention
    critic = Critic(
        setup.lm, freeze_attention=default_freeze(config.model) if freeze is None else freeze
    )
    options = ValueOptions(
        learning_rate=config.learning_rate,
        adam_betas=config.adam_betas,
        weight_decay=config.weight_decay,
        grad_clip=config.grad_clip,
        microbatch_tokens=config.microbatch_tokens,
    )
    learner = ValueLearner(critic, options)
    judged = _judge(learner, unseen, config)
    best, best_epoch, kept = judged["error"], 0, copy.deepcopy(critic.state_dict())
    say(f"epoch 0: held-out error {judged['error']:.5f}")
    for epoch in range(1, config.epochs + 1):
        loss = _fit(learner, seen, config, epoch)
        numbers = _judge(learner, unseen, config)
        say(
            f"epoch {epoch}: loss {loss:.5f}, held-out error {numbers['error']:.5f}, "
            f"explained variance {numbers.get('explained_variance', float('nan')):.3f}"
        )
        if numbers["error"] < best:
            best, best_epoch, judged = numbers["error"], epoch, numbers
            kept = copy.deepcopy(critic.state_dict())
    critic.load_state_dict(kept)
    facts = {
        "env": world.spec.id,
        "env_args": {name: repr(value) for name, value in world.env_args.items()},
        "model": config.model,
        "gamma": config.gamma,
        "seed": config.seed,
        "episodes": len(seen),
        "held_out": len(unseen),
        "best_epoch": best_epoch,
        "mean_return": float(np.mean([item.total_reward for item in unseen])),
        **judged,
    }
    critic.save(config.out, setup.lm.tokenizer, facts)
    say(f"critic of epoch {best_epoch} written to {config.out}")
    return facts


def monte_carlo_credit(trajectory: Trajectory, gamma: float, invalid_penalty: float) -> Credit:
    """Value targets of an episode: what was still earned from each token on, however it ended."""
    lengths_K = [turn.n_actions for turn in trajectory.turns]
    rewards_n = place_turn_rewards(turn_rewards(trajectory, invalid_penalty), turn_index(lengths_K))
    targets = split_by_turn(reward_to_go(rewards_n, gamma=gamma), lengths_K)
    return Credit([np.zeros(length) for length in lengths_K], targets)


def _cursors(world: World, config: ValuePretrainConfig) -> tuple[TaskCursor, TaskCursor]:
    """Walks through the tasks to learn from and through those to judge by."""
    ids, split = world.training_tasks()
    learn = judge = ids
    if ids is not None and len(ids) > 1:
        share = config.held_out / (config.episodes + config.held_out)
        apart = min(max(round(share * len(ids)), 1), len(ids) - 1)
        order = np.random.default_rng([config.seed, _HELD_OUT_SEED]).permutation(len(ids))
        judge = tuple(ids[i] for i in sorted(order[:apart].tolist()))
        learn = tuple(ids[i] for i in sorted(order[apart:].tolist()))
    return (
        TaskCursor(learn, split, config.seed),
        TaskCursor(judge, split, config.seed + _HELD_OUT_SEED),
    )


def _play(
    source: SyncSource, count: int, config: ValuePretrainConfig, say: Callable[[str], None]
) -> list[Trajectory]:
    """Play ``count`` episodes; those lost to faults are left out."""
    played: list[Trajectory] = []
    portion = 4 * config.slots
    for start in range(0, count, portion):
        size = min(portion, count - start)
        groups = source.next_groups(Plan(size, 1), size)
        played += [member for group in groups for member in group]
        say(f"played {len(played)} of {count} episodes")
    usable = [
        item
        for item in played
        if item.usable and np.isfinite(turn_rewards(item, config.invalid_penalty)).all()
    ]
    if not usable:
        raise ValueError(
            f"none of {len(played)} episodes can be learned from; the first ended by "
            f"{played[0].stop_reason}: {played[0].error}"
        )
    return usable


def _fit(
    learner: ValueLearner, seen: Sequence[Trajectory], config: ValuePretrainConfig, epoch: int
) -> float:
    """One pass over the episodes in a shuffled order; the mean loss."""
    credit = [monte_carlo_credit(item, config.gamma, config.invalid_penalty) for item in seen]
    rows = pack(seen, credit)
    rows_of: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        rows_of.setdefault(row.trajectory, []).append(index)
    order = np.random.default_rng([config.seed, epoch]).permutation(len(seen)).tolist()
    losses = []
    for start in range(0, len(order), config.batch):
        chosen = [i for item in order[start : start + config.batch] for i in rows_of[item]]
        parts, norm = learner.step(rows, chosen)
        if not np.isfinite(norm):
            raise FloatingPointError(
                f"the critic's gradient is not finite in epoch {epoch}; lower --learning-rate "
                f"({config.learning_rate})"
            )
        losses.append(sum(part["value_loss"] for part in parts))
    return float(np.mean(losses))


def _judge(
    learner: ValueLearner, unseen: Sequence[Trajectory], config: ValuePretrainConfig
) -> dict[str, float]:
    """Mean squared error and explained variance over the sampled tokens of some episodes."""
    targets, values = [], []
    for item, said in zip(unseen, learner.values(unseen), strict=True):
        own = monte_carlo_credit(item, config.gamma, config.invalid_penalty).targets
        targets.append(concatenate(own or []))
        values.append(concatenate(said.turns))
    error = float(np.mean((concatenate(targets) - concatenate(values)) ** 2))
    return {"error": error, **explained_metrics(targets, values)}


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of ``python -m trainers.value_pretrain``."""
    config = parse_args(ValuePretrainConfig, argv, "python -m trainers.value_pretrain")
    try:
        with torch_threads(config.threads):
            facts = pretrain(config)
    except REFUSALS as error:
        print(f"error: {error.args[0] if error.args else error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ended; nothing was written", file=sys.stderr)
        return 130
    explained = facts.get("explained_variance")
    if explained is not None:
        print(f"explained variance on {facts['held_out']} episodes held out: {explained:.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
