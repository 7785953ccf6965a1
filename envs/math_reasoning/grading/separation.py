"""Proof that an algebraic constant is zero, by a bound on how small it could be otherwise.

An expression of whole numbers with ``+ - * /``, roots and roots of unity is ``U / L`` with
algebraic integers ``U`` and ``L``. If no conjugate of ``U`` exceeds ``u``, none of ``L`` exceeds
``l``, and the degree is at most ``D``, then the expression is zero or at least
``1 / (u^(D-1) l)`` in size (Burnikel, Funke, Mehlhorn, Schirra and Schmitt, "A Separation Bound for
Real Algebraic Expressions", 2001). Evaluating it closely enough therefore decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

from envs.math_reasoning.grading.evaluation import Evaluator
from envs.math_reasoning.grading.exact import pi_multiple
from envs.math_reasoning.grading.intervals import Undefined
from envs.math_reasoning.grading.nodes import Node, walk

__all__ = ["is_zero"]

#: Most digits an evaluation may need.
MAX_DIGITS = 1200
# Logarithms are rounded; this covers it many times over.
_SLACK = 1e-6

_Bound = tuple[float, float]  # log2 of u and of l


class _NotAlgebraic(Exception):
    pass


@dataclass(slots=True)
class _Degree:
    """Degree of the field that the roots met so far generate."""

    roots: dict[Node, int] = field(default_factory=dict)
    turn: int = 1

    @property
    def total(self) -> int:
        degree = 1 if self.turn == 1 else self.turn
        for index in self.roots.values():
            degree *= index
        return degree


def is_zero(node: Node) -> bool | None:
    """Whether an algebraic constant is exactly zero; None where it is not algebraic or too deep."""
    degree = _Degree()
    try:
        u, low = _bound(node, degree)
    except (_NotAlgebraic, OverflowError):
        return None
    if degree.total > 10**6:
        return None
    bits = (degree.total - 1) * max(u, 0.0) + low + _SLACK * degree.total + 2
    digits = int(bits * math.log10(2)) + 12
    if digits > MAX_DIGITS:
        return None
    limit = Decimal(2) ** -math.ceil(bits)
    for precision in (min(40, digits), digits + 20, 2 * digits + 60):
        try:
            value = Evaluator(precision).value(node)
        except Undefined:
            return None
        if isinstance(value, Fraction):
            return value == 0
        if value.excludes_zero:
            return False
        if value.size < limit:
            return True
    return None


def _bound(node: Node, degree: _Degree) -> _Bound:
    op, args = node.op, node.args
    if op == "num":
        return _log(abs(node.value.numerator)), _log(node.value.denominator)
    if op == "const" and node.value == "i":
        degree.turn = math.lcm(degree.turn, 4)
        return 0.0, 0.0
    if op == "neg":
        return _bound(args[0], degree)
    if op in ("add", "mul", "div"):
        u, low = _bound(args[0], degree)
        for arg in args[1:]:
            other_u, other_low = _bound(arg, degree)
            if op == "add":
                u, low = _log_sum(u + other_low, low + other_u), low + other_low
            elif op == "mul":
                u, low = u + other_u, low + other_low
            else:
                u, low = u + other_low, low + other_u
        return u, low
    if op == "percent":
        u, low = _bound(args[0], degree)
        return u, low + _log(100)
    if op == "root":
        return _root(node, args[0], _whole(args[1]), degree)
    if op == "pow":
        return _power(node, degree)
    if op == "fn" and node.value == "abs":
        u, low = _bound(args[0], degree)
        if not any(at.op == "const" and at.value == "i" for at in walk(args[0])):
            return u, low
        degree.roots[node] = 2  # |z| is the root of z times its conjugate
        return u, low
    if op == "fn" and node.value in ("sin", "cos", "tan", "cot", "sec", "csc"):
        turn = pi_multiple(args[0])
        if turn is None:
            raise _NotAlgebraic
        # 2 sin and 2 cos of a rational multiple of pi are sums of two roots of unity.
        degree.turn = math.lcm(degree.turn, 4 * turn.denominator)
        return 1.0, 1.0
    raise _NotAlgebraic


def _power(node: Node, degree: _Degree) -> _Bound:
    base, exponent = node.args
    if base.op == "const" and base.value == "e":
        turn = _turn(exponent)
        if turn is None:
            raise _NotAlgebraic
        degree.turn = math.lcm(degree.turn, 2 * turn.denominator)
        return 0.0, 0.0
    try:
        power = Evaluator(30).value(exponent)
    except Undefined:
        raise _NotAlgebraic from None
    if not isinstance(power, Fraction) or abs(power.numerator) > 10**5:
        raise _NotAlgebraic
    n = abs(power.numerator)
    if power.denominator == 1:
        u, low = _bound(base, degree)
        u, low = u * n, low * n
    else:
        whole = Node("pow", (base, Node("num", (), Fraction(n))))
        u, low = _root(Node("root", (whole, Node("num", (), Fraction(power.denominator)))), whole,
                       power.denominator, degree)  # fmt: skip
    return (low, u) if power < 0 else (u, low)


def _root(node: Node, radicand: Node, index: int, degree: _Degree) -> _Bound:
    u, low = _bound(radicand, degree)
    degree.roots[node] = index
    if u >= low:
        return (u + (index - 1) * low) / index, low
    return u, ((index - 1) * u + low) / index


def _turn(node: Node) -> Fraction | None:
    """``r`` where the node is ``i r pi``."""
    if node.op == "neg":
        inner = _turn(node.args[0])
        return None if inner is None else -inner
    if node.op == "div":
        above = _turn(node.args[0])
        below = node.args[1]
        return above / below.value if above is not None and below.op == "num" else None
    if node.op == "mul":
        rest = [arg for arg in node.args if not (arg.op == "const" and arg.value == "i")]
        if len(rest) == len(node.args) - 1 and rest:
            return pi_multiple(Node("mul", tuple(rest)) if len(rest) > 1 else rest[0])
        # The imaginary unit may stand in a quotient: (i pi / 3) * 2.
        for place, arg in enumerate(node.args):
            inner = _turn(arg)
            others = [a for i, a in enumerate(node.args) if i != place]
            if inner is not None and all(a.op == "num" for a in others):
                for other in others:
                    inner *= other.value
                return inner
    return None


def _whole(node: Node) -> int:
    if node.op != "num" or node.value.denominator != 1 or not 2 <= node.value <= 1000:
        raise _NotAlgebraic
    return int(node.value)


def _log(n: int) -> float:
    return math.log2(n) + _SLACK if n else 0.0


def _log_sum(a: float, b: float) -> float:
    """``log2(2^a + 2^b)``, rounded up."""
    high, low = max(a, b), min(a, b)
    return high + math.log2(1.0 + 2.0 ** max(low - high, -1000.0)) + _SLACK
