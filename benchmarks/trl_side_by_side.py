"""TRL's GRPOTrainer and ``trainers.grpo`` on the same model, environment, tasks and settings.

    python -m benchmarks.trl_side_by_side [--steps 4] [--trajectories 64] [--repeats 2]

First the loss. TRL plays one batch of WebShop-v0 through ``adapters.trl`` and takes four updates on
it; ``trainers.grpo`` takes four on the same episodes, from the same weights. All four losses,
gradient norms and shares of clipped tokens are compared, for each way of averaging that both know.
The first update has ratios of 1, the others have not. Where two losses differ by more than 1e-5,
or two gradient norms by more than a thousandth, the status is 1.

Then the speed. Both train on the same tasks and seeds from the same weights, each with its own way
of sampling, in this process, with one thread, in turn. Time is the CPU time of the process, that
of the wall beside it. TRL does nothing but its steps; for ``trainers.grpo``, which also evaluates
before and after, saves a checkpoint and writes a report, both are told: the steps, and all of it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers.trainer_callback import PrinterCallback
from trl import GRPOTrainer

from adapters.policies.causal_lm import CausalLM
from adapters.policies.models import resolve_model
from adapters.trl import Rollouts, episode_reward
from agentgym.registry import spec
from agentgym.trajectory import EpisodeSpec, Trajectory, group_trajectories
from benchmarks.trl_webshop import ENV, EPISODE_TOKENS, GROUP, TURN_TOKENS, settings
from trainers.aggregation import merge_metrics
from trainers.grpo import GRPO, GRPOConfig
from trainers.learner import Learner
from trainers.loop import Trainer
from trainers.setup import Setup, World

__all__ = ["AVERAGES", "LOSS_BOUND", "NORM_BOUND", "Comparison", "Update", "compare", "speed"]

#: Our name of a way of averaging, and TRL's.
AVERAGES = {"token_mean": "dapo", "seq_mean_token_mean": "grpo", "constant": "dr_grpo"}
LOSS_BOUND, NORM_BOUND = 1e-5, 1e-3
#: What both losses are divided by, for a sequence, with ``constant``.
LONGEST = EPISODE_TOKENS


@dataclass(frozen=True)
class Update:
    """One update: its loss, the norm of its gradient before clipping, the clipped tokens' share."""

    loss: float
    grad_norm: float
    clipped: float


@dataclass(frozen=True)
class Comparison:
    """Updates of both on one batch.

    Attributes:
        ours: Those of ``trainers.grpo``.
        theirs: Those of TRL.
        weights: Largest difference of two weights after all of them.
        moved: How far the weights have moved, at most.
    """

    ours: list[Update]
    theirs: list[Update]
    weights: float
    moved: float

    @property
    def loss_difference(self) -> float:
        """The largest one."""
        return max(abs(a.loss - b.loss) for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def norm_difference(self) -> float:
        """The largest one, relative."""
        return max(
            abs(a.grad_norm - b.grad_norm) / max(abs(b.grad_norm), 1e-12)
            for a, b in zip(self.ours, self.theirs, strict=True)
        )

    @property
    def equal(self) -> bool:
        """Within the bounds."""
        return self.loss_difference <= LOSS_BOUND and self.norm_difference <= NORM_BOUND


class WatchedLearner(Learner):
    """Keeps what each update was like."""

    def __init__(self, lm: CausalLM, config: GRPOConfig) -> None:
        super().__init__(lm, GRPO(config), config)
        self.updates: list[Update] = []

    def _actor_step(self, *args: Any) -> tuple[list[dict[str, float]], float]:
        parts, norm = super()._actor_step(*args)
        merged = merge_metrics(parts)
        self.updates.append(Update(merged["loss"], norm, merged["clip_low"] + merged["clip_high"]))
        return parts, norm


class WatchedTrainer(GRPOTrainer):
    """Keeps the losses unrounded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.remove_callback(PrinterCallback)
        self.losses: list[float] = []

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's."""
        loss = super().compute_loss(*args, **kwargs)
        self.losses.append(float(loss.detach()))
        return loss

    @property
    def updates(self) -> list[Update]:
        """What each update was like."""
        rows = [row for row in self.state.log_history if "grad_norm" in row]
        return [
            Update(loss, row["grad_norm"], row["clip_ratio/region_mean"])
            for loss, row in zip(self.losses, rows, strict=True)
        ]


class Clock:
    """CPU-seconds and seconds of some calls."""

    def __init__(self, cpu: float = 0.0, wall: float = 0.0) -> None:
        self.cpu, self.wall = cpu, wall

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Measure what happens within."""
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            yield
        finally:
            self.cpu += time.process_time() - cpu
            self.wall += time.perf_counter() - wall

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, measured."""

        def measured(*args: Any, **kwargs: Any) -> Any:
            with self.running():
                return work(*args, **kwargs)

        return measured


def our_config(
    folder: Path, env_args: dict[str, Any], steps: int, trajectories: int, **changes: Any
) -> GRPOConfig:
    """Ours in the place of :func:`benchmarks.trl_webshop.settings`."""
    return GRPOConfig(
        env=ENV, env_arg=tuple(f"{name}={value}" for name, value in env_args.items()),
        model="tiny", device="cpu", action_format="bare", max_action_tokens=TURN_TOKENS,
        max_context=EPISODE_TOKENS, steps=steps, trajectories=trajectories, group_size=GROUP,
        slots=trajectories, learning_rate=5e-4, adam_betas=(0.9, 0.99), weight_decay=0.0,
        grad_clip=1.0, clip_low=0.2, clip_high=0.28, adv_std="group", adv_ddof=1, adv_eps=1e-4,
        minibatches=1, run_dir=folder, eval_episodes=1, checkpoint_every=steps, **changes,
    )  # fmt: skip


def make_rollouts(env_args: dict[str, Any]) -> Rollouts:
    """TRL's way to the environment."""
    # Without a deadline for each call, which `trainers.grpo` has none of either.
    return Rollouts(ENV, turn_tokens=TURN_TOKENS, action_format="bare", deadline=None, **env_args)


def make_trl(
    lm: CausalLM, specs: Sequence[EpisodeSpec], rollouts: Callable[..., Any], args: Any
) -> WatchedTrainer:
    """TRL's trainer; one row for each spec, which becomes a group."""
    rows = [{"task_id": item.task_id, "seed": item.seed} for item in specs]
    return WatchedTrainer(
        model=lm.model, processing_class=lm.tokenizer, reward_funcs=episode_reward,
        rollout_func=rollouts, args=args,
        train_dataset=Dataset.from_list([{"prompt": json.dumps(row), **row} for row in rows]),
    )  # fmt: skip


def grouped(episodes: Sequence[Trajectory]) -> list[Trajectory]:
    """The episodes of a batch of TRL's, with the names of their groups."""
    return [
        replace(
            episode,
            spec=replace(episode.spec, group_id=f"g{place // GROUP}", member=place % GROUP),
        )
        for place, episode in enumerate(episodes)
    ]


def compare(
    lm: CausalLM,
    env_args: dict[str, Any],
    average: str,
    *,
    trajectories: int,
    updates: int,
    rollouts: Rollouts | None = None,
) -> Comparison:
    """Updates of both on one batch, which TRL plays.

    Args:
        lm: The policy; stays as it is.
        env_args: Arguments of the environment.
        average: One of :data:`AVERAGES`.
        trajectories: Episodes of the batch.
        updates: Updates on it.
        rollouts: How TRL plays; its attribute ``trajectories`` is what ours learns from.

    Raises:
        RuntimeError: If an episode was lost, which the two weigh differently.
    """
    rollouts = rollouts or make_rollouts(env_args)
    theirs, ours = lm.clone(), lm.clone()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = our_config(
            folder, env_args, updates, trajectories, aggregation=average, constant_length=LONGEST,
            epochs=updates, old_logprobs="recompute",
        )  # fmt: skip
        config.validate()
        specs = World.open(config).cursor(config.seed).take(trajectories // GROUP, 1)
        args = settings(
            folder, updates, trajectories, seed=config.seed, loss_type=AVERAGES[average],
            num_iterations=updates,
        )  # fmt: skip
        trainer = make_trl(theirs, specs, rollouts, args)
        trainer.train()
    episodes = grouped(rollouts.trajectories)
    lost = [episode.error for episode in episodes if not episode.usable]
    if lost:
        raise RuntimeError(f"{len(lost)} of {len(episodes)} episodes were lost: {lost[0]}")
    learner = WatchedLearner(ours, config)
    learner.update(learner.algorithm.credit(group_trajectories(episodes), None), 0)
    triples = zip(
        lm.model.parameters(), ours.model.parameters(), theirs.model.parameters(), strict=True
    )
    apart, moved = 0.0, 0.0
    for start, a, b in triples:
        apart = max(apart, float((a - b).detach().abs().max()))
        moved = max(moved, float((a - start).detach().abs().max()))
    return Comparison(learner.updates, trainer.updates, apart, moved)


@dataclass(frozen=True)
class Speed:
    """What one run took.

    Attributes:
        trajectories: Episodes played and learned from.
        tokens: Sampled tokens in them.
        whole: Time of the run.
        steps: Time of its steps alone: what was sampled, learned and published.
        sampling: Time of its sampling.
        reward: Mean return over the run.
    """

    trajectories: int
    tokens: int
    whole: Clock
    steps: Clock
    sampling: Clock
    reward: float

    @property
    def rate(self) -> float:
        """Trajectories a CPU-second of the steps."""
        return self.trajectories / self.steps.cpu

    @property
    def whole_rate(self) -> float:
        """Trajectories a CPU-second of the run."""
        return self.trajectories / self.whole.cpu


def ours_speed(lm: CausalLM, env_args: dict[str, Any], steps: int, trajectories: int) -> Speed:
    """A run of ``trainers.grpo``."""
    whole, sampling, rewards = Clock(), Clock(), list[float]()
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        config = our_config(Path(name) / "run", env_args, steps, trajectories)
        setup = Setup.around(config, World.open(config), lm)
        trainer = Trainer(GRPO, config, setup, say=lambda _text: None)
        draw = sampling.around(trainer.source.next_groups)

        def next_groups(*args: Any) -> Any:
            groups = draw(*args)
            rewards.extend(member.total_reward for group in groups for member in group)
            return groups

        trainer.source.next_groups = next_groups  # type: ignore[assignment]
        with whole.running():
            status = trainer.run()
    if status != 0:
        raise RuntimeError(f"trainers.grpo ended with status {status}")
    totals = trainer.totals
    steps_took = Clock(totals["cpu_s"], totals["elapsed_s"])
    tokens = int(totals["action_tokens"])
    return Speed(len(rewards), tokens, whole, steps_took, sampling, statistics.fmean(rewards))


def trl_speed(lm: CausalLM, env_args: dict[str, Any], steps: int, trajectories: int) -> Speed:
    """A run of TRL."""
    whole, sampling, rewards = Clock(), Clock(), list[float]()
    rollouts = make_rollouts(env_args)
    draw = sampling.around(rollouts)
    tokens = 0

    def counted(*args: Any) -> Any:
        nonlocal tokens
        columns = draw(*args)
        rewards.extend(episode.total_reward for episode in rollouts.trajectories)
        tokens += sum(episode.n_actions for episode in rollouts.trajectories)
        return columns

    with tempfile.TemporaryDirectory() as name:
        config = our_config(Path(name), env_args, steps, trajectories)
        specs = World.open(config).cursor(config.seed).take(trajectories // GROUP * steps, 1)
        args = settings(Path(name), steps, trajectories, seed=config.seed)
        trainer = make_trl(lm, specs, counted, args)
        with whole.running():
            trainer.train()
    return Speed(len(rewards), tokens, whole, whole, sampling, statistics.fmean(rewards))


#: Who is measured.
RUNS = {"trainers.grpo": ours_speed, "trl.GRPOTrainer": trl_speed}


def speed(
    lm: CausalLM, env_args: dict[str, Any], *, steps: int, trajectories: int, repeats: int
) -> dict[str, list[Speed]]:
    """Runs of both, each from the same weights, the one first and then the other."""
    found: dict[str, list[Speed]] = {name: [] for name in RUNS}
    for repeat in range(repeats):
        for name in list(RUNS)[:: -1 if repeat % 2 else 1]:
            found[name].append(RUNS[name](lm.clone(), env_args, steps, trajectories))
            if torch.get_num_threads() != 1:
                raise RuntimeError(f"{name} set {torch.get_num_threads()} threads")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--trajectories", type=int, default=64)
    parser.add_argument("--updates", type=int, default=4, help="on the batch of the comparison")
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    torch.set_num_threads(1)
    env_args = dict(spec(ENV).tiny)
    lm = resolve_model("tiny", ENV, env_args)

    differ = []
    for average, name in AVERAGES.items():
        found = compare(lm, env_args, average, trajectories=args.trajectories, updates=args.updates)
        print(f"{average} (TRL: {name}), {args.trajectories} episodes")
        print("  update        loss     TRL's  difference   grad norm     TRL's  clipped   TRL's")
        for number, (a, b) in enumerate(zip(found.ours, found.theirs, strict=True), start=1):
            print(
                f"  {number:6} {a.loss:+11.8f} {b.loss:+11.8f} {abs(a.loss - b.loss):9.1e} "
                f"{a.grad_norm:11.7f} {b.grad_norm:11.7f} {a.clipped:7.2%} {b.clipped:7.2%}"
            )
        print(
            f"  weights differ by {found.weights:.1e} at most, having moved by up to "
            f"{found.moved:.1e}",
            flush=True,
        )
        if not found.equal:
            differ.append(average)

    runs = speed(
        lm, env_args, steps=args.steps, trajectories=args.trajectories, repeats=args.repeats
    )
    print(f"{args.steps} steps of {args.trajectories} trajectories, {args.repeats} times, 1 thread")
    for name, took in runs.items():
        for one in took:
            print(
                f"  {name:15} {one.rate:6.2f} trajectories a CPU-second, "
                f"{one.trajectories / one.steps.wall:6.2f} a second; sampling is "
                f"{one.sampling.cpu / one.steps.cpu:.0%} of {one.steps.cpu:.1f} CPU-seconds, the "
                f"whole run {one.whole.cpu:.1f}; {one.tokens / one.trajectories:.1f} tokens each, "
                f"mean return {one.reward:.3f}"
            )
    for what, rate in (("steps", "rate"), ("whole runs", "whole_rate")):
        ours, theirs = (
            statistics.median(getattr(one, rate) for one in runs[name]) for name in RUNS
        )
        print(f"ratio of {what}: {ours / theirs:.2f} (CPU time, medians)")
    if differ:
        sys.exit(f"the losses differ: {', '.join(differ)}")


if __name__ == "__main__":
    main()
