"""Embedded catalogues: made on the spot, the same on every machine, in the original's raw schema.

Products come in families of nine near-duplicates: three groups of two *price decoys* and a
*target*. Inside a group title words and options are the same, so that search cannot tell the three
apart, and both decoys cost more than any bound that the target's goals can state. The groups of a
family differ in one attribute, or in the values of one option: each group's products are the
attribute and option decoys of the other two. A buyer who searches well and opens the first result
is therefore right about one time in three; the price must be read.

Product ``i`` of a seed is the same in a catalogue of any size, and all goals of a family belong to
one split, whatever the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from agentgym.dice import Dice
from envs.webshop.catalogue import GeneratedCatalogue
from envs.webshop.families import (
    FAMILY_SIZE,
    GROUP_SIZE,
    MAX_PRODUCTS,
    Draft,
    asin_of,
    split_of_family,
)
from envs.webshop.full_shop import full_family
from envs.webshop.small_shop import small_family

__all__ = ["MIN_PRODUCTS", "Difficulty", "generate", "target_splits"]

Difficulty = Literal["small", "full"]

_FAMILIES: dict[str, Callable[[int, int], list[Draft]]] = {
    "small": small_family,
    "full": full_family,
}

#: Smallest catalogue in which every split has goals: four families.
MIN_PRODUCTS = 4 * FAMILY_SIZE


def generate(
    n_products: int = 1000, seed: int = 0, difficulty: Difficulty = "small"
) -> GeneratedCatalogue:
    """Make a catalogue.

    Args:
        n_products: Number of products, at least :data:`MIN_PRODUCTS`.
        seed: Seed; another seed gives other products.
        difficulty: ``"small"`` (closed vocabulary, short pages) or ``"full"``.

    Returns:
        The rows of the original's three files, the nouns of each name, and in ``about`` the
        arguments and ``splits``: product id to split, for every product that goals ask for.

    Raises:
        ValueError: If an argument is out of range.
    """
    if isinstance(n_products, bool) or not isinstance(n_products, int):
        raise ValueError(f"n_products must be an int, got {n_products!r}")
    if not MIN_PRODUCTS <= n_products <= MAX_PRODUCTS:
        raise ValueError(
            f"n_products must be between {MIN_PRODUCTS} (each split has goals then) and "
            f"{MAX_PRODUCTS:,}, got {n_products!r}"
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an int >= 0, got {seed!r}")
    if difficulty not in _FAMILIES:
        raise ValueError(f"difficulty must be 'small' or 'full', got {difficulty!r}")
    splits: dict[str, str] = {}
    made = GeneratedCatalogue(
        products=[],
        attributes={},
        human={},
        nouns={},
        about={
            "n_products": n_products,
            "seed": seed,
            "difficulty": difficulty,
            "splits": splits,
        },
    )
    for family in range(-(-n_products // FAMILY_SIZE)):
        start = family * FAMILY_SIZE
        drafts = _FAMILIES[difficulty](family, seed)
        asins = _asins(family, seed, start)
        shelves: dict[int, dict[str, list[dict[str, Any]]] | str] = {}
        for draft, asin in zip(drafts[: n_products - start], asins, strict=False):
            # Members of a family that offer the same options share one object.
            shelf = shelves.get(id(draft.options))
            if shelf is None:
                shelf = shelves[id(draft.options)] = _raw_options(draft.options)
            _add(made, draft, asin, shelf)
            if draft.instruction is not None:
                splits[asin] = split_of_family(family)
    return made


def target_splits(raw: GeneratedCatalogue) -> dict[str, str]:
    """Product id to split, for every product that goals of a generated catalogue ask for.

    Raises:
        ValueError: If the catalogue was not made by :func:`generate`.
    """
    if "splits" not in raw.about:
        raise ValueError("this catalogue was not generated, so it names no splits of its own")
    return dict(raw.about["splits"])


def _asins(family: int, seed: int, start: int) -> list[str]:
    """Ids of a family's nine positions.

    Search breaks ties by id. Which of its group's ids a target gets is balanced over the family's
    groups, so that opening the first result is right exactly one time in three where titles tie.
    """
    asins = [asin_of(start + offset, seed) for offset in range(FAMILY_SIZE)]
    ranks = Dice(f"ranks {seed} {family}").draw(range(GROUP_SIZE), GROUP_SIZE)
    named: list[str] = []
    for place, rank in enumerate(ranks):
        group = sorted(asins[place * GROUP_SIZE : (place + 1) * GROUP_SIZE])
        target = group.pop(rank)
        named += [*group, target]
    return named


def _add(
    made: GeneratedCatalogue,
    draft: Draft,
    asin: str,
    options: dict[str, list[dict[str, Any]]] | str,
) -> None:
    made.products.append(_row(draft, asin, options))
    made.nouns[asin] = draft.nouns
    facts: dict[str, Any] = {"attributes": list(draft.attributes)}
    if draft.instruction is not None:
        facts["instruction"] = draft.instruction
        facts["instruction_attributes"] = list(draft.asked)
    made.attributes[asin] = facts
    if draft.requests:
        attributes = facts["attributes"]
        made.human[asin] = [
            {
                "asin": asin,
                "instruction": request.instruction,
                "attributes": attributes,
                "options": [f"{name}: {value}" for name, value in request.options] or [""],
                "instruction_attributes": list(request.attributes),
                "instruction_options": [value for _, value in request.options],
                "assignment_id": "",
                "worker_id": "",
            }
            for request in draft.requests
        ]


def _raw_options(options: dict[str, tuple[str, ...]]) -> dict[str, list[dict[str, Any]]] | str:
    """Option groups as raw rows write them; an empty string for none."""
    return {
        name: [
            {
                "is_selected": place == 0,
                "is_available": True,
                "url": None,
                "value": value,
                "asin": "",
                "price_string": "",
                "price": None,
                "image": None,
            }
            for place, value in enumerate(values)
        ]
        for name, values in options.items()
    } or ""


def _row(draft: Draft, asin: str, options: dict[str, list[dict[str, Any]]] | str) -> dict[str, Any]:
    """A raw row with every key of the original's product file."""
    return {
        "name": draft.name,
        "product_information": {},
        "brand": draft.brand,
        "brand_url": f"https://shop.example/{draft.brand}",
        "full_description": draft.description,
        "pricing": draft.pricing,
        "list_price": "",
        "availability_quantity": None,
        "availability_status": "In Stock.",
        "images": [f"https://shop.example/{asin}.jpg"],
        "product_category": draft.product_category,
        "average_rating": "",
        "small_description": draft.bullets,
        "total_reviews": "",
        "total_answered_questions": "",
        "customization_options": options,
        "seller_id": "",
        "seller_name": draft.brand,
        "fulfilled_by_amazon": False,
        "fast_track_message": "",
        "aplus_present": False,
        "small_description_old": "",
        "asin": asin,
        "category": draft.category,
        "query": draft.query,
        "page": 1,
    }
