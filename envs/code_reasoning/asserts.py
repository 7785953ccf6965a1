"""Tests written as assertions, turned into tests by value where they are simple enough.

Simple is ``assert f(1, [2]) == 3``: a call with literal arguments, compared with a literal. Tests
by value are cheaper, and nothing of them enters the sandbox but the arguments.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Sequence
from typing import Any

from envs.code_reasoning.inside.plain import NotPlain, encode
from envs.code_reasoning.tasks import Compare, ValueTest

__all__ = ["called_names", "parsed", "value_tests"]


def parsed(text: str) -> ast.Module:
    """The tree of a Python text, without warnings about its style.

    Raises:
        SyntaxError: If it is no Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def value_tests(checks: str, entry: str) -> tuple[ValueTest, ...] | None:
    """The tests of a Python text, or None where one of them is not simple.

    Args:
        checks: Assertions, or a function ``check(candidate)`` that holds nothing but assertions.
        entry: Function asked for.

    Raises:
        SyntaxError: If the text is no Python.
    """
    statements: Sequence[ast.stmt] = parsed(checks).body
    names = {entry}
    functions = [node for node in statements if isinstance(node, ast.FunctionDef)]
    if functions:
        idle = [node for node in statements if not isinstance(node, ast.FunctionDef)]
        if len(functions) != 1 or functions[0].name != "check" or not all(map(_is_idle, idle)):
            return None
        arguments = functions[0].args.args
        if len(arguments) != 1:
            return None
        names = {arguments[0].arg}
        statements = functions[0].body
    out = []
    for statement in statements:
        if _is_idle(statement) and not functions:
            return None  # a variable that the assertions may use
        if _tests_nothing(statement):
            continue
        test = _test(statement, names, entry)
        if test is None:
            return None
        out.append(test)
    return tuple(out) or None


def _is_idle(node: ast.stmt) -> bool:
    """An assignment of a literal, such as ``METADATA = {}``."""
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)


def _tests_nothing(node: ast.stmt) -> bool:
    if isinstance(node, ast.Pass):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)  # a text
    if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant):
        return bool(node.test.value)
    return False


def _test(node: ast.stmt, names: set[str], entry: str) -> ValueTest | None:
    if not isinstance(node, ast.Assert):
        return None
    test, compare, expected = node.test, "equal", None
    try:
        if isinstance(test, ast.Compare):
            if len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
                return None
            expected = _literal(test.comparators[0])
            test = test.left
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, compare = test.operand, "false"
        else:
            compare = "true"
        if not isinstance(test, ast.Call) or not isinstance(test.func, ast.Name):
            return None
        if test.func.id not in names or any(word.arg is None for word in test.keywords):
            return None
        args = tuple(_literal(arg) for arg in test.args)
        kwargs = tuple((str(word.arg), _literal(word.value)) for word in test.keywords)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None
    how: Compare = compare  # type: ignore[assignment]
    return ValueTest(entry, args, expected, kwargs, how)


def _literal(node: ast.expr) -> Any:
    """The tree of a literal.

    Raises:
        ValueError: If it is none.
    """
    value = ast.literal_eval(node)
    if value != value:
        raise NotPlain("not equal to itself")
    return encode(value)


def called_names(checks: str, context: str, solution: str) -> tuple[str, ...]:
    """Functions that assertions call and that a solution has to define, in order.

    Args:
        checks: Assertions.
        context: What runs ahead of them.
        solution: A solution, or the empty text; it may define a function named like a built-in.

    Raises:
        SyntaxError: If a text is no Python.
    """
    known = set(vars(builtins))
    calls: dict[str, None] = {}
    for text in (context, checks):
        for node in ast.walk(parsed(text)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                known.add(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                known |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                known.add(node.id)
            elif isinstance(node, ast.arg):
                known.add(node.arg)
    for node in ast.walk(parsed(checks)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls[node.func.id] = None
    written = {node.name for node in parsed(solution).body if isinstance(node, ast.FunctionDef)}
    return tuple(name for name in calls if name in written or name not in known)
