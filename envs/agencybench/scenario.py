"""What a scenario is: chained tasks, the checks that score them, and the world behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from agentgym.dice import Dice

if TYPE_CHECKING:
    from envs.agencybench.assessment import Assessment

__all__ = [
    "CAPABILITIES",
    "Carry",
    "Check",
    "Finding",
    "Policy",
    "Scenario",
    "Service",
    "State",
    "Task",
    "World",
]

#: In the order of the benchmark's table.
CAPABILITIES = ("Game", "Frontend", "Backend", "Code", "Research", "MCP")

#: Which attempt's workspace the next attempt and the next task start from.
Carry = Literal["best", "first", "last"]


class State(StrEnum):
    """How a check came out. ``SKIPPED`` could not be run here; ``ERROR`` is nobody's score."""

    PASS = "pass"
    PARTIAL = "partial"
    FAIL = "fail"
    SKIPPED = "skipped"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw.

    Attributes:
        value: How far it is met, in [0, 1]; None where it was skipped or went wrong.
        observed: What was there, for the agent's eyes.
        error: Why there is no value: ``skipped`` or ``error``, and the reason in ``observed``.
    """

    value: float | None
    observed: str = ""
    error: Literal["skipped", "error"] | None = None

    def __post_init__(self) -> None:
        if self.value is None and self.error is None:
            raise ValueError("a finding without a value says whether it is skipped or an error")
        if self.value is not None and not 0.0 <= self.value <= 1.0:
            raise ValueError(f"the value of a finding lies in [0, 1], got {self.value!r}")

    @property
    def state(self) -> State:
        """The state that follows from the value."""
        if self.error is not None:
            return State(self.error)
        if self.value == 1.0:
            return State.PASS
        return State.FAIL if self.value == 0.0 else State.PARTIAL


@dataclass(frozen=True, slots=True)
class Check:
    """One weighted requirement of a task.

    Attributes:
        id: Name within the task.
        weight: Its share of the task's score, > 0.
        required: What must be true, in words that hold no answer; the agent reads it.
        run: Looks at the workspace and says what it found. Raising
            :class:`~envs.agencybench.assessment.Unmet` is a value of 0; any other exception is an
            error of the assessor and never a score.
        needs: What must be there for it to run (``judge``, ``vision``, ``browser``); it is
            skipped otherwise.
        kind: What it looks at, for statistics.
    """

    id: str
    weight: float
    required: str
    run: Callable[[Assessment], Finding]
    needs: frozenset[str] = frozenset()
    kind: str = "command"

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise ValueError(f"check {self.id!r} needs a weight > 0, got {self.weight!r}")


@dataclass(frozen=True, slots=True)
class Task:
    """One of the chained tasks.

    Attributes:
        id: ``subtask1`` and so on.
        query: What is asked.
        deliverables: What must be handed in.
        rubric: How it is scored, as far as the agent may know; empty where it is hidden.
        checks: What is scored.
        protected: Files that are put back as they were before the checks run.
    """

    id: str
    query: str
    deliverables: str
    rubric: str
    checks: tuple[Check, ...]
    protected: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ids = [check.id for check in self.checks]
        if len(set(ids)) != len(ids):
            raise ValueError(f"check ids of {self.id!r} stand twice: {ids}")

    @property
    def text(self) -> str:
        """All that the agent reads of it."""
        parts = [self.query.strip()]
        if self.deliverables.strip():
            parts.append(f"Deliverables:\n{self.deliverables.strip()}")
        if self.rubric.strip():
            parts.append(f"Rubric:\n{self.rubric.strip()}")
        return "\n\n".join(parts)


@dataclass(frozen=True, slots=True)
class Policy:
    """How a scenario is played.

    Attributes:
        attempts: Most attempts at one task.
        pass_at: Score in [0, 1] from which a task counts as passed.
        stop_at: Score at which no further attempt is made; None means ``pass_at``.
        halt: The scenario ends with a task that is not passed.
        reset: What every attempt starts from: the ``copy`` of what was carried, the one
            ``shared`` workspace as it was left, or the task's ``pristine`` files.
    """

    attempts: int = 2
    pass_at: float = 0.6
    stop_at: float | None = None
    halt: bool = False
    reset: Literal["copy", "shared", "pristine"] = "copy"


class Service:
    """What stands beside the workspace: search, pages, tools served by a protocol.

    Its state is not in the workspace. It is saved and put back with it.
    """

    #: Names of the tools that reach it.
    tools: frozenset[str] = frozenset()

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Answer a call of one of ``tools``: text, or something JSON can hold.

        Raises:
            ValueError: If the arguments are of no use; the message is the agent's answer.
        """
        raise NotImplementedError

    def save(self) -> Any:
        """The state, as a value that later calls do not change."""
        return None

    def restore(self, state: Any) -> None:
        """Go back to a state that was saved."""


@dataclass(slots=True)
class World:
    """One drawing of a scenario: its files, its service, and what only the checks know.

    Attributes:
        files: The workspace at the start: path to content.
        gold: What the checks compare with; never shown and never in the sandbox.
        service: What stands beside the workspace, or None.
        secrets: Texts that no feedback may hold.
        folders: Empty folders of the workspace at the start.
    """

    files: dict[str, bytes]
    gold: Any = None
    service: Service | None = None
    secrets: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """Chained tasks on one workspace.

    Attributes:
        id: ``code/units``, or ``upstream/Code/scenario1`` from a clone.
        capability: One of :data:`CAPABILITIES`.
        brief: What holds for all tasks; may be empty.
        tasks: In the order in which they are played.
        build: Draws the world; equal dice give equal worlds.
        policy: How it is played.
        unavailable: Why it cannot be played, or None.
        oracle: For each task the tool calls that solve it, or None.
    """

    id: str
    capability: str
    brief: str
    tasks: tuple[Task, ...]
    build: Callable[[Dice], World]
    policy: Policy = field(default_factory=Policy)
    unavailable: str | None = None
    oracle: Callable[[World, int], list[tuple[str, dict[str, Any]]]] | None = None

    def coverage(self, abilities: frozenset[str] = frozenset()) -> float:
        """Share of the weight of all checks that can be evaluated with ``abilities``.

        Each task counts the same. A task without checks counts as not covered.
        """
        shares = []
        for task in self.tasks:
            total = sum(check.weight for check in task.checks)
            able = sum(check.weight for check in task.checks if check.needs <= abilities)
            shares.append(able / total if total else 0.0)
        return sum(shares) / len(shares) if shares else 0.0
