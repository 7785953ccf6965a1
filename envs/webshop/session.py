"""One shopping episode: which page is open, what an action does, and what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from envs.webshop.goals import Goal
from envs.webshop.pages import (
    BACK,
    BUY,
    NEXT,
    PREVIOUS,
    SUB_PAGES,
    Mode,
    ProductView,
    button,
    join_text,
    rich_line,
)
from envs.webshop.reward import Reward

if TYPE_CHECKING:
    from envs.webshop.shop import Shop

__all__ = ["PageKind", "Purchase", "Session"]

PageKind = Literal["index", "results", "item", "sub", "done"]

#: Address that pages pretend to have, as in the original's ``url`` observations.
BASE_URL = "http://127.0.0.1:3000"

_ACTION = re.compile(r"\s*(search|click)\s*\[(.*)\]\s*", re.DOTALL | re.IGNORECASE)
_SUB_PAGE_OF = {name.lower(): name for name in SUB_PAGES}
_SEARCH_ACTION = "search[<query>]"
_BACK_BUTTON, _PREVIOUS_BUTTON, _NEXT_BUTTON = map(button, (BACK, PREVIOUS, NEXT))
_BACK, _PREVIOUS, _NEXT, _BUY = (name.lower() for name in (BACK, PREVIOUS, NEXT, BUY))
_BACK_CLICK, _PREVIOUS_CLICK, _NEXT_CLICK = (f"click[{name}]" for name in (_BACK, _PREVIOUS, _NEXT))


def _parse(action: str) -> tuple[str, str]:
    """Verb and argument in lower case, without blanks around; both empty for any other text."""
    if action.startswith("click[") and action.endswith("]"):
        return "click", action[6:-1].strip().lower()
    match = _ACTION.fullmatch(action)
    return (match[1].lower(), match[2].strip().lower()) if match else ("", "")


@dataclass(frozen=True, slots=True)
class Purchase:
    """What was bought and what it is worth."""

    asin: str
    options: dict[str, str]
    reward: Reward


@dataclass(slots=True)
class Session:
    """The state of one episode under strict rules.

    Args:
        shop: The shop; shared and never changed by a session.
        goal: What is to be bought.
        draw: Seeds the random selection of ``search[<r>]``.

    Attributes:
        page: Kind of the open page.
        keywords: Words of the last search.
        results: Products that search found.
        page_number: Number of the open result page, from 1.
        view: The product whose page is open, or None.
        options: The value selected in each group.
        visited: Ids of products opened since the last start from the search page.
        sub_page: Name of the open sub page.
        purchase: The last purchase, or None.
    """

    shop: Shop
    goal: Goal
    draw: Callable[[], int]
    page: PageKind = "index"
    keywords: tuple[str, ...] = ()
    results: tuple[ProductView, ...] = ()
    page_number: int = 1
    view: ProductView | None = None
    options: dict[str, str] = field(default_factory=dict)
    visited: set[str] = field(default_factory=set)
    sub_page: str = ""
    purchase: Purchase | None = None

    # Acting ----------------------------------------------------------------------------------

    def act(self, action: str) -> str | None:
        """Apply an action; an inadmissible one changes nothing.

        Returns:
            None, or why the action was inadmissible.
        """
        verb, argument = _parse(action)
        if verb == "click":
            if self._click(argument):
                return None
            return f"nothing called {argument[:100]!r} can be clicked on this page"
        if verb == "search":
            refusal = self._refuse_search(argument)
            if refusal is None:
                self.search(tuple(argument.split()))
            return refusal
        return "the action is neither search[query] nor click[button]"

    def is_admissible(self, action: str) -> bool:
        """Whether :meth:`act` would accept ``action`` now."""
        verb, argument = _parse(action)
        if verb == "search":
            return self._refuse_search(argument) is None
        return verb == "click" and argument in self.clickables()

    def _refuse_search(self, query: str) -> str | None:
        if self.page != "index":
            return "there is no search box on this page"
        return None if query else "the query is empty"

    def search(self, keywords: tuple[str, ...], page_number: int = 1) -> None:
        """Open a result page."""
        self.results = self.shop.find(keywords, self.draw)
        self.keywords, self.page_number = keywords, page_number
        self.page, self.view, self.options = "results", None, {}

    def _click(self, name: str) -> bool:
        page = self.page
        if page == "results":
            for view in self.shown():
                if view.name == name:
                    self.visited.add(view.asin)
                    self.page, self.view = "item", view
                    return True
        elif page == "item":
            return self._click_item(name)
        if page in ("index", "done"):
            return False
        if name == _BACK:
            self._start_over()
        elif name == _PREVIOUS and page == "sub":
            self.page = "item"
        elif name == _PREVIOUS and self.page_number > 1:
            self.page_number -= 1
        elif name == _NEXT and page == "results" and self._has_next():
            self.page_number += 1
        else:
            return False
        return True

    def _click_item(self, name: str) -> bool:
        view = self.view
        assert view is not None
        label = view.label_of.get(name)
        if label is not None:
            self.options[label.group] = label.value
        elif name in _SUB_PAGE_OF:
            self.page, self.sub_page = "sub", _SUB_PAGE_OF[name]
        elif name == _BUY:
            self.buy()
        elif name == _PREVIOUS:
            self.page, self.view, self.options = "results", None, {}
        elif name == _BACK:
            self._start_over()
        else:
            return False
        return True

    def _start_over(self) -> None:
        self.page, self.view = "index", None
        self.keywords, self.results, self.page_number = (), (), 1
        self.options, self.visited = {}, set()

    def buy(self) -> None:
        """Buy the open product with the selected options."""
        assert self.view is not None
        reward = self.score()
        self.purchase = Purchase(self.view.asin, dict(self.options), reward)
        self.page = "done"

    def score(self) -> Reward:
        """What buying the open product now would be worth.

        Raises:
            RuntimeError: If no product is open.
        """
        if self.view is None:
            raise RuntimeError(f"no product is open on the {self.page} page")
        return self.shop.scorer.score(self.view.product, self.goal, self.options.values())

    @property
    def page_size(self) -> int:
        """Products on a result page."""
        return self.shop.page_size

    # What can be done ------------------------------------------------------------------------

    def shown(self) -> tuple[ProductView, ...]:
        """The products on the open result page."""
        size = self.shop.page_size
        end = self.page_number * size
        return self.results[end - size : end]

    def _has_next(self) -> bool:
        return self.page_number * self.shop.page_size < len(self.results)

    def clickables(self) -> tuple[str, ...]:
        """Names of all that can be clicked, in the original's order."""
        return tuple(a[6:-1] for a in self.actions() if a != _SEARCH_ACTION)

    def actions(self) -> tuple[str, ...]:
        """Every admissible action; a search stands as ``search[<query>]``."""
        if self.page == "results":
            head = [_BACK_CLICK]
            if self.page_number > 1:
                head.append(_PREVIOUS_CLICK)
            if self._has_next():
                head.append(_NEXT_CLICK)
            return (*head, *[view.click for view in self.shown()])
        if self.page == "item":
            assert self.view is not None
            return self.view.actions
        if self.page == "sub":
            return (_BACK_CLICK, _PREVIOUS_CLICK)
        return (_SEARCH_ACTION,) if self.page == "index" else ()

    # What is seen ----------------------------------------------------------------------------

    def observe(self, mode: Mode) -> str:
        """The open page as text."""
        if mode == "text_rich":
            return self._rich()
        return self._text() if mode == "text" else self.url()

    def url(self) -> str:
        """The address of the open page."""
        words, number, session = "+".join(self.keywords), self.page_number, self.goal.index
        if self.page == "index":
            return f"{BASE_URL}/{session}"
        if self.page == "results":
            return f"{BASE_URL}/search_results/{session}/{words}/{number}"
        assert self.view is not None
        where = f"{session}/{self.view.asin}"
        if self.page == "item":
            selected = json.dumps(self.options)
            return f"{BASE_URL}/item_page/{where}/{words}/{number}/{selected}"
        if self.page == "sub":
            return (
                f"{BASE_URL}/item_sub_page/{where}/{words}/{number}/{self.sub_page}/{self.options}"
            )
        return f"{BASE_URL}/done/{where}/{self.options}"

    def _rich(self) -> str:
        if self.page == "index":
            start = rich_line(self.goal.instruction)
            return f"WebShop\nInstruction: \n{start}{button('Search')}"
        if self.page == "done":
            return self._done_rich()
        head = f"Instruction:\n{rich_line(self.goal.instruction)}{_BACK_BUTTON}"
        if self.page == "results":
            return head + self._results_rich()
        assert self.view is not None
        if self.page == "item":
            return self._item_rich(head)
        return f"{head}{_PREVIOUS_BUTTON}" + "".join(
            map(rich_line, self.view.sub_texts(self.sub_page))
        )

    def _results_rich(self) -> str:
        parts = [f"Page {self.page_number} (Total results: {len(self.results)})\n"]
        if self.page_number > 1:
            parts.append(_PREVIOUS_BUTTON)
        if self._has_next():
            parts.append(_NEXT_BUTTON)
        visited = self.visited
        if visited:
            parts += [
                v.result_visited if v.asin in visited else v.result_plain for v in self.shown()
            ]
        else:
            parts += [v.result_plain for v in self.shown()]
        return "".join(parts)

    def _item_rich(self, head: str) -> str:
        assert self.view is not None
        if not self.options:
            return head + self.view.item_plain
        return self.view.item_rich(head, self.options)

    def _done_texts(self) -> list[str]:
        assert self.purchase is not None
        return [
            "Thank you for shopping with us!",
            "Purchased",
            self.purchase.asin,
            *(f"{group}: {value}" for group, value in self.purchase.options.items()),
            "Your score (min 0.0, max 1.0)",
            str(self.purchase.reward.total),
        ]

    def _done_rich(self) -> str:
        return "".join(map(rich_line, self._done_texts()))

    def _text(self) -> str:
        instruction = self.goal.instruction
        if self.page == "index":
            return join_text(("WebShop", "Instruction: ", instruction, "Search"))
        if self.page == "done":
            return join_text(self._done_texts())
        head = join_text(("Instruction:", instruction))
        if self.page == "results":
            texts: list[str] = [
                BACK,
                f"Page {self.page_number} (Total results: {len(self.results)})",
            ]
            if self.page_number > 1:
                texts.append(PREVIOUS)
            if self._has_next():
                texts.append(NEXT)
            return " [SEP] ".join([head, *texts, *(v.result_text for v in self.shown())])
        assert self.view is not None
        if self.page == "item":
            return f"{head} [SEP] {self.view.item_text}"
        return " [SEP] ".join(
            [head, join_text((BACK, PREVIOUS, *self.view.sub_texts(self.sub_page)))]
        )
