"""Speed of sampling, where its time goes, and what the suite costs beside its engine.

    python -m benchmarks.rollout --env AlfWorld-v0 --model tiny --policy torch [--learn True]

Plays ``--episodes`` episodes, ``--slots`` at a time, and prints

* tokens sampled and read per second, and per CPU-second of everything;
* the overhead: CPU-seconds outside the engine over all CPU-seconds of sampling. The engine of
  ``torch`` is the sampler's forward passes and draws; that of ``vllm`` is its processes;
* with ``--learn True``, the shares of a whole step of GRPO: generate (environments left out), env,
  learn and sync, in wall-clock time.

Start-up and the first publication of weights are left out.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.evaluation import evaluation_specs
from agentgym.trajectory import EpisodeSpec, Trajectory, group_trajectories
from trainers.command_line import with_preset
from trainers.grpo import GRPO, GRPOConfig
from trainers.learner import Learner
from trainers.loop import torch_threads
from trainers.rollouts import SyncSource
from trainers.setup import Setup, World

__all__ = ["Figures", "measure"]


@dataclass(frozen=True)
class Figures:
    """What was measured.

    Attributes:
        episodes: Episodes played.
        sampled: Tokens sampled.
        read: Tokens of prompts, each counted once.
        wall: Seconds of sampling.
        cpu: CPU-seconds of sampling, those of engines in other processes included.
        engine_cpu: CPU-seconds of the engine among them.
        env: Seconds in environments, summed over episodes that run at the same time.
        sync: Seconds to publish weights.
        learn: Seconds of an update, or None.
    """

    episodes: int
    sampled: int
    read: int
    wall: float
    cpu: float
    engine_cpu: float
    env: float
    sync: float
    learn: float | None = None

    @property
    def overhead(self) -> float:
        """CPU-seconds outside the engine over all of them."""
        return 1.0 - self.engine_cpu / self.cpu

    def lines(self) -> list[str]:
        """For people."""
        out = [
            f"{self.episodes} episodes: {self.sampled:,} tokens sampled, {self.read:,} read",
            f"{self.sampled / self.wall:,.0f} sampled and {self.read / self.wall:,.0f} read a "
            f"second; {(self.sampled + self.read) / self.cpu:,.0f} tokens a CPU-second",
            f"overhead: {self.overhead:.1%} of {self.cpu:.1f} CPU-seconds are outside the engine",
        ]
        if self.learn is not None:
            whole = self.wall + self.learn + self.sync
            shares = {
                "generate": self.wall - self.env,
                "env": self.env,
                "learn": self.learn,
                "sync": self.sync,
            }
            shown = ", ".join(f"{name} {part / whole:.1%}" for name, part in shares.items())
            out.append(f"a step of {whole:.1f} s: {shown}")
        return out


class _EngineTime:
    """CPU-seconds of a policy's engine, as they add up."""

    def __init__(self, policy: Any) -> None:
        self._policy, self._spent = policy, 0.0
        if not hasattr(policy, "pids"):
            step = policy._engine.step

            def timed() -> Any:
                began = time.thread_time()
                try:
                    return step()
                finally:
                    self._spent += time.thread_time() - began

            policy._engine.step = timed

    @property
    def elsewhere(self) -> bool:
        """The engine's time is not this process's."""
        return hasattr(self._policy, "pids")

    def read(self) -> float:
        """So far."""
        if not self.elsewhere:
            return self._spent
        ticks = os.sysconf("SC_CLK_TCK")
        return sum(_ticks(pid) for pid in self._policy.pids) / ticks


def _ticks(pid: int) -> int:
    """Processor ticks of a process and of those that it has started, living or not."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    spent = sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        spent += sum(_ticks(int(child)) for child in file.read_text().split())
    return spent


def measure(
    config: GRPOConfig, episodes: int, *, learn: bool = False, setup: Setup | None = None
) -> Figures:
    """Play, and time it.

    Args:
        config: Environment, model and policy.
        episodes: How many.
        learn: Also take one step of GRPO on them.
        setup: The model; made from the config when omitted.
    """
    world = World.open(config) if setup is None else setup.world
    setup = setup or Setup.make(config, world, print)
    policy = setup.policy()
    collector = setup.collector(policy, config.temperature)
    cursor = world.cursor(config.seed)
    source = SyncSource(collector, cursor, lambda: False)
    algorithm = GRPO(config)
    learner = Learner(setup.lm, algorithm, config) if learn else None
    weights = {name: value.detach() for name, value in setup.lm.model.state_dict().items()}
    try:
        source.publish(weights, 0)
        specs = _specs(cursor.ids, cursor.split, episodes, config.group_size if learn else 1)
        source.play(collector, specs[: min(4, len(specs))])  # warm up
        engine = _EngineTime(policy)
        env_before, engine_before = collector.env_seconds, engine.read()
        cpu, wall = time.process_time(), time.perf_counter()
        played = source.play(collector, specs)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        engine_cpu = engine.read() - engine_before
        env = collector.env_seconds - env_before
        learned = None
        if learner is not None:
            began = time.perf_counter()
            groups = group_trajectories(played)
            learner.update(algorithm.credit(groups, None), 0)
            learned = time.perf_counter() - began
            weights = learner.weights()
        began = time.perf_counter()
        source.publish(weights, 1)
        sync = time.perf_counter() - began
    finally:
        source.close()
    return Figures(
        len(played),
        sum(item.n_actions for item in played),
        _read(played),
        wall,
        cpu + (engine_cpu if engine.elsewhere else 0.0),
        engine_cpu,
        env,
        sync,
        learned,
    )


def _specs(
    ids: Sequence[str] | None, split: str | None, episodes: int, members: int
) -> list[EpisodeSpec]:
    return evaluation_specs(ids, split, max(1, episodes // members), members)


def _read(played: Sequence[Trajectory]) -> int:
    return sum(len(turn.context_ids) for item in played for turn in item.turns)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rollout")
    parser.add_argument("--env", default="AlfWorld-v0")
    parser.add_argument("--env-arg", nargs="*", default=[])
    parser.add_argument("--model", default="tiny", help="tiny, a folder, or a hub id")
    parser.add_argument("--policy", choices=("torch", "vllm"), default="torch")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--max-action-tokens", type=int)
    parser.add_argument("--max-context", type=int)
    parser.add_argument("--learn", choices=("True", "False"), default="False")
    options = parser.parse_args(argv)
    config = with_preset(GRPOConfig, "auto", options.model)
    for name in ("env", "policy", "slots", "engines", "max_action_tokens", "max_context"):
        value = getattr(options, name)
        if value is not None:
            setattr(config, name, value)
    config.env_arg = tuple(options.env_arg)
    config.validate()
    with torch_threads(config.threads):
        figures = measure(config, options.episodes, learn=options.learn == "True")
    print(f"{config.env}, {config.model}, {config.policy}, {config.slots} at a time")
    print("\n".join(figures.lines()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
