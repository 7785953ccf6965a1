"""The oracle: knows the hidden goal, finds the best purchase there is, and the way to it.

It plans from any state an episode can be in, so that it serves as the expert behind
``info["reference"]``, as the teacher of demonstrations (with mistakes where they are wanted), and
as the proof that goals can be met.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from envs.webshop.catalogue import Product
from envs.webshop.goals import Goal
from envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS, SUB_PAGES, ProductView
from envs.webshop.reward import options_met
from envs.webshop.session import Session
from envs.webshop.shop import Shop, ShopConfig

__all__ = [
    "Basket",
    "Verdict",
    "basket_of",
    "best_basket",
    "demonstrate",
    "goal_words",
    "judge",
    "plan",
    "practice_shops",
]

_BUY_CLICK = f"click[{BUY.lower()}]"
_BACK_CLICK = f"click[{BACK.lower()}]"
_PREVIOUS_CLICK = f"click[{PREVIOUS.lower()}]"
_NEXT_CLICK = f"click[{NEXT.lower()}]"


@dataclass(frozen=True, slots=True)
class Basket:
    """A product with the options to choose.

    Attributes:
        asin: Product id.
        choices: Option group to the label to click in it.
        reward: Reward of buying it so.
    """

    asin: str
    choices: tuple[tuple[str, str], ...]
    reward: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the oracle made of a goal.

    Attributes:
        task_id: The goal.
        reward: Reward it got.
        best: The best purchase that exists.
        turns: Number of actions it took.
    """

    task_id: str
    reward: float
    best: Basket
    turns: int


@dataclass(frozen=True, slots=True)
class _Route:
    """How a goal is met: the best reward, and a search that leads to it."""

    reward: float
    query: str
    position: int


# Goals that a label meets (a bit each), its group, its name and its value.
_Useful = tuple[int, str, str, str]


class _Random(Protocol):
    def random(self) -> float:
        """A number in [0, 1)."""
        ...


def basket_of(shop: Shop, view: ProductView, goal: Goal) -> Basket:
    """The options of one product that give the highest reward; as few clicks as will do."""
    # For each group the labels that meet goals, keyed by the set of goals they meet.
    useful: list[list[_Useful]] = []
    asked: tuple[str | tuple[str, str], ...] = (*goal.options,)
    for group, labels in view.labels:
        by_mask: dict[int, _Useful] = {}
        for label in labels:
            if view.label_of.get(label.name) is not label or not _clickable(label.name, shop):
                continue
            mask = 0
            for place, wanted in enumerate(asked):
                if options_met((label.value,), (wanted,)):
                    mask |= 1 << place
            exact = label.value in goal.option_values
            if mask and (mask not in by_mask or exact):
                by_mask[mask] = (mask, group, label.name, label.value)
        if by_mask:
            useful.append(list(by_mask.values()))
    best: tuple[_Useful, ...] = ()
    best_met = 0
    for chosen in _choices(useful):
        met = 0
        for mask, *_ in chosen:
            met |= mask
        count = met.bit_count()
        if count > best_met or (count == best_met and len(chosen) < len(best)):
            best, best_met = chosen, count
    reward = shop.scorer.score(view.product, goal, [value for *_, value in best]).total
    choices = {group: name for _, group, name, _ in best}
    return Basket(view.asin, tuple(_in_goal_order(choices, goal)), reward)


def best_basket(shop: Shop, goal: Goal) -> Basket:
    """The best purchase in the whole shop; the product the goal was made from wins ties."""
    best = basket_of(shop, shop.view(goal.asin), goal)
    if best.reward >= 1.0:
        return best
    for product in shop.catalogue:
        if _ceiling(shop, product, goal) > best.reward:
            other = basket_of(shop, shop.view(product.asin), goal)
            if other.reward > best.reward:
                best = other
    return best


def goal_words(goal: Goal) -> str:
    """A query of what the goal asks for: kind of product, attributes and option values."""
    return _words((*goal.attributes, goal.target.query, *goal.option_values))


def plan(session: Session) -> tuple[str, ...]:
    """The actions that lead from a session's state to the best purchase.

    Returns:
        Actions in order; none after a purchase.
    """
    if session.page == "done":
        return ()
    route = _route(session)
    start: tuple[str, ...] = ()
    if session.page == "index":
        return _from_search(session, route)
    if session.view is not None and session.page in ("item", "sub"):
        start = () if session.page == "item" else (_PREVIOUS_CLICK,)
        if _ceiling(session.shop, session.view.product, session.goal) >= route.reward:
            basket = basket_of(session.shop, session.view, session.goal)
            if basket.reward >= route.reward:
                return (*start, *_option_clicks(basket, session), _BUY_CLICK)
        start = (*start, _PREVIOUS_CLICK)
    onward = _from_results(session, route)
    anew = (_BACK_CLICK, *_from_search(session, route))
    if onward is not None and len(start) + len(onward) <= len(anew):
        return (*start, *onward)
    return anew


def demonstrate(env: Any, rng: _Random, noise: float = 0.0) -> Iterator[str]:
    """Act like a buyer who makes mistakes; yields one action for each state of ``env``.

    The caller applies each action to ``env`` before it asks for the next one. With ``noise=0``
    this is the oracle. What ``noise`` z does:

    * query: each attribute is left out with probability 0.45 z and each option value with
      probability 0.7 z; the kind of product always stays;
    * product: with probability 0.4 z, and where no product on the page meets the goal, one of
      those shown is opened whatever it is, each half as likely as the one above it;
    * options: each group that matters is skipped with probability 0.15 z, and with probability
      0.15 z gets a value at random.

    Mistakes are not undone, so that demonstrations stay short; the results show what they cost.

    Args:
        env: A WebShop environment after ``reset``, wrapped or not.
        rng: Source of randomness (NumPy's or the standard library's).
        noise: Between 0 and 1.

    Raises:
        ValueError: If ``noise`` is out of range.
    """
    if not 0.0 <= noise <= 1.0:
        raise ValueError(f"noise must be between 0 and 1, got {noise!r}")
    return _oracle(env) if noise == 0.0 else _sloppy(env.unwrapped.session, rng, noise)


def practice_shops(number: int = 20, **env_args: Any) -> list[dict[str, Any]]:
    """Arguments that make other shops of the same language, to demonstrate in.

    A small model that sees only the training goals of one catalogue learns their few hundred
    product ids by heart, and fails on products it has not met. In many shops nothing but copying
    the id from the page works; and the shop that is trained and tested in stays unseen.

    Args:
        number: How many shops.
        **env_args: Arguments of the shop that is trained in. Loaded data has no other shops: its
            own arguments come back alone.

    Raises:
        ValueError: If ``number`` is not positive.
    """
    if number < 1:
        raise ValueError(f"number must be >= 1, got {number!r}")
    config = ShopConfig(
        **{key: value for key, value in env_args.items() if key in ("data", "catalogue")}
    )
    if config.builtin is None:
        return [dict(env_args)]
    size, seed = config.builtin
    return [
        {**env_args, "catalogue": f"builtin:{size}:{seed + other}"}
        for other in range(1, number + 1)
    ]


def judge(shop: Shop, goals: Iterable[Goal]) -> Iterator[Verdict]:
    """Play goals with the oracle, without a step limit."""
    for goal in goals:
        session = Session(shop, goal, lambda: 0)
        actions = plan(session)
        for action in actions:
            session.act(action)
        reward = 0.0 if session.purchase is None else session.purchase.reward.total
        yield Verdict(goal.task_id, reward, best_basket(shop, goal), len(actions))


def _oracle(env: Any) -> Iterator[str]:
    while actions := plan(env.unwrapped.session):
        yield actions[0]


def _sloppy(session: Session, rng: _Random, noise: float) -> Iterator[str]:
    goal, shop = session.goal, session.shop
    wanted = [a for a in goal.attributes if rng.random() >= 0.45 * noise]
    values = [v for v in goal.option_values if rng.random() >= 0.7 * noise]
    yield f"search[{_words((*wanted, goal.target.query, *values))}]"
    shown = session.shown()
    if not shown:
        yield from _finish(session)
        return
    careful = rng.random() >= 0.4 * noise
    fit = [v for v in shown if basket_of(shop, v, goal).reward >= 1.0] if careful else []
    view = fit[0] if fit else shown[_skewed(rng, len(shown))]
    yield view.click
    chosen = dict(basket_of(shop, view, goal).choices)
    for group, labels in view.labels:
        if group not in chosen:
            continue
        draw = rng.random()
        if draw < 0.15 * noise:
            continue
        label = chosen[group]
        if draw < 0.3 * noise:
            label = labels[int(rng.random() * len(labels))].name
        yield f"click[{label}]"
    yield _BUY_CLICK


def _finish(session: Session) -> Iterator[str]:
    while actions := plan(session):
        yield actions[0]


def _skewed(rng: _Random, size: int) -> int:
    """A position from 0 to ``size - 1``, each half as likely as the one before it."""
    place = 0
    while place < size - 1 and rng.random() < 0.5:
        place += 1
    return place


# Routes ----------------------------------------------------------------------------------------

_routes: WeakKeyDictionary[Shop, dict[str, _Route]] = WeakKeyDictionary()


def _route(session: Session) -> _Route:
    """The best reward and a search that leads to it; worked out once for each goal of a shop."""
    shop, goal = session.shop, session.goal
    known = _routes.setdefault(shop, {})
    route = known.get(goal.task_id)
    if route is None:
        best = best_basket(shop, goal)
        product = shop.catalogue[best.asin]
        queries = (
            goal_words(goal),
            _words((product.title,)),
            _words((product.title, product.description)),
            _words((product.indexed_text(),)),
        )
        route = _Route(best.reward, queries[1], -1)
        for query in queries:
            found = shop.find(tuple(query.split()), lambda: 0)
            position = _first_fit(shop, goal, found, best.reward)
            if position >= 0 and (route.position < 0 or position < route.position):
                route = _Route(best.reward, query, position)
            if 0 <= route.position < session.page_size:
                break
        known[goal.task_id] = route
    return route


def _first_fit(shop: Shop, goal: Goal, views: Iterable[ProductView], reward: float) -> int:
    """Position of the first product that can be bought for ``reward``, or -1."""
    for place, view in enumerate(views):
        if (
            _ceiling(shop, view.product, goal) >= reward
            and basket_of(shop, view, goal).reward >= reward
        ):
            return place
    return -1


def _ceiling(shop: Shop, product: Product, goal: Goal) -> float:
    """A bound on the reward of a product, cheap to find: all options granted."""
    score = shop.scorer.score(product, goal, ())
    asked = len(goal.attributes) + len(goal.options) + 1
    return (score.attributes_met + len(goal.options) + score.price_met) / asked * score.type_score


def _from_search(session: Session, route: _Route) -> tuple[str, ...]:
    """From the search page to the purchase."""
    found = session.shop.find(tuple(route.query.split()), lambda: 0)
    pages, view = 0, None
    if route.position >= 0:
        pages, view = route.position // session.page_size, found[route.position]
    start = (f"search[{route.query}]", *(_NEXT_CLICK,) * pages)
    if view is None:
        return start
    return (*start, *_open_and_buy(session, view))


def _from_results(session: Session, route: _Route) -> tuple[str, ...] | None:
    """From the open result page to the purchase, or None if no result will do."""
    shop, goal, size = session.shop, session.goal, session.page_size
    shown = session.shown()
    place = _first_fit(shop, goal, shown, route.reward)
    if place >= 0:
        return _open_and_buy(session, shown[place])
    place = _first_fit(shop, goal, session.results, route.reward)
    if place < 0:
        return None
    pages = place // size + 1 - session.page_number
    turn = _NEXT_CLICK if pages > 0 else _PREVIOUS_CLICK
    return (*(turn,) * abs(pages), *_open_and_buy(session, session.results[place]))


def _open_and_buy(session: Session, view: ProductView) -> tuple[str, ...]:
    basket = basket_of(session.shop, view, session.goal)
    return (view.click, *(f"click[{name}]" for _, name in basket.choices), _BUY_CLICK)


def _option_clicks(basket: Basket, session: Session) -> tuple[str, ...]:
    """The clicks that are still needed on the open product."""
    view, selected = session.view, session.options
    assert view is not None
    return tuple(
        f"click[{name}]"
        for group, name in basket.choices
        if selected.get(group) != view.label_of[name].value
    )


# Options ---------------------------------------------------------------------------------------


def _clickable(name: str, shop: Shop) -> bool:
    """Whether a click can name this label under the shop's rules."""
    if shop.compat == "strict":
        return bool(name)
    # The original reads brackets and line breaks differently, and presses buttons first.
    return bool(name) and not any(c in name for c in "[]\n") and name not in _BUTTONS


_BUTTONS = frozenset(
    name.lower() for name in (BACK, BUY, NEXT, PREVIOUS, *SUB_PAGES, "Attributes", "Search")
)


def _choices(
    useful: list[list[_Useful]],
) -> Iterator[tuple[_Useful, ...]]:
    """Every way of taking at most one useful label from each group."""
    for picked in itertools.product(*([None, *labels] for labels in useful)):
        yield tuple(label for label in picked if label is not None)


def _in_goal_order(choices: dict[str, str], goal: Goal) -> list[tuple[str, str]]:
    """Choices in the order in which the instruction names their groups; others follow."""
    text = goal.instruction.lower()

    def place(item: tuple[str, str]) -> int:
        found = text.rfind(item[1])
        return found if found >= 0 else len(text)

    return sorted(choices.items(), key=place)


def _words(parts: Iterable[str]) -> str:
    """A query: lower-cased words without brackets, which would end the action."""
    text = " ".join(parts).lower().replace("[", " ").replace("]", " ")
    return " ".join(text.split())
