"""Code/1, 6 and 7: equations for observations, fitted and measured anew.

The benchmark's scripts read the loss from what the agent's own run printed. Here the function is
fitted to the observations in a sandbox that holds nothing else, and its predictions are compared
outside, with outputs that it never sees: of inputs drawn like those it was fitted to, and of
others. The loss that counts is the larger one of the fit's and of the held-out set's.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym.sandbox import Limits, Snapshot
from envs.agencybench.assessment import Assessment, Missing, Unmet, inside
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding
from envs.agencybench.upstream.checks.forms import parsed
from envs.agencybench.upstream.checks.judged import text_check
from envs.agencybench.upstream.sections import Sections

__all__ = ["discovery_checks", "rate_checks"]

_MOST_SOURCE = 16_000
#: Numbers that an equation holds at most: in all, and of those that are no small integers. A table
#: of what was observed, or of the knots of a spline through it, holds more.
_MOST_NUMBERS, _MOST_OWN = 200, 40
_MOST_TEXT = 200
#: What an equation has no use for, and what finds the observations in the memory of the fit:
#: functions of the language, and members of modules and texts.
_ALIEN = {
    "breakpoint", "compile", "delattr", "dir", "eval", "exec", "getattr", "globals", "input",
    "locals", "memoryview", "open", "setattr", "type", "vars",
}  # fmt: skip
_MEMBERS = _ALIEN | {
    "DataSource", "compat", "core", "ctypes", "ctypeslib", "distutils", "dump", "dumps", "f2py",
    "format", "format_map", "frombuffer", "fromfile", "fromregex", "fromstring", "genfromtxt",
    "lib", "load", "loadtxt", "memmap", "os", "random", "rec", "save", "savetxt", "sys", "test",
    "testing", "tofile", "typing",
}  # fmt: skip
_FRAMES = ("ag_", "co_", "cr_", "f_", "gi_", "tb_")
_SECONDS = 60.0
#: Loss at which a task of Code/1 is worth nothing, and all; by its rubric.
_LADDERS = {1: (5e-2, 1e-3), 2: (2e-3, 5e-4), 3: (6e-4, 1e-5), 4: (2e-5, 5e-6), 5: (6e-6, 1e-7)}
#: Loss up to which a scenario of Code/6 and 7 is worth so much.
_STAIRS = ((1e-7, 1.0), (1e-6, 0.8), (1e-5, 0.6), (1e-4, 0.4), (1e-3, 0.2))


def _source(assessment: Assessment, path: str) -> ast.Module:
    text = assessment.text(path)
    need(len(text) <= _MOST_SOURCE, f"{path} is longer than an equation: {len(text)} characters")
    tree = parsed(assessment, path)
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
            names += [alias.name for alias in node.names if alias.name in _MEMBERS]
        alien = [name for name in names if name not in ("numpy", "math")]
        need(not alien, f"{path} imports {', '.join(alien)}")
        if isinstance(node, ast.Attribute):
            fits = not node.attr.startswith(("_", *_FRAMES)) and node.attr not in _MEMBERS
            need(fits, f"{path} uses {node.attr}, which is no part of equations")
        elif isinstance(node, ast.Name):
            fits = "__" not in node.id and node.id not in _ALIEN
            need(fits, f"{path} uses {node.id}, which is no part of equations")
    _is_no_table(tree, path)
    return tree


def _is_no_table(tree: ast.Module, path: str) -> None:
    """Whether what it holds are the numbers of an equation.

    Raises:
        Unmet: If it holds a table, of numbers or in a text.
    """
    texts = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef) and node.body
        if isinstance(node.body[0], ast.Expr)
    }
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    held = [node.value for node in constants if id(node) not in texts]
    text = sum(len(value) for value in held if isinstance(value, str | bytes))
    need(text <= _MOST_TEXT, f"{path} holds a text of {text} characters that is no docstring")
    numbers = [value for value in held if isinstance(value, int | float | complex)]
    own = sum(not isinstance(value, int) or abs(value) > 12 for value in numbers)
    need(
        len(numbers) <= _MOST_NUMBERS and own <= _MOST_OWN,
        f"{path} holds {len(numbers)} numbers: a table is no equation",
    )


def _function(tree: ast.Module, names: Sequence[str], path: str) -> ast.FunctionDef:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "equation":
            found = [argument.arg for argument in node.args.args]
            need(found == [*names, "params"], f"equation takes {found}, not {[*names, 'params']}")
            return node
    raise Unmet(f"{path} defines no function equation")


def _observations(assessment: Assessment) -> Mapping[str, Any]:
    gold = assessment.world.gold
    if not isinstance(gold, Mapping) or not gold.get("train"):
        raise Missing("the observations are not there")
    return gold


def _extremes(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Inputs at and beyond the ends of what was observed."""
    columns = list(zip(*(row[1:] for row in rows), strict=True))
    low, high = [min(column) for column in columns], [max(column) for column in columns]
    wide = [high_ + (high_ - low_) for low_, high_ in zip(low, high, strict=True)]
    made = [low, high, wide, [0.0 for _ in columns]]
    for n in range(len(columns)):
        made.append([*low[:n], high[n], *low[n + 1 :]])
        made.append([*high[:n], low[n], *high[n + 1 :]])
    return made


def _fitted(assessment: Assessment, path: str) -> dict[str, Any]:
    """Losses of all sets, and the values at the corners."""

    def make() -> dict[str, Any]:
        gold = _observations(assessment)
        tree = _source(assessment, path)
        _function(tree, gold["names"], path)
        sets = {name: [row[1:] for row in gold[name]] for name in ("train", "test", "ood")}
        sets["corners"] = _extremes(gold["train"])
        told = assessment.probe(
            inside("inside/fit"),
            {"train": gold["train"], "sets": sets, "seconds": _SECONDS},
            seconds=_SECONDS + 60,
            files=Snapshot({"equation.py": assessment.files[path]}),
            limits=Limits(memory=2 << 30, address_space=0),
        )
        need(isinstance(told, dict), "the fit gives nothing")
        need("error" not in told, f"the equation fails: {told.get('error')}"[:300])
        made: dict[str, Any] = {"corners": told["sets"]["corners"]}
        for name in ("train", "test", "ood"):
            rows, values = gold[name], told["sets"].get(name)
            need(isinstance(values, list) and len(values) == len(rows), "predictions are missing")
            if not rows:
                made[name] = made[f"{name}_share"] = None
                continue
            finite = all(isinstance(v, int | float) and math.isfinite(v) for v in values)
            outputs = [row[0] for row in rows]
            mean = sum(outputs) / len(outputs)
            spread = sum((y - mean) ** 2 for y in outputs) / len(outputs)
            squares = [(v - y) ** 2 for v, y in zip(values, outputs, strict=True)] if finite else []
            loss = sum(squares) / len(squares) if finite else math.inf
            made[name], made[f"{name}_share"] = loss, loss / spread if spread else math.inf
        return made

    made: dict[str, Any] = assessment.once(f"fit {path}", make)
    return made


def _loss(fitted: Mapping[str, Any]) -> float:
    return max(loss for loss in (fitted["train"], fitted["test"]) if loss is not None)


def _elsewhere(path: str) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        unchanged = assessment.files.get(path) == assessment.world.files.get(path)
        need(path not in assessment.files or not unchanged, f"{path} was not changed")
        fitted = _fitted(assessment, path)
        if fitted["ood"] is None:
            raise Missing("there are no observations elsewhere")
        share = fitted["ood_share"]
        # An equation of the right form leaves a ten-thousandth of the variance, a wrong one all.
        value = min(1.0, max(0.0, -math.log10(max(share, 1e-12)) / 4)) if share < 1 else 0.0
        return Finding(round(value, 6), f"error elsewhere: {share:.2e} of the variance")

    return run


# Code/1 -----------------------------------------------------------------------------------------


def _calls(tree: ast.AST) -> set[str]:
    return {
        node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }


def _depends(function: ast.AST, names: Sequence[str]) -> Callable[[ast.AST], set[str]]:
    """For an expression the inputs that it depends on, through assignments."""
    known: dict[str, set[str]] = {name: {name} for name in names}

    def of(node: ast.AST) -> set[str]:
        found: set[str] = set()
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                found |= known.get(part.id, set())
        return found

    for statement in ast.walk(function):
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign) and statement.value:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        known[name.id] = known.get(name.id, set()) | of(statement.value)
    return of


def _form(
    tree: ast.Module, function: ast.FunctionDef, names: Sequence[str]
) -> tuple[bool, bool, bool]:
    """Whether it is nonlinear, mixes its inputs, and bounds something, helpers included."""
    nonlinear, mixed, bounded = _terms(function, names)
    called = _calls(function)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (node is function or node.name not in called):
            continue
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            # What a helper is given may depend on any input; that a call mixes them is seen above.
            bounded |= _terms(node, [one.arg for one in node.args.args])[2]
    return nonlinear, mixed, bounded


def _terms(function: ast.FunctionDef | ast.Lambda, names: Sequence[str]) -> tuple[bool, bool, bool]:
    """The same for one function, whose inputs have these names."""
    of = _depends(function, names)
    nonlinear = mixed = bounded = False
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and any(of(argument) for argument in node.args):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            plain = name in ("asarray", "array", "float", "abs", "broadcast_to", "zeros_like")
            nonlinear |= not plain
            mixed |= not plain and len(set().union(*(of(a) for a in node.args))) > 1
            bounded |= name in (
                "tanh", "exp", "clip", "maximum", "minimum", "logaddexp", "arctan", "log1p",
                "abs", "sqrt", "where", "expm1",
            )  # fmt: skip
        if isinstance(node, ast.BinOp):
            left, right = of(node.left), of(node.right)
            if isinstance(node.op, ast.Pow):
                power = node.right
                linear = isinstance(power, ast.Constant) and power.value in (0, 1)
                nonlinear |= bool(left | right) and not linear
                mixed |= len(left | right) > 1
            if isinstance(node.op, ast.Mult):
                nonlinear |= bool(left) and bool(right)
                mixed |= bool(left) and bool(right) and len(left | right) > 1
            if isinstance(node.op, ast.Div):
                nonlinear |= bool(right)
                mixed |= bool(right) and len(left | right) > 1
                bounded |= bool(right)
    return nonlinear, mixed, bounded


def _rate(number: int) -> Callable[[Assessment], Finding]:
    zero, full = _LADDERS[number]

    def run(assessment: Assessment) -> Finding:
        gold = _observations(assessment)
        tree = _source(assessment, "equation.py")
        function = _function(tree, gold["names"], "equation.py")
        fitted = _fitted(assessment, "equation.py")
        loss = _loss(fitted)
        value = min(1.0, max(0.0, (zero - loss) / (zero - full)))
        nonlinear, mixed, bounded = _form(tree, function, gold["names"])
        told = [f"loss {loss:.3g}"]
        if number == 2 and not nonlinear:
            raise Unmet("there is no nonlinear term")
        if number == 3 and not mixed:
            raise Unmet("no term mixes t and A")
        if number >= 4:
            stable = all(isinstance(v, int | float) for v in fitted["corners"])
            need(stable, "it is not finite at the ends of the observed range")
        if number == 4:
            need(bounded, "nothing damps or bounds it")
        if number == 5:
            need("print" not in _calls(tree), "equation.py prints")
        lacking = _lacking(assessment, number)
        if lacking and number == 5:
            raise Unmet(f"missing: {', '.join(lacking)}")
        if lacking:
            told.append(f"missing: {', '.join(lacking)}")
            value = max(0.0, value - 0.5 * len(lacking))
        return Finding(round(value, 6), "; ".join(told))

    return run


def _lacking(assessment: Assessment, number: int) -> list[str]:
    lacking = []
    log, text = f"logs/subtask{number}_evaluate.txt", f"docs/subtask{number}_rationale.md"
    logged = assessment.text(log) if log in assessment.files else ""
    if not re.search(r"(?i)(mse|loss)\D{0,20}\d", logged):
        lacking.append(log)
    if text not in assessment.files or len(assessment.text(text).split()) < 20:
        lacking.append(text)
    seed = assessment.world.files.get("equation.py")
    if seed is not None and assessment.files.get("equation.py") == seed:
        lacking.append("a change of equation.py")
    return lacking


def rate_checks(number: int, sections: Sections) -> tuple[Check, ...]:
    """The checks of a task of Code/1."""
    required = f"a loss of at most {_LADDERS[number][1]:g}, the form asked for, log and rationale"
    return (
        Check("loss", 0.8, required, _rate(number), kind="command"),
        Check("elsewhere", 0.1, "it holds for other inputs", _elsewhere("equation.py")),
        text_check(sections, 0.1, "rationale", "a judge finds the rationale sound"),
    )


# Code/6 and 7 -----------------------------------------------------------------------------------

_PLACE = "workspace/equation.py"
_RESULTS = ("workspace/subtask1_result.json", "subtask1_result.json")


def _discovered(assessment: Assessment) -> Finding:
    loss = _loss(_fitted(assessment, _PLACE))
    value = next((worth for bound, worth in _STAIRS if loss <= bound), 0.0)
    return Finding(value, f"loss {loss:.3g}")


def _result(assessment: Assessment) -> Finding:
    path = next((name for name in _RESULTS if name in assessment.files), _RESULTS[0])
    value = assessment.json(path)
    need(isinstance(value, dict), f"{path} holds no object")
    absent = [
        key for key in ("loss", "equation", "comment") if not value.get(key) and key != "loss"
    ]
    need(not absent and "loss" in value, f"{path} lacks {', '.join(absent) or 'loss'}")
    told = value["loss"]
    need(isinstance(told, int | float) and not isinstance(told, bool), "loss is no number")
    need(abs(told) < 1e300, "loss is no finite number")
    real = _fitted(assessment, _PLACE)["train"]
    # The agent's optimiser may have stopped earlier; what it reports must not be better.
    need(told >= 0 and (told >= real / 10 or real <= 1e-7), f"loss {told:g} is not {real:.3g}")
    seed = assessment.world.files.get(_PLACE)
    need(assessment.files.get(_PLACE) != seed, "equation.py was not changed")
    return Finding(1.0)


def discovery_checks(number: int, sections: Sections) -> tuple[Check, ...]:
    """The checks of the one task of Code/6 and 7."""
    return (
        Check("loss", 0.75, "a loss of at most 1e-7", _discovered),
        Check("result", 0.1, "the result is recorded, with the loss that it has", _result),
        Check("elsewhere", 0.1, "it holds for other inputs", _elsewhere(_PLACE)),
        text_check(sections, 0.05, "comment", "a judge finds the comment sound"),
    )
