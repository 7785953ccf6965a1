"""What an evaluation plays and how it is summed up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.evaluation import EpisodeResult, evaluation_specs, summarize
from agentgym.info import StopReason
from agentgym.statistics import mean_interval, wilson_interval


def result(task: str, success: bool = False, **changes: Any) -> EpisodeResult:
    values: dict[str, Any] = {
        "group_id": "e0",
        "member": 0,
        "task_id": task,
        "task_type": "a",
        "seed": 1,
        "stop_reason": "solved" if success else "failed",
        "truncated": False,
        "success": success,
        "score": float(success),
        "reward": float(success),
        "turns": 4,
    }
    return EpisodeResult(**(values | changes))


def test_repeats_are_members_of_one_group() -> None:
    plain = evaluation_specs(["a", "b", "c"], "test", 5)
    assert [spec.group_id for spec in plain] == ["e0", "e1", "e2", "e3", "e4"]
    assert {spec.task_id for spec in plain[:3]} == {"a", "b", "c"}
    assert plain[0].task_id == plain[3].task_id
    assert plain[0].seed != plain[3].seed
    repeated = evaluation_specs(["a", "b", "c"], "test", 5, repeats=2)
    assert repeated[::2] == plain
    assert [spec.member for spec in repeated[:4]] == [0, 1, 0, 1]
    assert (repeated[0].task_id, repeated[0].seed) == (repeated[1].task_id, repeated[1].seed)


@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 60), st.integers(1, 3))
def test_more_episodes_begin_with_the_fewer(tasks: int, few: int, more: int, repeats: int) -> None:
    ids = [f"t{number}" for number in range(tasks)]
    longer = evaluation_specs(ids, "test", few + more, repeats)
    assert longer[: few * repeats] == evaluation_specs(ids, "test", few, repeats)
    once = [spec.task_id for spec in longer[::repeats]]
    counts = [once.count(name) for name in ids]
    assert max(counts) - min(counts) <= 1, "no task comes twice before all have come"


def test_the_default_evaluation_of_training_is_what_it_was() -> None:
    """Its tasks and seeds, as they were drawn when the order depended on the number."""
    rng = np.random.default_rng(20_000_003)
    seeds = rng.integers(2**31 - 1, size=200)
    order = rng.permutation(134)
    specs = evaluation_specs([str(number) for number in range(134)], "test", 200)
    assert [spec.seed for spec in specs] == seeds.tolist()
    assert [int(str(spec.task_id)) for spec in specs] == [*order, *order[:66]]


def test_each_task_once_has_the_textbook_intervals() -> None:
    results = [result(f"t{n}", n < 3, turns=n) for n in range(10)]
    numbers = summarize(results)["all"]
    assert numbers["success"] == {"mean": 0.3, "interval": list(wilson_interval(0.3, 10))}
    mean, low, high = mean_interval(list(map(float, range(10))))
    assert numbers["turns"]["mean"] == mean
    assert numbers["turns"]["interval"] == pytest.approx([low, high])
    assert (numbers["episodes"], numbers["tasks"], numbers["lost"]) == (10, 10, 0)


def test_repeats_of_a_task_are_not_taken_for_new_evidence() -> None:
    once = [result("a", True), result("b", False), result("c", True)]
    many = summarize(once * 50)["all"]["success"]
    mean, low, high = mean_interval([1.0, 0.0, 1.0])
    assert many["mean"] == pytest.approx(mean)
    assert many["interval"] == [pytest.approx(max(low, 0.0)), pytest.approx(min(high, 1.0))]


@pytest.mark.parametrize("won", [False, True])
def test_tasks_that_all_went_one_way_are_no_proof(won: bool) -> None:
    """Their means have no spread, from which Student's interval would have no width."""
    many = [result(f"t{number % 3}", won) for number in range(30)]
    numbers = summarize(many)["all"]["success"]
    assert numbers == {"mean": float(won), "interval": list(wilson_interval(float(won), 3))}
    low, high = numbers["interval"]
    assert high - low > 0.5
    assert summarize(many[:1] * 5)["all"]["success"]["interval"] == [None, None]


def test_lost_episodes_are_counted_and_enter_nothing_else() -> None:
    lost = [
        result("x", stop_reason=str(reason), turns=99, details={"k": 9.0})
        for reason in (StopReason.INFRA_ERROR, StopReason.CANCELLED)
    ]
    played = [result("a", True, turns=2, details={"k": 1.0}), result("b", details={})]
    numbers = summarize([*lost, *played], {"kay": "k"})["all"]
    assert (numbers["lost"], numbers["episodes"]) == (2, 2)
    assert numbers["turns"]["mean"] == 3.0
    assert numbers["kay"]["mean"] == 1.0
    assert numbers["kay"]["interval"] == [None, None]
    assert numbers["stop_reasons"] == {"cancelled": 1, "failed": 1, "infra_error": 1, "solved": 1}
    assert summarize(lost)["all"] == {
        "episodes": 0,
        "lost": 2,
        "stop_reasons": {"cancelled": 1, "infra_error": 1},
    }


def test_types_of_tasks_stand_apart() -> None:
    results = [
        result("a", True, task_type="heat", action_tokens=5, invalid_actions=1),
        result("b", False, task_type="cool", action_tokens=7, truncated=True, format_errors=2),
    ]
    summary = summarize(results)
    assert list(summary["by_type"]) == ["cool", "heat"]
    assert summary["by_type"]["heat"]["success"]["mean"] == 1.0
    assert summary["by_type"]["cool"]["success"]["mean"] == 0.0
    whole = summary["all"]
    assert whole["action_tokens"]["total"] == 12
    assert (whole["invalid_rate"], whole["format_error_rate"]) == (1 / 8, 2 / 8)
    assert whole["truncated_share"] == 0.5


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.floats(0, 1)), min_size=1, max_size=30)
)
def test_the_mean_lies_within_its_interval(drawn: list[tuple[int, bool, float]]) -> None:
    results = [result(f"t{task}", won, score=score) for task, won, score in drawn]
    numbers = summarize(results)["all"]
    for name in ("success", "score"):
        low, high = numbers[name]["interval"]
        mean = numbers[name]["mean"]
        assert mean == pytest.approx(
            math.fsum(float(getattr(item, name)) for item in results) / len(results)
        )
        if low is not None:
            assert low - 1e-9 <= mean <= high + 1e-9
        else:
            assert len({task for task, *_ in drawn}) == 1
