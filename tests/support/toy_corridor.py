"""A sparse task in many guises, and a table that learns it: what credit by the step is good for.

Each task is a corridor of doors in texts of its own; behind the last one is the only reward. Which
of the doors leads on depends on the family of the corridor and on how far one has come. The policy
is a table over (family, stage), so that what is learnt in one corridor helps in all of its family.
"""

from __future__ import annotations

import numpy as np
from step_tables import rollout, step

from agentgym.trajectory import Trajectory, TrajectoryGroup
from trainers.algorithm import Algorithm

FAMILIES, STAGES, DOORS, LIMIT = 2, 4, 4, 6


def play(
    theta: np.ndarray, task: int, group: str, member: int, rng: np.random.Generator
) -> Trajectory:
    """One episode; a wrong door leads nowhere."""
    family, stage, turns = task % FAMILIES, 0, []
    for _ in range(LIMIT):
        p = np.exp(theta[family, stage])
        door = int(rng.choice(DOORS, p=p / p.sum()))
        right = door == (family + stage) % DOORS
        done = right and stage == STAGES - 1
        turns.append(
            step(
                f"corridor {task}, door row {stage}",
                f"open {door}",
                float(done),
                state=f"family {family} stage {stage}",
                kind=f"door {door}",
                context=f"{task}/{stage}",
            )
        )
        stage += right
        if done:
            break
    return rollout(group, member, turns, task=f"task-{task}")


def success(theta: np.ndarray) -> float:
    """Chance to get through, over both families."""
    total = 0.0
    for family in range(FAMILIES):
        reach = np.zeros(STAGES + 1)
        reach[0] = 1.0
        for _ in range(LIMIT):
            for stage in reversed(range(STAGES)):
                p = np.exp(theta[family, stage])
                right = p[(family + stage) % DOORS] / p.sum()
                reach[stage + 1] += reach[stage] * right
                reach[stage] *= 1 - right
        total += reach[STAGES] / FAMILIES
    return total


def learn(algorithm: Algorithm, updates: int, seed: int, rate: float = 0.3) -> list[float]:
    """Chance of success after each update of a table that starts knowing nothing."""
    rng = np.random.default_rng(seed)
    theta = np.zeros((FAMILIES, STAGES, DOORS))
    curve = []
    plan = algorithm.plan(0)
    for update in range(updates):
        groups = []
        for number in range(plan.tasks):
            task, name = int(rng.integers(1000)), f"u{update}-{number}"
            members = [play(theta, task, name, m, rng) for m in range(plan.group_size)]
            groups.append(TrajectoryGroup(name, members))
        batch = algorithm.credit(groups, None)
        gradient = np.zeros_like(theta)
        for item, credit in zip(batch.trajectories, batch.credit, strict=True):
            for turn, advantage in zip(item.turns, credit.advantages, strict=True):
                family, stage = int(turn.state.split()[1]), int(turn.state.split()[3])
                p = np.exp(theta[family, stage])
                grad = -p / p.sum()
                grad[int(turn.action.split()[1])] += 1.0
                gradient[family, stage] += advantage[0] * grad
        theta += rate * gradient / plan.trajectories
        curve.append(success(theta))
    return curve
