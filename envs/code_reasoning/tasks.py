"""A function to write, and the hidden tests that judge it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["CodeTask", "Compare", "ValueTest"]

#: ``exact``: equal and of the same types throughout. ``equal``: as Python's ``==`` on plain values.
#: ``close``: as ``exact``, but numbers may differ by a tolerance. ``true``, ``false``: by truth.
Compare = Literal["exact", "equal", "close", "true", "false"]


@dataclass(frozen=True, slots=True)
class ValueTest:
    """One call and what has to come back. Values are trees of JSON, see ``inside/plain.py``.

    Attributes:
        name: Function to call.
        args: Its arguments, each a tree.
        kwargs: Pairs of a name and a tree.
        expected: Tree of the value expected.
        compare: How values are compared.
        tolerance: Largest difference of numbers, with ``close``.
        raises: Name of the exception expected instead of a value.
    """

    name: str
    args: tuple[Any, ...]
    expected: Any = None
    kwargs: tuple[tuple[str, Any], ...] = ()
    compare: Compare = "exact"
    tolerance: float = 0.0
    raises: str | None = None


@dataclass(frozen=True, slots=True)
class CodeTask:
    """A function to write.

    Attributes:
        id: Stable id.
        question: The text.
        names: Functions that the code has to define; the first is the one asked for.
        tests: Hidden tests by value; empty where ``checks`` is used.
        number: Number of tests.
        checks: Hidden tests as Python text, run in a process of its own; or the empty text. If it
            defines ``check``, that is called with the function asked for.
        context: Python text that runs ahead of the code (imports, helper functions).
        head: The function's head where the question shows it, so that a mere body will do.
        reference: Lines of a solution; may be empty.
        type: Kind of task, for statistics.
    """

    id: str
    question: str
    names: tuple[str, ...]
    tests: tuple[ValueTest, ...] = ()
    number: int = 0
    checks: str = ""
    context: str = ""
    head: str = ""
    reference: tuple[str, ...] = ()
    type: str = "default"
