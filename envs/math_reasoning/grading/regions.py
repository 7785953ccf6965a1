"""Sets of real numbers: intervals, unions, inequalities, all written in one form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key

from envs.math_reasoning.grading.equality import (
    constant_value,
    equal_scalars,
    is_infinite,
    sign_of,
)
from envs.math_reasoning.grading.nodes import Node, num, symbols

__all__ = ["NoRegion", "Part", "equal_regions", "region_of"]

_INF = Node("const", (), "inf")
_MINUS_INF = Node("neg", (_INF,))
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!=", "=": "="}


class NoRegion(ValueError):
    """Not a set of real numbers, or one this module cannot put in order."""


@dataclass(frozen=True, slots=True)
class Part:
    """An interval; a single point has equal, closed ends."""

    low: Node
    high: Node
    low_closed: bool
    high_closed: bool


def equal_regions(a: Sequence[Part], b: Sequence[Part]) -> bool | None:
    """Whether two ordered lists of parts are the same set."""
    if len(a) != len(b):
        return False
    undecided = False
    for one, other in zip(a, b, strict=True):
        if (one.low_closed, one.high_closed) != (other.low_closed, other.high_closed):
            return False
        for left, right in ((one.low, other.low), (one.high, other.high)):
            same = equal_scalars(left, right)
            if same is False:
                return False
            undecided = undecided or same is None
    return None if undecided else True


def region_of(node: Node, *, brackets: bool = True) -> tuple[list[Part], str | None]:
    """The parts in order, and the variable where there is one.

    Args:
        node: An interval, union, set, inequality or membership.
        brackets: Read a pair in brackets as an interval.

    Raises:
        NoRegion: If it is no set of real numbers.
    """
    parts, name = _parts(node, brackets)
    return _merged(parts), name


def _parts(node: Node, brackets: bool) -> tuple[list[Part], str | None]:
    if node.op == "reals":
        return [Part(_MINUS_INF, _INF, False, False)], None
    if node.op == "tuple" and brackets and len(node.args) == 2:
        return [_interval(node)], None
    if node.op == "set":
        return [Part(arg, arg, True, True) for arg in node.args if _is_real(arg)], None
    if node.op == "union":
        return [part for arg in node.args for part in _parts(arg, True)[0]], None
    if node.op == "setminus":
        return _without(*(region_of(arg)[0] for arg in node.args)), None
    if node.op == "intersection":
        return _meet(*(region_of(arg)[0] for arg in node.args)), None
    if node.op == "member":
        name, region = node.args
        if name.op != "sym":
            raise NoRegion("membership of an expression")
        return _parts(region, True)[0], name.value
    if node.op == "rel":
        return _relation(node)
    if node.op == "conditions":
        return _conditions(node)
    raise NoRegion(node.op)


def _is_real(node: Node) -> bool:
    if not node.scalar or symbols(node):
        raise NoRegion("a set of other things than numbers")
    return True


def _interval(node: Node) -> Part:
    low, high = node.args
    opening, closing = node.value[0], node.value[-1]
    if opening not in "([" or closing not in ")]":
        raise NoRegion("a pair in other brackets")
    for end in (low, high):
        if not end.scalar:
            raise NoRegion("an interval of other things than numbers")
    return Part(low, high, opening == "[", closing == "]")


def _relation(node: Node) -> tuple[list[Part], str | None]:
    """``x > 3``, ``-2 <= x <= 7``, ``2x + 1 < 5``, ``x != 1``."""
    names = symbols(node)
    if len(names) != 1:
        raise NoRegion("a condition on more or less than one variable")
    name = names.pop()
    region = [Part(_MINUS_INF, _INF, False, False)]
    for left, sign, right in zip(node.args, node.value, node.args[1:], strict=False):
        region = _meet(region, _half_line(left, sign, right, name))
    return region, name


def _half_line(left: Node, sign: str, right: Node, name: str) -> list[Part]:
    if sign not in _MIRRORED or not (left.scalar and right.scalar):
        raise NoRegion(f"the sign {sign}")
    slope, offset = _linear(Node("add", (left, Node("neg", (right,)))), name)
    if slope == 0:
        raise NoRegion("a condition on no variable")
    if left == Node("sym", (), name) and not symbols(right):
        bound = right
    elif right == Node("sym", (), name) and not symbols(left):
        bound, sign = left, _MIRRORED[sign]
        slope = Fraction(1)
    else:
        if offset is None:
            raise NoRegion("no linear condition")
        bound = num(-offset / slope)
    if slope < 0:
        sign = _MIRRORED[sign]
    if sign == "!=":
        return [Part(_MINUS_INF, bound, False, False), Part(bound, _INF, False, False)]
    if sign == "=":
        return [Part(bound, bound, True, True)]
    closed = "=" in sign
    if sign.startswith("<"):
        return [Part(_MINUS_INF, bound, False, closed)]
    return [Part(bound, _INF, closed, False)]


def _linear(node: Node, name: str) -> tuple[Fraction, Fraction | None]:
    """Slope and offset of a linear expression; the offset is None where it is no fraction."""
    if node.op == "sym":
        return Fraction(1), Fraction(0)
    if not symbols(node):
        value = constant_value(node)
        return Fraction(0), value if isinstance(value, Fraction) else None
    if node.op == "neg":
        slope, offset = _linear(node.args[0], name)
        return -slope, None if offset is None else -offset
    if node.op == "add":
        pairs = [_linear(arg, name) for arg in node.args]
        offsets = [offset for _, offset in pairs]
        known = [offset for offset in offsets if offset is not None]
        total = sum(known, Fraction(0)) if len(known) == len(offsets) else None
        return sum((slope for slope, _ in pairs), Fraction(0)), total
    if node.op in ("mul", "div"):
        factor, inner = Fraction(1), None
        for place, arg in enumerate(node.args):
            slope, offset = _linear(arg, name)
            if slope == 0 and offset is not None and (offset or node.op == "mul"):
                factor = factor / offset if node.op == "div" and place else factor * offset
            elif inner is None and slope and not (node.op == "div" and place):
                inner = (slope, offset)
            else:
                raise NoRegion("no linear condition")
        if inner is None:
            raise NoRegion("no linear condition")
        return inner[0] * factor, None if inner[1] is None else inner[1] * factor
    raise NoRegion("no linear condition")


def _conditions(node: Node) -> tuple[list[Part], str | None]:
    regions = [region_of(arg) for arg in node.args]
    names = {name for _, name in regions}
    if len(names) != 1:
        raise NoRegion("conditions on different variables")
    region = regions[0][0]
    if node.value == "or":
        return [part for parts, _ in regions for part in parts], names.pop()
    for parts, _ in regions[1:]:
        region = _meet(region, parts)
    return region, names.pop()


# Order -----------------------------------------------------------------------------------------


def _compare(a: Node, b: Node) -> int:
    """-1, 0 or 1 as ``a`` is below, at or above ``b``."""
    if a == b:
        return 0
    left, right = is_infinite(a), is_infinite(b)
    if left or right:
        return (left > right) - (left < right)
    if symbols(a) or symbols(b):
        raise NoRegion("ends that cannot be put in order")
    sign = sign_of(Node("add", (a, Node("neg", (b,)))))
    if sign is None:
        raise NoRegion("ends that cannot be put in order")
    return sign


def _merged(parts: Sequence[Part]) -> list[Part]:
    """In order, without empty parts; parts that touch become one."""
    if len(parts) == 1:
        return list(parts)
    if len(parts) > 40:
        raise NoRegion("too many parts")
    kept = [part for part in parts if not _empty(part)]
    out: list[Part] = []
    for part in _sorted(kept, lambda p, q: _compare(p.low, q.low) or q.low_closed - p.low_closed):
        if out:
            last = out[-1]
            gap = _compare(part.low, last.high)
            if gap < 0 or (gap == 0 and (part.low_closed or last.high_closed)):
                order = _compare(part.high, last.high)
                high = part if order > 0 else last
                closed = high.high_closed if order else part.high_closed or last.high_closed
                out[-1] = Part(last.low, high.high, last.low_closed, closed)
                continue
        out.append(part)
    return out


def _sorted(parts: list[Part], order: Callable[[Part, Part], int]) -> list[Part]:
    return sorted(parts, key=cmp_to_key(order))


def _empty(part: Part) -> bool:
    order = _compare(part.low, part.high)
    return order > 0 or (order == 0 and not (part.low_closed and part.high_closed))


def _meet(a: Sequence[Part], b: Sequence[Part]) -> list[Part]:
    out = []
    for one in a:
        for other in b:
            low_order, high_order = _compare(one.low, other.low), _compare(one.high, other.high)
            low = one if low_order > 0 else other
            high = one if high_order < 0 else other
            low_closed = low.low_closed if low_order else one.low_closed and other.low_closed
            high_closed = high.high_closed if high_order else one.high_closed and other.high_closed
            part = Part(low.low, high.high, low_closed, high_closed)
            if not _empty(part):
                out.append(part)
    return out


def _without(a: Sequence[Part], b: Sequence[Part]) -> list[Part]:
    left = list(a)
    for hole in b:
        outside = [
            Part(_MINUS_INF, hole.low, False, not hole.low_closed),
            Part(hole.high, _INF, not hole.high_closed, False),
        ]
        left = _meet(left, outside)
    return left
