"""Running a solution against its hidden tests.

The code under test runs in a sandbox and is only ever given arguments; it gives back plain values,
which are compared here, or in a second sandbox where tests that are code run. No expected value, no
test and no verdict is in a process that the code can touch.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import secrets
import socket
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from agentgym.sandbox import REPORT_FD, Limits, Result, Sandbox, SandboxError
from agentgym.sandbox import Status as Ending
from envs.code_reasoning.compare import agrees
from envs.code_reasoning.inside.plain import NotPlain, dumps, loads
from envs.code_reasoning.tasks import CodeTask, ValueTest

__all__ = ["MAX_CODE", "Score", "Status", "Verdicts", "score"]

#: Longest code that is run, in characters.
MAX_CODE = 50_000
_INSIDE = Path(__file__).parent / "inside"
_PACKAGE = "envs.code_reasoning.inside"
_INTERPRETER = (sys.implementation.name, sys.hexversion)
_CHANNEL = REPORT_FD + 1
_PAIRS = 4  # solutions judged at once in one sandbox; each may take two of its places
_JUDGE_SECONDS = 5.0  # that a judge may need beyond the solution
_REPORT_FULL = 1 << 20  # bytes of a report that may have lost its end


class Status(StrEnum):
    """What became of a solution, or of one test of it.

    Attributes:
        OK: All tests passed; of a test: passed.
        NO_CODE: The response holds no code.
        TOO_LONG: The code, or a value that it returned, is too long.
        SYNTAX: The code cannot be compiled.
        NO_FUNCTION: It does not define the function asked for.
        EXCEPTION: It raised one.
        WRONG: It returned another value than expected.
        NOT_PLAIN: It returned something that is no plain value, such as an object of its own class.
        TIMEOUT: It did not end in time.
        MEMORY: It needed too much memory.
        OUTPUT: It wrote too much.
        EARLY_EXIT: It left before the tests were through: ``sys.exit``, ``os._exit``.
        KILLED: It died by a signal, or filled its disk.
        FORGED: It answered for the harness.
        SANDBOX: The sandbox ended by itself: a fault of the machine, not of the code.
    """

    OK = "ok"
    NO_CODE = "no_code"
    TOO_LONG = "too_long"
    SYNTAX = "syntax"
    NO_FUNCTION = "no_function"
    EXCEPTION = "exception"
    WRONG = "wrong"
    NOT_PLAIN = "not_plain"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    EARLY_EXIT = "early_exit"
    KILLED = "killed"
    FORGED = "forged"
    SANDBOX = "sandbox"


_ENDINGS = {
    Ending.OK: Status.EARLY_EXIT,
    Ending.ERROR: Status.EARLY_EXIT,
    Ending.TIMEOUT: Status.TIMEOUT,
    Ending.MEMORY: Status.MEMORY,
    Ending.OUTPUT: Status.OUTPUT,
    Ending.DISK: Status.KILLED,
    Ending.KILLED: Status.KILLED,
    Ending.DIED: Status.SANDBOX,
}


@dataclass(frozen=True, slots=True)
class Score:
    """The verdict on a solution.

    Attributes:
        status: ``OK`` if every test passed, else the status of the first one that did not; None
            before there was a solution.
        passed: Number of tests passed.
        total: Number of tests.
        counts: Status to the number of tests that ended so.
        exception: Name of the first exception, as far as it is one of Python's own.
    """

    status: Status | None
    passed: int
    total: int
    counts: dict[str, int] = field(default_factory=dict)
    exception: str | None = None

    @property
    def share(self) -> float:
        """Share of the tests passed; 1 only if all are."""
        return self.passed / self.total if self.total else 0.0

    @classmethod
    def of(cls, statuses: Iterable[Status], exception: str | None = None) -> Score:
        """The verdict from the tests' own."""
        listed = list(statuses)
        counts = Counter(str(status) for status in listed)
        first = next((status for status in listed if status is not Status.OK), Status.OK)
        passed = counts[Status.OK]
        return cls(first, passed, len(listed), dict(sorted(counts.items())), exception)

    @classmethod
    def none(cls, status: Status, total: int, exception: str | None = None) -> Score:
        """No test passed, each for the same reason."""
        return cls.of([status] * max(total, 1), exception)


def score(task: CodeTask, code: str, sandbox: Sandbox, limits: Limits) -> Score:
    """Judge a solution.

    Args:
        task: What was to be written, and its tests.
        code: The solution.
        sandbox: Where to run it.
        limits: What it may use, for all tests together.
    """
    total = task.number
    if not code.strip():
        return Score.none(Status.NO_CODE, total)
    if len(code) > MAX_CODE:
        return Score.none(Status.TOO_LONG, total)
    if any("\ud800" <= char <= "\udfff" for char in code):  # no text that a file could hold
        return Score.none(Status.SYNTAX, total, "SyntaxError")
    setup = {
        "token": secrets.token_hex(16),
        "code": code,
        "context": task.context,
        "head": task.head,
        "names": list(task.names),
    }
    with _places(sandbox):
        for last in (False, True):
            if task.checks:
                verdict = _by_code(task, setup, sandbox, limits)
            else:
                verdict = _by_value(task.tests, setup, sandbox, limits)
            if last or str(Status.SANDBOX) not in verdict.counts:
                break
    return verdict


class Verdicts:
    """Verdicts on solutions judged before: members of a group often write the same.

    Those that may be another's fault, such as a time-out on a busy machine, are not kept.

    Args:
        size: Most verdicts kept; the oldest go first.
    """

    _KEPT = frozenset(
        (Status.OK, Status.WRONG, Status.EXCEPTION, Status.NO_FUNCTION, Status.SYNTAX,
         Status.NOT_PLAIN)
    )  # fmt: skip

    def __init__(self, size: int = 4096) -> None:
        self.size = size
        self._known: OrderedDict[bytes, Score] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, task: CodeTask, code: str, sandbox: Sandbox, limits: Limits) -> Score:
        """Judge a solution, unless the same was judged before; see :func:`score`."""
        facts = (sandbox.describe(), task, code, limits)
        key = hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        verdict = score(task, code, sandbox, limits)
        if all(status in self._KEPT for status in verdict.counts):
            with self._lock:
                self._known[key] = verdict
                while len(self._known) > self.size:
                    self._known.popitem(last=False)
        return verdict


_semaphores: WeakKeyDictionary[Sandbox, threading.BoundedSemaphore] = WeakKeyDictionary()
_lock = threading.Lock()


def _places(sandbox: Sandbox) -> threading.BoundedSemaphore:
    """Bounds the solutions in a sandbox, so that no judge waits for a place a solution holds."""
    with _lock:
        return _semaphores.setdefault(sandbox, threading.BoundedSemaphore(_PAIRS))


@cache
def _program(name: str, call: str) -> str:
    """Python text that runs a file of ``inside`` without finding it on a path.

    The files go along as text, and compiled for an interpreter that is the same as this one.
    """
    files = {
        f"{_PACKAGE}.{file}": (_INSIDE / f"{file}.py").read_text("utf-8")
        for file in ("plain", name)
    }
    made = {file: marshal.dumps(compile(text, file, "exec")) for file, text in files.items()}
    return (
        "import marshal, sys, types\n"
        f"files, made = {files!r}, {made!r}\n"
        f"same = (sys.implementation.name, sys.hexversion) == {_INTERPRETER!r}\n"
        "for name in files:\n"
        "    sys.modules[name] = module = types.ModuleType(name)\n"
        "    code = marshal.loads(made[name]) if same else compile(files[name], name, 'exec')\n"
        "    exec(code, module.__dict__)\n"
        f"module.{call}\n"
    )


# Tests by value --------------------------------------------------------------------------------


def _by_value(
    tests: tuple[ValueTest, ...], setup: dict[str, Any], sandbox: Sandbox, limits: Limits
) -> Score:
    calls = [
        dumps({"name": test.name, "args": list(test.args), "kwargs": dict(test.kwargs)})
        for test in tests
    ]
    result = sandbox.run(
        _program("solution", f"main(0, {REPORT_FD})"),
        stdin="".join(f"{line}\n" for line in [json.dumps(setup), *calls]),
        report=True,
        limits=limits,
    )
    answers = _answers(result.report, setup["token"])
    problem = next((a["loaded"] for a in answers if "loaded" in a), None)
    if type(problem) is dict:
        return Score.none(_status(problem), len(tests), _name(problem))
    by_number: dict[int, dict[str, Any]] = {}
    for answer in answers:
        number = answer.get("call")
        if type(number) is int:
            by_number.setdefault(number, answer)
    statuses, exception = [], None
    for number, test in enumerate(tests):
        found = by_number.get(number)
        if found is None:
            statuses.append(_ending(result))
            continue
        statuses.append(_verdict(test, found))
        if statuses[-1] is Status.EXCEPTION and exception is None:
            exception = _name(found)
    return Score.of(statuses, exception)


def _verdict(test: ValueTest, answer: dict[str, Any]) -> Status:
    if test.raises is not None:
        raised = answer.get("error") == "exception" and answer.get("name") == test.raises
        return Status.OK if raised else Status.WRONG
    if "error" in answer:
        return _status(answer)
    return Status.OK if agrees(test, answer.get("value")) else Status.WRONG


def _answers(report: bytes, token: str) -> list[dict[str, Any]]:
    """The lines of a report that carry the run's token."""
    out = []
    for line in report.split(b"\n"):
        try:
            answer = loads(line)
        except NotPlain:
            continue
        if type(answer) is dict and answer.get("token") == token:
            out.append(answer)
    return out


def _status(answer: dict[str, Any]) -> Status:
    try:
        status = Status(answer["error"])
    except (KeyError, ValueError, TypeError):
        return Status.FORGED
    return Status.FORGED if status is Status.OK else status


def _name(answer: dict[str, Any]) -> str | None:
    name = answer.get("name")
    return name[:60] if type(name) is str else None


def _ending(result: Result) -> Status:
    """Why there is no answer."""
    if len(result.report) >= _REPORT_FULL:
        return Status.TOO_LONG
    return _ENDINGS[result.status]


# Tests that are code ---------------------------------------------------------------------------


def _by_code(task: CodeTask, setup: dict[str, Any], sandbox: Sandbox, limits: Limits) -> Score:
    """Let solution and judge, each in its own sandbox, talk over a socket."""
    ours, theirs = socket.socketpair()
    ended: list[Result | SandboxError] = []

    def solve() -> None:
        try:
            program = _program("solution", f"main({_CHANNEL}, {_CHANNEL})")
            fds = {_CHANNEL: theirs.fileno()}
            ended.append(sandbox.run(program, pass_fds=fds, limits=limits))
        except SandboxError as error:
            ended.append(error)
        finally:
            theirs.close()  # the judge sees that the solution has ended

    token = secrets.token_hex(16)
    job = {
        "token": token,
        "solution": setup,
        "checks": task.checks,
        "context": task.context,
        "entry": task.names[0],
    }
    thread = threading.Thread(target=solve, name="code-solution", daemon=True)
    thread.start()
    try:
        judged = sandbox.run(
            _program("judge", f"main(0, {REPORT_FD}, {_CHANNEL})"),
            stdin=json.dumps(job) + "\n",
            report=True,
            pass_fds={_CHANNEL: ours.fileno()},
            limits=limits.but(seconds=limits.seconds + _JUDGE_SECONDS),
        )
    finally:
        ours.close()  # the solution sees that there are no more calls
        thread.join()
    solved = ended[0]
    if isinstance(solved, SandboxError):
        raise solved
    return _judged(_answers(judged.report, token), judged, solved)


def _judged(answers: list[dict[str, Any]], judged: Result, solved: Result) -> Score:
    """The verdict from what the judge wrote."""
    facts: dict[str, Any] = {"found": 0, "end": None, "calls": 0}
    statuses: list[Status] = []
    exception = None
    for answer in answers:
        facts |= {key: answer[key] for key in facts if key in answer}
        if "passed" in answer:
            statuses.append(Status.OK)
        elif answer.get("failed") == "gone":
            statuses.append(_ENDINGS[solved.status])
        elif "failed" in answer:
            statuses.append(_status({"error": answer["failed"]}))
            if statuses[-1] is Status.EXCEPTION and exception is None:
                exception = _name(answer)
    found, end = facts["found"], facts["end"]
    if end == "not loaded":
        return Score.none(statuses[0], found, _name(answers[0]))
    if end is None:  # the judge itself did not come to an end
        ending = _ENDINGS[judged.status]
        statuses.append(Status.SANDBOX if ending is Status.EARLY_EXIT else ending)
    if end != "complete":  # the tests behind the one that broke off were not reached
        statuses += [statuses[-1]] * (found - len(statuses))
    elif not facts["calls"] and all(status is Status.OK for status in statuses):
        statuses = [Status.WRONG] * max(len(statuses), 1)  # tests that call nothing prove nothing
    return Score.of(statuses or [Status.OK], exception)
