"""Rewritings of an answer: those that keep what it says, and those that do not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

Rewriting = Callable[[str], str]

_FRACTION = re.compile(r"(?<!\d)(?<!\d )\\[dt]?frac\s*\{(-?\d+)\}\{(\d+)\}")
_ROOT = re.compile(r"\\sqrt\{([^{}]+)\}")
_DEGREE = re.compile(r"\^\\circ")

SAME: dict[str, Rewriting] = {
    "blanks around": lambda a: f"  {a} \n",
    "dollars": lambda a: f"${a}$",
    "double dollars": lambda a: f"$${a}$$",
    "round delimiters": lambda a: f"\\({a}\\)",
    "square delimiters": lambda a: f"\\[ {a} \\]",
    "a box": lambda a: f"\\boxed{{{a}}}",
    "a box in dollars": lambda a: f"$\\boxed{{{a}}}$",
    "a full stop": lambda a: f"{a}.",
    "bold": lambda a: f"**{a}**",
    "braces": lambda a: f"{{{a}}}",
    "display style": lambda a: f"\\displaystyle {a}",
    "prose": lambda a: f"The answer is {a}",
    "prose in dollars": lambda a: f"The final answer is ${a}$.",
    "dfrac": lambda a: re.sub(r"\\d?frac", r"\\dfrac", a),
    "tfrac": lambda a: re.sub(r"\\d?frac", r"\\tfrac", a),
    "slashes": lambda a: _FRACTION.sub(r"(\1/\2)", a),
    "blanks around signs": lambda a: re.sub(r"(?<=[\w)}])([+=<>])(?=[\w(\\])", r" \1 ", a),
    "no blanks": lambda a: (
        a
        if re.search(r"\d \d|\\[a-z]+ [A-Za-z]|\d \\frac", a)
        else (a.replace(" ", "") if "text" not in a and "mbox" not in a else a)
    ),
    "thin blanks": lambda a: a.replace(", ", ",\\, "),
    "left and right": lambda a: a.replace("\\left", "").replace("\\right", ""),
    "sized brackets": lambda a: (
        re.sub(r"(?<![\\a-z])\((.*)\)(?![\w^])", r"\\left(\1\\right)", a)
        if a.count("(") == a.count(")") == 1
        else a
    ),
    "degree sign": lambda a: _DEGREE.sub("°", a),
    "degrees in braces": lambda a: _DEGREE.sub(r"^{\\circ}", a),
    "root sign": lambda a: _ROOT.sub(r"√{\1}", a),
    "sqrt function": lambda a: a if "\\pm" in a else _ROOT.sub(r"sqrt(\1)", a),
    "pi sign": lambda a: a.replace("\\pi", "π"),
    "infinity sign": lambda a: a.replace("\\infty", "∞"),
    "union sign": lambda a: a.replace("\\cup", "∪"),
    "typographic minus": lambda a: a.replace("-", "−"),
    "bmatrix": lambda a: a.replace("pmatrix", "bmatrix"),
    "braced powers": lambda a: re.sub(r"\^(\d)", r"^{\1}", a),
    "star powers": lambda a: re.sub(r"\^(\d)", r"**\1", a) if "\\mbox" not in a else a,
    "cdot": lambda a: re.sub(r"(?<=\d)(?=\\sqrt|\\pi)", r"\\cdot ", a),
    "text as bold": lambda a: a.replace("\\text{", "\\textbf{"),
    "mathrm": lambda a: a.replace("\\text{(", "\\mathrm{("),
}


def wrong_neighbours(answer: str) -> Iterator[tuple[str, str]]:
    """Answers that differ from this one in one number, sign, bracket or letter."""
    for place, found in enumerate(re.finditer(r"\d+", answer)):
        start, end = found.span()
        if (
            answer[max(0, start - 5) : start] == "\\frac"
            or answer[:start].endswith("frac ")
            or place > 4
        ):
            continue
        yield f"number {place} + 1", answer[:start] + str(int(found[0]) + 1) + answer[end:]
        if int(found[0]):
            yield f"number {place} twice", answer[:start] + found[0] * 2 + answer[end:]
    if re.fullmatch(r"\d[\d.,]*|\\frac\{\d+\}\{\d+\}|\d*\\sqrt\{\d+\}", answer) and answer != "0":
        yield "negative", f"-{answer}"
        yield "tenfold", f"{answer} \\times 10"
        yield "plus one", f"{answer} + 1"
        yield "two answers", f"{answer}, {answer}1"
        yield "an alternative", f"{answer} \\text{{ or }} 0"
        yield "more or less", f"{answer} \\pm 1"
        yield "inequality", f"x > {answer}"
    if answer.startswith("("):
        yield "other bracket", "[" + answer[1:]
    if "\\cup" in answer:
        yield "intersection", answer.replace("\\cup", "\\cap")
        yield "one part", answer.partition("\\cup")[0].strip()
    if re.search(r"\d[a-z]|[a-z]\^", answer) and "\\" not in answer:
        yield "other variable", re.sub(r"(?<![a-z])([a-z])(?![a-z])", "q", answer, count=1)
    if "\\sqrt" in answer:
        yield "no root", answer.replace("\\sqrt", "")
    if "\\pi" in answer:
        yield "no pi", answer.replace("\\pi", "")
    if re.fullmatch(r"\\text\{\(?[A-E]\)?\}", answer):
        yield "other letter", answer.translate(str.maketrans("ABCDE", "BCDEA"))
    if answer.startswith("\\text{") and len(answer) > 10:
        yield "other word", "\\text{something else}"
    yield "nothing", ""
    yield "a question", "?"
    yield "a refusal", "\\text{cannot be determined}"


_ADDEND = re.compile(r"(-?\d+) ([+-]) (\d*)(i|\\sqrt\{\d+\}|\\pi|[a-z])")


def equivalents(answer: str) -> Iterator[tuple[str, str]]:
    """Other expressions of the same value, for the forms where they are easily made."""
    if re.fullmatch(r"-?\d+", answer):
        n = int(answer)
        yield "decimals", f"{n}.0"
        yield "fraction", f"\\frac{{{2 * n}}}{{2}}"
        yield "plus sign", f"{'+' if n >= 0 else ''}{answer}"
        yield "unit", f"{answer} \\text{{ cm}}"
        yield "set of one", f"\\{{{answer}\\}}"
        if abs(n) > 999:
            yield "commas", f"{n:,}"
            yield "LaTeX commas", f"{n:,}".replace(",", "{,}")
            yield "thin blanks", f"{n:,}".replace(",", "\\,")
            yield "blanks", f"{n:,}".replace(",", " ")
            yield "float", f"{n}e0"
    found = re.fullmatch(r"(-?)\\frac\{(\d+)\}\{(\d+)\}", answer)
    if found:
        above, below = int(found[2]), int(found[3])
        yield "larger terms", f"{found[1]}\\frac{{{3 * above}}}{{{3 * below}}}"
        yield "minus above", f"\\frac{{{found[1]}{above}}}{{{below}}}"
        yield "quotient", f"{found[1]}{above}/{below}"
        yield "long decimal", f"{found[1]}{above / below:.12f}"
        if above > below and above % below and not found[1]:
            yield "mixed", f"{above // below}\\frac{{{above % below}}}{{{below}}}"
            yield "mixed in plain text", f"{above // below} {above % below}/{below}"
    found = re.fullmatch(r"(\d*)\s*\\sqrt\{(\d+)\}", answer)
    if found:
        factor = int(found[1] or 1)
        yield "under the root", f"\\sqrt{{{factor**2 * int(found[2])}}}"
        yield "power of a half", f"{factor} \\cdot {found[2]}^{{1/2}}"
        yield "rational denominator", f"\\frac{{{factor * int(found[2])}}}{{\\sqrt{{{found[2]}}}}}"
    found = _ADDEND.fullmatch(answer)
    if found:
        sign = "" if found[2] == "+" else "-"
        yield "other order", f"{sign}{found[3]}{found[4]} + {found[1]}"
    if re.fullmatch(r"-?\d*\.\d+", answer):
        yield "trailing zeros", f"{answer}00"
        whole, _, decimals = answer.partition(".")
        yield "a fraction", f"\\frac{{{int(whole + decimals)}}}{{{10 ** len(decimals)}}}"
    if re.fullmatch(r"\((-?\d+), ?(-?\d+)\)", answer):
        yield "wide", answer.replace("(", "( ").replace(",", " , ").replace(")", " )")
        yield "decimals in a pair", re.sub(r"(\d+)", r"\1.0", answer)
    if re.fullmatch(r"(-?\d+, ?)+-?\d+", answer) and not re.fullmatch(r"\d{1,3}(,\d{3})+", answer):
        items = [item.strip() for item in answer.split(",")]
        yield "other order", ", ".join(reversed(items))
        yield "a set", f"\\{{{', '.join(items)}\\}}"
        yield "and", f"{', '.join(items[:-1])} \\text{{ and }} {items[-1]}"
    if re.fullmatch(r"[\w\s+^-]+", answer) and re.search(r"[a-z]", answer) and "_" not in answer:
        yield "minus minus", f"-(-({answer}))"
        yield "doubled and halved", f"\\frac{{2({answer})}}{{2}}"
    if answer.startswith("y ="):
        yield "other side", f"{answer.partition('=')[2].strip()} = y"
        yield "without the left side", answer.partition("=")[2].strip()
