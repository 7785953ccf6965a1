"""Playing held-out tasks, sampled and greedy, and summing up what happened."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agentgym.evaluation import evaluation_specs
from agentgym.info import StopReason
from agentgym.trajectory import Trajectory
from trainers.metrics import (
    Metric,
    MetricError,
    MetricValue,
    describe,
    describe_eval,
    register_metrics,
)

__all__ = [
    "evaluation_metrics",
    "evaluation_name",
    "evaluation_specs",
    "evaluation_table",
    "know_quantities",
    "rollout_metrics",
    "type_table",
]


def evaluation_metrics(
    trajectories: Sequence[Trajectory],
    split: str,
    mode: str,
    diagnostics: Mapping[str, str],
) -> dict[str, float]:
    """Numbers of one evaluation, under the names of the run's log.

    Args:
        trajectories: What was played; those lost to faults are left out.
        split: Split played.
        mode: ``sampled`` or ``greedy``.
        diagnostics: Metric name to the key of ``info["details"]`` whose mean it is, over episodes
            that have the key with a value.

    Returns:
        Quantities of all episodes and, if they are of several types, ``success/<type>``.
    """
    played = [item for item in trajectories if item.stop_reason != StopReason.INFRA_ERROR]
    if not played:
        return {evaluation_name(split, mode, "n"): 0}
    turns = sum(len(item.turns) for item in played)
    scores = np.array([item.score for item in played])
    numbers: dict[str, float] = {
        "success": float(np.mean([item.success for item in played])),
        "score": float(scores.mean()),
        "score_se": float(scores.std(ddof=1) / np.sqrt(len(played))) if len(played) > 1 else 0.0,
        "reward": float(np.mean([item.total_reward for item in played])),
        "turns": turns / len(played),
        "invalid_rate": _turn_rate(played, "action_valid"),
        "format_error_rate": _turn_rate(played, "format_ok"),
        "truncated_frac": float(np.mean([item.truncated for item in played])),
        "n": len(played),
    }
    for name, key in diagnostics.items():
        values = [item.details[key] for item in played if item.details.get(key) is not None]
        if values:
            numbers[name] = float(np.mean([float(value) for value in values]))
    solved = [len(item.turns) for item in played if item.success]
    if solved:
        numbers["turns_solved"] = float(np.mean(solved))
    numbers |= _success_by_type(played)
    return {evaluation_name(split, mode, name): value for name, value in numbers.items()}


def evaluation_name(split: str, mode: str, quantity: str) -> str:
    """Name of a metric of an evaluation; signs that names cannot hold become ``_``."""
    return "/".join(["eval", _segment(split), _segment(mode), quantity])


def know_quantities(names: Iterable[str]) -> None:
    """Admit an environment's own quantities of an evaluation to the table of metrics.

    Raises:
        ValueError: If a name is not made of lower-case letters, digits and ``_``.
    """
    for name in names:
        try:
            describe(evaluation_name("split", "mode", name))
        except MetricError:
            register_metrics(
                Metric(
                    f"eval/<split>/<mode>/{name}",
                    name.replace("_", " "),
                    "",
                    "Mean of a detail that the environment reports.",
                    section="Evaluation, by environment",
                )
            )


def evaluation_table(rows: Sequence[Mapping[str, MetricValue]]) -> list[dict[str, Any]]:
    """First and last evaluation of each split and mode, as rows of a table.

    Args:
        rows: The run's metrics.
    """
    found: dict[tuple[str, str], dict[str, list[tuple[int, float]]]] = {}
    for row in rows:
        for name, value in row.items():
            place = describe_eval(name)
            if place is not None and place[2] in ("success", "score") and value is not None:
                series = found.setdefault(place[:2], {}).setdefault(place[2], [])
                series.append((int(row["step"]), float(value)))
    table = []
    for (split, mode), quantities in found.items():
        line: dict[str, Any] = {"split": split, "mode": mode}
        for quantity, series in quantities.items():
            for step, value in dict.fromkeys((series[0], series[-1])):
                line[f"{quantity} (step {step})"] = f"{value:.3f}"
        table.append(line)
    return table


def type_table(rows: Sequence[Mapping[str, MetricValue]]) -> list[dict[str, Any]]:
    """Success by type of task in the first and last evaluation, as rows of a table.

    Args:
        rows: The run's metrics.

    Returns:
        One row a split and mode, with a column a type; empty where there is one type only.
    """
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        for name, value in row.items():
            parts = name.split("/")
            of_type = parts[0] == "eval" and parts[3:4] == ["success"] and len(parts) == 5
            if of_type and isinstance(value, int | float):
                types = found.setdefault((parts[1], parts[2]), {})
                types.setdefault(parts[4], []).append(float(value))
    return [
        {
            "split": split,
            "mode": mode,
            **{
                name: " -> ".join(f"{100 * value:.0f}%" for value in (series[0], series[-1]))
                if len(series) > 1
                else f"{100 * series[0]:.0f}%"
                for name, series in types.items()
            },
        }
        for (split, mode), types in found.items()
    ]


def rollout_metrics(trajectories: Sequence[Trajectory], version: int) -> dict[str, float]:
    """What the episodes of one step were like.

    Args:
        trajectories: The episodes, those lost to faults included.
        version: The learner's weight version, for their age.
    """
    played = [item for item in trajectories if item.usable]
    out: dict[str, float] = {
        "batch_trajectories": len(played),
        "batch_action_tokens": sum(item.n_actions for item in played),
        "dropped_infra": len(trajectories) - len(played),
    }
    if not trajectories:
        return out
    reasons = Counter(str(item.stop_reason) for item in trajectories)
    out |= {f"stop/{reason}": count / len(trajectories) for reason, count in reasons.items()}
    if not played:
        return out
    rewards = np.array([item.total_reward for item in played])
    turns = sum(not turn.replayed for item in played for turn in item.turns)
    ages = np.array([version - item.min_version for item in played])
    out |= {
        "reward_mean": float(rewards.mean()),
        "reward_std": float(rewards.std()),
        "success_rate": float(np.mean([item.success for item in played])),
        "score_mean": float(np.mean([item.score for item in played])),
        "turns_mean": turns / len(played),
        "tokens_per_turn": out["batch_action_tokens"] / max(turns, 1),
        "invalid_action_rate": _turn_rate(played, "action_valid"),
        "format_error_rate": _turn_rate(played, "format_ok"),
        "truncated_frac": float(np.mean([item.truncated for item in played])),
        "staleness_mean": float(ages.mean()),
        "staleness_max": float(ages.max()),
    }
    for age, count in sorted(Counter(ages.tolist()).items()):
        out[f"staleness/{max(age, 0)}"] = count / len(played)
    return out | _success_by_type(played)


def _success_by_type(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Success of each type of task; nothing where there is one type only."""
    by_type: dict[str, list[bool]] = {}
    for item in trajectories:
        by_type.setdefault(_segment(item.task_type), []).append(item.success)
    if len(by_type) < 2:
        return {}
    return {f"success/{name}": float(np.mean(wins)) for name, wins in sorted(by_type.items())}


def _turn_rate(trajectories: Sequence[Trajectory], flag: str) -> float:
    """Share of all turns on which ``flag`` is False."""
    flags: list[Any] = [
        getattr(turn, flag) for item in trajectories for turn in item.turns if not turn.replayed
    ]
    return 1.0 - float(np.mean(flags)) if flags else 0.0


def _segment(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", text) or "default"
