"""TRL's GRPOTrainer trains the tiny policy on WebShop-v0.

    python -m benchmarks.trl_webshop [--steps 20] [--trajectories 64] [--seeds 0 1 2]

Plays through ``adapters.trl.Rollouts``. Prints the mean reward of every step, its slope over the
steps (least squares), and its mean over the first and the last five; ends with status 1 where one
seed's slope is not positive, or its last steps do not earn more than its first. Before and after,
the policy also plays tasks of a split that it does not train on, with this suite's own sampler.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from adapters.policies.causal_lm import CausalLM
from adapters.policies.models import resolve_model
from adapters.task_rows import task_rows
from adapters.trl import Rollouts, episode_reward
from agentgym.evaluation import evaluation_specs
from agentgym.registry import spec
from agentgym.trajectory import EpisodeSpec, Trajectory
from trainers.config import PlayConfig
from trainers.setup import Setup, World

__all__ = ["ENV", "GROUP", "TURN_TOKENS", "Learned", "learn", "play", "settings"]

ENV = "WebShop-v0"
GROUP = 8
TURN_TOKENS, EPISODE_TOKENS = 24, 1024
#: Mean reward is compared over so many steps at both ends.
ENDS = 5


def settings(folder: Path, steps: int, trajectories: int, **changes: Any) -> GRPOConfig:
    """What TRL is told; no shuffling, so that its tasks are played in the order of the rows."""
    return GRPOConfig(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=trajectories,
        num_generations=GROUP, max_completion_length=EPISODE_TOKENS, temperature=1.0,
        lr_scheduler_type="constant", adam_beta1=0.9, adam_beta2=0.99, weight_decay=0.0,
        max_grad_norm=1.0, epsilon=0.2, epsilon_high=0.28, beta=0.0, scale_rewards="group",
        use_cpu=True, bf16=False, gradient_checkpointing=False, shuffle_dataset=False,
        report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=1,
        **{"learning_rate": 5e-4, "loss_type": "dapo", **changes},
    )  # fmt: skip


def play(lm: CausalLM, env_args: dict[str, Any], specs: Sequence[EpisodeSpec]) -> list[Trajectory]:
    """Episodes of a policy, sampled at temperature 1 by this suite's own sampler."""
    config = PlayConfig(
        env=ENV, env_arg=tuple(f"{name}={value}" for name, value in env_args.items()),
        action_format="bare", max_action_tokens=TURN_TOKENS, max_context=EPISODE_TOKENS,
        device="cpu",
    )  # fmt: skip
    setup = Setup.around(config, World.open(config), lm)

    async def sample() -> list[Trajectory]:
        policy = setup.policy()
        collector = setup.collector(policy, 1.0, evaluation=True)
        try:
            return await collector.collect(specs)
        finally:
            collector.close()
            await policy.aclose()

    return asyncio.run(sample())


def held_out(env_args: dict[str, Any], episodes: int) -> list[EpisodeSpec]:
    """Episodes of the split that evaluations play."""
    world = World.open(
        PlayConfig(env=ENV, env_arg=tuple(f"{name}={value}" for name, value in env_args.items()))
    )
    return evaluation_specs(*world.evaluation_tasks(None), episodes)


@dataclass(frozen=True)
class Learned:
    """One run.

    Attributes:
        rewards: Mean reward of each step.
        losses: Loss of each step.
        before: Mean return in tasks that were not trained on, before training; None where there
            was no evaluation.
        after: The same after it.
        seconds: CPU-seconds of training.
    """

    rewards: tuple[float, ...]
    losses: tuple[float, ...]
    before: float | None
    after: float | None
    seconds: float

    @property
    def slope(self) -> float:
        """Reward a step, by least squares."""
        return float(np.polyfit(np.arange(len(self.rewards)), self.rewards, 1)[0])

    @property
    def ends(self) -> tuple[float, float]:
        """Mean reward of the first and of the last steps."""
        return float(np.mean(self.rewards[:ENDS])), float(np.mean(self.rewards[-ENDS:]))

    @property
    def rising(self) -> bool:
        """Whether the reward went up, by both measures."""
        first, last = self.ends
        return self.slope > 0 and last > first


def learn(
    lm: CausalLM,
    env_args: dict[str, Any],
    *,
    steps: int,
    trajectories: int,
    seed: int,
    evaluate: int,
    **changes: Any,
) -> Learned:
    """Train a policy in place.

    Args:
        lm: The policy.
        env_args: Arguments of the environment.
        steps: Optimiser updates.
        trajectories: Episodes of each.
        seed: Chooses tasks and what is sampled.
        evaluate: Episodes of the evaluations before and after; 0 for none.
        **changes: Further settings of TRL.
    """
    tested = held_out(env_args, evaluate) if evaluate else []

    def score() -> float | None:
        if not tested:
            return None
        return float(np.mean([episode.total_reward for episode in play(lm, env_args, tested)]))

    rows = task_rows(ENV, steps * trajectories // GROUP, seed=seed, **env_args)
    before = score()
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=lm.model, processing_class=lm.tokenizer, reward_funcs=episode_reward,
            rollout_func=Rollouts(
                ENV, turn_tokens=TURN_TOKENS, action_format="bare", **env_args
            ),
            train_dataset=Dataset.from_list(rows),
            args=settings(Path(folder), steps, trajectories, seed=seed, **changes),
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        began = time.process_time()
        trainer.train()
        seconds = time.process_time() - began
    lm.model.eval()  # TRL leaves it in training mode
    logged = [row for row in trainer.state.log_history if "reward" in row]
    return Learned(
        tuple(row["reward"] for row in logged),
        tuple(row["loss"] for row in logged),
        before,
        score(),
        seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--trajectories", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--evaluate", type=int, default=200)
    args = parser.parse_args()
    if args.steps < 2 * ENDS:
        parser.error(f"--steps is {args.steps}; it must be at least {2 * ENDS}")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    torch.set_num_threads(1)
    env_args = dict(spec(ENV).tiny)
    start = resolve_model("tiny", ENV, env_args)
    flat = []
    for seed in args.seeds:
        found = learn(
            start.clone(), env_args, steps=args.steps, trajectories=args.trajectories, seed=seed,
            evaluate=args.evaluate, learning_rate=args.learning_rate,
        )  # fmt: skip
        first, last = found.ends
        print(f"seed {seed}, reward by step:", " ".join(f"{x:.3f}" for x in found.rewards))
        print(
            f"  slope {found.slope:+.4f} a step; first {ENDS} steps {first:.3f}, last {ENDS} "
            f"{last:.3f}; {found.seconds:.0f} CPU-seconds"
        )
        if found.before is not None and found.after is not None:
            print(f"  {args.evaluate} held-out tasks: {found.before:.3f} -> {found.after:.3f}")
        sys.stdout.flush()
        if not found.rising:
            flat.append(seed)
    if flat:
        sys.exit(f"the reward does not rise with seed {', '.join(map(str, flat))}")


if __name__ == "__main__":
    main()
