"""The tree that an answer is read into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

__all__ = ["SCALARS", "Node", "Unparsed", "contains", "num", "replace", "symbols", "walk"]

#: Operations whose value is one number or expression.
SCALARS = frozenset(
    ("num", "sym", "const", "add", "mul", "div", "neg", "pow", "root", "fact", "fn", "degree",
     "percent", "pm", "mp")
)  # fmt: skip


class Unparsed(ValueError):
    """Text that is no answer this grader can read."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    Scalars: ``num`` (``value`` a Fraction, ``places`` the decimals written or None), ``sym`` (a
    name), ``const`` (``pi``, ``e``, ``i``, ``inf``), ``add``, ``mul``, ``div``, ``neg``, ``pow``,
    ``root`` (radicand, index), ``fact``, ``fn`` (``value`` the name), ``degree``, ``percent``,
    ``pm`` and ``mp`` (one argument, either sign).

    Structures: ``tuple`` (``value`` its two brackets), ``set``, ``list``, ``matrix`` (``value``
    rows, columns, brackets), ``rel`` (``value`` the signs between the arguments), ``conditions``
    (``value`` ``and`` or ``or``), ``member``, ``union``, ``intersection``, ``setminus``, ``reals``,
    ``ratio``, ``text``, ``time``, ``quantity`` (``value`` a unit), ``based`` (``value`` digits and
    base), ``dots``.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None
    places: int | None = None

    @property
    def scalar(self) -> bool:
        """Whether it stands for one number or expression."""
        return self.op in SCALARS


def num(value: int | Fraction, places: int | None = None) -> Node:
    """A number."""
    return Node("num", (), Fraction(value), places)


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it."""
    stack = [node]
    while stack:
        at = stack.pop()
        yield at
        stack.extend(at.args)


def contains(node: Node, *ops: str) -> bool:
    """Whether one of the operations occurs."""
    return any(at.op in ops for at in walk(node))


def symbols(node: Node) -> set[str]:
    """Names of the variables."""
    return {at.value for at in walk(node) if at.op == "sym"}


def replace(node: Node, sign: int) -> Node:
    """The node with every ``pm`` given the sign, and every ``mp`` the other one."""
    args = tuple(replace(arg, sign) for arg in node.args)
    if node.op in ("pm", "mp"):
        positive = (sign > 0) == (node.op == "pm")
        return args[0] if positive else Node("neg", args)
    return Node(node.op, args, node.value, node.places)
