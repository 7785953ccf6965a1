"""Inverse trigonometric functions of constants, as multiples of pi where they are."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from envs.math_reasoning.grading.evaluation import Box, Evaluator
from envs.math_reasoning.grading.intervals import Undefined
from envs.math_reasoning.grading.nodes import Node, contains, num
from envs.math_reasoning.grading.separation import is_zero

__all__ = ["with_plain_angles"]

_DENOMINATORS = 120
_FORWARD = {"asin": "sin", "acos": "cos", "atan": "tan"}


def with_plain_angles(node: Node) -> Node:
    """The node with each ``arctan 1`` written as ``pi/4``, where that is proved."""
    if not contains(node, "fn"):
        return node
    args = tuple(with_plain_angles(arg) for arg in node.args)
    if node.op == "fn" and node.value in _FORWARD:
        multiple = _multiple(node)
        if multiple is not None:
            return Node("mul", (num(multiple), Node("const", (), "pi")))
    return Node(node.op, args, node.value, node.places)


def _multiple(node: Node) -> Fraction | None:
    evaluator = Evaluator(30)
    try:
        value = evaluator.value(node)
    except Undefined:
        return None
    if isinstance(value, Fraction) or value.im is not None:
        return Fraction(0) if value == 0 else None
    share = evaluator.value(Node("div", (node, Node("const", (), "pi"))))
    if not isinstance(share, Box):
        return None
    guess = Fraction(share.re[0]).limit_denominator(_DENOMINATORS)
    if abs(Fraction(share.re[0]) - guess) > Fraction(Decimal(10) ** -20):
        return None
    # Both lie in the range of the inverse, so that equal sines mean equal angles.
    angle = Node("mul", (num(guess), Node("const", (), "pi")))
    forward = Node("fn", (angle,), _FORWARD[node.value])
    return guess if is_zero(Node("add", (forward, Node("neg", node.args)))) else None
