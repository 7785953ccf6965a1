"""A shop: products, search index, goals and splits, built once a process and shared.

Nothing in a shop depends on an episode, so any number of environments, in any number of threads,
use one at the same time.
"""

from __future__ import annotations

import os
import random
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from envs.webshop.catalogue import (
    Catalogue,
    CatalogueError,
    Compat,
    GeneratedCatalogue,
    build_catalogue,
)
from envs.webshop.draws import task_set
from envs.webshop.files import DataFiles, locate, read_goals, read_json, read_mapping
from envs.webshop.goals import (
    GoalSet,
    build_goals,
    load_goals,
    split_by_index,
    split_by_product,
)
from envs.webshop.nouns import nouns_by_spacy
from envs.webshop.pages import ProductView
from envs.webshop.reward import Scorer
from envs.webshop.search import BM25Index

__all__ = ["SEARCH_LIMIT", "Shop", "ShopConfig", "open_shop"]

PathLike = str | os.PathLike[str]
GoalSource = PathLike | Sequence[Mapping[str, Any]]

#: Most products that a search finds.
SEARCH_LIMIT = 50

_SEARCHES_KEPT = 2048
_VIEWS_KEPT = 20_000
_PAGE_SIZE, _SMALL_PAGE_SIZE = 10, 5
_BUILTIN = "builtin"
_DEFAULT_SIZE = 1000


@dataclass(frozen=True, slots=True)
class ShopConfig:
    """What decides a shop; see :class:`envs.webshop.env.WebShopEnv` for the arguments."""

    data: PathLike | Mapping[str, PathLike] | None = None
    catalogue: PathLike | None = None
    goals: GoalSource = "synthetic"
    difficulty: Literal["small", "full"] = "full"
    compat: Compat = "strict"
    nouns: PathLike | Mapping[str, Sequence[str]] | None = None
    prices: PathLike | Mapping[str, float] | None = None
    split_by: Literal["index", "product"] | None = None
    num_products: int | None = None
    page_size: int | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("difficulty", self.difficulty, ("small", "full")),
            ("compat", self.compat, ("strict", "upstream")),
            ("split_by", self.split_by, (None, "index", "product")),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {known}, got {value!r}")
        if self.data is not None and self.catalogue is not None:
            raise ValueError(
                f"give data or catalogue, not both: data={self.data!r}, "
                f"catalogue={self.catalogue!r}"
            )
        if self.data is not None and not isinstance(self.data, str | os.PathLike | Mapping):
            raise ValueError(f"data must be a path or a mapping of paths, got {self.data!r}")
        if self.catalogue is not None and (
            not isinstance(self.catalogue, str | os.PathLike) or not os.fspath(self.catalogue)
        ):
            raise ValueError(
                f"catalogue must be 'builtin:N', 'builtin:N:SEED' or a path, got {self.catalogue!r}"
            )
        for name, number in (
            ("num_products", self.num_products),
            ("page_size", self.page_size),
        ):
            if number is not None and (
                isinstance(number, bool) or not isinstance(number, int) or number < 1
            ):
                raise ValueError(f"{name} must be a positive int or None, got {number!r}")
        if self.compat == "upstream" and self.page_size not in (None, _PAGE_SIZE):
            raise ValueError(
                f"page_size is {_PAGE_SIZE} with compat='upstream', got {self.page_size!r}"
            )
        if self.builtin is not None and self.nouns is not None:
            raise ValueError("a built-in catalogue knows its nouns; give nouns with data only")

    @property
    def builtin(self) -> tuple[int, int] | None:
        """Size and seed of the built-in catalogue asked for, or None for loaded data."""
        if self.data is not None:
            return None
        if self.catalogue is None:
            return _DEFAULT_SIZE, 0
        name, *numbers = os.fspath(self.catalogue).split(":")
        if name != _BUILTIN:
            return None
        if not 1 <= len(numbers) <= 2 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise ValueError(
                f"catalogue must be 'builtin:N', 'builtin:N:SEED' or a path, got {self.catalogue!r}"
            )
        size, seed = int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else 0
        return size, seed

    @property
    def products_on_a_page(self) -> int:
        """Size of a result page: as given, else 10, or 5 in the small built-in catalogue."""
        if self.page_size is not None:
            return self.page_size
        small = self.difficulty == "small" and self.compat == "strict" and self.builtin is not None
        return _SMALL_PAGE_SIZE if small else _PAGE_SIZE

    def source(self) -> PathLike | Mapping[str, PathLike]:
        """The data of a shop that is not built in."""
        source = self.catalogue if self.data is None else self.data
        assert source is not None
        return source


class Shop:
    """Everything of the world that episodes share.

    Args:
        catalogue: The products.
        goals: The goals.
        splits: Split name to task ids.
        config: What the shop was made from.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        goals: GoalSet,
        splits: Mapping[str, tuple[str, ...]],
        config: ShopConfig,
    ) -> None:
        self.catalogue = catalogue
        self.goals = goals
        self.splits = dict(splits)
        self.tasks = task_set(self.splits, goals, config.compat)
        # The configuration also keeps alive the objects that the table of open shops knows by
        # identity.
        self.config = config
        self.compat: Compat = config.compat
        self.page_size = config.products_on_a_page
        self.scorer = Scorer()
        self.index = BM25Index(
            [product.indexed_text() for product in catalogue],
            [product.asin for product in catalogue],
        )
        # Page fragments of all products, or of those met last where there are very many.
        products, compat = self.catalogue.products, self.compat
        self._view: Callable[[int], ProductView] = (
            [ProductView(product, compat) for product in products].__getitem__
            if len(products) <= _VIEWS_KEPT
            else lru_cache(_VIEWS_KEPT)(lambda position: ProductView(products[position], compat))
        )
        # The memo must not refer to the shop: a cycle would outlive the last environment.
        index, view = self.index, self._view

        def rank(query: str) -> tuple[ProductView, ...]:
            documents, _ = index.top(query, SEARCH_LIMIT)
            return tuple(map(view, documents.tolist()))

        self._search = lru_cache(_SEARCHES_KEPT)(rank)

    def find(self, keywords: tuple[str, ...], draw: Callable[[], int]) -> tuple[ProductView, ...]:
        """The products that a search shows, best first.

        A special first keyword selects products instead of ranking them: ``<r>`` random ones,
        ``<c>`` those of a department, ``<q>`` those of a search phrase, ``<a>`` those with an
        attribute (which fails in the original).

        Args:
            keywords: Lower-cased words.
            draw: Gives a seed where randomness is asked for.

        Raises:
            TypeError: For ``<a>`` under the original's rules.
            IndexError: For ``<c>`` without a department under the original's rules.
        """
        if keywords and len(keywords[0]) == 3 and keywords[0] in _SPECIAL:
            return tuple(map(self._view, self._special(keywords, draw)))
        return self._search(" ".join(keywords))

    def forget_searches(self) -> None:
        """Empty the memo of searches, for measuring without it."""
        self._search.cache_clear()

    def view(self, asin: str) -> ProductView:
        """The page fragments of one product."""
        return self._view(self.catalogue.position(asin))

    def _special(self, keywords: tuple[str, ...], draw: Callable[[], int]) -> list[int]:
        kind, rest = keywords[0], " ".join(keywords[1:]).strip()
        products = self.catalogue.products
        if kind == "<r>":
            count = min(SEARCH_LIMIT, len(products))
            return random.Random(draw()).sample(range(len(products)), count)
        if kind == "<c>":
            if self.compat == "upstream" and len(keywords) == 1:
                raise IndexError("search[<c>] without a category fails in the original")
            category = keywords[1].strip() if len(keywords) > 1 else ""
            return [i for i, product in enumerate(products) if product.category == category]
        if kind == "<q>":
            return [i for i, product in enumerate(products) if product.query == rest]
        if self.compat == "upstream":
            raise TypeError("search[<a> ...] fails in the original")
        return [i for i, product in enumerate(products) if rest in product.attributes]


_SPECIAL = frozenset(("<r>", "<c>", "<q>", "<a>"))

_lock = threading.Lock()
_open: weakref.WeakValueDictionary[Hashable, Shop] = weakref.WeakValueDictionary()
# Generating takes a third of a second: the shop that was opened last stays, so that those who make
# one environment after another need not wait for it again. Large ones and read ones would take
# memory that nobody expects to be in use.
_KEPT_PRODUCTS = 2_000
_kept: list[Shop] = []


def open_shop(config: ShopConfig) -> Shop:
    """The shop of a configuration: the one that is open already, or a new one.

    A shop stays open as long as something refers to it; the last one that was generated, if it is
    small, until the next. Files that changed since then give a new
    shop, and so do mappings and lists that are not the same objects.

    Raises:
        CatalogueError: If the data cannot be read.
    """
    builtin = config.builtin
    files = None if builtin is not None else locate(config.source())
    key = _key(config, builtin, files)
    with _lock:
        shop = _open.get(key)
        if shop is None:
            shop = _open[key] = _build(config, builtin, files)
        if builtin is not None and builtin[0] <= _KEPT_PRODUCTS:
            _kept[:] = [shop]
    return shop


def _key(
    config: ShopConfig, builtin: tuple[int, int] | None, files: DataFiles | None
) -> tuple[Hashable, ...]:
    source: Hashable = files.stamp() if files is not None else builtin

    def of(value: Any) -> Hashable:
        if value is None or value in ("human", "synthetic"):
            return value
        if isinstance(value, str | os.PathLike):
            status = os.stat(value) if os.path.exists(value) else None
            return (os.fspath(value), status and (status.st_size, status.st_mtime_ns))
        return id(value)

    return (
        source,
        config.difficulty,
        config.compat,
        config.split_by,
        config.num_products,
        config.products_on_a_page,
        of(config.goals),
        of(config.nouns),
        of(config.prices),
    )


def _build(config: ShopConfig, builtin: tuple[int, int] | None, files: DataFiles | None) -> Shop:
    goals, recorded = config.goals, None
    records: Sequence[Mapping[str, Any]] | None = None
    if isinstance(goals, str | os.PathLike):
        if goals not in ("human", "synthetic"):
            records, recorded = read_goals(goals)
    elif isinstance(goals, Sequence) and not isinstance(goals, str):
        records = goals
    else:
        raise ValueError(
            f"goals must be 'human', 'synthetic', a path or a list of goals, got {goals!r}"
        )
    prices: Mapping[str, float] | None = recorded
    if config.prices is not None:
        prices = read_mapping(config.prices, "prices")
        # A file of recorded goals holds the prices that were drawn with them.
        nested = prices.get("prices")
        prices = nested if isinstance(nested, Mapping) else prices
    if builtin is not None:
        from envs.webshop.generator import generate

        raw = generate(builtin[0], builtin[1], config.difficulty)
    else:
        assert files is not None
        if goals == "human" and files.human is None:
            raise CatalogueError(
                f"human goals need items_human_ins*.json beside {files.products}; "
                "there is none (goals='synthetic' does without)"
            )
        raw = _read(config, files)
    try:
        catalogue = build_catalogue(
            raw, compat=config.compat, prices=prices, limit=config.num_products
        )
        if records is not None:
            goal_set = load_goals(records, catalogue)
        else:
            kind: Literal["human", "synthetic"] = "human" if goals == "human" else "synthetic"
            goal_set = build_goals(catalogue, kind, compat=config.compat)
    except CatalogueError as error:
        if files is None:
            raise
        raise CatalogueError(f"{files.products.parent}: {error}") from None
    split_by = config.split_by or ("product" if builtin is not None else "index")
    homes = raw.about.get("splits")
    splits = split_by_index(goal_set) if split_by == "index" else split_by_product(goal_set, homes)
    return Shop(catalogue, goal_set, splits, config)


def _read(config: ShopConfig, files: DataFiles) -> GeneratedCatalogue:
    products = read_json(files.products)
    if isinstance(products, list) and config.num_products is not None:
        del products[config.num_products :]
    nouns: Mapping[str, Any]
    if config.nouns is not None:
        nouns = read_mapping(config.nouns, "nouns")
    elif isinstance(products, list) and all(
        isinstance(row, Mapping) and isinstance(row.get("name"), str) and "asin" in row
        for row in products
    ):
        lists = nouns_by_spacy([row["name"] for row in products])
        nouns = {row["asin"]: found for row, found in zip(products, lists, strict=True)}
    else:
        nouns = {}  # the rows break the schema, which building the catalogue reports
    return GeneratedCatalogue(
        products=products,
        attributes=read_json(files.attributes),
        human={} if files.human is None else read_json(files.human),
        nouns=dict(nouns),
    )
