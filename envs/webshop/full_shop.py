"""The full catalogue: five departments, long titles and pages, requests in many people's words.

Families are built as in the small catalogue, with more that can go wrong: prices may be ranges or
missing, a product may have no options or three groups of them, titles and values hold quotes and
letters beyond ASCII, and in some families the attribute that tells the groups apart stands on the
features page alone, so that neither search nor the result list shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from envs.webshop.catalogue import DEFAULT_PRICE
from envs.webshop.families import GROUP_SIZE, Dice, Draft, Request, highest_bound, normal_value
from envs.webshop.lexicon import (
    DEPARTMENTS,
    DETAILS,
    ENDINGS,
    OPENERS,
    SENTENCES,
    Department,
    ProductType,
    phrases,
)

__all__ = ["full_family", "paraphrase"]

_SYLLABLES = phrases("""
    al, bo, cor, den, el, fin, gra, hal, is, jor, ka, lum, mer, nor, os, pel, quin, ru, sol, tav,
    ul, ves, wil, yor, zen""")
_BRAND_ENDS = ("a", "ia", "ex", "o", "ley", "ström", "é", "co", "mark", "well")

# Words before and after an option value in a request.
_OPTION_WORDS = {
    "color": ((" in ", ""), (", ", " please"), (", color ", "")),
    "number of items": ((", ", " of them"), (", ", " in total"), (", number of items ", "")),
}
_CLOTHES_WORDS = ((", size ", ""), (" in a ", ""), (", and i wear ", ""))
_SIZE_WORDS = ((", size ", ""), (", ", " size"), (", the size is ", ""))

_HIDDEN_SHARE = 0.3
_REQUESTS = 7
# Shares of families with 0, 1, 2 and 3 option groups.
_GROUP_SHARES = (0.12, 0.47, 0.86, 1.0)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the nine members of a family have in common."""

    department: Department
    kind: ProductType
    modifiers: tuple[str, ...]
    audience: str
    hidden: bool
    key_group: str | None
    sentences: tuple[str, ...]


def full_family(family: int, seed: int) -> list[Draft]:
    """The nine products of one family: decoy, decoy, target, three times.

    Args:
        family: Number of the family.
        seed: Seed of the catalogue.
    """
    rng = Dice(f"full family {seed} {family}")
    department = rng.pick(DEPARTMENTS)
    kind = rng.pick(department.types)
    share = rng.random()
    n_groups = min(
        next(i for i, edge in enumerate(_GROUP_SHARES) if share < edge), len(kind.groups)
    )
    groups = kind.groups[:n_groups]
    plan = _Plan(
        department,
        kind,
        rng.draw(department.modifiers, 2),
        rng.pick(department.audiences),
        hidden=rng.random() < _HIDDEN_SHARE,
        key_group=groups[0].name if groups else None,
        sentences=_sentences(kind.head.lower(), rng.pick(department.types).head.lower()),
    )
    a, b, c, d, e = rng.draw(department.attributes + department.purposes, 5)
    options: dict[str, tuple[str, ...]] = {}
    variant: dict[str, tuple[str, ...]] = {}
    for place, group in enumerate(groups):
        most = 5 if n_groups < 3 else 3
        size = min(rng.between(min(3, most), most), len(group.left), len(group.right) or most)
        left, right = group.left, group.right
        if place == 0 and rng.random() < 0.5:
            left, right = right, left
        options[group.name] = rng.draw(left, size)
        variant[group.name] = rng.draw(right, size) if place == 0 else options[group.name]
    third = ((a, b, c), (b, c), variant) if groups else ((a, e, c), (e, c), options)
    members: list[Draft] = []
    for attributes, asked, values in (
        ((a, b, c), (a, b), options),
        ((a, d, c), (a, d), options),
        third,
    ):
        members += _group(rng, plan, attributes, asked, values)
    return members


def paraphrase(attribute: str, rng: Dice) -> str:
    """An attribute in a shopper's words."""
    first, _, rest = attribute.partition(" ")
    draw = rng.random()
    if first == "easy" and draw < 0.8:
        return f"easy to {rest}"
    if rest == "free" and draw < 0.6:
        return f"free of {first}" if draw < 0.3 else f"{first}-free"
    if rest in ("resistant", "proof") and draw < 0.5:
        return f"{first}-{rest}"
    if first in ("low", "high", "non") and draw < 0.4:
        return f"{first}-{rest}"
    return attribute


def _group(
    rng: Dice,
    plan: _Plan,
    attributes: tuple[str, ...],
    asked: tuple[str, str],
    options: dict[str, tuple[str, ...]],
) -> list[Draft]:
    pricing, most = _target_price(rng, plan.kind)
    prices = [*(_decoy_price(rng, highest_bound(most)) for _ in range(GROUP_SIZE - 1)), pricing]
    # A hidden key attribute is the one asked for that the title leaves out.
    key = asked[0] if plan.key_group is None and asked[0] != attributes[0] else asked[1]
    shown = tuple(x for x in asked if not (plan.hidden and x == key))
    tail = _title_tail(plan, shown)
    members = [_draft(rng, plan, tail, price, attributes, shown, options) for price in prices]
    target = members[-1]
    target.asked = asked
    target.instruction = _instruction(plan, asked)
    target.requests = _requests(rng, plan, attributes, asked, options)
    return members


@lru_cache(maxsize=256)
def _sentences(head: str, other: str) -> tuple[str, ...]:
    """The filler sentences for one kind of product; the brand stays open."""
    return tuple(text.format(head=head, other=other, brand="{brand}") for text in SENTENCES)


def _title_tail(plan: _Plan, shown: Sequence[str]) -> str:
    """A title without its brand, which is all that the titles of a group differ in."""
    purposes = plan.department.purposes
    adjectives = [x.title() for x in shown if x not in purposes]
    reasons = [x.title() for x in shown if x in purposes]
    tail = ", ".join([f"{plan.modifiers[0]} {plan.kind.head}", *adjectives])
    if reasons:
        tail += f" for {' and '.join(reasons)}"
    return f"{tail}, {plan.modifiers[1]} Style {plan.audience}"


def _draft(
    rng: Dice,
    plan: _Plan,
    tail: str,
    pricing: str,
    attributes: tuple[str, ...],
    shown: tuple[str, ...],
    options: dict[str, tuple[str, ...]],
) -> Draft:
    department, kind = plan.department, plan.kind
    brand = _brand(rng)
    filler = [
        text.replace("{brand}", brand) if "{" in text else text
        for text in rng.walk(plan.sentences, 4 + rng.between(0, 4))
    ]
    leads = rng.walk(DETAILS, 4)
    bullets = [f"{lead}: {text}" for lead, text in zip(leads, filler[:4], strict=True)]
    noun = kind.head.lower()
    for attribute in attributes:
        if attribute not in shown:
            bullets.insert(
                rng.between(1, len(bullets)), _statement(rng, department, attribute, noun)
            )
    return Draft(
        name=f"{brand} {tail}",
        description="".join(filler[4:]),
        bullets=bullets,
        category=department.category,
        query=kind.query,
        product_category=f"{department.root} › {kind.path}",
        pricing=pricing,
        brand=brand,
        options=options,
        attributes=attributes,
        nouns=[brand.lower(), *noun.split(), "style"],
    )


def _statement(rng: Dice, department: Department, attribute: str, noun: str) -> str:
    """A bullet that names one attribute."""
    if attribute in department.purposes:
        return rng.pick(
            (f"Made with {attribute} in mind. ", f"The {noun} to think of for {attribute}. ")
        )
    return rng.pick(
        (f"This {noun} is {attribute}, as promised. ", f"Facts first: {attribute}, tested by us. ")
    )


def _target_price(rng: Dice, kind: ProductType) -> tuple[str, float]:
    """A raw price, and the most that the product can cost."""
    draw = rng.random()
    if draw < 0.05:
        return "", DEFAULT_PRICE
    price = _odd(rng, kind.low + (kind.high - kind.low) * rng.random() ** 1.5)
    if draw < 0.15:
        upper = _odd(rng, price * (1.1 + 0.5 * rng.random()) + 1)
        return f"${price:.2f} - ${upper:.2f}", upper
    return f"${price:.2f}", price


def _decoy_price(rng: Dice, bound: int) -> str:
    """A raw price that is above ``bound`` however a range is drawn."""
    draw = rng.random()
    if draw < 0.05 and bound < DEFAULT_PRICE:
        return ""
    price = _odd(rng, bound + 1 + 24 * rng.random())
    if draw < 0.15:
        return f"${price:.2f} - ${_odd(rng, price * 1.2 + 1):.2f}"
    return f"${price:.2f}"


def _odd(rng: Dice, price: float) -> float:
    """A price with a shop's cents, rounded up."""
    return int(price) + rng.pick((0.49, 0.89, 0.95, 0.99, 0.99))


def _brand(rng: Dice) -> str:
    name = rng.pick(_SYLLABLES) + rng.pick(_SYLLABLES) + rng.pick(_BRAND_ENDS)
    return name.capitalize() if rng.random() < 0.8 else name.upper()


def _instruction(plan: _Plan, asked: Sequence[str]) -> str:
    """The start of synthetic goals, worded as the original words its own."""
    adjectives = [x for x in asked if x not in plan.department.purposes]
    purposes = [x for x in asked if x in plan.department.purposes]
    text = f"Find me {', '.join(adjectives)}{' ' if adjectives else ''}{plan.kind.query}"
    return text + (f" for {', '.join(purposes)}" if purposes else "")


def _requests(
    rng: Dice,
    plan: _Plan,
    attributes: tuple[str, ...],
    asked: tuple[str, str],
    options: dict[str, tuple[str, ...]],
) -> list[Request]:
    """Requests in different words; each asks for what the rest of the family lacks."""
    purposes = plan.department.purposes
    clothes = plan.department.category == "fashion"
    groups = []
    for name, values in options.items():
        group = name.lower()
        words = _OPTION_WORDS.get(group) or ((f", {group} ", ""), (f" with {group} ", ""))
        if group == "size":
            words = _CLOTHES_WORDS if clothes else _SIZE_WORDS
        pairs = [(group, normal_value(value)) for value in values]
        groups.append((pairs, words, 1.0 if name == plan.key_group else 0.7))
    article = plan.kind.article
    head = plan.kind.head.lower()
    requests = []
    for _ in range(_REQUESTS):
        wanted = asked if rng.random() < 0.75 else attributes
        if rng.random() < 0.5:
            wanted = wanted[::-1]
        adjectives = [x for x in wanted if x not in purposes]
        noun = f"{adjectives.pop(0)} {head}" if adjectives and rng.random() < 0.5 else head
        start = "an" if article == "a" and noun[0] in "aeiou" else article
        text = f"{rng.pick(OPENERS)} {start} {noun}"
        if adjectives:
            claims = " and ".join([paraphrase(x, rng) for x in adjectives])
            text += rng.pick((" that is ", ", it should be ", " which is ")) + claims
        reasons = [x for x in wanted if x in purposes]
        if reasons:
            text += rng.pick((" for ", " good for ", " meant for ")) + " and ".join(reasons)
        chosen = []
        for pairs, forms, chance in groups:
            if rng.random() < chance:
                pair = rng.pick(pairs)
                before, behind = rng.pick(forms)
                text += before + pair[1] + behind
                chosen.append(pair)
        requests.append(Request(text + rng.pick(ENDINGS), wanted, tuple(chosen)))
    return requests
