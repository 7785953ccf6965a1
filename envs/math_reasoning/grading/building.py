"""Nodes for what the parser has recognised."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from envs.math_reasoning.grading.lexer import Token
from envs.math_reasoning.grading.lexicon import FUNCTIONS, GREEK, SHORT_UNITS, UNITS
from envs.math_reasoning.grading.nodes import Node, Unparsed, num

__all__ = ["flat", "function", "indexed", "is_unit", "mixed_number", "named", "negative", "product"]


def named(name: str) -> Node:
    """A variable, or the constant that goes by the name."""
    return Node("const" if name in ("e", "i", "pi") else "sym", (), name)


def negative(node: Node) -> Node:
    """The negative; of a number, the number with its sign."""
    return num(-node.value, node.places) if node.op == "num" else Node("neg", (node,))


def product(left: Node, right: Node) -> Node:
    """The product, flat."""
    return Node("mul", (*left.args, right) if left.op == "mul" else (left, right))


def mixed_number(whole: Fraction, part: Node) -> Node:
    """A whole number and a proper fraction."""
    above, below = (arg.value for arg in part.args)
    if not 0 < above < below:
        raise Unparsed(f"{whole} {above}/{below} is no mixed number")
    return num(whole + above / below)


def function(name: str, args: list[Node], base: Node | None) -> Node:
    """A function of its arguments, and of a base."""
    if name == "log" and len(args) == 1 and base is not None:
        return Node("fn", (args[0], base), "log")
    if name == "sqrt" and len(args) == 1:
        return Node("root", (args[0], num(2)))
    if name == "cbrt" and len(args) == 1:
        return Node("root", (args[0], num(3)))
    if name == "exp" and len(args) == 1:
        return Node("pow", (Node("const", (), "e"), args[0]))
    if name in ("gcd", "lcm", "min", "max") or len(args) == 1:
        return Node("fn", tuple(args), name)
    if name == "log" and len(args) == 2:
        return Node("fn", tuple(args), "log")
    raise Unparsed(f"{name} of {len(args)} arguments")


def indexed(node: Node, index: list[Token], last: Token) -> Node:
    """A variable with an index; a number with one is written in that base."""
    label = flat(index)
    if node.op == "sym":
        return Node("sym", (), f"{node.value}_{label}")
    if node.op == "const" and node.value in ("e", "i"):
        return Node("sym", (), f"{node.value}_{label}")
    raise Unparsed("an index on an expression")


def flat(tokens: Sequence[Token]) -> str:
    """Tokens as text."""
    return " ".join(token.text for token in tokens)


def is_unit(tokens: Sequence[Token], at: int) -> bool:
    """Whether the word at ``at`` is a unit: after a number, and with nothing else behind it."""
    word = tokens[at].text
    before = tokens[at - 1] if at else None
    if before is None or not (
        before.kind == "num" or (before.kind == "op" and before.text in ("}", ")", "%"))
        or (before.kind == "cmd" and before.text == "pi")
    ):  # fmt: skip
        return False
    if word in FUNCTIONS and at + 1 < len(tokens) and tokens[at + 1].text in ("(", "{", "\\"):
        return False
    known = word in UNITS or word.lower() in UNITS
    if len(word) == 1:
        known = word in SHORT_UNITS and tokens[at].space
    known = known or word in ("sq", "cu")
    if len(word) > 3 and word not in FUNCTIONS and word not in GREEK and word != "infty":
        known = True
    following = tokens[at + 1 :]
    return known and all(
        token.kind in ("word", "text", "num") or token.text in ("^", "/", "{", "}", ".", "'")
        for token in following[:8]
    )
