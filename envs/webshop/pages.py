"""What pages look like as text: the fragments that each product contributes, and whole pages.

Two forms exist, as in the original: ``text`` joins the visible strings with `` [SEP] ``, and
``text_rich`` puts one on a line and marks what can be clicked. Everything that depends on the
product alone is made once and kept, since pages are rendered at every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal, NamedTuple

from envs.webshop.catalogue import Compat, Product

__all__ = [
    "BACK",
    "BUY",
    "NEXT",
    "PREVIOUS",
    "SUB_PAGES",
    "Label",
    "Mode",
    "ProductView",
    "button",
    "join_text",
    "rich_line",
    "text_node",
]

Mode = Literal["text", "text_rich", "url"]

BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")

#: Names that a click cannot use for an option without hiding a button.
_RESERVED = frozenset(
    name.lower() for name in (BACK, PREVIOUS, NEXT, BUY, *SUB_PAGES, "Attributes", "Search")
)
_ASCII_SPACE = " \t\n\f\r"
_SEPARATOR = " [SEP] "


def text_node(text: str) -> str | None:
    """A string as an HTML page shows it: nothing if empty, blanks alone count as one.

    Blanks that hold a line break count as layout and vanish.
    """
    if text.strip(_ASCII_SPACE):
        return text
    return None if not text or "\n" in text else " "


def button(label: str) -> str:
    """The line of a button in ``text_rich``."""
    return f"[button] {label} [button_]\n"


def rich_line(text: str) -> str:
    """The line of a plain string in ``text_rich``; empty if the page would not show it."""
    node = text_node(text)
    return "" if node is None else f"{node}\n"


def join_text(texts: Iterable[str]) -> str:
    """Visible strings in the ``text`` form."""
    nodes = map(text_node, texts)
    return _SEPARATOR.join(node.strip() for node in nodes if node is not None)


class Label(NamedTuple):
    """An option value that an item page offers.

    Attributes:
        group: Option group it belongs to.
        value: The value that is selected.
        name: What is shown and clicked; mostly the value itself.
        plain: Its line in ``text_rich``.
        clicked: That line once selected.
    """

    group: str
    value: str
    name: str
    plain: str
    clicked: str


class ProductView:
    """A product's share of the pages.

    Args:
        product: The product.
        compat: ``"strict"`` gives every option value a name of its own (see :meth:`labels`);
            ``"upstream"`` shows all values as they are.
    """

    def __init__(self, product: Product, compat: Compat) -> None:
        self.product = product
        self.compat = compat
        self.asin = product.asin
        self.name = product.asin.lower()
        self.click = f"click[{self.name}]"
        shown = rich_line(product.title) + rich_line(product.price_tag)
        self.result_plain = f"\n{button(self.asin)}{shown}"
        self.result_visited = f"\n[clicked button] {self.asin} [clicked button_]\n{shown}"

    @cached_property
    def result_text(self) -> str:
        """Its entry on a result page in the ``text`` form."""
        return join_text((self.asin, self.product.title, self.product.price_tag))

    @cached_property
    def labels(self) -> tuple[tuple[str, tuple[Label, ...]], ...]:
        """Option groups with what can be clicked in them, in the order shown.

        In strict mode a value that stands in two groups, or is called like a button, goes by
        ``group: value``; repeats within a group and empty values are left out, and line breaks
        within a value become blanks.
        """
        options = self.product.options
        if self.compat == "upstream":
            return tuple(
                (group, tuple(_label(group, value, value) for value in values))
                for group, values in options.items()
            )
        groups = {
            group: {" ".join(value.split()): value for value in values if value.strip()}
            for group, values in options.items()
        }
        names = [name for values in groups.values() for name in values]
        taken = set(_RESERVED)
        result = []
        for group, values in groups.items():
            labels = []
            for name, value in values.items():
                alone = names.count(name) == 1 and name not in taken
                shown = name if alone else f"{group}: {name}"
                while shown in taken:
                    shown += "'"
                taken.add(shown)
                labels.append(_label(group, value, shown))
            result.append((group, tuple(labels)))
        return tuple(result)

    @cached_property
    def label_of(self) -> dict[str, Label]:
        """What can be clicked, by name; of two values of one name the last one counts."""
        return {label.name: label for _, labels in self.labels for label in labels}

    @cached_property
    def clickables(self) -> tuple[str, ...]:
        """Names of all that an item page lets one click, in the original's order."""
        buttons = (BACK, PREVIOUS, *SUB_PAGES, BUY)
        return tuple(dict.fromkeys([*(name.lower() for name in buttons), *self.label_of]))

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """The clicks that an item page admits."""
        return tuple(f"click[{name}]" for name in self.clickables)

    @cached_property
    def item_text(self) -> str:
        """The item page below the instruction in the ``text`` form."""
        options = [s for group, labels in self.labels for s in (group, *(x.name for x in labels))]
        product = self.product
        return join_text(
            (
                BACK,
                PREVIOUS,
                *options,
                product.title,
                f"Price: {product.price_tag}",
                "Rating: N.A.",
                *SUB_PAGES,
                BUY,
            )
        )

    @cached_property
    def tail(self) -> str:
        """The item page below the options in ``text_rich``."""
        product = self.product
        return "".join(
            (
                rich_line(product.title),
                f"Price: {product.price_tag}\nRating: N.A.\n",
                *map(button, (*SUB_PAGES, BUY)),
            )
        )

    @cached_property
    def _item_lines(self) -> tuple[list[str], dict[tuple[str, str], tuple[int, Label]]]:
        """The item page below "Back to Search", and where each value's line is in it."""
        lines = [button(PREVIOUS)]
        where = {}
        for group, labels in self.labels:
            lines.append(rich_line(group))
            for label in labels:
                where[group, label.value] = len(lines), label
                lines.append(label.plain)
        lines.append(self.tail)
        return lines, where

    @cached_property
    def item_plain(self) -> str:
        """The item page below "Back to Search" in ``text_rich``, nothing selected."""
        return "".join(self._item_lines[0])

    def item_rich(self, head: str, selected: Mapping[str, str]) -> str:
        """The item page in ``text_rich`` with options selected.

        Args:
            head: The page down to "Back to Search".
            selected: The value selected in each group.
        """
        plain, where = self._item_lines
        lines = plain.copy()
        chosen = sorted(where[item] for item in selected.items())
        for at, label in chosen:
            lines[at] = label.clicked
        # Each selection is announced above those further up the page.
        told = "".join(f"You have clicked {label.name}.\n" for _, label in reversed(chosen))
        return f"{told}{head}{''.join(lines)}"

    def sub_texts(self, page: str) -> list[str]:
        """The strings of a sub page below its buttons.

        Args:
            page: ``"Description"``, ``"Features"``, ``"Reviews"`` or ``"Attributes"``.
        """
        if page == "Description":
            return [self.product.description]
        if page == "Features":
            return [f" {bullet}" for bullet in self.product.bullets]
        if page == "Attributes":
            return [f" {attribute}" for attribute in self.product.attributes]
        return []


def _label(group: str, value: str, name: str) -> Label:
    node = text_node(name)
    if node is None:
        return Label(group, value, name, "", "")
    return Label(
        group,
        value,
        name,
        f"  [button] {node} [button_]\n",
        f"  [clicked button] {node} [clicked button_]\n",
    )
