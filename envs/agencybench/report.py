"""The benchmark's metrics over an evaluation, for ``python -m agentgym eval``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym.evaluation import EpisodeResult
from envs.agencybench.metrics import (
    AttemptRecord,
    ScenarioRecord,
    TaskRecord,
    score_average,
    summary,
)

__all__ = ["metrics", "record_of", "record_to_json"]


def record_to_json(record: ScenarioRecord) -> dict[str, Any]:
    """What was played, as plain data without clocks."""
    return {
        "scenario": record.id,
        "capability": record.capability,
        "tasks": [
            {
                "id": task.id,
                "attempts": [
                    {
                        "score": attempt.score,
                        "coverage": round(attempt.coverage, 9),
                        "calls": dict(sorted(attempt.calls.items())),
                        "tokens_in": attempt.tokens_in,
                        "tokens_out": attempt.tokens_out,
                    }
                    for attempt in task.attempts
                ],
            }
            for task in record.tasks
        ],
    }


def record_of(value: dict[str, Any]) -> ScenarioRecord:
    """The record that :func:`record_to_json` wrote."""
    return ScenarioRecord(
        value["scenario"],
        value["capability"],
        tuple(
            TaskRecord(task["id"], tuple(AttemptRecord(**attempt) for attempt in task["attempts"]))
            for task in value["tasks"]
        ),
    )


def metrics(results: Sequence[EpisodeResult]) -> dict[str, float | None]:
    """Every metric of :func:`envs.agencybench.metrics.summary` that is one number.

    SAvg stands under its three weightings. ``e_tok`` counts the tokens that the policy read and
    wrote where they were counted, over all its generations, as the paper does; else those of the
    environment's texts.

    Args:
        results: Episodes; those without a record (cut off by the collector) are left out, and
            ``without_record`` counts them.
    """
    known = [item for item in results if item.details.get("record") is not None]
    records = [record_of(item.details["record"]) for item in known]
    made = summary(records)
    numbers: dict[str, float | None] = {
        "savg": made["savg"],
        "savg_task": 100 * score_average(records, "task"),
        "savg_capability": 100 * score_average(records, "capability"),
    }
    for name in ("att", "e_att", "e_tok", "coverage", "infra_error_rate"):
        numbers[name] = made[name]
    numbers |= {name: value for name, value in made.items() if name.startswith("pass@")}
    numbers |= {f"savg_{name}": value for name, value in made["capabilities"].items()}
    tokens = sum(item.prompt_tokens + item.action_tokens for item in known)
    if tokens:
        numbers["e_tok"] = made["savg"] / (tokens / 1e6 / len(known))
    numbers["tool_calls_per_scenario"] = made["tool_calls_per_scenario"]
    numbers |= {f"calls/{name}": float(count) for name, count in made["tool_calls"].items()}
    numbers["without_record"] = float(len(results) - len(known))
    return numbers
