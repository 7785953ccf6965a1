"""An episode by the original's own rules, faults included.

What differs from :class:`~envs.webshop.session.Session`: search works on every page and after a
purchase; result pages go on past the end; the kind of a page is guessed from its address, so that
keywords such as ``search_results`` lead astray; of equal option values the last one counts, and
one called like a button presses the button; whether an option looks selected is a text search in
the address, which quotes and characters beyond ASCII defeat; text after the closing bracket is
ignored, and brackets within an argument break the action.
"""

from __future__ import annotations

import json
import re

from envs.webshop.pages import (
    BACK,
    BUY,
    NEXT,
    PREVIOUS,
    SUB_PAGES,
    ProductView,
    button,
    rich_line,
    text_node,
)
from envs.webshop.session import Session

__all__ = ["UpstreamSession"]

_BACK, _PREVIOUS, _NEXT, _BUY = (name.lower() for name in (BACK, PREVIOUS, NEXT, BUY))
_ACTION = re.compile(r"(.+)\[(.+)\]")
_SUB_PAGE_OF = {name.lower(): name for name in (*SUB_PAGES, "Attributes")}
_KINDS = ("search_results", "item_page", "item_sub_page", "done")
_UNSET = ("attrs", "category", "query", "product category")
_HTML_SAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "'": "\\u0027"})


class UpstreamSession(Session):
    """The state of one episode under the original's rules."""

    __slots__ = ()

    def act(self, action: str) -> str | None:
        """Apply an action; anything that is no search and no click does nothing.

        Raises:
            TypeError: For ``search[<a> ...]``, as in the original.
            IndexError: For ``search[<c>]`` without a category, as in the original.
        """
        verb, argument = _parse(action)
        if verb == "search" and argument:
            self.search(tuple(argument.split(" ")))
        elif verb == "click" and argument != "search" and argument in self.clickables():
            self._press(argument)
        else:
            return "the action is neither a search nor a click on something of this page"
        return None

    def is_admissible(self, action: str) -> bool:
        """Whether :meth:`act` would do anything; the original searches on every page."""
        verb, argument = _parse(action)
        if verb == "search":
            return bool(argument)
        return verb == "click" and argument != "search" and argument in self.clickables()

    def has_search_bar(self) -> bool:
        """Whether the open page shows a search box."""
        return self.page == "index"

    def clickables(self) -> tuple[str, ...]:
        """What the original lists as clickable, the search button included."""
        if self.page == "index":
            return ("search",)
        if self.page == "results":
            names = [_BACK, *([_PREVIOUS] if self.page_number > 1 else []), _NEXT]
            return tuple(dict.fromkeys([*names, *(view.name for view in self.shown())]))
        if self.page == "item":
            assert self.view is not None
            return self.view.clickables
        return (_BACK, _PREVIOUS) if self.page == "sub" else ()

    def actions(self) -> tuple[str, ...]:
        """The actions that the original offers; it would accept a search anywhere."""
        clicks = tuple(f"click[{name}]" for name in self.clickables() if name not in ("search", ""))
        return ("search[<query>]", *clicks) if self.has_search_bar() else clicks

    def _kind(self) -> str:
        """The kind of page that the original reads out of the address."""
        url = self.url()
        return next((kind for kind in _KINDS if kind in url), "")

    def _press(self, name: str) -> None:
        # Names come before what was clicked: a value called "buy now" buys.
        if name == _BUY:
            self.buy()
        elif name == _BACK:
            self._start_over()
        elif name == _NEXT and self._kind() == "search_results":
            self.search(self.keywords, self.page_number + 1)
        elif name == _PREVIOUS and (kind := self._kind()) == "search_results":
            self.search(self.keywords, self.page_number - 1)
        elif name == _PREVIOUS and kind == "item_page":
            self.search(self.keywords, self.page_number)
        elif name == _PREVIOUS:
            self.page = "item"
        elif name in _SUB_PAGE_OF:
            self.page, self.sub_page = "sub", _SUB_PAGE_OF[name]
        else:
            self._open_or_select(name)

    def _open_or_select(self, name: str) -> None:
        if self.page == "item":
            assert self.view is not None
            label = self.view.label_of[name]
            self.options[label.group] = label.value
            return
        self.view = next(view for view in self.shown() if view.name == name)
        self.visited.add(self.view.asin)
        self.page = "item"

    def shown(self) -> tuple[ProductView, ...]:
        """The products on the open result page; page 0 shows none."""
        return Session.shown(self) if self.page_number > 0 else ()

    def _has_next(self) -> bool:
        return True

    def _item_rich(self, head: str) -> str:
        assert self.view is not None
        url = self.url()
        if '"' not in url:
            return head + self.view.item_plain
        told: list[str] = []
        lines = [button(PREVIOUS)]
        for group, labels in self.view.labels:
            lines.append(rich_line(group))
            for label in labels:
                node = text_node(label.name)
                if node is not None and f'"{node}"' in url:
                    told.insert(0, f"You have clicked {node}.\n")
                    lines.append(label.clicked)
                else:
                    lines.append(label.plain)
        return "".join([*told, head, *lines, self.view.tail])

    def _done_texts(self) -> list[str]:
        assert self.purchase is not None
        options = json.dumps(self.purchase.options, sort_keys=True).translate(_HTML_SAFE)
        unset = (x for name in _UNSET for x in (name, "None"))
        return [
            "Thank you for shopping with us!",
            "Your code: ",
            "None",
            " (Paste it in your MTurk interface.)",
            "Purchased",
            "asin",
            self.purchase.asin,
            "options",
            options,
            *unset,
            "Target",
            "asin",
            "options",
            "attrs",
            "price upper",
            "instuction text",
            "category",
            "product category",
            "query",
            "Goal ",
            "None",
            "Reward",
            "Your score (min 0.0, max 1.0)",
            str(self.purchase.reward.total),
            "Reward Details ",
            "None",
        ]


def _parse(action: str) -> tuple[str, str]:
    """Verb and lower-cased argument, both empty if the action has another form."""
    match = _ACTION.match(action)
    return (match[1], match[2].lower()) if match else ("", "")
