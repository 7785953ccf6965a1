"""What stands around an answer: math delimiters, boxes, emphasis, words such as "the answer is"."""

from __future__ import annotations

import re

__all__ = ["unwrap", "without_prose"]

_CURRENCY = re.compile(r"(?<![\w$\\])\$\s?\d")
_DOLLAR = re.compile(r"(?<!\\)\$")
_PAIRS = (
    ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("__", "__"), ("`", "`"), ('"', '"'),
    ("“", "”"), ("<answer>", "</answer>"), ("\\begin{equation}", "\\end{equation}"),
    ("\\begin{align*}", "\\end{align*}"), ("\\begin{equation*}", "\\end{equation*}"),
)  # fmt: skip
_BOX = re.compile(r"^\\(?:boxed|fbox|ensuremath)\s*\{")
_ENDS = re.compile(r"(?<![.\\])[.,;]\s*$")

_PROSE = re.compile(
    r"^\s*(?:(?:so|thus|hence|therefore|then|and|finally|clearly)\s*,?\s+)?"
    r"(?:(?:the|our|my|a)\s+)?(?:(?:final|correct|right|exact|required|desired|numerical)\s+)*"
    r"(?:answer|solution|result|value|total|sum|number|option|choice)"
    r"(?:\s+(?:to|of|for)\s+(?:the|this)\s+(?:problem|question|expression))?"
    r"\s*(?:is|equals|are|:|=|is\s*:|would be|must be)\s*(?:option\s+|choice\s+)?",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"^\s*(?:(?:so|thus|hence|therefore)\b\s*,?|(?:ans|answer|option|choice)\b\s*[:.]?|=)\s*",
    re.IGNORECASE,
)
_TEXT = re.compile(r"^\\(?:text|textbf|mbox|textrm|mathrm)\s*\{([^{}]*)\}\s*")


def unwrap(text: str) -> str:
    """The answer without delimiters and emphasis around it. Linear, since each pass shortens."""
    text = text.strip()
    for _ in range(8):
        before = text
        text = _peel(text).strip()
        if text == before:
            break
    return text


def _peel(text: str) -> str:
    for opening, closing in _PAIRS:
        inner = text[len(opening) : len(text) - len(closing)]
        if (
            len(text) >= len(opening) + len(closing)
            and text.startswith(opening)
            and text.endswith(closing)
            and opening not in inner
        ):
            return inner
    found = _BOX.match(text)
    if found and text.endswith("}") and _closes_last(text, found.end() - 1):
        return text[found.end() : -1]
    if "$" in text:
        dollars = len(_DOLLAR.findall(text))
        if dollars > 1 and dollars % 2 == 0 and len(_CURRENCY.findall(text)) < dollars:
            return _DOLLAR.sub(" ", text)
    if text.startswith("{") and text.endswith("}") and _closes_last(text, 0):
        inner = text[1:-1]
        if "," not in inner:
            return inner
    if text.endswith("\\"):  # a line break, or an escaped blank whose blank is gone
        return text[:-1]
    found = _ENDS.search(text)
    if found and not text[: found.start()].endswith("\\"):
        return text[: found.start()]
    return text


def _closes_last(text: str, opening: int) -> bool:
    """Whether the brace at ``opening`` is closed by the last character."""
    depth = 0
    for place in range(opening, len(text)):
        if text[place] == "{" and text[place - 1 : place] != "\\":
            depth += 1
        elif text[place] == "}" and text[place - 1 : place] != "\\":
            depth -= 1
            if depth == 0:
                return place == len(text) - 1
    return False


def without_prose(text: str) -> str:
    """The answer without words such as "the answer is" before it."""
    plain = text
    found = _TEXT.match(text)
    if found and len(found[1].split()) >= 2:
        plain = f"{found[1]} {text[found.end() :]}"
    shorter = _PROSE.sub("", plain, count=1)
    if shorter == plain:
        shorter = _LEAD.sub("", plain, count=1)
    if shorter == plain:
        return text
    return unwrap(shorter) or text
