"""Where a solution begins to give its final answer away."""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["answer_place"]

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_MARKER = re.compile(r"\\f?boxed|####|<answer>|\b(?:final |the )?answer\b", re.IGNORECASE)
_WRAPPING = re.compile(r"[$\s]|\\[!,;:()]|\\%|%|\\\$|(?<=\d),(?=\d{3})")
# Longer answers are searched for by their beginning.
_SEARCHED = 200


def answer_place(text: str, answer: str) -> int:
    r"""Index of the first character that gives the answer away.

    That is where the first of these begins: the answer itself as it is written, white space aside,
    a number of the same size (``$1,200.00`` for ``1200``, also where it means something else: what
    comes before holds no such number at all), or a marker such as ``\boxed``, ``####`` or "the
    answer". Where the solution shows none of them it is the beginning of its last line.

    Args:
        text: The solution.
        answer: The final answer.
    """
    places = [found.start() for found in _MARKER.finditer(text)][:1]
    plain = _WRAPPING.sub("", answer)
    size = _number(plain.lstrip("+-"))
    if size is not None:
        same = (m.start() for m in _NUMBER.finditer(text) if _number(m[0]) == size)
        places += [place for place in [next(same, None)] if place is not None]
    elif plain:
        letters = r"\s*".join(map(re.escape, plain[:_SEARCHED]))
        # A word is not looked for inside of others.
        edges = (r"(?<!\w)" if plain[0].isalnum() else "", r"(?!\w)" if plain[-1].isalnum() else "")
        found = re.search(edges[0] + letters + (edges[1] if len(plain) <= _SEARCHED else ""), text)
        places += [found.start()] if found else []
    if places:
        return min(places)
    return text.rstrip().rfind("\n") + 1


def _number(text: str) -> Fraction | None:
    found = _NUMBER.fullmatch(text)
    return None if found is None else Fraction(text.replace(",", ""))
