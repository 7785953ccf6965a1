"""Runs inside the sandbox: calls the package ``units`` and tells what came back."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from envs.agencybench.inside.prelude import PAYLOAD, Lines, begin, report

CHILD = r"""
import inspect, json, os, sys
from fractions import Fraction
take, give = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
nothing = os.open(os.devnull, os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(nothing, number)
loads, dumps = json.loads, json.dumps

def say(value):
    give.write(dumps(value).encode() + b"\n")

def neighbours(unit):
    say({"ask": str(unit)})
    return {name: Fraction(factor) for name, factor in loads(take.readline()).items()}

def signature(function):
    return [parameter for parameter in inspect.signature(function).parameters]

sys.path.insert(0, os.getcwd())
for line in take:
    name, arguments = loads(line)
    try:
        import units
        if name == "names":
            names = sorted(str(n) for n in units.__all__)
            made = {
                "version": str(units.__version__),
                "names": names,
                "parameters": {n: signature(getattr(units, n)) for n in arguments},
            }
        elif name == "find_factor":
            made = str(Fraction(units.find_factor(*arguments, neighbours)))
        else:
            made = getattr(units, name)(*arguments)
            if type(made) is not str:
                raise TypeError("the value is no str")
        say({"value": made})
    except BaseException as error:
        position = getattr(error, "position", None)
        say({
            "raised": [kind.__name__ for kind in type(error).__mro__],
            "position": position if type(position) is int else None,
            "message": str(error)[:200],
        })
"""

_PATIENCE = 5.0
_MOST_HANGS = 3
_MOST_CALLS = 200


def answers(calls: list[Any]) -> list[Any]:
    """What each call returns or raises; None where no answer came."""
    made: list[Any] = []
    child, hangs = None, 0
    for name, arguments, *graph in calls:
        if hangs >= _MOST_HANGS:
            made.append(None)
            continue
        if child is None:
            child = Lines([sys.executable, "-I", "-c", CHILD])
        answer = child.ask([name, arguments], _PATIENCE)
        asked = []
        while isinstance(answer, dict) and "ask" in answer and graph:
            asked.append(str(answer["ask"])[:100])
            if len(asked) > _MOST_CALLS:
                answer = None
                break
            answer = child.ask(graph[0].get(asked[-1], {}), _PATIENCE)
        if not isinstance(answer, dict):
            child.end()
            child, hangs, answer = None, hangs + 1, {}
            if len(asked) > _MOST_CALLS:  # no hang: it was stopped
                hangs -= 1
        made.append({**answer, "asked": asked})
    if child is not None:
        child.end()
    return made


def commands(runs: list[list[str]]) -> list[Any]:
    """Exit code, output and errors of ``python -m units`` with each list of arguments."""
    begin()
    made: list[Any] = []
    environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    for arguments in runs:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "units", *arguments],
                capture_output=True,
                timeout=_PATIENCE,
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            made.append(None)
            continue
        out, err = (text[:4000].decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        made.append([done.returncode, out, err])
    return made


if __name__ == "__main__":
    report(answers(PAYLOAD["calls"]) if "calls" in PAYLOAD else commands(PAYLOAD["runs"]))
