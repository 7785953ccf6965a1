"""The operations that generated functions are made of.

Each says in words what it does, how Python writes it, and what it computes; the last two are
written down apart, and tests compare them. Where Python's answer for an odd input is a matter of
taste (a negative remainder, the largest of nothing), the words say it or such inputs are not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["CONDITIONS", "KINDS", "OPERATIONS", "Condition", "Kind", "Operation"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value.

    Attributes:
        name: In words, with its article.
        variable: Name of a variable that holds one.
        hint: Type annotation.
        pronoun: What instructions call it.
    """

    name: str
    variable: str
    hint: str
    pronoun: str


#: By letter: number, text, list of numbers, list of words, dictionary, truth value.
KINDS = {
    "n": Kind("an integer", "n", "int", "number"),
    "s": Kind("a string", "s", "str", "string"),
    "l": Kind("a list of integers", "xs", "list[int]", "list"),
    "w": Kind("a list of strings", "words", "list[str]", "list"),
    "d": Kind("a dictionary from strings to integers", "d", "dict[str, int]", "dictionary"),
    "b": Kind("a bool", "flag", "bool", "bool"),
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a function.

    Attributes:
        takes: Kind of its input.
        gives: Kind of its output.
        words: The instruction; ``{a}`` stands for the constant.
        code: A statement, or several lines; ``{x}`` is the input variable, ``{y}`` the output's.
        apply: What it computes, from the input and the constant; raises ValueError where it is
            not to be used.
        low: Smallest constant; constants are integers unless ``letters``.
        high: Largest constant; -1 where there is none.
        letters: The constant is a letter.
        short: The instruction for the small difficulty; the empty text leaves it out there.
        line: The statement for the small difficulty, with ``x`` for both variables.
    """

    takes: str
    gives: str
    words: str
    code: str
    apply: Callable[[Any, Any], Any]
    low: int = 0
    high: int = -1
    letters: str = ""
    short: str = ""
    line: str = ""

    @property
    def has_constant(self) -> bool:
        """Whether there is a constant to draw."""
        return self.high >= self.low or bool(self.letters)


@dataclass(frozen=True, slots=True)
class Condition:
    """What an alternative depends on."""

    takes: str
    words: str
    code: str
    holds: Callable[[Any, Any], bool]
    low: int = 0
    high: int = -1


def _positive(n: int) -> int:
    if n < 1:
        raise ValueError(n)
    return n


def _natural(n: int) -> int:
    if n < 0:
        raise ValueError(n)
    return n


def _at_most(n: int, most: int) -> int:
    if not 0 <= n <= most:
        raise ValueError(n)
    return n


def _fibonacci(n: int) -> int:
    one, other = 0, 1
    for _ in range(_at_most(n, 40)):
        one, other = other, one + other
    return one


def _divisors(n: int) -> list[int]:
    return [k for k in range(1, _at_most(_positive(n), 5000) + 1) if n % k == 0]


def _factors(n: int) -> list[int]:
    found, rest, prime = [], _at_most(_positive(n), 10**6), 2
    while rest > 1:
        if rest % prime:
            prime += 1
        else:
            found.append(prime)
            rest //= prime
    return found


def _first_kept(items: Any) -> list[Any]:
    out: list[Any] = []
    for item in items:
        if item not in out:
            out.append(item)
    return out


def _inserted(xs: list[int]) -> list[int]:
    out: list[int] = []
    for x in xs:
        place = sum(1 for other in out if other <= x)
        out[place:place] = [x]
    return out


def _running(xs: list[int]) -> list[int]:
    return [sum(xs[: place + 1]) for place in range(len(xs))]


def _shifted(s: str, a: int) -> str:
    out = ""
    for char in s:
        place = "abcdefghijklmnopqrstuvwxyz".find(char)
        out += char if place < 0 else "abcdefghijklmnopqrstuvwxyz"[(place + a) % 26]
    return out


def _run_lengths(s: str) -> str:
    out, place = "", 0
    while place < len(s):
        end = place
        while end < len(s) and s[end] == s[place]:
            end += 1
        out += f"{s[place]}{end - place}"
        place = end
    return out


def _counts(items: Any) -> dict[Any, int]:
    return {item: sum(1 for other in items if other == item) for item in items}


def _words(s: str) -> list[str]:
    return [word for word in s.split(" ") if word]


_VOWELS = "aeiouAEIOU"
_SMALL, _LOUD = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _upper(s: str) -> str:
    return "".join(_LOUD[_SMALL.index(c)] if c in _SMALL else c for c in s)


def _lower(s: str) -> str:
    return "".join(_SMALL[_LOUD.index(c)] if c in _LOUD else c for c in s)


_O = Operation

_NUMBERS = [
    _O("n", "n", "add {a}", "{y} = {x} + {a}", lambda n, a: n + a, 2, 50,
       short="add {a}", line="x = x + {a}"),
    _O("n", "n", "subtract {a}", "{y} = {x} - {a}", lambda n, a: n - a, 2, 50,
       short="subtract {a}", line="x = x - {a}"),
    _O("n", "n", "multiply it by {a}", "{y} = {x} * {a}", lambda n, a: n * a, 2, 12,
       short="multiply by {a}", line="x = x * {a}"),
    _O("n", "n", "square it", "{y} = {x} * {x}", lambda n, a: n**2,
       short="square it", line="x = x * x"),
    _O("n", "n", "change its sign", "{y} = -{x}", lambda n, a: 0 - n,
       short="change its sign", line="x = -x"),
    _O("n", "n", "take its absolute value", "{y} = abs({x})", lambda n, a: max(n, -n)),
    _O("n", "n", "take the remainder of dividing it by {a}", "{y} = {x} % {a}",
       lambda n, a: _natural(n) - n // a * a, 2, 12,
       short="remainder by {a}", line="x = x % {a}"),
    _O("n", "n", "divide it by {a} and drop the remainder", "{y} = {x} // {a}",
       lambda n, a: (_natural(n) - n % a) // a, 2, 12,
       short="divide by {a} rounded down", line="x = x // {a}"),
    _O("n", "n", "take the sum of its decimal digits",
       "{y} = sum(int(digit) for digit in str({x}))",
       lambda n, a: sum(_natural(n) // 10**k % 10 for k in range(20)),
       short="sum its digits", line="x = sum(map(int, str(x)))"),
    _O("n", "n", "write its decimal digits in reverse order and read that as a number",
       "{y} = int(str({x})[::-1])",
       lambda n, a: sum(int(c) * 10**k for k, c in enumerate(str(_natural(n)))),
       short="reverse its digits", line="x = int(str(x)[::-1])"),
    _O("n", "n", "if it is less than {a}, replace it by {a}", "{y} = max({x}, {a})",
       lambda n, a: a if n < a else n, 2, 30, short="at least {a}", line="x = max(x, {a})"),
    _O("n", "n", "if it is greater than {a}, replace it by {a}", "{y} = min({x}, {a})",
       lambda n, a: a if n > a else n, 5, 40, short="at most {a}", line="x = min(x, {a})"),
    _O("n", "n", "take the sum of all whole numbers from 1 up to it (0 if it is less than 1)",
       "{y} = sum(range(1, {x} + 1))",
       lambda n, a: n * (n + 1) // 2 if _at_most(max(n, 0), 10**5) else 0),
    _O("n", "n", "take its factorial", "result = 1\nfor i in range(2, {x} + 1):\n    result *= i\n"
       "{y} = result", lambda n, a: math.factorial(_at_most(n, 12))),
    _O("n", "n", "take the Fibonacci number with that index, where number 0 is 0 and number 1 is 1",
       "one, other = 0, 1\nfor _ in range({x}):\n    one, other = other, one + other\n{y} = one",
       lambda n, a: _fibonacci(n)),
    _O("n", "n", "take its greatest common divisor with {a}",
       "one, other = {x}, {a}\nwhile other:\n    one, other = other, one % other\n{y} = one",
       lambda n, a: math.gcd(_natural(n), a), 6, 60),
    _O("n", "n", "count the ones in its binary notation", "{y} = bin({x}).count('1')",
       lambda n, a: sum(_natural(n) >> k & 1 for k in range(60)),
       short="count its binary ones", line="x = bin(x).count('1')"),
    _O("n", "n", "if it is even, halve it; if it is odd, multiply it by 3 and add 1",
       "if {x} % 2 == 0:\n    {y} = {x} // 2\nelse:\n    {y} = 3 * {x} + 1",
       lambda n, a: 3 * n + 1 if n & 1 else n >> 1),
    _O("n", "n", "count its positive divisors",
       "{y} = sum(1 for i in range(1, {x} + 1) if {x} % i == 0)", lambda n, a: len(_divisors(n))),
    _O("n", "n", "round it up to the next multiple of {a} (a multiple stays as it is)",
       "{y} = ({x} + {a} - 1) // {a} * {a}",
       lambda n, a: _natural(n) + (-n) % a, 2, 12),
    _O("n", "s", "write it in binary without a prefix", "{y} = bin({x})[2:]",
       lambda n, a: format(_natural(n), "b"), short="write it in binary", line="x = bin(x)[2:]"),
    _O("n", "s", "write it in decimal as a string", "{y} = str({x})", lambda n, a: f"{n}"),
    _O("n", "l", "list its decimal digits from left to right",
       "{y} = [int(digit) for digit in str({x})]",
       lambda n, a: list(map("0123456789".index, str(_natural(n)))),
       short="list its digits", line="x = list(map(int, str(x)))"),
    _O("n", "l", "list the whole numbers from 1 up to it (an empty list if it is less than 1)",
       "{y} = list(range(1, {x} + 1))",
       lambda n, a: [k + 1 for k in range(_at_most(max(n, 0), 30))],
       short="count up to it from 1", line="x = list(range(1, x + 1))"),
    _O("n", "l", "list its positive divisors in increasing order",
       "{y} = [i for i in range(1, {x} + 1) if {x} % i == 0]", lambda n, a: _divisors(n)),
    _O("n", "l", "list its prime factors in increasing order, repeated as often as they divide it "
       "(1 has none)", "rest, prime, {y} = {x}, 2, []\nwhile rest > 1:\n"
       "    if rest % prime == 0:\n        {y}.append(prime)\n        rest //= prime\n"
       "    else:\n        prime += 1", lambda n, a: _factors(n)),
    _O("n", "b", "decide whether it is even", "{y} = {x} % 2 == 0", lambda n, a: not n & 1,
       short="decide whether it is even", line="x = x % 2 == 0"),
    _O("n", "b", "decide whether it is greater than {a}", "{y} = {x} > {a}",
       lambda n, a: not n <= a, 5, 40,
       short="decide whether it is greater than {a}", line="x = x > {a}"),
    _O("n", "b", "decide whether it is a prime number",
       "{y} = {x} > 1 and all({x} % i for i in range(2, {x}))",
       lambda n, a: _at_most(max(n, 0), 5000) > 1 and len(_divisors(n)) == 2),
]  # fmt: skip

_LISTS = [
    _O("l", "l", "keep only the even numbers", "{y} = [v for v in {x} if v % 2 == 0]",
       lambda xs, a: list(filter(lambda v: not v & 1, xs)),
       short="keep the even numbers", line="x = [v for v in x if v % 2 == 0]"),
    _O("l", "l", "keep only the odd numbers", "{y} = [v for v in {x} if v % 2 == 1]",
       lambda xs, a: list(filter(lambda v: v & 1, xs)),
       short="keep the odd numbers", line="x = [v for v in x if v % 2 == 1]"),
    _O("l", "l", "keep only the numbers greater than {a}", "{y} = [v for v in {x} if v > {a}]",
       lambda xs, a: [v for v in xs if not v <= a], 0, 20,
       short="keep those greater than {a}", line="x = [v for v in x if v > {a}]"),
    _O("l", "l", "keep only the numbers less than {a}", "{y} = [v for v in {x} if v < {a}]",
       lambda xs, a: [v for v in xs if not v >= a], 0, 20,
       short="keep those less than {a}", line="x = [v for v in x if v < {a}]"),
    _O("l", "l", "keep only the multiples of {a}", "{y} = [v for v in {x} if v % {a} == 0]",
       lambda xs, a: [v for v in xs if v // a * a == v], 3, 7),
    _O("l", "l", "drop the first {a} elements", "{y} = {x}[{a}:]",
       lambda xs, a: [v for place, v in enumerate(xs) if place >= a], 1, 4,
       short="drop the first {a}", line="x = x[{a}:]"),
    _O("l", "l", "keep only the first {a} elements", "{y} = {x}[:{a}]",
       lambda xs, a: [v for place, v in enumerate(xs) if place < a], 2, 5,
       short="keep the first {a}", line="x = x[:{a}]"),
    _O("l", "l", "keep only the last {a} elements", "{y} = {x}[-{a}:]",
       lambda xs, a: xs[max(len(xs) - a, 0) :], 2, 5,
       short="keep the last {a}", line="x = x[-{a}:]"),
    _O("l", "l", "reverse it", "{y} = {x}[::-1]", lambda xs, a: list(reversed(xs)),
       short="reverse it", line="x = x[::-1]"),
    _O("l", "l", "sort it in increasing order", "{y} = sorted({x})",
       lambda xs, a: _inserted(xs),
       short="sort it", line="x = sorted(x)"),
    _O("l", "l", "sort it in decreasing order", "{y} = sorted({x}, reverse=True)",
       lambda xs, a: _inserted(xs)[::-1],
       short="sort it from high to low", line="x = sorted(x, reverse=True)"),
    _O("l", "l", "square every number", "{y} = [v * v for v in {x}]",
       lambda xs, a: [v**2 for v in xs],
       short="square each", line="x = [v * v for v in x]"),
    _O("l", "l", "add {a} to every number", "{y} = [v + {a} for v in {x}]",
       lambda xs, a: [v - -a for v in xs], 2, 12,
       short="add {a} to each", line="x = [v + {a} for v in x]"),
    _O("l", "l", "multiply every number by {a}", "{y} = [v * {a} for v in {x}]",
       lambda xs, a: [sum([v] * a) for v in xs], 2, 9,
       short="multiply each by {a}", line="x = [v * {a} for v in x]"),
    _O("l", "l", "change the sign of every number", "{y} = [-v for v in {x}]",
       lambda xs, a: [0 - v for v in xs],
       short="change the sign of each", line="x = [-v for v in x]"),
    _O("l", "l", "replace every number by its absolute value", "{y} = [abs(v) for v in {x}]",
       lambda xs, a: [max(v, -v) for v in xs]),
    _O("l", "l", "remove repeated numbers, keeping the first of each",
       "seen, kept = set(), []\nfor v in {x}:\n    if v not in seen:\n        seen.add(v)\n"
       "        kept.append(v)\n{y} = kept", lambda xs, a: _first_kept(xs),
       short="remove repeats", line="x = list(dict.fromkeys(x))"),
    _O("l", "l", "replace every number by the sum of all numbers up to and including it",
       "total, sums = 0, []\nfor v in {x}:\n    total += v\n    sums.append(total)\n{y} = sums",
       lambda xs, a: _running(xs)),
    _O("l", "l", "replace it by the differences of neighbours, each number minus the one before it "
       "(a list of fewer than two numbers becomes empty)",
       "{y} = [later - earlier for earlier, later in zip({x}, {x}[1:])]",
       lambda xs, a: [xs[k] - xs[k - 1] for k in range(1, len(xs))]),
    _O("l", "l", "move its first {a} elements to the end, one after the other (an empty list stays "
       "empty)", "for _ in range({a}):\n    {y} = {x}[1:] + {x}[:1]",
       lambda xs, a: xs[a % len(xs) :] + xs[: a % len(xs)] if xs else [], 1, 4),
    _O("l", "l", "keep every second element, beginning with the first", "{y} = {x}[::2]",
       lambda xs, a: [v for place, v in enumerate(xs) if not place & 1],
       short="keep every second from the first", line="x = x[::2]"),
    _O("l", "l", "multiply every number by its position, counting positions from 0",
       "{y} = [place * v for place, v in enumerate({x})]",
       lambda xs, a: [xs[place] * place for place in range(len(xs))]),
    _O("l", "l", "replace every number greater than {a} by {a}", "{y} = [min(v, {a}) for v in {x}]",
       lambda xs, a: [a if v > a else v for v in xs], 3, 20),
    _O("l", "l", "append its length", "{y} = {x} + [len({x})]",
       lambda xs, a: [*xs, sum(1 for _ in xs)]),
    _O("l", "l", "keep only the numbers that are greater than all numbers before them",
       "kept = []\nfor v in {x}:\n    if not kept or v > kept[-1]:\n        kept.append(v)\n"
       "{y} = kept", lambda xs, a: [v for k, v in enumerate(xs) if all(u < v for u in xs[:k])]),
    _O("l", "n", "take the sum (0 for an empty list)", "{y} = sum({x})",
       lambda xs, a: _running([0, *xs])[-1],
       short="sum it", line="x = sum(x)"),
    _O("l", "n", "multiply all numbers (1 for an empty list)",
       "result = 1\nfor v in {x}:\n    result *= v\n{y} = result", lambda xs, a: math.prod(xs)),
    _O("l", "n", "take the largest number (0 for an empty list)", "{y} = max({x}, default=0)",
       lambda xs, a: sorted(xs)[-1] if xs else 0,
       short="take the largest or 0", line="x = max(x, default=0)"),
    _O("l", "n", "take the smallest number (0 for an empty list)", "{y} = min({x}, default=0)",
       lambda xs, a: sorted(xs)[0] if xs else 0,
       short="take the smallest or 0", line="x = min(x, default=0)"),
    _O("l", "n", "take its length", "{y} = len({x})", lambda xs, a: sum(1 for _ in xs),
       short="take its length", line="x = len(x)"),
    _O("l", "n", "count the numbers greater than {a}", "{y} = sum(1 for v in {x} if v > {a})",
       lambda xs, a: len([v for v in xs if not v <= a]), 0, 20,
       short="count those greater than {a}", line="x = sum(v > {a} for v in x)"),
    _O("l", "n", "count the even numbers", "{y} = sum(1 for v in {x} if v % 2 == 0)",
       lambda xs, a: len([v for v in xs if not v & 1]),
       short="count the even numbers", line="x = sum(v % 2 == 0 for v in x)"),
    _O("l", "n", "take the largest minus the smallest number (0 for an empty list)",
       "{y} = max({x}) - min({x}) if {x} else 0",
       lambda xs, a: sorted(xs)[-1] - sorted(xs)[0] if xs else 0),
    _O("l", "n", "take the first number (0 for an empty list)", "{y} = {x}[0] if {x} else 0",
       lambda xs, a: next(iter(xs), 0)),
    _O("l", "n", "take the last number (0 for an empty list)", "{y} = {x}[-1] if {x} else 0",
       lambda xs, a: next(reversed(xs), 0)),
    _O("l", "n", "count the different numbers in it", "{y} = len(set({x}))",
       lambda xs, a: len(_first_kept(xs)),
       short="count the different numbers", line="x = len(set(x))"),
    _O("l", "n", "take the first number, minus the second, plus the third, and so on, with signs "
       "alternating (0 for an empty list)", "{y} = sum({x}[::2]) - sum({x}[1::2])",
       lambda xs, a: sum(v * (-1) ** k for k, v in enumerate(xs))),
    _O("l", "n", "count the numbers that are greater than the one just before them",
       "{y} = sum(1 for earlier, later in zip({x}, {x}[1:]) if later > earlier)",
       lambda xs, a: len([k for k in range(1, len(xs)) if xs[k] > xs[k - 1]])),
    _O("l", "n", "take the second largest of its different numbers (0 if there are fewer than two)",
       "ranked = sorted(set({x}))\n{y} = ranked[-2] if len(ranked) > 1 else 0",
       lambda xs, a: max((v for v in xs if v < max(xs)), default=0)),
    _O("l", "w", "write every number in decimal as a string", "{y} = [str(v) for v in {x}]",
       lambda xs, a: [f"{v}" for v in xs]),
    _O("l", "s", "write the numbers in decimal, joined by '-' into one string",
       "{y} = '-'.join(str(v) for v in {x})", lambda xs, a: "-".join(map(str, xs))),
    _O("l", "b", "decide whether it equals its reverse", "{y} = {x} == {x}[::-1]",
       lambda xs, a: all(xs[k] == xs[-1 - k] for k in range(len(xs)))),
]  # fmt: skip

_TEXTS = [
    _O("s", "s", "turn its letters into upper case", "{y} = {x}.upper()", lambda s, a: _upper(s),
       short="make it upper case", line="x = x.upper()"),
    _O("s", "s", "turn its letters into lower case", "{y} = {x}.lower()", lambda s, a: _lower(s),
       short="make it lower case", line="x = x.lower()"),
    _O("s", "s", "reverse it", "{y} = {x}[::-1]", lambda s, a: "".join(reversed(s)),
       short="reverse it", line="x = x[::-1]"),
    _O("s", "s", "remove the vowels (a, e, i, o, u in either case)",
       "{y} = ''.join(c for c in {x} if c not in 'aeiouAEIOU')",
       lambda s, a: "".join(c for c in s if _lower(c) not in "aeiou")),
    _O("s", "s", "remove the blanks", "{y} = {x}.replace(' ', '')",
       lambda s, a: "".join(c for c in s if c != " "),
       short="remove the blanks", line="x = x.replace(' ', '')"),
    _O("s", "s", "replace every letter '{a}' by '*'", "{y} = {x}.replace('{a}', '*')",
       lambda s, a: "".join("*" if c == a else c for c in s), letters="aeinorst",
       short="replace {a} by *", line="x = x.replace('{a}', '*')"),
    _O("s", "s", "remove every letter '{a}'", "{y} = {x}.replace('{a}', '')",
       lambda s, a: "".join(c for c in s if c != a), letters="aeinorst",
       short="remove every {a}", line="x = x.replace('{a}', '')"),
    _O("s", "s", "double every character", "{y} = ''.join(c + c for c in {x})",
       lambda s, a: "".join(s[k // 2] for k in range(2 * len(s))),
       short="double each character", line="x = ''.join(c + c for c in x)"),
    _O("s", "s", "keep only the first {a} characters", "{y} = {x}[:{a}]",
       lambda s, a: "".join(c for k, c in enumerate(s) if k < a), 2, 8,
       short="keep the first {a}", line="x = x[:{a}]"),
    _O("s", "s", "drop the first {a} characters", "{y} = {x}[{a}:]",
       lambda s, a: "".join(c for k, c in enumerate(s) if k >= a), 1, 5,
       short="drop the first {a}", line="x = x[{a}:]"),
    _O("s", "s", "swap upper and lower case", "{y} = {x}.swapcase()",
       lambda s, a: "".join(_lower(c) if c in _LOUD else _upper(c) for c in s)),
    _O("s", "s", "replace every lower-case letter by the one {a} places later in the alphabet, "
       "going on with a after z", "{y} = ''.join(\n"
       "    chr((ord(c) - ord('a') + {a}) % 26 + ord('a')) if 'a' <= c <= 'z' else c\n"
       "    for c in {x}\n)", lambda s, a: _shifted(s, a), 1, 25),
    _O("s", "s", "sort its characters by their code points", "{y} = ''.join(sorted({x}))",
       lambda s, a: "".join(chr(k) for k in range(128) for _ in range(s.count(chr(k)))),
       short="sort its characters", line="x = ''.join(sorted(x))"),
    _O("s", "s", "remove repeated characters, keeping the first of each",
       "kept = ''\nfor c in {x}:\n    if c not in kept:\n        kept += c\n{y} = kept",
       lambda s, a: "".join(_first_kept(s))),
    _O("s", "s", "keep every second character, beginning with the first", "{y} = {x}[::2]",
       lambda s, a: "".join(c for k, c in enumerate(s) if not k & 1),
       short="keep every second from the first", line="x = x[::2]"),
    _O("s", "s", "replace every run of one character by the character and the length of the run, "
       "as in 'aab' becoming 'a2b1'",
       "pieces = []\nfor c in {x}:\n    if pieces and pieces[-1][0] == c:\n"
       "        pieces[-1][1] += 1\n    else:\n        pieces.append([c, 1])\n"
       "{y} = ''.join(f'{{c}}{{number}}' for c, number in pieces)",
       lambda s, a: _run_lengths(s)),
    _O("s", "n", "take its length", "{y} = len({x})", lambda s, a: sum(1 for _ in s),
       short="take its length", line="x = len(x)"),
    _O("s", "n", "count its vowels (a, e, i, o, u in either case)",
       "{y} = sum(1 for c in {x} if c in 'aeiouAEIOU')",
       lambda s, a: sum(s.count(v) for v in _VOWELS)),
    _O("s", "n", "count how often the letter '{a}' occurs in it", "{y} = {x}.count('{a}')",
       lambda s, a: len([c for c in s if c == a]), letters="aeinorst",
       short="count the letter {a}", line="x = x.count('{a}')"),
    _O("s", "n", "count its words (pieces between blanks that are not empty)",
       "{y} = len({x}.split())", lambda s, a: len(_words(s)),
       short="count its words", line="x = len(x.split())"),
    _O("s", "n", "count the different characters in it", "{y} = len(set({x}))",
       lambda s, a: len(_first_kept(s)),
       short="count the different characters", line="x = len(set(x))"),
    _O("s", "n", "count its upper-case letters", "{y} = sum(1 for c in {x} if c.isupper())",
       lambda s, a: sum(s.count(c) for c in _LOUD)),
    _O("s", "n", "find the position of its first '{a}', counting from 0 (-1 if there is none)",
       "{y} = {x}.find('{a}')", lambda s, a: s.index(a) if a in s else -1, letters="aeinorst"),
    _O("s", "w", "split it into its words (pieces between blanks that are not empty)",
       "{y} = {x}.split()", lambda s, a: _words(s),
       short="split it into words", line="x = x.split()"),
    _O("s", "d", "count how often each character occurs in it, as a dictionary",
       "counts = {{}}\nfor c in {x}:\n    counts[c] = counts.get(c, 0) + 1\n{y} = counts",
       lambda s, a: _counts(s)),
    _O("s", "b", "decide whether it equals its reverse", "{y} = {x} == {x}[::-1]",
       lambda s, a: all(s[k] == s[-1 - k] for k in range(len(s))),
       short="decide whether it equals its reverse", line="x = x == x[::-1]"),
]  # fmt: skip

_GROUPS = [
    _O("w", "w", "sort it by code points", "{y} = sorted({x})", lambda w, a: sorted(w)),
    _O("w", "w", "reverse the order of its elements", "{y} = {x}[::-1]",
       lambda w, a: list(reversed(w))),
    _O("w", "w", "keep only the strings longer than {a} characters",
       "{y} = [word for word in {x} if len(word) > {a}]",
       lambda w, a: list(filter(lambda word: word[a:], w)), 2, 6),
    _O("w", "w", "turn the letters of every string into upper case",
       "{y} = [word.upper() for word in {x}]", lambda w, a: [_upper(word) for word in w]),
    _O("w", "w", "reverse every string", "{y} = [word[::-1] for word in {x}]",
       lambda w, a: ["".join(reversed(word)) for word in w]),
    _O("w", "w", "remove repeated strings, keeping the first of each",
       "{y} = list(dict.fromkeys({x}))", lambda w, a: _first_kept(w)),
    _O("w", "w", "sort it by length, with strings of equal length in their old order",
       "{y} = sorted({x}, key=len)",
       lambda w, a: [word for size in range(60) for word in w if len(word) == size]),
    _O("w", "l", "replace every string by its length", "{y} = [len(word) for word in {x}]",
       lambda w, a: [sum(1 for _ in word) for word in w]),
    _O("w", "s", "join the strings with single blanks", "{y} = ' '.join({x})",
       lambda w, a: "".join(" " * bool(k) + word for k, word in enumerate(w))),
    _O("w", "s", "take the first characters of the strings as one string",
       "{y} = ''.join(word[:1] for word in {x})",
       lambda w, a: "".join(word[0] for word in w if word)),
    _O("w", "s", "take the longest string, the first of them if there are several (the empty "
       "string for an empty list)", "{y} = max({x}, key=len, default='')",
       lambda w, a: next((u for u in w if all(len(v) <= len(u) for v in w)), "")),
    _O("w", "n", "count its elements", "{y} = len({x})", lambda w, a: sum(1 for _ in w)),
    _O("w", "n", "take the total number of characters in its strings",
       "{y} = sum(len(word) for word in {x})", lambda w, a: len("".join(w))),
    _O("w", "d", "count how often each string occurs in it, as a dictionary",
       "counts = {{}}\nfor word in {x}:\n    counts[word] = counts.get(word, 0) + 1\n{y} = counts",
       lambda w, a: _counts(w)),
    _O("w", "d", "map every string to its length, as a dictionary",
       "{y} = {{word: len(word) for word in {x}}}",
       lambda w, a: dict(zip(w, map(len, w), strict=True))),
    _O("d", "d", "keep only the entries with a value greater than {a}",
       "{y} = {{key: value for key, value in {x}.items() if value > {a}}}",
       lambda d, a: {k: d[k] for k in d if not d[k] <= a}, 1, 12),
    _O("d", "d", "add {a} to every value",
       "{y} = {{key: value + {a} for key, value in {x}.items()}}",
       lambda d, a: {k: d[k] - -a for k in d}, 2, 12),
    _O("d", "d", "turn the letters of every key into upper case; where keys become equal, add "
       "their values", "merged = {{}}\nfor key, value in {x}.items():\n"
       "    merged[key.upper()] = merged.get(key.upper(), 0) + value\n{y} = merged",
       lambda d, a: {_upper(k): sum(d[j] for j in d if _upper(j) == _upper(k)) for k in d}),
    _O("d", "w", "list its keys, sorted by code points", "{y} = sorted({x})",
       lambda d, a: sorted(d.keys())),
    _O("d", "l", "list its values in increasing order", "{y} = sorted({x}.values())",
       lambda d, a: sorted(d[k] for k in d)),
    _O("d", "n", "take the sum of its values (0 for an empty dictionary)",
       "{y} = sum({x}.values())", lambda d, a: sum(d[k] for k in d)),
    _O("d", "n", "count its entries", "{y} = len({x})", lambda d, a: len(list(d))),
    _O("d", "s", "take the key with the largest value, the first by code points if several have it "
       "(the empty string for an empty dictionary)",
       "{y} = min({x}, key=lambda key: (-{x}[key], key), default='')",
       lambda d, a: min((k for k in d if d[k] == max(d.values())), default="")),
]  # fmt: skip

OPERATIONS: tuple[Operation, ...] = (*_NUMBERS, *_LISTS, *_TEXTS, *_GROUPS)

_C = Condition

CONDITIONS: tuple[Condition, ...] = (
    _C("n", "the number is even", "{x} % 2 == 0", lambda n, a: not n & 1),
    _C("n", "the number is greater than {a}", "{x} > {a}", lambda n, a: n > a, 3, 30),
    _C("l", "the list has more than {a} elements", "len({x}) > {a}",
       lambda xs, a: len(xs) > a, 2, 5),
    _C("l", "the sum of the list is even", "sum({x}) % 2 == 0", lambda xs, a: not sum(xs) & 1),
    _C("s", "the string has more than {a} characters", "len({x}) > {a}",
       lambda s, a: len(s) > a, 5, 15),
    _C("s", "the string contains a blank", "' ' in {x}", lambda s, a: s.find(" ") >= 0),
    _C("w", "the list has more than {a} elements", "len({x}) > {a}", lambda w, a: len(w) > a, 1, 4),
)  # fmt: skip
