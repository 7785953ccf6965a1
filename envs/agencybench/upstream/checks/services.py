"""What the checks of Code/8 and 9 share: definitions by syntax tree, and scenes with a service.

The service is started in a sandbox with FastAPI's test client; a MongoDB in memory stands in for
pymongo's. The agent's code runs in a process of its own there, step by step.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym.sandbox import Limits
from envs.agencybench.assessment import Assessment, Missing, Unmet, inside
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding
from envs.agencybench.upstream.checks.forms import parsed
from envs.agencybench.upstream.checks.judged import text_check
from envs.agencybench.upstream.sections import Sections

__all__ = [
    "Steps", "answered", "defined", "documents", "judge_check", "play", "scene", "value",
]  # fmt: skip

#: Until a step is answered; the first one waits for FastAPI besides.
_SECONDS, _START = 30.0, 90.0
_NOTHING = (ast.Pass, ast.Import, ast.ImportFrom)

Steps = Sequence[Sequence[Any]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def _does(function: Function) -> bool:
    """Whether it does anything but return a constant or say that it is not there."""
    for node in function.body:
        empty = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Return):
            empty = node.value is None or isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Raise):
            empty = node.exc is not None and "NotImplemented" in ast.dump(node.exc)
        if not empty and not isinstance(node, _NOTHING):
            return True
    return False


def _function(assessment: Assessment, path: str, name: str) -> Function | None:
    """A function of a file, or of the file it is imported from."""
    for node in parsed(assessment, path).body:
        if isinstance(node, Function) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                source = node.module.replace(".", "/") + ".py"
                if (alias.asname or alias.name) == name and source != path:
                    return (
                        _function(assessment, source, alias.name)
                        if source in assessment.files
                        else None
                    )
    return None


def defined(
    functions: Mapping[str, Mapping[str, Sequence[str]]],
) -> Callable[[Assessment], Finding]:
    """A check that functions are there, take what they must, and do something.

    Args:
        functions: Path to name to the first parameters; ``a|b`` names either.
    """

    def run(assessment: Assessment) -> Finding:
        found, lacks = 0, []
        for path, named in functions.items():
            for names, wanted in named.items():
                function = None
                try:
                    for name in names.split("|"):
                        function = function or _function(assessment, path, name)
                except Unmet as fault:
                    lacks.append(str(fault))
                    continue
                if function is None:
                    lacks.append(f"{path} defines no {names}")
                    continue
                given = [a.arg for a in function.args.posonlyargs + function.args.args]
                if given[: len(wanted)] != list(wanted):
                    lacks.append(f"{names} takes {given}, not {list(wanted)}")
                elif not _does(function):
                    lacks.append(f"{names} does nothing")
                else:
                    found += 1
        total = sum(map(len, functions.values()))
        return Finding(round(found / total, 6), "; ".join(dict.fromkeys(lacks))[:600])

    return run


def scene(steps: Steps, env: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """A scene: a service that is started anew with these variables, and what it is asked.

    ``files`` (path to text and mode), ``path`` (a folder of programs) and ``read`` (files that are
    told afterwards) may be given besides. The file ``.env`` is always one of the judge's.
    """
    lines = "".join(f"{key}={text}\n" for key, text in env.items())
    files = {".env": (more.pop("dotenv", lines), 0o644), **more.pop("files", {})}
    return {"steps": [list(step) for step in steps], "env": dict(env), "files": files, **more}


def play(assessment: Assessment, label: str, make: Callable[[], list[Any]]) -> list[list[Any]]:
    """What the steps of scenes gave, worked out once.

    Raises:
        Missing: If FastAPI or its test client is not installed.
        Unmet: If the service was ended.
    """

    def run() -> list[list[Any]]:
        program = inside("inside/documents", "inside/mongo", "inside/containers", "inside/service")
        scenes = make()
        payload = {"program": program, "scenes": scenes, "seconds": _SECONDS, "start": _START}
        told = assessment.probe(
            inside("inside/places", "inside/scenes"), payload,
            seconds=(_START + 2 * _SECONDS) * len(scenes),
            limits=Limits(processes=128, memory=2 << 30, address_space=0),
        )  # fmt: skip
        need(isinstance(told, list) and len(told) == len(scenes), "the service tells nothing")
        for answers in told:
            absent = answers[0].get("absent") if answers and isinstance(answers[0], dict) else None
            if absent:
                raise Missing(f"FastAPI's test client is not there: {absent}")
        return told

    return assessment.once(f"service {label}", run)


def answered(answers: Sequence[Any], number: int, what: str) -> Any:
    """The answer to a step.

    Raises:
        Unmet: If there is none.
    """
    answer = answers[number] if number < len(answers) else None
    need(isinstance(answer, dict), f"{what}: no answer in time")
    return answer


def value(answers: Sequence[Any], number: int, what: str) -> Any:
    """The value of a step.

    Raises:
        Unmet: If it failed.
    """
    answer = answered(answers, number, what)
    if "value" not in answer:
        raise Unmet(f"{what}: {answer.get('message', 'it failed')}"[:300])
    return answer["value"]


def documents(dump: Any, collection: str) -> list[dict[str, Any]]:
    """Documents of a collection, of whichever database."""
    made = []
    for held in dump["databases"].values():
        made += [one for one in held.get(collection, {}).get("docs", []) if isinstance(one, dict)]
    return made


def judge_check(sections: Sections, weight: float = 0.2) -> Check:
    """What rules do not see."""
    return text_check(sections, weight, "judge", "a judge finds the task done with care")
