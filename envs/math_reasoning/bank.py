"""Where an environment's tasks come from: made on demand, or loaded once and shared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from agentgym.sources import LoadedTasks, open_once
from agentgym.tasks import TaskSet
from envs.math_reasoning.columns import MathTask
from envs.math_reasoning.dataset import SPLITS, Source, load
from envs.math_reasoning.word_problems import Generator, GeneratorConfig, Problem

__all__ = ["Bank", "GeneratedBank", "LoadedBank", "open_bank"]


class Bank(Protocol):
    """Tasks by id."""

    tasks: TaskSet

    def task(self, task_id: str) -> MathTask:
        """The task of an id."""
        ...

    def problem(self, task_id: str) -> Problem | None:
        """The generated problem behind a task, or None."""
        ...


class GeneratedBank:
    """Word problems, each made when it is asked for.

    Args:
        config: What they are like.
    """

    def __init__(self, config: GeneratorConfig) -> None:
        self.generator = Generator(config)
        self.compact = config.difficulty == "small"
        self.tasks = TaskSet(
            {
                split: partial(_ids, split, size)
                for split, size in zip(SPLITS, config.sizes, strict=True)
            },
            train_split="train",
            eval_splits=("validation", "test"),
            difficulty=lambda task_id: len(self.problem(task_id).steps),
        )

    def problem(self, task_id: str) -> Problem:
        """The problem of an id such as ``train-17``."""
        split, _, index = task_id.rpartition("-")
        return self.generator.make(split, int(index))

    def task(self, task_id: str) -> MathTask:
        """The task of an id."""
        problem = self.problem(task_id)
        steps = problem.steps
        if self.compact:
            reference = tuple(step.compact() for step in steps)
        else:
            reference = tuple(step.sentence(problem.theme) for step in steps)
        kind = f"{len(steps)} step{'s' if len(steps) > 1 else ''}"
        return MathTask(task_id, problem.question, str(problem.answer), reference, kind)


def _ids(split: str, size: int) -> tuple[str, ...]:
    return tuple(f"{split}-{index}" for index in range(size))


class LoadedBank(LoadedTasks[MathTask]):
    """Tasks from data, ranked where each task to train on has a level."""

    def __init__(self, tasks: Mapping[str, Sequence[MathTask]]) -> None:
        super().__init__(tasks)
        levels = {one.id: one.level for split in tasks.values() for one in split}
        if all(levels[name] is not None for name in self.tasks.ids(self.tasks.train_split)):
            self.tasks.difficulty = lambda task_id: levels[task_id] or 0.0

    def problem(self, task_id: str) -> None:
        """None: there is no problem behind it."""
        return


def open_bank(
    data: Source | Mapping[str, Source] | None,
    columns: Mapping[str, str] | None,
    config: Callable[[], GeneratorConfig],
) -> Bank:
    """The tasks of some arguments of ``gym.make``. Files are read once for all environments.

    Args:
        data: See :func:`envs.math_reasoning.dataset.load`; None generates word problems.
        columns: Role to column.
        config: Makes the generator's configuration, where it is needed.
    """
    if data is None:
        return GeneratedBank(config())
    kind = ("math", *sorted((columns or {}).items()))
    bank: LoadedBank = open_once(data, kind, lambda: LoadedBank(load(data, columns=columns)))
    return bank
