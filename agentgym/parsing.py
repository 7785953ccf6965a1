"""From the model's text to an action. Bad format is a flag, never an exception."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["ActionFormat", "ParsedAction", "after_thinking", "parse_bare", "parse_tags", "parser"]

ActionFormat = Literal["tags", "bare"]

_TAG = re.compile(r"<(/?)(think|action)>", re.IGNORECASE | re.ASCII)
_THINKING = re.compile(r"<(/?)(?:think|thinking|reasoning|thought)>", re.IGNORECASE)


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

    Well-formed text has exactly one action, outside the thought, not empty. A thought may lack its
    opening tag, since some chat templates write it into the prompt. Otherwise the best guess is
    sent (the last action named, or the text outside the thought) and ``format_ok`` is False. The
    time taken is linear in the text, whatever the tags do.
    """
    thoughts, outside, unclosed = _cut(text, "think")
    if not thoughts and unclosed is None:
        tags = [tag for tag in _TAG.finditer(text) if tag[2].lower() == "think"]
        if tags:  # closing tags alone: the prompt opened the thought
            thoughts, outside = [text[: tags[0].start()]], text[tags[0].end() :]
    # Actions that the model merely considers while thinking are not its decision.
    actions, rest, dangling = _cut(outside, "action")
    thought = thoughts[0].strip() if thoughts else None
    if actions:
        action = actions[-1].strip()
        ok = len(actions) == 1 and bool(action) and len(thoughts) <= 1 and unclosed is None
        return ParsedAction(action, ok, thought)
    guess = outside[dangling:] if dangling is not None else _TAG.sub(" ", rest)
    return ParsedAction(guess.strip(), False, thought)


def after_thinking(text: str) -> str | None:
    """What follows the thinking part; None where thinking was begun and never ended."""
    last = None
    for last in _THINKING.finditer(text):  # noqa: B007 - the last one counts
        pass
    if last is None:
        return text
    return text[last.end() :] if last[1] else None


def _cut(text: str, name: str) -> tuple[list[str], str, int | None]:
    """What stands between the tags ``name``, the text without it, and where an open one starts."""
    inside: list[str] = []
    outside: list[str] = []
    opened: re.Match[str] | None = None
    at = 0
    for tag in _TAG.finditer(text):
        if tag[2].lower() != name:
            continue
        if not tag[1]:
            opened = opened or tag
        elif opened is not None:
            inside.append(text[opened.end() : tag.start()])
            outside.append(text[at : opened.start()])
            opened, at = None, tag.end()
    joined = " ".join([*outside, text[at:]])
    # A tag that stays open is part of the text outside, which ends as the whole text does.
    return inside, joined, None if opened is None else len(joined) - len(text) + opened.end()


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
