"""The benchmark's metrics, from the scores of attempts.

The names are those of the AgencyBench paper (arXiv 2601.11044): SAvg, Att, Pass@k, E_att, E_tok.
Two definitions differ between its text and its table, so both are computed: Pass@k over tasks (the
text) and over scenarios (every value of the table is a multiple of 1/32, the number of scenarios),
and SAvg weighted by scenario (which the table's capability columns reproduce best), by task and by
capability. Denominators are fixed: a task that was never reached counts as 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "AttemptRecord",
    "ScenarioRecord",
    "TaskRecord",
    "Weighting",
    "attempts_per_task",
    "capability_means",
    "pass_at",
    "score_average",
    "summary",
]

Weighting = Literal["scenario", "task", "capability"]
_WEIGHTINGS = ("scenario", "task", "capability")


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt at one task.

    Attributes:
        score: In [0, 1]; None where the assessor failed, which is nobody's score.
        coverage: Share of the checks' weight that was evaluated.
        calls: Tool name to number of calls.
        tokens_in: Tokens read.
        tokens_out: Tokens written.
        seconds: Wall clock.
    """

    score: float | None
    coverage: float = 1.0
    calls: Mapping[str, int] = field(default_factory=dict)
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.score is not None and not 0.0 <= self.score <= 1.0:
            raise ValueError(f"the score of an attempt lies in [0, 1], got {self.score!r}")
        if not 0.0 <= self.coverage <= 1.0:
            raise ValueError(f"the coverage of an attempt lies in [0, 1], got {self.coverage!r}")
        for name, value in (
            ("tokens_in", self.tokens_in),
            ("tokens_out", self.tokens_out),
            ("seconds", self.seconds),
            *((f"calls[{tool!r}]", count) for tool, count in self.calls.items()),
        ):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} of an attempt must be >= 0, got {value!r}")


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """All attempts at one task, none where it was not reached."""

    id: str
    attempts: tuple[AttemptRecord, ...] = ()

    def scores(self, within: int | None = None) -> list[float]:
        """Scores of the first ``within`` attempts, those without one left out."""
        return [a.score for a in self.attempts[:within] if a.score is not None]

    def best(self, within: int | None = None) -> float:
        """Best score of the first ``within`` attempts; 0 where there is none."""
        return max(self.scores(within), default=0.0)

    @property
    def first(self) -> float:
        """Score of the first attempt; 0 where there is none."""
        return (self.attempts[0].score or 0.0) if self.attempts else 0.0

    @property
    def last(self) -> float:
        """Score of the last attempt; 0 where there is none."""
        return (self.attempts[-1].score or 0.0) if self.attempts else 0.0


@dataclass(frozen=True, slots=True)
class ScenarioRecord:
    """One scenario that was played."""

    id: str
    capability: str
    tasks: tuple[TaskRecord, ...]

    def score(self, within: int | None = None) -> float:
        """Mean of the tasks' best scores, tasks that were not reached included."""
        return _mean([task.best(within) for task in self.tasks])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def capability_means(records: Iterable[ScenarioRecord]) -> dict[str, float]:
    """Mean scenario score of each capability, in [0, 1]."""
    groups: dict[str, list[float]] = {}
    for record in records:
        groups.setdefault(record.capability, []).append(record.score())
    return {name: _mean(scores) for name, scores in groups.items()}


def score_average(records: Sequence[ScenarioRecord], weighting: Weighting = "scenario") -> float:
    """SAvg as a fraction: the mean best score.

    Args:
        records: What was played.
        weighting: ``scenario`` counts each scenario once, ``task`` each task, ``capability`` each
            capability.

    Raises:
        ValueError: If the weighting is unknown.
    """
    if weighting == "scenario":
        return _mean([record.score() for record in records])
    if weighting == "task":
        return _mean([task.best() for record in records for task in record.tasks])
    if weighting == "capability":
        return _mean(list(capability_means(records).values()))
    raise ValueError(f"unknown weighting {weighting!r}; known: {', '.join(_WEIGHTINGS)}")


def attempts_per_task(records: Sequence[ScenarioRecord]) -> float:
    """Att = attempts made / tasks there are."""
    tasks = [task for record in records for task in record.tasks]
    return sum(len(task.attempts) for task in tasks) / len(tasks) if tasks else 0.0


def pass_at(
    records: Sequence[ScenarioRecord],
    k: int,
    *,
    over: Literal["tasks", "scenarios"] = "tasks",
    threshold: float = 0.6,
) -> float:
    """Pass@k: the share that reaches ``threshold`` within ``k`` attempts.

    Args:
        records: What was played.
        k: Attempts that count, >= 1.
        over: A task passes by its best score, a scenario by the mean of its tasks' best scores.
        threshold: The paper's 60 %.

    Raises:
        ValueError: If ``k`` is no int of at least 1, or another argument is out of range.
    """
    if type(k) is not int:
        raise ValueError(f"k must be an int, got {k!r}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k!r}")
    if not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold must lie in [0, 1], got {threshold!r}")
    if over == "tasks":
        scores = [task.best(k) for record in records for task in record.tasks]
    elif over == "scenarios":
        scores = [record.score(k) for record in records]
    else:
        raise ValueError(f"over must be 'tasks' or 'scenarios', got {over!r}")
    # Scores are sums of weights; 0.6 must not fail by a rounding.
    return _mean([float(score >= threshold - 1e-9) for score in scores])


def summary(
    records: Sequence[ScenarioRecord],
    *,
    weighting: Weighting = "scenario",
    threshold: float = 0.6,
    ks: Sequence[int] = (1, 2),
) -> dict[str, Any]:
    """Everything the benchmark reports, JSON-able.

    ``savg`` and the pass rates are in percent, as published; ``e_att`` is SAvg / Att and ``e_tok``
    SAvg / million tokens a scenario (None where no attempt or no token was counted).
    """
    attempts = [a for record in records for task in record.tasks for a in task.attempts]
    calls: Counter[str] = Counter()
    for attempt in attempts:
        calls.update(attempt.calls)
    average = 100.0 * score_average(records, weighting)
    per_task = attempts_per_task(records)
    tokens = sum(a.tokens_in + a.tokens_out for a in attempts)
    millions = tokens / 1e6 / len(records) if records else 0.0
    passes = {
        f"pass@{k}_{over}": 100.0 * pass_at(records, k, over=over, threshold=threshold)
        for k in ks
        for over in ("tasks", "scenarios")
    }
    return {
        "savg": average,
        "weighting": weighting,
        "capabilities": {k: 100.0 * v for k, v in capability_means(records).items()},
        "att": per_task,
        **passes,
        "e_att": average / per_task if per_task else None,
        "e_tok": average / millions if millions else None,
        "tokens_in": sum(a.tokens_in for a in attempts),
        "tokens_out": sum(a.tokens_out for a in attempts),
        "seconds": sum(a.seconds for a in attempts),
        "tool_calls": dict(sorted(calls.items())),
        "tool_calls_per_scenario": sum(calls.values()) / len(records) if records else 0.0,
        "coverage": _mean([a.coverage for a in attempts]),
        "infra_error_rate": _mean([float(a.score is None) for a in attempts]),
        "tasks": [
            {
                "scenario": record.id,
                "task": task.id,
                "attempts": [a.score for a in task.attempts],
                "best": task.best(),
                "first": task.first,
                "last": task.last,
                "passed": task.best() >= threshold - 1e-9,
            }
            for record in records
            for task in record.tasks
        ],
    }
