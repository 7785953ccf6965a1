"""Runs tests that are code. The code under test runs elsewhere and is called over a channel.

The tests run as they were written, with each function under test replaced by one that sends its
arguments and returns the plain value that comes back. Every assertion is counted by itself, and a
failed one does not end the run. A line is written for each.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import random
import socket
from collections.abc import Callable
from typing import Any

from envs.code_reasoning.inside.plain import MAX_CHARS, NotPlain, decode, dumps, encode, loads

_PASSED, _FAILED = "_agentgym_passed", "_agentgym_failed"


class Trouble(Exception):
    """The code under test gave no plain value."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(name)
        self.kind, self.name = kind, name


class Remote:
    """Functions at the other end of a channel.

    Args:
        channel: A connected socket.
        token: Stands in every answer.

    Attributes:
        calls: Number of calls that were answered.
    """

    def __init__(self, channel: socket.socket, token: str) -> None:
        self._channel, self._token = channel, token
        self._rest = b""
        self.calls = 0
        self._gone = False

    def function(self, name: str) -> Callable[..., Any]:
        """A stand-in for a function."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.call(name, args, kwargs)

        call.__name__ = call.__qualname__ = name
        return call

    def setup(self, setup: Any) -> Any:
        """Send the code; what went wrong with it, or None."""
        self._send(json.dumps(setup))
        return self._receive().get("loaded")

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function.

        Raises:
            Trouble: If there is no value.
            Exception: Whatever exception of Python's own the function raised.
        """
        try:
            sent = [encode(arg) for arg in args]
            named = {key: encode(value) for key, value in kwargs.items()}
        except NotPlain as error:
            raise TypeError(f"a test may pass plain values only, and passes one {error}") from None
        self._send(dumps({"name": name, "args": sent, "kwargs": named}))
        answer = self._receive()
        if answer.get("call") != self.calls:
            raise Trouble("forged", "")
        self.calls += 1
        if "error" in answer:
            raise _raised(answer)
        for arg, after in zip(args, answer.get("args") or (), strict=False):
            _overwrite(arg, after)
        try:
            return decode(answer.get("value"))
        except (NotPlain, RecursionError):
            raise Trouble("forged", "") from None

    def _send(self, line: str) -> None:
        if self._gone:
            raise Trouble("gone", "")
        try:
            self._channel.sendall(line.encode() + b"\n")
        except OSError:
            self._gone = True
            raise Trouble("gone", "") from None

    def _receive(self) -> dict[str, Any]:
        parts = [self._rest]
        size = len(self._rest)
        while b"\n" not in parts[-1]:
            try:
                part = self._channel.recv(1 << 16)
            except OSError:
                part = b""
            size += len(part)
            if not part or size > 2 * MAX_CHARS:
                self._gone = True
                raise Trouble("gone" if not part else "too_long", "")
            parts.append(part)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        try:
            answer = loads(line)
        except NotPlain:
            raise Trouble("forged", "") from None
        if type(answer) is not dict or answer.get("token") != self._token:
            raise Trouble("forged", "")
        return answer


def _raised(answer: dict[str, Any]) -> Exception:
    kind, name = answer["error"], str(answer.get("name"))
    own = vars(builtins).get(name)
    if kind == "exception" and isinstance(own, type) and issubclass(own, Exception):
        try:
            error = own(str(answer.get("message", "")))
        except TypeError:  # some need more arguments
            error = Exception()
        error.__notes__ = [kind]
        return error
    return Trouble(str(kind), name)


def _overwrite(arg: Any, after: Any) -> None:
    """Give a container the content that the function left in it."""
    if type(arg) not in (list, dict, set):
        return
    try:
        value = decode(after)
    except (NotPlain, RecursionError):
        raise Trouble("forged", "") from None
    if type(value) is not type(arg) or value == arg:
        return
    arg.clear()
    if isinstance(arg, list):
        arg.extend(value)
    else:
        arg.update(value)


class _Counting(ast.NodeTransformer):
    """Turns ``assert test`` into a counted one; ``assert True`` tests nothing and goes."""

    def __init__(self) -> None:
        self.found = 0

    def visit_Assert(self, node: ast.Assert) -> Any:
        if isinstance(node.test, ast.Constant) and node.test.value:
            return ast.copy_location(ast.Pass(), node)
        self.found += 1
        passed = ast.Expr(ast.Call(ast.Name(_PASSED, ast.Load()), [node.test], []))
        failed = ast.Expr(
            ast.Call(ast.Name(_FAILED, ast.Load()), [ast.Name("_agentgym_error", ast.Load())], [])
        )
        handler = ast.ExceptHandler(
            ast.Name("_agentgym_exception", ast.Load()), "_agentgym_error", [failed]
        )
        tried = ast.Try(body=[passed], handlers=[handler], orelse=[], finalbody=[])
        return ast.fix_missing_locations(ast.copy_location(tried, node))


def main(source: int, drain: int, channel: int) -> None:
    """Judge one solution.

    Args:
        source: Descriptor with the setup: one line of JSON.
        drain: Descriptor that the verdicts go to.
        channel: Descriptor of the socket to the code under test.
    """
    with os.fdopen(source, "rb") as lines:
        setup = json.loads(lines.readline())
    token = setup["token"]

    def say(**facts: Any) -> None:
        os.write(drain, json.dumps({"token": token, **facts}).encode() + b"\n")

    def passed(value: Any) -> None:
        say(**({"passed": True} if value else {"failed": "wrong"}))

    def failed(error: Exception) -> None:
        if isinstance(error, Trouble):
            say(failed=error.kind, name=error.name)
        elif getattr(error, "__notes__", None) == ["exception"]:
            say(failed="exception", name=type(error).__name__)
        else:
            say(failed="wrong", name=type(error).__name__)

    remote = Remote(socket.socket(fileno=channel), setup["solution"]["token"])
    try:
        problem = remote.setup(setup["solution"])
    except Trouble as error:
        problem = {"error": error.kind, "name": error.name}
    if problem is not None:
        told = problem if type(problem) is dict else {}
        say(failed=str(told.get("error")), name=str(told.get("name")), end="not loaded")
        os._exit(0)
    counting = _Counting()
    tree = counting.visit(ast.parse(setup["checks"]))
    say(found=counting.found)
    random.seed(0)  # tests that draw their inputs draw the same ones for every solution
    space: dict[str, Any] = {"__name__": "tests"}
    exec(compile(setup["context"], "<context>", "exec"), space)
    functions = {name: remote.function(name) for name in setup["solution"]["names"]}
    space |= functions
    space |= {_PASSED: passed, _FAILED: failed, "_agentgym_exception": Exception}
    try:
        exec(compile(tree, "<tests>", "exec"), space)
        if setup["entry"] and callable(space.get("check")):
            space["check"](functions[setup["entry"]])
        say(end="complete", calls=remote.calls)
    except Exception as error:
        failed(error)
        say(end="broken off")
    os._exit(0)
