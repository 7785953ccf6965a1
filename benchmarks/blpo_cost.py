"""What step-level credit costs: advantages of a batch with a full memory, on one core.

    python -m benchmarks.blpo_cost [--cells 200000]

A batch is 16 groups of 8 rollouts of 50 turns; halves and doubles of it show that the cost grows
with the number of rows alone. Printed is the CPU time of the process, best of three.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from agentgym.info import StopReason
from agentgym.policy import FinishReason
from agentgym.trajectory import EpisodeSpec, Trajectory, TrajectoryGroup, Turn
from trainers.advantages.memory import Effect, ProgressMemory
from trainers.blpo import BLPO, BLPOConfig

#: Promised for the published batch.
LIMIT = 0.5


def fill(memory: ProgressMemory, cells: int, rng: np.random.Generator) -> None:
    """Cells of eight kinds of action a state, each known from three contexts."""
    states = -(-cells // 8)
    for start in range(0, states, 2000):
        memory.tick()
        memory.absorb(
            Effect(f"state {state}", f"kind {kind}", f"context {rng.integers(5000)}", value)
            for state in range(start, min(start + 2000, states))
            for kind in range(8)
            for value in rng.normal(size=3)
        )


def batch(groups: int, cells: int, rng: np.random.Generator) -> list[TrajectoryGroup]:
    """Groups of 8 rollouts of 50 turns, in states that the memory knows."""
    states = max(cells // 8, 1)

    def turn(group: int, last: bool) -> Turn:
        place, kind = int(rng.integers(40)), int(rng.integers(8))
        return Turn(
            context_ids=np.zeros(2, np.int32),
            extends=False,
            action_ids=np.zeros(4, np.int32),
            logprobs=np.zeros(4, np.float32),
            versions=np.zeros(4, np.int32),
            trainable=np.ones(4, bool),
            finish_reason=FinishReason.STOP,
            action=f"go to shelf {int(rng.integers(12))}",
            reward=float(rng.random() < 0.5) * last,
            observation=f"You arrive at shelf {place}. On the shelf {place}, you see nothing.",
            state=f"state {(group * 40 + place) % states}",
            abstract_action=f"kind {kind}",
            shareable=True,
            context_key=f"context {group} {place}",
        )

    return [
        TrajectoryGroup(
            f"g{group}",
            [
                Trajectory(
                    EpisodeSpec(f"task-{group}", "train", 0, f"g{group}", member),
                    [turn(group, number == 49) for number in range(50)],
                    task_id=f"task-{group}",
                    terminated=True,
                    stop_reason=StopReason.FAILED,
                )
                for member in range(8)
            ],
        )
        for group in range(groups)
    ]


def measure(groups: int, memory: ProgressMemory, cells: int) -> tuple[int, float]:
    """Rows, and CPU seconds of their credit."""
    best = float("inf")
    for attempt in range(3):
        played = batch(groups, cells, np.random.default_rng(attempt))
        algorithm = BLPO(BLPOConfig(trajectories=8 * groups, group_size=8))
        algorithm.memory = memory
        began = time.process_time()
        algorithm.credit(played, None)
        best = min(best, time.process_time() - began)
    return groups * 400, best


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=200_000)
    options = parser.parse_args(argv)
    memory = BLPOConfig().new_memory()
    fill(memory, options.cells, np.random.default_rng(0))
    for groups in (4, 8, 16, 32):
        rows, seconds = measure(groups, memory, options.cells)
        note = f"  (promised: {LIMIT} s)" if groups == 16 else ""
        each = 1e6 * seconds / rows
        print(f"{rows:6,} rows, {len(memory):,} cells: {seconds:.3f} s, {each:.1f} us a row{note}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
