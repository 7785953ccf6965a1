"""code/units solved in another way: a tree first, worked out afterwards; tests as a package."""

from __future__ import annotations

__all__ = ["FILES", "TESTS"]

_PACKAGE = '''
"""Units, in one module."""
from __future__ import annotations
import json, os
from collections import deque
from fractions import Fraction as F

__version__ = "0.2.0"
__all__ = ["calculate", "convert", "find_factor", "ExpressionError", "DimensionError", "NoRoute"]

class ExpressionError(ValueError):
    position = None
class DimensionError(ExpressionError):
    ...
class NoRoute(LookupError):
    ...

def fail(kind, where, why):
    error = kind(why)
    error.position = where
    raise error

with open(os.path.join(os.path.dirname(__file__), "table.json"), encoding="utf-8") as _file:
    TABLE = {k: (F(f), {b: p for b, p in u.items() if p}) for k, (f, u) in json.load(_file).items()}

class Text:
    def __init__(self, text):
        self.text, self.at = text, 0
    def blank(self):
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.at
    def next(self):
        self.blank()
        return self.text[self.at : self.at + 1]
    def eat(self, chars):
        if self.next() and self.next() in chars:
            self.at += 1
            return self.text[self.at - 1], self.at - 1
        return None

def digits(t):
    start = t.at
    while t.text[t.at : t.at + 1].isdigit():
        t.at += 1
    return t.text[start : t.at]

def number(t):
    start = t.blank()
    whole = digits(t)
    part = ""
    if t.text[t.at : t.at + 1] == "." and (whole or t.text[t.at + 1 : t.at + 2].isdigit()):
        t.at += 1
        part = digits(t)
    mark, power = t.at, 0
    if t.text[t.at : t.at + 1] in ("e", "E"):
        t.at += 1
        sign = t.text[t.at : t.at + 1] if t.text[t.at : t.at + 1] in ("+", "-") else ""
        t.at += len(sign)
        shown = digits(t)
        if shown:
            power = int(sign + shown)
            if abs(power) > 64:
                fail(ExpressionError, start, "exponent of a literal")
        else:
            t.at = mark
    return ("number", F(int((whole + part) or "0")) * F(10) ** (power - len(part)), start)

def name(t):
    start = t.blank()
    while t.text[t.at : t.at + 1].isidentifier() or t.text[t.at : t.at + 1].isdigit():
        t.at += 1
    word = t.text[start : t.at]
    if word not in TABLE:
        fail(ExpressionError, start, "unknown unit " + word)
    return ("unit", word, start)

def starts_name(t):
    return t.next().isidentifier()

def additive(t):
    left = multiplicative(t)
    while found := t.eat("+-"):
        left = (found[0], left, multiplicative(t), found[1])
    return left

def multiplicative(t):
    left = signed(t)
    while found := t.eat("*/"):
        left = (found[0], left, signed(t), found[1])
    return left

def signed(t):
    if found := t.eat("+-"):
        return ("sign", found[0], signed(t))
    return juxtaposed(t)

def juxtaposed(t):
    literal = t.next().isdigit() or t.next() == "."
    base = raised(t, primary(t))
    if literal and base[0] == "number" and starts_name(t):
        return ("*", base, raised(t, primary(t)), t.at)
    return base

def raised(t, base):
    if found := t.eat("^"):
        return ("^", base, signed_power(t), found[1])
    return base

def signed_power(t):
    if found := t.eat("+-"):
        return ("sign", found[0], signed_power(t))
    return juxtaposed(t)

def primary(t):
    char = t.next()
    if char.isdigit() or (char == "." and t.text[t.at + 1 : t.at + 2].isdigit()):
        return number(t)
    if char.isidentifier():
        return name(t)
    if char == "(":
        where = t.at
        t.at += 1
        inner = additive(t)
        if not t.eat(")"):
            if t.next():
                fail(ExpressionError, t.at, "unexpected")
            fail(ExpressionError, where, "never closed")
        return inner
    fail(ExpressionError, t.at, "unexpected " + repr(char))

def worth(node):
    kind = node[0]
    if kind == "number":
        return node[1], {}
    if kind == "unit":
        return TABLE[node[1]]
    if kind == "sign":
        value, units = worth(node[2])
        return (-value if node[1] == "-" else value), units
    (a, ua), (b, ub), where = worth(node[1]), worth(node[2]), node[3]
    if kind in "+-":
        if ua != ub:
            fail(DimensionError, where, "kinds differ")
        return (a + b if kind == "+" else a - b), ua
    if kind == "^":
        if ub:
            fail(DimensionError, where, "an exponent with a unit")
        if b.denominator != 1 or abs(b) > 64 or (a == 0 and b < 0):
            fail(ExpressionError, where, "exponent")
        return a ** int(b), {u: p * int(b) for u, p in ua.items() if b}
    if kind == "/":
        if b == 0:
            fail(ExpressionError, where, "division by zero")
        b, ub = 1 / b, {u: -p for u, p in ub.items()}
    both = {u: ua.get(u, 0) + ub.get(u, 0) for u in {*ua, *ub}}
    return a * b, {u: p for u, p in both.items() if p}

def parsed(text):
    t = Text(text)
    tree = additive(t)
    if t.next():
        fail(ExpressionError, t.at, "unexpected")
    return worth(tree)

def calculate(text, units=None):
    value, units = parsed(text)
    return " ".join([str(value), *(u + ("" if p == 1 else f"^{p}") for u, p in sorted(units.items()))])

def convert(text, unit, units=None):
    (a, ua), (b, ub) = parsed(text), parsed(unit)
    if ua != ub:
        fail(DimensionError, 0, "kinds differ")
    if not b:
        fail(ExpressionError, 0, "nothing of it")
    return str(a / b)

def find_factor(source, target, neighbours):
    # Looks whether it is there when its turn comes, not when it is seen.
    queue, known = deque([(source, F(1))]), {source}
    while queue:
        unit, factor = queue.popleft()
        if unit == target:
            return factor
        for other, step in neighbours(unit).items():
            if other not in known:
                known.add(other)
                queue.append((other, factor * step))
    raise NoRoute(source, target)
'''  # noqa: E501

_MAIN = """
import json, sys
import units

def main(words):
    rest, options = [], {}
    words = iter(words)
    for word in words:
        if word == "--to":
            options["to"] = next(words)
        elif word in ("--json", "--version"):
            options[word] = True
        else:
            rest.append(word)
    if "--version" in options:
        print("units", units.__version__)
        return 0
    try:
        unit = options.get("to")
        value = units.calculate(rest[0]) if unit is None else units.convert(rest[0], unit)
    except units.ExpressionError as error:
        sys.stderr.write("error: " + str(error).replace("\\n", " ") + "\\n")
        return 3 if isinstance(error, units.DimensionError) else 2
    if "--json" in options:
        json.dump({"value": value, "unit": unit, "expression": rest[0]}, sys.stdout, indent=2)
    else:
        print(value, *([unit] if unit else []))
    return 0

raise SystemExit(main(sys.argv[1:]))
"""

_CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2024-06-30

### Added

+ Units
+ CLI

### Fixed

* `^`
* signs

## [0.1.0] - 2024-03-01

### Added

- Arithmetic with plain numbers.
"""

FILES = {
    "units/__init__.py": _PACKAGE,
    "units/__main__.py": _MAIN,
    "units/conversion.py": "",
    "units/expressions.py": "",
    "units/quantities.py": "",
    "CHANGELOG.md": _CHANGELOG,
}

_CASES = """
4e-2|1/25
2^3^2|512
-2^2|-4
9 - 3 - 2|4
24 / 4 / 3|2
6 m / 2 s|3 m s^-1
(2 s)^3|8 s^3
3 m^2|3 m^2
2 N / 1 kg|2 m s^-2
1 kg * 1 s * 1 m|1 kg m s
"""

# A package with a helper of its own and a file of cases, as `python -m unittest` finds it.
TESTS = {
    "tests/__init__.py": "",
    "tests/cases.txt": _CASES,
    "tests/helper.py": """
import pathlib
def cases():
    text = pathlib.Path(__file__).with_name("cases.txt").read_text()
    return [line.split("|") for line in text.strip().splitlines()]
""",
    "tests/test_all.py": """
import unittest
import units
from .helper import cases

class All(unittest.TestCase):
    def test_values(self):
        for text, due in cases():
            with self.subTest(text):
                self.assertEqual(units.calculate(text), due)

    def test_conversion(self):
        self.assertEqual(units.convert("3 km", "m"), "3000")

    def test_errors(self):
        for text, kind, where in (("1 2", units.ExpressionError, 2), ("1 m + 1 s", units.DimensionError, 4),
                                  ("1 m + 1", units.DimensionError, 4), ("3 $", units.ExpressionError, 2)):
            with self.assertRaises(kind) as caught:
                units.calculate(text)
            self.assertEqual(caught.exception.position, where)
""",  # noqa: E501
}
