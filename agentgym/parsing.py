"""From the model's text to an action. Bad format is a flag, never an exception."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["ActionFormat", "ParsedAction", "parse_bare", "parse_tags", "parser"]

ActionFormat = Literal["tags", "bare"]

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL | re.IGNORECASE)
_OPEN_ACTION = re.compile(r"<action>(.*)\Z", re.DOTALL | re.IGNORECASE)
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """The parser's verdict.

    Attributes:
        action: Text to send to the environment (may be empty).
        format_ok: The text had the form asked for. Whether the action is admissible is another
            question, which the environment answers.
        thought: Text between the think tags, or None.
    """

    action: str
    format_ok: bool
    thought: str | None = None


def parse_tags(text: str) -> ParsedAction:
    """Parse ``<think>...</think><action>...</action>``.

    Well-formed text has exactly one action, outside the thought, not empty. Otherwise the best
    guess is sent (the last action named, or the text outside the thought) and ``format_ok`` is
    False.
    """
    thoughts = _THINK.findall(text)
    # Actions that the model merely considers while thinking are not its decision.
    outside = _THINK.sub(" ", text)
    unclosed = "<think>" in outside.lower()
    actions = [found.strip() for found in _ACTION.findall(outside)]
    thought = thoughts[0].strip() if thoughts else None
    if actions:
        ok = len(actions) == 1 and bool(actions[0]) and len(thoughts) <= 1 and not unclosed
        return ParsedAction(actions[-1], ok, thought)
    dangling = _OPEN_ACTION.search(outside)
    guess = dangling.group(1) if dangling else re.sub(r"</?(?:think|action)>", " ", outside)
    return ParsedAction(guess.strip(), False, thought)


def parse_bare(text: str) -> ParsedAction:
    """The whole text is the action; it must be one non-empty line."""
    action = text.strip()
    return ParsedAction(action, bool(action) and "\n" not in action)


def parser(name: ActionFormat) -> Callable[[str], ParsedAction]:
    """The parser of that name.

    Raises:
        ValueError: If there is none.
    """
    known: dict[str, Callable[[str], ParsedAction]] = {"tags": parse_tags, "bare": parse_bare}
    if name not in known:
        raise ValueError(f"unknown action format {name!r}; known: {', '.join(known)}")
    return known[name]
