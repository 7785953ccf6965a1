"""Tools that a response may call, and how calls are found in what the model wrote.

A call is ``<name>input</name>`` outside the thinking part, where ``name`` is a tool of the
environment. The first call counts; the text behind it is dropped, because nothing there can know
what the tool said. The reply comes as the next observation. A model that writes a reply of its own
writes mere text: the environment never reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.math_reasoning.calculator import CalculatorError, calculate
from envs.math_reasoning.grading.extraction import boxes

__all__ = ["Call", "Tool", "ToolReply", "calculator", "find_call", "make_tools", "use"]

#: Longest reply, in characters; the rest is cut off and said to be.
MAX_REPLY = 2000
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_RESERVED = ("think", "answer", "action", "result")
_THOUGHT = re.compile(r"<(/?)think>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ToolReply:
    """What a tool says.

    Attributes:
        output: Text for the model.
        ok: The tool did what it was asked for.
        details: Facts for ``info["details"]["tool"]``, JSON-able.
    """

    output: str
    ok: bool = True
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. Its ``run`` must return: time and memory limits are its own business.

    Attributes:
        name: The tag that calls it.
        run: From the text between the tags to the reply. Raising ``ValueError`` is a reply too.
        description: What a prompt says of it.

    Raises:
        ValueError: If the name is none, or reserved.
    """

    name: str
    run: Callable[[str], ToolReply]
    description: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in _RESERVED:
            raise ValueError(
                f"a tool's name is a word in small letters and none of {_RESERVED}, got "
                f"{self.name!r}"
            )


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a response makes.

    Attributes:
        tool: Name of the tool.
        source: What stands between the tags.
        dropped: Characters behind the call, which do not count.
    """

    tool: str
    source: str
    dropped: int


def _calculate(source: str) -> ToolReply:
    try:
        return ToolReply(calculate(source))
    except CalculatorError as error:
        return ToolReply(f"error: {error}", ok=False)


#: The calculator.
calculator = Tool(
    "calculator",
    _calculate,
    "<calculator>expression</calculator> works out an arithmetic expression",
)


def _python() -> Tool:
    from envs.math_reasoning.python_tool import python_tool

    return python_tool()


_KNOWN: dict[str, Callable[[], Tool]] = {"calculator": lambda: calculator, "python": _python}


def make_tools(tools: Sequence[str | Tool]) -> dict[str, Tool]:
    """Tools by name.

    Args:
        tools: Names of tools that come with this package, and tools of one's own.

    Raises:
        TypeError: If one is neither.
        ValueError: If a name is unknown or stands twice.
        SandboxUnavailable: If ``"python"`` is wanted, and no sandbox can be had.
    """
    if isinstance(tools, str):
        raise TypeError(f"tools must be a sequence, got the str {tools!r}; write ({tools!r},)")
    out: dict[str, Tool] = {}
    for item in tools:
        if isinstance(item, str):
            if item not in _KNOWN:
                raise ValueError(
                    f"unknown tool {item!r}; known: {', '.join(_KNOWN)}; others are given as "
                    "Tool(name, run)"
                )
            tool = _KNOWN[item]()
        elif isinstance(item, Tool):
            tool = item
        else:
            raise TypeError(f"a tool is a name or a Tool, got {item!r}")
        if tool.name in out:
            raise ValueError(f"the tool {tool.name!r} is given twice")
        out[tool.name] = tool
    return out


def find_call(text: str, tools: Collection[str]) -> Call | None:
    """The first call in a response, or None where there is none or an answer comes first.

    A call that stands at the end and is not closed counts: generation may have stopped at the
    closing tag. Linear in the text.
    """
    if not tools or "<" not in text:
        return None
    start = _after_thought(text)
    if start is None:
        return None
    opening = re.compile(rf"<({'|'.join(map(re.escape, tools))})>")
    found = opening.search(text, start)
    if found is None:
        return None
    answered = next(iter(boxes(text[start : found.start()])), None)
    if answered is not None and answered.content is not None:
        return None
    name = found[1]
    close = text.find(f"</{name}>", found.end())
    if close < 0:
        return Call(name, text[found.end() :].strip(), 0)
    behind = close + len(name) + 3
    return Call(name, text[found.end() : close].strip(), len(text) - behind)


def _after_thought(text: str) -> int | None:
    """Where the text behind the thinking part begins; None where thinking does not end."""
    last = None
    for last in _THOUGHT.finditer(text):  # noqa: B007 - the last one counts
        pass
    if last is None:
        return 0
    return last.end() if last[1] else None


def use(tool: Tool, source: str) -> ToolReply:
    """The tool's reply, cut to its greatest length; a ``ValueError`` is a reply too."""
    try:
        reply = tool.run(source)
    except ValueError as error:
        reply = ToolReply(f"error: {error}", ok=False)
    if not isinstance(reply, ToolReply):
        raise TypeError(f"tool {tool.name!r} must return a ToolReply, got {reply!r:.80}")
    if len(reply.output) > MAX_REPLY:
        output = f"{reply.output[:MAX_REPLY]}\n[{len(reply.output) - MAX_REPLY} characters cut off]"
        return ToolReply(output, reply.ok, {**reply.details, "cut_off": True})
    return reply
