"""LiSAO and SAO: single rollouts, a critic, and what becomes of episodes that were cut off."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_training import Bench, actor, assert_same, make_config, make_trainer, rollout, state, train

from agentgym.info import StopReason
from agentgym.trajectory import Trajectory, TrajectoryGroup
from trainers.algorithm import TrajectoryValues
from trainers.critic import Critic
from trainers.lisao import LiSAO, LiSAOConfig, single_rollout_credit


def bench(**changes: Any) -> Bench:
    return Bench(LiSAO, make_config(LiSAOConfig, **changes))


def values(turns: list[list[float]], v_boot: float = 0.0) -> TrajectoryValues:
    return TrajectoryValues([np.array(turn, float) for turn in turns], v_boot)


def config(**changes: Any) -> LiSAOConfig:
    return LiSAOConfig(**({"adv_norm": "none"} | changes))


def credit(item: Trajectory, said: TrajectoryValues, level: float | None = None, **changes: Any):
    batch = single_rollout_credit([item], [said], config(**changes), level)
    (own,) = batch.credit
    return np.concatenate(own.advantages), np.concatenate(own.targets)


# Credit, with the worked numbers ----------------------------------------------------------------


def test_token_level_gae_with_the_length_adaptive_lambda() -> None:
    item, said = rollout([2, 2], [0, 1]), values([[0.2, 0.4], [0.5, 0.6]])
    advantages, targets = credit(item, said)
    assert advantages == pytest.approx([0.584259, 0.461111, 0.433333, 0.4], abs=1e-6)
    assert targets == pytest.approx([1, 1, 1, 1])
    advantages, _ = credit(item, said, lambda_alpha=1e12)
    assert advantages == pytest.approx([0.8, 0.6, 0.5, 0.4])


def test_turn_level_gae() -> None:
    item = rollout([1, 2], [0, 1])
    said = values([[0.2], [0.5, 9.0]])
    advantages, targets = credit(item, said, credit_level="turn", turn_gamma=0.9, turn_lambda=0.95)
    assert advantages == pytest.approx([0.6775, 0.5, 0.5])
    assert targets[:2] == pytest.approx([0.9, 1.0])
    assert np.isnan(targets[2])


def test_a_zero_value_critic_discounts_early_tokens_by_the_trace_alone() -> None:
    item = rollout([50, 50], [0, 1])
    advantages, _ = credit(item, values([[0.0] * 50, [0.0] * 50]))
    assert advantages[-1] == 1
    assert advantages[0] == pytest.approx((1 - 1 / 150) ** 99)
    assert advantages[0] == pytest.approx(0.513, abs=0.01)


@pytest.mark.parametrize(
    ("stop", "changes", "advantages", "targets"),
    [
        (StopReason.MAX_TURNS, {"end_max_turns": "bootstrap"}, [0.5, 0.3], [0.7, 0.7]),
        (StopReason.MAX_TURNS, {}, [-0.2, -0.4], [0, 0]),
        (StopReason.MAX_TOKENS, {}, [-0.2, -0.4], [0, 0]),
        (StopReason.CONTEXT_OVERFLOW, {"end_length_limit": "bootstrap"}, [0.5, 0.3], [0.7, 0.7]),
        (StopReason.DEADLINE, {}, [0.5, 0.3], [0.7, 0.7]),
        (StopReason.DEADLINE, {"end_deadline": "zero"}, [-0.2, -0.4], [0, 0]),
    ],
    ids=str,
)
def test_the_end_of_an_unfinished_episode(stop, changes, advantages, targets) -> None:
    item = rollout([2], [0.0], stop)
    found = credit(item, values([[0.2, 0.4]], v_boot=0.7), lambda_alpha=1e12, **changes)
    assert found[0] == pytest.approx(advantages)
    assert found[1] == pytest.approx(targets)


def test_terminated_wins_over_truncated() -> None:
    item = rollout([2], [0.0], StopReason.MAX_TURNS, terminated=True)
    found = credit(item, values([[0.2, 0.4]], 0.7), lambda_alpha=1e12, end_max_turns="bootstrap")
    assert found[0] == pytest.approx([-0.2, -0.4])


def test_dropped_rollouts() -> None:
    items = [
        rollout([1], [0.0], StopReason.INFRA_ERROR),
        rollout([1], [0.0], StopReason.CANCELLED),
        rollout([1], [0.0], StopReason.MAX_TURNS),
        rollout([1], [float("nan")]),
        rollout([0], [1.0]),
        rollout([1], [1.0]),
    ]
    said = [values([[0.0] * turn.n_actions for turn in item.turns]) for item in items]
    batch = single_rollout_credit(items, said, config(end_max_turns="drop"))
    assert batch.trajectories == items[-1:]
    assert single_rollout_credit([], [], config()).trajectories == []


def test_the_level_is_subtracted_once_and_never_from_a_bootstrapped_episode() -> None:
    item, said = rollout([1, 2], [0.3, 0.7]), values([[0.0], [0.0, 0.0]])
    _, targets = credit(item, said, level=0.4)
    assert targets == pytest.approx([0.6, 0.3, 0.3])
    _, targets = credit(item, said, level=0.4, credit_level="turn", turn_gamma=1.0)
    assert targets[:2] == pytest.approx([0.6, 0.3])
    cut = rollout([1, 2], [0.3, 0.7], StopReason.DEADLINE)
    _, targets = credit(cut, values([[0.0], [0.0, 0.0]], v_boot=0.1), level=0.4)
    assert targets == pytest.approx([1.1, 0.8, 0.8])


def test_advantages_are_brought_to_scale_over_the_tokens_of_the_batch() -> None:
    items = [rollout([1], [1.0]), rollout([3], [0.0])]
    said = [values([[0.0]]), values([[0.5] * 3])]
    batch = single_rollout_credit(items, said, config(adv_norm="batch_std", lambda_alpha=1e12))
    flat = np.concatenate([a for c in batch.credit for a in c.advantages])
    assert np.mean(flat**2) == pytest.approx(1.0)
    assert flat == pytest.approx(np.array([1, -0.5, -0.5, -0.5]) / np.sqrt(1.75 / 4))


def test_the_critic_is_indispensable() -> None:
    one = bench()
    with pytest.raises(ValueError, match="needs the critic's values"):
        one.algorithm.credit([TrajectoryGroup("g0", [rollout([1], [1.0])])], None)


# Training ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"credit_level": "turn"},
        {"loss": "ppo", "clip_low": 0.2, "clip_high": 0.2},
        {"critic_trunk": "shared", "critic_updates": 1},
        {"freeze_attention": True},
        {"value_clip": 0.2},
        {"prompt_mode": "windowed", "end_max_turns": "bootstrap"},
        {"adv_norm": "whiten"},
        {"kl_coef": 0.1, "kl_in": "reward", "kl_kind": "k1"},
        {"end_max_turns": "drop"},
    ],
    ids=str,
)
def test_two_updates(changes: dict[str, Any]) -> None:
    one = bench(**changes)
    before = {key: value.clone() for key, value in one.learner.weights().items()}
    head = one.learner.critic.head.weight.clone()
    for _ in range(2):
        metrics = one.step()
        assert np.isfinite(metrics["loss_policy"])
        assert np.isfinite(metrics["loss_value"])
        assert metrics["updates_skipped"] == 0
    assert any(not torch.equal(before[k], v) for k, v in one.learner.weights().items())
    assert not torch.equal(head, one.learner.critic.head.weight)


def test_every_rollout_plays_a_task_of_its_own() -> None:
    one = bench(trajectories=12)
    groups = one.play()
    assert [len(group) for group in groups] == [1] * 12
    assert len({m.task_id for group in groups for m in group}) == 12


def test_truncated_episodes_are_valued_after_their_last_observation() -> None:
    one = bench(end_max_turns="bootstrap")
    torch.nn.init.normal_(one.learner.critic.head.weight)
    cut = [m for g in one.play() for m in g if m.stop_reason is StopReason.MAX_TURNS]
    assert cut
    assert all(len(item.tail_ids) for item in cut)
    without = [dataclasses.replace(item, tail_ids=item.tail_ids[:0]) for item in cut]
    for one_value, other in zip(one.learner.values(cut), one.learner.values(without), strict=True):
        assert one_value.v_boot != other.v_boot
        for left, right in zip(one_value.turns, other.turns, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-5)


def test_a_warm_up_trains_the_critic_alone() -> None:
    one = bench(critic_warmup_steps=2)
    start = {key: value.clone() for key, value in one.learner.weights().items()}
    assert "grad_norm_actor" not in one.step()
    assert "grad_norm_actor" not in one.step()
    assert_same(start, one.learner.weights())
    assert one.learner.critic.head.weight.abs().max() > 0
    assert one.step()["grad_norm_actor"] > 0


def test_values_are_those_from_before_the_update() -> None:
    one = bench()
    batch = one.credit(one.play())
    # The head is zero: an untrained critic says 0 and explains nothing.
    assert batch.metrics["value_mean"] == 0
    assert batch.metrics["explained_variance_mse"] <= 0
    assert batch.metrics["explained_variance"] == pytest.approx(0, abs=1e-12)


# With a pretrained critic it is SAO -------------------------------------------------------------


def test_with_a_loaded_critic_lisao_is_sao(tmp_path: Path) -> None:
    """It starts from those weights; given the untrained ones, nothing changes at all."""
    plain = make_trainer(LiSAO, make_config(LiSAOConfig, run_dir=tmp_path / "plain"))
    lm = plain.setup.lm
    untrained = Critic(lm)
    untrained.save(tmp_path / "zero", lm.tokenizer)
    with torch.no_grad():
        for parameter in untrained.parameters():
            parameter.add_(0.01)
    untrained.save(tmp_path / "trained", lm.tokenizer)

    sao = make_trainer(
        LiSAO, make_config(LiSAOConfig, run_dir=tmp_path / "sao", critic=tmp_path / "trained")
    )
    assert_same(dict(sao.learner.critic.state_dict()), dict(untrained.state_dict()))
    assert_same(actor(sao), actor(plain))
    assert sao.run() == 0
    zero = train(LiSAO, LiSAOConfig, tmp_path / "with", critic=tmp_path / "zero")
    assert plain.run() == 0
    assert_same(state(plain), state(zero))
    with pytest.raises(AssertionError):
        assert_same(actor(plain), actor(sao))
    # A resumed run has its own critic, wherever the pretrained one has gone.
    for file in (tmp_path / "trained").iterdir():
        file.unlink()
    resumed = make_trainer(
        LiSAO,
        make_config(LiSAOConfig, resume=tmp_path / "sao", critic=tmp_path / "trained", steps=3),
    )
    assert_same(state(sao)["learner"], state(resumed)["learner"])
    assert resumed.run() == 0
