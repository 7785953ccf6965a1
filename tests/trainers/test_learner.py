"""The learner on real rollouts of a random transformer: what it recomputes, masks and updates."""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from toy_training import Bench, assert_same, make_config

import trainers.learner
import trainers.value_learner
from agentgym.info import StopReason
from agentgym.packing import Credit, pack
from agentgym.trajectory import TrajectoryGroup
from trainers.algorithm import CreditBatch
from trainers.grpo import GRPO, GRPOConfig
from trainers.li2sao import Li2SAO, Li2SAOConfig
from trainers.lisao import LiSAO, LiSAOConfig

LOOSE = {"grad_clip": 1e9}  # gradients as they are


def grpo(**changes: Any) -> Bench:
    return Bench(GRPO, make_config(GRPOConfig, **(LOOSE | changes)))


def lisao(**changes: Any) -> Bench:
    return Bench(LiSAO, make_config(LiSAOConfig, **(LOOSE | changes)))


def assert_close(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    assert any(value.abs().max() > 1e-4 for value in left.values())
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], atol=2e-6, rtol=1e-4, msg=name)


# Parity -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"prompt_mode": "windowed"}, {"temperature": 0.7}, {"microbatch_tokens": 40}],
    ids=str,
)
def test_learner_and_sampler_agree_on_log_probs(changes: dict[str, Any]) -> None:
    bench = Bench(GRPO, make_config(GRPOConfig, **changes), layers=2)
    for _ in range(2):  # the second time with weights that were published
        trajectories = [member for group in bench.play() for member in group]
        rows = pack(trajectories)
        recomputed = bench.learner._logprobs(bench.setup.lm, rows)
        assert sum(row.action_mask.sum() for row in rows) > 50
        for row, logp in zip(rows, recomputed, strict=True):
            difference = np.abs(logp - row.logprobs)[row.action_mask]
            assert difference.max() < 1e-4
            assert (row.logprobs[row.action_mask] < 0).all()
        metrics = bench.step()
        assert metrics["logp_diff_max"] < 1e-4
        assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    bench.close()


# Rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "aggregation", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"]
)
@pytest.mark.parametrize("kind", ["grpo", "lisao"])
def test_one_row_an_episode_or_a_turn_is_the_same(
    aggregation: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"aggregation": aggregation, "constant_length": 16, "minibatches": 2}
    bench = (grpo if kind == "grpo" else lisao)(**changes)
    batch = bench.credit(bench.play())
    by_episode = bench.gradients(batch)
    loss = bench.metrics["loss_policy"]
    by_turn = partial(pack, unit="turn")
    monkeypatch.setattr(trainers.learner, "pack", by_turn)
    monkeypatch.setattr(trainers.value_learner, "pack", by_turn)
    assert len(by_turn(batch.trajectories)) > len(pack(batch.trajectories))
    assert_close(by_episode, bench.gradients(batch))
    assert bench.metrics["loss_policy"] == pytest.approx(loss, rel=1e-5, abs=1e-6)


def test_values_do_not_depend_on_the_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = lisao()
    trajectories = [member for group in bench.play() for member in group]
    torch.nn.init.normal_(bench.learner.critic.head.weight)
    whole = bench.learner.values(trajectories)
    monkeypatch.setattr(trainers.value_learner, "pack", partial(pack, unit="turn"))
    by_turn = bench.learner.values(trajectories)
    for one, other in zip(whole, by_turn, strict=True):
        assert one.v_boot == pytest.approx(other.v_boot, abs=1e-5)
        for left, right in zip(one.turns, other.turns, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-5)
            assert np.abs(left).max() > 0.01


@pytest.mark.parametrize("microbatch_tokens", [1, 60, 200])
@pytest.mark.parametrize(
    "changes",
    [
        {"aggregation": "seq_mean_token_mean"},
        {"entropy_coef": 0.1, "kl_coef": 0.2, "loss": "gspo"},
        {"loss": "dis", "clip_low": 0.8, "clip_high": 3.0, "minibatches": 3},
        {"old_logprobs": "recompute", "correction": "truncate"},
        {"prompt_mode": "windowed", "aggregation": "seq_mean_token_mean"},
    ],
    ids=str,
)
def test_cutting_a_batch_into_microbatches_changes_nothing(
    changes: dict[str, Any], microbatch_tokens: int
) -> None:
    whole, cut = grpo(**changes), grpo(**changes, microbatch_tokens=microbatch_tokens)
    batch = whole.credit(whole.play())
    assert_close(whole.gradients(batch), cut.gradients(batch))
    for name in ("loss_policy", "entropy", "adv_rms", "ratio_max"):
        assert whole.metrics[name] == pytest.approx(cut.metrics[name], rel=1e-4, abs=1e-6), name


def test_microbatches_of_the_critic_change_nothing() -> None:
    for changes in ({}, {"critic_trunk": "shared", "critic_updates": 1}, {"value_clip": 0.1}):
        whole, cut = lisao(**changes), lisao(**changes, microbatch_tokens=60)
        batch = whole.credit(whole.play())
        assert_close(whole.gradients(batch), cut.gradients(batch))


def test_windowed_prompts_make_one_row_a_turn() -> None:
    bench = lisao(prompt_mode="windowed", window=1, end_max_turns="bootstrap")
    batch = bench.credit(bench.play())
    rows = pack(batch.trajectories, batch.credit)
    assert len(rows) == sum(len(item.turns) for item in batch.trajectories)
    assert all(len(row.spans) == 1 for row in rows)
    metrics = bench.step()
    assert metrics["logp_diff_max"] < 1e-4
    assert np.isfinite(metrics["loss_policy"])


# Permuting, duplicating, perturbing -------------------------------------------------------------


def test_the_order_of_trajectories_does_not_matter() -> None:
    bench = lisao()
    batch = bench.credit(bench.play())
    order = np.random.default_rng(0).permutation(len(batch.trajectories))
    turned = CreditBatch([batch.trajectories[i] for i in order], [batch.credit[i] for i in order])
    assert_close(bench.gradients(batch), bench.gradients(turned))


def test_everything_twice_is_everything_once() -> None:
    bench = lisao()
    batch = bench.credit(bench.play())
    twice = CreditBatch(batch.trajectories * 2, batch.credit * 2)
    assert_close(bench.gradients(batch), bench.gradients(twice))


def test_groups_in_another_order_get_the_same_credit() -> None:
    bench = grpo()
    groups = bench.play()
    forward = bench.credit(groups)
    backward = bench.credit([TrajectoryGroup(g.group_id, list(g)[::-1]) for g in groups[::-1]])
    credit = {id(t): c for t, c in zip(backward.trajectories, backward.credit, strict=True)}
    for trajectory, own in zip(forward.trajectories, forward.credit, strict=True):
        for left, right in zip(own.advantages, credit[id(trajectory)].advantages, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-12)


def test_observations_are_context_and_never_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = grpo(microbatch_tokens=10**6)
    batch = bench.credit(bench.play())
    captured: list[torch.Tensor] = []
    features = bench.setup.lm.features

    def capture(ids, **kwargs):
        out = features(ids, **kwargs)
        if out.requires_grad:
            out.retain_grad()
            captured.append(out)
        return out

    monkeypatch.setattr(bench.setup.lm, "features", capture)
    bench.gradients(batch)
    rows = sorted(pack(batch.trajectories, batch.credit), key=len)
    (hidden,) = captured
    assert hidden.shape[0] == len(rows)
    for row, gradient in zip(rows, hidden.grad, strict=True):
        predicts = np.zeros(hidden.shape[1], bool)  # token t is predicted at t - 1
        predicts[: len(row) - 1] = (row.action_mask & (row.advantages != 0))[1:]
        touched = gradient.abs().sum(-1).numpy() > 0
        assert not (touched & ~predicts).any()
        assert (touched == predicts).mean() > 0.9


def test_another_observation_changes_what_follows_and_nothing_before() -> None:
    bench = Bench(LiSAO, make_config(LiSAOConfig), layers=2)  # the second looks at all tokens
    torch.nn.init.normal_(bench.learner.critic.head.weight)
    trajectory = next(m for g in bench.play() for m in g if len(m.turns) == 3)
    turns = list(trajectory.turns)
    context = turns[1].context_ids.copy()
    context[0] = (context[0] + 1) % bench.setup.lm.vocab_size
    turns[1] = dataclasses.replace(turns[1], context_ids=context)
    changed = dataclasses.replace(trajectory, turns=turns)
    rows = pack([trajectory, changed])
    before, after = bench.learner._logprobs(bench.setup.lm, rows)
    v_before, v_after = bench.learner.values([trajectory, changed])
    first, second = rows[0].spans[0], rows[0].spans[1]
    np.testing.assert_array_equal(before[first[1] : first[2]], after[first[1] : first[2]])
    assert (before[second[1] : second[2]] != after[second[1] : second[2]]).all()
    np.testing.assert_array_equal(v_before.turns[0], v_after.turns[0])
    assert (v_before.turns[1] != v_after.turns[1]).all()


# Masks ------------------------------------------------------------------------------------------


def test_episodes_that_ran_out_of_tokens_may_be_masked() -> None:
    bench = grpo(on_length_limit="mask", max_context=24)
    batch = bench.credit(bench.play())
    out_of_room = [
        item.stop_reason in (StopReason.CONTEXT_OVERFLOW, StopReason.MAX_TOKENS)
        for item in batch.trajectories
    ]
    assert 0 < sum(out_of_room) < len(out_of_room)
    masked = bench.gradients(batch)
    kept = [i for i, out in enumerate(out_of_room) if not out]
    rest = CreditBatch([batch.trajectories[i] for i in kept], [batch.credit[i] for i in kept])
    assert_close(masked, bench.gradients(rest))
    keeping = grpo(on_length_limit="keep", max_context=24)
    with pytest.raises(AssertionError):
        assert_close(masked, keeping.gradients(batch))


def test_tokens_that_the_engine_flags_stay_out_of_the_loss() -> None:
    bench = grpo()
    batch = bench.credit(bench.play())
    flagged = [
        dataclasses.replace(
            item,
            turns=[
                dataclasses.replace(turn, trainable=np.arange(turn.n_actions) > 0)
                for turn in item.turns
            ],
        )
        for item in batch.trajectories
    ]
    left = bench.gradients(CreditBatch(flagged, batch.credit))
    garbage = [
        Credit([np.where(np.arange(len(a)) > 0, a, 1e6) for a in credit.advantages])
        for credit in batch.credit
    ]
    assert_close(left, bench.gradients(CreditBatch(flagged, garbage)))


def test_a_batch_with_nothing_to_learn_from_changes_nothing() -> None:
    bench = grpo(learning_rate=0.1)
    batch = bench.credit(bench.play())
    flagged = [
        dataclasses.replace(
            item,
            turns=[
                dataclasses.replace(turn, trainable=np.zeros(turn.n_actions, bool))
                for turn in item.turns
            ],
        )
        for item in batch.trajectories
    ]
    before = {name: value.clone() for name, value in bench.learner.weights().items()}
    metrics = bench.learner.update(CreditBatch(flagged, batch.credit), 0)
    assert metrics["loss_policy"] == 0
    assert metrics["grad_norm_actor"] == 0
    assert_same(before, bench.learner.weights())
    assert bench.learner.update(CreditBatch([], []), 0)["updates_skipped"] == 0


def test_turns_without_a_sampled_token_are_passed_over() -> None:
    bench = lisao()
    groups = bench.play()
    with_gaps = []
    for group in groups:
        for item in group:
            empty = dataclasses.replace(
                item.turns[0],
                **{
                    name: getattr(item.turns[0], name)[:0]
                    for name in ("action_ids", "logprobs", "versions", "trainable")
                },
                reward=0.25,
            )
            later = dataclasses.replace(empty, extends=True, context_ids=empty.context_ids[:3])
            with_gaps.append(dataclasses.replace(item, turns=[*item.turns, later]))
    batch = bench.credit([TrajectoryGroup("g0", with_gaps)])
    assert len(batch.trajectories) == 8
    for trajectory, credit in zip(batch.trajectories, batch.credit, strict=True):
        assert [len(a) for a in credit.advantages] == [t.n_actions for t in trajectory.turns]
        # Its reward is not lost: the first target is the whole return.
        assert credit.targets[0][0] == pytest.approx(trajectory.total_reward)
    assert np.isfinite(bench.learner.update(batch, 0)["loss_policy"])


# The optimiser ----------------------------------------------------------------------------------


def test_a_gradient_that_is_not_finite_is_not_applied() -> None:
    bench = lisao()
    batch = bench.credit(bench.play())
    with torch.no_grad():
        bench.setup.lm.model.get_output_embeddings().weight[0, 0] = float("inf")
        bench.learner.critic.head.weight[0, 0] = float("nan")
    before = [p.clone() for p in bench.learner._parameters]
    metrics = bench.learner.update(batch, 0)
    assert metrics["updates_skipped"] == 3  # two of the critic, one of the actor
    assert not np.isfinite(metrics["grad_norm_actor"])
    for old, new in zip(before, bench.learner._parameters, strict=True):
        assert torch.equal(old, new) or torch.equal(old.nan_to_num(), new.nan_to_num())


def test_gradients_are_clipped_by_norm() -> None:
    loose, tight = grpo(), grpo(grad_clip=0.01)
    batch = loose.credit(loose.play())
    whole = torch.cat([g.flatten() for g in loose.gradients(batch).values()])
    clipped = torch.cat([g.flatten() for g in tight.gradients(batch).values()])
    assert clipped.norm() == pytest.approx(0.01, rel=1e-3)
    assert tight.metrics["grad_norm_actor"] == pytest.approx(float(whole.norm()), rel=1e-4)
    torch.testing.assert_close(clipped * whole.norm() / 0.01, whole, atol=1e-5, rtol=1e-2)


def test_learning_rates_warm_up_and_fall_independent_of_the_length_of_the_run() -> None:
    bench = lisao(warmup_steps=2, decay_steps=4, decay_to=0.5, steps=3)
    factors = [bench.learner._rate_factor(step) for step in range(9)]
    assert factors == [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.5, 0.5]
    bench.learner.update(bench.credit(bench.play()), 3)
    assert bench.learner.optimizer.param_groups[0]["lr"] == 0.875e-3
    assert bench.learner.value_learner.optimizer.param_groups[0]["lr"] == 0.875e-3
    assert lisao().learner._rate_factor(10**6) == 1.0


def test_minibatches_hold_every_trajectory_once_and_are_shuffled() -> None:
    bench = grpo(minibatches=3, epochs=2)
    batch = bench.credit(bench.play())
    rows = pack(batch.trajectories, batch.credit)
    seen = []
    for epoch in range(2):
        parts = list(bench.learner._minibatches(rows, 0, epoch))
        assert len(parts) == 3
        assert sorted(index for part in parts for index in part) == list(range(len(rows)))
        seen.append(parts)
    assert seen[0] != seen[1]
    assert seen[0] == list(bench.learner._minibatches(rows, 0, 0))
    metrics = bench.learner.update(batch, 0)
    assert metrics["ratio_max"] > 1.0 + 1e-5, "later minibatches are off-policy"
    assert metrics["logp_diff_max"] < 1e-4, "only the first is compared with the sampler"


# The loss's options -----------------------------------------------------------------------------


def test_on_policy_the_first_update_is_reinforce_whatever_the_loss() -> None:
    found = []
    for loss in ("reinforce", "ppo", "dis", "cispo"):
        bench = grpo(loss=loss)
        found.append(bench.gradients(bench.credit(bench.play())))
    for other in found[1:]:
        assert_close(found[0], other)


def test_rejected_tokens_may_leave_the_denominator() -> None:
    changes = {"loss": "dis", "clip_low": 0.02, "clip_high": 0.02, "epochs": 2}
    changes |= {"learning_rate": 0.0003}
    keeping, leaving = grpo(**changes), grpo(**changes, dis_keep_rejected=False)
    cut = grpo(**changes, dis_keep_rejected=False, microbatch_tokens=50)
    batch = keeping.credit(keeping.play())
    metrics = [bench.learner.update(batch, 0) for bench in (keeping, leaving, cut)]
    assert metrics[0]["dis_rejected_low"] + metrics[0]["dis_rejected_high"] > 0.05
    assert metrics[1]["grad_norm_actor"] > metrics[0]["grad_norm_actor"]
    assert metrics[1]["grad_norm_actor"] == pytest.approx(metrics[2]["grad_norm_actor"], rel=1e-3)


def test_a_reference_pulls_and_an_entropy_bonus_pushes() -> None:
    plain, pulled = grpo(), grpo(kl_coef=20.0)
    for bench in (plain, pulled):
        for _ in range(3):
            metrics = bench.step()
    assert metrics["kl_k3"] > 0
    assert metrics["loss_kl"] == pytest.approx(20 * metrics["kl_k3"], rel=1e-3)
    drift = {}
    for name, bench in (("plain", plain), ("pulled", pulled)):
        start = pulled.learner.reference.model.state_dict()
        now = bench.learner.weights()
        drift[name] = sum(float((now[k] - start[k]).norm() ** 2) for k in now)
    assert drift["pulled"] < drift["plain"]
    bonus = grpo(entropy_coef=1.0, loss="reinforce")
    batch = bonus.credit(bonus.play())
    with pytest.raises(AssertionError):
        assert_close(bonus.gradients(batch), grpo(loss="reinforce").gradients(batch))


def test_recomputed_log_probs_are_those_before_the_first_update() -> None:
    bench = grpo(old_logprobs="recompute", minibatches=2)
    groups = bench.play()
    for group in groups:  # a sampler that is off by a constant
        for item in group:
            for turn in item.turns:
                turn.logprobs -= 0.5
    batch = bench.credit(groups)
    metrics = bench.learner.update(batch, 0)
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=0.05)
    assert metrics["logp_diff_mean"] == pytest.approx(0.5, abs=1e-3)
    against_sampler = grpo(minibatches=2).learner.update(batch, 0)
    assert against_sampler["ratio_mean"] == pytest.approx(np.exp(0.5), abs=0.1)
    capped = grpo(
        old_logprobs="recompute", correction="truncate", correction_high=1.2
    ).learner.update(batch, 0)
    assert capped["is_weight_mean"] == pytest.approx(1.2, abs=1e-3)
    assert capped["is_rejected"] == 1.0
    masked = grpo(old_logprobs="recompute", correction="mask", correction_high=1.2).learner.update(
        batch, 0
    )
    assert masked["is_weight_mean"] == 0
    assert masked["grad_norm_actor"] == 0


# The critic inside the learner ------------------------------------------------------------------


def test_k_critic_updates_an_actor_update() -> None:
    bench = lisao(critic_updates=3, minibatches=2, epochs=2)
    calls = {"actor": 0, "critic": 0}
    for name, optimizer in (
        ("actor", bench.learner.optimizer),
        ("critic", bench.learner.value_learner.optimizer),
    ):
        optimizer.register_step_post_hook(
            lambda *_, name=name: calls.__setitem__(name, calls[name] + 1)
        )
    bench.step()
    assert calls == {"actor": 4, "critic": 12}


def test_the_critic_learns_its_targets_and_leaves_the_policy_alone() -> None:
    bench = lisao(critic_warmup_steps=100, critic_learning_rate=3e-3)
    policy = {name: value.clone() for name, value in bench.learner.weights().items()}
    batch = bench.credit(bench.play())
    assert not batch.train_actor
    losses = [bench.learner.update(batch, 0)["loss_value"] for _ in range(15)]
    assert_same(policy, bench.learner.weights())
    assert losses[-1] < 0.2 * losses[0]


def test_a_shared_trunk_has_one_optimiser() -> None:
    bench = lisao(critic_trunk="shared", critic_updates=1)
    assert bench.learner.value_learner.optimizer is None
    assert len(list(bench.learner.critic.parameters())) == 2
    names = {id(p) for p in bench.learner._parameters}
    assert {id(p) for p in bench.learner.critic.parameters()} <= names
    before = bench.learner.critic.head.weight.clone()
    metrics = bench.step()
    assert "lr_critic" not in metrics
    assert np.isfinite(metrics["loss_value"])
    assert not torch.equal(before, bench.learner.critic.head.weight)
    with pytest.raises(RuntimeError, match="shared trunk"):
        bench.learner.value_learner.step([], [])


def test_a_shared_trunk_sees_the_values_that_a_pass_of_its_own_gives() -> None:
    bench = lisao(critic_trunk="shared", critic_updates=1, vf_coef=1.0)
    torch.nn.init.normal_(bench.learner.critic.head.weight)
    batch = bench.credit(bench.play())
    for credit in batch.credit:
        credit.advantages = [np.zeros_like(a) for a in credit.advantages]
    shared = bench.gradients(batch)
    bench.setup.lm.split_head = False
    assert_close(shared, bench.gradients(batch))


def test_turn_level_credit_trains_the_critic_at_turn_starts_only() -> None:
    bench = lisao(credit_level="turn")
    batch = bench.credit(bench.play())
    asked = sum(int(np.isfinite(t).sum()) for c in batch.credit for t in c.targets)
    assert asked == sum(len(item.turns) for item in batch.trajectories)
    gradients = bench.gradients(batch)
    for credit in batch.credit:  # elsewhere no number reaches the loss
        assert all(np.isfinite(t[0]) and np.isnan(t[1:]).all() for t in credit.targets)
    assert all(torch.isfinite(value).all() for value in gradients.values())
    assert np.isfinite(bench.metrics["loss_value"])


def test_a_value_that_has_moved_far_enough_is_clipped() -> None:
    bench = lisao(value_clip=0.1)
    torch.nn.init.normal_(bench.learner.critic.head.weight)
    batch = bench.credit(bench.play())
    rows = pack(batch.trajectories, batch.credit)
    value_learner = bench.learner.value_learner
    now, _ = value_learner.row_values(rows)
    for row, value in zip(rows, now, strict=True):
        row.targets[row.action_mask] = value[row.action_mask] + 1.0
    chosen = list(range(len(rows)))
    # From where it was, it has come 1.0 towards its target: enough for one update.
    _, norm = value_learner.step(rows, chosen, [value - 1.0 for value in now])
    assert norm == 0
    _, norm = value_learner.step(rows, chosen, [value - 0.05 for value in now])
    assert norm > 0
    assert np.isfinite(bench.step()["loss_value"])


# State ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_state_restores_everything(shared: bool) -> None:
    changes = {"critic_trunk": "shared", "critic_updates": 1} if shared else {}
    bench = Bench(Li2SAO, make_config(Li2SAOConfig, **changes))
    bench.step()
    saved = copy.deepcopy(bench.learner.state_dict())
    other = Bench(Li2SAO, make_config(Li2SAOConfig, **changes), seed=5)
    other.learner.load_state_dict(saved)
    assert_same(saved, other.learner.state_dict())
    batch = bench.credit(bench.play())
    bench.learner.update(batch, 1)
    other.learner.update(batch, 1)
    assert_same(bench.learner.state_dict(), other.learner.state_dict())
