"""Backend/3: a generator of events, run with seeds that are drawn anew.

The later tasks report on themselves in forms of their own; what they report proves nothing, and a
judge decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from envs.agencybench.assessment import Assessment, Unmet, inside
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding
from envs.agencybench.upstream.checks.judged import text_check
from envs.agencybench.upstream.sections import Sections

__all__ = ["checks"]

_SCRIPT, _SCHEMA = "subtask1_generator.py", "domain/events.schema.json"
_KINDS: dict[str, Any] = {
    "string": str, "object": dict, "array": list, "boolean": bool, "integer": int,
    "number": (int, float), "null": type(None),
}  # fmt: skip


def fits(value: Any, schema: Any) -> bool:
    """Whether a value fits a JSON schema, by the keywords that such schemas use."""
    if not isinstance(schema, dict):
        return True
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    known = [_KINDS[kind] for kind in kinds if kind in _KINDS]
    if known and not any(isinstance(value, kind) for kind in known):
        return False
    if isinstance(value, bool) and known and "boolean" not in kinds:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, dict):
        members = schema.get("properties") or {}
        if any(name not in value for name in schema.get("required") or ()):
            return False
        if schema.get("additionalProperties") is False and set(value) - set(members):
            return False
        return all(fits(value[name], part) for name, part in members.items() if name in value)
    if isinstance(value, list):
        return all(fits(item, schema.get("items")) for item in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        return (low is None or value >= low) and (high is None or value <= high)
    return True


def _results(assessment: Assessment) -> Mapping[str, Any]:
    need(_SCRIPT in assessment.files, f"there is no {_SCRIPT}")
    found = sorted(p for p in assessment.files if p.startswith("domain/"))
    found = [path for path in found if path.endswith(".json")]
    need(bool(found), "there is no schema in domain/")
    # Beside the schema of events there may be fragments.
    schema = min(found, key=lambda p: (p != _SCHEMA, "schema" not in p, "event" not in p, p))
    dice = assessment.dice("events")
    one, other = dice.between(100, 9000), dice.between(9001, 99999)
    count = dice.between(20, 60)

    def make() -> Mapping[str, Any]:
        def generate(seed: int, mode: str, out: str) -> list[Any]:
            argv = ["python3", _SCRIPT, "--seed", str(seed), "--count", str(count)]
            argv += ["--schema", schema, "--mode", mode, "--out", out]
            return ["run", argv, "", 30]

        steps = [
            ["write", "data/.room", ""],  # the environment has an empty folder data
            generate(one, "overwrite", "data/a.jsonl"), generate(one, "overwrite", "data/b.jsonl"),
            ["write", "data/b.jsonl", ""], generate(one, "overwrite", "data/b.jsonl"),
            generate(other, "overwrite", "data/c.jsonl"),
            generate(one, "append", "data/d.jsonl"), generate(other, "append", "data/d.jsonl"),
            generate(other, "overwrite", "data/e.jsonl"),
            generate(one, "overwrite", "data/e.jsonl"),
            ["files", "data"], ["files", "logs"],
        ]  # fmt: skip
        told = assessment.probe(inside("inside/places", "inside/console"), steps, seconds=300)
        return {"runs": told[1:], "data": told[-2], "logs": told[-1]}

    made = dict(assessment.once("events", make))
    return {**made, "one": one, "other": other, "count": count, "schema": schema}


def _lines(results: Mapping[str, Any], name: str) -> list[str]:
    text = results["data"].get(f"data/{name}.jsonl")
    need(bool(text), f"no events are written: {results['runs'][0][1][-120:]}")
    return str(text).splitlines()


def _deterministic(assessment: Assessment) -> Finding:
    results = _results(assessment)
    one, again, other = (_lines(results, name) for name in "abc")
    need(one == again, "the same arguments give other events")
    need(one != other, "another seed gives the same events")
    need(len(one) == results["count"], f"{len(one)} events, not {results['count']}")
    return Finding(1.0)


def _valid(assessment: Assessment) -> Finding:
    results = _results(assessment)
    schema = assessment.json(results["schema"])
    members = schema.get("properties") if isinstance(schema, dict) else None
    need(isinstance(members, dict) and len(members) >= 2, "the schema names no properties")
    lines = [*_lines(results, "a"), *_lines(results, "c")]
    valid = 0
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        valid += isinstance(value, dict) and fits(value, schema)
    distinct = len(set(lines))
    need(distinct > len(lines) / 2, "most events are the same")
    return Finding(round(valid / len(lines), 6), f"{valid} of {len(lines)} events fit the schema")


def _modes(assessment: Assessment) -> Finding:
    results = _results(assessment)
    one, other = _lines(results, "a"), _lines(results, "c")
    need(_lines(results, "e") == one, "overwriting leaves something of before")
    both = _lines(results, "d")
    need(len(both) == 2 * results["count"], "appending does not add")
    need(both[: len(one)] == one, "appending changes events")
    # A generator may number what it appends on from what is there.
    new = set(both[len(one) :]) - set(one)
    need(len(new) > len(other) / 2, "what is appended is there already")
    return Finding(1.0)


def _logged(assessment: Assessment) -> Finding:
    results = _results(assessment)
    _lines(results, "a")
    text = str(results["logs"].get("logs/gen.log", ""))
    new = [line for line in text.splitlines() if line.strip()]
    for seed in (results["one"], results["other"]):
        for mode in ("append", "overwrite"):
            wanted = rf"\b{seed}\b"
            found = [line for line in new if re.search(wanted, line) and mode in line.lower()]
            if not found:
                raise Unmet(f"logs/gen.log has no entry with seed and mode {mode}")
    entry = next(line for line in new if re.search(rf"\b{results['one']}\b", line))
    need(re.search(r"\d{4}-\d{2}-\d{2}|\d{10}", entry) is not None, "entries have no time")
    need(".jsonl" in entry, "entries do not name the output")
    return Finding(1.0)


def checks(number: int, sections: Sections) -> tuple[Check, ...]:
    """The checks of task ``number``, from 1."""
    if number > 1:
        return (text_check(sections, 1.0),)
    points: dict[str, tuple[float, str, Callable[[Assessment], Finding]]] = {
        "determinism": (0.35, "events follow from the seed", _deterministic),
        "validity": (0.25, "events fit the schema", _valid),
        "modes": (0.2, "events are appended or replaced", _modes),
        "log": (0.2, "each run is logged", _logged),
    }
    return tuple(
        Check(name, weight, required, run) for name, (weight, required, run) in points.items()
    )
