# ruff: noqa: E501 - code that is replaced stands as it is
"""The faults of the package that the agent is given, and of the twelve that its tests must catch.

Each fault is a list of replacements in the reference: ``(file, old, new)``; ``old`` stands there
exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["MUTANTS", "SEEDED", "replaced"]

Replacement = tuple[str, str, str]

#: Faults of the package at the start: those of plain arithmetic, then what is not there yet.
SEEDED: dict[str, list[Replacement]] = {
    "exponent of a literal": [("expressions.py", r"(?:[eE][+-]?\d+)?)|(?P<name>", ")|(?P<name>")],
    "leading point": [("expressions.py", r"(?:\d+\.?\d*|\.\d+)", r"(?:\d+\.?\d*)")],
    "power groups from the left": [
        (
            "expressions.py",
            """        if self.peek() == "^":
            _, position = self.take()
            return self.raised(base, self.signed(), position)
""",
            """        while self.peek() == "^":
            _, position = self.take()
            base = self.raised(base, self.atom(), position)
""",
        )
    ],
    "sign binds most": [
        (
            "expressions.py",
            """        literal = self.peek() == "number"
        base = self.atom()
""",
            """        literal = self.peek() == "number"
        if self.peek() == "-":
            self.take()
            base = self.atom()
            base = Quantity(-base.value, base.powers)
        else:
            base = self.atom()
""",
        ),
        (
            "expressions.py",
            'if self.peek() in ("+", "-"):\n            sign, _',
            'if self.peek() == "+":\n            sign, _',
        ),
    ],
    "groups from the right": [
        (
            "expressions.py",
            'while self.peek() in ("+", "-"):\n            sign, position = self.take()\n            other = self.product()',
            'while self.peek() in ("+", "-"):\n            sign, position = self.take()\n            other = self.sum()',
        ),
        (
            "expressions.py",
            "sign, position = self.take()\n            other = self.signed()\n",
            "sign, position = self.take()\n            other = self.product()\n",
        ),
    ],
    "errors": [
        (
            "expressions.py",
            '        if self.peek() != "end":\n            text, position = self.take()\n            raise ExpressionError(f"unexpected {text!r}", position)\n        return value\n\n    def sum',
            "        return value\n\n    def sum",
        ),
        (
            "expressions.py",
            "        self.position = position\n",
            "        self.position = position + 1\n",
        ),
    ],
    "no units": [
        (
            "expressions.py",
            '            if text not in self.units:\n                raise ExpressionError(f"unknown unit {text!r}", position)\n            return self.units[text]\n',
            '            raise ExpressionError("units are not supported yet", position)\n',
        ),
        (
            "expressions.py",
            '        if literal and self.peek() == "name":\n            return base.times(self.power())\n',
            "",
        ),
        (
            "expressions.py",
            '            if not value.same_kind(other):\n                raise DimensionError("different kinds are added", position)\n',
            "",
        ),
        (
            "expressions.py",
            '        if exponent.powers:\n            raise DimensionError("an exponent carries a unit", position)\n',
            "",
        ),
        (
            "expressions.py",
            """    units = read_table() if units is None else units
    value, target = evaluate(text, units), evaluate(unit, units)
    if not value.same_kind(target):
        raise DimensionError(f"{text!r} cannot be told in {unit!r}", 0)
    if target.value == 0:
        raise ExpressionError("a unit cannot be 0", 0)
    return str(value.value / target.value)
""",
            '    raise NotImplementedError("units are not supported yet")\n',
        ),
    ],
    "search without memory": [
        (
            "conversion.py",
            """    reached = {source: Fraction(1)}
    if source == target:
        return reached[source]
    wave = [source]
    while wave:
        following = []
        for unit in wave:
            for other, factor in neighbours(unit).items():
                if other in reached:
                    continue
                reached[other] = reached[unit] * Fraction(factor)
                if other == target:
                    return reached[other]
                following.append(other)
        wave = following
    raise NoRoute(f"no conversion leads from {source!r} to {target!r}")
""",
            """    if source == target:
        return Fraction(1)
    for other in sorted(neighbours(source)):
        try:
            rest = find_factor(other, target, neighbours)
        except NoRoute:
            continue
        return Fraction(neighbours(source)[other]) * rest
    raise NoRoute(f"no conversion leads from {source!r} to {target!r}")
""",
        )
    ],
    "version": [("__init__.py", '"0.2.0"', '"0.1.0"')],
}

#: Faulty implementations, one replacement list each, for the tests that the agent writes.
MUTANTS: dict[str, list[Replacement]] = {
    "exponent sign lost": [("expressions.py", "return Quantity(Fraction(text))", 'return Quantity(Fraction(text.replace("e-", "e")))')],
    "power groups from the left": SEEDED["power groups from the left"],
    "sign binds most": SEEDED["sign binds most"],
    "minus groups from the right": [SEEDED["groups from the right"][0]],
    "quotient groups from the right": [SEEDED["groups from the right"][1]],
    "trailing text accepted": [SEEDED["errors"][0]],
    "positions count from 1": [SEEDED["errors"][1]],
    "kinds are not compared": [("quantities.py", "return self.powers == other.powers", "return True")],
    "powers of units are not raised": [("quantities.py", "power * exponent for name", "power for name")],
    "units stand unsorted": [("quantities.py", "for name in sorted(self.powers):", "for name in sorted(self.powers, reverse=True):")],
    "literals bind like a product": [
        ("expressions.py", "            return base.times(self.power())\n", "            base = base.times(self.atom())\n            if self.peek() == \"^\":\n                _, position = self.take()\n                return self.raised(base, self.signed(), position)\n")
    ],
    "conversion upside down": [("expressions.py", "str(value.value / target.value)", "str(target.value / value.value)")],
}  # fmt: skip


def replaced(sources: Mapping[str, str], faults: Iterable[list[Replacement]]) -> dict[str, str]:
    """The sources with faults in them.

    Raises:
        ValueError: If what is to be replaced does not stand there exactly once.
    """
    made = dict(sources)
    for fault in faults:
        for name, old, new in fault:
            if made[name].count(old) != 1:
                raise ValueError(f"{made[name].count(old)} places in {name} for {old!r}")
            made[name] = made[name].replace(old, new)
    return made
