"""The checks of code/units. What is right is worked out here; inside, the package only answers."""

from __future__ import annotations

import ast
import copy
import json
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from agentgym.dice import Dice
from agentgym.sandbox import Snapshot
from envs.agencybench.assessment import Assessment, Unmet, inside
from envs.agencybench.scenario import Check, Finding
from envs.agencybench.scenarios.units import draws
from envs.agencybench.scenarios.units.faults import MUTANTS, replaced
from envs.agencybench.scenarios.units.reference import expressions

__all__ = ["CHECKS", "sources"]

_PROGRAM = "scenarios/units/harness"


def _call(assessment: Assessment, calls: Sequence[Any]) -> list[Any]:
    made = assessment.probe(inside(_PROGRAM), {"calls": list(calls)}, seconds=120)
    if not isinstance(made, list) or len(made) != len(calls):
        raise Unmet("the package ended the program that calls it")
    return [_plain_answer(answer) for answer in made]


def _plain_answer(answer: Any) -> dict[str, Any]:
    """An answer with nothing in it that is not as the harness writes it: the package may forge."""
    if not isinstance(answer, dict):
        return {}
    raised, asked = answer.get("raised"), answer.get("asked")
    made = dict(answer)
    if "raised" in made and not (
        isinstance(raised, list) and raised and all(isinstance(name, str) for name in raised)
    ):
        del made["raised"]
    if not isinstance(asked, list):
        made["asked"] = []
    return made


def _expected(name: str, arguments: Sequence[str], units: Any) -> dict[str, Any]:
    try:
        return {"value": getattr(expressions, name)(*arguments, units)}
    except expressions.ExpressionError as error:
        return {"raised": type(error).__name__, "position": error.position}


def _right(answer: dict[str, Any], expected: dict[str, Any], position: bool = True) -> bool:
    if "value" in expected:
        return answer.get("value") == expected["value"]
    kinds = answer.get("raised")
    named = isinstance(kinds, list) and expected["raised"] in kinds
    return named and (not position or answer.get("position") == expected["position"])


def _told(answer: dict[str, Any]) -> str:
    if "value" in answer:
        return f"gave {str(answer['value'])[:80]!r}"
    if answer.get("raised"):
        where = answer.get("position")
        told = f" with position {where}" if isinstance(where, int) else ""
        return f"raised {answer['raised'][0]}{told}"
    return "gave no answer in time"


def _spelled(name: str, arguments: Sequence[Any]) -> str:
    return f"{name}({', '.join(map(repr, arguments))})"


def _share(
    calls: Sequence[Any], answers: Sequence[Any], expected: Sequence[Any], position: bool = True
) -> Finding:
    wrong = [
        f"{_spelled(name, arguments)} {_told(answer)}"
        for (name, arguments), answer, due in zip(calls, answers, expected, strict=True)
        if not _right(answer, due, position)
    ]
    value = 1 - len(wrong) / len(calls)
    more = f"; {len(wrong) - 2} more" if len(wrong) > 2 else ""
    return Finding(value, "not as README.md says: " + "; ".join(wrong[:2]) + more if wrong else "")


# Task 1 -----------------------------------------------------------------------------------------


def _plain(group: str) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        drawn = {name: draws.plain(name, assessment.dice(name)) for name in draws.PLAIN}
        calls = {name: [("calculate", [text]) for text in drawn[name]] for name in draws.PLAIN}
        flat = [call for name in draws.PLAIN for call in calls[name]]
        answers = assessment.once("plain", lambda: _call(assessment, flat))
        start = sum(len(calls[name]) for name in draws.PLAIN[: draws.PLAIN.index(group)])
        mine = answers[start : start + len(calls[group])]
        expected = [_expected(name, arguments, {}) for name, arguments in calls[group]]
        found = _share(calls[group], mine, expected)
        # The package at the start gets a good part of each group right.
        return Finding(float(found.value == 1.0), found.observed)

    return run


# Task 2 -----------------------------------------------------------------------------------------


_KINDS = ("products", "mismatched", "conversions", "round trip")


def _with_units(assessment: Assessment) -> dict[str, tuple[list[Any], list[Any]]]:
    """Calls of each kind, and what came back."""
    table = assessment.world.gold["table"]
    dice = {kind: assessment.dice(kind) for kind in _KINDS}
    calls: dict[str, list[Any]] = {
        "products": [("calculate", [t]) for t in draws.dimensional(dice["products"], table)],
        "mismatched": [("calculate", [t]) for t in draws.mismatched(dice["mismatched"], table)],
        "conversions": [
            ("convert", list(pair)) for pair in draws.conversions(dice["conversions"], table)
        ],
        "round trip": [
            ("convert", list(pair)) for pair in draws.conversions(dice["round trip"], table)
        ],
    }
    answers = _call(assessment, [call for kind in _KINDS for call in calls[kind]])
    made, at = {}, 0
    for kind in _KINDS:
        made[kind] = (calls[kind], answers[at : at + len(calls[kind])])
        at += len(calls[kind])
    return made


def _dimensional(kind: str) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        units = expressions.as_units(assessment.world.gold["table"])
        made = assessment.once("units", lambda: _with_units(assessment))

        def share(of: str) -> Finding:
            calls, answers = made[of]
            return _share(calls, answers, [_expected(name, args, units) for name, args in calls])

        found = share(kind)
        if kind != "mismatched":
            return found
        # What refuses everything gets these right.
        works = share("products").value or 0.0
        told = found.observed or ("" if works == 1 else "but what fits is not accepted")
        return Finding((found.value or 0.0) * works, told)

    return run


def _round_trip(assessment: Assessment) -> Finding:
    works = _dimensional("conversions")(assessment)
    forth, numbers = assessment.once("units", lambda: _with_units(assessment))["round trip"]
    back: list[Any] = []
    for (_, (text, unit)), answer in zip(forth, numbers, strict=True):
        number = str(answer.get("value", ""))[:200]
        back.append(("convert", [f"({number}) * ({unit})", f"({text})"]))
    answers = _call(assessment, back)
    found = _share(back, answers, [{"value": "1"}] * len(back))
    # What always says 1 gets these right.
    told = found.observed or works.observed
    return Finding((found.value or 0.0) * (works.value or 0.0), told)


# Task 3 -----------------------------------------------------------------------------------------


def _searched(assessment: Assessment) -> list[tuple[draws.Graph, dict[str, Any], bool]]:
    dice = assessment.dice("graphs")
    graphs = [draws.graph(dice, routed=place % 5 != 4) for place in range(10)]
    calls = [["find_factor", [g.source, g.target], g.edges] for g in graphs]
    answers = _call(assessment, calls)
    return [(g, a, _found(g, a)) for g, a in zip(graphs, answers, strict=True)]


def _found(graph: draws.Graph, answer: dict[str, Any]) -> bool:
    if graph.factor is None:
        return _right(answer, {"raised": "NoRoute"}, position=False)
    try:
        return Fraction(str(answer.get("value"))) == graph.factor
    except (ValueError, ZeroDivisionError):
        return False


def _graphs(kind: str) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        played = assessment.once("graphs", lambda: _searched(assessment))
        good, worst = 0, ""
        for graph, answer, right in played:
            asked = [str(unit) for unit in answer.get("asked", [])]
            if not right:
                worst = worst or f"on {len(graph.edges)} units it {_told(answer)}"
            elif kind == "twice" and len(set(asked)) < len(asked):
                worst = worst or f"asked {len(asked)} times for {len(set(asked))} units"
            elif kind == "far" and not set(asked) <= graph.near:
                farther = len(set(asked) - graph.near)
                worst = worst or f"asked for {farther} units farther than the target"
            else:
                good += 1
        return Finding(good / len(played), worst)

    return run


# Task 4 -----------------------------------------------------------------------------------------

_RUN_TESTS = r"""
import os, sys, unittest
sys.path.insert(0, os.getcwd())
sys.dont_write_bytecode = True
words = ["tests", "discover", "-s", "tests", "-p", "test_*.py"]
unittest.main(module=None, argv=words + ["-t", "."] * os.path.exists("tests/__init__.py"))
"""


def sources() -> dict[str, str]:
    """The reference implementation: file name to text."""
    folder = Path(expressions.__file__).parent
    return {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.py"))}


def _definitions(text: str) -> dict[str, ast.stmt]:
    """Functions and classes of a module: as text, and as they are."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {ast.dump(node): node for node in ast.parse(text).body if isinstance(node, kinds)}


def _dead() -> dict[str, list[ast.stmt]]:
    """For each file what is written otherwise where there is a fault, right and faulty alike."""
    right = {name: _definitions(text) for name, text in sources().items()}
    made: dict[str, dict[str, ast.stmt]] = {name: {} for name in right}
    for fault in MUTANTS.values():
        for name, text in replaced(sources(), [fault]).items():
            faulty = _definitions(text)
            others = {key: node for key, node in faulty.items() if key not in right[name]}
            made[name] |= others
            made[name] |= {k: v for k, v in right[name].items() if others and k not in faulty}
    return {name: list(nodes.values()) for name, nodes in made.items()}


def _rewritten(text: str, dead: Sequence[ast.stmt], dice: Dice) -> str:
    """The same program in other words, so that a test cannot know it by its text.

    What is right and what is faulty stands in each, and only what is used differs.
    """
    tree = ast.parse(text)
    for node in dice.draw(dead, len(dead)):
        unused = copy.deepcopy(node)
        assert isinstance(unused, ast.FunctionDef | ast.ClassDef)
        unused.name = f"_{unused.name.strip('_')}_{dice.between(0, 10**9)}"
        tree.body.append(unused)
    for part in ast.walk(tree):
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
            part.value = ast.Constant(f"Text {dice.between(0, 10**9)}.")
        if isinstance(part, ast.FunctionDef):
            idle = f"_{dice.between(0, 10**9)} = {dice.between(0, 10**9)}"
            part.body.insert(int(ast.get_docstring(part) is not None), ast.parse(idle).body[0])
    return f"{ast.unparse(tree)}\n# {dice.between(0, 10**9)}\n"


def _killed(assessment: Assessment) -> Finding:
    tests = {
        path: content for path, content in assessment.files.items() if path.startswith("tests/")
    }
    if not any(re.fullmatch(r"tests/test_[^/]*\.py", path) for path in tests):
        raise Unmet("there is no tests/test_*.py")
    dice = assessment.dice("mutants")
    # Tests that fail at random, or by the look of the code, fail on one of the correct ones.
    plan: list[list[Any]] = [*([] for _ in range(6)), *([fault] for fault in MUTANTS.values())]
    order = dice.draw(range(len(plan)), len(plan))
    dead = _dead()
    passed = {}
    for place in order:
        code = {
            f"units/{name}": _rewritten(text, dead[name], dice).encode()
            for name, text in replaced(sources(), plan[place]).items()
        }
        table = assessment.world.files["units/table.json"]
        files = Snapshot({**tests, **code, "units/table.json": table})
        ok, said = assessment.runs(_RUN_TESTS, files)
        if not plan[place] and not ok:
            last = said.strip().splitlines()[-1:] or ["no output"]
            raise Unmet(f"the tests fail on a correct implementation: {last[0][:200]}")
        passed[place] = ok
    killed = sum(not ok for place, ok in passed.items() if plan[place])
    missed = len(MUTANTS) - killed
    told = f"{missed} of the faulty implementations pass all tests" if missed else ""
    return Finding(killed / len(MUTANTS), told)


# Task 5 -----------------------------------------------------------------------------------------


_VERSION = ["--version"]


def _command_lines(assessment: Assessment) -> tuple[list[list[str]], list[Any]]:
    table = assessment.world.gold["table"]
    dice = assessment.dice("command line")
    runs = [[text] for text in draws.dimensional(dice, table)[:3]]
    runs += [[text, "--to", unit] for text, unit in draws.conversions(dice, table)[:3]]
    runs += [[text] for text in draws.mismatched(dice, table)[:2]]
    runs += [[f"{dice.between(2, 9)} +"], [f"{dice.between(2, 9)} quxx"], ["1 m", "--to", "s"]]
    json_runs = [[*run, "--json"] for run in (runs[0], runs[3], runs[8])]
    runs = [*runs, *json_runs, _VERSION]
    return runs, assessment.probe(inside(_PROGRAM), {"runs": runs}, seconds=120)


def _due(run: list[str], units: Any) -> tuple[int, str]:
    """Exit code and value of a command line."""
    try:
        if "--to" in run:
            return 0, expressions.convert(run[0], run[2], units)
        return 0, expressions.calculate(run[0], units)
    except expressions.DimensionError:
        return 3, ""
    except expressions.ExpressionError:
        return 2, ""


def _command_line(as_json: bool) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        units = expressions.as_units(assessment.world.gold["table"])
        runs, done = assessment.once("command line", lambda: _command_lines(assessment))
        worst = ""
        right: dict[bool, list[bool]] = {True: [], False: []}  # values, and what has none
        for words, made in zip(runs, done, strict=True):
            if words == _VERSION or ("--json" in words) != as_json:
                continue
            due = _due(words, units)
            right[due[0] == 0].append(_as_due(words, made, due))
            if not right[due[0] == 0][-1] and not worst:
                code, out, err = made or (None, "", "no end in time")
                worst = f"`units {' '.join(words)}` ended with {code}, printed {out[:80]!r}"
                worst += f" and on stderr {err.strip()[-120:]!r}"
        every = [*right[True], *right[False]]
        # What merely fails gets those right that have no value.
        share = min(sum(every) / len(every), sum(right[True]) / len(right[True]))
        return Finding(share, worst)

    return run


def _as_due(words: list[str], made: Any, due: tuple[int, str]) -> bool:
    code, value = due
    if made is None or made[0] != code:
        return False
    _, out, err = made
    if code:
        return not out and err.startswith("error: ") and len(err.strip().splitlines()) == 1
    unit = words[2] if "--to" in words else None
    if "--json" not in words:
        return bool(out == (f"{value} {unit}\n" if unit else f"{value}\n"))
    try:
        return bool(json.loads(out) == {"expression": words[0], "unit": unit, "value": value})
    except ValueError:
        return False


def _changelog(assessment: Assessment) -> Finding:
    text = assessment.text("CHANGELOG.md")
    releases = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    releases = [r for r in releases if not re.match(r"\[?unreleased", r, re.I)]
    if not releases or not re.match(
        r"\[0\.2\.0\] - \d{4}-\d{2}-\d{2}\s*$", releases[0].split("\n")[0]
    ):
        raise Unmet("the newest release is not headed `## [0.2.0] - YYYY-MM-DD`")
    if not any(
        release.startswith("[0.1.0] - 2024-03-01") and "Arithmetic with plain numbers" in release
        for release in releases[1:]
    ):
        raise Unmet("the entry of 0.1.0 is not as it was")
    for section in ("Added", "Fixed"):
        found = re.search(rf"^### {section}\s*\n(.*?)(?=^### |\Z)", releases[0], re.M | re.S)
        points = set(re.findall(r"^[-*+] +(\S.*)$", found[1], re.M)) if found else set()
        if len(points) < 2:
            raise Unmet(f"`### {section}` does not hold two points")
    return Finding(1.0)


def _release(assessment: Assessment) -> Finding:
    functions = ["calculate", "convert", "find_factor"]
    (answer,) = _call(assessment, [("names", functions)])
    made = answer.get("value")
    if not isinstance(made, dict) or not {"version", "names", "parameters"} <= set(made):
        raise Unmet(f"the package {_told(answer)}")
    if made["version"] != "0.2.0":
        raise Unmet(f"units.__version__ is {str(made['version'])[:20]!r}")
    runs, done = assessment.once("command line", lambda: _command_lines(assessment))
    code, out, err = done[runs.index(_VERSION)] or (None, "", "")
    if code != 0 or "0.2.0" not in (out + err).split():
        raise Unmet(f"`--version` ended with {code} and printed {(out + err)[-80:]!r}")
    before = assessment.world.gold["interface"]
    if made["names"] != before["names"]:
        raise Unmet(f"units.__all__ is {made['names']}")
    if made["parameters"] != before["parameters"]:
        raise Unmet(f"parameters changed: {made['parameters']}")
    return Finding(1.0)


# All --------------------------------------------------------------------------------------------

_GROUPS = {
    "exponent": "literals with an exponent are read",
    "leading": "literals with a leading point are read",
    "power": "`^` groups from the right",
    "sign": "a sign binds less than `^`",
    "grouping": "`-` and `/` group from the left",
    "errors": "errors are raised, with their positions",
}

CHECKS: tuple[tuple[Check, ...], ...] = (
    tuple(Check(name, 1.0, required, _plain(name)) for name, required in _GROUPS.items()),
    (
        Check("products", 0.3, "products, quotients and powers of units", _dimensional("products")),
        Check("mismatch", 0.2, "kinds that do not fit are refused", _dimensional("mismatched")),
        Check("convert", 0.3, "conversions are exact", _dimensional("conversions")),
        Check("round_trip", 0.2, "converting there and back changes nothing", _round_trip),
    ),
    (
        Check("factor", 0.4, "the factor is right, or NoRoute is raised", _graphs("right")),
        Check("twice", 0.3, "it is right and no unit is asked for twice", _graphs("twice")),
        Check(
            "far",
            0.3,
            "it is right and asks for none that is farther",
            _graphs("far"),
        ),
    ),
    (Check("mutants", 1.0, "the tests pass on correct code and fail on faulty code", _killed),),
    (
        Check("command_line", 0.5, "output and exit codes", _command_line(False)),
        Check("json", 0.2, "JSON output", _command_line(True)),
        Check("changelog", 0.15, "the changelog describes 0.2.0", _changelog, kind="file"),
        Check("release", 0.15, "version 0.2.0, public names unchanged", _release),
    ),
)
