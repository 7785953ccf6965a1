"""Matrices and column vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from envs.math_reasoning.grading.building import product
from envs.math_reasoning.grading.equality import constant_value
from envs.math_reasoning.grading.lexer import Token
from envs.math_reasoning.grading.nodes import Node, Unparsed, num
from envs.math_reasoning.grading.parser import ExpressionParser, split_top

__all__ = ["as_vector", "from_rows", "matrix_from", "scaled_matrix"]

# Round, square and bare brackets say the same; bars make a determinant or a norm.
_KINDS = {"pmatrix": "", "bmatrix": "", "matrix": "", "smallmatrix": "", "array": "",
          "Bmatrix": "{", "vmatrix": "|", "Vmatrix": "||"}  # fmt: skip
_ROW = frozenset(("\\\\",))
_COLUMN = frozenset("&")


def matrix_from(tokens: Sequence[Token], read: Callable[[Sequence[Token]], Node]) -> Node:
    r"""Read a LaTeX environment.

    Args:
        tokens: From ``\begin`` to ``\end``.
        read: Reads one entry.

    Raises:
        Unparsed: If it is no matrix, or its rows differ in length.
    """
    name = tokens[0].text.rstrip("*")
    if name not in _KINDS or tokens[-1].kind != "end" or tokens[-1].text.rstrip("*") != name:
        raise Unparsed(f"the environment {tokens[0].text!r}")
    inner = list(tokens[1:-1])
    if any(token.kind in ("begin", "end") for token in inner):
        raise Unparsed("a matrix within a matrix")
    if name == "array":
        inner = _after_columns(inner)
    rows = [row for _, row in split_top(inner, _ROW) if row]
    cells = [[cell for _, cell in split_top(row, _COLUMN)] for row in rows]
    if not cells or len({len(row) for row in cells}) != 1:
        raise Unparsed("rows of different lengths")
    entries = tuple(read(cell) for row in cells for cell in row)
    return Node("matrix", entries, (len(cells), len(cells[0]), _KINDS[name]))


def scaled_matrix(tokens: Sequence[Token], read: Callable[[Sequence[Token]], Node]) -> Node:
    r"""A factor and a matrix, as in ``2\begin{pmatrix}1\\3\end{pmatrix}``, multiplied out.

    Args:
        tokens: From the factor to ``\end``.
        read: Reads one entry.

    Raises:
        Unparsed: If it is anything else.
    """
    start = next(place for place, token in enumerate(tokens) if token.kind in ("begin", "end"))
    matrix = matrix_from(tokens[start:], read)
    before = [*tokens[:start]]
    if before[-1].text == "*" and len(before) > 1:
        before.pop()
    if [token.text for token in before] == ["-"]:
        factor = num(-1)
    else:
        factor = ExpressionParser(before).whole()
    if matrix.value[2] or not all(entry.scalar for entry in matrix.args):
        raise Unparsed("a factor before something else than a matrix")
    return Node("matrix", tuple(_times(factor, entry) for entry in matrix.args), matrix.value)


def _times(factor: Node, entry: Node) -> Node:
    """The product; of fractions, their value."""
    values = constant_value(factor), constant_value(entry)
    if isinstance(values[0], Fraction) and isinstance(values[1], Fraction):
        return num(values[0] * values[1])
    return product(factor, entry)


def _after_columns(tokens: list[Token]) -> list[Token]:
    if not tokens or tokens[0].text != "{":
        raise Unparsed("an array without columns")
    for place, token in enumerate(tokens):
        if token.text == "}":
            return tokens[place + 1 :]
    raise Unparsed("a brace is not closed")


def from_rows(node: Node) -> Node | None:
    """``[[1, 2], [3, 4]]`` as a matrix, or None."""
    if node.op != "tuple" or node.value != "[]" or not node.args:
        return None
    rows = node.args
    if not all(row.op == "tuple" and row.value == "[]" for row in rows):
        return None
    if len({len(row.args) for row in rows}) != 1:
        return None
    entries = tuple(entry for row in rows for entry in row.args)
    return Node("matrix", entries, (len(rows), len(rows[0].args), ""))


def as_vector(node: Node) -> Node | None:
    """A matrix of one column or row as a tuple, or None."""
    if node.op == "matrix" and not node.value[2] and 1 in node.value[:2] and len(node.args) > 1:
        return Node("tuple", node.args, "()")
    return None
