"""Words that answers are written with: numbers, units, functions, connectives."""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = [
    "CURRENCY",
    "FUNCTIONS",
    "GREEK",
    "MAGNITUDES",
    "NOT_A_UNIT",
    "SHORT_UNITS",
    "UNITS",
    "Unit",
    "number_words",
    "unit_of",
    "words",
]

#: A unit: its dimension (or its own name) and its size in the dimension's base unit.
Unit = tuple[str, Fraction]


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


GREEK = frozenset(
    words(
        "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda "
        "mu nu xi rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi "
        "Pi Sigma Phi Psi Omega ell hbar"
    )
)

FUNCTIONS = {
    "sin": "sin", "cos": "cos", "tan": "tan", "cot": "cot", "sec": "sec", "csc": "csc",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "asin": "asin", "acos": "acos", "atan": "atan", "ln": "ln", "log": "log",
    "lg": "log", "exp": "exp", "abs": "abs", "sqrt": "sqrt", "cbrt": "cbrt", "floor": "floor",
    "ceil": "ceil", "ceiling": "ceil", "gcd": "gcd", "lcm": "lcm", "min": "min", "max": "max",
}  # fmt: skip

_SMALL = words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen"
)
_TENS = words("twenty thirty forty fifty sixty seventy eighty ninety")
_NUMBERS: dict[str, int] = {word: value for value, word in enumerate(_SMALL)}
_NUMBERS |= {word: 10 * value for value, word in enumerate(_TENS, 2)}

#: Words that multiply the number before them.
MAGNITUDES = {
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}

_PARTS = {
    "half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4,
    "fourths": 4, "fifth": 5, "fifths": 5, "sixth": 6, "sixths": 6, "seventh": 7, "sevenths": 7,
    "eighth": 8, "eighths": 8, "ninth": 9, "ninths": 9, "tenth": 10, "tenths": 10,
}  # fmt: skip


def number_words(text: str) -> Fraction | None:
    """The number that English words spell, for instance ``twenty-one`` or ``two thirds``."""
    words = re.sub(r"[-\s]+", " ", text.strip().lower()).split(" ")
    if not 1 <= len(words) <= 12:
        return None
    sign = 1
    if words[0] in ("minus", "negative"):
        sign, words = -1, words[1:]
    if not words:
        return None
    if words[-1] in _PARTS:
        above = number_words(" ".join(words[:-1])) if len(words) > 1 else Fraction(1)
        if len(words) == 2 and words[0] in ("a", "an"):
            above = Fraction(1)
        whole = above is not None and above.denominator == 1
        return sign * above / _PARTS[words[-1]] if whole and above is not None else None
    total, group, digit = 0, 0, False
    for place, word in enumerate(words):
        if word in _NUMBERS:
            value = _NUMBERS[word]
            # "twenty one" adds, "one two" is no number.
            if digit and not (group % 100 in range(20, 100, 10) and 1 <= value <= 9):
                return None
            group, digit = group + value, True
        elif word in MAGNITUDES and (digit or (place == 1 and words[0] == "a")):
            group = max(group, 1)
            if word in ("hundred", "dozen"):
                group, digit = group * MAGNITUDES[word], False
            else:
                total, group, digit = total + group * MAGNITUDES[word], 0, False
        elif not (word == "and" and 0 < place < len(words) - 1) and not (
            word == "a" and place == 0 and len(words) > 1
        ):
            return None
    return Fraction(sign * (total + group))


def _table() -> dict[str, Unit]:
    table: dict[str, Unit] = {}

    def add(dimension: str, size: Fraction | int, names: str) -> None:
        for name in names.split():
            table[name] = (dimension, Fraction(size))

    for dimension, base, stems in (
        ("length", Fraction(1), "m meter metre"),
        ("mass", Fraction(1), "g gram gramme"),
        ("volume", Fraction(1), "l liter litre"),
    ):
        short, *long = stems.split()
        for prefix, word, size in (
            ("", "", Fraction(1)),
            ("k", "kilo", Fraction(1000)),
            ("c", "centi", Fraction(1, 100)),
            ("m", "milli", Fraction(1, 1000)),
            ("d", "deci", Fraction(1, 10)),
        ):
            add(dimension, base * size, f"{prefix}{short}")
            for stem in long:
                add(dimension, base * size, f"{word}{stem} {word}{stem}s")
    add("volume", 1, "L")
    add("volume", Fraction(1, 1000), "mL")
    add("length", Fraction(254, 10000), "inch inches in")
    add("length", Fraction(3048, 10000), "foot feet ft")
    add("length", Fraction(9144, 10000), "yard yards yd yds")
    add("length", Fraction(1609344, 1000), "mile miles mi")
    add("mass", Fraction(45359237, 100000), "pound pounds lb lbs")
    add("mass", Fraction(45359237, 1600000), "ounce ounces oz")
    add("mass", 1000, "kilo kilos")
    add("mass", 10**6, "ton tons tonne tonnes")
    add("gallon", 1, "gallon gallons gal")
    add("gallon", Fraction(1, 4), "quart quarts qt")
    add("gallon", Fraction(1, 8), "pint pints pt")
    add("gallon", Fraction(1, 16), "cup cups")
    add("time", Fraction(1, 1000), "millisecond milliseconds ms")
    add("time", 1, "s second seconds sec secs")
    add("time", 60, "minute minutes min mins")
    add("time", 3600, "h hour hours hr hrs")
    add("time", 86400, "day days")
    add("time", 604800, "week weeks wk wks")
    add("month", 1, "month months")
    add("month", 12, "year years yr yrs")
    add("dollar", 1, "dollar dollars usd USD buck bucks")
    add("dollar", Fraction(1, 100), "cent cents ¢")
    add("euro", 1, "euro euros eur EUR")
    add("pound sterling", 1, "gbp GBP")
    add("rupee", 1, "rupee rupees Rs")
    add("yen", 1, "yen")
    add("yuan", 1, "yuan")
    add("degree", 1, "degree degrees deg")
    add("radian", 1, "radian radians rad rads")
    add("rate", Fraction(1609344, 3600000), "mph")
    add("rate", Fraction(1000, 3600), "kph kmph kmh")
    add("unit", 1, "unit units")
    add("percent", 1, "percent pct")
    return table


UNITS = _table()

CURRENCY = {"$": "dollars", "¢": "cents", "€": "euros", "£": "gbp", "¥": "yen", "₹": "rupees"}

#: One letter: a unit only after a number and a blank.
SHORT_UNITS = frozenset(words("m g s h l L"))

#: Words after a number that change what it says, so that they are no unit.
NOT_A_UNIT = frozenset(
    words(
        "and or not is are was be if but than then more less fewer most least at almost about "
        "over under above below squared cubed factorial plus minus times divided modulo mod "
        "remainder to of out through until from between wrong incorrect false no none maybe "
        "perhaps possibly either neither nor except excluding half dozen hundred thousand "
        "million billion trillion point power root base greater larger smaller equals equal "
        "because since so therefore hence should which where when for with without other "
        "others also any all every each option options answer answers guess unless up down "
        "off into versus vs"
    )
)

_AFTER_A_UNIT = frozenset(
    words("old long tall wide high deep away apart each total altogether in celsius fahrenheit")
)

_SQUARE = re.compile(r"^(square|sq\.?|cubic|cu\.?)\s+(.+)$")
_POWER = re.compile(r"^(.+?)\s*(?:\^?\s*\{?\s*([23])\s*\}?|\b(squared|cubed))$")


def unit_of(phrase: str) -> Unit | None:
    """The unit that a phrase names, or None where it names none.

    Unknown nouns are units of their own: ``apples`` has the dimension ``apple``.
    """
    text = re.sub(r"\s+", " ", phrase.strip().strip(".")).strip()
    if not text or len(text) > 60:
        return None
    for candidate in (text, text.lower()):
        if candidate in UNITS:
            return UNITS[candidate]
    text = text.lower()
    found = _SQUARE.match(text)
    if found:
        inner = unit_of(found[2])
        return inner and _raise(inner, 2 if found[1].startswith("s") else 3)
    found = _POWER.match(text)
    if found:
        inner = unit_of(found[1])
        exponent = int(found[2]) if found[2] else (2 if found[3] == "squared" else 3)
        return inner and _raise(inner, exponent)
    parts = re.split(r"\s*/\s*|\s+per\s+", text)
    if len(parts) == 2:
        above, below = unit_of(parts[0]), unit_of(parts[1])
        if above is None or below is None:
            return None
        if (above[0], below[0]) == ("length", "time"):
            return ("rate", above[1] / below[1])
        return (f"{above[0]}/{below[0]}", above[1] / below[1])
    words = re.findall(r"[a-z]+(?:['’-][a-z]+)*", text)
    if " ".join(words) != text or not 1 <= len(words) <= 4:
        return None
    if any(word in NOT_A_UNIT or word in _NUMBERS for word in words):
        return None
    if len(words) > 1 and words[0] in UNITS:
        # "feet tall" is feet; other combinations say something else
        return UNITS[words[0]] if all(word in _AFTER_A_UNIT for word in words[1:]) else None
    if all(len(word) < 3 for word in words):
        return None
    if words[-1] in UNITS:  # "small cups", "whole units"
        return (f"{' '.join(words[:-1])} {UNITS[words[-1]][0]}", UNITS[words[-1]][1])
    return (_singular(" ".join(words)), Fraction(1))


def _raise(unit: Unit, exponent: int) -> Unit:
    return (f"{unit[0]}^{exponent}", unit[1] ** exponent)


def _singular(word: str) -> str:
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("s", "")):
        if word.endswith(ending) and not word.endswith("ss"):
            return word[: -len(ending)] + instead
    return word
