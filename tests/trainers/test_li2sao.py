"""Li2SAO: its two phases, the gate between them, and what it turns into at its limits."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_training import (
    Bench,
    actor,
    assert_same,
    differences,
    make_config,
    rows,
    state,
    train,
)

from agentgym.info import StopReason
from agentgym.trajectory import TrajectoryGroup
from trainers.algorithm import TrajectoryValues
from trainers.grpo import GRPO, GRPOConfig
from trainers.li2sao import Li2SAO, Li2SAOConfig
from trainers.lisao import LiSAO, LiSAOConfig

DIS = {"loss": "dis", "clip_low": 0.8, "clip_high": 3.0}


def bench(**changes: Any) -> Bench:
    return Bench(Li2SAO, make_config(Li2SAOConfig, **changes))


# Limits, bit for bit ----------------------------------------------------------------------------


def test_without_a_switch_it_is_grpo_with_dis(tmp_path: Path) -> None:
    shared = {"steps": 4, "minibatches": 2, "adv_norm": "batch_std"}
    ours = train(Li2SAO, Li2SAOConfig, tmp_path / "a", gate_tau=float("inf"), **shared)
    grpo = train(GRPO, GRPOConfig, tmp_path / "b", adv_std="none", **DIS, **shared)
    assert_same(actor(ours), actor(grpo))
    assert_same(ours.learner.optimizer.state_dict(), grpo.learner.optimizer.state_dict())
    assert ours.algorithm.gate.step == 4
    for left, right in zip(rows(tmp_path / "a"), rows(tmp_path / "b"), strict=True):
        for name in left.keys() & right.keys():
            assert left[name] == right[name], name


@pytest.mark.parametrize(
    "gate", [{"gate_max_steps": 0}, {"gate_mode": "fixed_step", "switch_step": 0}], ids=str
)
def test_switched_from_the_start_with_a_raw_critic_it_is_lisao(
    gate: dict[str, Any], tmp_path: Path
) -> None:
    shared = {"steps": 4, "minibatches": 2, "end_max_turns": "bootstrap"}
    ours = train(Li2SAO, Li2SAOConfig, tmp_path / "a", critic_target="raw", **gate, **shared)
    lisao = train(LiSAO, LiSAOConfig, tmp_path / "b", **shared)
    assert_same(state(ours)["learner"], state(lisao)["learner"])
    assert_same(state(ours)["cursor"], state(lisao)["cursor"])
    for left, right in zip(rows(tmp_path / "a"), rows(tmp_path / "b"), strict=True):
        for name in left.keys() & right.keys():
            assert left[name] == right[name], name


def test_a_centred_critic_is_not_lisao(tmp_path: Path) -> None:
    shared = {"steps": 2, "gate_max_steps": 0}
    raw = train(Li2SAO, Li2SAOConfig, tmp_path / "a", critic_target="raw", **shared)
    centred = train(Li2SAO, Li2SAOConfig, tmp_path / "b", **shared)
    assert list(differences(state(raw)["learner"]["critic"], state(centred)["learner"]["critic"]))


# Phase A ----------------------------------------------------------------------------------------


def with_rewards(groups: list[TrajectoryGroup], returns: list[list[float]], first: float = 0.0):
    """The groups with other returns; ``first`` of each is earned in the first turn."""
    out = []
    for group, own in zip(groups, returns, strict=True):
        members = []
        for member, total in zip(group, own, strict=True):
            turns = [dataclasses.replace(turn, reward=0.0) for turn in member.turns]
            turns[0] = dataclasses.replace(turns[0], reward=first)
            turns[-1] = dataclasses.replace(turns[-1], reward=turns[-1].reward + total - first)
            members.append(dataclasses.replace(member, turns=turns))
        out.append(TrajectoryGroup(group.group_id, members))
    return out


def said(groups: list[TrajectoryGroup], value: float = 0.0) -> list[TrajectoryValues]:
    return [
        TrajectoryValues([np.full(turn.n_actions, value) for turn in member.turns], value)
        for group in groups
        for member in group
    ]


@pytest.mark.parametrize(
    ("changes", "targets"),
    [
        ({}, [2 / 3, -2 / 3, -2 / 3, 2 / 3]),
        ({"critic_center": "mean"}, [0.5, -0.5, -0.5, 0.5]),
        ({"critic_target": "raw"}, [1, 0, 0, 1]),
        ({"critic_target": "group_mean"}, [0.5] * 4),
    ],
    ids=str,
)
def test_a_group_teaches_actor_and_critic(changes: dict[str, Any], targets: list[float]) -> None:
    one = bench(trajectories=4, adv_norm="none", **changes)
    groups = with_rewards(one.play(), [[1, 0, 0, 1]])
    batch = one.algorithm.credit(groups, said(groups))
    for credit, advantage, target in zip(
        batch.credit, [0.5, -0.5, -0.5, 0.5], targets, strict=True
    ):
        assert np.concatenate(credit.advantages) == pytest.approx(advantage)
        assert np.concatenate(credit.targets) == pytest.approx(target)
    assert batch.metrics["phase"] == "group"


def test_what_was_earned_before_is_not_to_be_foreseen() -> None:
    one = bench(trajectories=4, adv_norm="none")
    groups = with_rewards(one.play(), [[1, 0.25, 0.25, 1]], first=0.25)
    batch = one.algorithm.credit(groups, said(groups))
    for credit, c in zip(batch.credit, [0.5, -0.5, -0.5, 0.5], strict=True):
        assert credit.targets[0] == pytest.approx(c)
        for later in credit.targets[1:]:
            assert later == pytest.approx(c - 0.25)


def test_a_critic_that_says_nothing_has_no_skill() -> None:
    one = bench(trajectories=4)
    groups = with_rewards(one.play(), [[1, 0, 0, 1]])
    batch = one.algorithm.credit(groups, said(groups))
    assert batch.metrics["skill_raw"] == 0
    assert batch.metrics["skill_turn_start"] == 0
    batch = one.algorithm.credit(groups, said(groups, 0.5))
    # Half right for the winners (1/6 off), wrong by 7/6 for the losers.
    assert batch.metrics["skill_raw"] == pytest.approx(1 - (1 / 36 + 49 / 36) / (2 * 4 / 9))
    same = with_rewards(groups, [[1, 1, 1, 1]])
    assert one.algorithm.credit(same, said(same)).metrics["skill_raw"] is None


def test_the_skill_is_judged_on_values_from_before_the_update() -> None:
    """Many updates on a batch would make any critic look good on it."""
    one, other = bench(critic_updates=30, critic_learning_rate=0.01), bench()
    groups = other.play()
    untrained = other.algorithm.credit(groups, said(groups))
    assert one.step()["skill_raw"] == untrained.metrics["skill_raw"] < 0
    after = one.learner.values([member for group in groups for member in group])
    trained = bench().algorithm.credit(groups, after)
    assert trained.metrics["skill_raw"] > 0.2


def test_damaged_groups_teach_nobody() -> None:
    one = bench(trajectories=8)
    groups = with_rewards(one.play(), [[1, 0, 0, 1], [1, 0, 1, 0]])
    for member in groups[0].trajectories[:3]:
        member.stop_reason = StopReason.INFRA_ERROR
    groups[1].trajectories[0].stop_reason = StopReason.INFRA_ERROR
    batch = one.algorithm.credit(groups, said(groups))
    assert [id(m) for m in batch.trajectories] == [id(m) for m in groups[1].trajectories[1:]]
    # The level counts every rollout that took place: 1 of the first group, 3 of the second.
    assert one.algorithm.level.value == pytest.approx((1 + 0 + 1 + 0) / 4)


def test_strict_positions_decide_when_asked_to() -> None:
    found = {}
    for positions in ("all", "turn_start"):
        one = bench(trajectories=4, gate_positions=positions)
        groups = with_rewards(one.play(), [[1, 0, 0, 1]])
        values = said(groups)
        for item, r in zip(values, [1, 0, 0, 1], strict=True):
            for turn in item.turns:
                turn[1:] = (r - 0.5) * 4 / 3  # knows it all, except at the start of a turn
        batch = one.algorithm.credit(groups, values)
        assert batch.metrics["skill_turn_start"] == 0
        assert batch.metrics["skill_raw"] > 0.4
        found[positions] = batch.metrics["skill_ema"]
    assert found["turn_start"] == 0
    assert found["all"] > 0.4


# Phase B ----------------------------------------------------------------------------------------


def test_the_level_is_from_before_the_batch_and_centres_single_rollouts() -> None:
    one = bench(trajectories=4, gate_max_steps=1, adv_norm="none")
    groups = with_rewards(one.play(), [[1, 0, 0, 1]])
    first = one.algorithm.credit(groups, said(groups))
    assert first.metrics["baseline_b"] == 0
    assert one.algorithm.plan(1).group_size == 1
    assert one.algorithm.plan(1).trajectories == 4
    singles = with_rewards(one.play(), [[1]] * 4)
    batch = one.algorithm.credit(singles, said(singles))
    assert batch.metrics["baseline_b"] == 0.5
    assert batch.metrics["phase"] == "single"
    for credit in batch.credit:  # centred, as phase A taught: 1 - 0.5
        assert np.concatenate(credit.targets) == pytest.approx(0.5)
        assert credit.advantages[-1][-1] == pytest.approx(0.5)
    assert one.algorithm.level.value == pytest.approx((0.9 * 0.05 + 0.1) / (1 - 0.81))


@pytest.mark.parametrize("target", ["raw", "group_mean"])
def test_critics_on_the_raw_scale_are_not_centred(target: str) -> None:
    one = bench(trajectories=4, gate_max_steps=1, adv_norm="none", critic_target=target)
    groups = with_rewards(one.play(), [[1, 0, 0, 1]])
    one.algorithm.credit(groups, said(groups))
    singles = with_rewards(one.play(), [[1]] * 4)
    batch = one.algorithm.credit(singles, said(singles))
    assert all(np.concatenate(c.targets) == pytest.approx(1.0) for c in batch.credit)


def test_the_number_of_trajectories_and_the_optimisers_go_on_across_the_switch() -> None:
    one = bench(gate_max_steps=1)
    first = one.step()
    before = one.learner.optimizer.state_dict()["state"][0]["step"].clone()
    second = one.step()
    assert (first["phase"], second["phase"]) == ("group", "single")
    assert second["switch_step"] == 1
    assert second["forced"]
    assert one.learner.optimizer.state_dict()["state"][0]["step"] == before + 1
    assert one.algorithm.plan(0).trajectories == 8


# The gate ---------------------------------------------------------------------------------------


def run_gate(one: Bench, skills: list[float | None]) -> list[str]:
    """Feed the algorithm groups on which its critic has given skills; the phases credited."""
    phases = []
    groups = one.play()
    spread = with_rewards(groups, [[1, 0, 0, 1]])
    flat = with_rewards(groups, [[1, 1, 1, 1]])
    for skill in skills:
        if not one.algorithm.gate.samples_groups:
            phases.append("single")
            continue
        chosen = flat if skill is None else spread
        values = said(chosen)
        if skill is not None:  # V = k y gives S = 1 - (1 - k)^2
            k = 1 - np.sqrt(1 - skill)
            for item, r in zip(values, [1, 0, 0, 1], strict=True):
                for turn in item.turns:
                    turn[:] = k * (r - 0.5) * 4 / 3
        phases.append(one.algorithm.credit(chosen, values).metrics["phase"])
    return phases


def test_it_switches_by_its_own_criterion() -> None:
    one = bench(trajectories=4, gate_min_steps=5)
    phases = run_gate(one, [0.1] * 5 + [0.1])
    assert phases == ["group"] * 5 + ["single"]
    assert one.algorithm.gate.switched_at == 5
    assert not one.algorithm.gate.forced
    never = bench(trajectories=4, gate_min_steps=5)
    assert run_gate(never, [0.0] * 30) == ["group"] * 30
    undefined = bench(trajectories=4, gate_min_steps=5)
    assert run_gate(undefined, [None] * 8 + [0.2] * 3 + [0.2]) == ["group"] * 11 + ["single"]


def test_a_switch_in_the_middle_of_a_run_is_resumed_to_the_step() -> None:
    whole, parts = bench(trajectories=4), bench(trajectories=4)
    skills = [-0.3, 0.2, 0.2, -0.1, 0.3, 0.3, None, 0.3, 0.2, 0.2, 0.2, 0.2]
    run_gate(whole, skills)
    run_gate(parts, skills[:6])
    again = bench(trajectories=4)
    again.algorithm.load_state_dict(parts.algorithm.state_dict())
    run_gate(again, skills[6:])
    assert whole.algorithm.gate.switched_at is not None
    assert_same(whole.algorithm.state_dict(), again.algorithm.state_dict())


def test_the_per_step_gate_credits_each_group_by_its_own_verdict() -> None:
    one = bench(trajectories=4, gate_mode="per_step_gate")
    assert run_gate(one, [0.2, -0.2, None, 0.5]) == ["single", "group", "group", "single"]
    assert one.algorithm.plan(9).group_size == 4


def test_a_critic_only_warm_up_freezes_the_actor() -> None:
    one = bench(gate_mode="critic_only_warmup", switch_step=2)
    start = {key: value.clone() for key, value in one.learner.weights().items()}
    assert [one.step()["phase"] for _ in range(2)] == ["group", "group"]
    assert_same(start, one.learner.weights())
    metrics = one.step()
    assert metrics["phase"] == "single"
    assert metrics["grad_norm_actor"] > 0
    assert not metrics["forced"]


def test_a_useless_critic_sends_it_back_to_groups() -> None:
    one = bench(trajectories=4, gate_max_steps=1, gate_tau_off=0.5, gate_patience=2)
    run_gate(one, [0.0])
    for _ in range(2):
        singles = with_rewards(one.play(), [[1], [0], [0], [1]])
        batch = one.algorithm.credit(singles, said(singles, 0.9))
    assert one.algorithm.gate.samples_groups
    assert batch.metrics["fallbacks"] == 1
    assert batch.metrics["switch_step"] is None
    assert one.algorithm.plan(3).group_size == 4


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gate_max_steps": 1},
        {"gate_max_steps": 1, "critic_target": "raw", "end_max_turns": "bootstrap"},
        {"gate_max_steps": 1, "credit_level": "turn", "turn_gamma": 1.0},
        {"gate_mode": "per_step_gate"},
        {"critic_trunk": "shared", "critic_updates": 1, "gate_max_steps": 1},
        {"gate_max_steps": 1, "prompt_mode": "windowed"},
    ],
    ids=str,
)
def test_two_updates(changes: dict[str, Any]) -> None:
    one = bench(trajectories=16, **changes)
    before = {key: value.clone() for key, value in one.learner.weights().items()}
    for _ in range(2):
        metrics = one.step()
        assert np.isfinite(metrics["loss_policy"])
        assert np.isfinite(metrics["loss_value"])
        assert metrics["updates_skipped"] == 0
    assert any(not torch.equal(before[k], v) for k, v in one.learner.weights().items())
