"""Exact functions of fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from envs.math_reasoning.grading.intervals import Undefined
from envs.math_reasoning.grading.nodes import Node

__all__ = ["binomial", "exact_root", "of_numbers", "pi_multiple"]


def exact_root(value: Fraction, index: int) -> Fraction | None:
    """The exact root of a positive fraction, or None."""
    if index > 64:
        return None
    above, below = _integer_root(value.numerator, index), _integer_root(value.denominator, index)
    return Fraction(above, below) if above is not None and below is not None else None


def _integer_root(n: int, index: int) -> int | None:
    if n < 2:
        return n
    if index == 2:
        root = math.isqrt(n)
    else:
        if n.bit_length() > 4096:
            return None
        root = 1 << -(-n.bit_length() // index)
        while True:  # Newton from above
            step = ((index - 1) * root + n // root ** (index - 1)) // index
            if step >= root:
                break
            root = step
    return root if root**index == n else None


def binomial(n: object, k: object, max_bits: int) -> Fraction:
    """The binomial coefficient of natural numbers.

    Raises:
        Undefined: If they are none, or too large.
    """
    if not (isinstance(n, Fraction) and isinstance(k, Fraction)):
        raise Undefined("a binomial of no whole numbers")
    if n.denominator != 1 or k.denominator != 1 or n < 0 or k < 0:
        raise Undefined("a binomial of no natural numbers")
    if min(k, n - k) * n.numerator.bit_length() > max_bits // 4:
        raise Undefined("a large binomial")
    return Fraction(math.comb(int(n), int(k)))


def of_numbers(name: str, args: Sequence[object]) -> Fraction:
    """``gcd``, ``lcm``, ``min`` or ``max`` of fractions.

    Raises:
        Undefined: If it has no value.
    """
    exact = [arg for arg in args if isinstance(arg, Fraction)]
    if len(exact) != len(args):
        raise Undefined(f"{name} of inexact numbers")
    if name in ("min", "max"):
        return min(exact) if name == "min" else max(exact)
    if any(arg.denominator != 1 for arg in exact):
        raise Undefined(f"{name} of fractions")
    whole = [int(arg) for arg in exact]
    return Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))


def pi_multiple(node: Node) -> Fraction | None:
    """``r`` where the node is written as ``r * pi`` with a fraction ``r``, or None."""
    op, args = node.op, node.args
    if op == "const":
        return Fraction(1) if node.value == "pi" else None
    if op == "num":
        return Fraction(0) if node.value == 0 else None
    if op == "degree":
        angle = _plain(args[0])
        return None if angle is None else angle / 180
    if op == "neg":
        inner = pi_multiple(args[0])
        return None if inner is None else -inner
    if op == "add":
        parts = [pi_multiple(arg) for arg in args]
        known = [part for part in parts if part is not None]
        return sum(known, Fraction(0)) if len(known) == len(parts) else None
    if op == "div":
        above, below = pi_multiple(args[0]), _plain(args[1])
        return None if above is None or not below else above / below
    if op == "mul":
        multiple: Fraction | None = None
        factor = Fraction(1)
        for arg in args:
            number = _plain(arg)
            if number is not None:
                factor *= number
            elif multiple is None and (multiple := pi_multiple(arg)) is not None:
                continue
            else:
                return None
        return None if multiple is None else factor * multiple
    return None


def _plain(node: Node) -> Fraction | None:
    """A number written with signs and quotients alone."""
    if node.op == "num":
        return node.value
    if node.op == "neg":
        inner = _plain(node.args[0])
        return None if inner is None else -inner
    if node.op in ("div", "mul"):
        parts = [_plain(arg) for arg in node.args]
        if any(part is None for part in parts):
            return None
        first, *rest = [part for part in parts if part is not None]
        for part in rest:
            if node.op == "div" and not part:
                return None
            first = first / part if node.op == "div" else first * part
        return first
    return None
