"""A calculator: arithmetic as people and models write it, exact where it can be.

It reads text with the grader's own parser and evaluates the tree; nothing is ever run.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from envs.math_reasoning.grading.evaluation import Box, Evaluator
from envs.math_reasoning.grading.intervals import Undefined
from envs.math_reasoning.grading.lexer import plain_characters, tokenize
from envs.math_reasoning.grading.nodes import Unparsed, symbols
from envs.math_reasoning.grading.parser import ExpressionParser
from envs.math_reasoning.grading.wrapping import unwrap

__all__ = ["CalculatorError", "calculate"]

#: Longest input, in characters.
MAX_CHARS = 500
_DIGITS = 12
_MAX_BITS = 4_000
_MAX_WHOLE = 10**40


class CalculatorError(ValueError):
    """The input has no value; the message says why, in words for the one who wrote it."""


def calculate(text: str) -> str:
    """The value of an expression.

    Numbers, ``+ - * / ^``, brackets, roots, factorials, ``sin cos tan ln log exp abs floor ceil``
    and the constants pi and e; LaTeX or plain.

    Args:
        text: The expression.

    Returns:
        A whole number; a fraction with its decimal value, such as ``7/3 = 2.33333333333``; or a
        decimal number, to twelve digits.

    Raises:
        CalculatorError: If the text is no expression, or has no real value.
    """
    if len(text) > MAX_CHARS:
        raise CalculatorError(f"the input is longer than {MAX_CHARS} characters")
    shown = unwrap(plain_characters(text.strip().rstrip("=").strip()))
    if not shown:
        raise CalculatorError("the input is empty")
    try:
        node = ExpressionParser(tokenize(shown)).whole()
        names = sorted(symbols(node))
        if names:
            raise CalculatorError(f"{names[0]!r} has no value")
        value = Evaluator(40, max_bits=_MAX_BITS, real=True).value(node)
    except (Unparsed, Undefined) as error:
        raise CalculatorError(str(error)) from None
    except RecursionError:
        raise CalculatorError("the input is nested too deeply") from None
    return _shown(value)


def _shown(value: Fraction | Box) -> str:
    if isinstance(value, Fraction):
        if value.denominator == 1 and abs(value) < _MAX_WHOLE:
            return str(value.numerator)
        decimal = _decimal(Decimal(value.numerator) / Decimal(value.denominator))
        short = max(abs(value.numerator), value.denominator) < 10**12
        if not short or _ends(value.denominator):
            return decimal
        return f"{value} = {decimal}"
    if value.im is not None and value.excludes_reals:
        raise CalculatorError("the value is not real")
    if not value.re[0].is_finite() or not value.re[1].is_finite():
        raise CalculatorError("the value is too large")
    return _decimal(value.re[0])


def _ends(denominator: int) -> bool:
    """Whether a fraction's decimals end within the digits shown."""
    return 10**_DIGITS % denominator == 0


def _decimal(value: Decimal) -> str:
    text = f"{value:.{_DIGITS}g}"
    if "e" not in text and "." in text:
        text = text.rstrip("0").rstrip(".")
    return text
