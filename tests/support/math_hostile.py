"""Answers made to hang, crash, fool or run something; more than four hundred of them."""

from __future__ import annotations

from collections.abc import Iterator

_LONG = 100_000
GOLDS = ("7", "\\frac{22}{7}", "x^2+1", "\\{1,2,3\\}", "\\sqrt{2}+\\sqrt{3}")


def hostile_answers(marker: str) -> Iterator[tuple[str, str]]:
    """Names and answers. ``marker`` is a file that running an answer would make."""
    for source in (_towers, _growth, _nested, _long, _malformed, _sums):
        yield from source()
    yield from _injections(marker)


def hostile_responses() -> Iterator[tuple[str, str]]:
    """Names and whole responses."""
    for n in (10, 1000, 10_000):
        yield f"{n} open boxes", "\\boxed{" * n
        yield f"{n} closed boxes", "\\boxed{7}" * n
        yield f"{n} boxes in boxes", "\\boxed{" * n + "7" + "}" * n
        yield f"{n} thoughts", "<think>" * n + "\\boxed{7}"
        yield f"{n} ended thoughts", "<think></think>" * n
        yield f"{n} answer tags", "<answer>" * n + "7"
        yield f"{n} hashes", "#" * n + " 7"
        yield f"{n} lines of hashes", "#### 7\n" * n
        yield f"{n} markers", "the answer is " * n
        yield f"{n} stars", "Answer: " + "*" * n + "7"
        yield f"{n} dollars", "Answer: " + "$" * n
        yield f"{n} questions", "#### 7\nQuestion: 1\n" * n
        yield f"{n} words before", "word " * n + "it is 7"
        yield f"{n} blanks", "the total is" + " " * n + "7."
        yield f"{n} digits at the end", "the total is " + "7" * n + "."
        yield f"{n} commas at the end", "the total is 7" + ",7" * n + "."
        yield f"{n} commas between boxes", "\\boxed{1}" + ", " * n + "\\boxed{2}"
        yield f"{n} closing braces", "\\boxed{7}" + "}" * n
        yield f"{n} opening braces", "{" * n + "\\boxed{7}"
        yield f"{n} backslashes", "\\" * n + "boxed{7}"


def _towers() -> Iterator[tuple[str, str]]:
    for base in ("2", "9", "10", "x", "1.5", "\\pi", "e", "(-3)"):
        for height in (3, 4, 6, 12, 30):
            yield (
                f"{base} to itself {height} times",
                "^{".join([base] * height) + "}" * (height - 1),
            )
            plain = "**".join([base] * height)
            yield f"{base} ** itself {height} times", plain
    for exponent in (
        "10^{10}",
        "10^{10^{10}}",
        "-10^{10}",
        "10^{-10}",
        "999999999999",
        "x^{999999}",
    ):
        for base in ("2", "9", "0.5", "1/3", "\\sqrt{2}", "(1+\\sqrt{2})", "i", "(x+1)"):
            yield f"{base} to the {exponent}", f"{base}^{{{exponent}}}"
    yield "a power of a power", "(9^9)^(9^9)"
    yield "powers of powers", "((((2^{99})^{99})^{99})^{99})^{99}"
    yield "a large power of a sum", "(a+b+c+d+e+f)^{200}"
    yield "products of sums", "(1+x)(1+x^2)(1+x^3)(1+x^4)(1+x^5)" * 12
    yield "variables in towers", "((x^{x})^{x})^{x}"


def _growth() -> Iterator[tuple[str, str]]:
    for n in ("10^9", "(10^9)", "999999999", "2^{64}", "x"):
        yield f"{n} factorial", f"({n})!"
        yield f"{n} factorial twice", f"(({n})!)!"
        yield f"a quotient of {n} factorials", f"\\frac{{({n})!}}{{({n}-1)!}}"
        yield f"binomial of {n}", f"\\binom{{{n}}}{{{n}/2}}"
        yield f"{n} factorial in a root", f"\\sqrt{{({n})!}}"
    for marks in (2, 5, 20, 200):
        yield f"{marks} factorials", "9" + "!" * marks
    for name in ("\\sin", "\\cos", "\\tan", "\\ln", "\\exp", "\\arctan", "\\sinh", "\\log_2"):
        yield f"{name} of a tower", f"{name}(9^{{9^{{9^{{9}}}}}})"
        yield f"{name} of itself", f"{name}(" * 30 + "1" + ")" * 30
        yield f"{name} of a long number", f"{name}({'9' * 1500})"
    for index in ("10^9", "999999", "10^{100}", "0", "-1", "1/2", "x"):
        yield f"a root of index {index}", f"\\sqrt[{index}]{{2}}"
    yield "a huge remainder", "\\gcd(10^{5000}+1, 7^{5000}+3)"
    yield "a huge floor", "\\lfloor \\pi \\cdot 10^{1000000} \\rfloor"
    yield "a small difference", "\\sqrt{2}+10^{-5000}"
    yield "a tiny difference", "7+10^{-1000000000}"
    yield "an exponent of a float", "1e999999999"
    yield "a negative exponent of a float", "1e-999999999"
    yield "many digits", "0." + "3" * 1900
    yield "a long fraction", f"\\frac{{{'7' * 900}}}{{{'3' * 900}}}"
    yield "a long repeating decimal", f"0.\\overline{{{'142857' * 10}}}"


def _nested() -> Iterator[tuple[str, str]]:
    for depth in (20, 60, 190, 5000):
        for name, opening, closing in (
            ("roots", "\\sqrt{", "}"),
            ("round brackets", "(", ")"),
            ("square brackets", "[", "]"),
            ("braces", "{", "}"),
            ("set braces", "\\{", "\\}"),
            ("bars", "|", "|"),
            ("fractions", "\\frac{1}{1+", "}"),
            ("fractions above", "\\frac{1+", "}{2}"),
            ("boxes", "\\boxed{", "}"),
            ("texts", "\\text{", "}"),
            ("exponents", "2^{", "}"),
            ("floors", "\\lfloor ", "\\rfloor "),
            ("sines", "\\sin(", ")"),
            ("left", "\\left(", "\\right)"),
        ):
            yield f"{depth} nested {name}", opening * depth + "7" + closing * depth
        yield f"{depth} roots without braces", "\\sqrt" * depth + "2"
        yield f"{depth} signs", "-" * depth + "7"
        yield f"{depth} quotients", "1/" * depth + "7"
        yield f"{depth} carets", "2^" * depth + "2"
        yield f"{depth} sums of roots", "+".join(f"\\sqrt{{{n}}}" for n in range(2, depth + 2))
        yield f"{depth} commas", ",".join(["7"] * depth)
        yield f"{depth} unions", "\\cup".join(["(1,2)"] * depth)
        yield f"{depth} signs of equality", "=".join(["7"] * depth)
        yield f"{depth} percent signs", "7" + "%" * depth
        yield f"{depth} degrees", "7" + "^\\circ" * depth
        yield f"{depth} cells", "\\begin{pmatrix}" + "&".join(["7"] * depth) + "\\end{pmatrix}"


def _long() -> Iterator[tuple[str, str]]:
    for name, unit in (
        ("digits", "7"), ("zeros", "0"), ("letters", "a"), ("blanks", " "), ("words", "seven "),
        ("dollars", "$"), ("backslashes", "\\"), ("commas", "1,"), ("groups", "111,"),
        ("dots", "."), ("signs", "+"), ("pi", "\\pi"), ("braces", "{"), ("percent", "%"),
        ("emoji", "😀"),
        ("combining marks", "\u0301"), ("zero-width", "\u200b"), ("fractions", "\\frac12"),
        ("ands", " and "), ("minus signs", "−"), ("newlines", "\n"),
        ("powers", "x^2"),
    ):  # fmt: skip
        yield f"100k of {name}", unit * (_LONG // len(unit))
        yield f"2k of {name}", (unit * 2000)[:1990]
        yield f"2k of {name} after a number", "7" + (unit * 2000)[:1980]


_MALFORMED = r"""
{ } \ \\ $ $$ ^ _ \frac \frac{1} \frac{}{} \sqrt \sqrt{} \begin{pmatrix} \end{pmatrix}
\begin{pmatrix}\end{pmatrix} \begin{x}1\end{y} \left( (7 7) [7 {7 \{7 |7 7| 7^ 7_ 7!! /7 7/
7//7 *7 7* 7** ..7 7.. 7.7.7 --7 +-+-7 7= ==7 <7 7< <7> 7<>7 7,,7 ,7 , ; : 7: nan inf -inf
1/0 0/0 0^0 0^{-1} \infty-\infty \log(0) \ln(-1) \tan(90^\circ) \text \text{ \boxed \boxed{
% \% i e \pi None True ... \ldots 7\ldots 7\pmod{3} \mathbb \mathbb{ & \& # @ ~ ` ' " 7_7
7^^7 \frac7 \binom{7} \over 7\over
"""


def _malformed() -> Iterator[tuple[str, str]]:
    odd = ("\x00", "\x007", "\ud800", "7\ud800", "\u202e7", "°", "7°°")
    for text in (*_MALFORMED.split(), *odd):
        yield f"malformed {text!r}", text


def _sums() -> Iterator[tuple[str, str]]:
    for body in (
        "\\int_0^{10^9} x^{x} dx",
        "\\sum_{k=1}^{10^9} k!",
        "\\prod_{k=1}^{10^9} k",
        "\\lim_{x\\to 0} x^{1/x}",
        "\\frac{d}{dx} x^{x^x}",
        "\\sum_{n=0}^{\\infty} \\frac{1}{n!}",
        "\\begin{cases}1&x>0\\\\2\\end{cases}",
        "x^{100}+y^{100}=z^{100}",
        "x^x^x = 5",
        "\\sin x = x",
        "x \\in \\{y : y^{9^9} > 0\\}",
    ):
        yield body, body


def _injections(marker: str) -> Iterator[tuple[str, str]]:
    touch = f"open({marker!r}, 'w').close()"
    shell = f"__import__('os').system('touch {marker}')"
    for payload in (
        touch,
        shell,
        f"({shell})",
        f"[{shell}]",
        f"\\pi+{shell}",
        f"2\\pi*exec({touch!r})",
        f"lambda: {shell}",
        f"\\text{{{shell}}}",
        f"\\sqrt{{{shell}}}",
        f"\\frac{{{shell}}}{{1}}",
        f"eval({shell!r})",
        f"x={shell}",
        f"7 if {shell} else 7",
        f"{{{shell}}}",
        f"print({shell})",
        f"7; {shell}",
        f"7\n{shell}",
        f"f'{{{shell}}}'",
        f"\\begin{{pmatrix}}{shell}&2\\end{{pmatrix}}",
        f"`touch {marker}`",
        f"$(touch {marker})",
        f"; touch {marker}",
        f"\\input{{{marker}}}",
        f"\\write18{{touch {marker}}}",
        f"().__class__.__bases__[0].__subclasses__() or {shell}",
        f"sympify({shell!r})",
        f"Symbol({shell!r})",
        f"\\operatorname{{{shell}}}(7)",
        f"\\mathrm{{{shell}}}",
        f"!touch {marker}",
        f"cos.__globals__['__builtins__']['exec']({touch!r})",
        f"__builtins__.exec({touch!r})",
        f"global x; {shell}",
    ):
        yield f"injection {payload[:40]}", payload
