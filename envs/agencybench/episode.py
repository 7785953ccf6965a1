"""One play of a scenario: tasks, attempts, what is carried over, and what each attempt is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentgym.dice import Dice
from agentgym.sandbox import Snapshot, WorkspaceError
from envs.agencybench.assessment import Assessment
from envs.agencybench.assessor import Verdict, assess, protect, turn_down
from envs.agencybench.calls import Call
from envs.agencybench.metrics import AttemptRecord, ScenarioRecord, TaskRecord
from envs.agencybench.scenario import Carry, Scenario, Task, World
from envs.agencybench.toolbox import Reply, Toolbox

if TYPE_CHECKING:
    from agentgym.sandbox import Sandbox, Session

__all__ = ["Attempt", "Episode", "Submission"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that was scored, with the state that it left.

    Of a workspace that was too large there is no snapshot.
    """

    verdict: Verdict
    snapshot: Snapshot | None
    service: Any
    calls: Mapping[str, int]
    tokens_in: int
    tokens_out: int
    seconds: float
    logged: int

    @property
    def score(self) -> float:
        """For comparison: an attempt that nobody could score is worth nothing."""
        return self.verdict.score or 0.0


@dataclass(frozen=True, slots=True)
class Submission:
    """What came of handing in.

    Attributes:
        verdict: How it was scored.
        task: What was handed in.
        passed: It counts as passed.
        left: Attempts at the same task that are left; 0 where the scenario goes on.
        gain: By how much the task's best score rose.
        over: The scenario ends.
    """

    verdict: Verdict
    task: Task
    passed: bool
    left: int
    gain: float
    over: bool


@dataclass(slots=True)
class _Use:
    """What the current attempt has used."""

    calls: Counter[str] = field(default_factory=Counter)
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


class Episode:
    """A scenario being played.

    Args:
        scenario: What is played.
        seed: Fixes the world and the inputs of the checks.
        sandbox: Where the workspace and the checks are.
        attempts: Most attempts at a task.
        pass_at: Score from which a task counts as passed.
        carry: Whose workspace the next attempt and the next task start from.
        halt: End with a task that is not passed.
        assessor: Arguments of every :class:`~envs.agencybench.assessment.Assessment`.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        sandbox: Sandbox,
        *,
        attempts: int,
        pass_at: float,
        carry: Carry,
        halt: bool,
        assessor: Mapping[str, Any] | None = None,
        clock: Callable[[], float],
    ) -> None:
        self.scenario, self.seed, self.sandbox = scenario, seed, sandbox
        self.most_attempts, self.pass_at, self.carry, self.halt = attempts, pass_at, carry, halt
        self._assessor = dict(assessor or {})
        self._clock = clock
        self.world: World = scenario.build(Dice(f"{seed}/{scenario.id}/world"))
        self.session: Session = sandbox.session(
            files=Snapshot(self.world.files, self.world.folders)
        )
        self.toolbox = Toolbox(self.session, self.world.service)
        self.index = 0
        self.attempts: list[list[Attempt]] = [[] for _ in scenario.tasks]
        self.log: list[tuple[str, Mapping[str, Any], bool]] = []
        self.over = False
        self._use = _Use()
        self._since = clock()
        self._start = self.session.snapshot(), self._service_state()

    # State --------------------------------------------------------------------------------------

    @property
    def task(self) -> Task:
        """The current task; the last one when all is over."""
        return self.scenario.tasks[min(self.index, len(self.scenario.tasks) - 1)]

    @property
    def attempt(self) -> int:
        """Number of the current attempt at the current task, from 0."""
        return len(self.attempts[min(self.index, len(self.attempts) - 1)])

    def best(self, index: int) -> float:
        """Best score of a task so far."""
        return max((attempt.score for attempt in self.attempts[index]), default=0.0)

    @property
    def score(self) -> float:
        """Mean of the tasks' best scores."""
        return sum(self.best(n) for n in range(len(self.attempts))) / len(self.attempts)

    @property
    def tasks_passed(self) -> int:
        """Number of tasks that are passed."""
        return sum(self.best(n) >= self.pass_at - 1e-9 for n in range(len(self.attempts)))

    @property
    def passed(self) -> bool:
        """Every task is passed."""
        return self.tasks_passed == len(self.attempts)

    @property
    def infra_error(self) -> bool:
        """The sandbox died, or the assessor failed at some check of some attempt."""
        return self.toolbox.died or any(
            attempt.verdict.error for task in self.attempts for attempt in task
        )

    def record(self) -> ScenarioRecord:
        """What was played, for :mod:`envs.agencybench.metrics`."""
        return ScenarioRecord(
            self.scenario.id,
            self.scenario.capability,
            tuple(
                TaskRecord(
                    task.id,
                    tuple(
                        AttemptRecord(
                            None if a.verdict.score is None else a.score,
                            a.verdict.coverage,
                            a.calls,
                            a.tokens_in,
                            a.tokens_out,
                            a.seconds,
                        )
                        for a in attempts
                    ),
                )
                for task, attempts in zip(self.scenario.tasks, self.attempts, strict=True)
            ),
        )

    # Play ---------------------------------------------------------------------------------------

    def count(self, tool: str | None, tokens: int) -> None:
        """Note a call (None: no tool there is) and the tokens that were written."""
        self._use.calls[tool or "malformed"] += 1
        self._use.tokens_out += tokens

    def read(self, tokens: int) -> None:
        """Note tokens that the agent reads."""
        self._use.tokens_in += tokens

    def total_calls(self) -> Counter[str]:
        """Calls of the whole episode by tool; malformed ones as ``malformed``."""
        total = Counter(self._use.calls)
        for tried in self.attempts:
            for attempt in tried:
                total.update(attempt.calls)
        return total

    def use(self, call: Call) -> Reply:
        """Use a tool."""
        reply = self.toolbox.use(call)
        self.log.append((call.tool, dict(call.arguments), reply.ok))
        return reply

    def submit(self) -> Submission:
        """Score what is there; then the next attempt, the next task, or the end."""
        task, index = self.task, self.index
        before = self.best(index)
        attempt = self._score(task)
        self.attempts[index].append(attempt)
        self._use, self._since = _Use(), self._clock()
        best = self.best(index)
        passed = best >= self.pass_at - 1e-9
        stop_at = self.scenario.policy.stop_at
        enough = best >= (self.pass_at if stop_at is None else stop_at) - 1e-9
        left = 0 if enough else self.most_attempts - len(self.attempts[index])
        if left <= 0:
            left = 0
            self.index += 1
            self.over = self.index >= len(self.attempts) or (self.halt and not passed)
        if not self.over:
            self._go_on(index, again=left > 0)
        return Submission(attempt.verdict, task, passed, left, best - before, self.over)

    def _score(self, task: Task) -> Attempt:
        snapshot: Snapshot | None = None
        service = self._service_state()
        try:
            snapshot = self.session.snapshot()
        except WorkspaceError as error:
            verdict = turn_down(task, f"nothing was looked at: {error}")
        else:
            key = f"{self.seed}/{self.scenario.id}/{task.id}/{self.attempt}"
            assessment = Assessment(
                protect(snapshot, task, self.world.files),
                self.world,
                self.sandbox,
                key,
                calls=tuple(self.log),
                **self._assessor,
            )
            verdict = assess(task, assessment)
        use = self._use
        seconds = self._clock() - self._since
        return Attempt(
            verdict,
            snapshot,
            service,
            dict(use.calls),
            use.tokens_in,
            use.tokens_out,
            seconds,
            len(self.log),
        )

    def _service_state(self) -> Any:
        return self.world.service.save() if self.world.service is not None else None

    def _go_on(self, index: int, again: bool) -> None:
        """Put the workspace in the state that the next attempt or task starts from."""
        tried = self.attempts[index]
        reset = self.scenario.policy.reset
        if reset == "pristine":
            snapshot, service = self._start
            self._restore(snapshot, service)
        elif reset == "copy":
            chosen = {
                # Of several the first; what was too large to be kept is worth less than nothing.
                "best": max(tried, key=lambda a: a.score if a.snapshot is not None else -1.0),
                "first": tried[0],
                "last": tried[-1],
            }[self.carry]
            if again and self.carry == "first":
                chosen = tried[-1]  # the benchmark's scripts go on from the last within a task
            if chosen is not tried[-1] and chosen.snapshot is not None:
                self._restore(chosen.snapshot, chosen.service)
                del self.log[chosen.logged :]

    def _restore(self, snapshot: Snapshot, service: Any) -> None:
        self.session.restore(snapshot)
        if self.world.service is not None:
            self.world.service.restore(service)

    def close(self) -> None:
        """End the workspace; may be called again."""
        self.session.close()
