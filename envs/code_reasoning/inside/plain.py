"""Plain values as JSON, strictly by type, and back.

A value is plain if its type is exactly one of those below. Instances of other subclasses are not,
so nothing that redefines ``__eq__`` or ``__hash__`` gets through.

========================  ========================================
``None``, bool, str       themselves
int                       itself, or ``["i", hexadecimal]`` from 2**53 on
float                     ``["f", repr]``
complex                   ``["c", repr, repr]``
list, tuple               ``["l", *items]``, ``["t", *items]``
set, frozenset            ``["s", *items]``, ``["z", *items]``, sorted by their JSON
dict, and ``Counter``,    ``["d", [key, value], ...]`` in its own order
``OrderedDict``,
``defaultdict``
bytes                     ``["b", hexadecimal]``
``re.Match``              ``["m"]``: only that it is true
========================  ========================================
"""

from __future__ import annotations

import json
import re
from collections import Counter, OrderedDict, defaultdict
from typing import Any

MAX_DEPTH = 60
#: Longest value, in characters of its JSON.
MAX_CHARS = 200_000
_MAX_PLAIN_INT = 2**53
_DICTIONARIES = (dict, Counter, OrderedDict, defaultdict)


class Found:
    """Stands for a match of a regular expression: true, and equal to nothing else."""


class NotPlain(ValueError):
    """A value that cannot be sent; the message says why."""


def encode(value: Any, depth: int = 0) -> Any:
    """The value as a tree of JSON.

    Raises:
        NotPlain: If it or a part of it is of another type, or it is nested too deeply.
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_MAX_PLAIN_INT < value < _MAX_PLAIN_INT else ["i", hex(value)]
    if kind is float:
        return ["f", repr(value)]
    if kind is complex:
        return ["c", repr(value.real), repr(value.imag)]
    if kind is bytes:
        return ["b", value.hex()]
    if kind is re.Match:
        return ["m"]
    if depth >= MAX_DEPTH:
        raise NotPlain("nested too deeply")
    if kind is list or kind is tuple:
        return ["l" if kind is list else "t", *[encode(item, depth + 1) for item in value]]
    if any(kind is known for known in _DICTIONARIES):
        pairs = [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in value.items()]
        return ["d", *pairs]
    if kind is set or kind is frozenset:
        items = [encode(item, depth + 1) for item in value]
        return ["s" if kind is set else "z", *sorted(items, key=dumps)]
    raise NotPlain(f"of type {kind.__name__!s:.60}")


def decode(tree: Any, depth: int = 0) -> Any:
    """The value of a tree.

    Raises:
        NotPlain: If the tree is malformed.
    """
    if tree is None or type(tree) in (bool, str, int):
        return tree
    if type(tree) is not list or not tree or depth > MAX_DEPTH:
        raise NotPlain("malformed")
    tag, *rest = tree
    if tree == ["m"]:
        return Found()
    try:
        if tag in ("i", "f", "c", "b"):
            if not all(type(part) is str for part in rest):
                raise NotPlain("malformed")
            return _scalar(tag, rest)
        if tag == "d":
            return {decode(k, depth + 1): decode(v, depth + 1) for k, v in rest}
        items = [decode(item, depth + 1) for item in rest]
        return {"l": list, "t": tuple, "s": set, "z": frozenset}[tag](items)
    except (KeyError, TypeError, ValueError) as error:
        raise NotPlain(f"malformed: {error!s:.80}") from None


def _scalar(tag: str, parts: list[str]) -> Any:
    if tag == "c":
        real, imag = parts
        return complex(float(real), float(imag))
    (text,) = parts
    if tag == "i":
        return int(text, 16)
    return float(text) if tag == "f" else bytes.fromhex(text)


def dumps(tree: Any) -> str:
    """A tree as one line of text."""
    return json.dumps(tree, ensure_ascii=True, separators=(",", ":"))


def loads(text: str | bytes) -> Any:
    """A tree from text.

    Raises:
        NotPlain: If the text is no JSON, too long or too deep.
    """
    if len(text) > MAX_CHARS:
        raise NotPlain("too long")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotPlain(f"malformed: {error!s:.80}") from None
