"""The small catalogue: few words, short pages, and a price that must be read.

Every title has the same number of words, every family of the first 140 of a seed has attributes
that no other family of its noun has, and prices come from a list of 39. The hard part is kept: with
the best possible query three products lead the results in random order, and two of them are too
expensive for the goal at hand; with a sloppy query their six near-duplicates join them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

from agentgym.dice import Dice
from envs.webshop.families import GROUP_SIZE, Draft, Request, normal_value
from envs.webshop.lexicon import SMALL

__all__ = ["MAX_DECADE_GAP", "bound_range", "price_range", "small_family"]

_ATTRIBUTES_PER_FAMILY = 4
# A target at 10d + u has bounds of at most 10(d + 4); its decoys start there.
_DECOY_GAPS = (4, 5)
MAX_DECADE_GAP = max(_DECOY_GAPS)
_SIZE_SHARE = 0.75


def price_range() -> tuple[int, ...]:
    """Every price that occurs, in whole dollars."""
    low, high = SMALL.decades
    decades = range(low, high + MAX_DECADE_GAP + 1)
    return tuple(10 * decade + unit for decade in decades for unit in SMALL.units)


def bound_range() -> tuple[int, ...]:
    """Every price bound that a goal can state, in whole dollars."""
    low, high = SMALL.decades
    return tuple(range(10 * (low + 2), 10 * (high + 4) + 1, 10))


def small_family(family: int, seed: int) -> list[Draft]:
    """The nine products of one family: decoy, decoy, target, three times.

    Args:
        family: Number of the family.
        seed: Seed of the catalogue.
    """
    rng = Dice(f"small family {seed} {family}")
    turn, place = divmod(family, len(SMALL.nouns))
    noun = _nouns(seed, turn)[place]
    a, b, c, d = _attributes(seed, noun, turn)
    colors, other_colors = _halves(rng, SMALL.colors, rng.pick((3, 4)))
    options = {"Color": colors}
    variant = {"Color": other_colors}
    if rng.random() < _SIZE_SHARE:
        sizes, other_sizes = _halves(rng, SMALL.sizes, 3)
        options["Size"] = variant["Size"] = sizes
        if rng.random() < 0.5:
            variant = {"Color": colors, "Size": other_sizes}
    # Each group asks for what the other two lack: an attribute, or every value of one option.
    groups = (
        ((a, b, c), (a, b), options),
        ((a, d, c), (a, d), options),
        ((a, b, c), (b, c), variant),
    )
    members: list[Draft] = []
    for attributes, asked, values in groups:
        members += _group(rng, noun, attributes, asked, values)
    return members


def _group(
    rng: Dice,
    noun: str,
    attributes: tuple[str, ...],
    asked: tuple[str, str],
    options: dict[str, tuple[str, ...]],
) -> list[Draft]:
    decade = rng.between(*SMALL.decades)
    dear = [10 * (decade + gap) + unit for gap in _DECOY_GAPS for unit in SMALL.units]
    prices = [*rng.draw(dear, GROUP_SIZE - 1), 10 * decade + rng.pick(SMALL.units)]
    brands = rng.draw(SMALL.brands, GROUP_SIZE)
    order = rng.draw(attributes, len(attributes))
    asked = asked if rng.random() < 0.5 else (asked[1], asked[0])
    name = f"{' '.join(order)} {noun}".title()
    category = f"Home & Kitchen › Everyday Goods › {noun.title()}"
    members = [
        Draft(
            name=f"{brand} {name}",
            description=f"This {noun} is made by {brand}. ",
            bullets=[f"{noun} by {brand} ", *(f"{attribute} " for attribute in order)],
            category="garden",
            query=noun,
            product_category=category,
            pricing=f"${price}.00",
            brand=brand,
            options=options,
            attributes=attributes,
            nouns=[brand.lower(), noun],
        )
        for brand, price in zip(brands, prices, strict=True)
    ]
    target = members[-1]
    target.instruction = f"Find me {asked[0]}, {asked[1]} {noun}"
    target.asked = asked
    target.requests = _requests(rng, noun, attributes, asked, options)
    return members


def _requests(
    rng: Dice,
    noun: str,
    attributes: tuple[str, ...],
    asked: tuple[str, str],
    options: dict[str, tuple[str, ...]],
) -> list[Request]:
    """One request for each combination of options."""
    requests = []
    groups = [[(name.lower(), normal_value(v)) for v in values] for name, values in options.items()]
    for chosen in itertools.product(*groups):
        wanted = asked if rng.random() < 0.7 else rng.draw(attributes, len(attributes))
        words = " and ".join([value for _, value in chosen])
        text = f"I need a {noun} that is {' and '.join(wanted)}, in {words}."
        requests.append(Request(text, wanted, chosen))
    return requests


def _halves(rng: Dice, values: Sequence[str], size: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    drawn = rng.draw(values, 2 * size)
    return drawn[:size], drawn[size:]


@lru_cache(maxsize=64)
def _nouns(seed: int, turn: int) -> tuple[str, ...]:
    """The nouns of twenty families in a row: each once."""
    nouns = SMALL.nouns
    return tuple(Dice(f"small nouns {seed} {turn}").draw(nouns, len(nouns)))


@lru_cache(maxsize=64)
def _attributes(seed: int, noun: str, turn: int) -> tuple[str, ...]:
    """Attributes of the noun's family of this turn; seven turns share none."""
    per_cycle = len(SMALL.attributes) // _ATTRIBUTES_PER_FAMILY
    cycle, slot = divmod(turn, per_cycle)
    order = Dice(f"small attributes {seed} {noun} {cycle}").draw(
        SMALL.attributes, len(SMALL.attributes)
    )
    return order[_ATTRIBUTES_PER_FAMILY * slot : _ATTRIBUTES_PER_FAMILY * (slot + 1)]
