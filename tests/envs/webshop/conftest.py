"""A hand-made catalogue with all that is awkward, and a way to open a shop on it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envs.webshop.catalogue import GeneratedCatalogue, build_catalogue
from envs.webshop.goals import build_goals, split_by_product
from envs.webshop.session import Session
from envs.webshop.shop import Shop, ShopConfig
from envs.webshop.upstream import UpstreamSession

# Benchmarks are run from the checkout and not installed. At the end of the path, so that the
# installed packages are the ones under test.
sys.path.append(str(Path(__file__).resolve().parents[3]))


def row(asin: str, name: str, **changes: Any) -> dict[str, Any]:
    """A raw product row."""
    return {
        "asin": asin,
        "name": name,
        "full_description": "",
        "small_description": [],
        "customization_options": "",
        "category": "garden",
        "query": "Lamps ",
        "product_category": "Home › Lighting › Lamps",
        "pricing": "$20.00",
        "images": ["a.jpg"],
    } | changes


def options(**groups: list[str]) -> dict[str, Any]:
    """Raw option groups."""
    return {name: [{"value": value} for value in values] for name, values in groups.items()}


@pytest.fixture
def raw() -> GeneratedCatalogue:
    """Fourteen products: enough for two result pages, with awkward options among them."""
    products = [
        row(
            "B00000000A",
            "Brass Lamp",
            full_description="Warm light.",
            small_description=["Dimmable ", "", "Made of brass"],
            customization_options=options(
                Color=['24" Wide', "Rosé/Gold", "red"], Size=["Red", "small", "Buy Now", "small"]
            ),
            pricing="$10.00 - $30.00",
        ),
        row("B00000000B", "Plain Lamp", small_description="One line", pricing=""),
        *(row(f"B0000000{n:02}", f"Lamp number {n}") for n in range(12)),
    ]
    nouns = {r["asin"]: [w.lower() for w in r["name"].split() if w != "number"] for r in products}
    return GeneratedCatalogue(
        products=products,
        attributes={
            "B00000000A": {
                "attributes": ["dimmable", "brass"],
                "instruction": "Find me a lamp",
                "instruction_attributes": ["dimmable"],
            },
            "B00000000B": {"attributes": ["dimmable"]},
            "B000000000": {
                "attributes": ["easy clean"],
                "instruction": "Find me a numbered lamp",
                "instruction_attributes": ["easy clean"],
            },
        },
        human={
            "B00000000A": [
                {
                    "instruction": "i want a dimmable red lamp.",
                    "instruction_attributes": ["dimmable"],
                    "instruction_options": ["red"],
                },
                {
                    "instruction": "nothing asked for",
                    "instruction_attributes": [],
                    "instruction_options": [],
                },
            ]
        },
        nouns=nouns,
    )


@pytest.fixture
def open_session(raw: GeneratedCatalogue) -> Callable[..., Session]:
    """Start an episode on the hand-made catalogue: ``open_session(compat, goal=..., kind=...)``."""

    def start(compat: str = "strict", goal: int = 0, kind: str = "synthetic") -> Session:
        catalogue = build_catalogue(raw, compat=compat)
        goals = build_goals(catalogue, kind, compat=compat)
        shop = Shop(catalogue, goals, split_by_product(goals), ShopConfig(compat=compat))
        session = UpstreamSession if compat == "upstream" else Session
        return session(shop, goals[goal], lambda: 7)

    return start
