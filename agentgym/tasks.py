"""Task sets: which tasks an environment has, in which splits, under which stable ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np


class TaskSet:
    """Named, disjoint splits of task ids.

    Ids are strings that do not depend on seeds, workers or the order of construction. A split
    may be given as a function that is called on first use, for sets that are costly to list; it
    is checked then.

    Args:
        splits: Split name to the ids it holds, or to a function that returns them.
        train_split: The split that training draws from.
        eval_splits: The splits that evaluation reports, in order.
        difficulty: From a task id to a number that is larger for harder tasks, for curricula; None
            where tasks are not ranked.

    Raises:
        ValueError: If a named split is absent, or an id stands twice.
        TypeError: If ids are not strings.
    """

    def __init__(
        self,
        splits: Mapping[str, Sequence[str] | Callable[[], Sequence[str]]],
        *,
        train_split: str,
        eval_splits: Sequence[str],
        difficulty: Callable[[str], float] | None = None,
    ) -> None:
        self.difficulty = difficulty
        self._sources = dict(splits)
        self._ids: dict[str, tuple[str, ...]] = {}
        self._split_of: dict[str, str] = {}
        for name in (train_split, *eval_splits):
            if name not in self._sources:
                raise ValueError(f"split {name!r} is not among {sorted(self._sources)}")
        self.train_split = train_split
        self.eval_splits = tuple(eval_splits)
        for name, source in self._sources.items():
            if not callable(source):
                self.ids(name)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of all splits."""
        return tuple(self._sources)

    def ids(self, split: str) -> tuple[str, ...]:
        """Ids of one split, in a fixed order.

        Raises:
            ValueError: If there is no such split, or one of its ids stands twice.
            TypeError: If an id is not a string.
        """
        known = self._ids.get(split)
        if known is not None:
            return known
        if split not in self._sources:
            raise ValueError(f"unknown split {split!r}; this environment has {list(self.splits)}")
        source = self._sources[split]
        listed = source() if callable(source) else source
        if isinstance(listed, str):
            raise TypeError(f"split {split!r} must be a sequence of ids, got the str {listed!r}")
        ids = tuple(listed)
        home: dict[str, str] = {}
        for task_id in ids:
            if not isinstance(task_id, str):
                raise TypeError(f"split {split!r} holds {task_id!r}; task ids are strings")
            if task_id in home:
                raise ValueError(f"task {task_id!r} stands twice in split {split!r}")
            other = self._split_of.get(task_id)
            if other is not None:
                raise ValueError(f"task {task_id!r} stands in splits {other!r} and {split!r}")
            home[task_id] = split
        self._split_of |= home
        self._ids[split] = ids
        return ids

    def split_of(self, task_id: str) -> str:
        """The split that holds ``task_id``.

        Raises:
            KeyError: If no split holds it; the message shows what ids look like.
        """
        found = self._split_of.get(task_id)
        if found is None:
            for name in self.splits:
                self.ids(name)
            found = self._split_of.get(task_id)
        if found is None:
            example = next((ids[0] for ids in self._ids.values() if ids), "none at all")
            raise KeyError(f"unknown task_id {task_id!r}; an id of this environment is {example!r}")
        return found

    def sample(self, rng: np.random.Generator, split: str | None = None) -> str:
        """Draw one id uniformly with the caller's generator; global randomness is untouched.

        Args:
            rng: Source of randomness.
            split: Split to draw from; the training split when None.

        Raises:
            ValueError: If the split is unknown or empty.
        """
        name = self.train_split if split is None else split
        ids = self.ids(name)
        if not ids:
            raise ValueError(f"split {name!r} holds no task")
        return ids[int(rng.integers(len(ids)))]

    def __len__(self) -> int:
        return sum(len(self.ids(name)) for name in self.splits)
