"""The environment of functions to write."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from agentgym.answering import AnsweringEnv, pair
from agentgym.env import Outcome
from agentgym.sandbox import Level, Limits, Sandbox, shared_sandbox
from agentgym.sources import Source
from envs.code_reasoning.bank import Bank, open_bank
from envs.code_reasoning.extraction import extract_code
from envs.code_reasoning.generator import Difficulty, GeneratorConfig, Program, Range
from envs.code_reasoning.scoring import Score, Status, Verdicts
from envs.code_reasoning.tasks import CodeTask

__all__ = ["NOT_CORRECT", "NO_CODE", "CodeReasoningEnv"]

NOT_CORRECT = "Not correct."
NO_CODE = "No code was found. Write the function in a block that begins with ```python."

_REWARDS = ("score", "success", "share")
_PLACES = 8  # one-shot runs at once; a solution judged by code takes two
_VERDICTS = Verdicts()  # of all environments of this process
_PATIENCE = 4.0  # wall time to processor time
_Backend = Literal["auto", "namespaces", "bwrap", "local"]
_BACKENDS = ("auto", "namespaces", "bwrap", "local")


class CodeReasoningEnv(AnsweringEnv[CodeTask, Bank]):
    """Write a Python function; hidden tests judge it in a sandbox.

    **Action.** A whole response. Its code is the last fenced block after the thinking part; see
    :mod:`envs.code_reasoning.extraction` for what else counts.

    **Observation.** The task; after code that fails, ``Not correct.`` and nothing more.

    **Reward.** Code that passes every test at attempt ``k`` (counted from 0) pays
    ``discount ** k``, and other code 0, so that trying again never pays more than being right at
    once. ``reward="success"`` pays 1 instead of ``discount ** k``; ``reward="share"`` pays the
    share of tests that the last attempt passed, times ``discount ** k``.

    **End.** Code that passes, or the last of ``turns`` attempts, terminates.

    **Splits.** ``train``, ``validation``, ``test``. Generated tasks of different splits differ.

    **Info.** ``score`` is the share of tests that the last attempt passed. **Details:** ``status``
    (:class:`~envs.code_reasoning.scoring.Status`: why it failed; None before the first attempt),
    ``passed``, ``tests``, ``statuses`` (how many tests ended how), ``exception`` (the first one's
    name), ``answered`` (there was code), ``attempts``, ``turns``, ``sandbox`` (what keeps the code
    in, measured; None before the first attempt), ``reason`` (why the action was no use, or None).
    With ``expert`` also ``solution``: the reference as one response (``text``), and the index of
    the character where its last step begins (``answer_at``); None where there is none.

    Args:
        data: Tasks to load: a path (HumanEval, MBPP, one's own JSON lines), a folder, rows, or a
            mapping of splits to these. None makes functions of operations.
        split: Split that ``reset`` draws from; by default ``train``, or what the data hold.
        difficulty: Of generated tasks: ``"full"``, or ``"small"`` (one or two operations, one line
            of code, a closed vocabulary).
        steps: Fewest and most operations of a generated function.
        tests: Hidden tests of a generated function.
        examples: Calls with results in the question; None shows two of a generated function
            (none with ``"small"``), and the first assertion where data have a list of them.
        sizes: How many generated tasks are in ``train``, ``validation`` and ``test``.
        generator_seed: Another one gives other tasks.
        turns: Attempts.
        discount: What each attempt before costs, as a factor in [0, 1].
        seconds: Processor time for all tests of one attempt; wall time may be four times that, so
            that a busy machine fails nobody.
        memory: Bytes that the code may use.
        sandbox: Backend by name, or a sandbox. Every name but ``"local"`` asks for full isolation;
            ``"local"`` isolates nothing and is for trusted code.
        packages: The code may import what is installed beside this suite, not only Python's own
            library. Such packages may hold what is asked for.
        max_steps: Step limit (default: ``turns``).
        expert: Put the reference solution, piece by piece, into ``info["reference"]``.
        reward: ``"score"``, ``"success"`` or ``"share"``.
        render_mode: ``"ansi"`` or None.

    Raises:
        DataError: If data cannot be read, or a row holds no task.
        ValueError: If an argument is none of those listed.
    """

    def __init__(
        self,
        *,
        data: Source | Mapping[str, Source] | None = None,
        split: str | None = None,
        difficulty: Difficulty = "full",
        steps: Range | None = None,
        tests: int = 8,
        examples: int | None = None,
        sizes: tuple[int, int, int] = (10_000, 500, 500),
        generator_seed: int = 0,
        turns: int = 1,
        discount: float = 0.5,
        seconds: float = 10.0,
        memory: int = 512 << 20,
        sandbox: _Backend | Sandbox = "auto",
        packages: bool = False,
        max_steps: int | None = None,
        expert: bool = False,
        reward: Literal["score", "success", "share"] = "score",
        render_mode: str | None = None,
    ) -> None:
        if reward not in _REWARDS:
            raise ValueError(f"reward must be one of {_REWARDS}, got {reward!r}")
        if not isinstance(sandbox, Sandbox) and sandbox not in _BACKENDS:
            raise ValueError(f"sandbox must be one of {_BACKENDS} or a Sandbox, got {sandbox!r}")
        if not isinstance(packages, bool):
            raise ValueError(f"packages must be True or False, got {packages!r}")
        if examples is not None and (type(examples) is not int or examples < 0):
            raise ValueError(f"examples must be an int >= 0, got {examples!r}")
        if not 0.0 < seconds <= 3600.0:
            raise ValueError(f"seconds must be in (0, 3600], got {seconds!r}")
        self.limits = Limits(
            seconds=_PATIENCE * seconds,
            cpu_seconds=math.ceil(seconds),
            memory=memory,
            output=4 << 10,
            flood=4 << 20,
        )
        super().__init__(
            lambda: open_bank(
                data,
                examples,
                lambda: GeneratorConfig(
                    difficulty=difficulty,
                    steps=pair(steps),
                    tests=tests,
                    examples=examples,
                    sizes=tuple(sizes),  # type: ignore[arg-type]
                    seed=generator_seed,
                ),
            ),
            compact=data is None and difficulty == "small",
            turns=turns,
            discount=discount,
            max_steps=max_steps,
            split=split,
            expert=expert,
            render_mode=render_mode,
        )
        self._reward = reward
        self._sandbox = sandbox
        self._packages = packages

    # The task ----------------------------------------------------------------------------------

    @property
    def program(self) -> Program | None:
        """The generated program behind the current task, or None."""
        return self._bank.program(self.task.id)

    @property
    def sandbox(self) -> Sandbox:
        """Where code runs; opened at the first use and shared by all environments alike.

        Raises:
            SandboxUnavailable: If this machine has none that isolates fully.
        """
        if not isinstance(self._sandbox, Sandbox):
            level = Level.NONE if self._sandbox == "local" else Level.FULL
            self._sandbox = shared_sandbox(
                self._sandbox, minimum=level, packages=self._packages, workers=_PLACES
            )
        return self._sandbox

    # AnsweringEnv -----------------------------------------------------------------------------

    def _begin(self, task_id: str) -> Outcome:
        return Outcome(self._ask(task_id).question, details=self._details(None))

    def _act(self, action: str) -> Outcome:
        code = extract_code(action)
        if code is None:
            verdict = Score.none(Status.NO_CODE, self.task.number)
        else:
            verdict = _VERDICTS.score(self.task, code, self.sandbox, self.limits)
        solved = verdict.status is Status.OK
        worth = 1.0 if self._reward == "success" else self.discount**self._attempts
        self._attempts += 1
        ended = solved or self._attempts >= self.turns
        pays = verdict.share if self._reward == "share" and ended else float(solved)
        return Outcome(
            "Correct." if solved else NO_CODE if code is None else NOT_CORRECT,
            reward=pays * worth,
            action_valid=code is not None,
            terminated=ended,
            score=verdict.share,
            success=solved,
            details=self._details(verdict),
        )

    def _details(self, verdict: Score | None) -> dict[str, Any]:
        details: dict[str, Any] = {"solution": self._solution()} if self.expert else {}
        ran = verdict is not None and verdict.status is not Status.NO_CODE
        verdict = verdict or Score(None, 0, self.task.number)
        return details | {
            "status": None if verdict.status is None else str(verdict.status),
            "passed": verdict.passed,
            "tests": verdict.total,
            "statuses": dict(verdict.counts),
            "exception": verdict.exception,
            "answered": ran,
            "attempts": self._attempts,
            "turns": self.turns,
            "sandbox": self.sandbox.describe() if ran else None,
            "reason": "no code was found" if verdict.status is Status.NO_CODE else None,
        }

    def _solution(self) -> dict[str, Any] | None:
        """The reference as one response, and where its last step begins."""
        pieces = self.task.reference
        if not pieces:
            return None
        text = self.reference_joiner.join(pieces)
        kept = pieces[: -2 if self.program is not None else -1]
        return {"text": text, "answer_at": len(self.reference_joiner.join([*kept, ""]))}
