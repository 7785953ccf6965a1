"""From the text of an answer, LaTeX or plain, to tokens. Linear in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from envs.math_reasoning.grading.lexicon import CURRENCY, words
from envs.math_reasoning.grading.nodes import Unparsed

__all__ = ["MAX_TOKENS", "Token", "plain_characters", "tokenize"]

#: Longest answer, in tokens.
MAX_TOKENS = 1500
_MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        kind: ``num``, ``word`` (a run of letters), ``text`` (from a text command), ``cmd``, ``op``,
            ``begin`` or ``end`` (of a LaTeX environment).
        text: What it says; of a number the digits, without grouping.
        space: Blanks stand before it.
        value: Of a number its value.
        places: Of a number the decimals written, or None.
        comma: The number is grouped by commas alone, so that it could be a list.
    """

    kind: str
    text: str
    space: bool = False
    value: Fraction | None = None
    places: int | None = None
    comma: bool = False


_CHARACTERS = {
    "\u2212": "-", "\u2013": "-", "\u2014": "-", "\u2010": "-", "\u2011": "-", "\u2012": "-",
    "\ufe63": "-", "\uff0d": "-", "×": "*", "⋅": "*", "·": "*", "∙": "*", "∗": "*", "÷": "/",
    "⁄": "/", "∕": "/", "∞": "\\infty ", "≤": "<=", "≥": ">=", "⩽": "<=", "⩾": ">=", "≠": "!=",
    "≈": "\\approx ", "∪": "\\cup ", "∩": "\\cap ", "∈": "\\in ", "∅": "\\emptyset ",
    "ø": "\\emptyset ", "Ø": "\\emptyset ", "°": "\\degree ", "˚": "\\degree ", "º": "\\degree ",
    "±": "\\pm ", "∓": "\\mp ", "…": "\\ldots ", "√": "\\sqrt ", "∛": "\\cbrt ", "ℝ": "\\mathbb{R}",
    "→": "\\to ", "⇒": "\\Rightarrow ", "∠": "\\angle ", "△": "\\triangle ", "′": "'", "’": "'",
    "‘": "'", "“": '"', "”": '"', "⟨": "\\langle ", "⟩": "\\rangle ", "⌊": "\\lfloor ",
    "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil ", "∖": "\\setminus ", "∀": "\\forall ",
    "∃": "\\exists ", "∫": "\\int ", "∑": "\\sum ", "∏": "\\prod ", "ⅈ": "i", "ⅇ": "e",
    "\u00a0": " ", "\u2009": "\\,", "\u202f": "\\,", "\u2006": "\\,", "\u2007": "\\,",
    "\u2003": " ", "\u2002": " ", "\u3000": " ", "\u200b": "", "\u200c": "", "\u200d": "",
    "\u2060": "", "\ufeff": "", "\u2061": "", "\u2062": "*", "。": ".", "，": ", ", "；": "; ",
    "：": ":", "（": "(", "）": ")", "％": "%", "＝": "=", "＋": "+", "、": ", ",
    # Python and JSON read \b, \f, \t and \r in an unescaped command as control characters.
    "\x08": "\\b", "\x0c": "\\f",
}  # fmt: skip
_GREEK = dict(
    zip("αβγδεζηθικλμνξπρστυφχψω", words(
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho "
        "sigma tau upsilon phi chi psi omega"
    ), strict=True)
)  # fmt: skip
_CHARACTERS |= {letter: f"\\{name} " for letter, name in _GREEK.items()}
_CHARACTERS |= {"Γ": "\\Gamma ", "Δ": "\\Delta ", "Θ": "\\Theta ", "Λ": "\\Lambda ",
                "Π": "\\Pi ", "Σ": "\\Sigma ", "Φ": "\\Phi ", "Ψ": "\\Psi ", "Ω": "\\Omega ",
                "ϕ": "\\phi ", "µ": "\\mu "}  # fmt: skip
_CHARACTERS |= {
    sign: f"\\frac{{{above}}}{{{below}}}"
    for sign, above, below in (
        ("½", 1, 2), ("⅓", 1, 3), ("⅔", 2, 3), ("¼", 1, 4), ("¾", 3, 4), ("⅕", 1, 5), ("⅖", 2, 5),
        ("⅗", 3, 5), ("⅘", 4, 5), ("⅙", 1, 6), ("⅚", 5, 6), ("⅛", 1, 8), ("⅜", 3, 8), ("⅝", 5, 8),
        ("⅞", 7, 8), ("⅐", 1, 7), ("⅑", 1, 9), ("⅒", 1, 10),
    )
}  # fmt: skip
_CHARACTERS |= {chr(0xFF10 + digit): str(digit) for digit in range(10)}
_TRANSLATION = str.maketrans(_CHARACTERS)
_SUPER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", "0123456789+-ni")
_SUB = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SUPERS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ]+")
_SUBS = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")


def plain_characters(text: str) -> str:
    """The text with typographic characters written as LaTeX or ASCII."""
    if text.isascii() and "\x08" not in text and "\x0c" not in text:
        return text
    text = _SUPERS.sub(lambda run: f"^{{{run[0].translate(_SUPER)}}}", text)
    text = _SUBS.sub(lambda run: f"_{{{run[0].translate(_SUB)}}}", text)
    return text.translate(_TRANSLATION)


_OPERATORS = {
    "le": "<=", "leq": "<=", "leqslant": "<=", "leqq": "<=", "ge": ">=", "geq": ">=",
    "geqslant": ">=", "geqq": ">=", "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "times": "*",
    "cdot": "*", "ast": "*", "bullet": "*", "div": "/", "pm": "±", "mp": "∓", "cup": "∪",
    "bigcup": "∪", "cap": "∩", "setminus": "∖", "backslash": "∖", "in": "∈", "emptyset": "∅",
    "varnothing": "∅", "ldots": "…", "dots": "…", "cdots": "…", "dotsc": "…", "dotsb": "…",
    "approx": "≈", "simeq": "≈", "lbrace": "\\{", "rbrace": "\\}", "langle": "⟨", "rangle": "⟩",
    "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "vert": "|", "mid": "|",
    "lvert": "|", "rvert": "|", "degree": "°", "colon": ":", "lbrack": "[", "rbrack": "]",
    "lparen": "(", "rparen": ")", "land": "and", "lor": "or", "wedge": "and", "vee": "or",
}  # fmt: skip
_SPACES = frozenset(
    words(
        "left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr middle "
        "displaystyle textstyle scriptstyle limits nolimits quad qquad thinspace medspace "
        "thickspace space nobreak hfill noindent enspace mathstrut strut bf rm it large Large"
    )
)
_RENAMED = {"dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "sfrac": "frac", "dbinom": "binom",
            "tbinom": "binom", "choose": "choose", "over": "over"}  # fmt: skip
_TEXTS = frozenset(
    words(
        "text mbox textbf textit textrm textnormal textsf texttt textup hbox emph textsc "
        "underline bm boldsymbol"
    )
)
_FONTS = frozenset(words("mathrm mathbf mathit mathsf mathcal mathtt operatorname mathop mathord"))

_COMMAND = re.compile(r"\\(operatorname|[A-Za-z]+)(?:(?<=operatorname)\*)?[ \t]*")
_LETTERS = re.compile(r"[^\W\d_]+")
_BLANKS = re.compile(r"[\s~]+")
_DIGITS = re.compile(r"\d+")
_GROUPS = tuple(
    (name, re.compile(rf"\d{{1,3}}(?:(?:{between})\d{{3}})+(?![\d]|,\d|\.\d*,)"))
    for name, between in (
        ("comma", ","), ("tight", r"\{,\}|,\\!\s?"), ("thin", r"\\[,;:! ]|~"), ("space", " ")
    )
)  # fmt: skip
_FRACTION = re.compile(r"\.\d+|\.(?![.\d])")
_POINT = re.compile(r"\.\d+")
_EXPONENT = re.compile(r"[eE][+-]?\d{1,6}(?![\w.^])")
_REPEATS = re.compile(r"\s?\\(?:overline|bar|dot)\s?(?:\{(\d{1,60})\}|(\d))|\((\d{1,60})\)")
_AND_SO_ON = re.compile(r"\s?(?:\.\.\.|\\l?dots|\\cdots)")
_CONNECTIVE = re.compile(r"\b(and|or)\b")
_TWO = ("**", "<=", ">=", "!=", "==", "->", "=<")
_TWO_NAMES = {"**": "^", "==": "=", "->": "→", "=<": "<="}


def tokenize(
    text: str, *, space_grouping: bool = True, thin_space_grouping: bool = True
) -> list[Token]:
    r"""Tokens of an answer.

    Args:
        text: The answer, after :func:`plain_characters`.
        space_grouping: ``1 000 000`` is one number.
        thin_space_grouping: ``1\,234`` is one number.

    Raises:
        Unparsed: If it holds a character of no meaning, or too many tokens.
    """
    return _Lexer(text, space_grouping, thin_space_grouping).run()


class _Lexer:
    def __init__(self, text: str, space: bool, thin: bool, depth: int = 0) -> None:
        if depth > _MAX_DEPTH:
            raise Unparsed("text within text, too deep")
        self.text, self.at, self.space, self.depth = text, 0, False, depth
        self.groups = tuple(
            (name, pattern)
            for name, pattern in _GROUPS
            if (space or name != "space") and (thin or name != "thin")
        )
        self.tokens: list[Token] = []

    def add(self, kind: str, text: str, **facts: object) -> None:
        if len(self.tokens) >= MAX_TOKENS:
            raise Unparsed(f"more than {MAX_TOKENS} tokens")
        self.tokens.append(Token(kind, text, self.space, **facts))  # type: ignore[arg-type]
        self.space = False

    def run(self) -> list[Token]:
        text, end = self.text, len(self.text)
        while self.at < end:
            char = text[self.at]
            if char in " \t\n\r~\x0b":
                found = _BLANKS.match(text, self.at)
                assert found
                self.at, self.space = found.end(), True
            elif (char.isdecimal() and char.isascii()) or (
                char == "." and self.at + 1 < end and text[self.at + 1] in "0123456789"
            ):
                self.number()
            elif char == "\\":
                self.command()
            elif char.isalpha():
                found = _LETTERS.match(text, self.at)
                assert found
                self.at = found.end()
                self.add("word", found[0])
            elif text.startswith("...", self.at):
                self.at += 3
                self.add("op", "…")
            elif text[self.at : self.at + 2] in _TWO:
                self.at += 2
                self.add(
                    "op", _TWO_NAMES.get(text[self.at - 2 : self.at], text[self.at - 2 : self.at])
                )
            elif char in "+-*/^_=<>!()[]{}|,;:%&.'?\"" or char in CURRENCY or char in "#@":
                self.at += 1
                self.add("op", char)
            else:
                raise Unparsed(f"character {char!r}")
        return _with_degrees(self.tokens)

    # Numbers ------------------------------------------------------------------------------------

    def number(self) -> None:
        text, start = self.text, self.at
        whole, comma = "", False
        for name, pattern in self.groups:
            found = pattern.match(text, start)
            if found and not (name == "space" and self._starts_fraction(found.end())):
                whole = "".join(_DIGITS.findall(found[0]))
                comma, self.at = name == "comma", found.end()
                break
        else:
            found = _DIGITS.match(text, start)
            if found:
                whole, self.at = found[0], found.end()
        found = (_FRACTION if whole else _POINT).match(text, self.at)
        decimals: str | None = None
        if found:
            decimals, self.at = found[0][1:], found.end()
        repeats = _REPEATS.match(text, self.at) if decimals is not None else None
        value = Fraction(int(whole + (decimals or "") or "0"), 10 ** len(decimals or ""))
        places = len(decimals) if decimals else None
        if repeats:
            self.at = repeats.end()
            period = repeats[1] or repeats[2] or repeats[3]
            value += Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(decimals or ""))
            places = None
        elif decimals and (dots := _AND_SO_ON.match(text, self.at)):
            exact = _and_so_on(whole, decimals)
            if exact is not None:
                self.at, value, places = dots.end(), exact, None
        elif found := _EXPONENT.match(text, self.at):
            exponent = int(found[0][1:])
            if abs(exponent) > 5000:
                raise Unparsed(f"exponent {exponent}")
            self.at = found.end()
            value *= Fraction(10) ** exponent
            places = max(len(decimals or "") - exponent, 0) or None
        digits = whole + (f".{decimals}" if decimals is not None else "")
        self.add("num", digits, value=value, places=places, comma=comma)

    def _starts_fraction(self, at: int) -> bool:
        """Whether a slash follows, so that blanks part a whole number and a fraction."""
        return self.text[at : at + 4].lstrip().startswith("/")

    # Commands -----------------------------------------------------------------------------------

    def command(self) -> None:
        text = self.text
        found = _COMMAND.match(text, self.at)
        if found is None:
            pair = text[self.at : self.at + 2]
            self.at += 2
            if pair in ("\\,", "\\;", "\\:", "\\!", "\\ ", "\\/", "\\>", "\\\n", "\\-"):
                self.space = True
            elif pair in ("\\{", "\\}", "\\\\"):
                self.add("op", pair)
            elif pair in ("\\%", "\\$", "\\#", "\\&", "\\_", "\\|"):
                self.add("op", pair[1])
            elif pair not in ("\\(", "\\)", "\\[", "\\]"):
                raise Unparsed(f"command {pair!r}")
            return
        name, self.at = found[1], found.end()
        if name in _SPACES:
            self.space = True
            if name in ("left", "right") and text[self.at : self.at + 1] == ".":
                self.at += 1
        elif name in ("begin", "end"):
            self.add(name, self.group())
        elif name in _TEXTS or name in _FONTS:
            self.styled(name)
        elif name in ("mathbb", "Bbb"):
            self.add("cmd", f"bb{self.group().strip()}")
        elif name in _OPERATORS:
            self.add("op", _OPERATORS[name])
        else:
            self.add("cmd", _RENAMED.get(name, name))

    def group(self) -> str:
        """The text of the braces that follow."""
        text = self.text
        if text[self.at : self.at + 1] != "{":
            start = self.at
            self.at = min(start + 1, len(text))
            return text[start : self.at]
        depth, start = 0, self.at + 1
        for place in range(self.at, len(text)):
            if text[place] == "{" and text[place - 1] != "\\":
                depth += 1
            elif text[place] == "}" and text[place - 1] != "\\":
                depth -= 1
                if depth == 0:
                    self.at = place + 1
                    return text[start:place]
        raise Unparsed("a brace is not closed")

    def styled(self, name: str) -> None:
        """Text as one token, unless it holds numbers or signs, which are read on their own."""
        content = self.group()
        spaced = content != content.lstrip()
        words = content.strip().strip("$")
        self.space = self.space or spaced
        if not words:
            self.space = True
        elif name in _FONTS and len(words) == 1 and words.isalpha():
            self.add("word", words)
        elif all(char.isalpha() or char in " .'-" for char in words):
            if name == "operatorname":
                self.add("word", words)
            else:
                for part in _CONNECTIVE.split(" ".join(words.split())):
                    if part.strip():
                        self.add("text", part.strip())
        else:
            inner = _Lexer(words, True, True, self.depth + 1)
            inner.tokens, inner.space = self.tokens, self.space
            inner.run()
            self.space = False
        if content != content.rstrip():
            self.space = True


def _and_so_on(whole: str, decimals: str) -> Fraction | None:
    """The value of ``0.333...``: the last digits, written at least twice, go on forever."""
    for size in range(1, len(decimals) // 2 + 1):
        period = decimals[-size:]
        times = 1
        while decimals.endswith(period * (times + 1)):
            times += 1
        if times * size >= 3 and times >= 2:
            head = decimals[: len(decimals) - times * size]
            base = Fraction(int((whole or "0") + head or "0"), 10 ** len(head))
            return base + Fraction(int(period), (10**size - 1) * 10 ** len(head))
    return None


def _with_degrees(tokens: list[Token]) -> list[Token]:
    r"""``^\circ`` and ``^{\circ}`` as one sign."""
    out: list[Token] = []
    for token in tokens:
        out.append(token)
        if token.kind == "cmd" and token.text == "circ":
            tail = [t.text for t in out[-3:]]
            if tail[-2:-1] == ["^"]:
                space = out[-2].space
                del out[-2:]
                out.append(Token("op", "°", space))
            elif tail[:2] == ["^", "{"]:
                space = out[-3].space
                del out[-3:]
                out.append(Token("op", "°{", space))
        elif token.text == "}" and len(out) > 1 and out[-2].text == "°{":
            space = out[-2].space
            del out[-2:]
            out.append(Token("op", "°", space))
    return out
