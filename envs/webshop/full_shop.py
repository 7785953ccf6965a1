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

from agentgym.dice import Dice
from envs.webshop.catalogue import DEFAULT_PRICE
from envs.webshop.families import GROUP_SIZE, Draft, Request, highest_bound, normal_value
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

__all__ = ["full_family", "wordings"]

_SYLLABLES = phrases("""
    al, bo, cor, den, el, fin, gra, hal, is, jor, ka, lum, mer, nor, os, pel, quin, ru, sol, tav,
    ul, ves, wil, yor, zen""")
_BRAND_ENDS = ("a", "ia", "ex", "o", "ley", "ström", "é", "co", "mark", "well")

# Words before and after an option value in a request.
_OPTION_WORDS = {
    "color": ((" in ", ""), (", ", " please"), (", color ", "")),
    "number of items": ((", ", " of them"), (", ", " in total"), (", number of items ", "")),
}
# Bullets that name an attribute.
_CLAIM_BULLETS = (
    "This {noun} is {attribute}, as promised. ",
    "Facts first: {attribute}, tested by us. ",
)
_REASON_BULLETS = (
    "Made with {attribute} in mind. ",
    "The {noun} to think of for {attribute}. ",
)
_CLAIMS = (" that is ", ", it should be ", " which is ")
_REASONS = (" for ", " good for ", " meant for ")
_CLOTHES_WORDS = ((", size ", ""), (" in a ", ""), (", and i wear ", ""))
_SIZE_WORDS = ((", size ", ""), (", ", " size"), (", the size is ", ""))

# Stands for the brand in text that several products share.
_BRAND = "{brand}"

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


@lru_cache(maxsize=256)
def wordings(attribute: str) -> tuple[str, ...]:
    """How shoppers word an attribute; frequent wordings stand more than once."""
    first, _, rest = attribute.partition(" ")
    if first == "easy":
        return (f"easy to {rest}",) * 3 + (attribute,)
    if rest == "free":
        return (f"free of {first}", f"{first}-free", attribute)
    if rest in ("resistant", "proof") or first in ("low", "high", "non"):
        return (f"{first}-{rest}", attribute)
    return (attribute,)


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
    # A group's pages differ in brand and price alone: what rank each gets is a draw.
    tail = _title_tail(plan, shown)
    first, *description = rng.walk(plan.sentences, 1 + rng.between(0, 4))
    bullets = _bullets(rng, plan, first, [x for x in attributes if x not in shown])
    department, kind = plan.department, plan.kind
    path = f"{department.root} › {kind.path}"
    nouns = [*kind.head.lower().split(), "style"]
    members = []
    for price in prices:
        brand = _brand(rng)
        members.append(
            Draft(
                name=f"{brand} {tail}",
                description="".join(description).replace(_BRAND, brand),
                bullets=[text.replace(_BRAND, brand) for text in bullets],
                category=department.category,
                query=kind.query,
                product_category=path,
                pricing=price,
                brand=brand,
                options=options,
                attributes=attributes,
                nouns=[brand.lower(), *nouns],
            )
        )
    target = members[-1]
    target.asked = asked
    target.instruction = _instruction(plan, asked)
    target.requests = _requests(rng, plan, attributes, asked, options)
    return members


@lru_cache(maxsize=256)
def _sentences(head: str, other: str) -> tuple[str, ...]:
    """The filler sentences for one kind of product; the brand stays open."""
    return tuple(text.format(head=head, other=other, brand=_BRAND) for text in SENTENCES)


def _title_tail(plan: _Plan, shown: Sequence[str]) -> str:
    """A title without its brand, which is all that the titles of a group differ in."""
    purposes = plan.department.purposes
    adjectives = [x.title() for x in shown if x not in purposes]
    reasons = [x.title() for x in shown if x in purposes]
    tail = ", ".join([f"{plan.modifiers[0]} {plan.kind.head}", *adjectives])
    if reasons:
        tail += f" for {' and '.join(reasons)}"
    return f"{tail}, {plan.modifiers[1]} Style {plan.audience}"


def _bullets(rng: Dice, plan: _Plan, first: str, attributes: Sequence[str]) -> list[str]:
    """The features page: filler, and a line for each attribute that the title leaves out."""
    others = [text for text in rng.walk(plan.sentences, 4) if text != first][:3]
    leads = rng.walk(DETAILS, 4)
    bullets = [f"{lead}: {text}" for lead, text in zip(leads, [first, *others], strict=True)]
    for attribute in attributes:
        forms = _REASON_BULLETS if attribute in plan.department.purposes else _CLAIM_BULLETS
        text = rng.pick(forms).format(noun=plan.kind.head.lower(), attribute=attribute)
        bullets.insert(rng.between(1, len(bullets)), text)
    return bullets


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
    article, head = plan.kind.article, plan.kind.head.lower()
    # This is the busiest loop of the generator: picks are written out.
    random = rng.random
    requests = []
    for _ in range(_REQUESTS):
        wanted = asked if random() < 0.75 else attributes
        if random() < 0.5:
            wanted = wanted[::-1]
        adjectives = [x for x in wanted if x not in purposes]
        noun = f"{adjectives.pop(0)} {head}" if adjectives and random() < 0.5 else head
        start = "an" if article == "a" and noun[0] in "aeiou" else article
        text = f"{OPENERS[int(random() * len(OPENERS))]} {start} {noun}"
        if adjectives:
            claims = []
            for adjective in adjectives:
                forms = wordings(adjective)
                claims.append(forms[int(random() * len(forms))])
            text += _CLAIMS[int(random() * len(_CLAIMS))] + " and ".join(claims)
        if len(wanted) > len(adjectives) + (noun is not head):
            reasons = [x for x in wanted if x in purposes]
            text += _REASONS[int(random() * len(_REASONS))] + " and ".join(reasons)
        chosen = []
        for pairs, words, chance in groups:
            if random() < chance:
                pair = pairs[int(random() * len(pairs))]
                before, behind = words[int(random() * len(words))]
                text += before + pair[1] + behind
                chosen.append(pair)
        text += ENDINGS[int(random() * len(ENDINGS))]
        requests.append(Request(text, wanted, tuple(chosen)))
    return requests
