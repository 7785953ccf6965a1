"""From the text of an answer to its structure: lists, sets, intervals, relations, quantities."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from envs.math_reasoning.grading.lexer import Token, plain_characters, tokenize
from envs.math_reasoning.grading.lexicon import (
    CURRENCY,
    MAGNITUDES,
    number_words,
    unit_of,
    words,
)
from envs.math_reasoning.grading.matrices import matrix_from, scaled_matrix
from envs.math_reasoning.grading.nodes import Node, Unparsed, contains, num
from envs.math_reasoning.grading.parser import ExpressionParser, bracketed, split_top
from envs.math_reasoning.grading.policies import Policies
from envs.math_reasoning.grading.wrapping import unwrap, without_prose

__all__ = ["MAX_CHARS", "Reading", "read_answer"]

#: Longest answer that is read; longer ones can only be equal letter by letter.
MAX_CHARS = 2000

_COMMAS = frozenset((",", ";", "and", "or", "&"))
_RELATIONS = frozenset(("=", "<", ">", "<=", ">=", "!=", "≈", "∈"))
_UNIONS = frozenset(("∪", "∖", "∩"))
_TIME = re.compile(r"^(\d{1,2}):(\d\d)(?::(\d\d))?\s*(?:([ap])\.?\s?m\.?)?$", re.IGNORECASE)
_TEXT_COMMAND = re.compile(r"\\(?:text|mbox|mathrm|textbf|textit)\s*\{([^{}]*)\}")
_CHOICE = re.compile(r"^\(?([A-Z])(?:\)|\.|:)\s*(?=\S)", re.DOTALL)
# A letter behind the label that is a label too: who names two options has chosen none.
_OTHER_CHOICE = re.compile(
    r"\(\s{0,3}([A-Z])\s{0,3}\)|(?<![A-Za-z])([A-Z])(?=\s{0,3}(?:[).:](?!\d)|$))"
    r"|\b(?:or|and|not|nor)\s{1,5}\(?([A-Z])(?![A-Za-z])"
    r"|[,;/&|]\s{0,5}\(?([A-Z])(?![A-Za-z(=^_])"
)
_BASED = re.compile(r"^\(?([0-9A-F]+)\)?_\{?(?:\\text\{)?(\d{1,2}|two|eight|ten)\}?\}?$")
_DECIMAL_COMMA = re.compile(r"^([+-]?)(\d+|\d{1,3}(?:\.\d{3})+),(\d+)$")
_TIMES_TEN = re.compile(r"(?<=[\d.])\s*[xX]\s*(?=10\s*(?:\^|\*\*))")
_BASES = {"two": 2, "eight": 8, "ten": 10}
_REALS = re.compile(
    r"^(?:all|any|every|the set of)?(?: all)? ?real(?: numbers?| values?)?(?: of x)?$",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    r"^(?:the )?(?:empty set|null set|no(?: real)? solutions?|has no(?: real)? solutions?)$",
    re.IGNORECASE,
)
_MONEY = frozenset(CURRENCY)


class Reading(tuple[Node, "str | None"]):
    """A way to read an answer, and the policy that it needs (None: no policy)."""

    __slots__ = ()

    @property
    def node(self) -> Node:
        """The structure."""
        return self[0]

    @property
    def needs(self) -> str | None:
        """The policy, or None."""
        return self[1]


@lru_cache(maxsize=4096)
def read_answer(text: str, policies: Policies) -> tuple[Reading, ...]:
    """All readings of an answer, the plainest first.

    Args:
        text: The answer, without its box.
        policies: Conventions; those of reading matter here.

    Raises:
        Unparsed: If there is none.
    """
    if len(text) > MAX_CHARS:
        raise Unparsed(f"longer than {MAX_CHARS} characters")
    plain = unwrap(plain_characters(text))
    if not plain:
        raise Unparsed("empty")
    readings: list[Reading] = []
    failure: Unparsed | None = None
    for variant in _variants(plain, policies):
        try:
            readings.append(Reading((_read(variant, policies), None)))
            break
        except Unparsed as error:
            failure = failure or error
    readings += _further(plain)
    if not readings:
        assert failure is not None
        raise failure
    return tuple(readings)


def _variants(plain: str, policies: Policies) -> list[str]:
    shorter = without_prose(plain) if policies.prose_in_box else plain
    return [plain] if shorter == plain else [shorter, plain]


def _further(plain: str) -> list[Reading]:
    """Readings by conventions that a policy has to allow."""
    out = []
    bare = _TEXT_COMMAND.sub(r" \1 ", plain).strip()
    choice = _CHOICE.match(bare)
    if choice and not _names_another(choice, bare):
        out.append(Reading((Node("text", (), choice[1]), "mcq_label_with_text")))
    comma = _DECIMAL_COMMA.match(plain)
    if comma and not (len(comma[3]) == 3 and comma[2].isdigit() and len(comma[2]) <= 3):
        whole = comma[2].replace(".", "")
        value = Fraction(int(whole + comma[3]), 10 ** len(comma[3]))
        node = num(-value if comma[1] == "-" else value, len(comma[3]))
        out.append(Reading((node, "eu_decimal")))
    return out


def _names_another(choice: re.Match[str], text: str) -> bool:
    """Whether a choice is followed by the label of another one."""
    others = _OTHER_CHOICE.finditer(text, choice.end())
    return any(letter not in (None, choice[1]) for other in others for letter in other.groups())


def _read(plain: str, policies: Policies) -> Node:
    bare = _TEXT_COMMAND.sub(r" \1 ", plain).strip()
    time = _TIME.match(bare)
    if time:
        return _time(time)
    based = _BASED.match(plain.replace(" ", ""))
    if based:
        base = int(_BASES.get(based[2], based[2]))
        if 2 <= base <= 36 and all(int(digit, 36) < base for digit in based[1]):
            return Node("based", (), (based[1].lstrip("0") or "0", base))
        raise Unparsed(f"{plain} is no number in base {base}")
    words = bare.strip(" .\"'").replace("-", " ") if len(bare) < 100 else ""
    if words.replace(" ", "").isalpha():
        if policies.number_words:
            value = number_words(words)
            if value is not None:
                return num(value)
        if words.lower() in ("inf", "infinity") and not policies.inf_words:
            return Node("text", (), words)
        if _REALS.match(words):
            return Node("reals")
        if _EMPTY.match(words):
            return Node("set")
    tokens = tokenize(
        _TIMES_TEN.sub("*", plain),  # 1.5 x 10^3
        space_grouping=policies.space_grouping,
        thin_space_grouping=policies.thin_space_grouping,
    )
    return _Reader(policies).answer(_without_end(tokens))


def _without_end(tokens: list[Token]) -> list[Token]:
    """Without the full stop at the end."""
    while tokens and tokens[-1].kind == "op" and tokens[-1].text in (".", ",", ";", '"'):
        tokens = tokens[:-1]
    while tokens and tokens[0].kind == "op" and tokens[0].text == '"':
        tokens = tokens[1:]
    if not tokens:
        raise Unparsed("empty")
    return tokens


def _time(found: re.Match[str]) -> Node:
    hour, minute = int(found[1]), int(found[2])
    if minute > 59 or hour > 24:
        return Node("ratio", (num(hour), num(minute)))
    return Node("time", (), (hour, minute, int(found[3] or 0), (found[4] or "").lower()))


class _Reader:
    """Structure over tokens, from the outside in."""

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        self.depth = 0

    def answer(self, tokens: Sequence[Token]) -> Node:
        """A list, or one item."""
        self.depth += 1
        if self.depth > 12:
            raise Unparsed("nested too deeply")
        try:
            return self._answer(tokens)
        finally:
            self.depth -= 1

    def _answer(self, tokens: Sequence[Token]) -> Node:
        words = _as_words(tokens)
        if words is not None:
            return words
        pieces = split_top(tokens, _COMMAS)
        items = [piece for _, piece in pieces if piece]
        if len(items) <= 1:
            if not items:
                raise Unparsed("empty")
            if len(pieces) > 2 or not pieces[0][1]:
                raise Unparsed("separators without items")
            return self.item(items[0])
        # Between two items stands a comma, a word, or a comma and a word.
        for (_, piece), (sign, following) in pairwise(pieces):
            if not piece and (not following or sign in (",", ";")):
                raise Unparsed("separators without items")
        if not pieces[0][1]:
            raise Unparsed("a separator at the start")
        nodes = tuple(self.item(item) for item in items)
        if all(n.op == "rel" and not set(n.value) & {"=", "≈"} for n in nodes):
            joined = any(sign == "or" for sign, _ in pieces)
            return Node("conditions", nodes, "or" if joined else "and")
        either = {sign for sign, _ in pieces[1:]} == {"or"}
        return Node("list", nodes, "or" if either else None)

    def item(self, tokens: Sequence[Token]) -> Node:
        """A relation, or one value."""
        if any(t.kind == "cmd" and t.text in ("forall", "exists", "to", "Rightarrow", "implies",
                                              "iff", "neg", "not") for t in tokens):  # fmt: skip
            raise Unparsed("a statement")
        pieces = split_top(tokens, _RELATIONS)
        if len(pieces) == 1:
            return self.region(tokens)
        sides = [self._side(piece, last=place == len(pieces) - 1)
                 for place, (_, piece) in enumerate(pieces)]  # fmt: skip
        signs = tuple(sign for sign, _ in pieces[1:])
        if "∈" in signs:
            if len(signs) != 1:
                raise Unparsed("a chain with membership")
            return Node("member", tuple(sides))
        return Node("rel", tuple(sides), signs)

    def _side(self, tokens: Sequence[Token], *, last: bool) -> Node:
        if not tokens:
            raise Unparsed("a relation without a side")
        try:
            return self.region(tokens)
        except Unparsed:
            name = " ".join(token.text for token in tokens)
            named = all(t.kind in ("word", "text") or t.text in "°'()_{}" or t.kind == "cmd"
                        for t in tokens)  # fmt: skip
            if last or not named or len(name) > 60:
                raise
            return Node("text", (), name)

    def region(self, tokens: Sequence[Token]) -> Node:
        """Sets joined by signs, a ratio, or one value."""
        pieces = split_top(tokens, _UNIONS)
        if len(pieces) > 1:
            node = self.value(pieces[0][1])
            for sign, piece in pieces[1:]:
                op = {"∪": "union", "∖": "setminus", "∩": "intersection"}[sign]
                right = self.value(piece)
                if op == node.op == "union":
                    node = Node("union", (*node.args, right))
                else:
                    node = Node(op, (node, right))
            return node
        pieces = split_top(tokens, frozenset(":"))
        if len(pieces) > 1:
            return Node("ratio", tuple(self.value(piece) for _, piece in pieces))
        return self.value(tokens)

    def value(self, tokens: Sequence[Token]) -> Node:
        """Brackets, a matrix, a quantity or an expression."""
        if not tokens:
            raise Unparsed("a value is missing")
        only = tokens[0] if len(tokens) == 1 else None
        if only is not None and only.text == "∅":
            return Node("set")
        if only is not None and only.text == "…":
            return Node("dots")
        if only is not None and only.kind == "cmd" and only.text == "bbR":
            return Node("reals")
        pair = bracketed(tokens)
        if pair is not None:
            return self.brackets(tokens[1:-1], *pair)
        if tokens[0].kind == "begin":
            return matrix_from(tokens, self.answer)
        if tokens[-1].kind == "end":
            return scaled_matrix(tokens, self.answer)
        if any(token.text in ("…", "∅") for token in tokens):
            raise Unparsed("dots or an empty set within an expression")
        return self.quantity(tokens)

    def brackets(self, inner: Sequence[Token], opening: str, closing: str) -> Node:
        """A set, a tuple or interval, or a value in parentheses."""
        if opening == "{" and len(inner) == 1:
            return self.answer(inner)
        inner = _without_grouping(inner)
        if opening in ("\\{", "{"):
            builder = split_top(inner, frozenset(("|", ":"))) if opening == "\\{" else []
            if len(builder) == 2 and len(builder[0][1]) >= 1:
                return self._set_builder(builder[0][1], builder[1][1])
            if not inner:
                return Node("set")
            node = self.answer(inner)
            if node.op == "list":
                return Node("set", node.args)
            return Node("set", (node,)) if opening == "\\{" else node
        if (opening, closing) in (("⌊", "⌋"), ("⌈", "⌉")):
            node = ExpressionParser(inner).whole()
            return Node("fn", (node,), "floor" if opening == "⌊" else "ceil")
        pieces = [piece for _, piece in split_top(inner, frozenset((",", ";")))]
        if len(pieces) == 1:
            node = self.answer(inner)
            if node.scalar or node.op in ("quantity", "text", "matrix"):
                return node
            return Node("tuple", (node,), opening + closing)
        if opening == closing == "|":
            raise Unparsed("a list between bars")
        return Node("tuple", tuple(self.item(piece) for piece in pieces), opening + closing)

    def _set_builder(self, element: Sequence[Token], condition: Sequence[Token]) -> Node:
        r"""``\{x : x > 3\}`` is the region of its condition."""
        pieces = split_top(element, frozenset("∈"))
        if len(pieces[0][1]) != 1 or pieces[0][1][0].kind != "word":
            raise Unparsed("a set built from expressions")
        node = self.answer(condition)
        if node.op not in ("rel", "conditions", "member"):
            raise Unparsed("a set without a condition")
        return node

    # Quantities ---------------------------------------------------------------------------------

    def quantity(self, tokens: Sequence[Token]) -> Node:
        """An expression with a currency before it or a unit after it."""
        if not tokens:
            raise Unparsed("a value is missing")
        if tokens[0].kind == "op" and tokens[0].text in ("-", "+") and len(tokens) > 1:
            money = tokens[1].text in _MONEY and tokens[1].kind == "op"
            if money:
                node = self.quantity(tokens[1:])
                return node if tokens[0].text == "+" else _negated(node)
        if tokens[0].kind == "op" and tokens[0].text in _MONEY:
            return self._money(tokens)
        parser = ExpressionParser(tokens)
        node = parser.sum()
        rest = parser.tokens[parser.at :]
        if not rest:
            return node
        if contains(node, "pm", "mp") or any(token.kind == "cmd" for token in rest):
            raise Unparsed(f"{rest[0].text!r} after an expression")
        magnitude = rest[0].text.lower()
        if magnitude in MAGNITUDES and rest[0].kind in ("word", "text"):
            if not self.policies.magnitude_words:
                raise Unparsed(f"the word {magnitude!r}")
            node, rest = _times(node, MAGNITUDES[magnitude]), rest[1:]
        elif " " in magnitude and magnitude.split()[0] in MAGNITUDES and rest[0].kind == "text":
            first, _, tail = magnitude.partition(" ")
            node, rest = _times(node, MAGNITUDES[first]), [Token("text", tail), *rest[1:]]
        if not rest:
            return node
        if rest[0].text in _MONEY and rest[0].kind == "op" and len(rest) == 1:
            return _measured(node, unit_of(CURRENCY[rest[0].text]))
        if node.op == "sym" or contains(node, "percent", "degree"):
            phrase = _phrase(rest)
            if node.op != "sym" and phrase.lower() in ("c", "f", "celsius", "fahrenheit"):
                return node
            raise Unparsed(f"{phrase!r} after an expression")
        compound = self._compound(node, rest)
        if compound is not None:
            return compound
        return _measured(node, unit_of(_phrase(rest)))

    def _money(self, tokens: Sequence[Token]) -> Node:
        unit = unit_of(CURRENCY[tokens[0].text])
        node = self.quantity(tokens[1:])
        if node.op == "quantity":
            if node.value == unit:
                return node
            if node.value[0] in ("hundred", "cent"):
                raise Unparsed("two units")
            # "$5 per hour", "$12 each": the noun adds nothing to the amount.
            return Node("quantity", node.args, unit)
        return _measured(node, unit)

    def _compound(self, node: Node, rest: Sequence[Token]) -> Node | None:
        """``5 feet 3 inches``: two parts of one dimension."""
        place = next((i for i, token in enumerate(rest) if token.kind == "num"), None)
        if not place:
            return None
        if rest[place - 1].text in ("^", "{"):
            return None
        head = _measured(node, unit_of(_phrase(rest[:place])))
        tail = self.quantity(rest[place:])
        if (
            tail.op != "quantity"
            or tail.value[0] != head.value[0]
            or tail.value[1] >= head.value[1]
        ):
            raise Unparsed("two quantities")
        size = tail.value[1]
        if head.args[0].op != "num" or tail.args[0].op != "num":
            raise Unparsed("two quantities")
        total = head.args[0].value * head.value[1] + tail.args[0].value * size
        return Node("quantity", (num(total / head.value[1]),), head.value)


def _as_words(tokens: Sequence[Token]) -> Node | None:
    r"""An answer in words: ``Evelyn``, ``\text{(C)}``, ``no solution``."""
    if not any(token.kind in ("word", "text") for token in tokens):
        return None
    pair = bracketed(tokens)
    inner = tokens[1:-1] if pair in (("(", ")"), ("{", "}")) else tokens
    if len(inner) == 2 and inner[1].text == ")" and inner[1].kind == "op":
        inner = inner[:1]
    if not inner or not all(
        token.kind in ("word", "text") or (token.kind == "op" and token.text in ".'-\"!?")
        for token in inner
    ):
        return None
    words = [token for token in inner if token.kind in ("word", "text")]
    if any(token.text in ("and", "or") for token in words):
        return None
    lone = words[0]
    if len(words) == 1 and len(inner) == 1:
        marked = pair is not None or lone.kind == "text" or len(inner) < len(tokens)
        if lone.kind == "text" or len(lone.text) > 3 or not lone.text.isascii():
            return None if lone.text.lower() in _SYMBOLIC else Node("text", (), lone.text)
        if marked and len(lone.text) == 1:
            return Node("text", (), lone.text)
        if not lone.text.islower() and not lone.text.isupper():
            return Node("text", (), lone.text)
        return Node("text", (), lone.text) if lone.text.lower() in _PLAIN_WORDS else None
    if all(len(token.text) == 1 and token.kind == "word" for token in words):
        return None
    if any(token.kind == "word" and token.text.lower() in _SYMBOLIC for token in words):
        return None
    return Node("text", (), " ".join(token.text for token in words))


_SYMBOLIC = frozenset(
    words(
        "inf infty infinity pi sqrt sin cos tan log exp alpha beta gamma delta theta lambda "
        "omega sigma epsilon phi"
    )
)
_PLAIN_WORDS = frozenset(words("yes no odd red blue one two day man cat dog sun mon tue"))


def _without_grouping(tokens: Sequence[Token]) -> list[Token]:
    """Within brackets ``1,234`` is two numbers."""
    out: list[Token] = []
    for token in tokens:
        if not token.comma:
            out.append(token)
            continue
        whole, point, decimals = token.text.partition(".")
        first = (len(whole) - 1) % 3 + 1
        parts = [whole[:first], *(whole[i : i + 3] for i in range(first, len(whole), 3))]
        for part in parts[:-1]:
            out += [Token("num", part, value=Fraction(part)), Token("op", ",")]
        text = f"{parts[-1]}{point}{decimals}"
        out.append(Token("num", text, value=Fraction(text), places=len(decimals) or None))
    return out


def _phrase(tokens: Sequence[Token]) -> str:
    """A unit as text: ``inches^2``, ``miles per hour``."""
    text = ""
    for token in tokens:
        glue = (
            ""
            if token.text in ("^", "{", "}", ".", "/", "'") or text.endswith(("^", "{", "/"))
            else " "
        )
        text += glue + token.text
    return text.replace(".", "").strip()


def _measured(node: Node, unit: object) -> Node:
    if unit is None:
        raise Unparsed("no unit")
    return Node("quantity", (node,), unit)


def _negated(node: Node) -> Node:
    if node.op == "quantity":
        return Node("quantity", (Node("neg", node.args),), node.value)
    return Node("neg", (node,))


def _times(node: Node, factor: int) -> Node:
    return num(node.value * factor) if node.op == "num" else Node("mul", (node, num(factor)))
