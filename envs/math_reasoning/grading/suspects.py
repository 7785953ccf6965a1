"""Which pairs an external verifier is asked about, and how they travel to it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from envs.math_reasoning.grading.evaluation import Evaluator
from envs.math_reasoning.grading.intervals import Undefined
from envs.math_reasoning.grading.nodes import Node, walk

__all__ = ["is_harmless", "to_plain"]

_MAX_NODES = 200
_MAX_EXPONENT = 200
_MAX_ARGUMENT = 100
_MAX_DIGITS_BITS = 200


def is_harmless(node: Node) -> bool:
    """Whether an expression is small enough to be worth a process: no towers, no huge numbers."""
    nodes = list(walk(node))
    if len(nodes) > _MAX_NODES:
        return False
    for at in nodes:
        if not at.scalar or at.op in ("pm", "mp") or (at.op == "const" and at.value == "inf"):
            return False
        if at.op == "num":
            value: Fraction = at.value
            if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_DIGITS_BITS:
                return False
        if at.op == "pow" and not _is_below(at.args[1], _MAX_EXPONENT):
            return False
        if at.op == "fact" and not _is_below(at.args[0], _MAX_ARGUMENT):
            return False
        binomial = at.op == "fn" and at.value == "binom"
        if binomial and not all(_is_below(arg, _MAX_ARGUMENT) for arg in at.args):
            return False
    return True


def _is_below(node: Node, limit: int) -> bool:
    """Whether a constant is small; what has variables is."""
    if any(at.op == "sym" for at in walk(node)):
        return True
    try:
        value = Evaluator(20).value(node)
    except Undefined:
        return False
    if isinstance(value, Fraction):
        return abs(value) <= limit and value.denominator <= limit
    return value.size <= limit


def to_plain(node: Node) -> list[Any]:
    """An expression as nested lists of strings, for JSON."""
    value = str(node.value) if node.value is not None else None
    return [node.op, value, [to_plain(arg) for arg in node.args]]
