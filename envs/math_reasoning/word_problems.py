"""Word problems of several steps, made from numbers, with every step checked.

A problem is a chain of quantities in which each is computed from the one before and, now and then,
from another one further back: a directed acyclic graph that the question asks the last node of.
``make(split, index)`` depends on its arguments alone, in every process.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from agentgym.answering import check_sizes

__all__ = [
    "Generator",
    "GeneratorConfig",
    "Problem",
    "Step",
    "Theme",
    "check",
    "phrases",
]

Difficulty = Literal["small", "full"]
Range = tuple[int, int]

SPLITS = ("train", "validation", "test")
# Of ten problems one belongs to each evaluation split.
_SHARES = 10
_UNPACK = struct.Struct("<21Q").unpack
_ATTEMPTS = 20_000

_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
}
_NUMBER = re.compile(r"\d+")
_BY_KIND = {
    "more": "+", "fewer": "-", "times": "*", "half": "/", "both": "+", "together": "+",
    "compare": "-",
}  # fmt: skip
_ASKED = ("together", "compare")
_TOGETHER, _MORE = "together", "more"


class Theme(NamedTuple):
    """What a problem is about: ``Mia has 3 apples``, ``How many apples does Mia have?``."""

    verb: str
    auxiliary: str
    base: str
    items: str

    @property
    def plural_auxiliary(self) -> str:
        """The auxiliary after which two people stand."""
        return "do" if self.auxiliary == "does" else self.auxiliary


_SMALL_THEMES = tuple(Theme("has", "does", "have", items) for items in ("apples", "coins", "cards"))
_FULL_THEMES = (
    *(
        Theme("has", "does", "have", items)
        for items in ("apples", "marbles", "stamps", "stickers", "books", "shells", "pencils")
    ),
    *(Theme("picked", "did", "pick", items) for items in ("apples", "flowers", "plums", "peppers")),
    *(Theme("read", "did", "read", items) for items in ("pages", "chapters", "stories")),
    *(Theme("baked", "did", "bake", items) for items in ("cookies", "muffins", "pies", "rolls")),
    *(Theme("saved", "did", "save", items) for items in ("dollars", "coins", "coupons")),
    *(Theme("sold", "did", "sell", items) for items in ("tickets", "candles", "lamps", "jars")),
    *(Theme("planted", "did", "plant", items) for items in ("trees", "seeds", "bulbs")),
)
_SMALL_NAMES = ("Mia", "Tom", "Ana", "Ben", "Eva", "Max", "Lea", "Sam")
_FULL_NAMES = (
    "Mia", "Tom", "Ana", "Ben", "Lucy", "Omar", "Nora", "Ivan", "Rosa", "Hugo", "Dina", "Karl",
    "Maya", "Paul", "Vera", "Sami", "Jana", "Luis", "Eva", "Noah", "Tara", "Finn", "Lena", "Amir",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorConfig:
    """What problems are like.

    Attributes:
        difficulty: ``full``, or ``small``: short problems over a closed vocabulary.
        steps: Fewest and most computations; None means (2, 6), small: (1, 2).
        distractors: Fewest and most sentences that do not matter; None means (0, 2), small: (0, 0).
        max_number: Largest number in a problem; None means 5000, small: 99.
        sizes: Number of problems in ``train``, ``validation`` and ``test``.
        seed: Another one gives other problems.

    Raises:
        ValueError: If a value is out of range; the message names it.
    """

    difficulty: Difficulty = "full"
    steps: Range | None = None
    distractors: Range | None = None
    max_number: int | None = None
    sizes: tuple[int, int, int] = (10_000, 500, 500)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.difficulty not in ("small", "full"):
            raise ValueError(f"difficulty must be 'small' or 'full', got {self.difficulty!r}")
        names = len(_SMALL_NAMES if self.difficulty == "small" else _FULL_NAMES)
        _check_range("steps", self.steps, 1, 12)
        _check_range("distractors", self.distractors, 0, 6)
        most = self.step_range[1] + 1 + self.distractor_range[1]
        if most > names:
            raise ValueError(
                f"{most} people are needed for steps={self.step_range} and "
                f"distractors={self.distractor_range}; {self.difficulty!r} has {names} names"
            )
        if self.max_number is not None and not 20 <= self.max_number <= 10**9:
            raise ValueError(f"max_number must be between 20 and 10**9, got {self.max_number!r}")
        check_sizes(self.sizes)
        if type(self.seed) is not int:
            raise ValueError(f"seed must be an int, got {self.seed!r}")

    @property
    def step_range(self) -> Range:
        """Fewest and most steps."""
        return self.steps or ((1, 2) if self.difficulty == "small" else (2, 6))

    @property
    def distractor_range(self) -> Range:
        """Fewest and most distractors."""
        return self.distractors or ((0, 0) if self.difficulty == "small" else (0, 2))

    @property
    def limit(self) -> int:
        """Largest number."""
        return self.max_number or (99 if self.difficulty == "small" else 5000)


def _check_range(name: str, value: Any, low: int, high: int) -> None:
    if value is None:
        return
    whole = isinstance(value, tuple) and len(value) == 2 and all(type(n) is int for n in value)
    if not whole or not low <= value[0] <= value[1] <= high:
        raise ValueError(
            f"{name} must be a pair of ints with {low} <= fewest <= most <= {high}, got {value!r}"
        )


class Step(NamedTuple):
    """One computation: ``left operation right = result``, of what ``subject`` has."""

    subject: str
    left: int
    operation: str
    right: int
    result: int

    def sentence(self, theme: Theme) -> str:
        """The step in words."""
        sum_ = f"{self.left} {self.operation} {self.right} = {self.result}"
        if self.subject == _TOGETHER:
            return f"Together that makes {sum_} {theme.items}."
        if self.subject == _MORE:
            return f"The difference is {sum_} {theme.items}."
        return f"{self.subject} {theme.verb} {sum_} {theme.items}."

    def compact(self) -> str:
        """The step in few tokens."""
        sum_ = f"{self.left}{self.operation}{self.right}={self.result}"
        return f"{self.subject.lower()} {sum_};"


class _Relation(NamedTuple):
    """How a quantity follows from the one before: by a number, or with another quantity."""

    kind: str
    number: int
    other: int


class _Plan(NamedTuple):
    """A problem in numbers."""

    theme: int
    people: tuple[int, ...]
    relations: tuple[_Relation, ...]
    values: tuple[int, ...]
    extra: tuple[tuple[int, int], ...]


class Problem(NamedTuple):
    """A question with its answer.

    Attributes:
        question: The text.
        answer: The number asked for.
        theme: What it is about.
        names: Who has the quantities, in order.
        plan: The problem in numbers.
    """

    question: str
    answer: int
    theme: Theme
    names: tuple[str, ...]
    plan: _Plan

    @property
    def given(self) -> tuple[int, ...]:
        """The numbers that stand in the text and matter."""
        return tuple(r.number for r in self.plan.relations if r.number)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The computations that lead to the answer, in order."""
        return self.worked(lambda result: result)

    def worked(self, write: Callable[[int], int]) -> tuple[Step, ...]:
        """The computations as someone writes them who may slip; later ones build on the slip.

        Args:
            write: From the result of a computation to what is written.
        """
        values: list[int] = []
        out = []
        for place, (kind, number, other) in enumerate(self.plan.relations):
            if kind == "base":
                values.append(number)
                continue
            left, right = values[-1], number or 2
            if kind in ("both", "together"):
                left, right = values[other], left
            elif kind == "compare":
                left, right = max(left, values[other]), min(left, values[other])
            operation = _BY_KIND[kind]
            result = write(_OPERATIONS[operation](left, right))
            values.append(result)
            subject = {"together": _TOGETHER, "compare": _MORE}.get(kind) or self.names[place]
            out.append(Step(subject, left, operation, right, result))
        return tuple(out)


def check(problem: Problem) -> None:
    """Check every step of a problem by computing it anew.

    Raises:
        ValueError: If a step is wrong or uses a number from nowhere, or if the answer stands in
            the text.
    """
    known = {*problem.given}
    in_text = {int(number) for number in _NUMBER.findall(problem.question)}
    for step in problem.steps:
        if step.operation == "/" and step.left % step.right:
            raise ValueError(f"{step} leaves a remainder")
        if _OPERATIONS[step.operation](step.left, step.right) != step.result:
            raise ValueError(f"{step} is wrong")
        for number in (step.left, step.right):
            if number not in known and not (number == 2 and step.operation == "/"):
                raise ValueError(f"{step} uses {number}, which is neither given nor computed")
        known.add(step.result)
    if not problem.steps or problem.steps[-1].result != problem.answer:
        raise ValueError(f"the last step does not give {problem.answer}")
    if problem.answer in in_text:
        raise ValueError(f"the answer {problem.answer} stands in the question")


class Generator:
    """Makes the problems of one configuration.

    Args:
        config: What they are like.
    """

    def __init__(self, config: GeneratorConfig | None = None) -> None:
        self.config = config or GeneratorConfig()
        small = self.config.difficulty == "small"
        self._names = _SMALL_NAMES if small else _FULL_NAMES
        self._themes = _SMALL_THEMES if small else _FULL_THEMES
        self._limit = self.config.limit
        self._first = max(self._limit // 4, 9)
        self._steps = range(self.config.step_range[0], self.config.step_range[1] + 1)
        distractors = self.config.distractor_range
        self._distractors = range(distractors[0], distractors[1] + 1)

    def make(self, split: str, index: int) -> Problem:
        """Problem number ``index`` of a split. No problem is in two splits.

        Raises:
            ValueError: If the split is unknown.
            RuntimeError: If the configuration is so narrow that no problem is found.
        """
        if split not in SPLITS:
            raise ValueError(f"split must be one of {SPLITS}, got {split!r}")
        home = SPLITS.index(split)
        key = f"{self.config.seed}/{split}/{index}/"
        for attempt in range(_ATTEMPTS):
            plan = self._plan(_draws(f"{key}{attempt}"))
            if plan is not None:
                problem = self._told(plan)
                if _home(problem.question) == home:
                    return problem
        raise RuntimeError(
            f"no problem of split {split!r} was found for {self.config}; allow larger numbers "
            "or more steps"
        )

    def _plan(self, draws: tuple[int, ...]) -> _Plan | None:
        """Draw a problem; None where a number is too large or the answer stands in the text."""
        limit = self._limit
        kinds = draws[0]
        steps = self._steps[(kinds & 0xFFFF) % len(self._steps)]
        distractors = self._distractors[(kinds >> 16 & 0xFFFF) % len(self._distractors)]
        theme = (kinds >> 32) % len(self._themes)
        first = 2 + (draws[1] * self._first >> 64)
        values = [first]
        relations = [_Relation("base", first, -1)]
        asked = False
        for place in range(3, steps + 3):
            drawn = _drawn(draws[place], values, limit, place == steps + 2)
            if drawn is None:
                return None
            relation, result = drawn
            relations.append(relation)
            values.append(result)
            asked = relation[0] in _ASKED
        answer = values.pop()
        extra = [
            (2 + ((draw >> 32) * (limit // 2) >> 32), draw & 0xFFFFFFFF)
            for draw in draws[steps + 3 : steps + 3 + distractors]
        ]
        # The answer is nowhere in the text, nor on the way.
        if (
            answer in values
            or answer in [r[1] for r in relations]
            or answer in [e[0] for e in extra]
        ):
            return None
        people = _chosen(draws[2], len(self._names), len(relations) - asked + distractors)
        values.append(answer)
        return _Plan(theme, people, tuple(relations), tuple(values), tuple(extra))

    def _told(self, plan: _Plan) -> Problem:
        theme = self._themes[plan.theme]
        verb, items = theme.verb, theme.items
        names = tuple([self._names[person] for person in plan.people])
        sentences: list[str] = []
        ask = ""
        last = ""
        for place, (kind, number, other) in enumerate(plan.relations):
            if kind == "together":
                many = f"How many {items} {theme.plural_auxiliary} {names[other]} and {last}"
                ask = f"{many} {theme.base} together?"
                break
            if kind == "compare":
                more, less = last, names[other]
                if plan.values[place - 1] < plan.values[other]:
                    more, less = less, more
                ask = f"How many more {items} {theme.auxiliary} {more} {theme.base} than {less}?"
                break
            name = names[place]
            if kind == "more":
                sentences.append(f"{name} {verb} {number} more {items} than {last}.")
            elif kind == "fewer":
                sentences.append(f"{name} {verb} {number} fewer {items} than {last}.")
            elif kind == "times":
                sentences.append(f"{name} {verb} {number} times as many {items} as {last}.")
            elif kind == "half":
                sentences.append(f"{name} {verb} half as many {items} as {last}.")
            elif kind == "both":
                pair = f"{names[other]} and {last}"
                sentences.append(f"{name} {verb} as many {items} as {pair} together.")
            else:
                sentences.append(f"{name} {verb} {number} {items}.")
            last = name
        if plan.extra:
            idle = names[len(names) - len(plan.extra) :]
            for name, (number, where) in zip(idle, plan.extra, strict=True):
                at = 1 + (where * len(sentences) >> 32)
                sentences.insert(at, f"{name} {verb} {number} {items}.")
        sentences.append(ask or f"How many {items} {theme.auxiliary} {last} {theme.base}?")
        return Problem(" ".join(sentences), plan.values[-1], theme, names, plan)


def _drawn(choice: int, values: list[int], limit: int, final: bool) -> tuple[_Relation, int] | None:
    """A relation to the last quantity, and its result; None where there is no room."""
    last = values[-1]
    share = choice >> 32
    if final and len(values) > 1 and choice & 3 == 0:  # the question asks for two together
        other = share * (len(values) - 1) >> 32
        if choice & 4:
            result = last + values[other]
            return (_Relation("together", 0, other), result) if result <= limit else None
        result = abs(last - values[other])
        return (_Relation("compare", 0, other), result) if result else None
    kind = (choice >> 8 & 0xFFFF) % 5
    if kind == 4 and len(values) > 1:
        other = share * (len(values) - 1) >> 32
        if last + values[other] <= limit:
            return _Relation("both", 0, other), last + values[other]
    if kind == 3 and last > 3 and not last & 1:
        return _Relation("half", 0, 0), last >> 1
    if kind == 2 and last * 2 <= limit:
        number = 2 + (share * min(limit // last - 1, 5) >> 32)
        return _Relation("times", number, 0), last * number
    if kind == 1 and last > 3:
        number = 2 + (share * (last - 3) >> 32)
        return _Relation("fewer", number, 0), last - number
    room = min(limit - last, max(limit // 3, 9)) - 1
    if room < 1:
        return None
    number = 2 + (share * room >> 32)
    return _Relation("more", number, 0), last + number


# Numbers ---------------------------------------------------------------------------------------


def _draws(key: str) -> tuple[int, ...]:
    """As many 64-bit numbers as the longest problem needs, from one block of SHAKE-128."""
    return _UNPACK(hashlib.shake_128(key.encode()).digest(168))


def _chosen(draw: int, size: int, count: int) -> tuple[int, ...]:
    """Different numbers below ``size``, by the first exchanges of a shuffle."""
    pool = list(range(size))
    for place in range(count):
        draw, other = divmod(draw, size - place)
        other += place
        pool[place], pool[other] = pool[other], pool[place]
    return tuple(pool[:count])


def _home(question: str) -> int:
    """The split a question belongs to: a checksum of its text."""
    return {0: 2, 1: 1}.get(zlib.crc32(question.encode()) % _SHARES, 0)


def phrases(difficulty: Difficulty) -> list[str]:
    """Words and phrases of the problems and of their compact steps, in small letters."""
    small = difficulty == "small"
    names, themes = (_SMALL_NAMES, _SMALL_THEMES) if small else (_FULL_NAMES, _FULL_THEMES)
    out = [name.lower() for name in names]
    for theme in themes:
        verb, items = theme.verb, theme.items
        out += [verb, theme.base, items, f"{items}."]
        out += [f"more {items} than", f"fewer {items} than", f"times as many {items} as"]
        out += [f"half as many {items} as", f"as many {items} as", f"how many {items}"]
        out += [f"how many more {items}", f"{theme.base}?", f"{theme.base} together?"]
        out += [theme.auxiliary, f"{theme.base} than"]
    out += ["and", "together.", "together", "more", "than", "do", ".", "?"]
    if small:  # each number is one token, to be copied as a whole
        out += [str(number) for number in range(100)]
    return list(dict.fromkeys(out))
