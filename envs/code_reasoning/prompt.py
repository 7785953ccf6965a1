"""What a policy reads and writes in CodeReasoning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym.guidance import Solution
from agentgym.info import Info
from agentgym.parsing import ParsedAction, after_thinking
from agentgym.prompts import EnvPrompt
from envs.code_reasoning.extraction import extract_code, fenced
from envs.code_reasoning.generator import phrases

__all__ = ["CodePrompt", "vocabulary"]

_TASK = """\
Write the Python function that is asked for. Reason step by step if you need to, then write the \
whole function, with the imports it needs, in one block:
```python
(code)
```
It is judged by hidden tests that compare what it returns: return the result, do not print it."""

_RETRY = """\
You have {turns} attempts; code that passes is worth less the later it comes."""
_OPENED = "```python\n"


class CodePrompt(EnvPrompt):
    """Prompts for CodeReasoning. The action is the whole response, not a part of it in tags.

    ``tags``: instructions ask for one fenced block of Python. ``bare``: the task alone, answered by
    code alone.

    A response has the right format if it holds exactly one block of code after the thinking part;
    in the bare form, if it is code.
    """

    def parse(self, text: str) -> ParsedAction:
        """The response, and whether it has the form asked for."""
        parsed = super().parse(text)
        action = text.strip()
        if self.action_format == "bare":
            return ParsedAction(action, "```" not in action and extract_code(action) is not None)
        if "<action>" in text.lower() and parsed.action:
            action = parsed.action
        blocks = fenced(after_thinking(action) or "")
        ok = len(blocks) == 1 and extract_code(action) is not None
        return ParsedAction(action, ok, parsed.thought)

    def written(self, action: str) -> str:
        """Code as the model is to write it."""
        return action if self.action_format == "bare" else f"{_OPENED}{action}\n```"

    def solution(self, info: Info) -> Solution | None:
        """The reference solution as one response; its last step counts as the answer."""
        known = info["details"].get("solution")
        if known is None:
            return None
        opened = 0 if self.action_format == "bare" else len(_OPENED)
        return Solution(self.written(known["text"]), known["answer_at"] + opened)

    def system(self, info: Info) -> str | None:
        """Instructions that open the conversation; nothing in the bare form."""
        if self.action_format == "bare":
            return None
        turns = info["details"]["turns"]
        return _TASK if turns == 1 else f"{_TASK}\n\n{_RETRY.format(turns=turns)}"

    def next(self, observation: str, info: Info) -> str:
        """What the environment answered."""
        return observation.lower() if self.action_format == "bare" else observation

    def windowed(self, history: Sequence[tuple[str, str]], observation: str, info: Info) -> str:
        """The task, and the last responses with what was answered to them."""
        lines = [info["goal"]]
        answers = [seen for seen, _ in history[1:]] + [observation] if history else []
        for (_, response), answer in zip(history, answers, strict=True):
            if self.action_format == "bare":
                lines += [response, answer.lower()]
            else:
                lines += [f"Your response:\n{response}", f"Reply: {answer}"]
        return "\n".join(lines)


def vocabulary(**env_args: Any) -> list[str]:
    """Phrases that should be single tokens of a tokenizer made for this environment.

    Numbers are left to be read digit by digit. For loaded data there is what every response holds.

    Args:
        **env_args: Arguments of ``gym.make``; those that choose the tasks matter.
    """
    fixed = ["def", "return", "not correct.", "correct.", "(", ")", "[", "]", ":", "=", "==", "%"]
    if env_args.get("data") is not None:
        return fixed
    return list(dict.fromkeys([*fixed, *phrases(env_args.get("difficulty", "full"))]))
