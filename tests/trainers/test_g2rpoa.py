"""Guided GRPO: exact counts, masks, plain GRPO at the limits, exact resumes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy_recital  # noqa: F401 - registers the environments
from toy_training import (
    Bench,
    actor,
    assert_same,
    make_config,
    make_trainer,
    rows,
    state,
    train,
)

from agentgym.guidance import Guidance
from agentgym.packing import collate, pack
from agentgym.trajectory import Trajectory, TrajectoryGroup
from trainers.aggregation import Reduction
from trainers.command_line import with_preset
from trainers.cursor import TaskCursor
from trainers.evaluation import rollout_metrics
from trainers.g2rpoa import G2RPOA, G2RPOAConfig
from trainers.grpo import GRPO, GRPOConfig
from trainers.losses import policy_loss
from trainers.run_dir import read_config
from trainers.setup import World

# What the two trainers have to have in common to be compared.
COMMON: dict[str, Any] = {
    "env": "ToyRecital-v0",
    "adv_eps": 1e-4,
    "aggregation": "seq_mean_token_mean",
    "max_action_tokens": 12,
}
GUIDED: dict[str, Any] = {**COMMON, "guidance_length": 5, "guided_share": 0.5}


def bench(**changes: Any) -> Bench:
    return Bench(G2RPOA, make_config(G2RPOAConfig, **(GUIDED | {"trajectories": 16} | changes)))


# Plans ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "size", "count"), [(1 / 6, 12, 2), (1 / 4, 10, 3), (1 / 4, 4, 1), (3 / 4, 4, 3)]
)
def test_every_group_has_the_same_number_of_guided_members(share, size, count) -> None:
    """The published pattern of 12 laid over groups of 10 would give 2, 2, 2, 2, 2, 0, 2."""
    config = make_config(
        G2RPOAConfig, **COMMON, guided_share=share, group_size=size, trajectories=7 * size
    )
    plan = G2RPOA(config).plan(0)
    assert plan.guidance == (Guidance(3072, 0.8),) * count + (None,) * (size - count)
    specs = TaskCursor(("a", "b"), None, 0).take(plan.tasks, plan.group_size, plan.guidance)
    by_group: dict[str, int] = {}
    for spec in specs:
        by_group[spec.group_id] = by_group.get(spec.group_id, 0) + (spec.guidance is not None)
    assert list(by_group.values()) == [count] * 7
    free = TaskCursor(("a", "b"), None, 0).take(plan.tasks, plan.group_size)
    assert [dataclasses.replace(spec, guidance=None) for spec in specs] == free


def test_played_groups_hold_that_number_and_nobody_is_given_the_answer() -> None:
    one = bench(guidance_length=99, guidance_cap=1.0)
    groups = one.play()
    for group in groups:
        assert [member.given for member in group] == [11, 11, 0, 0]  # one token is left to write
        assert all("7" not in text(member)[:11] for member in group if member.given)
    one.close()


def text(member: Trajectory) -> str:
    return member.turns[0].text


# Credit and loss --------------------------------------------------------------------------------


def with_returns(group: TrajectoryGroup, returns: list[float]) -> TrajectoryGroup:
    members = [
        dataclasses.replace(
            member, turns=[dataclasses.replace(member.turns[0], reward=value)], success=value > 0
        )
        for member, value in zip(group, returns, strict=True)
    ]
    return TrajectoryGroup(group.group_id, members)


@pytest.mark.parametrize(
    ("returns", "expected"),
    [([1, 1, 0, 0, 0, 0], [1.2907, 1.2907, *[-0.6454] * 4]), ([1] * 6, [0.0] * 6)],
)
def test_guided_and_free_members_share_one_baseline(returns, expected) -> None:
    one = bench(group_size=6, trajectories=6, guided_share=1 / 3)
    (group,) = one.play()
    assert [member.given > 0 for member in group] == [True] * 2 + [False] * 4
    batch = one.algorithm.credit([with_returns(group, returns)], None)
    found = [float(credit.advantages[0][0]) for credit in batch.credit]
    assert found == pytest.approx(expected, abs=5e-5)
    assert batch.metrics["success_guided"] == np.mean(returns[:2])
    assert batch.metrics["success_unguided"] == np.mean(returns[2:])
    assert batch.metrics["guided_frac"] == pytest.approx(1 / 3)
    assert batch.metrics["given_mean"] == 5
    one.close()


def given_and_new(new: int, given: int, advantage: float = 1.0):
    """A row of 3 prompt, ``given`` guidance and ``new`` sampled tokens, from a real rollout."""
    one = bench(guidance_length=given, guidance_cap=1.0)
    member = next(iter(one.play()[0]))
    one.close()
    turn = member.turns[0]
    ids = np.resize(turn.action_ids, new).astype(np.int32)
    context = np.concatenate([turn.context_ids[:3], turn.context_ids[-given:]])
    short = dataclasses.replace(
        turn,
        context_ids=context,
        action_ids=ids,
        logprobs=np.full(new, -1.0, np.float32),
        versions=np.zeros(new, np.int32),
        trainable=np.ones(new, bool),
    )
    played = dataclasses.replace(member, turns=[short])
    (row,) = pack([played])
    row.advantages[row.action_mask] = advantage
    return played, row


def test_guidance_is_context() -> None:
    """4 given and 3 new tokens: 3 are trained, each with weight 1/3, and gradients stop there."""
    played, row = given_and_new(3, 4)
    batch = collate([row], 0)
    mask = torch.from_numpy(batch.loss_mask)
    assert int(mask.sum()) == 3
    assert int(batch.attention.sum()) == 10  # 3 of the prompt, 4 given, 3 new
    assert played.n_actions == 3
    assert rollout_metrics([played], 0)["tokens_per_turn"] == 3
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 10, 6, generator=generator, requires_grad=True)
    logp = torch.log_softmax(logits, -1)[..., 0]
    old = torch.from_numpy(batch.logprobs)
    reduction = Reduction.over([3], "seq_mean_token_mean")
    out = policy_loss(
        logp, logp.detach(), torch.from_numpy(batch.advantages), mask,
        kind="ppo", clip_low=0.2, clip_high=0.2, reduction=reduction,
    )  # fmt: skip
    out.loss.backward()
    assert logits.grad is not None
    per_position = logits.grad.abs().sum(-1)[0]
    assert (per_position[:7] == 0).all()
    assert (per_position[7:] > 0).all()
    # d loss / d logp is -A / 3 at each new token, not -A / 7.
    assert torch.autograd.grad(
        policy_loss(
            leaf := logp.detach().requires_grad_(), logp.detach(),
            torch.from_numpy(batch.advantages), mask,
            kind="ppo", clip_low=0.2, clip_high=0.2, reduction=reduction,
        ).loss,
        leaf,
    )[0][0].tolist() == pytest.approx([0.0] * 7 + [-1 / 3] * 3)  # fmt: skip
    assert old.shape == logp.shape


def test_gradients_do_not_depend_on_how_likely_guidance_was() -> None:
    """The update equals that of rows whose guidance is written into the prompt."""
    one = bench()
    groups = one.play()
    batch = one.credit(groups)
    plain = [
        dataclasses.replace(item, turns=[dataclasses.replace(t, given=0) for t in item.turns])
        for item in batch.trajectories
    ]
    assert any(item.given for item in batch.trajectories)
    left = one.gradients(batch)
    right = one.gradients(dataclasses.replace(batch, trajectories=plain))
    assert_same(left, right)
    one.close()


def test_guidance_in_the_loss_replicates_the_published_code() -> None:
    one = bench(loss_on_guidance=True, old_logprobs="recompute", kl_coef=0.1)
    groups = one.play()
    batch = one.credit(groups)
    before = {
        id(credit): item for credit, item in zip(batch.credit, batch.trajectories, strict=True)
    }
    assert len(before) == 16
    played = [member for group in groups for member in group]
    for member, item, credit in zip(played, batch.trajectories, batch.credit, strict=True):
        (turn,) = item.turns
        (source,) = member.turns
        assert turn.action_ids.tolist() == source.response_ids.tolist()
        assert len(credit.advantages[0]) == turn.n_actions == source.given + source.n_actions
        assert len(set(credit.advantages[0].tolist())) == 1
    same, moved = pack(played), pack(batch.trajectories)
    for left, right in zip(same, moved, strict=True):
        assert left.token_ids.tolist() == right.token_ids.tolist()
    assert sum(row.loss_mask.sum() for row in moved) == sum(
        turn.given + turn.n_actions for item in played for turn in item.turns
    )
    metrics = one.learner.update(batch, 0)
    assert metrics["ratio_mean"] == pytest.approx(1.0)
    assert metrics["logp_diff_max"] < 1e-4  # over the tokens that were sampled
    assert np.isfinite(metrics["loss_policy"])
    with_it = one.gradients(batch)
    without = bench()
    groups = without.play()
    differs = without.gradients(without.credit(groups))
    assert any(not torch.equal(with_it[name], differs[name]) for name in differs)
    one.close()
    without.close()


def test_turns_of_an_oracle_count_in_no_length_and_no_penalty() -> None:
    one = bench(env="ToyOracle-v0", guidance_length=1, guidance_cap=1.0, invalid_penalty=0.5)
    groups = one.play()
    guided = [member for group in groups for member in group if member.given]
    assert len(guided) == 8
    metrics = rollout_metrics(guided, 0)
    own = [turn for member in guided for turn in member.turns if not turn.replayed]
    assert metrics["turns_mean"] == len(own) / 8
    assert metrics["tokens_per_turn"] == sum(turn.n_actions for turn in own) / len(own)
    assert metrics["invalid_action_rate"] == np.mean([not turn.action_valid for turn in own])
    assert np.isfinite(one.learner.update(one.credit(groups), 0)["loss_policy"])
    one.close()


# The controller in a run --------------------------------------------------------------------------


def test_the_length_follows_the_success_of_each_step() -> None:
    one = bench()
    lengths, rates = [], []
    for _ in range(4):
        groups = one.play()
        played = [member for group in groups for member in group]
        guided = [member.spec.guidance for member in played if member.spec.guidance]
        assert len(guided) == 8
        assert len(set(guided)) == 1  # frozen for the step
        batch = one.credit(groups)
        assert batch.metrics["guidance_length"] == guided[0].length
        lengths.append(guided[0].length)
        rates.append(np.mean([member.success for member in played]))
        one.steps += 1
    from trainers.advantages.guidance import LengthController

    slow = LengthController(one.config.schedule())
    for length, rate in zip(lengths, rates, strict=True):
        assert length == slow.length
        slow.observe(float(rate))
    one.close()


def test_the_signal_may_be_that_of_free_members() -> None:
    one = bench(guidance_signal="unguided", group_size=4, trajectories=4)
    (group,) = one.play()
    for returns, length in (([1, 1, 1, 0], 5), ([0, 0, 1, 1], 2)):  # 1/2, then 1: half of 5
        one.algorithm.credit([with_returns(group, returns)], None)
        assert one.algorithm.controller.length == length
    one.close()


def test_a_step_that_samples_more_is_observed_once() -> None:
    one = bench(dynamic_sampling=True, trajectories=4, max_resamples=3)
    groups = one.play()
    same = [with_returns(groups[0], [1, 1, 1, 1])]
    batch = one.algorithm.credit(same, None)
    assert batch.missing == 4
    assert one.algorithm.controller.state_dict()["step"] == 0
    mixed = [*same, with_returns(dataclasses.replace(groups[0]), [1, 0, 0, 0])]
    mixed[1].group_id = "other"
    for member in mixed[1]:
        member.spec = dataclasses.replace(member.spec, group_id="other")
    assert one.algorithm.credit(mixed, None).missing == 0
    assert one.algorithm.controller.state_dict()["rates"] == [[5, 8]]
    one.close()


# Plain GRPO at the limits -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "off",
    [
        {"guidance": "none"},
        {"guided_share": 0.0},
        {"guidance": "adaptive", "guidance_length": 0},
        {"guidance": "fixed", "guidance_length": 0},
        {"guidance": "linear", "guidance_length": 0},
        {"guidance_cap": 0.0},
    ],
    ids=str,
)
def test_without_guidance_it_is_grpo_bit_for_bit(off, tmp_path: Path) -> None:
    plain = train(GRPO, GRPOConfig, tmp_path / "plain", **COMMON, eval_every=1)
    guided = train(G2RPOA, G2RPOAConfig, tmp_path / "guided", **(GUIDED | off), eval_every=1)
    assert_same(actor(plain), actor(guided))
    left, right = state(plain), state(guided)
    for one in (left, right):
        del one["algorithm"]
    assert_same(left, right)
    names = ("guidance_length", "guided_frac", "given_mean", "success_guided", "success_unguided")
    thin = [{k: v for k, v in row.items() if k not in names} for row in rows(tmp_path / "guided")]
    assert thin == rows(tmp_path / "plain")


def test_with_guidance_it_is_not(tmp_path: Path) -> None:
    plain = train(GRPO, GRPOConfig, tmp_path / "plain", **COMMON)
    guided = train(G2RPOA, G2RPOAConfig, tmp_path / "guided", **GUIDED)
    with pytest.raises(AssertionError):
        assert_same(actor(plain), actor(guided))


# Whole runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"guidance_mode": "cycle", "guidance_window": 1},
        {"guidance": "linear", "guidance_steps": 5},
        {"env": "ToyOracle-v0", "guidance_length": 1, "guidance_cap": 1.0},
        {"loss_on_guidance": True, "old_logprobs": "recompute"},
    ],
    ids=str,
)
def test_six_steps_are_three_and_three_more(changes, tmp_path: Path) -> None:
    settings = {**GUIDED, "eval_every": 3, **changes}
    whole = train(G2RPOA, G2RPOAConfig, tmp_path / "whole", steps=6, **settings)
    train(G2RPOA, G2RPOAConfig, tmp_path / "parts", steps=3, **settings)
    config = make_config(G2RPOAConfig, steps=6, resume=tmp_path / "parts", **settings)
    resumed = make_trainer(G2RPOA, config, seed=1)
    assert resumed.run() == 0
    assert_same(state(whole), state(resumed))
    assert rows(tmp_path / "whole") == rows(tmp_path / "parts")
    assert rows(tmp_path / "whole")[4]["guided_frac"] == 0.5


def test_asynchronous_groups_keep_their_guided_members(tmp_path: Path) -> None:
    trainer = train(G2RPOA, G2RPOAConfig, tmp_path, steps=4, staleness=1, **GUIDED)
    assert trainer.step == 4
    for row in rows(tmp_path)[1:]:
        assert row["guided_frac"] == 0.5


def test_the_environment_stays_as_it_was_asked_for(tmp_path: Path) -> None:
    """Only guided episodes are told the reference; evaluations never are."""
    config = make_config(G2RPOAConfig, **GUIDED, run_dir=tmp_path)
    trainer = make_trainer(G2RPOA, config)
    assert "expert" not in trainer.world.env_args
    assert trainer.world.make_env().unwrapped.expert is False
    assert trainer.collector.make_expert_env().unwrapped.expert is True
    evaluating = trainer.setup.collector(trainer.policy, 1.0, evaluation=True)
    assert evaluating.make_expert_env is None
    assert trainer.run() == 0
    assert read_config(tmp_path)["config"]["guidance"] == "adaptive"


# Order of the tasks -----------------------------------------------------------------------------


def test_easy_tasks_come_first_in_each_stretch() -> None:
    ids = tuple(f"train-{number}" for number in range(12))
    rank = lambda name: int(name.rpartition("-")[2]) // 3  # noqa: E731
    plain = [spec.task_id for spec in TaskCursor(ids, None, 3).take(24, 1)]
    whole = [spec.task_id for spec in TaskCursor(ids, None, 3, rank).take(24, 1)]
    for epoch in (slice(0, 12), slice(12, 24)):
        assert whole[epoch] == sorted(plain[epoch], key=rank)  # equals keep their order
    parts = [spec.task_id for spec in TaskCursor(ids, None, 3, rank, 5).take(12, 1)]
    assert parts == [
        name for at in (0, 5, 10) for name in sorted(plain[:12][at : at + 5], key=rank)
    ]


def test_a_curriculum_needs_ranks() -> None:
    config = make_config(G2RPOAConfig, **GUIDED, task_order="easy_first", order_stretch=6)
    cursor = World.open(config).cursor(0)
    ranks = [-int(spec.task_id.rpartition("-")[2]) // 3 for spec in cursor.take(6, 1)]
    assert ranks == sorted(ranks)
    changes = {"env_arg": ("ranked=False",)}
    config = dataclasses.replace(config, **changes)
    with pytest.raises(ValueError, match="does not rank its tasks"):
        World.open(config).cursor(0)


# Refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"guided_share": 1.5}, "--guided-share is 1.5"),
        ({"guidance_length": -1}, "--guidance-length is -1"),
        ({"guidance_longest": 4}, "--guidance-longest is 4; it must be at least"),
        ({"guidance": "linear", "guidance_last": 6}, "--guidance-last is 6; it must be at most"),
        ({"guidance_factor": 1.0}, "--guidance-factor is 1.0"),
        ({"guidance": "cosine"}, "--guidance is cosine; it must be one of none, fixed"),
        ({"guided_share": 1.0, "guidance_signal": "unguided"}, "--guidance-signal is unguided"),
        ({"loss_on_guidance": True}, "--loss-on-guidance is True; it must be used with"),
        (
            {"loss_on_guidance": True, "old_logprobs": "recompute", "correction": "mask"},
            "--loss-on-guidance is True",
        ),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        make_config(G2RPOAConfig, **(GUIDED | changes)).validate()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "ToyRounds-v0"}, "ToyRounds-v0 has none: ToyRounds has no oracle"),
        ({"env_arg": ("empty=True",)}, "task 'train-0' of ToyRecital-v0 has none"),
    ],
    ids=str,
)
def test_guidance_without_a_reference_is_refused_before_anything_is_made(changes, message) -> None:
    config = make_config(G2RPOAConfig, **(GUIDED | changes))
    with pytest.raises(ValueError, match=message):
        World.open(config)
    World.open(dataclasses.replace(config, guidance="none"))
    World.open(dataclasses.replace(config, guided_share=0.0))


def test_presets() -> None:
    for preset in ("paper", "tiny"):
        config = with_preset(G2RPOAConfig, preset)
        config.validate()
        assert config.guidance == "adaptive"
    paper = with_preset(G2RPOAConfig, "paper")
    assert (paper.group_size, paper.guided, paper.guidance_length) == (10, 3, 3072)
