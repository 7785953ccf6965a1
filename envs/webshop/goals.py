"""Goals: what the shopper is asked to buy, in which order, and which split each belongs to.

The rules are those of the WebShop release: human goals come from annotations, synthetic ones
from every combination of a product's option values; all are shuffled with one fixed seed, and
the published splits are ranges of that order.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from envs.webshop.catalogue import Annotation, Catalogue, CatalogueError, Compat, Product

__all__ = [
    "NO_LIMIT",
    "SPLITS",
    "Goal",
    "GoalOption",
    "GoalSet",
    "Target",
    "build_goals",
    "load_goals",
    "split_by_index",
    "split_by_product",
]

GoalKind = Literal["human", "synthetic"]
#: What a goal asks for: a value, or a group and its value.
GoalOption = str | tuple[str, str]

#: Price bound of a goal that states none.
NO_LIMIT = 1_000_000
SPLITS = ("train", "validation", "test")

_SHUFFLE_SEED = 233
_BOUNDS = tuple(float(10 * i) for i in range(1, 100))
_TEST_END, _VALIDATION_END = 500, 1500
_HELD_OUT_SHARE = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What the type score compares a purchase with; shared by all goals of one product.

    Attributes:
        asin: Id of the product the goal was made from.
        title: Its name.
        query: Its search phrase.
        product_category: Its path of categories.
        categories: The stripped parts of that path.
        nouns: Nouns of the name, repeats kept.
    """

    asin: str
    title: str
    query: str
    product_category: str
    categories: frozenset[str]
    nouns: tuple[str, ...]

    @classmethod
    def of(cls, product: Product) -> Target:
        """The target that ``product`` is."""
        return cls(
            product.asin,
            product.title,
            product.query,
            product.product_category,
            frozenset(part.strip() for part in product.product_category.split("›")),
            product.nouns,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """One shopping task.

    Attributes:
        task_id: Stable id: product id, kind and running number within the product.
        index: Position in the shuffled order, which published splits refer to.
        kind: ``"human"`` or ``"synthetic"``.
        category: Department of the product the goal was made from.
        target: What the type score compares with.
        instruction: Text shown to the shopper.
        attributes: Attributes asked for.
        options: Options asked for: values, or (group, value) pairs of a synthetic goal.
        price_upper: Highest price allowed, in dollars.
        weight: Weight of the goal in the original's random draw.
    """

    task_id: str
    index: int
    kind: GoalKind
    category: str
    target: Target
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[GoalOption, ...]
    price_upper: float
    weight: float

    @property
    def asin(self) -> str:
        """Id of the product the goal was made from."""
        return self.target.asin

    @property
    def option_values(self) -> tuple[str, ...]:
        """The values asked for, without group names."""
        return tuple(o if isinstance(o, str) else o[1] for o in self.options)

    def as_dict(self) -> dict[str, Any]:
        """The goal in the original's own form."""
        human = self.kind == "human"
        return {
            "asin": self.asin,
            "category": self.category,
            "query": self.target.query,
            "name": self.target.title,
            "product_category": self.target.product_category,
            "instruction_text": self.instruction,
            "attributes": list(self.attributes),
            "price_upper": self.price_upper,
            "goal_options": list(self.options) if human else dict(self.options),  # type: ignore[arg-type]
            "weight": self.weight,
        }


class GoalSet:
    """Goals in their shuffled order, by index and by id.

    Args:
        goals: The goals; position i has ``index`` i.

    Raises:
        CatalogueError: If there is none.
    """

    def __init__(self, goals: Iterable[Goal]) -> None:
        self.goals = tuple(goals)
        if not self.goals:
            raise CatalogueError("there are no goals for these products")
        self.by_id: dict[str, Goal] = {goal.task_id: goal for goal in self.goals}

    def __len__(self) -> int:
        return len(self.goals)

    def __iter__(self) -> Iterator[Goal]:
        return iter(self.goals)

    def __getitem__(self, key: int | str) -> Goal:
        """The goal at an index, or of a task id."""
        if isinstance(key, str):
            return self.by_id[key]
        return self.goals[key]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A goal before the shuffle gives it an index and the count of attributes its weight."""

    serial: str
    product: Product
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[GoalOption, ...]
    price_upper: float


def build_goals(catalogue: Catalogue, kind: GoalKind, *, compat: Compat = "strict") -> GoalSet:
    """All goals of one kind over a catalogue, shuffled as the original does.

    The price bound is drawn from the first four multiples of ten above the product's price. It
    is keyed on the product (and the annotation), so that it never changes; the original draws it
    unseeded, which ``compat="upstream"`` stands in for with one generator over all products.

    Args:
        catalogue: The products.
        kind: ``"human"`` (one goal an annotation) or ``"synthetic"`` (one goal for each
            combination of option values).
        compat: ``"strict"`` or ``"upstream"``.

    Raises:
        CatalogueError: If the products hold no goal of that kind.
    """
    in_order = random.Random(0)

    def rng_of(key: str) -> random.Random:
        return in_order if compat == "upstream" else random.Random(f"bound {key}")

    if kind == "human":
        drafts = [d for product in catalogue for d in _human(product, rng_of)]
    else:
        drafts = [d for product in catalogue for d in _synthetic(product, rng_of)]
    if not drafts:
        source = "human annotations" if kind == "human" else "instructions among the attributes"
        raise CatalogueError(f"no {kind} goals: the {len(catalogue)} products have no {source}")
    counts = Counter(attribute for draft in drafts for attribute in draft.attributes)
    targets = {draft.product.asin: Target.of(draft.product) for draft in drafts}
    random.Random(_SHUFFLE_SEED).shuffle(drafts)
    return GoalSet(
        Goal(
            task_id=f"{draft.product.asin}/{draft.serial}",
            index=index,
            kind=kind,
            category=draft.product.category,
            target=targets[draft.product.asin],
            instruction=draft.instruction,
            attributes=draft.attributes,
            options=draft.options,
            price_upper=draft.price_upper,
            weight=_weight(draft.attributes, counts) if kind == "synthetic" else 1.0,
        )
        for index, draft in enumerate(drafts)
    )


def load_goals(records: Sequence[Mapping[str, Any]], catalogue: Catalogue) -> GoalSet:
    """Goals given in the original's own form; their order is kept.

    Args:
        records: Goals as :meth:`Goal.as_dict` writes them.
        catalogue: The products, which provide the nouns of the targets.

    Raises:
        CatalogueError: If a record lacks a key or names an unknown product.
    """
    goals = []
    targets: dict[str, Target] = {}
    serials: Counter[str] = Counter()
    for index, record in enumerate(records):
        try:
            goals.append(_loaded(record, index, catalogue, targets, serials))
        except KeyError as error:
            raise CatalogueError(f"goal {index} lacks {error.args[0]!r}") from None
        except (TypeError, ValueError) as error:
            raise CatalogueError(f"goal {index}: {error}") from None
    return GoalSet(goals)


def split_by_index(goals: GoalSet) -> dict[str, tuple[str, ...]]:
    """The published split: 0-499 test, 500-1499 validation, the rest train."""
    ids = tuple(goal.task_id for goal in goals)
    return {
        "train": ids[_VALIDATION_END:],
        "validation": ids[_TEST_END:_VALIDATION_END],
        "test": ids[:_TEST_END],
    }


def split_by_product(
    goals: GoalSet, homes: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """A split in which no product is the target of goals in two splits.

    Args:
        goals: The goals.
        homes: Product id to split, where the catalogue says so itself. By default a tenth of the
            products each goes to test and to validation (at least one where there are three or
            more), in the order of a hash of their ids: the same for every seed and process.
    """
    if homes is None:
        asins = {goal.asin for goal in goals}
        ranked = sorted(asins, key=lambda asin: hashlib.sha256(asin.encode()).digest())
        share = max(round(_HELD_OUT_SHARE * len(ranked)), 1 if len(ranked) >= len(SPLITS) else 0)
        homes = {
            **dict.fromkeys(ranked, "train"),
            **dict.fromkeys(ranked[:share], "test"),
            **dict.fromkeys(ranked[share : 2 * share], "validation"),
        }
    ids: dict[str, list[str]] = {name: [] for name in SPLITS}
    for goal in goals:
        ids[homes[goal.asin]].append(goal.task_id)
    return {name: tuple(members) for name, members in ids.items()}


def _bound(price: float, rng: random.Random) -> tuple[float, str]:
    """The price bound and the words that state it."""
    above = [bound for bound in _BOUNDS if bound > price][:4]
    if len(above) < 2:
        return NO_LIMIT, ""
    upper = max(rng.sample(above, 2))
    return upper, f", and price lower than {upper:.2f} dollars"


def _human(product: Product, rng_of: Callable[[str], random.Random]) -> Iterator[_Draft]:
    for number, annotation in enumerate(product.annotations):
        if not annotation.attributes:
            continue
        yield _human_draft(product, annotation, number, rng_of(f"{product.asin} h{number}"))


def _human_draft(
    product: Product, annotation: Annotation, number: int, rng: random.Random
) -> _Draft:
    upper, text = _bound(product.price, rng)
    return _Draft(
        serial=f"h{number}",
        product=product,
        instruction=annotation.instruction.strip(".") + text,
        attributes=annotation.attributes,
        options=annotation.options,
        price_upper=upper,
    )


def _synthetic(product: Product, rng_of: Callable[[str], random.Random]) -> Iterator[_Draft]:
    if product.instruction is None:
        return
    upper, text = _bound(product.price, rng_of(f"{product.asin} s"))
    names = sorted(product.options)
    for number, values in enumerate(itertools.product(*(product.options[n] for n in names))):
        options = tuple(zip(names, values, strict=True))
        asked = ", and ".join(f"{name}: {value}" for name, value in options)
        yield _Draft(
            serial=f"s{number}",
            product=product,
            instruction=product.instruction + (f" with {asked}" if asked else "") + text,
            attributes=product.instruction_attributes,
            options=options,
            price_upper=upper,
        )


def _weight(attributes: Sequence[str], counts: Mapping[str, int]) -> float:
    return sum(1.0 / counts[attribute] for attribute in attributes) / len(attributes)


def _loaded(
    record: Mapping[str, Any],
    index: int,
    catalogue: Catalogue,
    targets: dict[str, Target],
    serials: Counter[str],
) -> Goal:
    asin = record["asin"]
    if asin not in catalogue:
        raise ValueError(f"its product {asin!r} is not in the catalogue")
    if asin not in targets:
        targets[asin] = Target(
            asin,
            record["name"],
            record["query"],
            record["product_category"],
            frozenset(part.strip() for part in record["product_category"].split("›")),
            catalogue[asin].nouns,
        )
    options = record["goal_options"]
    named = isinstance(options, Mapping)
    serial = serials[asin]
    serials[asin] += 1
    attributes = tuple(record["attributes"])
    if not attributes:
        raise ValueError("it asks for no attribute")
    return Goal(
        task_id=f"{asin}/g{serial}",
        index=index,
        kind="synthetic" if named else "human",
        category=record["category"],
        target=targets[asin],
        instruction=record["instruction_text"],
        attributes=attributes,
        options=tuple(options.items()) if named else tuple(options),
        price_upper=float(record["price_upper"]),
        weight=float(record.get("weight", 1.0)),
    )
