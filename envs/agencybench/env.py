"""The environment: one episode is one scenario of chained tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat

from agentgym.env import Outcome, TextEnv
from agentgym.info import Info, StopReason
from agentgym.sandbox import Level, WorkspaceError
from envs.agencybench.calls import Call, Malformed, find_call, write_call
from envs.agencybench.catalogue import BUILTIN, builtin
from envs.agencybench.episode import Episode, Submission
from envs.agencybench.metrics import ScenarioRecord
from envs.agencybench.report import record_to_json
from envs.agencybench.scenario import Carry, Scenario
from envs.agencybench.selection import check_arguments, choose, split_tasks
from envs.agencybench.simulator import RuleSimulator, Simulator
from envs.agencybench.toolbox import TOOLS, clip, plain_text

if TYPE_CHECKING:
    from agentgym.sandbox import Sandbox

__all__ = ["AgencyBenchEnv", "count_tokens"]

_LISTED = 60


def count_tokens(text: str) -> int:
    """About how many tokens a text has: a quarter of its characters."""
    return (len(text) + 3) // 4


class AgencyBenchEnv(TextEnv):
    """Chained, long tasks with tools in a sandbox, scored by what was built.

    **Action.** Text with one tool call, in any of the usual spellings (see
    :func:`~envs.agencybench.calls.find_call`), for instance
    ``{"tool": "read_file", "arguments": {"path": "README.md"}}``.
    Malformed calls are answered in words, counted, and use up a call.

    **Observation.** The task at the start; then what the tool said; after ``submit`` the user's
    comment, and the next attempt or task.

    **Attempts.** ``submit`` scores the workspace on a copy in a fresh sandbox. A score of
    ``pass_threshold`` passes the task. Below, the user says what is amiss, and the task may be
    tried again, ``attempts`` times in all. The next attempt and the next task start from the
    workspace of the best attempt (``carry``).

    **Reward.** ``delta``: by how much the task's best score rose, over the number of tasks, so that
    the return is the mean of the best scores. ``sparse``: that mean, at the end. ``raw``: the score
    of each attempt. Each call costs ``call_cost``.

    **End.** The last task terminates; success means that all are passed. ``max_steps`` calls,
    ``max_tokens`` and ``max_seconds`` truncate; what is there is scored then. A sandbox that dies
    truncates at once. Then, and where the assessor failed at a check, the episode ends with
    ``infra_error``: it says nothing about the agent.

    **Splits.** ``builtin`` (for training too; each seed draws other files and inputs) and, with
    ``data``, ``upstream``: the scenarios of a clone of AgencyBench. Those that cannot be played are
    left out of it; :attr:`unavailable` says why.

    **Details in info.** ``capability``; ``task``, ``tasks``: number of the current task from 0, and
    how many there are; ``attempt``, ``attempts``; ``scores``: each task's best so far;
    ``tasks_passed``: share of the tasks that are passed; ``tool``:
    name and ``ok`` of the call, or None; ``reason``: why there was no call, or None; ``verdict``:
    of the attempt that was just scored, check by check, or None; ``feedback_fallback``: why the
    rules spoke for the model that plays the user; ``calls``: tool to number, ``malformed`` too;
    ``calls_left``, ``tokens``, ``tokens_left``; ``coverage``: share of the checks' weight that can
    be run here; ``infra_error``; ``record``: at the end, all attempts at all tasks, what
    :func:`envs.agencybench.report.metrics` reads; ``sandbox``: backend and level; ``tools``:
    descriptions.

    Args:
        scenario: Id, or several, to play; None for all.
        data: A clone of AgencyBench, or its ``AgencyBench-v2`` folder; None takes the variable
            ``AGENCYBENCH_DATA`` if that is set.
        split: Split that ``reset`` draws from.
        sandbox: Backend by name (``auto``, ``namespaces``, ``bwrap``, ``docker``, ``local``), or a
            sandbox to use.
        attempts: Most attempts at a task; None takes what the scenario has (2).
        pass_threshold: Score that passes, in [0, 1]; None takes what the scenario has (0.6).
        carry: Whose workspace goes on: ``best``, or what the benchmark's scripts do, ``first`` or
            ``last``.
        halt: End with a task that is not passed; None takes what the scenario has.
        reward: ``delta``, ``sparse`` or ``raw``.
        call_cost: Subtracted for each call.
        max_steps: Most calls in an episode.
        max_tokens: Most tokens, read and written; None sets no limit.
        max_seconds: Most wall-clock seconds; None sets no limit.
        tokens: Counts the tokens of a text.
        rubric_visibility: ``as_shipped``, or ``hidden``.
        user: ``rules``, or a :class:`~envs.agencybench.simulator.Simulator`.
        judge: A :class:`~envs.agencybench.judges.Judge` for checks that need one, or None.
        artefacts: Takes what checks produce: name and content, such as screenshots.
        expert: Put the oracle's remaining calls into ``info["reference"]``.
        render_mode: ``"ansi"`` or None.

    Raises:
        KeyError: If a scenario is unknown.
        SandboxUnavailable: If no backend isolates here; the message says why.
        ValueError: If an argument is none of those listed.
    """

    def __init__(
        self,
        *,
        scenario: str | Sequence[str] | None = None,
        data: str | os.PathLike[str] | None = None,
        split: str | None = None,
        sandbox: str | Sandbox = "auto",
        attempts: int | None = None,
        pass_threshold: float | None = None,
        carry: Carry = "best",
        halt: bool | None = None,
        reward: Literal["delta", "sparse", "raw"] = "delta",
        call_cost: float = 0.0,
        max_steps: int | None = 100,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        tokens: Callable[[str], int] = count_tokens,
        rubric_visibility: Literal["as_shipped", "hidden"] = "as_shipped",
        user: Literal["rules"] | Simulator = "rules",
        judge: Any = None,
        artefacts: Callable[[str, bytes], None] | None = None,
        expert: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(split=split, max_steps=max_steps, expert=expert, render_mode=render_mode)
        check_arguments(
            sandbox=sandbox,
            attempts=attempts,
            pass_threshold=pass_threshold,
            carry=carry,
            halt=halt,
            reward=reward,
            call_cost=call_cost,
            max_tokens=max_tokens,
            max_seconds=max_seconds,
            tokens=tokens,
            rubric_visibility=rubric_visibility,
            user=user,
            judge=judge,
            artefacts=artefacts,
        )
        self.attempts, self.pass_threshold, self.halt = attempts, pass_threshold, halt
        self.carry, self.reward, self.call_cost = carry, reward, float(call_cost)
        self.max_tokens, self.max_seconds = max_tokens, max_seconds
        self._tokens = tokens
        self._hides_rubric = rubric_visibility == "hidden"
        self._user: Simulator = RuleSimulator() if isinstance(user, str) else user
        self._judge, self._artefacts = judge, artefacts
        self._backend = sandbox
        self._scenarios, unavailable = choose(
            scenario, data, self._abilities(), ids=BUILTIN, make=builtin
        )
        #: Id to reason of the scenarios that cannot be played here.
        self.unavailable: dict[str, str] = unavailable
        self.tasks = split_tasks(self._scenarios)
        if split is not None and split not in self.tasks.splits:
            raise ValueError(f"split {split!r} is not among {list(self.tasks.splits)}")
        self._episode: Episode | None = None
        self._begun = 0.0
        self._malformed = 0
        self._spent = 0
        self._due: StopReason | None = None

    # Scenarios ---------------------------------------------------------------------------------

    @property
    def scenario(self) -> Scenario:
        """The scenario being played.

        Raises:
            RuntimeError: Before the first reset.
        """
        return self.episode.scenario

    @property
    def episode(self) -> Episode:
        """The play of it.

        Raises:
            RuntimeError: Before the first reset.
        """
        if self._episode is None:
            raise RuntimeError("no episode yet; call reset() first")
        return self._episode

    def record(self) -> ScenarioRecord:
        """What was played so far, for :mod:`envs.agencybench.metrics`."""
        return self.episode.record()

    def goal(self) -> str:
        """The current task as the agent reads it."""
        return self._task_text()

    def task_type(self) -> str:
        """The scenario's capability."""
        return self.scenario.capability

    def is_admissible(self, action: str) -> bool:
        """Whether ``action`` holds one call of a tool there is, with arguments that fit."""
        call = find_call(action)
        if isinstance(call, Malformed) or self._episode is None:
            return False
        toolbox = self._episode.toolbox
        known = any(spec.name == call.tool for spec in toolbox.specs)
        return known and isinstance(toolbox.arguments(call), dict)

    def _legal_actions(self) -> tuple[str, ...] | None:
        if self._over or self._episode is None:
            return None
        calls: list[tuple[str, dict[str, Any]]] = [
            ("list_directory", {}),
            ("glob", {"pattern": "**/*"}),
            ("todo_write", {"items": ["<word>"]}),
            ("save_memory", {"fact": "<word>"}),
            ("read_memory", {}),
            ("write_file", {"path": "notes/<word>.txt", "content": "<word>"}),
            ("run_shell_command", {"command": "echo <word>"}),
            ("submit", {}),
        ]
        return tuple(write_call(tool, arguments) for tool, arguments in calls)

    # TextEnv -----------------------------------------------------------------------------------

    def _begin(self, task_id: str) -> Outcome:
        self._end()
        scenario = self._scenarios[task_id]
        policy = scenario.policy
        seed = int(self.np_random.integers(1 << 62))
        self._episode = Episode(
            scenario,
            seed,
            self._open(),
            attempts=policy.attempts if self.attempts is None else self.attempts,
            pass_at=policy.pass_at if self.pass_threshold is None else self.pass_threshold,
            carry=self.carry,
            halt=policy.halt if self.halt is None else self.halt,
            assessor={
                "abilities": self._abilities(),
                "judge": self._judge,
                "keep": self._artefacts,
            },
            clock=time.monotonic,
        )
        self._begun = time.monotonic()
        if self.max_seconds is not None:
            most, begun = self.max_seconds, self._begun
            self._episode.toolbox.left = lambda: most - (time.monotonic() - begun)
        self._malformed = self._spent = 0
        self._due = None
        brief = [scenario.brief] if scenario.brief else []
        text = "\n\n".join([*brief, self._task_head(), self._listing()])
        self._spend(text)
        return Outcome(text, details=self._details(None, None, None, None))

    def step(  # type: ignore[override]
        self, action: str
    ) -> tuple[str, SupportsFloat, bool, bool, Info]:
        """Apply one tool call; see the class docstring for what truncates."""
        observation, reward, terminated, truncated, info = super().step(action)
        if self._due is not None and not terminated and not truncated:
            self._over, truncated = True, True
            info["stop_reason"] = self._stop_reason = self._due
            if self.expert:
                info["reference"] = ()
        if (terminated or truncated) and self.episode.infra_error:
            # A part of what was earned is not known.
            info["stop_reason"] = self._stop_reason = StopReason.INFRA_ERROR
        return observation, reward, terminated, truncated, info

    def _act(self, action: str) -> Outcome:
        episode = self.episode
        call = find_call(action)
        parts: list[str] = []
        reward, tool, reason, submission = -self.call_cost, None, None, None
        if isinstance(call, Malformed):
            self._malformed += 1
            episode.count(None, self._tokens(action))
            parts.append(call.reason)
            reason = call.reason
        elif call.tool == "submit":
            episode.count("submit", self._tokens(action))
            given = episode.toolbox.arguments(call)
            tool = {"name": "submit", "ok": isinstance(given, dict)}
            if isinstance(given, dict):
                submission = episode.submit()
            else:
                parts.append(given.text)
                reason = given.text
        else:
            known = call.tool if call.tool in TOOLS else None
            episode.count(known, self._tokens(action))
            reply = episode.use(call)
            parts.append(reply.text)
            tool = {"name": call.tool, "ok": reply.ok}
            reason = None if reply.ok else clip(reply.text, 200)
        self._spent += self._tokens(action)
        gain = self._worth(submission)
        lost = episode.toolbox.died
        self._due = StopReason.INFRA_ERROR if lost else self._exhausted()
        last = self.max_steps is not None and self._turn >= self.max_steps
        closing = last or self._due is not None
        if lost:
            parts.append("The sandbox ended, by no fault of yours. The episode does not count.")
        elif closing and not episode.over and submission is None:
            submission = episode.submit()
            gain += self._worth(submission)
            parts.append("The budget is used up; what is there was handed in.")
        fallback = None
        if submission is not None:
            said = self._user.comment(
                submission.task,
                submission.verdict,
                passed=submission.passed,
                left=submission.left,
                secrets=episode.world.secrets,
            )
            fallback = said.fallback
            parts.append(plain_text(said.text))
            if not episode.over and not closing:
                parts += [self._task_head(again=submission.left > 0)]
                parts += [] if submission.left else [self._listing()]
        over = episode.over
        if self.reward == "sparse":
            gain = episode.score if over or closing else 0.0
        parts.append(self._budget())
        text = "\n\n".join(part for part in parts if part)
        self._spend(text)
        return Outcome(
            text,
            reward + gain,
            action_valid=not isinstance(call, Malformed) and self._is_known(call),
            terminated=over,
            score=episode.score,
            success=over and episode.passed,
            details=self._details(
                tool, reason, submission, fallback, ended=(over or closing) and not lost
            ),
        )

    def _is_known(self, call: Call) -> bool:
        toolbox = self.episode.toolbox
        return any(spec.name == call.tool for spec in toolbox.specs) and isinstance(
            toolbox.arguments(call), dict
        )

    def _worth(self, submission: Submission | None) -> float:
        if submission is None or self.reward == "sparse":
            return 0.0
        if self.reward == "raw":
            return submission.verdict.score or 0.0
        return submission.gain / len(self.scenario.tasks)

    def _spend(self, observation: str) -> None:
        read = self._tokens(observation)
        self._spent += read
        self.episode.read(read)

    def _exhausted(self) -> StopReason | None:
        if self.max_tokens is not None and self._spent >= self.max_tokens:
            return StopReason.MAX_TOKENS
        if self.max_seconds is not None and time.monotonic() - self._begun >= self.max_seconds:
            return StopReason.DEADLINE
        return None

    # Words -------------------------------------------------------------------------------------

    def _task_text(self) -> str:
        task = self.episode.task
        if not self._hides_rubric:
            return task.text
        return task.text.partition("\n\nRubric:\n")[0]

    def _task_head(self, again: bool = False) -> str:
        episode = self.episode
        number, total = episode.index + 1, len(self.scenario.tasks)
        head = f"Task {number} of {total}, attempt {episode.attempt + 1} of {episode.most_attempts}"
        if again:
            return f"{head}. Go on with the same task; the workspace is as it stands."
        return f"{head}:\n\n{self._task_text()}"

    def _listing(self) -> str:
        try:
            entries = self.episode.session.list(".", recursive=True)
        except WorkspaceError as error:
            return f"The workspace cannot be listed: {error}"
        names = sorted(e.path + ("/" if e.kind == "folder" else "") for e in entries)
        if not names:
            return "The workspace is empty."
        more = f"\n… and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        return "The workspace:\n" + plain_text("\n".join(names[:_LISTED])) + more

    def _budget(self) -> str:
        parts = []
        if self.max_steps is not None:
            parts.append(f"call {self._turn} of {self.max_steps}")
        if self.max_tokens is not None:
            parts.append(f"{max(0, self.max_tokens - self._spent)} tokens left")
        return f"[{', '.join(parts)}]" if parts else ""

    def _details(
        self,
        tool: dict[str, Any] | None,
        reason: str | None,
        submission: Submission | None,
        fallback: str | None,
        ended: bool = False,
    ) -> dict[str, Any]:
        episode = self.episode
        scenario = episode.scenario
        calls = dict(sorted(episode.total_calls().items()))
        left = None if self.max_steps is None else self.max_steps - self._turn
        tokens_left = None if self.max_tokens is None else max(0, self.max_tokens - self._spent)
        return {
            "capability": scenario.capability,
            "task": min(episode.index, len(scenario.tasks) - 1),
            "tasks": len(scenario.tasks),
            "attempt": episode.attempt,
            "attempts": episode.most_attempts,
            "scores": [episode.best(n) for n in range(len(scenario.tasks))],
            "tasks_passed": episode.tasks_passed / len(scenario.tasks),
            "tool": tool,
            "reason": reason,
            "verdict": None if submission is None else submission.verdict.as_json(),
            "feedback_fallback": fallback,
            "calls": calls,
            "calls_left": left,
            "tokens": self._spent,
            "tokens_left": tokens_left,
            "coverage": scenario.coverage(self._abilities()),
            "infra_error": episode.infra_error,
            "record": record_to_json(episode.record()) if ended else None,
            "sandbox": episode.sandbox.describe(),
            "tools": [spec.describe() for spec in episode.toolbox.specs],
        }

    # Resources ---------------------------------------------------------------------------------

    def _abilities(self) -> frozenset[str]:
        from envs.agencybench.browser import browser_missing

        there = frozenset() if self._judge is None else frozenset(self._judge.abilities)
        return there if browser_missing() else there | {"browser"}

    def _open(self) -> Sandbox:
        if not isinstance(self._backend, str):
            return self._backend
        from agentgym.sandbox import shared_sandbox

        # Asked for at each reset: after a fork, or once somebody closed it, there is a new one.
        minimum = Level.NONE if self._backend == "local" else Level.FULL
        return shared_sandbox(self._backend, minimum=minimum)

    def _end(self) -> None:
        if self._episode is not None:
            self._episode.close()
            self._episode = None

    def close(self) -> None:
        """End the workspace; may be called again."""
        self._end()
        super().close()

    def reference(self) -> tuple[str, ...]:
        """The oracle's remaining calls.

        Raises:
            NotImplementedError: If the scenario has no oracle.
        """
        from envs.agencybench.oracle import remaining

        return tuple(write_call(tool, arguments) for tool, arguments in remaining(self.episode))
