"""Runs the code under test and sends the plain values it returns.

The first line of input holds the code; each further one a call, answered by a line. Whatever the
code does to this process, it can at most send other plain values: what is expected is not here.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from envs.code_reasoning.inside.plain import MAX_CHARS, NotPlain, decode, dumps, encode, loads

_NAME = "solution"


def main(source: int, drain: int) -> None:
    """Answer calls until there are no more.

    Args:
        source: Descriptor to read from.
        drain: Descriptor to write to.
    """
    write, leave = os.write, os._exit
    lines = os.fdopen(source, "rb", closefd=False)
    setup = loads_setup(lines.readline())
    token = setup["token"]

    def send(answer: dict[str, Any]) -> None:
        line = dumps({"token": token, **answer}).encode() + b"\n"
        while line:
            line = line[write(drain, line) :]

    space, problem = load(setup)
    send({"loaded": problem})
    if problem is None:
        number = 0
        while True:
            line = lines.readline()
            if not line:
                break
            send({"call": number, **answer_to(loads(line), space)})
            number += 1
    leave(0)


def loads_setup(line: bytes) -> Any:
    """The first line; it may be longer than a value."""
    import json

    return json.loads(line)


def load(setup: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Run the code; its names, and what went wrong or None.

    Code that defines none of the functions asked for may be the rest of a function whose head is
    given; then it is run behind that head.
    """
    code, names = setup["code"], setup["names"]
    space, problem = execute(setup["context"] + code)
    missing = next((name for name in names if not callable(space.get(name))), None)
    if setup["head"] and (problem is not None or missing is not None):
        for rest in (code, indented(code)):
            other, trouble = execute(setup["context"] + setup["head"] + rest)
            if trouble is None and all(callable(other.get(name)) for name in names):
                return other, None
    if problem is None and missing is not None:
        problem = {"error": "no_function", "name": missing}
    return space, problem


def indented(code: str) -> str:
    """The code as the body of a function."""
    return "".join(f"    {line}" for line in code.splitlines(keepends=True))


def execute(code: str) -> tuple[dict[str, Any], Any]:
    """Run a module's text; its names, and what went wrong or None."""
    module = types.ModuleType(_NAME)
    sys.modules[_NAME] = module  # dataclasses and pickle look their module up
    try:
        compiled = compile(code, "<solution>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return module.__dict__, {"error": "syntax", "name": "SyntaxError"}
    except (RecursionError, MemoryError) as error:
        return module.__dict__, {"error": "syntax", "name": type(error).__name__}
    try:
        exec(compiled, module.__dict__)
    except BaseException as error:
        return module.__dict__, failure(error)
    return module.__dict__, None


def answer_to(call: Any, space: dict[str, Any]) -> dict[str, Any]:
    """What a call returns or raises, and the arguments if it changed them."""
    args = [decode(tree) for tree in call["args"]]
    kwargs = {name: decode(tree) for name, tree in call["kwargs"].items()}
    function: Callable[..., Any] = space[call["name"]]
    try:
        value = function(*args, **kwargs)
        answer: dict[str, Any] = {"value": encode(value)}
        if len(dumps(answer)) > MAX_CHARS:
            return {"error": "too_long", "name": type(value).__name__}
    except NotPlain as error:
        return {"error": "not_plain", "name": str(error)}
    except BaseException as error:
        return failure(error)
    try:
        after = [encode(arg) for arg in args]
        if after != call["args"] and len(dumps(after)) + len(dumps(answer)) <= MAX_CHARS:
            answer["args"] = after
    except Exception:
        answer["args"] = None  # no longer plain
    return answer


def failure(error: BaseException) -> dict[str, Any]:
    """An exception by kind, and by name as far as it is one of Python's own."""
    kind = "exception"
    if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
        kind = "early_exit"
    elif isinstance(error, MemoryError):
        kind = "memory"
    own = [t.__name__ for t in type(error).__mro__ if vars(builtins).get(t.__name__) is t]
    return {"error": kind, "name": own[0] if own else "BaseException", "message": _text(error)}


def _text(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except Exception:
        return ""
