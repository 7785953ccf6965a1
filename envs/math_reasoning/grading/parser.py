"""From tokens to an expression: sums, products, powers, roots, functions, matrices."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from envs.math_reasoning.grading.building import (
    flat,
    function,
    indexed,
    is_unit,
    mixed_number,
    named,
    negative,
    product,
)
from envs.math_reasoning.grading.lexer import Token
from envs.math_reasoning.grading.lexicon import FUNCTIONS, GREEK
from envs.math_reasoning.grading.nodes import Node, Unparsed, num

__all__ = ["CLOSING", "ExpressionParser", "bracketed", "split_top"]

#: Deepest nesting that is read.
MAX_DEPTH = 40

CLOSING = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "⟨": "⟩", "⌊": "⌋", "⌈": "⌉"}
_OPENING = frozenset(CLOSING)
_CLOSERS = frozenset(CLOSING.values())
_INFINITIES = ("inf", "infty", "infinity", "oo")


def split_top(tokens: Sequence[Token], signs: frozenset[str]) -> list[tuple[str, list[Token]]]:
    """Cut at operators that stand in no bracket; each piece comes with the operator before it.

    Raises:
        Unparsed: If brackets do not match.
    """
    pieces: list[tuple[str, list[Token]]] = [("", [])]
    depth = 0
    for token in tokens:
        if token.kind == "op":
            if token.text in _OPENING:
                depth += 1
            elif token.text in _CLOSERS:
                depth -= 1
                if depth < 0:
                    raise Unparsed("a bracket is closed that was not opened")
        elif token.kind in ("begin", "end"):
            depth += 1 if token.kind == "begin" else -1
        if depth == 0 and token.text in signs and token.kind in ("op", "word", "text"):
            pieces.append((token.text, []))
        else:
            pieces[-1][1].append(token)
    if depth:
        raise Unparsed("a bracket is not closed")
    return pieces


def bracketed(tokens: Sequence[Token]) -> tuple[str, str] | None:
    """The brackets of one pair that holds all tokens, or None. Pairs may mix, as in ``(1,2]``."""
    if len(tokens) < 2 or tokens[0].text not in _OPENING or tokens[0].kind != "op":
        return None
    depth = 0
    for place, token in enumerate(tokens):
        if token.kind == "op" and token.text in _OPENING:
            depth += 1
        elif token.kind == "op" and token.text in _CLOSERS:
            depth -= 1
            if depth == 0:
                return (tokens[0].text, token.text) if place == len(tokens) - 1 else None
    return None


class ExpressionParser:
    """Recursive descent over the tokens of one expression.

    Implicit products are read, but never between two numbers: ``7 8`` is no answer. A whole number
    before a proper fraction of whole numbers is a mixed number; before an improper one it is an
    error.

    Args:
        tokens: The tokens.
        start: Where to begin.
    """

    def __init__(self, tokens: Sequence[Token], start: int = 0) -> None:
        self.tokens = list(tokens)
        self.at = start
        self.depth = 0
        self.bars = 0

    # Looking ------------------------------------------------------------------------------------

    @property
    def token(self) -> Token | None:
        """The next token, or None."""
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def sees(self, *texts: str) -> bool:
        """Whether the next token is one of these signs."""
        token = self.token
        return token is not None and token.kind == "op" and token.text in texts

    def take(self, *texts: str) -> bool:
        """Step over the next token if it is one of these signs."""
        if self.sees(*texts):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Step over a sign that has to be there."""
        if not self.take(text):
            found = self.token
            raise Unparsed(f"expected {text!r}, found {found.text if found else 'the end'!r}")

    def whole(self) -> Node:
        """The expression, which has to take all tokens."""
        node = self.sum()
        if self.token is not None:
            raise Unparsed(f"{self.token.text!r} is left over")
        return node

    # Sums and products --------------------------------------------------------------------------

    def sum(self) -> Node:
        """Terms joined by signs."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unparsed("nested too deeply")
        terms = [self.signed()]
        while True:
            if self.take("+"):
                terms.append(self.signed())
            elif self.take("-"):
                terms.append(Node("neg", (self.signed(),)))
            elif self.sees("±", "∓"):
                sign = "pm" if self.take("±") else "mp"
                self.take("∓")
                terms.append(Node(sign, (self.signed(),)))
            else:
                break
        node = terms[0] if len(terms) == 1 else Node("add", tuple(terms))
        token = self.token
        if token is not None and token.kind == "cmd" and token.text in ("choose", "over"):
            self.at += 1
            below = self.sum()
            chosen = token.text == "choose"
            node = Node("fn", (node, below), "binom") if chosen else Node("div", (node, below))
        self.depth -= 1
        return node

    def signed(self) -> Node:
        """A term with at most one sign before it."""
        if self.take("+"):
            return self.term()
        if self.take("-"):
            return negative(self.term())
        if self.take("±"):
            return Node("pm", (self.term(),))
        if self.take("∓"):
            return Node("mp", (self.term(),))
        return self.term()

    def term(self) -> Node:
        """Factors; a product sign may be left out."""
        node = self.power()
        mixed = self._mixed(node)
        node = mixed or node
        may_adjoin = mixed is None
        quotients = 0
        while True:
            token = self.token
            if token is None or quotients > MAX_DEPTH:
                return node
            if self.take("*"):
                factor = self._factor_after_sign()
                node = product(node, factor)
            elif self.take("/"):
                factor = self._factor_after_sign()
                if node.op == "num" and factor.op == "percent" and factor.args[0].op == "num":
                    # 1/4% is a quarter of a percent, not one over four percent.
                    node = Node("percent", (Node("div", (node, factor.args[0])),))
                else:
                    node = Node("div", (node, factor))
                quotients += 1
            elif self._adjoins(token, node, may_adjoin):
                node = product(node, self.power())
            else:
                return node
            may_adjoin = True

    def _factor_after_sign(self) -> Node:
        if self.take("-"):
            return negative(self.power())
        self.take("+")
        factor = self.power()
        return self._mixed(factor) or factor

    def _adjoins(self, token: Token, node: Node, allowed: bool) -> bool:
        """Whether the token begins a factor that stands beside the last one without a sign."""
        if token.kind == "num":
            before = self.tokens[self.at - 1]
            if before.kind == "op" and before.text == ")":
                return True
            raise Unparsed(f"{before.text} {token.text}: numbers side by side")
        if token.kind == "word":
            return not is_unit(self.tokens, self.at)
        if token.kind == "cmd":
            if token.text == "frac" and self._literal(self.at - 1) and not allowed:
                raise Unparsed("two fractions side by side")
            return token.text not in ("to", "Rightarrow", "implies", "iff", "forall", "choose",
                                      "over", "pmod", "bmod", "mod")  # fmt: skip
        if token.kind == "begin":
            raise Unparsed("a matrix within a product")
        if token.text == "|":  # within bars it closes them
            return token.kind == "op" and self.bars == 0
        return token.kind == "op" and token.text in ("(", "[", "{", "⌊", "⌈")

    def _literal(self, place: int) -> bool:
        return place >= 0 and self.tokens[place].kind == "num"

    def _mixed(self, node: Node) -> Node | None:
        r"""``2\frac{1}{2}`` and ``2 1/2``."""
        before = self.tokens[self.at - 1]
        digits = node.op == "num" and before.kind == "num" and before.text.isdigit()
        if not digits or node.value.denominator != 1:
            return None
        token = self.token
        if token is None:
            return None
        if token.kind == "cmd" and token.text == "frac":
            start = self.at
            part = self.atom()
            if part.op == "div" and all(a.op == "num" and a.places is None for a in part.args):
                return self._postfix(mixed_number(node.value, part))
            self.at = start
            return None
        tokens, at = self.tokens, self.at
        if (
            token.kind == "num"
            and token.space
            and token.text.isdigit()
            and at + 2 < len(tokens)
            and tokens[at + 1].text == "/"
            and tokens[at + 2].kind == "num"
            and tokens[at + 2].text.isdigit()
        ):
            self.at += 3
            above, below = token.value, tokens[at + 2].value
            assert above is not None
            assert below is not None
            return self._postfix(mixed_number(node.value, Node("div", (num(above), num(below)))))
        return None

    # Powers -------------------------------------------------------------------------------------

    def power(self) -> Node:
        """An atom with what follows it: powers, factorials, degrees, percent."""
        return self._postfix(self.atom())

    def _postfix(self, node: Node) -> Node:
        start = self.at
        while True:
            if self.at - start > 4 * MAX_DEPTH:
                raise Unparsed("too many powers")
            if self.take("^"):
                node = Node("pow", (node, self.exponent()))
            elif self.sees("!"):
                self.at += 1
                node = Node("fact", (node,))
            elif self.take("°"):
                node = Node("degree", (node,))
            elif self.take("%"):
                node = Node("percent", (node,))
            elif self.take("_"):
                node = indexed(node, self._raw_argument(), self.tokens[self.at - 1])
            elif self.sees("'") and node.op == "sym":
                self.at += 1
                node = Node("sym", (), node.value + "'")
            else:
                return node

    def exponent(self) -> Node:
        """What stands after ``^``."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unparsed("nested too deeply")
        if self.sees("{"):
            node = self.braces()
        elif self.take("-"):
            node = Node("neg", (self.exponent(),))
        else:
            self.take("+")
            node = self.atom()
            if self.take("^"):
                node = Node("pow", (node, self.exponent()))
        self.depth -= 1
        return node

    # Atoms --------------------------------------------------------------------------------------

    def atom(self) -> Node:
        """A number, a name, or something in brackets."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unparsed("nested too deeply")
        node = self._atom()
        self.depth -= 1
        return node

    def _atom(self) -> Node:
        token = self.token
        if token is None:
            raise Unparsed("the expression breaks off")
        if token.kind == "num":
            self.at += 1
            return num(token.value or 0, token.places)
        if token.kind == "word":
            return self.word()
        if token.kind == "cmd":
            self.at += 1
            return self.command(token.text)
        if token.kind == "text":
            return self.text()
        if token.text in ("(", "["):
            self.at += 1
            node = self.sum()
            self.expect(CLOSING[token.text])
            return node
        if token.text == "{":
            return self.braces()
        if token.text in ("⌊", "⌈"):
            self.at += 1
            node = self.sum()
            self.expect(CLOSING[token.text])
            return Node("fn", (node,), "floor" if token.text == "⌊" else "ceil")
        if token.text == "|":
            self.at += 1
            self.bars += 1
            node = self.sum()
            self.bars -= 1
            self.expect("|")
            return Node("fn", (node,), "abs")
        raise Unparsed(f"{token.text!r} where a value should stand")

    def braces(self) -> Node:
        """A LaTeX group."""
        self.expect("{")
        node = self.sum()
        if self.token is not None and self.token.kind == "cmd" and self.token.text in (
            "choose", "over"
        ):  # fmt: skip
            chosen = self.token.text == "choose"
            self.at += 1
            below = self.sum()
            node = Node("fn", (node, below), "binom") if chosen else Node("div", (node, below))
        self.expect("}")
        return node

    def word(self) -> Node:
        """A run of letters: a function, a constant, or variables side by side."""
        token = self.token
        assert token is not None
        self.at += 1
        name = token.text
        if name in FUNCTIONS and (len(name) > 2 or name in ("ln", "lg")):
            return self.function(FUNCTIONS[name])
        if name.lower() in _INFINITIES:
            return Node("const", (), "inf")
        if name in ("pi", "Pi", "PI") or name in GREEK:
            return named(name.lower() if name.lower() == "pi" else name)
        if len(name) == 1:
            return self.letter(name)
        if len(name) > 3 or not name.isascii():
            raise Unparsed(f"the word {name!r} in an expression")
        # Variables side by side; a power belongs to the last one.
        letters = [named(letter) for letter in name]
        if self.sees("^", "_", "!"):
            self.at -= 1
            rest = name[-1]
            self.tokens[self.at] = Token("word", rest)
            return Node("mul", (*letters[:-1], self.power()))
        return Node("mul", tuple(letters))

    def letter(self, name: str) -> Node:
        """A variable, or a function of one letter such as ``f(x)``."""
        if name in "fghPF" and self.sees("(") and not self.tokens[self.at].space:
            self.at += 1
            args = [self.sum()]
            while self.take(","):
                args.append(self.sum())
            self.expect(")")
            return Node("fn", tuple(args), f"call {name}")
        if name == "C" and self.sees("("):  # C(5, 2)
            start = self.at
            self.at += 1
            above = self.sum()
            if self.take(","):
                below = self.sum()
                self.expect(")")
                return Node("fn", (above, below), "binom")
            self.at = start
        return named(name)

    def text(self) -> Node:
        """A name set as text, such as the unit of an inner quantity; only names of one letter."""
        token = self.token
        assert token is not None
        if token.text.lower() in ("degrees", "degree"):
            raise Unparsed("a unit where a value should stand")
        if len(token.text) == 1 and token.text.isalpha():
            self.at += 1
            return Node("sym", (), f"text {token.text}")
        raise Unparsed(f"the text {token.text!r} in an expression")

    def command(self, name: str) -> Node:
        """A LaTeX command that stands for a value."""
        if name == "frac":
            above = self.argument()
            return Node("div", (above, self.argument()))
        if name == "binom":
            above = self.argument()
            return Node("fn", (above, self.argument()), "binom")
        if name in ("sqrt", "cbrt"):
            index: Node = num(3 if name == "cbrt" else 2)
            if name == "sqrt" and self.take("["):
                index = self.sum()
                self.expect("]")
            inner = self.braces() if self.sees("{") else self.atom()
            return Node("root", (inner, index))
        if name in FUNCTIONS:
            return self.function(FUNCTIONS[name])
        if name == "infty":
            return Node("const", (), "inf")
        if name == "pi" or name in GREEK:
            return named(name)
        if name in ("boxed", "fbox", "ensuremath", "mathchoice"):
            return self.braces()
        if name in ("overline", "bar", "vec", "hat", "tilde", "overrightarrow"):
            return Node("sym", (), f"{name} {flat(self._raw_argument())}")
        if name in ("bbR", "bbZ", "bbN", "bbQ", "bbC"):
            return Node("sym", (), name)
        if name in ("angle", "triangle"):
            return Node("sym", (), f"{name} {flat(self._raw_argument())}")
        raise Unparsed(f"the command \\{name}")

    def argument(self) -> Node:
        """A group, or the next single digit, letter or command, as TeX reads it."""
        if self.sees("{"):
            return self.braces()
        token = self.token
        if token is None:
            raise Unparsed("an argument is missing")
        if token.kind in ("num", "word") and len(token.text) > 1 and token.text.isalnum():
            first, rest = token.text[0], token.text[1:]
            value = Fraction(int(rest)) if rest.isdigit() else None
            self.tokens[self.at] = Token(token.kind, rest, value=value)
            return num(int(first)) if first.isdigit() else named(first)
        if token.kind in ("num", "word", "cmd") or token.text == "(":
            return self.atom()
        raise Unparsed(f"{token.text!r} as an argument")

    def _raw_argument(self) -> list[Token]:
        """The tokens of the next group, or the next token."""
        if not self.sees("{"):
            token = self.token
            if token is None:
                raise Unparsed("an argument is missing")
            self.at += 1
            return [token]
        depth, start = 0, self.at + 1
        while self.token is not None:
            if self.sees("{"):
                depth += 1
            elif self.sees("}"):
                depth -= 1
                if depth == 0:
                    self.at += 1
                    return self.tokens[start : self.at - 1]
            self.at += 1
        raise Unparsed("a brace is not closed")

    def function(self, name: str) -> Node:
        """A function with its argument, and a power or a base between the two."""
        base: Node | None = None
        exponent: Node | None = None
        while self.sees("^", "_"):
            if self.take("^"):
                exponent = self.exponent()
            else:
                self.at += 1
                base = self.argument() if not self.sees("{") else self.braces()
        if self.take("(", "["):
            closing = ")" if self.tokens[self.at - 1].text == "(" else "]"
            args = [self.sum()]
            while self.take(","):
                args.append(self.sum())
            self.expect(closing)
        elif self.sees("{"):
            args = [self.braces()]
        else:
            args = [self._bare_argument()]
        if exponent == num(-1):
            if name not in ("sin", "cos", "tan"):
                raise Unparsed(f"{name}^-1")
            return Node("fn", tuple(args), f"a{name}")
        if base is not None and name != "log":
            raise Unparsed(f"{name} with an index")
        node = function(name, args, base)
        return node if exponent is None else Node("pow", (node, exponent))

    def _bare_argument(self) -> Node:
        r"""``\sin 2x``: numbers, names and powers up to the next sign."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unparsed("nested too deeply")
        node = self.power()
        while True:
            token = self.token
            joins = token is not None and (
                (token.kind == "word" and token.text not in FUNCTIONS and not is_unit(
                    self.tokens, self.at))
                or (token.kind == "cmd" and (token.text in GREEK or token.text in ("pi", "sqrt")))
            )  # fmt: skip
            if not joins and not (node.op == "num" and self.sees("/") and self._number_next()):
                break
            if self.take("/"):
                node = Node("div", (node, self.power()))
            else:
                node = product(node, self.power())
        self.depth -= 1
        return node

    def _number_next(self) -> bool:
        return self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].kind == "num"
