"""Functions to write, made of operations, with hidden tests computed from them.

A task is a chain of operations on one value. Its instructions name each of them, so that they
determine the answer; the tests are drawn so that leaving out a step or changing a constant by one
fails at least one of them. ``make(split, index)`` depends on its arguments alone, in every process.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from agentgym.answering import check_sizes
from agentgym.dice import Dice
from agentgym.sources import SPLITS
from envs.code_reasoning.inputs import draw_inputs
from envs.code_reasoning.inside.plain import encode
from envs.code_reasoning.operations import CONDITIONS, KINDS, OPERATIONS, Condition, Operation
from envs.code_reasoning.tasks import CodeTask, ValueTest

__all__ = ["Difficulty", "Generator", "GeneratorConfig", "Plan", "Program", "Step", "phrases"]

Difficulty = Literal["small", "full"]
Range = tuple[int, int]

# Of ten tasks one belongs to each evaluation split.
_SHARES = 10
_ATTEMPTS = 5000
_NAMES = ("solve", "compute", "transform", "convert", "work_out", "build", "derive", "produce")
_PARAMETER = "k"
_MOST = 10**12  # largest number in a test
_LONGEST = 120  # longest list or text in a test


@dataclass(frozen=True, slots=True)
class GeneratorConfig:
    """What generated tasks are like.

    Attributes:
        difficulty: ``"full"``, or ``"small"``: one or two operations, one line of code, a closed
            vocabulary, constants of one digit.
        steps: Fewest and most operations.
        tests: Hidden tests of a task.
        examples: Calls shown with their results; None shows two with ``"full"``, none with
            ``"small"``.
        sizes: How many tasks there are in ``train``, ``validation`` and ``test``.
        seed: Another one gives other tasks.

    Raises:
        ValueError: If a value is out of range; the message names it.
    """

    difficulty: Difficulty = "full"
    steps: Range | None = None
    tests: int = 8
    examples: int | None = None
    sizes: tuple[int, int, int] = (10_000, 500, 500)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.difficulty not in ("small", "full"):
            raise ValueError(f"difficulty must be 'small' or 'full', got {self.difficulty!r}")
        steps = self.steps
        if steps is not None and not (
            isinstance(steps, tuple)
            and len(steps) == 2
            and all(type(n) is int for n in steps)
            and 1 <= steps[0] <= steps[1] <= 6
        ):
            raise ValueError(
                f"steps must be a pair of ints with 1 <= fewest <= most <= 6, got {steps!r}"
            )
        if type(self.tests) is not int or not 4 <= self.tests <= 50:
            raise ValueError(f"tests must be an int between 4 and 50, got {self.tests!r}")
        if self.examples is not None and (
            type(self.examples) is not int or not 0 <= self.examples <= 5
        ):
            raise ValueError(f"examples must be an int between 0 and 5, got {self.examples!r}")
        check_sizes(self.sizes)
        if type(self.seed) is not int:
            raise ValueError(f"seed must be an int, got {self.seed!r}")

    @property
    def step_range(self) -> Range:
        """Fewest and most operations."""
        return self.steps or ((1, 2) if self.difficulty == "small" else (2, 4))

    @property
    def shown(self) -> int:
        """Number of examples."""
        if self.examples is not None:
            return self.examples
        return 0 if self.difficulty == "small" else 2


class Step(NamedTuple):
    """One operation; an alternative of two, with a condition; or one repeated.

    Attributes:
        operation: What is done.
        constant: Its constant: a number, a letter, or None; ``"k"`` is the function's parameter.
        condition: What it depends on, or None.
        bound: The condition's constant.
        otherwise: What is done where it does not hold.
        other: The constant of that.
        times: How often it is done.
    """

    operation: Operation
    constant: int | str | None
    condition: Condition | None = None
    bound: int = 0
    otherwise: Operation | None = None
    other: int | str | None = None
    times: int = 1

    def apply(self, value: Any, parameter: int | None) -> Any:
        """The result for a value.

        Raises:
            ValueError: If the operation is not to be used on it.
        """
        operation, constant = self.operation, self.constant
        if self.condition is not None and not self.condition.holds(value, self.bound):
            assert self.otherwise is not None
            operation, constant = self.otherwise, self.other
        if constant == _PARAMETER:
            constant = parameter
        for _ in range(self.times):
            value = operation.apply(value, constant)
        return value

    def words(self) -> str:
        """The instruction."""
        words = self.operation.words.format(a=self.constant)
        if self.condition is not None and self.otherwise is not None:
            condition = self.condition.words.format(a=self.bound)
            other = self.otherwise.words.format(a=self.other)
            return f"if {condition}, {words}; otherwise, {other}"
        return f"do this {self.times} times: {words}" if self.times > 1 else words

    def lines(self) -> list[str]:
        """The statements."""
        x, y = KINDS[self.operation.takes].variable, KINDS[self.operation.gives].variable
        code = self.operation.code.format(x=x, y=y, a=self.constant).split("\n")
        if self.condition is not None and self.otherwise is not None:
            head = f"if {self.condition.code.format(x=x, a=self.bound)}:"
            other = self.otherwise.code.format(x=x, y=y, a=self.other).split("\n")
            return [head, *_indented(code), "else:", *_indented(other)]
        if self.times > 1:
            return [f"for _ in range({self.times}):", *_indented(code)]
        return code


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class Plan(NamedTuple):
    """A task in operations.

    Attributes:
        steps: The operations in order.
        parameter: Smallest and largest value of the second argument ``k``, or None.
    """

    steps: tuple[Step, ...]
    parameter: Range | None

    @property
    def takes(self) -> str:
        """Kind of the input."""
        return self.steps[0].operation.takes

    @property
    def gives(self) -> str:
        """Kind of the output."""
        return self.steps[-1].operation.gives

    def apply(self, args: Sequence[Any]) -> Any:
        """The result for arguments.

        Raises:
            ValueError: If an operation is not to be used on what it gets, or numbers grow too
                large.
        """
        value = args[0]
        parameter = args[1] if len(args) > 1 else None
        for step in self.steps:
            value = step.apply(value, parameter)
            if not _fits(value):
                raise ValueError("too large")
        return value


def _fits(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) < _MOST
    if len(value) > _LONGEST:
        return False
    if isinstance(value, list):
        return all(_fits(item) for item in value)
    return not isinstance(value, dict) or all(_fits(item) for item in value.values())


class Program(NamedTuple):
    """A task before it has an id.

    Attributes:
        plan: Its operations.
        name: Name of the function.
        tests: Arguments and result of each hidden test.
        examples: The same of the calls that are shown.
        small: It is of the small difficulty.
    """

    plan: Plan
    name: str
    tests: tuple[tuple[tuple[Any, ...], Any], ...]
    examples: tuple[tuple[tuple[Any, ...], Any], ...]
    small: bool

    def question(self) -> str:
        """The instructions."""
        takes, gives = KINDS[self.plan.takes], KINDS[self.plan.gives]
        if self.small:
            kind = {"n": "a number", "l": "a list of numbers", "s": "a string"}[self.plan.takes]
            steps = " ".join(f"{_short(step)}." for step in self.plan.steps)
            shown = "".join(f" {call} is {value!r}." for call, value in self._calls())
            return f"write {self.name}(x). x is {kind}. {steps}{shown}"
        lines = [f"Write a Python function `{self.head()[4:-1]}`."]
        about = f"`{takes.variable}` is {takes.name}"
        if self.plan.takes == "n":
            about += ", 0 or greater"
        if self.plan.parameter:
            about += f", and `{_PARAMETER}` is an integer from {self.plan.parameter[0]} up"
        lines.append(f"{about}. Starting from `{takes.variable}`, do these steps in order:")
        lines += [f"{n}. {step.words()}" for n, step in enumerate(self.plan.steps, 1)]
        lines.append(f"Return the result, {gives.name}.")
        if self.examples:
            lines += ["Examples:", *(f"{call} == {value!r}" for call, value in self._calls())]
        return "\n".join(lines)

    def _calls(self) -> Iterator[tuple[str, Any]]:
        for args, value in self.examples:
            yield f"{self.name}({', '.join(map(repr, args))})", value

    def head(self) -> str:
        """The function's first line."""
        if self.small:
            return f"def {self.name}(x):"
        names = [KINDS[self.plan.takes].variable] + [_PARAMETER] * bool(self.plan.parameter)
        return f"def {self.name}({', '.join(names)}):"

    def step_code(self, number: int, step: Step) -> str:
        """The statements of a step, as they stand in the function."""
        if self.small:
            return step.operation.line.format(a=step.constant) + ";"
        lines = [f"# {number}. {step.words()}", *step.lines()]
        return "\n".join(_indented(lines))

    def solution(self, steps: Sequence[Step] | None = None) -> tuple[str, ...]:
        """The function in pieces: its head, a piece for each step, and what it returns.

        Args:
            steps: Other steps than its own, as someone writes them who errs.
        """
        steps = self.plan.steps if steps is None else steps
        end = "return x" if self.small else f"    return {KINDS[self.plan.gives].variable}"
        pieces = [self.step_code(number, step) for number, step in enumerate(steps, 1)]
        return (self.head(), *pieces, end)

    def task(self, task_id: str) -> CodeTask:
        """The task under an id."""
        tests = tuple(
            ValueTest(self.name, tuple(encode(arg) for arg in args), encode(value))
            for args, value in self.tests
        )
        kinds = f"{KINDS[self.plan.takes].pronoun} to {KINDS[self.plan.gives].pronoun}"
        return CodeTask(
            task_id,
            self.question(),
            (self.name,),
            tests,
            number=len(tests),
            reference=self.solution(),
            type=kinds,
        )


def _short(step: Step) -> str:
    return step.operation.short.format(a=step.constant)


class Generator:
    """Makes the tasks of one configuration.

    Args:
        config: What they are like.
    """

    def __init__(self, config: GeneratorConfig | None = None) -> None:
        self.config = config or GeneratorConfig()
        self._small = self.config.difficulty == "small"
        self._by_kind: dict[str, list[Operation]] = {}
        for operation in OPERATIONS:
            if operation.short or not self._small:
                self._by_kind.setdefault(operation.takes, []).append(operation)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that a function may take."""
        return ("n", "l", "s") if self._small else ("n", "l", "s", "l", "s", "w", "d")

    def make(self, split: str, index: int) -> Program:
        """Task number ``index`` of a split. No chain of operations is in two splits.

        Raises:
            ValueError: If the split is unknown.
            RuntimeError: If none is found.
        """
        if split not in SPLITS:
            raise ValueError(f"split must be one of {SPLITS}, got {split!r}")
        for attempt in range(_ATTEMPTS):
            dice = Dice(f"{self.config.seed}/{split}/{index}/{attempt}")
            plan = self._plan(dice)
            if plan is None or _home(plan) != split:
                continue
            cases = self._cases(plan, dice)
            if cases is not None:
                shown = self.config.shown
                name = "f" if self._small else dice.pick(_NAMES)
                tests, examples = tuple(cases[shown:]), tuple(cases[:shown])
                return Program(plan, name, tests, examples, self._small)
        raise RuntimeError(f"no task of split {split!r} was found for {self.config}")

    # Plans -------------------------------------------------------------------------------------

    def _plan(self, dice: Dice) -> Plan | None:
        kind = dice.pick(self.kinds)
        number = dice.between(*self.config.step_range)
        steps: list[Step] = []
        for place in range(number):
            last = place == number - 1
            fitting = [o for o in self._by_kind.get(kind, ()) if last or o.gives in self._by_kind]
            if not fitting:
                return None
            step = self._step(dice, dice.pick(fitting))
            if steps and step.operation is steps[-1].operation:
                return None
            steps.append(step)
            kind = step.operation.gives
        parameter = None
        if not self._small and dice.random() < 0.25:
            parameter = self._parametrise(dice, steps)
        return Plan(tuple(steps), parameter)

    def _step(self, dice: Dice, operation: Operation) -> Step:
        constant = self._constant(dice, operation)
        chance = dice.random()
        if self._small or operation.takes != operation.gives:
            return Step(operation, constant)
        if chance < 0.15:
            conditions = [c for c in CONDITIONS if c.takes == operation.takes]
            others = [
                o
                for o in self._by_kind[operation.takes]
                if o.gives == operation.gives and o is not operation
            ]
            if conditions and others:
                condition, other = dice.pick(conditions), dice.pick(others)
                bound = dice.between(condition.low, max(condition.high, condition.low))
                constants = self._constant(dice, other)
                return Step(operation, constant, condition, bound, other, constants)
        if chance > 0.92 and operation.takes in "nls":
            return Step(operation, constant, times=dice.between(2, 3))
        return Step(operation, constant)

    def _constant(self, dice: Dice, operation: Operation) -> int | str | None:
        if operation.letters:
            return dice.pick(operation.letters)
        if not operation.has_constant:
            return None
        high = min(operation.high, 9) if self._small else operation.high
        return dice.between(operation.low, high)

    def _parametrise(self, dice: Dice, steps: list[Step]) -> Range | None:
        """Turn the constant of one step into the function's second argument."""
        fitting = [
            place
            for place, step in enumerate(steps)
            if isinstance(step.constant, int) and step.condition is None
        ]
        if not fitting:
            return None
        place = dice.pick(fitting)
        operation = steps[place].operation
        steps[place] = steps[place]._replace(constant=_PARAMETER)
        return operation.low, operation.high

    # Tests -------------------------------------------------------------------------------------

    def _cases(self, plan: Plan, dice: Dice) -> list[tuple[tuple[Any, ...], Any]] | None:
        """Calls with their results, examples first; None where they would not tell enough."""
        wanted = self.config.tests + self.config.shown
        cases: list[tuple[tuple[Any, ...], Any]] = []
        refused = 0
        for args in draw_inputs(plan.takes, plan.parameter, dice, 3 * wanted):
            try:
                cases.append((args, plan.apply(args)))
            except ValueError:
                refused += 1
            if len(cases) == wanted:
                break
        if len(cases) < wanted or refused > wanted // 2:
            return None
        hidden = cases[self.config.shown :]
        expected = [repr(value) for _, value in hidden]
        if len(set(expected)) < (2 if plan.gives == "b" else 4):
            return None
        if plan.takes == plan.gives and expected == [repr(args[0]) for args, _ in hidden]:
            return None
        for mutant in _mutants(plan):
            if _same(mutant, hidden, expected):
                return None
        return cases


def _same(plan: Plan, cases: Sequence[tuple[tuple[Any, ...], Any]], expected: list[str]) -> bool:
    """Whether a plan gives the expected results."""
    for (args, _), value in zip(cases, expected, strict=True):
        try:
            if repr(plan.apply(args)) != value:
                return False
        except ValueError:
            return False
    return True


def _mutants(plan: Plan) -> Iterator[Plan]:
    """The plan with one step left out, one constant off by one, or one branch taken always."""
    for place, step in enumerate(plan.steps):
        before, after = plan.steps[:place], plan.steps[place + 1 :]
        if step.operation.takes == step.operation.gives and (before or after):
            yield Plan((*before, *after), plan.parameter)
        if isinstance(step.constant, int):
            changed = step._replace(constant=step.constant + 1)
            yield Plan((*before, changed, *after), plan.parameter)
        if step.times > 1:
            yield Plan((*before, step._replace(times=step.times - 1), *after), plan.parameter)
        if step.condition is not None and step.otherwise is not None:
            yield Plan((*before, Step(step.operation, step.constant), *after), plan.parameter)
            yield Plan((*before, Step(step.otherwise, step.other), *after), plan.parameter)


def _home(plan: Plan) -> str:
    """The split a plan belongs to: a checksum of its instructions."""
    text = "/".join([plan.takes, *(step.words() for step in plan.steps)])
    return {0: "test", 1: "validation"}.get(zlib.crc32(text.encode()) % _SHARES, "train")


def phrases(difficulty: Difficulty) -> list[str]:
    """Words and phrases of instructions and solutions, in small letters where both are."""
    out = ["write f(x).", "def f(x):", "return x", "x is a number.", "x is a list of numbers."]
    out += ["x is a string.", ";", "."]
    for operation in OPERATIONS:
        if difficulty == "small" and operation.short:
            for text in (operation.short, operation.line):
                out += [part.strip() for part in text.split("{a}")]
        elif difficulty == "full":
            out += [part.strip() for part in operation.words.split("{a}")]
    letters = {letter for operation in OPERATIONS for letter in operation.letters}
    out += sorted(letters)
    return list(dict.fromkeys(part for part in out if part))
