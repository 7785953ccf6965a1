"""The puzzle as linear algebra over two elements: states and moves are sets of cells, as bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

SIZE = 5
CELLS = SIZE * SIZE

__all__ = ["CELLS", "SIZE", "as_bits", "as_rows", "effect", "minimal", "solutions"]


@cache
def effect(cell: int) -> int:
    """The cells that a move toggles: itself and its neighbours across an edge."""
    row, column = divmod(cell, SIZE)
    made = 1 << cell
    for r, c in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
        if 0 <= r < SIZE and 0 <= c < SIZE:
            made |= 1 << (r * SIZE + c)
    return made


def as_bits(rows: Sequence[Sequence[int]]) -> int:
    """A state from rows of 0 and 1.

    Raises:
        ValueError: If it has another shape or other values.
    """
    flat = [value for row in rows for value in row]
    if len(rows) != SIZE or any(len(row) != SIZE for row in rows) or not set(flat) <= {0, 1}:
        raise ValueError("a state is 5 rows of 5 values, each 0 or 1")
    return sum(value << cell for cell, value in enumerate(flat))


def as_rows(state: int) -> list[list[int]]:
    """Rows of 0 and 1."""
    return [[state >> (row * SIZE + column) & 1 for column in range(SIZE)] for row in range(SIZE)]


@cache
def _elimination() -> tuple[list[tuple[int, int, int]], list[int]]:
    """Rows ``(pivot, effect, moves)`` in reduced form, and the sets of moves that do nothing."""
    reduced: list[tuple[int, int, int]] = []
    idle = []
    for cell in range(CELLS):
        done, moves = effect(cell), 1 << cell
        for pivot, other, also in reduced:
            if done >> pivot & 1:
                done, moves = done ^ other, moves ^ also
        if not done:
            idle.append(moves)
            continue
        pivot = done.bit_length() - 1
        reduced = [(p, o ^ done, a ^ moves) if o >> pivot & 1 else (p, o, a) for p, o, a in reduced]
        reduced.append((pivot, done, moves))
    return reduced, idle


def solutions(state: int) -> list[int]:
    """All sets of moves that turn every light of ``state`` off; none where there is no way."""
    reduced, idle = _elimination()
    left, moves = state, 0
    for pivot, done, also in reduced:
        if left >> pivot & 1:
            left, moves = left ^ done, moves ^ also
    if left:
        return []
    found = [moves]
    for nothing in idle:
        found += [other ^ nothing for other in found]
    return found


def minimal(state: int) -> list[int]:
    """The solutions with the fewest moves."""
    found = solutions(state)
    fewest = min((moves.bit_count() for moves in found), default=0)
    return [moves for moves in found if moves.bit_count() == fewest]
