"""Whether two expressions are equal: True and False are proofs, None means undecided.

In order: exact fractions; enclosures that do not meet (at the constants, or at sample points of the
variables) prove a difference; a separation bound proves equality of algebraic constants; equal
normal forms prove equality of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from envs.math_reasoning.grading.algebra import Algebra, TooLarge
from envs.math_reasoning.grading.angles import with_plain_angles
from envs.math_reasoning.grading.evaluation import Box, Evaluator, Value
from envs.math_reasoning.grading.intervals import Undefined
from envs.math_reasoning.grading.nodes import Node, contains, symbols, walk
from envs.math_reasoning.grading.separation import is_zero

__all__ = ["constant_value", "equal_scalars", "is_infinite", "sample_points", "sign_of"]

#: Digits of the first enclosures.
DIGITS = 50
_MORE_DIGITS = 300
# Fractions without pattern, so that an accidental zero is unlikely; none is needed for soundness.
_POINTS = (
    Fraction(17, 11), Fraction(5, 7), Fraction(29, 13), Fraction(3, 10), Fraction(23, 19),
    Fraction(41, 17), Fraction(7, 3), Fraction(13, 31),
)  # fmt: skip
_MAX_VARIABLES = 12
# Above this no exact fraction is made at a sample point.
_SAMPLE_BITS = 2_000


@dataclass(frozen=True, slots=True)
class _Signs:
    """Signs and sizes of the variables at one sample point."""

    signs: tuple[int, ...]
    shift: int
    whole: bool = False
    scale: int = 1


_PATTERNS = (
    _Signs((1,), 0),
    _Signs((-1,), 1),
    _Signs((1, -1), 2),
    _Signs((-1, 1), 3),
    _Signs((1, 1, -1), 4),
    _Signs((1,), 5),
    _Signs((1,), 0, whole=True),
    _Signs((-1, -1, 1), 6),
    _Signs((1,), 3, scale=97),
)


def equal_scalars(a: Node, b: Node, *, real: bool = True) -> bool | None:
    """Whether two scalar expressions are equal.

    Args:
        a: One of them.
        b: The other.
        real: Variables stand for real numbers, and only points where both sides are real count.

    Returns:
        True or False where that is proved; None where it is not.
    """
    if a == b:
        return None if contains(a, "dots") else True
    for one, other in ((a, b), (b, a)):
        infinite = is_infinite(one)
        if infinite:
            return infinite == is_infinite(other) if _has_value(other) else None
    names = sorted(symbols(a) | symbols(b))
    if not names:
        return _equal_constants(a, b)
    if len(names) > _MAX_VARIABLES:
        return None
    refuted, tried = _differ_somewhere(a, b, names, real)
    if refuted:
        return False
    return True if _same_form(a, b) and tried else None


def is_infinite(node: Node) -> int:
    """1 or -1 for plus or minus infinity, else 0."""
    if node.op == "const" and node.value == "inf":
        return 1
    return -is_infinite(node.args[0]) if node.op == "neg" else 0


def _has_value(node: Node) -> bool:
    return bool(is_infinite(node)) or not any(
        at.op == "const" and at.value == "inf" for at in walk(node)
    )


# Constants -------------------------------------------------------------------------------------


def constant_value(node: Node, digits: int = DIGITS) -> Value | None:
    """The value of a constant expression, or None."""
    try:
        return Evaluator(digits).value(node)
    except Undefined:
        return None


def sign_of(node: Node) -> int | None:
    """The sign of a real constant, or None where it is not proved."""
    infinite = is_infinite(node)
    if infinite:
        return infinite
    value = constant_value(node)
    if isinstance(value, Fraction):
        return (value > 0) - (value < 0)
    if value is None or value.im is not None:
        return None
    if value.excludes_zero:
        return 1 if value.re[0] > 0 else -1
    return 0 if is_zero(node) else None


def _equal_constants(a: Node, b: Node) -> bool | None:
    left, right = constant_value(a), constant_value(b)
    if left is None or right is None:
        return True if _same_form(a, b) and left is right is None else None
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left == right
    if _apart(left, right, DIGITS):
        return False
    # The same form first: it is cheap, and covers pi, e and logarithms.
    if _same_form(a, b):
        return True
    zero = is_zero(Node("add", (a, Node("neg", (b,)))))
    if zero is None:
        left, right = constant_value(a, _MORE_DIGITS), constant_value(b, _MORE_DIGITS)
        if left is not None and right is not None and _apart(left, right, _MORE_DIGITS):
            return False
    return zero


def _apart(a: Value, b: Value, digits: int) -> bool:
    try:
        return Evaluator(digits).difference(a, b).excludes_zero
    except Undefined:
        return False


# Variables -------------------------------------------------------------------------------------


def sample_points(names: Sequence[str]) -> Iterator[Mapping[str, Fraction]]:
    """Points at which expressions in these variables are compared: all kinds of signs."""
    for pattern in _PATTERNS:
        at = {}
        for place, name in enumerate(names):
            size = _POINTS[(place + pattern.shift) % len(_POINTS)]
            if pattern.whole:
                size = Fraction(2 + 3 * place % 11)
            at[name] = pattern.signs[place % len(pattern.signs)] * size * pattern.scale
        yield at


def _differ_somewhere(a: Node, b: Node, names: Sequence[str], real: bool) -> tuple[bool, int]:
    """Whether they provably differ at a sample point, and at how many points both have values."""
    imaginary = any(at.op == "const" and at.value == "i" for n in (a, b) for at in walk(n))
    refuted, tried = _differ_at(a, b, names, real=real and not imaginary)
    if tried == 0 and real and not imaginary:  # nowhere real
        refuted, tried = _differ_at(a, b, names, real=False)
    if not refuted and tried and not real and not imaginary:
        refuted = _differ_off_the_axis(a, b)
    return refuted, tried


def _differ_at(a: Node, b: Node, names: Sequence[str], *, real: bool) -> tuple[bool, int]:
    tried = 0
    for at in sample_points(names):
        evaluator = Evaluator(DIGITS, at, _SAMPLE_BITS, real=real)
        try:
            gap = evaluator.difference(evaluator.value(a), evaluator.value(b))
        except Undefined:
            continue
        tried += 1
        if gap.excludes_zero:
            return True, tried
    return False, tried


class _ComplexEvaluator(Evaluator):
    """Variables have complex values."""

    def __init__(self, digits: int, at: Mapping[str, Box]) -> None:
        super().__init__(digits)
        self.points = at

    def _value(self, node: Node) -> Value:
        return self.points[node.value] if node.op == "sym" else super()._value(node)


def _differ_off_the_axis(a: Node, b: Node) -> bool:
    names = sorted(symbols(a) | symbols(b))
    at = {}
    for place, name in enumerate(names):
        re, im = Decimal(place + 2) / 4, Decimal(2 * place + 3) / 8
        at[name] = Box((re, re), (im, im))
    evaluator = _ComplexEvaluator(DIGITS, at)
    try:
        return evaluator.difference(evaluator.value(a), evaluator.value(b)).excludes_zero
    except Undefined:
        return False


def _same_form(a: Node, b: Node) -> bool:
    algebra = Algebra()
    a, b = with_plain_angles(a), with_plain_angles(b)
    try:
        (above_a, below_a), (above_b, below_b) = algebra.ratio(a), algebra.ratio(b)
        if not below_a or not below_b:
            return False
        left, right = algebra.times(above_a, below_b), algebra.times(above_b, below_a)
        return not algebra.plus(left, right, -1)
    except (TooLarge, OverflowError, ValueError, TypeError):
        return False
