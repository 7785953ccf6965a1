"""Expressions: from text to an exact quantity."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from .quantities import Quantity

#: Largest exponent, and deepest nesting, that is worked out.
LARGEST_EXPONENT = 64
DEEPEST = 50

_TOKEN = re.compile(
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign>[-+*/^()])"
)


class ExpressionError(ValueError):
    """The text is no expression; ``position`` counts characters from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} at position {position}")
        self.position = position


class DimensionError(ExpressionError):
    """Quantities of different kinds are added, converted, or used as an exponent."""


def read_table(path: Path | None = None) -> dict[str, Quantity]:
    """The units of a table: name to ``[factor, {base unit: power}]``."""
    path = path or Path(__file__).with_name("table.json")
    return as_units(json.loads(path.read_text("utf-8")))


def as_units(table: Mapping[str, Any]) -> dict[str, Quantity]:
    """The same from a table that is already read."""
    return {name: Quantity(Fraction(factor), powers) for name, (factor, powers) in table.items()}


def calculate(text: str, units: Mapping[str, Quantity] | None = None) -> str:
    """The value of an expression, such as ``"7/2 m s^-2"``."""
    return str(evaluate(text, units))


def convert(text: str, unit: str, units: Mapping[str, Quantity] | None = None) -> str:
    """The number that, times ``unit``, is the value of ``text``."""
    units = read_table() if units is None else units
    value, target = evaluate(text, units), evaluate(unit, units)
    if not value.same_kind(target):
        raise DimensionError(f"{text!r} cannot be told in {unit!r}", 0)
    if target.value == 0:
        raise ExpressionError("a unit cannot be 0", 0)
    return str(value.value / target.value)


def evaluate(text: str, units: Mapping[str, Quantity] | None = None) -> Quantity:
    """The value of an expression as a quantity."""
    return _Reader(text, read_table() if units is None else units).whole()


class _Reader:
    def __init__(self, text: str, units: Mapping[str, Quantity]) -> None:
        self.units = units
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            found = _TOKEN.match(text, at)
            if found is None:
                raise ExpressionError(f"unexpected {text[at]!r}", at)
            self.tokens.append((str(found.lastgroup), found[0], at))
            at = found.end()
        self.tokens.append(("end", "", len(text)))
        self.at = 0
        self.depth = 0

    def peek(self) -> str:
        kind, text, _ = self.tokens[self.at]
        return text if kind == "sign" else kind

    def take(self) -> tuple[str, int]:
        _, text, position = self.tokens[self.at]
        self.at += 1
        return text, position

    def whole(self) -> Quantity:
        value = self.sum()
        if self.peek() != "end":
            text, position = self.take()
            raise ExpressionError(f"unexpected {text!r}", position)
        return value

    def sum(self) -> Quantity:
        value = self.product()
        while self.peek() in ("+", "-"):
            sign, position = self.take()
            other = self.product()
            if not value.same_kind(other):
                raise DimensionError("different kinds are added", position)
            change = other.value if sign == "+" else -other.value
            value = Quantity(value.value + change, value.powers)
        return value

    def product(self) -> Quantity:
        value = self.signed()
        while self.peek() in ("*", "/"):
            sign, position = self.take()
            other = self.signed()
            if sign == "/":
                if other.value == 0:
                    raise ExpressionError("division by zero", position)
                other = other.to_power(-1)
            value = value.times(other)
        return value

    def signed(self) -> Quantity:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ExpressionError("nested too deeply", self.tokens[self.at][2])
        if self.peek() in ("+", "-"):
            sign, _ = self.take()
            value = self.signed()
            if sign == "-":
                value = Quantity(-value.value, value.powers)
        else:
            value = self.power()
        self.depth -= 1
        return value

    def power(self) -> Quantity:
        literal = self.peek() == "number"
        base = self.atom()
        if self.peek() == "^":
            _, position = self.take()
            return self.raised(base, self.signed(), position)
        if literal and self.peek() == "name":
            return base.times(self.power())
        return base

    def raised(self, base: Quantity, exponent: Quantity, position: int) -> Quantity:
        if exponent.powers:
            raise DimensionError("an exponent carries a unit", position)
        number = exponent.value
        if number.denominator != 1 or abs(number) > LARGEST_EXPONENT:
            raise ExpressionError("an exponent must be a small whole number", position)
        if base.value == 0 and number < 0:
            raise ExpressionError("division by zero", position)
        return base.to_power(int(number))

    def atom(self) -> Quantity:
        kind = self.peek()
        text, position = self.take() if kind != "end" else ("", self.tokens[self.at][2])
        if kind == "number":
            return self.number(text, position)
        if kind == "name":
            if text not in self.units:
                raise ExpressionError(f"unknown unit {text!r}", position)
            return self.units[text]
        if kind == "(":
            value = self.sum()
            if self.peek() != ")":
                raise ExpressionError("a parenthesis stays open", position)
            self.take()
            return value
        raise ExpressionError(f"unexpected {text!r}" if text else "something is missing", position)

    def number(self, text: str, position: int) -> Quantity:
        _, _, exponent = text.lower().partition("e")
        if len(text) > 200 or abs(int(exponent or 0)) > LARGEST_EXPONENT:
            raise ExpressionError("the number is out of range", position)
        return Quantity(Fraction(text))
