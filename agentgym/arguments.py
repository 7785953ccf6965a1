"""Arguments as they are written on command lines, those of environments above all."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence
from typing import Any, get_args, get_origin, get_type_hints

__all__ = ["gathered", "parse_pairs"]


def parse_pairs(pairs: Sequence[str], flag: str = "--env-arg") -> dict[str, Any]:
    """``["difficulty=small", "max_steps=8"]`` to keyword arguments.

    Values are Python literals where they can be read as such, else text.

    Args:
        pairs: The entries.
        flag: What they were given with, for messages.

    Raises:
        ValueError: If an entry has no ``=`` or no identifier before it, or a key comes twice.
    """
    out: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"{flag} {pair!r} is not of the form KEY=VALUE")
        if key in out:
            raise ValueError(f"{flag} names {key!r} twice")
        try:
            out[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            out[key] = text
    return out


def gathered(words: Sequence[str], kind: type) -> list[str]:
    """The words of a command line with all values of a flag behind its first occurrence.

    ``--env-arg a=1 --env-arg b=2`` is meant like ``--env-arg a=1 b=2``, and parsers take the last
    occurrence alone.

    Args:
        words: The command line.
        kind: The dataclass it is read into; flags of its fields of type ``tuple[X, ...]`` may have
            several values.
    """
    hints = get_type_hints(kind)
    several = {
        f"--{field.name.replace('_', '-')}"
        for field in dataclasses.fields(kind)
        if get_origin(hints[field.name]) is tuple and get_args(hints[field.name])[-1] is Ellipsis
    }
    found: dict[str, list[str]] = {}
    out: list[str | list[str]] = []
    open_flag: list[str] | None = None
    for word in words:
        name, equals, value = word.partition("=")
        flag = name.replace("_", "-") if name.startswith("--") else ""
        if flag in several:
            if flag not in found:
                found[flag] = []
                out += [flag, found[flag]]
            if equals:
                found[flag].append(value)
            open_flag = found[flag]
        elif flag or open_flag is None:
            open_flag = None
            out.append(word)
        else:
            open_flag.append(word)
    return [word for part in out for word in ([part] if isinstance(part, str) else part)]
