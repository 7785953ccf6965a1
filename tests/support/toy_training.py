"""Short training runs on :mod:`toy_rounds`, and exact comparison of what they leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import toy_rounds

from agentgym.info import StopReason
from agentgym.policy import FinishReason
from agentgym.trajectory import EpisodeSpec, Trajectory, TrajectoryGroup, Turn
from trainers.algorithm import Algorithm, CreditBatch
from trainers.config import TrainConfig
from trainers.learner import Learner
from trainers.loop import Trainer
from trainers.rollouts import SyncSource
from trainers.run_dir import read_metrics
from trainers.setup import Setup, World

torch.set_num_threads(1)

SMALL: dict[str, Any] = {
    "env": "ToyRounds-v0",
    "model": "random",
    "action_format": "bare",
    "steps": 2,
    "trajectories": 8,
    "slots": 8,
    "max_action_tokens": 4,
    "max_context": 128,
    "learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "freeze_attention": False,
    "eval_episodes": 2,
    "logged_trajectories": 1,
    "group_size": 4,
}
_CLOCK = ("env_s", "generate_s", "wait_s", "learn_s", "sync_s", "eval_s", "checkpoint_s", "step_s")
_MACHINE = frozenset({*_CLOCK, "tokens_per_s", "elapsed_s", "cpu_s", "max_rss_mb"})


def make_config(kind: type[TrainConfig], **changes: Any) -> TrainConfig:
    """A config of a run that takes a fraction of a second."""
    known = {field.name for field in fields(kind)}
    return kind(**({name: value for name, value in SMALL.items() if name in known} | changes))


def make_trainer(algorithm: type[Algorithm], config: TrainConfig, seed: int = 0) -> Trainer:
    """A trainer of the random model."""
    setup = Setup.around(config, World.open(config), toy_rounds.build_model(seed))
    return Trainer(algorithm, config, setup, say=lambda text: None)


def train(
    algorithm: type[Algorithm], kind: type[TrainConfig], folder: Path | None, **changes: Any
) -> Trainer:
    """A finished run."""
    trainer = make_trainer(algorithm, make_config(kind, run_dir=folder, **changes))
    assert trainer.run() == 0
    return trainer


def rows(folder: Path, *, evaluations: bool = True) -> list[dict[str, Any]]:
    """The rows of a run's metrics without what depends on the machine."""
    return [
        {
            name: value
            for name, value in row.items()
            if name not in _MACHINE and (evaluations or not name.startswith("eval/"))
        }
        for row in read_metrics(folder)
    ]


def state(trainer: Trainer) -> dict[str, Any]:
    """All that a run would save."""
    return {
        "learner": trainer.learner.state_dict(),
        "algorithm": trainer.algorithm.state_dict(),
        "cursor": trainer.source.cursor_state(),
    }


def actor(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The policy's weights."""
    return trainer.learner.weights()


def differences(left: Any, right: Any, place: str = "") -> Iterator[str]:
    """Places where two nested states are not equal, bit for bit."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in {**left, **right}:
            if key not in left or key not in right:
                yield f"{place}/{key} is missing"
            else:
                yield from differences(left[key], right[key], f"{place}/{key}")
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        if len(left) != len(right):
            yield f"{place}: {len(left)} and {len(right)} entries"
        for number, (one, other) in enumerate(zip(left, right, strict=False)):
            yield from differences(one, other, f"{place}[{number}]")
    elif isinstance(left, torch.Tensor):
        if not (isinstance(right, torch.Tensor) and torch.equal(left, right)):
            yield f"{place}: tensors differ"
    elif isinstance(left, np.ndarray):
        if not np.array_equal(left, right):
            yield f"{place}: arrays differ"
    elif left != right:
        yield f"{place}: {left!r} and {right!r}"


def assert_same(left: Any, right: Any) -> None:
    """Two nested states are equal, bit for bit."""
    found = list(differences(left, right))
    assert not found, found[:5]


def rollout(
    lengths: list[int],
    rewards: list[float],
    stop: StopReason = StopReason.FAILED,
    *,
    terminated: bool | None = None,
) -> Trajectory:
    """A trajectory with so many action tokens and such a reward in each turn."""
    turns = [
        Turn(
            context_ids=np.arange(3, dtype=np.int32),
            extends=number > 0,
            action_ids=np.ones(length, np.int32),
            logprobs=np.full(length, -1.0, np.float32),
            versions=np.zeros(length, np.int32),
            trainable=np.ones(length, bool),
            finish_reason=FinishReason.STOP,
            reward=reward,
        )
        for number, (length, reward) in enumerate(zip(lengths, rewards, strict=True))
    ]
    ended = stop in (StopReason.SOLVED, StopReason.FAILED)
    return Trajectory(
        spec=EpisodeSpec(None, None, 0, "g0"),
        turns=turns,
        terminated=ended if terminated is None else terminated,
        truncated=not ended,
        stop_reason=stop,
    )


class Bench:
    """The parts of a run without its folder: samples, credits and updates when told to.

    Args:
        algorithm: Its class.
        config: Its settings.
        seed: Seed of the model.
        layers: Layers of the model.
    """

    def __init__(
        self, algorithm: type[Algorithm], config: TrainConfig, seed: int = 0, layers: int = 1
    ) -> None:
        config.validate()
        self.config = config
        self.setup = Setup.around(config, World.open(config), toy_rounds.build_model(seed, layers))
        self.algorithm = algorithm(config)
        self.learner = Learner(self.setup.lm, self.algorithm, config)
        collector = self.setup.collector(self.setup.policy(), config.temperature)
        cursor = self.setup.world.cursor(config.seed)
        self.source = SyncSource(collector, cursor, lambda: False)
        self.source.publish(self.learner.weights(), 0)
        self.steps = 0

    def play(self) -> list[TrajectoryGroup]:
        """Groups of the next step."""
        plan = self.algorithm.plan(self.steps)
        return self.source.next_groups(plan, plan.trajectories)

    def credit(self, groups: list[TrajectoryGroup]) -> CreditBatch:
        """Their credit."""
        groups, metrics = self.learner.shaped(groups)
        members = [member for group in groups for member in group]
        batch = self.algorithm.credit(groups, self.learner.values(members))
        batch.metrics |= metrics
        return batch

    def step(self) -> dict[str, Any]:
        """One whole step; its metrics."""
        batch = self.credit(self.play())
        metrics = self.learner.update(batch, self.steps) | batch.metrics
        self.steps += 1
        self.source.publish(self.learner.weights(), self.steps)
        return metrics

    def gradients(self, batch: CreditBatch, step: int = 0) -> dict[str, torch.Tensor]:
        """Gradients of one update, actor and critic; nothing is changed by it."""
        found: dict[str, torch.Tensor] = {}

        def record(prefix: str, module: torch.nn.Module) -> None:
            for name, parameter in module.named_parameters():
                if parameter.grad is not None:
                    found[f"{prefix}.{name}"] = parameter.grad.clone()

        learner = self.learner
        optimizers = [(learner.optimizer, "actor", learner.lm.model)]
        if learner.value_learner is not None and learner.value_learner.optimizer is not None:
            optimizers.append((learner.value_learner.optimizer, "critic", learner.critic))
        for optimizer, prefix, module in optimizers:
            optimizer.step = lambda *_, prefix=prefix, module=module: record(prefix, module)
        self.metrics = learner.update(batch, step)
        for optimizer, _, _ in optimizers:
            del optimizer.step
        return found

    def close(self) -> None:
        """Free the policy."""
        self.source.close()
