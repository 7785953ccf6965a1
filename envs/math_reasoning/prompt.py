"""What a policy reads and writes in MathReasoning."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agentgym.guidance import Solution
from agentgym.info import Info
from agentgym.parsing import ParsedAction, after_thinking
from agentgym.prompts import EnvPrompt
from envs.math_reasoning.grading.extraction import boxes
from envs.math_reasoning.word_problems import phrases

__all__ = ["MathPrompt", "vocabulary"]

_TASK = """\
Solve the problem. Reason step by step, then write the final answer as \\boxed{answer}."""

_CALLS = """\
Before you answer you may use a tool. To call one, write its tag and stop there; the result comes \
in the next message. You can call tools {left} times.
{tools}"""

_CALL = re.compile(r"<(?!think>|answer>|action>|result>)[a-z][a-z0-9_]{0,30}>")

_RETRY = """\
You have {turns} attempts; a right answer is worth less the later it comes."""


class MathPrompt(EnvPrompt):
    r"""Prompts for MathReasoning. The action is the whole response, not a part of it in tags.

    ``tags``: instructions ask for steps and ``\boxed{}``, and describe the tools there are.
    ``bare``: the problem alone, in small letters, answered on one line.

    A response has the right format if it ends in one box that holds something, or calls a tool; in
    the bare form it must be one line as well.
    """

    def parse(self, text: str) -> ParsedAction:
        """The response, and whether it has the form asked for."""
        parsed = super().parse(text)
        thought = parsed.thought if self.action_format == "tags" else None
        action = text.strip()
        if self.action_format == "tags" and "<action>" in text.lower() and parsed.action:
            action = parsed.action
        answered = self._has_box(action) or bool(_CALL.search(action))
        one_line = self.action_format == "tags" or "\n" not in action
        return ParsedAction(action, answered and one_line, thought)

    def _has_box(self, action: str) -> bool:
        rest = after_thinking(action)
        found = [] if rest is None else list(boxes(rest))
        return bool(found) and bool((found[-1].content or "").strip())

    def written(self, action: str) -> str:
        """The response itself, in both forms."""
        return action

    def solution(self, info: Info) -> Solution | None:
        """The reference steps as one response; None where the data have none."""
        found = info["details"].get("solution")
        return None if found is None else Solution(found["text"], found["answer_at"])

    def system(self, info: Info) -> str | None:
        """Instructions that open the conversation; nothing in the bare form."""
        if self.action_format == "bare":
            return None
        details = info["details"]
        parts = [_TASK]
        if details["tools"]:
            described = [
                f"- {description or f'<{name}>input</{name}>'}"
                for name, description in details["tools"].items()
            ]
            left = details["tool_calls_left"]
            parts.append(_CALLS.format(left=left, tools="\n".join(described)))
        if details["turns"] > 1:
            parts.append(_RETRY.format(turns=details["turns"]))
        return "\n\n".join(parts)

    def first(self, observation: str, info: Info) -> str:
        """The problem."""
        return observation.lower() if self.action_format == "bare" else observation

    def next(self, observation: str, info: Info) -> str:
        """What the environment answered."""
        return observation.lower() if self.action_format == "bare" else observation

    def windowed(self, history: Sequence[tuple[str, str]], observation: str, info: Info) -> str:
        """The problem, and the last responses with what was answered to them."""
        goal = info["goal"]
        lines = [self.first(goal, info)]
        answers = [seen for seen, _ in history[1:]] + [observation] if history else []
        for (_, response), answer in zip(history, answers, strict=True):
            if self.action_format == "bare":
                lines += [response, answer.lower()]
            else:
                lines += [f"Your response: {response}", f"Reply: {answer}"]
        return "\n".join(lines)


def vocabulary(**env_args: Any) -> list[str]:
    """Phrases that should be single tokens of a tokenizer made for this environment.

    Numbers are left to be read digit by digit, but for those of small problems, which are one token
    each. For loaded data there is what every response holds.

    Args:
        **env_args: Arguments of ``gym.make``; those that choose the problems matter.
    """
    fixed = ["\\boxed{", "}", "+", "-", "*", "/", "=", ";", "\\", "{"]
    fixed += ["not correct.", "correct.", "<result>", "</result>"]
    if env_args.get("data") is not None:
        return fixed
    return list(dict.fromkeys([*fixed, *phrases(env_args.get("difficulty", "full"))]))
