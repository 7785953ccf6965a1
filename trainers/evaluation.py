"""Playing held-out tasks, sampled and greedy, and summing up what happened."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agentgym.info import StopReason
from agentgym.trajectory import EpisodeSpec, Trajectory
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
]

# Held-out episodes are the same for every run: seeds of runs do not choose them.
_EVALUATION_SEED = 20_000_003


def evaluation_specs(ids: Sequence[str] | None, split: str | None, count: int) -> list[EpisodeSpec]:
    """The episodes of an evaluation, the same for every run.

    Args:
        ids: Task ids of the split; None where the environment has no task set.
        split: Its name.
        count: Episodes. Where there are more than tasks, tasks repeat with other seeds.
    """
    rng = np.random.default_rng(_EVALUATION_SEED)
    seeds = rng.integers(2**31 - 1, size=count)
    order = rng.permutation(len(ids)) if ids else None
    return [
        EpisodeSpec(
            ids[int(order[index % len(order)])] if ids and order is not None else None,
            split,
            int(seeds[index]),
            f"e{index}",
        )
        for index in range(count)
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
    turns = sum(len(item.turns) for item in played)
    ages = np.array([version - item.min_version for item in played])
    by_type: dict[str, list[bool]] = {}
    for item in played:
        by_type.setdefault(item.task_type.replace("/", "_") or "default", []).append(item.success)
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
    if len(by_type) > 1:
        out |= {f"success/{name}": float(np.mean(wins)) for name, wins in sorted(by_type.items())}
    return out


def _turn_rate(trajectories: Sequence[Trajectory], flag: str) -> float:
    """Share of all turns on which ``flag`` is False."""
    flags: list[Any] = [getattr(turn, flag) for item in trajectories for turn in item.turns]
    return 1.0 - float(np.mean(flags)) if flags else 0.0


def _segment(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", text) or "default"
