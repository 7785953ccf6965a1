"""What agents hand in may have any form; whichever it has, a check says so and does not break.

A check that breaks is nobody's score and ends the episode, which an agent must not bring about.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from envs.agencybench.assessment import Assessment, Unmet
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding

__all__ = ["guarded", "parsed"]

_MOST_SOURCE = 1 << 20
# Of a value of another kind than the check goes by, or of one that is nested too deeply.
_FORM = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def guarded(check: Check) -> Check:
    """The same check, for which what is handed in in another form is unmet and no error.

    A judge that fails is an error whatever it raises, and so is a sandbox.
    """
    if check.kind in ("judge", "vision"):
        return check

    def run(assessment: Assessment) -> Finding:
        try:
            return check.run(assessment)
        except _FORM as error:
            told = f"{type(error).__name__}: {error}"[:160]
            raise Unmet(f"what was handed in has another form ({told})") from None

    return replace(check, run=run)


def parsed(assessment: Assessment, path: str) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        Unmet: If it is not there, too long, or no Python.
    """
    text = assessment.text(path)
    need(len(text) <= _MOST_SOURCE, f"{path} is too long: {len(text)} characters")
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # The parser runs out of its own stack, not of the machine's memory.
        raise Unmet(f"{path} is no Python: {type(error).__name__}") from None
