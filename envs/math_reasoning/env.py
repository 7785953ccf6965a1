"""The mathematics environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentgym.answering import AnsweringEnv, pair
from agentgym.env import Outcome
from envs.math_reasoning.bank import Bank, open_bank
from envs.math_reasoning.columns import MathTask
from envs.math_reasoning.dataset import Source
from envs.math_reasoning.grading.grader import grade
from envs.math_reasoning.grading.policies import policies_from
from envs.math_reasoning.grading.pool import Pool
from envs.math_reasoning.grading.verdict import Status, Verdict
from envs.math_reasoning.leaks import answer_place
from envs.math_reasoning.tools import Call, Tool, find_call, make_tools, use
from envs.math_reasoning.word_problems import Difficulty, GeneratorConfig, Problem, Range

__all__ = ["NOT_CORRECT", "NO_ANSWER", "NO_CALLS_LEFT", "MathReasoningEnv"]

NOT_CORRECT = "Not correct."
NO_ANSWER = "No answer was found. Write it as \\boxed{answer}."
NO_CALLS_LEFT = "No tool call is left. Give the answer."

_REWARDS = ("score", "success")


class MathReasoningEnv(AnsweringEnv[MathTask, Bank]):
    r"""Solve a problem of mathematics; the answer is checked by a verifier.

    **Action.** A whole response. Its answer is what its last ``\boxed{...}`` holds, after the
    thinking part; see :mod:`envs.math_reasoning.grading.extraction` for what else counts. With
    ``tools``, a response may call one instead: ``<calculator>12 * 5</calculator>``.

    **Observation.** The problem; after a wrong answer ``Not correct.`` and nothing more; after a
    call ``<result>`` with the tool's output.

    **Reward.** The answer given at attempt ``k`` (counted from 0) pays ``discount ** k`` if it is
    right, and 0 if not, so that trying again never pays more than being right at once.
    ``reward="success"`` pays 1 instead of ``discount ** k``.

    **End.** A right answer, or the last of ``turns`` wrong ones, terminates. Calls do not count as
    attempts; ``max_steps`` truncates (default: ``turns + tool_calls``).

    **Splits.** ``train``, ``validation``, ``test``. Generated problems of different splits differ.

    **Details in info.** ``answer`` (what was compared, or None), ``verifier_status``
    (:class:`~envs.math_reasoning.grading.verdict.Status`, None where nothing was compared),
    ``via`` (what decided), ``answered`` (there was an answer), ``attempts``, ``turns``, ``tools``
    (name to description), ``tool_calls_left``, ``tool`` (of the last call: ``name``, ``ok``,
    ``dropped`` characters behind it, and the tool's own facts; else None), ``reason`` (why the
    action was no use, or None). With ``expert`` also ``solution``: the reference steps as one
    response (``text``), and the index of the character at which it begins to give the answer away
    (``answer_at``); None where there are no steps.

    Args:
        data: Problems to load: a path (JSON lines, JSON, parquet), a folder, rows, a dataset id of
            the hub, or a mapping of splits to these. None generates word problems.
        columns: Role (``question``, ``answer``, ``reference``, ``id``, ``type``, ``level``) to
            column name, for data whose columns have unusual names.
        split: Split that ``reset`` draws from; by default ``train``, or what the data hold.
        difficulty: Of generated problems: ``"full"``, or ``"small"`` (one or two steps with small
            numbers, over a closed vocabulary).
        steps: Fewest and most computations of a generated problem.
        distractors: Fewest and most sentences in it that do not matter.
        max_number: Largest number in it.
        sizes: How many there are in ``train``, ``validation`` and ``test``.
        generator_seed: Another one gives other problems.
        turns: Attempts at the answer.
        discount: What each attempt before costs, as a factor in [0, 1].
        tools: Names of tools (``"calculator"``, and ``"python"``, which runs in a sandbox), or
            :class:`~envs.math_reasoning.tools.Tool` objects.
        tool_calls: Most calls in an episode; None means 4 where there are tools.
        policies: Conventions of grading; see
            :class:`~envs.math_reasoning.grading.policies.Policies`.
        verifier: ``"auto"`` (``math-verify`` where it is installed), ``"none"``, or a pool.
        max_steps: Step limit.
        expert: Put the reference steps into ``info["reference"]``.
        reward: ``"score"`` or ``"success"``.
        render_mode: ``"ansi"`` or None.

    Raises:
        DataError: If data cannot be read, or a gold answer cannot be graded against.
        ValueError: If an argument is none of those listed.
    """

    def __init__(
        self,
        *,
        data: Source | Mapping[str, Source] | None = None,
        columns: Mapping[str, str] | None = None,
        split: str | None = None,
        difficulty: Difficulty = "full",
        steps: Range | None = None,
        distractors: Range | None = None,
        max_number: int | None = None,
        sizes: tuple[int, int, int] = (10_000, 500, 500),
        generator_seed: int = 0,
        turns: int = 1,
        discount: float = 0.5,
        tools: Sequence[str | Tool] = (),
        tool_calls: int | None = None,
        policies: Mapping[str, Any] | None = None,
        verifier: Pool | Literal["auto", "none"] = "auto",
        max_steps: int | None = None,
        expert: bool = False,
        reward: Literal["score", "success"] = "score",
        render_mode: str | None = None,
    ) -> None:
        if reward not in _REWARDS:
            raise ValueError(f"reward must be one of {_REWARDS}, got {reward!r}")
        if verifier not in ("auto", "none") and not isinstance(verifier, Pool):
            raise ValueError(f"verifier must be 'auto', 'none' or a Pool, got {verifier!r}")
        if columns is not None and (data is None or not isinstance(columns, Mapping)):
            raise ValueError(f"columns must map roles to columns of data, got {columns!r}")
        self.tools = make_tools(tools)
        if tool_calls is None:
            tool_calls = 4 if self.tools else 0
        if type(tool_calls) is not int or tool_calls < 0:
            raise ValueError(f"tool_calls must be an int >= 0, got {tool_calls!r}")
        policies_from(policies or {})
        super().__init__(
            lambda: open_bank(
                data,
                columns,
                lambda: GeneratorConfig(
                    difficulty=difficulty,
                    steps=pair(steps),
                    distractors=pair(distractors),
                    max_number=max_number,
                    sizes=tuple(sizes),  # type: ignore[arg-type]
                    seed=generator_seed,
                ),
            ),
            compact=data is None and difficulty == "small",
            turns=turns,
            discount=discount,
            max_steps=max_steps,
            other_steps=tool_calls,
            split=split,
            expert=expert,
            render_mode=render_mode,
        )
        self.tool_calls = tool_calls
        self.policies = dict(policies or {})
        self.verifier: Pool | Literal["auto", "none"] = verifier
        self._pays_success_only = reward == "success"
        self._calls = 0
        self._solution: dict[str, Any] | None = None

    # The task ----------------------------------------------------------------------------------

    @property
    def problem(self) -> Problem | None:
        """The generated problem behind the current task, or None."""
        return self._bank.problem(self.task.id)

    # AnsweringEnv -----------------------------------------------------------------------------

    def _begin(self, task_id: str) -> Outcome:
        task = self._ask(task_id)
        self._calls = 0
        self._solution = self._written_out() if self.expert else None
        return Outcome(task.question, details=self._details(None, None, None))

    def _act(self, action: str) -> Outcome:
        call = find_call(action, self.tools)
        return self._answer(action) if call is None else self._call(call)

    def _call(self, call: Call) -> Outcome:
        facts: dict[str, Any] = {"name": call.tool, "dropped": call.dropped}
        if self._calls >= self.tool_calls:
            facts["ok"] = False
            details = self._details(None, facts, "no tool call is left")
            return Outcome(NO_CALLS_LEFT, action_valid=False, details=details)
        self._calls += 1
        reply = use(self.tools[call.tool], call.source)
        facts = {**reply.details, **facts, "ok": reply.ok}
        reason = None if reply.ok else "the tool reported an error"
        observation = f"<result>\n{reply.output}\n</result>"
        return Outcome(observation, details=self._details(None, facts, reason))

    def _answer(self, action: str) -> Outcome:
        verdict = grade(
            action, self.task.answer, kind="response", verifier=self.verifier, **self.policies
        )
        worth = 1.0 if self._pays_success_only else self.discount**self._attempts
        self._attempts += 1
        absent = verdict.status is Status.NO_ANSWER
        reason = "no answer was found" if absent else None
        outcome = Outcome(
            "Correct." if verdict.correct else NO_ANSWER if absent else NOT_CORRECT,
            action_valid=not absent,
            terminated=verdict.correct or self._attempts >= self.turns,
            success=verdict.correct,
            details=self._details(verdict, None, reason),
        )
        if verdict.correct:
            outcome.reward = outcome.score = worth
        return outcome

    def _written_out(self) -> dict[str, Any] | None:
        """The reference steps as one response, and where they begin to tell the answer."""
        text = self.reference_joiner.join(self.task.reference)
        if not text:
            return None
        return {"text": text, "answer_at": answer_place(text, self.task.answer)}

    def _details(
        self, verdict: Verdict | None, tool: dict[str, Any] | None, reason: str | None
    ) -> dict[str, Any]:
        own: dict[str, Any] = {}
        if self.expert:
            own["solution"] = None if self._solution is None else dict(self._solution)
        return own | {
            "answer": None if verdict is None else verdict.answer,
            "verifier_status": None if verdict is None else str(verdict.status),
            "via": None if verdict is None else verdict.via,
            "answered": verdict is not None and verdict.status is not Status.NO_ANSWER,
            "attempts": self._attempts,
            "turns": self.turns,
            "tools": {name: tool.description for name, tool in self.tools.items()},
            "tool_calls_left": self.tool_calls - self._calls,
            "tool": tool,
            "reason": reason,
        }
