"""One tool call in the model's text, in the spellings that models use.

Nothing here raises for malformed text: what is wrong is said in words that help the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Call", "Malformed", "find_call", "write_call"]

_EXAMPLE = '{"tool": "read_file", "arguments": {"path": "README.md"}}'
_HOW = f"Write exactly one call, for instance {_EXAMPLE}"

_TAG = re.compile(r"<(/?)(tool_call|function_call|tool)>", re.IGNORECASE | re.ASCII)
_FENCE = re.compile(r"^```[ \t]*[A-Za-z_+-]*[ \t]*$", re.MULTILINE)
_FUNCTION = re.compile(r"<function=([A-Za-z0-9_.-]{1,64})>")
_PARAMETER = re.compile(r"<parameter=([A-Za-z0-9_.-]{1,64})>")
_NAMES = ("tool", "name", "tool_name", "function", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input")
# Objects tried in a text without marks around the call.
_MOST_OBJECTS = 32


@dataclass(frozen=True, slots=True)
class Call:
    """A call: the tool's name and its arguments."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Malformed:
    """No call, and why, as the agent is told."""

    reason: str


def write_call(tool: str, arguments: Mapping[str, Any] | None = None) -> str:
    """A call as text that :func:`find_call` reads back."""
    return json.dumps({"tool": tool, "arguments": dict(arguments or {})}, ensure_ascii=False)


def find_call(text: str) -> Call | Malformed:
    """The one call in ``text``.

    Read, in this order: the whole text as JSON; ``<tool_call>`` tags (around JSON, or around
    ``<function=…>`` with ``<parameter=…>``) and fenced JSON, whichever comes first;
    ``<function=…>`` without tags; one JSON object in prose. A call is ``{"tool", "arguments"}``,
    ``{"name", "arguments"}``, ``{"function": {…}}`` or ``{"tool_calls": [one]}``; arguments are an
    object, or JSON text of one.
    """
    stripped = text.strip()
    if stripped[:1] in ("{", "[") and (whole := _object(stripped)) is not None:
        return _as_call(whole) or Malformed(f"The JSON is no tool call. {_HOW}")
    tag, fence = _TAG.search(text), _FENCE.search(text)
    if tag is not None and (fence is None or tag.start() < fence.start()):
        return _single([_read(piece) for piece in _between_tags(text)])
    fenced = [found for piece in _fences(text) if (found := _object(piece)) is not None]
    calls = [found for found in map(_as_call, fenced) if found is not None]
    if calls:
        return _single(calls)
    if tag is not None:
        return _single([_read(piece) for piece in _between_tags(text)])
    if _FUNCTION.search(text):
        return _read(text)
    if not stripped:
        return Malformed(f"The action is empty. {_HOW}")
    if stripped[0] in "{[":
        return _read(stripped)  # says what is wrong with it
    calls = [found for found in map(_as_call, _objects(text)) if found is not None]
    if calls:
        return _single(calls)
    return Malformed(f"No tool call was found. {_HOW}")


def _single(found: list[Call | Malformed]) -> Call | Malformed:
    if len(found) == 1:
        return found[0]
    if not found:
        return Malformed(f"The tags of the call hold nothing. {_HOW}")
    return Malformed(f"{len(found)} tool calls stand in one action; one at a time. {_HOW}")


def _between_tags(text: str) -> list[str]:
    """What stands between call tags. An open tag reaches to the end.

    What is read as JSON behind an open tag ends where the JSON ends, tags in its strings included.
    """
    pieces: list[str] = []
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    at, failures = 0, 0
    while (tag := _TAG.search(text, at)) is not None:
        at = tag.end()
        if tag[1]:
            continue
        start = at + len(text[at : at + 80]) - len(text[at : at + 80].lstrip())
        if text[start : start + 1] == "{" and failures < _MOST_OBJECTS:
            try:
                _, at = decoder.raw_decode(text, start)
            except (ValueError, RecursionError):
                failures += 1
            else:
                pieces.append(text[start:at])
                continue
        after = _TAG.search(text, at)
        at = len(text) if after is None else after.start()
        pieces.append(text[start:at])
    return [piece.strip() for piece in pieces if piece.strip()]


def _fences(text: str) -> Iterator[str]:
    marks = list(_FENCE.finditer(text))
    for start, end in zip(marks[::2], marks[1::2], strict=False):
        yield text[start.end() : end.start()]


def _read(text: str) -> Call | Malformed:
    """A piece of text that should be a call and nothing else."""
    text = text.strip()
    if _FUNCTION.search(text):
        return _read_function(text)
    marks = list(_FENCE.finditer(text))
    if len(marks) >= 2:
        text = text[marks[0].end() : marks[-1].start()].strip()
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        return Malformed(f"The JSON of the call is nested too deeply. {_HOW}")
    except ValueError as error:
        return Malformed(f"The call is not valid JSON ({error}). {_HOW}")
    found = _as_call(value)
    return Malformed(f"The JSON is no tool call. {_HOW}") if found is None else found


def _read_function(text: str) -> Call | Malformed:
    """``<function=name><parameter=key>value</parameter></function>``."""
    heads = list(_FUNCTION.finditer(text))
    if len(heads) > 1:
        return Malformed(f"{len(heads)} tool calls stand in one action; one at a time. {_HOW}")
    rest = text[heads[0].end() :]
    end = rest.rfind("</function>")
    rest = rest if end < 0 else rest[:end]
    arguments: dict[str, Any] = {}
    marks = list(_PARAMETER.finditer(rest))
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        raw = rest[mark.end() : None if after is None else after.start()]
        close = raw.rfind("</parameter>")
        raw = raw if close < 0 else raw[:close]
        # The values stand on lines of their own; they are text, and JSON where a number is due.
        arguments[mark[1]] = raw.removeprefix("\n").removesuffix("\n")
    return _checked(heads[0][1], arguments)


def _object(text: str) -> Any:
    try:
        return json.loads(text.strip(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _objects(text: str) -> Iterator[Any]:
    """JSON objects in prose, outermost ones only."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    at = 0
    for _ in range(_MOST_OBJECTS):
        at = text.find("{", at)
        if at < 0:
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
        else:
            yield value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _as_call(value: Any) -> Call | Malformed | None:
    """The call that a JSON value spells, or None where it is something else."""
    if isinstance(value, list):
        found = [call for call in map(_as_call, value) if call is not None]
        return _single(found) if found else None
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("tool_calls"), list):
        return _as_call(value["tool_calls"])
    if isinstance(value.get("function"), dict):
        return _as_call(value["function"])
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    if name is None:
        return None
    held = [key for key in _ARGUMENTS if key in value]
    arguments = value[held[0]] if held else {}
    if isinstance(arguments, str):
        parsed = _object(arguments) if arguments.strip() else {}
        if parsed is None:
            return Malformed(f"The arguments of {name!r} are text that is not JSON. {_HOW}")
        arguments = parsed
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return Malformed(f"The arguments of {name!r} must be a JSON object. {_HOW}")
    return _checked(name, arguments)


def _checked(name: str, arguments: dict[str, Any]) -> Call | Malformed:
    try:
        json.dumps([name, arguments], ensure_ascii=False).encode("utf-8")
    except (UnicodeEncodeError, RecursionError):
        return Malformed(f"The call holds half of a surrogate pair or is nested too deeply. {_HOW}")
    return Call(name.strip(), arguments)
