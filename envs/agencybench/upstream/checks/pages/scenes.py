"""Playing a page: scenes of steps, what was seen in them, and checks that judge it.

All scenes of a task are played in one browser. Each starts on a page that is freshly opened, with
an empty storage. A page tells numbers and texts; whether they are right is decided outside of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.agencybench.assessment import Assessment, Unmet
from envs.agencybench.browser import Answer, browse, need, value_of
from envs.agencybench.scenario import Check, Finding

__all__ = [
    "PageTask",
    "Point",
    "Seen",
    "Step",
    "act",
    "checks_of",
    "click",
    "js",
    "pause",
    "press",
    "see",
    "tap",
    "until",
]

#: A label, or an empty one for what is only done, and a step of the browser.
Step = tuple[str, tuple[Any, ...]]

_HELP = (
    "const q=s=>document.querySelector(s),all=s=>[...document.querySelectorAll(s)],"
    "box=s=>{const e=typeof s==='string'?q(s):s;if(!e)return null;"
    "const r=e.getBoundingClientRect();return [r.x,r.y,r.width,r.height]},"
    "text=s=>{const e=q(s);return e?String(e.value||e.textContent||'').trim():null},"
    "plain=v=>typeof v==='string'?v:JSON.stringify(v);"
)
# What speaks with the page's own scripts, and what those leave; all else is seen apart from them.
_PAGES_OWN = re.compile(r"(?<![\w.#-])(?:app|game)\.|__(?!(?:w|s|k|flash)\b)")
# A page that does not exist: the storage of the same origin, and no script that could fill it.
_BLANK = "nothing-is-here"


def _kind(expression: str, own: str, apart: str) -> str:
    return own if _PAGES_OWN.search(expression) else apart


def js(expression: str) -> str:
    """A script that returns an expression; ``q``, ``all``, ``box``, ``text`` and ``plain`` help."""
    return f"{_HELP}return ({expression});"


def act(expression: str) -> Step:
    """Do something; what comes of it does not matter unless it throws."""
    script = f"{_HELP}({expression});return null;"
    return "", (_kind(expression, "js", "see"), script)


def see(label: str, expression: str) -> Step:
    """Keep the value of an expression.

    Where it does not ask the page's own scripts, they cannot deceive it: what they have put in the
    place of ``document.querySelector``, ``performance.now`` and their like is not there.
    """
    return label, (_kind(expression, "js", "see"), js(expression))


def tap(expression: str) -> Step:
    """Press the mouse where the expression says."""
    return "", ("tap", js(expression))


def click(selector: str) -> Step:
    """Click on an element."""
    return "", ("click", selector)


def press(*keys: str) -> Step:
    """Press keys, one after the other."""
    return "", ("keys", *keys)


def pause(seconds: float) -> Step:
    """Wait."""
    return "", ("wait", seconds)


def until(expression: str, seconds: float) -> Step:
    """Wait until something is so; that it never is does not matter here."""
    return "", (_kind(expression, "until", "await"), js(expression), seconds)


class Seen:
    """What one scene showed.

    Args:
        steps: The scene's steps.
        answers: What came of them.
        files: The workspace.
    """

    def __init__(
        self, steps: Sequence[Step], answers: Sequence[Answer], files: Mapping[str, bytes]
    ) -> None:
        self._found: dict[str, Answer] = {}
        self.files = files
        amiss: str | None = None
        for (label, _), answer in zip(steps, answers, strict=True):
            if amiss is None and answer.error is not None and not label:
                amiss = answer.error
            if label:
                self._found[label] = answer if amiss is None else Answer(error=amiss)

    def __getitem__(self, label: str) -> Any:
        """The value kept under a label.

        Raises:
            Unmet: If the page failed there or before.
        """
        return value_of(self._found[label])

    def number(self, label: str) -> float:
        """A number kept under a label.

        Raises:
            Unmet: If it is none.
        """
        return number(self[label], label)

    def fixture(self, name: str) -> list[Any]:
        """The entries of a JSON file of the workspace: a list, or the list in an object.

        Raises:
            Unmet: If there is none, or it has fewer than two entries.
        """
        need(name in self.files, f"{name} is missing")
        try:
            value = json.loads(self.files[name])
        except (ValueError, RecursionError):
            raise Unmet(f"{name} is not valid JSON") from None
        if isinstance(value, dict):
            value = next((member for member in value.values() if isinstance(member, list)), None)
        need(isinstance(value, list) and len(value) >= 2, f"{name} holds no list of two entries")
        need(all(isinstance(entry, dict) for entry in value), f"{name}: entries must be objects")
        return value


def number(value: Any, what: str) -> float:
    """A number.

    Raises:
        Unmet: If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unmet(f"{what} is no number: {value!r}"[:120])
    return float(value)


@dataclass(frozen=True, slots=True)
class Point:
    """One thing that is judged in a scene.

    Attributes:
        name: Id of the check.
        weight: Its share of the task's.
        required: What must be so, for the agent.
        scene: The scene that shows it.
        judge: Raises :class:`Unmet` unless it is so.
    """

    name: str
    weight: float
    required: str
    scene: str
    judge: Callable[[Seen], None]


@dataclass(frozen=True, slots=True)
class PageTask:
    """The scenes of a task and what is judged in them."""

    scenes: Mapping[str, Sequence[Step]]
    points: Sequence[Point]


def _opening(ready: str) -> Iterator[tuple[Any, ...]]:
    yield ("open", _BLANK)
    yield ("js", "localStorage.clear(); sessionStorage.clear(); return null;")
    yield ("open", "index.html")
    yield ("until", js(f"document.readyState==='complete' && !!window.{ready}"), 3)
    yield ("wait", 0.15)


def _play(assessment: Assessment, task: PageTask, ready: str) -> dict[str, Seen]:
    need("index.html" in assessment.files, "there is no index.html")
    opening = list(_opening(ready))
    steps: list[tuple[Any, ...]] = []
    for scene in task.scenes.values():
        steps += [*opening, *(step for _, step in scene)]
    answers = browse(assessment, steps)
    made, at = {}, 0
    for name, scene in task.scenes.items():
        at += len(opening)
        made[name] = Seen(scene, answers[at : at + len(scene)], assessment.files)
        at += len(scene)
    return made


def checks_of(task: PageTask, ready: str, share: float) -> tuple[Check, ...]:
    """The points of a task as checks.

    Args:
        task: What is played and judged.
        ready: The page's interface: ``app`` or ``game``.
        share: The weight of all of them together.
    """
    total = sum(point.weight for point in task.points)

    def check(point: Point) -> Check:
        def run(assessment: Assessment) -> Finding:
            seen = assessment.once("page", lambda: _play(assessment, task, ready))
            point.judge(seen[point.scene])
            return Finding(1.0)

        weight = round(point.weight * share / total, 6)
        return Check(point.name, weight, point.required, run, frozenset({"browser"}), "dom")

    return tuple(check(point) for point in task.points)
