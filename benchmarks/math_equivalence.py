"""Put cases of answer equivalence through the grader of MathReasoning.

    python -m benchmarks.math_equivalence --cases FILE

``FILE`` holds a JSON object a line: ``gold``, ``candidate``, ``kind`` (``answer`` or
``response``), ``expected`` (true or false), and optionally ``id``, ``category`` and ``policy`` (the
convention that a case depends on). Every case goes through ``envs.math_reasoning.grade`` with its
default policies and nothing else. Exits with 0 if, among the cases without ``policy``, agreement
reaches ``--agreement`` and false positives do not exceed ``--false-positives``; with 1 if not; with
2 if the file cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.math_reasoning import Verdict, grade, warm_up

_SHOWN = 72


class CaseError(ValueError):
    """The file of cases cannot be used."""


@dataclass(frozen=True, slots=True)
class Case:
    """One pair with its expected verdict."""

    id: str
    kind: str
    category: str
    gold: str
    candidate: str
    expected: bool
    policy: str | None


@dataclass(slots=True)
class Tally:
    """Verdicts on some cases."""

    total: int = 0
    false_positives: int = 0
    false_negatives: int = 0

    @property
    def agreement(self) -> float:
        """Share of verdicts that were as expected."""
        wrong = self.false_positives + self.false_negatives
        return 1.0 - wrong / self.total if self.total else 1.0

    def add(self, case: Case, correct: bool) -> None:
        """Count one verdict."""
        self.total += 1
        self.false_positives += correct and not case.expected
        self.false_negatives += case.expected and not correct

    def line(self) -> str:
        """The counts as text."""
        return (
            f"{self.total:5d} cases  agreement {self.agreement:7.2%}  "
            f"false positives {self.false_positives:3d}  false negatives {self.false_negatives:3d}"
        )


@dataclass(slots=True)
class Result:
    """What a run over the cases found."""

    free: Tally = field(default_factory=Tally)
    by_policy: Tally = field(default_factory=Tally)
    categories: dict[str, Tally] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    via: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[Case, Verdict]] = field(default_factory=list)


def read_cases(path: Path) -> list[Case]:
    """The cases of a file.

    Raises:
        CaseError: If it cannot be read; the message names the line.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"{path}: {error}") from None
    cases = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            cases.append(_case(json.loads(line), number))
        except (ValueError, KeyError, TypeError) as error:
            raise CaseError(f"{path}, line {number}: {error!r}") from None
    if not cases:
        raise CaseError(f"{path} holds no cases")
    return cases


def _case(row: dict[str, Any], number: int) -> Case:
    if not isinstance(row["expected"], bool):
        raise ValueError(f"expected must be true or false, got {row['expected']!r}")
    if row["kind"] not in ("answer", "response"):
        raise ValueError(f"kind must be answer or response, got {row['kind']!r}")
    return Case(
        id=str(row.get("id", number)),
        kind=row["kind"],
        category=str(row.get("category", "")),
        gold=row["gold"],
        candidate=row["candidate"],
        expected=row["expected"],
        policy=row.get("policy") or None,
    )


def run(cases: Sequence[Case]) -> Result:
    """Grade every case."""
    result = Result()
    for case in cases:
        start = time.perf_counter()
        verdict = grade(case.candidate, case.gold, kind=case.kind)  # type: ignore[arg-type]
        result.seconds.append(time.perf_counter() - start)
        (result.by_policy if case.policy else result.free).add(case, verdict.correct)
        result.categories.setdefault(case.category, Tally()).add(case, verdict.correct)
        result.statuses[verdict.status] += 1
        result.via[verdict.via] += 1
        if verdict.correct != case.expected:
            result.wrong.append((case, verdict))
    return result


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(result: Result) -> str:
    """The result as text."""
    lines = [
        f"without policy {result.free.line()}",
        f"with policy    {result.by_policy.line()}",
        "",
    ]
    width = max(map(len, result.categories))
    for name in sorted(result.categories):
        lines.append(f"  {name:{width}} {result.categories[name].line()}")
    shares = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (1.0, "max"))
    latency = "  ".join(f"{name} {percentile(result.seconds, p) * 1e3:.3f}" for p, name in shares)
    lines += [
        "",
        f"latency, ms: {latency}",
        f"statuses: {', '.join(f'{k} {v}' for k, v in result.statuses.most_common())}",
        f"decided by: {', '.join(f'{k} {v}' for k, v in result.via.most_common())}",
    ]
    for case, verdict in result.wrong:
        what = "false positive" if verdict.correct else "false negative"
        flag = f" [{case.policy}]" if case.policy else ""
        lines.append(
            f"{what} {case.id}{flag}: gold {_cut(case.gold)}, candidate {_cut(case.candidate)} "
            f"({verdict.status} via {verdict.via})"
        )
    return "\n".join(lines)


def _cut(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 12]}...{text[-9:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=Path, required=True, help="JSON lines")
    parser.add_argument("--agreement", type=float, default=0.95, help="least agreement")
    parser.add_argument("--false-positives", type=int, default=0, help="most false positives")
    options = parser.parse_args(arguments)
    try:
        cases = read_cases(options.cases)
    except CaseError as error:
        print(error, file=sys.stderr)
        return 2
    print("math-verify:", "ready" if warm_up() else "not installed; rules alone")
    result = run(cases)
    print(report(result))
    reached = (
        result.free.agreement >= options.agreement
        and result.free.false_positives <= options.false_positives
    )
    goal = f"{options.agreement:.0%} agreement, at most {options.false_positives} false positives"
    print(f"{'reached' if reached else 'NOT reached'}: {goal} among the cases without policy")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
