"""Which tasks are played for training, in which order, and where a run that is resumed goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentgym.guidance import Guidance
from agentgym.trajectory import EpisodeSpec

__all__ = ["TaskCursor", "group_number"]


@dataclass
class TaskCursor:
    """Walks through the training tasks in a seeded order, epoch after epoch.

    Attributes:
        ids: Task ids of the training split; None draws tasks by environment seed.
        split: Name of that split.
        seed: Seed of the order and of the episodes.
        difficulty: Puts the easier tasks of each stretch first; None leaves the seeded order.
        stretch: Tasks that are sorted together; None sorts all of an epoch.
        position: Groups handed out so far.
        replay: Numbers of groups to hand out again first: those that were under way when the
            run that is resumed was stopped.
    """

    ids: tuple[str, ...] | None
    split: str | None
    seed: int
    difficulty: Callable[[str], float] | None = None
    stretch: int | None = None
    position: int = 0
    replay: list[int] = field(default_factory=list)
    _order: tuple[int, np.ndarray] | None = field(default=None, repr=False)

    def take(
        self, groups: int, group_size: int, guidance: Sequence[Guidance | None] = ()
    ) -> list[EpisodeSpec]:
        """Episodes of the next groups; the members of a group are replicas of one (task, seed).

        Args:
            groups: How many.
            group_size: Members of each.
            guidance: What each member of a group is given; empty for nothing.
        """
        given = list(guidance) or [None] * group_size
        specs: list[EpisodeSpec] = []
        for _ in range(groups):
            if self.replay:
                number = self.replay.pop(0)
            else:
                number = self.position
                self.position += 1
            episode_seed = int(np.random.default_rng([self.seed, number, 0xE9]).integers(2**31 - 1))
            task_id = self._task(number)
            specs += [
                EpisodeSpec(task_id, self.split, episode_seed, f"g{number}", member, given[member])
                for member in range(group_size)
            ]
        return specs

    def state_dict(self, unfinished: Sequence[str] = ()) -> dict[str, Any]:
        """Plain values that resume the walk.

        Args:
            unfinished: Names of groups that were handed out and are to be handed out again.
        """
        replay = sorted({*self.replay, *map(group_number, unfinished)})
        return {"position": self.position, "replay": replay}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.position, self.replay = int(state["position"]), [int(n) for n in state["replay"]]

    def _task(self, number: int) -> str | None:
        if self.ids is None:
            return None
        epoch, at = divmod(number, len(self.ids))
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch, 0x7A5C])
            self._order = (epoch, self._sorted(rng.permutation(len(self.ids))))
        return self.ids[int(self._order[1][at])]

    def _sorted(self, order: np.ndarray) -> np.ndarray:
        """An epoch's order with each stretch from easy to hard; equals keep their places."""
        if self.difficulty is None:
            return order
        assert self.ids is not None
        out = []
        width = self.stretch or len(order)
        for start in range(0, len(order), width):
            part = order[start : start + width].tolist()
            out += sorted(part, key=lambda index: self.difficulty(self.ids[index]))  # type: ignore
        return np.asarray(out, order.dtype)


def group_number(group_id: str) -> int:
    """Number of a group in the cursor's walk, from its name."""
    return int(group_id[1:])
