"""What a policy reads in WebShop: advice for a language model, compact pages for a tiny one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agentgym.info import Info
from agentgym.parsing import ActionFormat
from agentgym.prompts import EnvPrompt
from envs.webshop.families import asin_pieces
from envs.webshop.lexicon import DEPARTMENTS, DETAILS, ENDINGS, OPENERS, SMALL, Department
from envs.webshop.shop import ShopConfig
from envs.webshop.small_shop import bound_range, price_range

__all__ = [
    "INVALID",
    "WebShopPrompt",
    "compact_page",
    "page_parts",
    "vocabulary",
    "without_instruction",
]

#: What the compact form answers to an inadmissible action.
INVALID = "invalid action"

_SEPARATOR = " [SEP] "
_MARKS = re.compile(r"\[(?:clicked )?button_?\] ?")
_RESULTS = re.compile(r"page \d+ \(total results: \d+\)")
_ASIN = re.compile(r"[a-z0-9]{1,10}")
_TASK_LIMIT = 13_000

_SITE = """\
You are shopping in a text web store for one customer. Each turn you see a page and answer with \
one action:
- search[words]: look for products; only on the page with the search box.
- click[name]: press what the page offers: a product id such as click[b0c1ht3r67], an option value \
such as click[red], or a button such as click[next >], click[< prev], click[features], \
click[back to search], click[buy now].
Search finds products by the words of their title, description and options. Products that look \
alike may differ in price, in an attribute or in the options they offer, so compare before you \
buy. On a product page choose the option values the customer asks for, then click[buy now]: that \
ends the task, and the purchase is scored by the attributes, the options and the price asked for."""

_FORM = """\
First reason inside <think> </think>. Then write exactly one action inside <action> </action>."""


class WebShopPrompt(EnvPrompt):
    """Prompts for WebShop.

    ``tags``: the site is explained once, the customer's request opens the task, and every page
    comes with its admissible actions. ``bare``: the first message is the request alone; later
    ones are the page in small letters without the request (it is in the context already), and an
    inadmissible action is answered by :data:`INVALID` alone. Make the environment with
    ``observation_mode="text"`` for it.

    Args:
        action_format: ``tags`` or ``bare``.
        list_admissible: Quote the admissible actions (``tags`` only).
        max_chars: Longest windowed message; above it the oldest quoted turns are left out.
    """

    def __init__(
        self,
        action_format: ActionFormat = "tags",
        list_admissible: bool = True,
        max_chars: int = _TASK_LIMIT,
    ) -> None:
        super().__init__(action_format, list_admissible)
        if max_chars < 1:
            raise ValueError(f"max_chars must be >= 1, got {max_chars!r}")
        self.max_chars = max_chars

    def system(self, info: Info) -> str | None:
        """The site and the form of an answer; nothing in the bare form."""
        return None if self.action_format == "bare" else f"{_SITE}\n\n{_FORM}"

    def first(self, observation: str, info: Info) -> str:
        """The customer's request, with the search page in the ``tags`` form."""
        goal = info["goal"]
        if self.action_format == "bare":
            return goal.lower()
        return f"The customer writes: {goal}\n\n{self.next(observation, info)}"

    def next(self, observation: str, info: Info) -> str:
        """A page, or what to know about an inadmissible action."""
        if self.action_format == "bare":
            return compact_page(observation, info["goal"]) if info["action_valid"] else INVALID
        page = without_instruction(observation, info["goal"])
        return self._with_actions(f"{self._notice(info)}The page now shows:\n{page}", info)

    def windowed(self, history: Sequence[tuple[str, str]], observation: str, info: Info) -> str:
        """One decision with the last turns quoted; the oldest go first where space is short."""
        for skipped in range(len(history) + 1):
            text = self._windowed(history[skipped:], observation, info)
            if len(text) <= self.max_chars:
                break
        return text

    def _windowed(self, history: Sequence[tuple[str, str]], observation: str, info: Info) -> str:
        goal = info["goal"]
        if self.action_format == "bare":
            seen = [f"{self._bare_page(page, goal)}\n> {done}" for page, done in history]
            now = self._bare_page(observation, goal)
            if not info["action_valid"]:
                now = f"{INVALID}\n{now}"
            return "\n".join([goal.lower(), *seen, now])
        turn = info["turn"]
        lines = [f"The customer writes: {goal}"]
        if history:
            lines.append(f"You have acted {turn} times. Most recently:")
            for number, (page, done) in enumerate(history, turn - len(history) + 1):
                quoted = without_instruction(page, goal).strip()
                lines += [f"[Page {number}] {quoted}", f"[Action {number}] {done}"]
        page = without_instruction(observation, goal)
        lines.append(f"{self._notice(info)}The page now shows (turn {turn + 1}):\n{page}")
        return self._with_actions("\n".join(lines), info)

    def _bare_page(self, page: str, goal: str) -> str:
        compact = compact_page(page, goal)
        return "search" if compact.startswith("webshop") else compact

    def _notice(self, info: Info) -> str:
        if info["action_valid"]:
            return ""
        reason = info["details"].get("reason") or "it is not admissible on this page"
        return f"Your last action did nothing: {reason}.\n"

    def _with_actions(self, text: str, info: Info) -> str:
        actions = info["admissible_actions"]
        if self.action_format == "bare" or not self.list_admissible or not actions:
            return text
        listed = "\n".join(f"'{action}'" for action in actions)
        return f"{text}\nAdmissible actions:\n{listed}"


def without_instruction(observation: str, goal: str) -> str:
    """A page in ``text`` or ``text_rich`` form without the repeated instruction."""
    for repeated in (
        f"Instruction: [SEP] {goal.strip()} [SEP] ",
        f"Instruction: \n{goal}\n",
        f"Instruction:\n{goal}\n",
    ):
        if repeated in observation:
            return observation.replace(repeated, "", 1)
    return observation


def compact_page(observation: str, goal: str) -> str:
    """A page in small letters, its strings joined by `` [SEP] ``, without the instruction.

    A product on a result page becomes one string: title, price, id. A causal model has then read
    the price by the time it reads the id that it may copy; in the page's own order the id comes
    first.
    """
    parts = [part.lower() for part in page_parts(observation, goal)]
    return _SEPARATOR.join(_products_joined(parts))


def page_parts(observation: str, goal: str) -> list[str]:
    """The strings of a page in the ``text`` or ``text_rich`` form, without the instruction."""
    text = without_instruction(observation, goal)
    if _SEPARATOR in text:
        parts = text.split(_SEPARATOR)
    else:
        parts = [_MARKS.sub("", line).strip() for line in text.splitlines()]
    return [part for part in parts if part]


def _products_joined(parts: list[str]) -> list[str]:
    start = next((i for i, part in enumerate(parts) if _ASIN.fullmatch(part)), len(parts))
    products = parts[start:]
    if len(parts) < 2 or not _RESULTS.fullmatch(parts[1]) or len(products) % 3:
        return parts
    triples = zip(products[::3], products[1::3], products[2::3], strict=True)
    return parts[:start] + [f"{title} {price} {asin}" for asin, title, price in triples]


# Vocabulary --------------------------------------------------------------------------------------

_BACK, _TAIL = "back to search [SEP]", "[SEP] rating: n.a. [SEP] description [SEP] features"
_FIXED = (
    " [SEP] ",
    "search[",
    "click[",
    "]",
    "click[back to search]",
    "click[buy now]",
    "click[next >]",
    "click[< prev]",
    "click[description]",
    "click[features]",
    "click[reviews]",
    f"{_BACK} < prev [SEP]",
    f" {_TAIL} [SEP] reviews [SEP] buy now",
    "price:",
    "find me",
    ",",
    ", and price lower than",
    "dollars",
    "webshop",
    "search",
    INVALID,
)
_RESULT_PAGES = 10


def vocabulary(**env_args: Any) -> list[str]:
    """Phrases that should be single tokens of a tokenizer made for this environment.

    They are written as the compact form shows them, in small letters. A small built-in catalogue
    is covered completely; for the full one there are the words of its lexicon, and for loaded data
    what every page holds.

    Args:
        **env_args: Arguments of ``gym.make``; those that choose the catalogue matter.

    Returns:
        Distinct phrases; each product id is one of the first pieces followed by a second piece.
    """
    config = ShopConfig(
        **{k: v for k, v in env_args.items() if k in ("data", "catalogue", "difficulty")}
    )
    phrases = [*_FIXED, *_result_heads()]
    if config.builtin is not None:
        for pieces in asin_pieces(config.builtin[0]):
            phrases += [piece.lower() for piece in pieces]
        phrases += _small_phrases() if config.difficulty == "small" else _full_phrases()
    return list(dict.fromkeys(phrases))


def _result_heads() -> list[str]:
    """Tops of result pages, with the 50 results that nearly every search finds."""
    heads = []
    for number in range(1, _RESULT_PAGES + 1):
        buttons = ["< prev"] * (number > 1) + ["next >"] * (number < _RESULT_PAGES)
        heads.append(_SEPARATOR.join([f"{_BACK} page {number} (total results: 50)", *buttons]))
    return [f"{head} [SEP]" for head in heads]


def _small_phrases() -> list[str]:
    return [
        *SMALL.nouns,
        *SMALL.attributes,
        *(brand.lower() for brand in SMALL.brands),
        *SMALL.colors,
        *SMALL.sizes,
        *(f" ${price}.0" for price in price_range()),
        *(f"{bound}.00 dollars" for bound in bound_range()),
        "with color:",
        ", and size:",
        "color [SEP]",
        "size [SEP]",
        "this",
        "is made by",
        "by",
        ".",
        "i need a",
        "that is",
        "and",
        ", in",
    ]


def _full_phrases() -> list[str]:
    phrases: list[str] = []
    for department in DEPARTMENTS:
        phrases += _department_phrases(department)
    phrases += [*OPENERS, *DETAILS, *(ending for ending in ENDINGS if ending), "style"]
    return [phrase.lower() for phrase in phrases]


def _department_phrases(department: Department) -> list[str]:
    phrases = [*department.attributes, *department.purposes]
    phrases += [*department.modifiers, *department.audiences]
    for kind in department.types:
        phrases += [kind.head, kind.query]
        for group in kind.groups:
            phrases += [group.name, *group.left, *group.right]
    return phrases
