"""Arguments of environments as they are written on command lines."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

__all__ = ["parse_pairs"]


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
