"""Which goal an episode gets: uniform draws, and the original's weighted ones."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import numpy as np

from agentgym.tasks import TaskSet
from envs.webshop.catalogue import Compat
from envs.webshop.goals import Goal, GoalSet

__all__ = ["EVERY_GOAL", "UpstreamTasks", "task_set"]

#: Under the original's rules, the "split" that draws from all goals.
EVERY_GOAL = "all"


class UpstreamTasks(TaskSet):
    """Tasks drawn as the original draws them.

    Goals count by weight, but the place found among the running totals is one too high: the first
    goal is never drawn and the last one gets the weight of its neighbour too.

    Args:
        splits: Split name to task ids.
        goals: All goals, in order.
    """

    def __init__(self, splits: dict[str, tuple[str, ...]], goals: GoalSet) -> None:
        super().__init__(splits, train_split="train", eval_splits=("validation", "test"))
        self._goals = goals
        self._pools: dict[str, tuple[tuple[Goal, ...], list[float]]] = {}

    def sample(self, rng: np.random.Generator, split: str | None = None) -> str:
        """Draw one id by the original's rule.

        Args:
            rng: Source of randomness.
            split: A split, or ``"all"`` (which is also what None means).

        Raises:
            ValueError: If the split is unknown or empty.
        """
        name = EVERY_GOAL if split is None else split
        if name not in self._pools:
            goals = (
                self._goals.goals
                if name == EVERY_GOAL
                else tuple(self._goals[task_id] for task_id in self.ids(name))
            )
            if not goals:
                raise ValueError(f"split {name!r} holds no task")
            self._pools[name] = goals, list(accumulate((g.weight for g in goals), initial=0.0))
        goals, totals = self._pools[name]
        place = bisect_right(totals, rng.uniform(0, totals[-1]))
        return goals[min(place, len(goals) - 1)].task_id


def task_set(splits: dict[str, tuple[str, ...]], goals: GoalSet, compat: Compat) -> TaskSet:
    """The tasks of a shop, drawn by the rules it was opened with."""
    if compat == "upstream":
        return UpstreamTasks(splits, goals)
    return TaskSet(splits, train_split="train", eval_splits=("validation", "test"))
