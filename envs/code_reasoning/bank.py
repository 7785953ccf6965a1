"""Where an environment's tasks come from: made on demand, or loaded once and shared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Protocol

from agentgym.sources import SPLITS, LoadedTasks, Source, open_once
from agentgym.tasks import TaskSet
from envs.code_reasoning.dataset import load
from envs.code_reasoning.generator import Generator, GeneratorConfig, Program
from envs.code_reasoning.tasks import CodeTask

__all__ = ["Bank", "GeneratedBank", "LoadedBank", "open_bank"]


class Bank(Protocol):
    """Tasks by id."""

    tasks: TaskSet

    def task(self, task_id: str) -> CodeTask:
        """The task of an id."""
        ...

    def program(self, task_id: str) -> Program | None:
        """The generated program behind a task, or None."""
        ...


class GeneratedBank:
    """Functions made of operations, each made when it is asked for.

    Args:
        config: What they are like.
    """

    def __init__(self, config: GeneratorConfig) -> None:
        self.generator = Generator(config)
        self.tasks = TaskSet(
            {
                split: partial(_ids, split, size)
                for split, size in zip(SPLITS, config.sizes, strict=True)
            },
            train_split="train",
            eval_splits=("validation", "test"),
            difficulty=lambda task_id: len(self.program(task_id).plan.steps),
        )
        self._made = lru_cache(maxsize=256)(self._make)

    def _make(self, task_id: str) -> Program:
        split, _, index = task_id.rpartition("-")
        return self.generator.make(split, int(index))

    def program(self, task_id: str) -> Program:
        """The program of an id such as ``train-17``."""
        return self._made(task_id)

    def task(self, task_id: str) -> CodeTask:
        """The task of an id."""
        return self._made(task_id).task(task_id)


def _ids(split: str, size: int) -> tuple[str, ...]:
    return tuple(f"{split}-{index}" for index in range(size))


class LoadedBank(LoadedTasks[CodeTask]):
    """Tasks from data."""

    def program(self, task_id: str) -> None:
        """None: there is no program behind it."""
        return


def open_bank(
    data: Source | Mapping[str, Source] | None,
    examples: int | None,
    config: Callable[[], GeneratorConfig],
) -> Bank:
    """The tasks of some arguments of ``gym.make``. Files are read once for all environments.

    Args:
        data: See :func:`envs.code_reasoning.dataset.load`; None makes functions of operations.
        examples: Assertions that questions quote; None means one.
        config: Makes the generator's configuration, where it is needed.
    """
    if data is None:
        return GeneratedBank(config())
    shown = 1 if examples is None else examples
    bank: LoadedBank = open_once(
        data, ("code", shown), lambda: LoadedBank(load(data, examples=shown))
    )
    return bank
