"""Comparison of plain values, as trees, without making Python objects of what was sent.

Nothing here hashes or compares an object that the code under test chose, so there is no ``__eq__``
to redefine and no hash to make collide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from envs.code_reasoning.inside.plain import MAX_DEPTH, dumps
from envs.code_reasoning.tasks import ValueTest

__all__ = ["agrees", "is_tree"]

_PARTS = {
    "l": None,
    "t": None,
    "s": None,
    "z": None,
    "d": None,
    "i": 1,
    "f": 1,
    "c": 2,
    "b": 1,
    "m": 0,
}


def is_tree(tree: Any, depth: int = 0) -> bool:
    """Whether a tree is one that ``encode`` may have made."""
    if type(tree) is int:
        return abs(tree) < 2**53
    if tree is None or type(tree) in (bool, str):
        return True
    if type(tree) is not list or not tree or depth > MAX_DEPTH or type(tree[0]) is not str:
        return False
    tag, *rest = tree
    if tag not in _PARTS:
        return False
    if _PARTS[tag] is not None:
        return len(rest) == _PARTS[tag] and all(type(part) is str for part in rest)
    if tag == "d":
        pairs = all(type(pair) is list and len(pair) == 2 for pair in rest)
        return pairs and all(is_tree(part, depth + 1) for pair in rest for part in pair)
    return all(is_tree(item, depth + 1) for item in rest)


def agrees(test: ValueTest, tree: Any) -> bool:
    """Whether the tree that came back is what a test expects.

    Args:
        test: The test.
        tree: What came back; may be anything that JSON can hold.
    """
    if not is_tree(tree):
        return False
    if test.compare in ("true", "false"):
        return _truth(tree) is (test.compare == "true")
    if test.compare == "close":
        return _close(tree, test.expected, test.tolerance)
    if tree == ["m"]:
        return False
    scalar = _as_number if test.compare == "equal" else _itself
    return dumps(_ordered(tree, scalar)) == dumps(_ordered(test.expected, scalar))


def _itself(tree: Any) -> Any:
    return tree


def _ordered(tree: Any, scalar: Callable[[Any], Any]) -> Any:
    """The tree with the members of sets and dictionaries in an order that depends on them alone."""
    if type(tree) is not list or _PARTS[tree[0]] is not None:
        return scalar(tree)
    tag, *rest = tree
    if tag == "d":
        pairs = [[_ordered(key, scalar), _ordered(value, scalar)] for key, value in rest]
        return ["d", *sorted(pairs, key=dumps)]
    items = [_ordered(item, scalar) for item in rest]
    if tag in "sz":
        items.sort(key=dumps)
        # A frozen set equals a set, and no test but an exact one tells them apart.
        return [tag if scalar is _itself else "s", *items]
    return [tag, *items]


def _as_number(tree: Any) -> Any:
    """Numbers that Python calls equal, written alike: ``True``, 1, 1.0 and 1+0j."""
    if type(tree) is bool:
        return int(tree)
    if type(tree) is not list or tree[0] not in ("f", "c"):
        return tree
    try:
        parts = [float(part) for part in tree[1:]]
    except ValueError:
        return tree
    if len(parts) == 2 and parts[1] != 0:
        return ["c", repr(parts[0] + 0.0), repr(parts[1] + 0.0)]
    value = parts[0]
    if not value.is_integer():
        return ["f", repr(value)]
    whole = int(value)
    return whole if abs(whole) < 2**53 else ["i", hex(whole)]


def _truth(tree: Any) -> bool:
    """Truth of the value, as Python sees it."""
    if type(tree) is not list:
        return bool(tree)
    tag, *rest = tree
    if tag in ("f", "c"):
        return any(part not in ("0.0", "-0.0") for part in rest)
    return rest != [""] if tag == "b" else bool(rest) or tag == "m"


def _close(tree: Any, expected: Any, tolerance: float) -> bool:
    """Whether both have the same shape, and numbers differ by at most the tolerance."""
    one, other = _real(tree), _real(expected)
    if one is not None and other is not None:
        return one == other or abs(one - other) <= tolerance
    if type(tree) is not list or type(expected) is not list or tree[0] not in ("l", "t", "d"):
        return dumps(_ordered(tree, _itself)) == dumps(_ordered(expected, _itself))
    if tree[0] != expected[0] or len(tree) != len(expected):
        return False
    if tree[0] == "d":
        first, second = _ordered(tree, _itself), _ordered(expected, _itself)
        return all(
            dumps(one[0]) == dumps(other[0]) and _close(one[1], other[1], tolerance)
            for one, other in zip(first[1:], second[1:], strict=True)
        )
    return all(
        _close(one, other, tolerance) for one, other in zip(tree[1:], expected[1:], strict=True)
    )


def _real(tree: Any) -> float | None:
    """A number that is no truth value, or None."""
    if type(tree) is int:
        return float(tree)
    if type(tree) is list and tree[0] == "f":
        try:
            value = float(tree[1])
        except ValueError:
            return None
        return None if math.isnan(value) else value
    return None
