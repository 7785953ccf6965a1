"""How well a purchase meets a goal: the reward of the WebShop paper (Yao et al., 2022), in parts.

Known looseness of these rules stays in every mode, since published numbers rest on it: option
values match by a fuzzy ratio, so ``x-large`` passes for ``large`` and ``xx-large`` for
``x-large``; colours reduce to the first colour word (by the alphabet) that is a substring, so
``titanium`` passes for ``tan`` and ``light blue`` for ``navy blue``; group names are ignored; and
another product than the goal's own may score 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from envs.webshop.catalogue import Product
from envs.webshop.goals import Goal, GoalOption, Target

__all__ = ["COLOURS", "Reward", "Scorer", "similar", "token_set_ratio"]

_COLOUR_WORDS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown
burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac
copper coral cranberry cream crystal dark denim eggplant elephant espresso fuchsia gold granite
grape graphite grass gray green grey heather indigo ivory ivy khaki lavender lemon leopard light
lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom mustard natural
navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand sapphire
seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet
walnut wheat white wine yellow
"""

#: Colour words to which option values reduce, in the order they are tried.
COLOURS = tuple(_COLOUR_WORDS.split())

_ALIKE = 85
_MEMO_SIZE = 1 << 14
_COLOUR_RANK = {colour: rank for rank, colour in enumerate(COLOURS)}
_LATIN_1 = dict.fromkeys(range(0x80, 0x100))
_NOT_WORD = re.compile(r"\W")


@dataclass(frozen=True, slots=True)
class Reward:
    """A scored purchase.

    Attributes:
        total: The reward in [0, 1].
        type_score: Factor for the kind of product (0, 0.1, 0.5 or 1).
        attributes_met: Goal attributes that the product has.
        attributes_asked: Goal attributes.
        options_met: Goal options that were selected.
        options_asked: Goal options.
        price_met: The price is within the bound.
        query_match: The product stems from the goal's search phrase.
        category_match: The two category paths share at least two parts.
        title_score: Share of the goal title's nouns that the product's title has.
    """

    total: float
    type_score: float
    attributes_met: int
    attributes_asked: int
    options_met: int
    options_asked: int
    price_met: bool
    query_match: bool
    category_match: bool
    title_score: float

    def parts(self) -> dict[str, Any]:
        """The parts under the names, and in the order, of the original environment."""
        whole = self.attributes_asked + self.options_asked + 1
        parts: dict[str, Any] = {
            "r_type": self.type_score,
            "r_att": self.attributes_met / self.attributes_asked,
            "w_att": self.attributes_asked / whole,
            "query_match": self.query_match,
            "category_match": self.category_match,
            "title_score": self.title_score,
        }
        if self.options_asked:
            parts["r_option"] = self.options_met / self.options_asked
            parts["w_option"] = self.options_asked / whole
        parts["r_price"] = self.price_met
        parts["w_price"] = 1 / whole
        return parts


class Scorer:
    """Scores purchases; remembers what it has worked out about products and goals."""

    def __init__(self) -> None:
        # Bound to the instance, so that the memo goes when the shop it belongs to goes.
        self._attributes_met = lru_cache(_MEMO_SIZE)(attributes_met)

    def score(self, product: Product, goal: Goal, selected: Iterable[str]) -> Reward:
        """Score buying ``product`` with the ``selected`` option values.

        Equation 1 of the paper: ``r_type * (attributes met + options met + price met) /
        (attributes asked + options asked + 1)``.
        """
        type_score, query_match, category_match, title_score = score_type(product, goal.target)
        attributes = self._attributes_met(product, goal.attributes)
        options = options_met(tuple(selected), goal.options)
        price_met = product.price <= goal.price_upper
        asked = len(goal.attributes) + len(goal.options) + 1
        total = (attributes + options + price_met) / asked * type_score
        return Reward(
            total,
            type_score,
            attributes,
            len(goal.attributes),
            options,
            len(goal.options),
            price_met,
            query_match,
            category_match,
            title_score,
        )


def score_type(product: Product, target: Target) -> tuple[float, bool, bool, float]:
    """The type factor, whether query and category match, and the title score."""
    query_match = product.query == target.query
    categories = {part.strip() for part in product.product_category.split("›")}
    category_match = len(categories & target.categories) >= 2
    if target.nouns:
        title_score = len(set(product.nouns) & set(target.nouns)) / len(target.nouns)
    else:
        title_score = 0.2
    factor = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    # A title with (almost) nothing in common overrides the other two signs.
    if title_score < 0.1:
        factor = 0.1
    if title_score == 0.0:
        factor = 0.0
    return factor, query_match, category_match, title_score


def attributes_met(product: Product, wanted: Sequence[str]) -> int:
    """How many wanted attributes the product has, in its list or anywhere in its text."""
    texts = (product.title.lower(), " ".join(product.bullets).lower(), product.description.lower())
    # The texts come first, being quicker to look through; the order does not matter.
    return sum(
        any(attribute in text for text in texts)
        or any(similar(has, attribute) for has in product.attributes)
        for attribute in wanted
    )


def options_met(selected: Sequence[str], wanted: Sequence[GoalOption]) -> int:
    """How many wanted options are among the selected values; group names do not count."""
    reduced = [_reduced(value) for value in selected]
    return sum(
        any(similar(value, asked) for value in reduced) for asked in map(_reduced_goal, wanted)
    )


@lru_cache(_MEMO_SIZE)
def _reduced(value: str) -> str:
    """The first colour word within ``value``, else ``value``."""
    return next((colour for colour in COLOURS if colour in value), value)


@lru_cache(_MEMO_SIZE)
def _reduced_goal(option: GoalOption) -> str:
    """A goal option as the fuzzy comparison sees it.

    The original compares a synthetic goal's (group, value) pair as it prints; a colour word
    counts only where it is the whole group name or value.
    """
    if isinstance(option, str):
        return _reduced(option)
    ranks = [_COLOUR_RANK[part] for part in option if part in _COLOUR_RANK]
    return COLOURS[min(ranks)] if ranks else str(option)


@lru_cache(_MEMO_SIZE)
def _tokens(text: str) -> tuple[frozenset[str], str]:
    """The distinct lower-cased words, and the same sorted and joined by blanks.

    Characters of the Latin-1 supplement vanish, other signs part words.
    """
    tokens = frozenset(_NOT_WORD.sub(" ", text.translate(_LATIN_1)).lower().split())
    return tokens, " ".join(sorted(tokens))


def _parted(left: frozenset[str], right: frozenset[str]) -> tuple[str, str, str]:
    """The common words, and these followed by what is left of either side."""
    common = " ".join(sorted(left & right))
    rest_left, rest_right = (" ".join(sorted(rest)) for rest in (left - right, right - left))
    return common, f"{common} {rest_left}".strip(), f"{common} {rest_right}".strip()


def _ratio(a: str, b: str) -> int:
    if a == b:
        return 100
    if not a or not b:
        return 0
    return round(100 * SequenceMatcher(None, a, b).ratio())


def token_set_ratio(a: str, b: str) -> int:
    """Likeness of two texts in percent, whatever the order and repetition of words.

    The token set ratio of the ``thefuzz`` library on the standard library's matcher, in the
    version that the published rewards were computed with.
    """
    left, right = _tokens(a)[0], _tokens(b)[0]
    if not left or not right:
        return 0
    common, with_left, with_right = _parted(left, right)
    return max(_ratio(common, with_left), _ratio(common, with_right), _ratio(with_left, with_right))


@lru_cache(_MEMO_SIZE)
def similar(a: str, b: str) -> bool:
    """Whether ``token_set_ratio(a, b) > 85``, found without the full comparison where possible."""
    (left, all_left), (right, all_right) = _tokens(a), _tokens(b)
    if not left or not right:
        return False
    if left.isdisjoint(right):
        return _above(all_left, all_right)
    if left <= right or right <= left:
        return True
    common, with_left, with_right = _parted(left, right)
    return _above(common, with_left) or _above(common, with_right) or _above(with_left, with_right)


def _above(a: str, b: str) -> bool:
    """Whether ``_ratio(a, b) > 85``; two upper bounds are tried first."""
    if not a or not b:
        return False
    both = len(a) + len(b)
    if round(200 * min(len(a), len(b)) / both) <= _ALIKE:
        return False
    shared = sum(min(a.count(c), b.count(c)) for c in set(a))
    if round(200 * shared / both) <= _ALIKE:
        return False
    return round(100 * SequenceMatcher(None, a, b).ratio()) > _ALIKE
