"""GRPO and the relatives its switches make of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from toy_training import Bench, assert_same, make_config

from agentgym.info import StopReason
from agentgym.trajectory import TrajectoryGroup
from trainers.grpo import GRPO, GRPOConfig
from trainers.rollouts import Source


def bench(**changes: Any) -> Bench:
    return Bench(GRPO, make_config(GRPOConfig, **({"trajectories": 16} | changes)))


SWITCHES: dict[str, dict[str, Any]] = {
    "GRPO": {},
    "Dr.GRPO": {"adv_std": "none", "aggregation": "constant", "constant_length": 12},
    "RLOO": {"adv_center": "loo", "adv_std": "none"},
    "batch scale": {"adv_std": "batch"},
    "whitened": {"adv_std": "none", "adv_norm": "whiten"},
    "DAPO": {"clip_high": 0.28, "dynamic_sampling": True, "on_length_limit": "mask"},
    "DAPO overlong": {"overlong_length": 12, "overlong_cache": 4},
    "GSPO": {"loss": "gspo", "clip_low": 3e-4, "clip_high": 4e-4, "minibatches": 2},
    "CISPO": {"loss": "cispo", "clip_low": None, "clip_high": 5.0, "minibatches": 2},
    "DIS": {"loss": "dis", "clip_low": 0.3, "clip_high": 5.0},
    "REINFORCE": {"loss": "reinforce"},
    "dual clip": {"dual_clip": 3.0, "minibatches": 4},
    "token mean": {"aggregation": "token_mean"},
    "sequence mean of token means": {"aggregation": "seq_mean_token_mean"},
    "sequence mean of token sums": {"aggregation": "seq_mean_token_sum"},
    "k2 loss": {"kl_coef": 0.1, "kl_kind": "k2"},
    "k3 loss": {"kl_coef": 0.1, "kl_kind": "k3"},
    "k1 reward": {"kl_coef": 0.1, "kl_kind": "k1", "kl_in": "reward"},
    "k2 reward": {"kl_coef": 0.1, "kl_kind": "k2", "kl_in": "reward"},
    "k3 reward": {"kl_coef": 0.1, "kl_kind": "k3", "kl_in": "reward"},
    "TIS": {"old_logprobs": "recompute", "correction": "truncate"},
    "IcePop": {"old_logprobs": "recompute", "correction": "mask"},
    "decoupled": {"old_logprobs": "recompute", "correction": "none"},
    "sequence IcePop": {
        "old_logprobs": "recompute",
        "correction": "mask",
        "correction_level": "sequence_mean",
    },
    "masked zero variance": {"mask_zero_variance": True, "kl_coef": 0.1},
    "entropy bonus": {"entropy_coef": 0.01},
    "penalty": {"invalid_penalty": 0.5},
}


@pytest.mark.parametrize("name", SWITCHES)
def test_two_updates_of_every_relative(name: str) -> None:
    one = bench(**SWITCHES[name])
    before = {key: value.clone() for key, value in one.learner.weights().items()}
    for _ in range(2):
        metrics = one.step()
        assert np.isfinite(metrics["loss_policy"])
        assert metrics["updates_skipped"] == 0
        assert metrics["adv_rms"] > 0
    after = one.learner.weights()
    assert any(not torch.equal(before[key], after[key]) for key in before)
    assert all(torch.isfinite(value).all() for value in after.values())
    if "kl" in str(SWITCHES[name]):
        assert metrics[f"kl_{one.config.kl_kind}"] != 0


def advantages(one: Bench, groups: list[TrajectoryGroup]) -> dict[int, float]:
    """Advantage of each trajectory that is kept, which all of its tokens share."""
    batch = one.credit(groups)
    found = {}
    for trajectory, credit in zip(batch.trajectories, batch.credit, strict=True):
        values = np.unique(np.concatenate(credit.advantages))
        assert len(values) == 1
        assert credit.targets is None
        found[id(trajectory)] = float(values[0])
    return found


def with_rewards(groups: list[TrajectoryGroup], returns: list[list[float]]) -> list:
    """The groups with other returns, all of it earned in the last turn."""
    out = []
    for group, own in zip(groups, returns, strict=True):
        members = []
        for member, total in zip(group, own, strict=True):
            turns = [dataclasses.replace(turn, reward=0.0) for turn in member.turns]
            turns[-1] = dataclasses.replace(turns[-1], reward=total)
            members.append(dataclasses.replace(member, turns=turns))
        out.append(TrajectoryGroup(group.group_id, members))
    return out


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0.866024, -0.866024, -0.866024, 0.866024]),
        ({"adv_eps": 1e-4}, [0.865875, -0.865875, -0.865875, 0.865875]),
        ({"adv_ddof": 0}, [0.999998, -0.999998, -0.999998, 0.999998]),
        ({"adv_std": "none"}, [0.5, -0.5, -0.5, 0.5]),
        ({"adv_std": "none", "adv_center": "loo"}, [2 / 3, -2 / 3, -2 / 3, 2 / 3]),
        ({"adv_std": "none", "adv_norm": "batch_std"}, [1.0, -1.0, -1.0, 1.0]),
    ],
    ids=str,
)
def test_worked_numbers(changes: dict[str, Any], expected: list[float]) -> None:
    one = bench(**changes, trajectories=4)
    groups = with_rewards(one.play(), [[1, 0, 0, 1]])
    found = advantages(one, groups)
    assert [found[id(m)] for m in groups[0]] == pytest.approx(expected, abs=1e-6)


def test_lost_members_leave_their_group_and_damaged_groups_are_dropped() -> None:
    one = bench(adv_std="none")
    groups = with_rewards(one.play(), [[1, 0, 0, 1]] * 4)
    lost = [(0, (0,)), (1, (0, 1, 2)), (2, (0, 1, 2, 3))]
    for group, members in lost:
        for member in members:
            groups[group].trajectories[member].stop_reason = StopReason.INFRA_ERROR
    found = advantages(one, groups)
    assert [found[id(m)] for m in list(groups[0])[1:]] == pytest.approx([-1 / 3, -1 / 3, 2 / 3])
    assert not {id(m) for g in groups[1:3] for m in g} & found.keys()
    assert len(found) == 3 + 4
    metrics = one.credit(groups).metrics
    assert (metrics["groups"], metrics["groups_dropped"]) == (4, 2)


def test_a_return_that_is_not_finite_costs_one_member() -> None:
    one = bench(adv_std="none", trajectories=4)
    groups = with_rewards(one.play(), [[float("nan"), 0, 0, 1]])
    assert len(advantages(one, groups)) == 3


def test_zero_variance_groups_stay_are_masked_or_are_replaced() -> None:
    returns = [[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]]
    plain, masked, dynamic = bench(), bench(mask_zero_variance=True), bench(dynamic_sampling=True)
    groups = with_rewards(plain.play(), returns)
    batch = plain.credit(groups)
    assert (len(batch.trajectories), batch.missing) == (16, 0)
    assert batch.metrics["frac_zero_variance"] == 0.5
    batch = masked.credit(groups)
    assert (len(batch.trajectories), batch.missing) == (8, 0)
    batch = dynamic.credit(groups)
    assert (len(batch.trajectories), batch.missing) == (8, 8)
    # With a second round that holds nothing new, until the limit of tries.
    batch = dynamic.credit([*groups, *groups_named(groups[:1], 4)])
    assert (len(batch.trajectories), batch.missing) == (8, 8)
    many = groups_named([groups[0]] * 12, 4)
    assert dynamic.credit([*groups, *many]).missing == 0
    # Lost members leave a batch that whole groups fill up again.
    groups[1].trajectories[0].stop_reason = StopReason.INFRA_ERROR
    assert dynamic.credit(groups).missing == 12


def groups_named(groups: list[TrajectoryGroup], first: int) -> list[TrajectoryGroup]:
    return [
        TrajectoryGroup(
            f"g{number}",
            [
                dataclasses.replace(m, spec=dataclasses.replace(m.spec, group_id=f"g{number}"))
                for m in group
            ],
        )
        for number, group in enumerate(groups, first)
    ]


@pytest.mark.parametrize("staleness", [0, 1])
def test_dynamic_sampling_fills_the_batch(staleness: int, tmp_path) -> None:
    """Also while sampling goes on at the side: what is left out frees its place."""
    from toy_training import make_trainer, rows

    config = make_config(
        GRPOConfig,
        dynamic_sampling=True,
        max_resamples=20,
        trajectories=16,
        staleness=staleness,
        run_dir=tmp_path,
        steps=3,
    )
    trainer = make_trainer(GRPO, config)
    source: Source = trainer.source
    released = []
    plain = source.release
    source.release = lambda count: (released.append(count), plain(count))[1]  # type: ignore[method-assign]
    assert trainer.run() == 0
    found = rows(tmp_path)[1:]
    assert sum(released) > 0
    assert sum(row["batch_trajectories"] for row in found) == 3 * 16 + sum(released)
    for row in found:
        trained = row["batch_trajectories"] * (1 - row["frac_zero_variance"])
        assert trained >= 16
        assert row.get("staleness_max", 0) <= staleness


def test_the_soft_penalty_for_length_enters_the_return() -> None:
    one = bench(adv_std="none", trajectories=4, overlong_length=10, overlong_cache=5)
    groups = with_rewards(one.play(), [[0, 0, 0, 0]])
    lengths = [member.n_actions for member in groups[0]]
    penalties = np.clip((5 - np.array(lengths)) / 5, -1, 0)
    assert penalties.std() > 0
    found = advantages(one, groups)
    expected = penalties - penalties.mean()
    assert [found[id(m)] for m in groups[0]] == pytest.approx(expected.tolist())


def test_inadmissible_actions_cost_their_share() -> None:
    one = bench(adv_std="none", trajectories=4, invalid_penalty=1.0)
    groups = with_rewards(one.play(), [[1, 1, 1, 1]])
    for member in groups[0]:
        for turn in member.turns:
            turn.format_ok = turn.action_valid = True
    bad = groups[0].trajectories[0]
    bad.turns[0].action_valid = False
    found = advantages(one, groups)
    share = 1 / len(bad.turns)
    assert found[id(bad)] == pytest.approx(-share * 3 / 4)


def test_every_member_of_a_group_plays_the_same_task() -> None:
    one = bench()
    for group in one.play():
        assert len(group) == 4
        assert len({(m.task_id, m.spec.seed, m.turns[0].observation) for m in group}) == 1
        assert len({tuple(m.turns[0].action_ids.tolist()) for m in group}) > 1


def test_state_is_empty_and_another_algorithms_state_is_refused() -> None:
    one = bench()
    assert_same(one.algorithm.state_dict(), {})
    one.algorithm.load_state_dict({})
    with pytest.raises(ValueError, match="grpo keeps no state"):
        one.algorithm.load_state_dict({"steps": 3})
