"""Code/4: answers to problems of four families, compared with the clone's references.

Each task is graded on the families that were asked for so far; the benchmark's script grades every
task on all four. What guessing the most frequent answer would earn counts as nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from envs.agencybench.assessment import Assessment, Missing, Unmet
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding
from envs.agencybench.upstream.checks.forms import parsed
from envs.agencybench.upstream.checks.judged import text_check
from envs.agencybench.upstream.sections import Sections

__all__ = ["checks"]

#: In the order in which the tasks ask for them; the fifth asks for nothing new.
_FAMILIES = ("graph_connectivity", "graph_maxflow", "math_convexity", "geometry")
_KEYS = ("task_type", "problem_id", "answer", "reasoning", "solution_steps", "confidence")
_SUMMARY = ("total_problems", "completed_problems", "task_results", "average_confidence")
_WITHIN = 1e-6


def _answer(problem: Mapping[str, Any], family: str) -> Any:
    answer = problem.get("answer" if family == "geometry" else "label")
    # The references hold numbers and truth values as text here and there.
    if isinstance(answer, str) and family.startswith("graph_"):
        try:
            return json.loads(answer.lower())
        except ValueError:
            answer = None
    if answer is None:
        raise Missing(f"a reference of {family} holds no answer")
    return answer


def _right(given: Any, answer: Any) -> bool:
    if isinstance(answer, bool) or isinstance(given, bool):
        return given is answer
    if isinstance(answer, int | float):
        return isinstance(given, int | float) and abs(given - answer) <= _WITHIN
    return isinstance(given, str) and given.strip() == str(answer).strip()


def _number(name: Any) -> int | None:
    found = re.search(r"(\d+)$", str(name))
    return int(found[1]) if found else None


def _results(assessment: Assessment, family: str) -> dict[int, Any]:
    """The results of a family by the number of the problem."""

    def make() -> dict[int, Any]:
        made: dict[int, Any] = {}
        pattern = re.compile(rf"(?:^|/)outputs/{family}/([^/]+)/result\.json$")
        for path in assessment.files:
            found = pattern.search(path)
            number = _number(found[1]) if found else None
            if number is None:
                continue
            try:
                made[number] = json.loads(assessment.files[path])
            except (ValueError, RecursionError):
                made[number] = None
        return made

    return assessment.once(f"results of {family}", make)


def _wanted(assessment: Assessment, family: str) -> dict[int, Any]:
    """The right answers of a family by the number of the problem.

    The tasks take the number from a problem's ``id``, and the benchmark's script from its folder,
    which for most problems is another one. What was handed in is read in the way that fits better.
    """
    gold = assessment.world.gold
    if not isinstance(gold, Mapping) or not gold.get(family):
        raise Missing(f"the references of {family} are not there")
    given = _results(assessment, family)

    def fitting(wanted: Mapping[int, Any]) -> tuple[int, int]:
        return _correct(given, wanted), len(set(given) & set(wanted))

    ways: list[dict[int, Any]] = [{}, {}]
    for folder, problem in gold[family].items():
        numbers = (_number(folder), _number(problem.get("id", folder)))
        for way, number in zip(ways, numbers, strict=True):
            if number is not None:
                way[number] = _answer(problem, family)
    return max((way for way in ways if len(way) == len(gold[family])), key=fitting, default=ways[0])


def _correct(given: Mapping[int, Any], wanted: Mapping[int, Any]) -> int:
    """How many results hold the right answer."""
    results = ((given.get(name), answer) for name, answer in wanted.items())
    return sum(isinstance(r, dict) and _right(r.get("answer"), answer) for r, answer in results)


def _asked(number: int) -> tuple[str, ...]:
    return _FAMILIES[: min(number, len(_FAMILIES))]


def _solved(number: int) -> Any:
    def run(assessment: Assessment) -> Finding:
        shares, told = [], []
        for family in _asked(number):
            wanted, given = _wanted(assessment, family), _results(assessment, family)
            right = _correct(given, wanted)
            counts = Counter(json.dumps(answer) for answer in wanted.values())
            guess = 0 if family == "graph_maxflow" else counts.most_common(1)[0][1]
            share = (right - guess) / (len(wanted) - guess) if len(wanted) > guess else 0.0
            if len(counts) == 1:
                share = right / len(wanted)
            shares.append(max(0.0, share))
            told.append(f"{family}: {right} of {len(wanted)}")
        return Finding(round(sum(shares) / len(shares), 6), "; ".join(told))

    return run


def _formed(result: Any, family: str) -> bool:
    if not isinstance(result, dict) or any(key not in result for key in _KEYS):
        return False
    kinds: dict[str, Any] = {"graph_connectivity": bool, "graph_maxflow": int}
    kind = kinds.get(family, str)
    confidence = result["confidence"]
    steps = result["solution_steps"]
    return (
        type(result["answer"]) is kind
        and result["task_type"] == family
        and isinstance(result["reasoning"], str)
        and len(result["reasoning"].split()) >= 4
        and isinstance(steps, list)
        and bool(steps)
        and isinstance(confidence, int | float)
        and 0 <= confidence <= 1
    )


def _format(number: int) -> Any:
    def run(assessment: Assessment) -> Finding:
        total = formed = 0
        for family in _asked(number):
            wanted, given = _wanted(assessment, family), _results(assessment, family)
            total += len(wanted)
            formed += sum(_formed(given.get(name), family) for name in wanted)
        return Finding(round(formed / total, 6), f"{formed} of {total} results are well-formed")

    return run


def _pipeline(number: int) -> Any:
    def run(assessment: Assessment) -> Finding:
        path = next((p for p in assessment.files if p.endswith("outputs/main.py")), None)
        if path is None:
            raise Unmet("there is no outputs/main.py")
        parsed(assessment, path)
        summary = assessment.json(path.replace("main.py", "summary.json"))
        need(isinstance(summary, dict), "summary.json holds no object")
        absent = [key for key in _SUMMARY if key not in summary]
        need(not absent, f"summary.json lacks {', '.join(absent)}")
        need(summary["total_problems"] == 280, "total_problems is not 280")
        results = summary["task_results"]
        for family in _asked(number):
            entry = results.get(family) if isinstance(results, dict) else None
            made = len(_results(assessment, family))
            done = entry.get("completed") if isinstance(entry, dict) else None
            need(done == made and made > 0, f"{family} is told to be {done}, and is {made}")
        if number == 5:
            need(summary.get("mode") in ("baseline", "improved1", "improved2"), "mode is missing")
            need("total_llm_calls" in summary, "total_llm_calls is missing")
        return Finding(1.0)

    return run


def checks(number: int, sections: Sections) -> tuple[Check, ...]:
    """The checks of task ``number``, from 1."""
    return (
        Check("answers", 0.75, "the problems' right answers", _solved(number), kind="file"),
        Check("format", 0.1, "results in the form asked for", _format(number), kind="file"),
        Check("pipeline", 0.05, "a program and a true summary", _pipeline(number), kind="file"),
        text_check(sections, 0.1, "explanations", "a judge finds the explanations sound"),
    )
