"""Task progress in WebShop, for step-level credit that is shared across tasks.

Two presets. ``paper`` follows the published "decision frontier" (BLPO): on a result page whether
there is a candidate, on a product page whether it is to be left, configured, bought or looked into;
the search page and sub pages are never shared. ``compact`` names every page by the query's quality,
the best product in sight, its price, what options are set and how much of the budget is left.

All is read from the instruction and the pages; the goal behind them stays hidden. An inadmissible
action changes nothing, so the budget is counted in accepted actions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from agentgym.info import Info
from agentgym.progress import (
    INADMISSIBLE,
    MALFORMED,
    canonical_text,
    content_words,
    context_key,
)
from envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS, SUB_PAGES
from envs.webshop.prompt import page_parts
from envs.webshop.rule import matching_options

__all__ = ["CompactProgress", "FrontierProgress", "Page", "Wish", "read_page", "read_wish"]

Quality = Literal["weak", "partial", "strong"]
Price = Literal["ok", "high", "mixed", "unknown", "no-limit"]

_BACK, _BUY, _NEXT, _PREVIOUS = (name.lower() for name in (BACK, BUY, NEXT, PREVIOUS))
_SUBS = tuple(name.lower() for name in (*SUB_PAGES, "Attributes"))
_BUTTONS = frozenset((_BACK, _BUY, _NEXT, _PREVIOUS, "search", *_SUBS))
_LIMIT = re.compile(r",? and price lower than ([\d.]+) dollars")
_OPTION = re.compile(r"\b(?:with|and) ([a-z][\w /-]*?): (.+?)(?=, and [a-z][\w /-]*?: |$)")
_AMOUNT = re.compile(r"\$\s*([\d,]+(?:\.\d+)?)")
_NUMBER = re.compile(r"page (\d+) \(total results: \d+\)")
_ACTION = re.compile(r"\s*(search|click)\s*\[(.*)\]\s*", re.DOTALL)
#: How people begin a wish; it says nothing about the product.
_ASKING = frozenset(["buy", "looking", "like", "would", "am", "i'm", "i'd", "help", "options"])


# Reading -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wish:
    """What an instruction asks for, as far as it can be read off.

    Attributes:
        words: What the product is to be.
        options: Option group to value.
        limit: Highest price, or None.
    """

    words: frozenset[str]
    options: dict[str, str]
    limit: float | None


def read_wish(instruction: str) -> Wish:
    """Take an instruction apart."""
    text = canonical_text(instruction)
    limit = _LIMIT.search(text)
    text = _LIMIT.sub("", text).rstrip(" .")
    options = {found[1].strip(): found[2].strip(" ,") for found in _OPTION.finditer(text)}
    words = content_words(_OPTION.sub("", text)) - _ASKING
    return Wish(words, options, float(limit[1]) if limit else None)


@dataclass(slots=True)
class Page:
    """A page.

    Attributes:
        kind: ``index``, ``results``, ``item``, ``sub``, ``done`` or ``unknown``.
        number: Number of the result page.
        products: Product id to title and price, as shown.
        title: Of the open product.
        price: Of the open product, as shown.
        groups: Option group to its labels, in small letters.
        has_next: There is a further result page.
    """

    kind: str = "unknown"
    number: int = 1
    products: dict[str, tuple[str, str]] = field(default_factory=dict)
    title: str = ""
    price: str = ""
    groups: dict[str, list[str]] = field(default_factory=dict)
    has_next: bool = False


def read_page(observation: str, info: Info) -> Page:
    """Read a page in the ``text`` or the ``text_rich`` form; others are ``unknown``."""
    kind = str(info.get("details", {}).get("page", ""))
    kind = "sub" if kind in _SUBS else kind
    if kind in ("index", "sub", "done"):
        return Page(kind)
    parts = [part.lower() for part in page_parts(observation, info.get("goal", ""))]
    offered = [
        action[len("click[") : -1].lower()
        for action in info.get("admissible_actions") or ()
        if action.startswith("click[")
    ]
    names = frozenset(offered) - _BUTTONS
    if kind == "results":
        return _results(parts, names, _NEXT in offered)
    return _item(parts, names) if kind == "item" else Page()


def _results(parts: list[str], names: frozenset[str], has_next: bool) -> Page:
    number = next((_NUMBER.fullmatch(part) for part in parts if _NUMBER.fullmatch(part)), None)
    if number is None:
        return Page()
    page = Page("results", int(number[1]), has_next=has_next)
    for at, part in enumerate(parts):
        if part in names and at + 2 < len(parts):
            page.products[part] = (parts[at + 1], parts[at + 2])
    return page if len(page.products) == len(names) else Page()


def _item(parts: list[str], names: frozenset[str]) -> Page:
    page, header = Page("item"), ""
    start = parts.index(_PREVIOUS) + 1 if _PREVIOUS in parts else len(parts)
    for part in parts[start:]:
        if part.startswith("price: "):
            page.title, page.price = header, part.removeprefix("price: ")
            return page
        if part in names and header:
            page.groups.setdefault(header, []).append(part)
        else:
            header = part
    return Page()


def price_kind(price: str, limit: float | None) -> Price:
    """How a price, or a range of prices, stands to the limit."""
    amounts = [float(found.replace(",", "")) for found in _AMOUNT.findall(price)]
    if limit is None:
        return "no-limit"
    if not amounts:
        return "unknown"
    if max(amounts) <= limit:
        return "ok"
    return "high" if min(amounts) > limit else "mixed"


def coverage(found: Iterable[str], wanted: frozenset[str]) -> str:
    """How much of what is wanted was found: ``none``, ``low`` (below 2/3), ``high`` or ``all``."""
    hits = len(wanted & frozenset(found))
    if hits == len(wanted):
        return "all"
    return "none" if not hits else "high" if 3 * hits >= 2 * len(wanted) else "low"


# Following ---------------------------------------------------------------------------------------


class _Progress:
    """What both presets share: the wish, the page, what was searched and selected.

    Args:
        env_id: The environment.
        max_steps: Step limit of an episode, or None.
    """

    def __init__(self, env_id: str, max_steps: int | None = None) -> None:
        self.env_id, self.max_steps = env_id, max_steps

    def reset(self, observation: str, info: Info) -> None:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        self.instruction = info.get("goal", "")
        self.wish = read_wish(self.instruction)
        self.page = self.item = read_page(observation, info)
        self.queries: list[str] = []
        self.covered = self.best_covered = self.steps = 0
        self._leave_product()

    def _leave_product(self) -> None:
        self.selected: dict[str, str] = {}
        self.looked = 0

    def update(
        self, action: str, admissible: bool, observation: str, reward: float, info: Info
    ) -> None:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        if not admissible:
            return
        self.steps += 1
        verb, name = _parse(action)
        if verb == "search":
            self.queries.append(name)
            self.covered = self._covers(name)
            self.best_covered = max(self.best_covered, self.covered)
            self._leave_product()
        elif name == _BACK or (name == _PREVIOUS and self.page.kind == "item"):
            self._leave_product()
        elif self.page.kind == "item":
            group = self._group_of(name)
            if group:
                self.selected[group] = name
            self.looked += name in _SUBS
        self.page = read_page(observation, info)
        if self.page.kind != "sub":
            self.item = self.page

    def context(self, observation: str) -> str:
        """The instruction and the observation."""
        return context_key("webshop", canonical_text(self.instruction), observation)

    def _covers(self, query: str) -> int:
        return len(self.wish.words & content_words(query))

    def _group_of(self, label: str) -> str:
        groups = self.item.groups.items()
        return next((group for group, labels in groups if label in labels), "")

    def _wanted(self) -> dict[str, str | None]:
        """Option group to the label asked for; None where the product does not offer it.

        Instructions in free words name no groups: what they ask for are the labels whose words
        stand in them.
        """
        groups = self.item.groups
        if self.wish.options:
            return {
                group: _same(value, groups.get(group, ()))
                for group, value in self.wish.options.items()
            }
        labels = [label for own in groups.values() for label in own]
        found = set(matching_options(self.instruction, labels))
        wanted: dict[str, str | None] = {}
        for group, own in groups.items():
            for label in own:
                if label in found:
                    wanted.setdefault(group, label)
        return wanted

    def _quality(self, title: str, price: str) -> Quality:
        covered, cost = coverage(content_words(title), self.wish.words), self._cost(price)
        if cost == "high" or covered == "none":
            return "weak"
        good = covered in ("high", "all") and cost in ("ok", "no-limit")
        return "strong" if good else "partial"

    def _cost(self, price: str) -> Price:
        return price_kind(price, self.wish.limit)

    def _in_sight(self) -> list[Quality]:
        return [self._quality(*product) for product in self.page.products.values()]


def _parse(action: str) -> tuple[str, str]:
    found = _ACTION.fullmatch(action.lower())
    return (found[1], " ".join(found[2].split())) if found else ("", "")


def _same(value: str, labels: Iterable[str]) -> str | None:
    """The label of a value, which may carry the name of its group in front."""
    for label in labels:
        if label == value or label.endswith(f": {value}"):
            return label
    return None


class FrontierProgress(_Progress):
    """The published decision frontier; see the module."""

    def state(self) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        return f"ws {self.page.kind} {self._frontier()}"

    def _frontier(self) -> str:
        if self.page.kind == "results":
            if "strong" in self._in_sight():
                return "candidate"
            words = self.wish.words
            query = self.queries[-1] if self.queries else ""
            if coverage(content_words(query), words) in ("none", "low"):
                return "query_weak"
            return "go_on" if self.page.has_next else "-"
        if self.page.kind != "item":
            return "-"
        covered = coverage(content_words(self.page.title), self.wish.words)
        cost, wanted = self._cost(self.page.price), self._wanted()
        if cost == "high" or covered == "none" or None in wanted.values():
            return "reject"
        if any(self.selected.get(group) != label for group, label in wanted.items()):
            return "options_open"
        if covered in ("high", "all") and cost in ("ok", "no-limit"):
            return "ready"
        return "needs_info" if not self.looked else "-"

    def abstract(self, action: str, format_ok: bool, admissible: bool) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        if not format_ok:
            return MALFORMED
        if not admissible:
            return INADMISSIBLE
        verb, name = _parse(action)
        kind = self.page.kind
        if verb == "search":
            better = self._covers(name) > self.best_covered and name not in self.queries
            return "query:better" if better else "query:other"
        if kind == "results":
            if name in self.page.products:
                quality = self._quality(*self.page.products[name])
                if quality == "partial" and "strong" in self._in_sight():
                    return "open:weak"
                return f"open:{quality}"
            return {_NEXT: "next", _BACK: "query"}.get(name, "other")
        if kind == "item":
            if name == _BUY:
                return "buy"
            if name in _SUBS:
                return "inspect"
            if name in (_BACK, _PREVIOUS):
                return "back"
            group = self._group_of(name)
            if not group:
                return "other"
            missing = self._wanted().get(group) == name and self.selected.get(group) != name
            return "option:required" if missing else "option:other"
        return "other"

    def shareable(self, state: str, abstract_action: str) -> bool:
        """Frontier states, and what the frontier is about."""
        return not state.endswith(" -") and abstract_action in _FRONTIER


_FRONTIER = frozenset([
    "open:strong", "open:weak", "next", "query",
    "buy", "inspect", "back", "option:required", "option:other",
])  # fmt: skip


class CompactProgress(_Progress):
    """Every page in nine parts; see the module."""

    def state(self) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        page = self.page
        query = coverage(content_words(self.queries[-1]), self.wish.words) if self.queries else ""
        grade = {"": "none", "all": "high"}.get(query, query)
        item = options = price = "n/a"
        if page.kind == "results":
            sight = self._in_sight()
            item = next((grade for grade in ("strong", "partial", "weak") if grade in sight), "n/a")
        elif page.kind in ("item", "sub") and self.item.kind == "item":
            item = self._quality(self.item.title, self.item.price)
            options = self._options()
            cost = self._cost(self.item.price)
            price = {"no-limit": "ok", "mixed": "unk", "unknown": "unk"}.get(cost, cost)
        late = bool(self.max_steps) and 3 * self.steps > 2 * (self.max_steps or 0)
        number = "3+" if page.number > 2 else str(page.number)
        return (
            f"ws page={page.kind} query={grade} pg={number} item={item} options={options} "
            f"price={price} looked={int(self.looked > 0)} budget={'late' if late else 'early'}"
        )

    def _options(self) -> str:
        wanted = self._wanted()
        if not wanted:
            return "none_req"
        if any(self.selected.get(group, label) != label for group, label in wanted.items()):
            return "wrong"
        right = sum(group in self.selected for group in wanted)
        return "all" if right == len(wanted) else "part" if right else "0"

    def abstract(self, action: str, format_ok: bool, admissible: bool) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        if not format_ok:
            return MALFORMED
        if not admissible:
            return INADMISSIBLE
        verb, name = _parse(action)
        if verb == "search":
            hits = self._covers(name)
            word = "same" if hits == self.covered else "better" if hits > self.covered else "worse"
            return f"search:{word}"
        if self.page.kind == "results" and name in self.page.products:
            return f"open:{self._quality(*self.page.products[name])}"
        for button, kind in ((_BACK, "back"), (_PREVIOUS, "prev"), (_NEXT, "next"), (_BUY, "buy")):
            if name == button:
                return kind
        if name in _SUBS:
            return f"sub:{name}"
        group = self._group_of(name)
        if not group:
            return "other"
        if self.selected.get(group) == name:
            return "option:repeat"
        return "option:required" if self._wanted().get(group) == name else "option:other"

    def shareable(self, state: str, abstract_action: str) -> bool:
        """Whatever was well-formed and accepted, on pages that could be read."""
        known = "page=unknown" not in state
        return known and abstract_action not in (MALFORMED, INADMISSIBLE)
