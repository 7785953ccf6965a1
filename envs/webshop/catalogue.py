"""The products of a shop: from raw rows in the original's schema to what pages and rewards read.

The raw schema is that of the WebShop release (Yao et al., 2022): a list of product rows, a
mapping from product id to attributes, and a mapping from product id to human annotations.
:class:`GeneratedCatalogue` holds those three, in memory, for a catalogue made on the spot.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

from agentgym.files import write_atomically

__all__ = [
    "Annotation",
    "Catalogue",
    "CatalogueError",
    "Compat",
    "GeneratedCatalogue",
    "Product",
    "build_catalogue",
    "parse_price",
]

Compat = Literal["strict", "upstream"]

#: What a product without a price costs.
DEFAULT_PRICE = 100.0
#: Attribute that the original gives to products it knows no attributes of.
DUMMY_ATTRIBUTE = "DUMMY_ATTR"

_MAX_ASIN = 10
_NOT_PRICE = re.compile(r"[^\d.]")
_REQUIRED = {
    "asin": (str,),
    "name": (str,),
    "full_description": (str,),
    "small_description": (str, list),
    "customization_options": (str, dict, type(None)),
    "category": (str,),
    "query": (str,),
    "product_category": (str,),
}


class CatalogueError(ValueError):
    """A catalogue that cannot be read; the message names the place and what would be right."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """One human-written goal for a product.

    Attributes:
        instruction: What the person wrote.
        attributes: Attributes the instruction asks for.
        options: Option values the instruction asks for, without group names.
    """

    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """One product as the shop shows and scores it.

    Attributes:
        asin: Product id.
        title: Name shown on result and item pages.
        description: Text of the Description page.
        bullets: Lines of the Features page; the first one is searchable.
        category: Department (``beauty``, ``electronics``, ``fashion``, ``garden``, ``grocery``).
        query: Search phrase the product was collected under, lower-cased and stripped.
        product_category: Path of categories joined by ``›``.
        pricing: One price, or the two ends of a range, in dollars.
        price_tag: The price as shown.
        price: The price that counts for the reward, in dollars.
        options: Option group to its values, in the order shown, both lower-cased.
        attributes: Hidden attributes that the reward compares.
        nouns: Nouns of the title, lower-cased, repeats kept; the type score uses them.
        instruction: Text that synthetic goals start from, or None.
        instruction_attributes: Attributes that synthetic goals ask for.
        annotations: Human-written goals.
    """

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    category: str
    query: str
    product_category: str
    pricing: tuple[float, ...]
    price_tag: str
    price: float
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    nouns: tuple[str, ...]
    instruction: str | None = None
    instruction_attributes: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    def indexed_text(self) -> str:
        """The text that search sees: title, description, first bullet and all options."""
        options = ", and ".join(
            f"{name}: {', '.join(values)}" for name, values in self.options.items()
        )
        first = self.bullets[0] if self.bullets else ""
        return f"{self.title} {self.description} {first} {options}".lower()


class Catalogue:
    """All products, by position and by id; never changed once built.

    Args:
        products: The products in the order of their rows.
        skipped: Number of rows left out by the original's rules (no usable id, or a repeat).
    """

    def __init__(self, products: Iterable[Product], skipped: int = 0) -> None:
        self.products = tuple(products)
        self.skipped = skipped
        self._position = {product.asin: i for i, product in enumerate(self.products)}

    def __len__(self) -> int:
        return len(self.products)

    def __iter__(self) -> Iterator[Product]:
        return iter(self.products)

    def __getitem__(self, asin: str) -> Product:
        return self.products[self.position(asin)]

    def __contains__(self, asin: object) -> bool:
        return asin in self._position

    def position(self, asin: str) -> int:
        """The place of a product in the order of the rows.

        Raises:
            KeyError: If there is no such product.
        """
        try:
            return self._position[asin]
        except KeyError:
            raise KeyError(f"no product {asin!r} among the {len(self)} of the catalogue") from None


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedCatalogue:
    """A catalogue in the original's raw schema, with its noun lists.

    Attributes:
        products: Rows as in ``items_shuffle.json``.
        attributes: As ``items_ins_v2.json``: id to ``{"attributes", "instruction",
            "instruction_attributes"}`` (the last two may be absent).
        human: As ``items_human_ins.json``: id to a list of annotations.
        nouns: Id to the nouns of the product's name, lower-cased, repeats kept.
        about: How it was made (size, seed, difficulty), for reports.
    """

    products: list[dict[str, Any]]
    attributes: dict[str, dict[str, Any]]
    human: dict[str, list[dict[str, Any]]]
    nouns: dict[str, list[str]]
    about: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the original's three files, and ``nouns.json``, into ``folder``.

        Each file is replaced in one step, so that a reader never sees half of one.
        """
        for name, content in (
            ("items_shuffle.json", self.products),
            ("items_ins_v2.json", self.attributes),
            ("items_human_ins.json", self.human),
            ("nouns.json", self.nouns),
        ):
            write_atomically(Path(folder) / name, json.dumps(content))


def parse_price(pricing: object, asin: str) -> tuple[tuple[float, ...], str]:
    """Read a pricing string such as ``"$7.49"`` or ``"$6.99 - $12.99"``.

    Args:
        pricing: The raw value; empty or None means the default price.
        asin: Product id, for messages.

    Returns:
        The price or the two ends of the range, and the tag that pages show.

    Raises:
        CatalogueError: If the text holds no dollar sign or no number behind one.
    """
    if not pricing:
        return (DEFAULT_PRICE,), f"${DEFAULT_PRICE}"
    if not isinstance(pricing, str):
        raise CatalogueError(f"product {asin!r}: pricing must be a string, got {pricing!r}")
    pieces = pricing.split("$")[1:]
    if not pieces:
        raise CatalogueError(
            f"product {asin!r}: price {pricing!r} has no dollar sign; "
            "right would be '$7.49', '$6.99 - $12.99' or an empty string"
        )
    try:
        prices = tuple(float(Decimal(_NOT_PRICE.sub("", piece))) for piece in pieces)
    except InvalidOperation:
        raise CatalogueError(
            f"product {asin!r}: price {pricing!r} has no number behind a dollar sign; "
            "right would be '$7.49' or '$6.99 - $12.99'"
        ) from None
    if len(prices) == 1:
        return prices, f"${prices[0]}"
    return prices[:2], f"${prices[0]} to ${prices[1]}"


def build_catalogue(
    raw: GeneratedCatalogue,
    *,
    compat: Compat = "strict",
    prices: Mapping[str, float] | None = None,
    limit: int | None = None,
) -> Catalogue:
    """Turn raw rows into products by the original's rules.

    Rows without a usable id (``"nan"``, or longer than ten characters) and repeats are left out.
    The price of a product with a price range is drawn once: by default from a generator keyed on
    the product id, so that it never changes; with ``compat="upstream"`` from one generator over
    the rows, as the original does from the unseeded global one.

    Args:
        raw: The rows, attributes, annotations and nouns.
        compat: ``"strict"`` or ``"upstream"``.
        prices: Prices by product id that replace the draw, for replaying a recording.
        limit: Number of rows to read; None reads all.

    Raises:
        CatalogueError: If a row breaks the schema, or nouns or prices lack a product.
    """
    if not isinstance(raw.products, list):
        raise CatalogueError(f"products must be a list of rows, got {_kind(raw.products)}")
    for what, mapping in (("attributes", raw.attributes), ("human annotations", raw.human)):
        if not isinstance(mapping, Mapping):
            raise CatalogueError(
                f"{what} must be an object keyed by product id, got {_kind(mapping)}"
            )
    in_order = random.Random(0)
    products: list[Product] = []
    seen: set[str] = set()
    rows = raw.products if limit is None else raw.products[:limit]
    for number, row in enumerate(rows):
        _check_row(row, number)
        asin = row["asin"]
        if asin == "nan" or len(asin) > _MAX_ASIN or asin in seen:
            continue
        seen.add(asin)
        pricing, tag = parse_price(row.get("pricing"), asin)
        if prices is not None:
            price = _given_price(prices, asin)
        elif len(pricing) == 1:
            price = pricing[0]
        elif compat == "upstream":
            price = in_order.uniform(*pricing)
        else:
            price = random.Random(f"price {asin}").uniform(*pricing)
        if asin not in raw.nouns:
            raise CatalogueError(f"nouns lack product {asin!r} ({row['name'][:60]!r})")
        products.append(_product(row, raw, compat, pricing, tag, price))
    if not products:
        raise CatalogueError(f"no usable product among {len(rows)} rows")
    return Catalogue(products, skipped=len(rows) - len(products))


def _product(
    row: Mapping[str, Any],
    raw: GeneratedCatalogue,
    compat: Compat,
    pricing: tuple[float, ...],
    tag: str,
    price: float,
) -> Product:
    asin = row["asin"]
    facts = raw.attributes.get(asin)
    if facts is not None and not isinstance(facts, Mapping):
        raise CatalogueError(f"attributes of {asin!r} must be an object, got {_kind(facts)}")
    known = facts or {}
    if "attributes" in known:
        attributes = _strings(known["attributes"], f"attributes of {asin!r}")
    else:
        attributes = (DUMMY_ATTRIBUTE,) if compat == "upstream" else ()
    instruction = known.get("instruction")
    if instruction is not None and not isinstance(instruction, str):
        raise CatalogueError(f"instruction of {asin!r} must be a string, got {instruction!r}")
    wanted = _strings(
        known.get("instruction_attributes") or [], f"instruction_attributes of {asin!r}"
    )
    if instruction is not None and not wanted:
        raise CatalogueError(f"product {asin!r} has an instruction but no instruction_attributes")
    bullets = row["small_description"]
    return Product(
        asin=asin,
        title=row["name"],
        description=row["full_description"],
        bullets=(
            (bullets,)
            if isinstance(bullets, str)
            else _strings(bullets, f"small_description of {asin!r}")
        ),
        category=row["category"],
        query=row["query"].lower().strip(),
        product_category=row["product_category"],
        pricing=pricing,
        price_tag=tag,
        price=price,
        options=_options(row["customization_options"], asin),
        attributes=attributes,
        nouns=_strings(raw.nouns[asin], f"nouns of {asin!r}"),
        instruction=instruction,
        instruction_attributes=wanted,
        annotations=_annotations(raw.human.get(asin), asin),
    )


def _check_row(row: object, number: int) -> None:
    if not isinstance(row, Mapping):
        raise CatalogueError(f"product row {number} must be an object, got {_kind(row)}")
    for key, kinds in _REQUIRED.items():
        if key not in row:
            raise CatalogueError(
                f"product row {number} (asin {row.get('asin')!r}) lacks {key!r}; "
                f"a row has {', '.join(_REQUIRED)} and pricing"
            )
        if not isinstance(row[key], kinds):
            right = " or ".join("null" if k is type(None) else k.__name__ for k in kinds)
            raise CatalogueError(
                f"product row {number} (asin {row['asin']!r}): {key} must be {right}, "
                f"got {_kind(row[key])}"
            )


def _options(raw: object, asin: str) -> dict[str, tuple[str, ...]]:
    """Option groups with lower-cased names and normalised values."""
    if not raw:
        return {}
    if not isinstance(raw, Mapping):
        raise CatalogueError(
            f"product {asin!r}: customization_options must be an object or an empty string, "
            f"got {raw!r}"
        )
    options: dict[str, tuple[str, ...]] = {}
    for name, contents in raw.items():
        if contents is None:
            continue
        if not isinstance(contents, Sequence) or isinstance(contents, str):
            raise CatalogueError(
                f"product {asin!r}: option group {name!r} must be a list or null, "
                f"got {_kind(contents)}"
            )
        values = []
        for content in contents:
            value = content.get("value") if isinstance(content, Mapping) else None
            if not isinstance(value, str):
                raise CatalogueError(
                    f"product {asin!r}: each option of {name!r} must be an object with a string "
                    f"'value', got {content!r}"
                )
            values.append(value.strip().replace("/", " | ").lower())
        options[name.lower()] = tuple(values)
    return options


def _annotations(raw: object, asin: str) -> tuple[Annotation, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise CatalogueError(f"human annotations of {asin!r} must be a list, got {_kind(raw)}")
    annotations = []
    for entry in raw:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("instruction"), str):
            raise CatalogueError(
                f"a human annotation of {asin!r} must be an object with a string 'instruction', "
                f"got {str(entry)[:80]!r}"
            )
        lists = []
        for key in ("instruction_attributes", "instruction_options"):
            if key not in entry:
                raise CatalogueError(f"a human annotation of {asin!r} lacks {key!r}")
            lists.append(_strings(entry[key], f"{key} of {asin!r}"))
        annotations.append(Annotation(entry["instruction"], lists[0], lists[1]))
    return tuple(annotations)


def _given_price(prices: Mapping[str, float], asin: str) -> float:
    price = prices.get(asin)
    if isinstance(price, bool) or not isinstance(price, int | float):
        raise CatalogueError(f"prices lack a number for product {asin!r}, got {price!r}")
    return float(price)


def _strings(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise CatalogueError(f"{what} must be a list of strings, got {_kind(value)}")
    for item in value:
        if not isinstance(item, str):
            raise CatalogueError(f"{what} must be a list of strings, found {item!r}")
    return tuple(value)


def _kind(value: object) -> str:
    return f"{type(value).__name__} {str(value)[:40]!r}"
