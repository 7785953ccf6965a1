"""Relations: assignments, chains of equalities, equations, inequalities in several variables."""

from __future__ import annotations

from fractions import Fraction

from envs.math_reasoning.grading.algebra import Algebra, Monomial, Poly, TooLarge
from envs.math_reasoning.grading.equality import equal_scalars
from envs.math_reasoning.grading.nodes import Node, symbols
from envs.math_reasoning.grading.numbers import plain_value, rounds_to

__all__ = ["Conclusion", "conclude", "is_name", "same_equation", "same_inequality"]

_SIGNS = {"<": 1, "<=": 1, ">": -1, ">=": -1}


class Conclusion(tuple[Node | None, tuple[Node, ...]]):
    """What an equality says: a name (or None), and the values it is given, exact ones first."""

    __slots__ = ()

    @property
    def name(self) -> Node | None:
        """What gets the values, or None."""
        return self[0]

    @property
    def values(self) -> tuple[Node, ...]:
        """The values."""
        return self[1]


def is_name(node: Node) -> bool:
    """Whether it can stand for what is asked: a variable, ``f(x)``, ``AB``, words."""
    if node.op in ("sym", "text"):
        return True
    if node.op == "const":
        return node.value in ("e", "i")
    if node.op == "fn":
        return str(node.value).startswith("call ")
    if node.op == "tuple":
        return all(arg.op == "sym" for arg in node.args)
    return node.op == "mul" and all(arg.op in ("sym", "const") or is_name(arg) for arg in node.args)


def conclude(node: Node) -> Conclusion | None:
    """The value that a chain such as ``x = 3 + 2 = 5`` ends with.

    None where the chain has no value, or contradicts itself.
    """
    if node.op != "rel" or not set(node.value) <= {"=", "≈"}:
        return None
    sides = list(node.args)
    name: Node | None = None
    if is_name(sides[0]) or (symbols(sides[0]) and not symbols(sides[-1])):
        name = sides.pop(0)
        signs = list(node.value[1:])
    elif len(sides) == 2 and is_name(sides[1]):
        return Conclusion((sides[1], (sides[0],)))
    else:
        signs = list(node.value)
    values = [sides[0]]
    approximate: list[Node] = []
    for sign, side in zip(signs, sides[1:], strict=True):
        before = approximate[-1] if approximate else values[-1]
        if sign == "≈" or approximate:
            if not _roughly(before, side):
                return None
            approximate.append(side)
        else:
            if before.scalar != side.scalar or (
                side.scalar
                and equal_scalars(before, side) is not True
                and not _roughly(before, side)
            ):
                return None
            values.append(side)
    first = node.value[0] == "≈" and name is not None
    return Conclusion((name, (values[-1], *approximate) if not first else (values[-1],)))


def _roughly(exact: Node, shown: Node) -> bool:
    """Whether a decimal is the value to all its digits."""
    decimal = plain_value(shown)
    if decimal is None:
        return equal_scalars(exact, shown) is True if exact.scalar and shown.scalar else False
    return exact.scalar and rounds_to(exact, decimal[0], decimal[1] or 0, cut_off=True)


# Equations -------------------------------------------------------------------------------------


def same_equation(a: Node, b: Node) -> bool | None:
    """Whether two equations are the same but for a constant factor and terms moved across."""
    if len(a.args) != 2 or len(b.args) != 2:
        return None
    factor = _factor(a, b)
    return None if factor is None else factor != 0


def same_inequality(a: Node, b: Node) -> bool | None:
    """The same for inequalities; a negative factor turns the sign."""
    if len(a.args) != 2 or len(b.args) != 2:
        return None
    one, other = a.value[0], b.value[0]
    if one not in _SIGNS or other not in _SIGNS:
        if one != other:
            return False
        return same_equation(a, b)
    if ("=" in one) != ("=" in other):
        return False
    factor = _factor(a, b)
    if not factor:
        return None if factor is None else False
    return (factor > 0) == (_SIGNS[one] == _SIGNS[other])


def _factor(a: Node, b: Node) -> Fraction | None:
    """``c`` with ``b = c a`` for ``left - right`` of both, 0 if there is none, None if unknown."""
    if not all(side.scalar for side in (*a.args, *b.args)):
        return None
    algebra = Algebra()
    try:
        (p, below_p), (q, below_q) = (
            algebra.ratio(Node("add", (n.args[0], Node("neg", (n.args[1],))))) for n in (a, b)
        )
        if not p or not q:
            return Fraction(int(not p and not q))
        # Denominators do not vanish; where both have the same one it goes.
        if below_p != below_q and len(below_p) == len(below_q) == 1:
            return Fraction(0)
        p, q = _cleared(algebra, p), _cleared(algebra, q)
        return _proportion(algebra, p, q)
    except (TooLarge, OverflowError, TypeError):
        return None


def _cleared(algebra: Algebra, poly: Poly) -> Poly:
    """Without negative powers of variables."""
    lowest: dict[int, Fraction] = {}
    for monomial in poly:
        for number, exponent in monomial:
            if exponent < 0 and algebra.kind(number) == "var":
                lowest[number] = min(lowest.get(number, Fraction(0)), exponent)
    if not lowest:
        return poly
    shift: Monomial = tuple(sorted((number, -exponent) for number, exponent in lowest.items()))
    return algebra.times(poly, {shift: Fraction(1)})


def _proportion(algebra: Algebra, p: Poly, q: Poly) -> Fraction:
    monomial = min(p)
    if monomial in q:
        factor = q[monomial] / p[monomial]
        scaled = {key: value * factor for key, value in p.items()}
        if scaled == q:
            return factor
    # A factor such as a root: compare through the first terms in the variables.
    first, second = (min(poly, key=lambda m: _variables(algebra, m)) for poly in (p, q))
    if _variables(algebra, first) != _variables(algebra, second):
        return Fraction(0)
    left = algebra.times(p, {second: q[second]})
    right = algebra.times(q, {first: p[first]})
    if algebra.plus(left, right, -1):
        return Fraction(0)
    positive = (q[second] > 0) == (p[first] > 0)
    return Fraction(1 if positive else -1)


def _variables(algebra: Algebra, monomial: Monomial) -> Monomial:
    kinds = ("var", "closed", "abs", "exp")
    return tuple(pair for pair in monomial if algebra.kind(pair[0]) in kinds)
