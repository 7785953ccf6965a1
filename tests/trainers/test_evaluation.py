"""Held-out episodes, and the numbers that sum them up."""

from __future__ import annotations

import pytest
from toy_training import rollout

from agentgym.info import StopReason
from trainers.evaluation import (
    evaluation_metrics,
    evaluation_name,
    evaluation_specs,
    evaluation_table,
    know_quantities,
    rollout_metrics,
    type_table,
)
from trainers.metrics import MetricError, check_metrics, describe


def test_held_out_episodes_are_the_same_for_every_run() -> None:
    ids = tuple(f"t{n}" for n in range(5))
    specs = evaluation_specs(ids, "test", 12)
    assert specs == evaluation_specs(ids, "test", 12)
    assert sorted(str(spec.task_id) for spec in specs[:5]) == list(ids)
    assert len({spec.seed for spec in specs}) == 12
    assert len({spec.group_id for spec in specs}) == 12
    assert [spec.task_id for spec in evaluation_specs(None, None, 3)] == [None] * 3


def played() -> list:
    items = [
        rollout([2, 3], [0.0, 1.0], StopReason.SOLVED),
        rollout([4], [0.0], StopReason.FAILED),
        rollout([1, 1, 1], [0.0, 0.0, 0.5], StopReason.MAX_TURNS),
        rollout([1], [0.0], StopReason.INFRA_ERROR),
    ]
    items[0].success, items[0].score = True, 1.0
    items[2].score = 0.5
    items[2].turns[1].action_valid = False
    items[1].turns[0].format_ok = False
    items[0].details, items[1].details = {"hits": 3}, {"hits": None}
    for number, item in enumerate(items):
        item.task_type = f"kind/{number % 2}"
        for turn in item.turns:
            turn.versions[:] = 7 - number
    return items


def test_an_evaluation_leaves_out_what_was_lost_to_faults() -> None:
    know_quantities(["hits"])
    found = evaluation_metrics(played(), "test", "greedy", {"hits": "hits"})
    numbers = {name.rpartition("/")[2]: value for name, value in found.items()}
    assert numbers == {
        "success": pytest.approx(1 / 3),
        "score": 0.5,
        "score_se": pytest.approx(0.5 / 3**0.5),
        "reward": 0.5,
        "turns": 2.0,
        "turns_solved": 2.0,
        "invalid_rate": pytest.approx(1 / 6),
        "format_error_rate": pytest.approx(1 / 6),
        "truncated_frac": pytest.approx(1 / 3),
        "n": 3,
        "hits": 3.0,
        "kind_0": 0.5,
        "kind_1": 0.0,
    }
    assert found["eval/test/greedy/success/kind_0"] == 0.5
    check_metrics(found)
    assert evaluation_metrics(played()[3:], "test", "greedy", {}) == {"eval/test/greedy/n": 0}


def test_episodes_of_a_step() -> None:
    found = rollout_metrics(played(), version=8)
    assert found["batch_trajectories"] == 3
    assert found["dropped_infra"] == 1
    assert found["batch_action_tokens"] == 12
    assert found["reward_mean"] == 0.5
    assert found["tokens_per_turn"] == 2.0
    assert found["stop/solved"] == 0.25
    assert (found["staleness_mean"], found["staleness_max"]) == (2.0, 3.0)
    assert {name: found[f"staleness/{name}"] for name in (1, 2, 3)} == {
        age: pytest.approx(1 / 3) for age in (1, 2, 3)
    }
    assert found["success/kind_0"] == 0.5
    assert found["success/kind_1"] == 0.0
    check_metrics(found)
    assert rollout_metrics([], 0)["batch_trajectories"] == 0


def test_odd_names_of_splits_are_written_so_that_a_metric_can_hold_them() -> None:
    name = evaluation_name("Code/units é", "rule of thumb", "success")
    assert name == "eval/Code_units__/rule_of_thumb/success"
    describe(name)
    assert evaluation_name("", "x", "n") == "eval/default/x/n"


def test_an_environments_own_quantities_join_the_table() -> None:
    with pytest.raises(MetricError):
        describe("eval/test/greedy/odd_quantity")
    know_quantities(["odd_quantity", "success"])
    know_quantities(["odd_quantity"])
    assert describe("eval/test/greedy/odd_quantity").label == "odd quantity"
    with pytest.raises(ValueError, match="a metric name is"):
        know_quantities(["Odd Quantity"])


def test_before_and_after_stand_side_by_side() -> None:
    rows = [
        {"step": 0, "eval/test/greedy/success": 0.1, "eval/test/rule/success": 0.3},
        {"step": 5, "eval/test/greedy/success": 0.2},
        {"step": 9, "eval/test/greedy/success": 0.4, "loss_policy": 1.0},
    ]
    assert evaluation_table(rows) == [
        {
            "split": "test",
            "mode": "greedy",
            "success (step 0)": "0.100",
            "success (step 9)": "0.400",
        },
        {"split": "test", "mode": "rule", "success (step 0)": "0.300"},
    ]
    assert evaluation_table([]) == []


def test_a_table_by_type_of_task() -> None:
    rows = [
        {"step": 0, "eval/t/greedy/success/put": 0.25, "eval/t/greedy/success": 0.5},
        {"step": 5, "eval/t/greedy/success/put": None, "success/put": 0.9},
        {"step": 9, "eval/t/greedy/success/put": 0.75, "eval/s/greedy/success/two": 1.0},
    ]
    assert type_table(rows) == [
        {"split": "t", "mode": "greedy", "put": "25% -> 75%"},
        {"split": "s", "mode": "greedy", "two": "100%"},
    ]
    assert type_table([{"step": 0, "eval/t/greedy/success": 0.5}]) == []
