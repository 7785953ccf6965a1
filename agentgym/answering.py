"""Environments that put one question and take attempts at the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from agentgym.env import TextEnv
from agentgym.sources import SPLITS
from agentgym.tasks import TaskSet

__all__ = ["AnsweringEnv", "Question", "QuestionBank", "check_sizes", "pair"]

_LARGEST = 10_000_000


class Question(Protocol):
    """A task that is a question."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def question(self) -> str:
        """What the agent reads."""
        ...

    @property
    def type(self) -> str:
        """Its kind."""
        ...

    @property
    def reference(self) -> tuple[str, ...]:
        """Pieces of a solution, in order; empty where there is none."""
        ...


class QuestionBank(Protocol):
    """Questions by id."""

    tasks: TaskSet

    def task(self, task_id: str) -> Any:
        """The question of an id."""
        ...


Task = TypeVar("Task", bound=Question)
Bank = TypeVar("Bank", bound=QuestionBank)


class AnsweringEnv(TextEnv, Generic[Task, Bank]):
    """One question an episode, and ``turns`` attempts of which later ones are worth less.

    Subclasses implement :meth:`_act`.

    Args:
        open_bank: Gives the tasks; called when the other arguments have been checked.
        compact: Solutions and demonstrations are written in few tokens, on one line.
        turns: Attempts at the answer.
        discount: What each attempt before costs, as a factor in [0, 1].
        max_steps: Step limit; None allows all attempts and ``other_steps``.
        other_steps: Steps that are no attempts, such as calls of tools.
        split: Split that is played.
        expert: Put the reference into ``info``.
        render_mode: ``"ansi"`` or None.

    Raises:
        ValueError: If an argument is out of range, or the split holds no task.
    """

    def __init__(
        self,
        open_bank: Callable[[], Bank],
        *,
        compact: bool,
        turns: int,
        discount: float,
        max_steps: int | None,
        other_steps: int = 0,
        split: str | None,
        expert: bool,
        render_mode: str | None,
    ) -> None:
        if type(turns) is not int or turns < 1:
            raise ValueError(f"turns must be an int >= 1, got {turns!r}")
        if isinstance(discount, bool) or not isinstance(discount, int | float):
            raise ValueError(f"discount must be a number in [0, 1], got {discount!r}")
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"discount must lie in [0, 1], got {discount!r}")
        if split is not None and split not in SPLITS:
            raise ValueError(f"split must be one of {SPLITS}, got {split!r}")
        max_steps = turns + other_steps if max_steps is None else max_steps
        super().__init__(split=split, max_steps=max_steps, expert=expert, render_mode=render_mode)
        self._bank = open_bank()
        self.tasks = self._bank.tasks
        self.turns, self.discount, self.compact = turns, float(discount), compact
        if split is not None and not self.tasks.ids(split):
            held = [name for name in self.tasks.splits if self.tasks.ids(name)]
            raise ValueError(f"split {split!r} is empty; there are tasks in {held}")
        self._task: Task | None = None
        self._attempts = 0

    @property
    def task(self) -> Task:
        """The current task, with what is hidden from the agent.

        Raises:
            RuntimeError: Before the first reset.
        """
        if self._task is None:
            raise RuntimeError("no task yet; call reset() first")
        return self._task

    def goal(self) -> str:
        """The question."""
        return self.task.question

    def task_type(self) -> str:
        """Kind of the task."""
        return self.task.type

    def reference(self) -> tuple[str, ...]:
        """Pieces of a solution, in order; none where the data have none."""
        return self.task.reference

    @property
    def reference_joiner(self) -> str:
        """What stands between the pieces of a solution in a response."""
        return " " if self.compact else "\n"

    def _ask(self, task_id: str) -> Task:
        """Make a task the current one, with all attempts left."""
        self._task = self._bank.task(task_id)
        self._attempts = 0
        return self._task


def check_sizes(sizes: Any) -> None:
    """Refuse what are no numbers of tasks to generate for the three splits.

    Raises:
        ValueError: If they are not three ints from 0 to ten million; ids of tasks are listed.
    """
    if len(sizes) != 3 or any(type(n) is not int or not 0 <= n <= _LARGEST for n in sizes):
        raise ValueError(f"sizes must be three ints from 0 to {_LARGEST}, got {sizes!r}")


def pair(value: Any) -> Any:
    """A list, as a command line gives it, as the pair it stands for."""
    return tuple(value) if isinstance(value, list) else value
