"""Tasks from files: HumanEval, MBPP, and rows of one's own, checked when they are loaded."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym.sources import SPLITS, DataError, Source, rows_by_split
from envs.code_reasoning.asserts import called_names, parsed, value_tests
from envs.code_reasoning.inside.plain import NotPlain, encode
from envs.code_reasoning.tasks import CodeTask, ValueTest

__all__ = ["load"]

_QUESTION = ("question", "prompt", "text", "description", "instruction")
_SOLUTION = ("solution", "canonical_solution", "code", "reference")
_NAME = ("entry_point", "name", "function")
_ID = ("task_id", "id", "uid")
_TEST_KEYS = {"args", "kwargs", "expected", "tolerance", "raises"}


def load(data: Source | Mapping[str, Source], *, examples: int = 1) -> dict[str, list[CodeTask]]:
    """The tasks of each split.

    Args:
        data: See :func:`agentgym.sources.rows_by_split`.
        examples: Assertions that the question quotes, where tests are a list of assertions and
            the question shows no function.

    Raises:
        DataError: If something cannot be read, or a row holds no task; the message names the row.
        ImportError: If parquet or the hub is asked for and its extra is not installed.
    """
    tasks: dict[str, list[CodeTask]] = {}
    for split, rows in rows_by_split(data, "math").items():
        tasks[split] = []
        for number, (place, row) in enumerate(rows):
            try:
                tasks[split].append(_task(row, f"{split}-{number}", examples))
            except (ValueError, SyntaxError) as error:
                raise DataError(f"{place}: {error}") from None
    return _without_repeats(tasks)


def _task(row: Any, default_id: str, examples: int) -> CodeTask:
    if not isinstance(row, Mapping):
        raise DataError(f"expected a mapping of columns, got {type(row).__name__}: {row!r:.100}")
    question = _first(row, _QUESTION, "question")
    solution = _first(row, _SOLUTION)
    task_id = str(row.get(next((name for name in _ID if name in row), ""), default_id))
    kind = str(row.get("type") or "default")
    setup = _lines(row.get("setup") or row.get("test_imports") or row.get("test_setup_code") or "")
    if "test" in row and "entry_point" in row:
        task = _shown_function(row, question, solution, setup)
    else:
        task = _described(row, question, setup, solution, examples)
    if solution:
        _parsed(task.context + "\n".join(task.reference), "solution")
    return replace(task, id=task_id, type=kind)


def _first(row: Mapping[str, Any], names: tuple[str, ...], needed: str = "") -> str:
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value.strip():
            return value
    if needed:
        columns = sorted(map(str, row))
        raise DataError(f"no {needed} in a row with the columns {columns}; known: {names}")
    return ""


def _lines(value: Any) -> str:
    text = value if isinstance(value, str) else "\n".join(map(str, value))
    return text.rstrip("\n") + "\n" if text.strip() else ""


def _parsed(text: str, what: str) -> ast.Module:
    try:
        return parsed(text)
    except SyntaxError as error:
        raise DataError(f"the {what} is no Python: {error}") from None


# Forms -----------------------------------------------------------------------------------------


def _shown_function(row: Mapping[str, Any], prompt: str, solution: str, setup: str) -> CodeTask:
    """HumanEval's form: the prompt is the beginning of the function."""
    name, checks = row["entry_point"], row["test"]
    if not isinstance(name, str) or not name.isidentifier():
        raise DataError(f"entry_point must be a name, got {name!r}")
    if not isinstance(checks, str) or not checks.strip():
        raise DataError(f"test must be Python text, got {checks!r:.80}")
    _parsed(checks, "test")
    context, head, plain_head = "", "", ""
    try:
        nodes = parsed(prompt).body
    except SyntaxError:
        nodes = []  # the prompt is prose
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            lines = prompt.splitlines(keepends=True)
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)]) - 1
            context, head = "".join(lines[:first]), "".join(lines[first:])
            plain_head = head
            if ast.get_docstring(node) is not None:  # not in the reference again
                plain_head = "".join(lines[first : node.body[0].lineno - 1])
    question = prompt
    if head:
        question = f"Complete this function.\n\n```python\n{prompt.rstrip()}\n```"
    own = [node for node in _nodes(solution) if isinstance(node, ast.FunctionDef)]
    whole = any(node.name == name for node in own)
    reference = solution if whole or not head else plain_head + solution
    tests = value_tests(checks, name)
    return CodeTask(
        "",
        question,
        (name,),
        tests or (),
        number=len(tests) if tests else _assertions(checks),
        checks="" if tests else checks,
        context=setup + context,
        head=head,
        reference=tuple(line for line in reference.splitlines() if line.strip()),
    )


def _nodes(text: str) -> list[ast.stmt]:
    try:
        return parsed(text).body
    except SyntaxError:
        return []  # the body of a function alone


def _described(
    row: Mapping[str, Any], question: str, setup: str, solution: str, examples: int
) -> CodeTask:
    """MBPP's form and one's own: a text, and a list of assertions or of calls with results."""
    listed = row.get("tests", row.get("test_list"))
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise DataError(f"tests must be a list that is not empty, got {listed!r:.80}")
    name = _first(row, _NAME)
    reference = tuple(line for line in solution.splitlines() if line.strip())
    if all(isinstance(test, Mapping) for test in listed):
        if not name.isidentifier():
            raise DataError(f"entry_point must name the function to write, got {name!r}")
        tests = tuple(_value_test(name, test) for test in listed)
        asked = _named(question, name, solution)
        return CodeTask(
            "", asked, (name,), tests, number=len(tests), context=setup, reference=reference
        )
    if not all(isinstance(test, str) for test in listed):
        raise DataError("tests must be all texts, or all objects with args and expected")
    checks = "\n".join(listed)
    _parsed(checks, "list of tests")
    _parsed(solution, "solution")
    names = called_names(checks, setup, solution)
    if name:
        names = (name, *(other for other in names if other != name))
    if not names:
        raise DataError(f"the tests call no function that is to be written: {checks!r:.100}")
    asked = _named(question, names[0], solution)
    quoted = list(listed[:examples])
    if quoted:
        asked += "\nFor example:\n```python\n" + "\n".join(quoted) + "\n```"
    simple = value_tests(checks, names[0])
    return CodeTask(
        "",
        asked,
        names,
        simple or (),
        number=len(simple) if simple else _assertions(checks),
        checks="" if simple else _imports(solution) + checks,
        context=setup,
        reference=reference,
    )


def _imports(solution: str) -> str:
    """The solution's own imports; tests written for its namespace may use them."""
    imports = [n for n in _nodes(solution) if isinstance(n, (ast.Import, ast.ImportFrom))]
    return "".join(f"{ast.unparse(node)}\n" for node in imports)


def _named(question: str, name: str, solution: str) -> str:
    """The question with the function's name and parameters, where it does not name it."""
    if re.search(rf"\b{re.escape(name)}\(|`{re.escape(name)}`", question):
        return question.rstrip()
    signature = name
    for node in _nodes(solution):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            signature = f"{name}({ast.unparse(node.args)})"
    return f"{question.rstrip()}\nThe function is `{signature}`."


def _value_test(name: str, test: Mapping[str, Any]) -> ValueTest:
    unknown = sorted(set(test) - _TEST_KEYS)
    if unknown:
        raise DataError(f"a test has the keys {unknown}; known: {sorted(_TEST_KEYS)}")
    args, kwargs = test.get("args", []), test.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, Mapping):
        raise DataError(
            f"a test needs a list of args, and kwargs an object, got {dict(test)!r:.100}"
        )
    raises, tolerance = test.get("raises"), test.get("tolerance")
    if ("expected" in test) == (raises is not None):
        raise DataError(f"a test needs either expected or raises, got {dict(test)!r:.100}")
    if tolerance is not None and not (
        isinstance(tolerance, (int, float)) and 0 <= tolerance < float("inf")
    ):
        raise DataError(f"tolerance must be a number >= 0, got {tolerance!r}")
    try:
        return ValueTest(
            name,
            tuple(encode(arg) for arg in args),
            encode(test.get("expected")),
            tuple((str(key), encode(value)) for key, value in kwargs.items()),
            "exact" if tolerance is None else "close",
            float(tolerance or 0.0),
            raises,
        )
    except NotPlain as error:
        raise DataError(f"a value of a test is {error}") from None


def _assertions(checks: str) -> int:
    """Number of assertions that test something."""
    found = [node.test for node in ast.walk(parsed(checks)) if isinstance(node, ast.Assert)]
    return sum(not (isinstance(test, ast.Constant) and test.value) for test in found)


def _without_repeats(tasks: dict[str, list[CodeTask]]) -> dict[str, list[CodeTask]]:
    """Ids are unique; questions of the evaluation splits are in no other split.

    Raises:
        DataError: If an id stands twice in a split.
    """
    seen: set[str] = set()
    used: set[str] = set()
    repeated = 0
    out: dict[str, list[CodeTask]] = {}
    for split in ("test", "validation", "train"):
        out[split] = []
        here: set[str] = set()
        for task in tasks[split]:
            if task.id in here:
                raise DataError(f"the id {task.id!r} stands twice in split {split!r}")
            here.add(task.id)
            if task.question in seen:
                repeated += 1
                continue
            unique = f"{split}/{task.id}" if task.id in used else task.id
            out[split].append(replace(task, id=unique))
        used |= {task.id for task in out[split]}
        seen |= {task.question for task in out[split]}
    if repeated:
        warnings.warn(
            f"{repeated} rows repeat a question of another split and are left out", stacklevel=4
        )
    return {split: out[split] for split in SPLITS}
