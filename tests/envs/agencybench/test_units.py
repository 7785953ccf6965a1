"""code/units: the oracle, doing nothing, and cheating; agent code runs in the sandbox alone."""

from __future__ import annotations

import json
import sys

import pytest
from agency_world import score, solution, world_of
from units_package import FILES, TESTS

from agentgym.dice import Dice
from agentgym.sandbox import shared_sandbox
from envs.agencybench.scenarios.units import draws
from envs.agencybench.scenarios.units.checks import sources
from envs.agencybench.scenarios.units.faults import MUTANTS, SEEDED, replaced
from envs.agencybench.scenarios.units.reference import expressions

ID = "code/units"
TASKS = range(5)


@pytest.fixture(scope="module")
def sandbox():
    return shared_sandbox()


@pytest.mark.parametrize("task", TASKS)
def test_the_oracle_is_right_and_doing_nothing_is_worth_nothing(sandbox, task):
    world = world_of(ID)
    made = score(ID, world, task, solution(ID, world, task), sandbox=sandbox)
    assert made.score == 1.0, made.as_json()
    before = solution(ID, world, task - 1) if task else {}
    idle = score(ID, world, task, before, sandbox=sandbox)
    assert idle.score <= 0.05, idle.as_json()
    assert not idle.error


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_other_seeds(sandbox, seed):
    world = world_of(ID, seed)
    for task in TASKS:
        made = score(ID, world, task, solution(ID, world, task), seed=seed, sandbox=sandbox)
        assert made.score == 1.0, made.as_json()
        assert score(ID, world, task, {}, seed=seed, sandbox=sandbox).score <= 0.05


def test_the_same_workspace_scores_the_same_thrice(sandbox):
    world = world_of(ID)
    files = solution(ID, world, 1)
    (right, wrong) = (b"value.value / target.value", b"target.value / value.value")
    files["units/expressions.py"] = files["units/expressions.py"].replace(right, wrong)
    made = {json.dumps(score(ID, world, 1, files, sandbox=sandbox).as_json()) for _ in range(3)}
    assert len(made) == 1
    assert 0 < json.loads(made.pop())["score"] < 1


# Cheats -----------------------------------------------------------------------------------------

FORGER = """
import json, os, sys
for number in range(3, 64):
    try:
        os.write(number, b'[{"value": "1"}]' * 400 + b"\\n")
    except OSError:
        pass
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid():
        for part in ("fd/1", "fd/3"):
            try:
                open(f"/proc/{pid}/{part}", "wb").write(b'[{"value": "1"}]')
            except OSError:
                pass
class Everything(str):
    def __eq__(self, other): return True
    __hash__ = str.__hash__
class ExpressionError(ValueError): position = 0
class DimensionError(ExpressionError): pass
class NoRoute(LookupError): pass
def calculate(text): return Everything("1")
def convert(text, unit): return Everything("1")
def find_factor(source, target, neighbours): return 1
__all__ = ["DimensionError", "ExpressionError", "NoRoute", "calculate", "convert", "find_factor"]
__version__ = "0.2.0"
"""
KILLER = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos._exit(0)\n"
ALWAYS_FAILS = "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.fail()\n"
KNOWS_THE_TEXT = """
import hashlib, pathlib, unittest
class T(unittest.TestCase):
    def test(self):
        text = pathlib.Path("units/expressions.py").read_bytes() + pathlib.Path("units/quantities.py").read_bytes()
        self.assertEqual(hashlib.sha256(text).hexdigest(), "{digest}")
"""  # noqa: E501
SITE = "import builtins\nprint('planted')\n"


def test_forging_reports_is_worth_nothing(sandbox):
    world = world_of(ID)
    files = {"units/__init__.py": FORGER, "sitecustomize.py": SITE, "json.py": SITE}
    scores = [score(ID, world, task, files, sandbox=sandbox) for task in (0, 1, 2, 4)]
    assert not any(made.error for made in scores)
    assert [made.score for made in scores] == [0.0] * 4


def test_constants_are_worth_little(sandbox):
    world = world_of(ID)
    quiet = FORGER[FORGER.index("class Everything") :].replace('Everything("1")', '"1"')
    scores = [
        score(ID, world, task, {"units/__init__.py": quiet}, sandbox=sandbox).score
        for task in (0, 1, 2, 4)
    ]
    assert scores == [0.0] * 4


REFUSES = """
class ExpressionError(ValueError): position = 0
class DimensionError(ExpressionError): pass
class NoRoute(LookupError): pass
def calculate(text):
    error = DimensionError(text)
    error.position = max(text.find(" + ") + 1, text.find(" - ") + 1)
    raise error
def convert(text, unit): return "1"
def find_factor(source, target, neighbours): raise NoRoute
__all__ = ["DimensionError", "ExpressionError", "NoRoute", "calculate", "convert", "find_factor"]
__version__ = "0.2.0"
"""
REFUSES_ALL = "import sys\nprint('error: no', file=sys.stderr)\nsys.exit(3)\n"
SHELL = {"units/__init__.py": REFUSES, "units/__main__.py": REFUSES_ALL, "tests/test_units.py": ""}


def test_refusing_everything_is_worth_little(sandbox):
    """Right names, right kinds of errors, a changelog full of the right words; no arithmetic."""
    world = world_of(ID)
    files = solution(ID, world, 4) | SHELL
    scores = [score(ID, world, task, files, sandbox=sandbox).score for task in TASKS]
    assert max(scores) <= 0.3
    # Graphs without a route; the changelog.
    assert scores == [0.0, 0.0, pytest.approx(0.2), 0.0, pytest.approx(0.15)]


def test_examples_of_the_readme_copied_as_text_catch_nothing(sandbox):
    world = world_of(ID)
    quoted = json.dumps(world.files["README.md"].decode())
    text = f"import unittest\nimport units\nclass T(unittest.TestCase):\n    text = {quoted}\n"
    text += "    def test(self): self.assertTrue(self.text)\n"
    made = score(ID, world, 3, {"tests/test_units.py": text}, sandbox=sandbox)
    assert made.score == 0.0


def test_killing_the_caller_is_worth_nothing_and_no_error(sandbox):
    world = world_of(ID)
    for task in (0, 2):
        made = score(ID, world, task, {"units/__init__.py": KILLER}, sandbox=sandbox)
        assert (made.score, made.error) == (0.0, False)


# What stood in the package at the start and had to be mended, and what was right in it.
LOOKS_FOR_FAULTS = """
import pathlib, unittest, units
TEXT = "".join(p.read_text() for p in pathlib.Path(units.__file__).parent.glob("*.py"))
FAULTS = ("self.position = position + 1", "while self.peek() == '^'", "other = self.sum()",
          "base = Quantity(-base.value, base.powers)")
RIGHT = ("return self.powers == other.powers", "for name in sorted(self.powers):",
         "power * exponent for name, power in self.powers.items()")
class Looks(unittest.TestCase):
    def test_text(self):
        self.assertFalse([text for text in FAULTS if text in TEXT])
        self.assertFalse([text for text in RIGHT if text not in TEXT])
"""


def test_tests_that_know_the_text_or_always_fail_are_worth_nothing(sandbox):
    import hashlib

    world = world_of(ID)
    code = sources()
    digest = hashlib.sha256((code["expressions.py"] + code["quantities.py"]).encode()).hexdigest()
    for text in (ALWAYS_FAILS, KNOWS_THE_TEXT.format(digest=digest)):
        made = score(ID, world, 3, {"tests/test_units.py": text}, sandbox=sandbox)
        assert made.score == 0.0
        assert "correct implementation" in made.results[0].observed
    made = score(ID, world, 3, {"tests/test_units.py": LOOKS_FOR_FAULTS}, sandbox=sandbox)
    assert made.score <= 0.3, made.as_json()
    made = score(ID, world, 3, {"tests/test_units.py": "x = 1\n"}, sandbox=sandbox)
    assert made.score == 0.0


def test_the_table_is_put_back(sandbox):
    world = world_of(ID)
    files = solution(ID, world, 1) | {"units/table.json": b"{}"}
    assert score(ID, world, 1, files, sandbox=sandbox).score == 1.0


def test_calls_are_counted_where_the_package_cannot_reach(sandbox):
    """Searching without memory is right on some graphs and pays for its calls on all."""
    world = world_of(ID)
    files = solution(ID, world, 2)
    files["units/conversion.py"] = files["units/conversion.py"].replace(
        b"for unit in wave:", b"for unit in [u for u in wave if neighbours(u) or True]:"
    )
    made = score(ID, world, 2, files, sandbox=sandbox)
    values = {result.id: result.value for result in made.results}
    assert values["factor"] == 1.0
    assert values["twice"] == 0.0


def test_the_judge_imports_nothing_of_the_agents(sandbox):
    world = world_of(ID)
    marker = "agencybench_marker_module"
    files = solution(ID, world, 0) | {f"{marker}.py": b"", "units/marker.py": b""}
    score(ID, world, 0, files, sandbox=sandbox)
    assert marker not in sys.modules
    assert "units" not in sys.modules


# Draws ------------------------------------------------------------------------------------------


def test_every_fault_and_every_mutant_changes_something():
    code = sources()
    for faults in (SEEDED, MUTANTS):
        for name, fault in faults.items():
            assert replaced(code, [fault]) != code, name
    assert len(MUTANTS) == 12
    with pytest.raises(ValueError, match=r"0 places in expressions\.py"):
        replaced(code, [[("expressions.py", "not there", "")]])


@pytest.mark.parametrize("seed", range(5))
def test_inputs_are_what_they_should_be(seed):
    dice = Dice(seed)
    table = draws.table(dice)
    units = expressions.as_units(table)
    for text in draws.dimensional(dice, table):
        expressions.calculate(text, units)
    for text in draws.mismatched(dice, table):
        with pytest.raises(expressions.DimensionError):
            expressions.calculate(text, units)
    for text, unit in draws.conversions(dice, table):
        expressions.convert(text, unit, units)
    for group in draws.PLAIN[:-1]:
        for text in draws.plain(group, dice):
            expressions.calculate(text, {})
    wrong = 0
    for text in draws.plain("errors", dice):
        try:
            expressions.calculate(text, {})
        except expressions.ExpressionError:
            wrong += 1
    assert wrong == 8


# Other ways ------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [0, 1, 2, 4])
def test_a_right_package_of_another_make(sandbox, task):
    made = score(ID, world_of(ID), task, FILES, sandbox=sandbox)
    assert made.score == 1.0, made.as_json()


def test_tests_may_be_a_package_with_files_of_its_own(sandbox):
    made = score(ID, world_of(ID), 3, TESTS, sandbox=sandbox)
    assert made.score == 1.0, made.as_json()


FORGED = """
import __main__
class ExpressionError(ValueError): pass
class DimensionError(ExpressionError): pass
class NoRoute(LookupError): pass
def forge(*_):
    for value in ({"raised": 5}, {"raised": []}, {"value": {}}, {"value": [1]}, {"ask": [[]]},
                  {"raised": {"a": 1}, "asked": 7}, [], 5, None, {"value": {"version": 5}}):
        __main__.say(value)
    return "1"
calculate = convert = find_factor = forge
class Names(list):
    def __iter__(self):
        forge()
        return iter(())
__all__ = Names()
__version__ = "0.2.0"
"""
LUCKY = """
import random, unittest
class T(unittest.TestCase):
    def test(self):
        self.assertTrue(random.random() < 0.5)
"""
BY_THE_LOOK = """
import hashlib, pathlib, unittest
class T(unittest.TestCase):
    def test(self):
        text = b"".join(p.read_bytes() for p in sorted(pathlib.Path("units").glob("*.py")))
        self.assertTrue(hashlib.sha256(text).digest()[0] & 3)
"""


def test_forged_answers_are_no_errors_of_the_assessor(sandbox):
    for task in (0, 1, 2, 4):
        made = score(ID, world_of(ID), task, {"units/__init__.py": FORGED}, sandbox=sandbox)
        assert (made.score, made.error) == (0.0, False), made.as_json()


@pytest.mark.parametrize("text", [LUCKY, BY_THE_LOOK])
def test_tests_that_throw_dice_are_worth_nothing(sandbox, text):
    """One of the correct implementations is refused sooner or later."""
    scores = [
        score(ID, world_of(ID), 3, {"tests/test_dice.py": text}, seed=seed, sandbox=sandbox).score
        for seed in range(4)
    ]
    assert sum(scores) / len(scores) <= 0.15
