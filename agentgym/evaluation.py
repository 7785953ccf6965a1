"""What an evaluation plays, and what its episodes say when they are summed up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentgym.info import LOST
from agentgym.recording import finite
from agentgym.statistics import mean_interval, wilson_interval
from agentgym.trajectory import EpisodeSpec, Trajectory

__all__ = ["EpisodeResult", "evaluation_specs", "summarize"]

# Held-out episodes are the same for every run: seeds of runs do not choose them.
_EVALUATION_SEED = 20_000_003
# The order of the tasks is drawn after so many seeds: it is the one that evaluations of the
# trainers' default size have always had, now for every size.
_SEEDS_BEFORE_ORDER = 200


def evaluation_specs(
    ids: Sequence[str] | None, split: str | None, count: int, repeats: int = 1
) -> list[EpisodeSpec]:
    """The episodes of an evaluation, the same for every run.

    Tasks are taken in one random order of the split, so that any number of them is an even sample
    of it, and the first ``n`` episodes of a larger number are those of ``n``.

    Args:
        ids: Task ids of the split; None where the environment has no task set.
        split: Its name.
        count: Tasks to play. Where there are more than the split has, they repeat with other seeds.
        repeats: Episodes of each (task, seed), as members of one group.
    """
    seeds = np.random.default_rng(_EVALUATION_SEED).integers(2**31 - 1, size=count)
    rng = np.random.default_rng(_EVALUATION_SEED)
    rng.integers(2**31 - 1, size=_SEEDS_BEFORE_ORDER)
    order = rng.permutation(len(ids)) if ids else None
    return [
        EpisodeSpec(
            ids[int(order[index % len(order)])] if ids and order is not None else None,
            split,
            int(seeds[index]),
            f"e{index}",
            member,
        )
        for index in range(count)
        for member in range(repeats)
    ]


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """The numbers of one episode.

    Attributes:
        group_id: Which of the evaluation's tasks it played.
        member: Which of its repeats.
        task_id: Task.
        task_type: Kind of task.
        seed: Seed of the environment.
        stop_reason: Why it ended.
        truncated: It was cut off.
        success: The task was solved.
        score: Final score in [0, 1].
        reward: Undiscounted return.
        turns: Actions taken.
        invalid_actions: Turns whose action was inadmissible.
        format_errors: Turns whose text had the wrong form.
        prompt_tokens: Tokens read, over all generations (as the server counts them, where there
            is one).
        action_tokens: Tokens generated, likewise.
        details: ``info["details"]`` of the last step.
        error: What went wrong, if anything did.
    """

    group_id: str
    member: int
    task_id: str
    task_type: str
    seed: int
    stop_reason: str
    truncated: bool
    success: bool
    score: float
    reward: float
    turns: int
    invalid_actions: int = 0
    format_errors: int = 0
    prompt_tokens: int = 0
    action_tokens: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def lost(self) -> bool:
        """Whether the episode says nothing about the policy: a fault cut it off."""
        return self.stop_reason in LOST

    @classmethod
    def of(cls, trajectory: Trajectory, prompt_tokens: int, action_tokens: int) -> EpisodeResult:
        """The numbers of a trajectory; tokens are counted by whoever watched the policy."""
        spec = trajectory.spec
        return cls(
            group_id=spec.group_id,
            member=spec.member,
            task_id=trajectory.task_id or spec.task_id or "",
            task_type=trajectory.task_type or "default",
            seed=spec.seed,
            stop_reason=str(trajectory.stop_reason),
            truncated=bool(trajectory.truncated),
            success=bool(trajectory.success),
            score=float(trajectory.score),
            reward=trajectory.total_reward,
            turns=len(trajectory.turns),
            invalid_actions=sum(not turn.action_valid for turn in trajectory.turns),
            format_errors=sum(not turn.format_ok for turn in trajectory.turns),
            prompt_tokens=prompt_tokens,
            action_tokens=action_tokens,
            details=trajectory.details,
            error=trajectory.error,
        )


def summarize(
    results: Sequence[EpisodeResult], diagnostics: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """All episodes in numbers, and those of each type of task.

    Intervals are of 95 %. Where every task was played once, that of success is Wilson's and those
    of means are Student's. Where tasks were repeated, their episodes are not independent, so the
    interval is Student's over the means of the tasks; that of success is Wilson's over the tasks
    where all of them have the same mean.

    Args:
        results: The episodes. Lost ones are counted and enter nothing else.
        diagnostics: Name to the key of ``details`` whose mean it is, over episodes that have it.

    Returns:
        ``{"all": …, "by_type": {type: …}}``; each part has ``episodes``, ``lost``, ``tasks``,
        ``success``, ``score``, ``reward``, ``turns``, ``prompt_tokens`` and ``action_tokens`` (each
        a ``mean`` and its ``interval``; tokens also a ``total``), ``invalid_rate``,
        ``format_error_rate``, ``truncated_share``, ``stop_reasons`` and the diagnostics.
    """
    named = dict(diagnostics or {})
    by_type: dict[str, list[EpisodeResult]] = {}
    for result in results:
        by_type.setdefault(result.task_type, []).append(result)
    return {
        "all": _summary(results, named),
        "by_type": {name: _summary(part, named) for name, part in sorted(by_type.items())},
    }


def _summary(results: Sequence[EpisodeResult], named: Mapping[str, str]) -> dict[str, Any]:
    played = [item for item in results if not item.lost]
    out: dict[str, Any] = {
        "episodes": len(played),
        "lost": len(results) - len(played),
        "stop_reasons": dict(sorted(Counter(item.stop_reason for item in results).items())),
    }
    if not played:
        return out
    out["tasks"] = len({item.task_id for item in played})
    out["success"] = _share(played)
    for name in ("score", "reward", "turns", "prompt_tokens", "action_tokens"):
        out[name] = _mean(played, _attribute(name))
        if name.endswith("tokens"):
            out[name]["total"] = sum(getattr(item, name) for item in played)
    turns = sum(item.turns for item in played)
    out["invalid_rate"] = sum(item.invalid_actions for item in played) / max(turns, 1)
    out["format_error_rate"] = sum(item.format_errors for item in played) / max(turns, 1)
    out["truncated_share"] = sum(item.truncated for item in played) / len(played)
    for name, key in named.items():
        having = [item for item in played if item.details.get(key) is not None]
        if having:
            out[name] = _mean(having, _detail(key))
    return out


def _attribute(name: str) -> Callable[[EpisodeResult], float]:
    return lambda item: float(getattr(item, name))


def _detail(key: str) -> Callable[[EpisodeResult], float]:
    return lambda item: float(item.details[key])


def _by_task(
    played: Sequence[EpisodeResult], value: Callable[[EpisodeResult], float]
) -> list[list[float]]:
    tasks: dict[str, list[float]] = {}
    for number, item in enumerate(played):
        # A task without a name is one of its own.
        tasks.setdefault(item.task_id or f"#{number}", []).append(value(item))
    return list(tasks.values())


def _share(played: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Share of successes and its interval."""
    tasks = _by_task(played, lambda item: float(item.success))
    share = sum(map(sum, tasks)) / len(played)
    if all(len(task) == 1 for task in tasks):
        return {"mean": share, "interval": list(wilson_interval(share, len(played)))}
    if len(tasks) > 1 and len({sum(task) / len(task) for task in tasks}) == 1:
        # Tasks that all went the same way have no spread, but are no proof: as if played once.
        return {"mean": share, "interval": list(wilson_interval(share, len(tasks)))}
    low, high = _task_interval(tasks, share)
    return {"mean": share, "interval": [_within(low), _within(high)]}


def _mean(
    played: Sequence[EpisodeResult], value: Callable[[EpisodeResult], float]
) -> dict[str, Any]:
    tasks = _by_task(played, value)
    mean = math.fsum(map(math.fsum, tasks)) / len(played)
    return {"mean": finite(mean), "interval": [finite(end) for end in _task_interval(tasks, mean)]}


def _task_interval(tasks: Sequence[Sequence[float]], mean: float) -> tuple[float, float]:
    """Student's interval over the means of tasks, laid around the mean over episodes."""
    centre, low, high = mean_interval([math.fsum(task) / len(task) for task in tasks])
    return mean + low - centre, mean + high - centre


def _within(value: float) -> float | None:
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else None
