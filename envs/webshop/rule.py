"""The fixed rule: search the whole instruction, open the first result, click what matches, buy.

It reads no price and compares no products, so that its success rate says how far a shop can be
played without doing so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

__all__ = ["FixedRule", "matching_options", "rule_action"]

_BUTTONS = frozenset(
    ("back to search", "< prev", "next >", "description", "features", "reviews", "attributes")
)
_BUY = "buy now"
_PRICE_TEXT = re.compile(r", and price lower than [\d.]+ dollars\s*$")


def matching_options(goal: str, labels: Sequence[str]) -> list[str]:
    """The option labels whose words stand in the instruction, in the order given.

    A label inside a longer match does not count: ``wine red`` hides ``red``.

    Args:
        goal: The instruction.
        labels: Labels of option values.
    """
    text = _PRICE_TEXT.sub("", goal).lower()
    taken = [False] * len(text)
    found = set()
    for label in sorted(set(labels), key=len, reverse=True):
        for match in re.finditer(rf"(?<![\w.-]){re.escape(label)}(?![\w-]|\.\w)", text):
            if not any(taken[match.start() : match.end()]):
                found.add(label)
                taken[match.start() : match.end()] = [True] * len(label)
    return [label for label in dict.fromkeys(labels) if label in found]


def rule_action(goal: str, admissible: Sequence[str], clicked: Collection[str] = ()) -> str:
    """The rule's next action.

    Args:
        goal: The instruction.
        admissible: The admissible actions of the open page.
        clicked: Option labels that the rule has clicked on this product.

    Raises:
        ValueError: If the page admits nothing, as after a purchase.
    """
    if not admissible:
        raise ValueError("no action is admissible: the episode is over")
    if any(action.startswith("search[") for action in admissible):
        return f"search[{goal}]"
    labels = [action[len("click[") : -1] for action in admissible]
    offers = [label for label in labels if label not in _BUTTONS and label != _BUY]
    if _BUY in labels:
        for label in matching_options(goal, offers):
            if label not in clicked:
                return f"click[{label}]"
        return f"click[{_BUY}]"
    return f"click[{offers[0]}]" if offers else admissible[0]


class FixedRule:
    """The rule with its memory of what it has clicked; one object an episode."""

    def __init__(self) -> None:
        self._clicked: set[str] = set()

    def act(self, goal: str, admissible: Sequence[str]) -> str:
        """The next action; see :func:`rule_action`."""
        action = rule_action(goal, admissible, self._clicked)
        if f"click[{_BUY}]" in admissible:
            self._clicked.add(action[len("click[") : -1])
        else:
            self._clicked.clear()
        return action
