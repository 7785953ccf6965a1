"""Trajectories per second of asynchronous training beside synchronous, on a simulated workload.

    python -m benchmarks.async_throughput [--steps 60] [--staleness 4] [--clock simulated]

The sources, the collector, the renderer and the queue are the real ones; what is simulated are the
latency of a turn (log-normal), the number of turns, and the learner's step. In simulated time the
figures are those of a machine whose own work costs nothing, and the same on every machine; with
``--clock real`` the latencies are slept through.

Two workloads are measured: the one of the flags, and one without spread (all turns as long as the
median, 8 turns each) with a learner that takes no time, in which there is nothing to be gained and
the ratio has to be about 1.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adapters.policies.chat_text import END, ChatText
from agentgym.collector import Collector, CollectorConfig
from agentgym.env import Outcome, TextEnv
from agentgym.policy import Completion, FinishReason, Request
from agentgym.prompts import ConversationRenderer, EnvPrompt
from agentgym.tasks import TaskSet
from benchmarks.simulated_time import Clock, SimulatedAsyncSource, SimulatedSyncSource
from trainers.algorithm import Plan
from trainers.cursor import TaskCursor
from trainers.rollouts import AsyncSource, SyncSource

__all__ = ["Figures", "Workload", "measure"]


@dataclass(frozen=True)
class Workload:
    """What is simulated.

    Attributes:
        median: Median latency of a turn, in seconds.
        sigma: Standard deviation of the latency's logarithm.
        fewest: Fewest turns of an episode.
        most: Most turns of an episode; all numbers between are as likely.
        slots: Episodes in flight.
        batch: Trajectories of a step.
        group_size: Members of a group.
        learn: Seconds of a learner's step.
        seed: Seed of all of it.
    """

    median: float = 0.05
    sigma: float = 1.0
    fewest: int = 4
    most: int = 12
    slots: int = 64
    batch: int = 64
    group_size: int = 1
    learn: float = 0.2
    seed: int = 0

    @property
    def ideal(self) -> float:
        """Trajectories per second of slots that are never empty and a learner that keeps up."""
        turn = self.median * math.exp(self.sigma**2 / 2)
        busy = self.slots / (turn * (self.fewest + self.most) / 2)
        return min(busy, self.batch / self.learn) if self.learn else busy


class Rounds(TextEnv):
    """An episode of so many turns, whatever is said.

    Args:
        fewest: Fewest turns.
        most: Most turns.
    """

    def __init__(self, fewest: int, most: int) -> None:
        super().__init__()
        self.fewest, self.most, self.left = fewest, most, 0
        self.tasks = TaskSet({"train": ["t"]}, train_split="train", eval_splits=())

    def _begin(self, task_id: str) -> Outcome:
        self.left = int(self.np_random.integers(self.fewest, self.most + 1))
        return Outcome("go")

    def _act(self, action: str) -> Outcome:
        self.left -= 1
        return Outcome("go", terminated=self.left == 0)

    def goal(self) -> str:
        """What the agent is asked for."""
        return "Go on."


class SlowPolicy:
    """Answers after a log-normal latency that the request's key decides.

    Args:
        workload: What is simulated.
    """

    max_context = 1 << 20

    def __init__(self, workload: Workload) -> None:
        self.workload, self.version = workload, 0

    async def generate(self, request: Request) -> Completion:
        first = self.version
        rng = np.random.default_rng([self.workload.seed, *(abs(part) for part in request.key)])
        spread = math.exp(self.workload.sigma * rng.standard_normal())
        await asyncio.sleep(self.workload.median * spread)
        versions = np.array([first, self.version, self.version], np.int32)
        return Completion((*map(ord, "go"), END), np.zeros(3, np.float32), versions,
                          FinishReason.STOP)  # fmt: skip

    async def load_weights(self, state: Mapping[str, Any], version: int) -> None:
        self.version = version

    def release(self, session: str) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class Figures:
    """What was measured.

    Attributes:
        rate: Trajectories per second.
        seconds: Time of the steps measured.
        dropped: Trajectories that grew too old, of all that were consumed or dropped.
        oldest: Largest age of a token that was trained on, in versions.
    """

    rate: float
    seconds: float
    dropped: float
    oldest: int


def measure(
    workload: Workload, staleness: int, steps: int, *, simulated: bool = True, warm_up: int = 5
) -> Figures:
    """Run some steps of a learner that only sleeps.

    Args:
        workload: What is simulated.
        staleness: 0 samples and learns in turn.
        steps: Steps measured.
        simulated: In simulated time.
        warm_up: Steps before these.
    """
    policy = SlowPolicy(workload)
    limits = CollectorConfig(slots=workload.slots, run_seed=workload.seed)
    renderer = ConversationRenderer(ChatText(), EnvPrompt("bare"))
    collector = Collector(lambda: Rounds(workload.fewest, workload.most), renderer, policy, limits)
    plan = Plan(workload.batch // workload.group_size, workload.group_size)
    source, clock = _source(collector, plan, workload, staleness, simulated)
    now = (lambda: clock.now) if clock is not None else time.perf_counter
    began, dropped, oldest = 0.0, 0.0, 0
    try:
        source.publish({}, 0)
        for version in range(warm_up + steps):
            if version == warm_up:
                began, dropped, oldest = now(), 0.0, 0
            groups = source.next_groups(plan, plan.trajectories)
            oldest = max(oldest, *(version - item.min_version for g in groups for item in g))
            if workload.learn:
                if isinstance(source, (SimulatedAsyncSource, SimulatedSyncSource)):
                    source.run(asyncio.sleep(workload.learn))
                else:
                    time.sleep(workload.learn)
            source.publish({}, version + 1)
            source.commit()
            dropped += source.metrics().get("dropped_stale", 0.0)
        seconds = now() - began
    finally:
        source.close()
    consumed = steps * workload.batch
    return Figures(consumed / seconds, seconds, dropped / (consumed + dropped), oldest)


def _source(
    collector: Collector, plan: Plan, workload: Workload, staleness: int, simulated: bool
) -> tuple[SyncSource | AsyncSource, Clock | None]:
    cursor = TaskCursor(None, None, workload.seed)
    clock = Clock() if simulated else None
    if staleness == 0:
        if clock is not None:
            return SimulatedSyncSource(clock, collector, cursor, lambda: False), clock
        return SyncSource(collector, cursor, lambda: False), None
    options: dict[str, Any] = {
        "staleness": staleness,
        "version": 0,
        "interrupted": lambda: False,
    }
    if clock is not None:
        return SimulatedAsyncSource(clock, collector, cursor, plan, **options), clock
    return AsyncSource(collector, cursor, plan, **options), None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.async_throughput")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--staleness", type=int, default=4)
    parser.add_argument("--clock", choices=("simulated", "real"), default="simulated")
    for name in ("median", "sigma", "learn"):
        parser.add_argument(f"--{name}", type=float, default=getattr(Workload, name))
    for name in ("fewest", "most", "slots", "batch", "group_size", "seed"):
        flag = name.replace("_", "-")
        parser.add_argument(f"--{flag}", type=int, default=getattr(Workload, name))
    options = vars(parser.parse_args(argv))
    steps, staleness = options.pop("steps"), options.pop("staleness")
    simulated = options.pop("clock") == "simulated"
    asked = Workload(**options)
    even = replace(asked, sigma=0.0, fewest=8, most=8, learn=0.0)
    for name, workload in (("as asked", asked), ("no spread, free learner", even)):
        before = measure(workload, 0, steps, simulated=simulated)
        print(f"{name}: synchronous {before.rate:.1f} trajectories/s", end="", flush=True)
        after = measure(workload, staleness, steps, simulated=simulated)
        print(
            f", staleness {staleness} {after.rate:.1f} (ideal {workload.ideal:.1f}), ratio "
            f"{after.rate / before.rate:.2f}; {after.dropped:.1%} dropped as too old, oldest token "
            f"consumed {after.oldest} versions old"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
