"""What both kinds of embedded catalogue share: product drafts, price rules and product ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from agentgym.dice import Dice

__all__ = [
    "FAMILY_SIZE",
    "GROUP_SIZE",
    "MAX_PRODUCTS",
    "Draft",
    "Request",
    "asin_of",
    "asin_pieces",
    "highest_bound",
    "normal_value",
    "split_of_family",
]

#: Products in a group: two price decoys, then the target.
GROUP_SIZE = 3
#: Products in a family: three groups.
FAMILY_SIZE = 3 * GROUP_SIZE

# Seven of ten families train, two test, one validates; the order makes every split appear early.
_SPLITS = ("train", "test", "train", "validation", "train", "train", "test") + ("train",) * 3

_LETTERS = "BCDFGHJKLMNPQRSTVWXYZ"
_DIGITS = "0123456789"
_EITHER = _DIGITS + _LETTERS
_BLOCK = 1024
_SECOND = 32
_FIRSTS = _BLOCK // _SECOND
_FIRST_CODES = len(_LETTERS) * len(_DIGITS) * len(_EITHER) ** 2
#: Number of distinct product ids, in whole blocks.
MAX_PRODUCTS = _FIRST_CODES // _FIRSTS * _BLOCK


class Request(NamedTuple):
    """What a shopper asked for in own words; becomes one human annotation.

    Attributes:
        instruction: The words, without the price.
        attributes: Attributes asked for.
        options: (group, value) pairs asked for, both as pages show them.
    """

    instruction: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Draft:
    """One product before it becomes a raw row.

    Attributes:
        name: Title.
        description: Text of the description page.
        bullets: Lines of the features page.
        category: Department.
        query: Search phrase it is listed under.
        product_category: Category path joined by ``›``.
        pricing: Raw price text; empty for none.
        brand: Maker.
        options: Option group to values, as raw rows write them.
        attributes: Attributes it has.
        nouns: Nouns of the name, lower-cased, repeats kept.
        instruction: Start of synthetic goals; None for decoys.
        asked: Attributes that the synthetic goals ask for.
        requests: Requests that only this product of its family meets.
    """

    name: str
    description: str
    bullets: list[str]
    category: str
    query: str
    product_category: str
    pricing: str
    brand: str
    options: dict[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    nouns: list[str]
    instruction: str | None = None
    asked: tuple[str, ...] = ()
    requests: list[Request] = field(default_factory=list)


def split_of_family(family: int) -> str:
    """The split that all goals of a family belong to; it depends on nothing but its number."""
    return _SPLITS[family % len(_SPLITS)]


def highest_bound(price: float) -> int:
    """The largest bound that a goal for a product of this price can state, in dollars.

    A goal draws two of the first four multiples of ten strictly above the price and states the
    larger one, so that the fourth multiple is the largest possible bound.
    """
    return 10 * int(price // 10) + 40


@lru_cache(maxsize=1024)
def normal_value(value: str) -> str:
    """An option value as pages and goals show it; the original's rule."""
    return value.strip().replace("/", " | ").lower()


def asin_of(index: int, seed: int) -> str:
    """The id of the product at a position: ``B0`` and two codes of four characters.

    Raises:
        ValueError: If the index is beyond the number of distinct ids.
    """
    if not 0 <= index < MAX_PRODUCTS:
        raise ValueError(f"a catalogue has at most {MAX_PRODUCTS:,} products, got index {index!r}")
    block, place = divmod(index, _BLOCK)
    return _asins_of_block(seed, block)[place]


def asin_pieces(n_products: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The pieces that the ids of a catalogue are made of.

    Args:
        n_products: Size of the catalogue.

    Returns:
        First pieces (six characters, with the ``B0``) and second pieces (four characters). Each
        id is one of the first followed by one of the second, whatever the seed.
    """
    blocks = -(-n_products // _BLOCK)
    firsts = tuple(f"B0{_first_code(i)}" for i in range(blocks * _FIRSTS))
    return firsts, tuple(_second_code(i) for i in range(_SECOND))


@lru_cache(maxsize=8)
def _asins_of_block(seed: int, block: int) -> tuple[str, ...]:
    """The ids of one block of positions, in random order."""
    firsts = [f"B0{_first_code(block * _FIRSTS + number)}" for number in range(_FIRSTS)]
    seconds = [_second_code(number) for number in range(_SECOND)]
    asins = [first + second for first in firsts for second in seconds]
    return Dice(f"asin {seed} {block}").draw(asins, _BLOCK)


def _first_code(number: int) -> str:
    # Multiplying by a number prime to the size spreads neighbours over the whole range.
    number = (number * 122_949_823 + 57_773) % _FIRST_CODES
    number, last = divmod(number, len(_EITHER))
    number, third = divmod(number, len(_EITHER))
    letter, digit = divmod(number, len(_DIGITS))
    return _LETTERS[letter] + _DIGITS[digit] + _EITHER[third] + _EITHER[last]


def _second_code(number: int) -> str:
    letter = _LETTERS[(number * 8 + 3) % len(_LETTERS)]
    digit = _DIGITS[(number * 7 + 4) % len(_DIGITS)]
    return f"{digit}{letter}{_EITHER[(number * 11 + 5) % len(_EITHER)]}{number % 10}"
