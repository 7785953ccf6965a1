from __future__ import annotations

import math
import sys

import pytest
import torch

from adapters.policies.models import resolve_model
from agentgym.registry import spec
from benchmarks import trl_side_by_side, trl_webshop
from benchmarks.trl_side_by_side import AVERAGES, LOSS_BOUND, compare, speed
from benchmarks.trl_webshop import ENV, Learned, learn

torch.set_num_threads(1)
ENV_ARGS = dict(spec(ENV).tiny)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


@pytest.fixture(scope="module")
def lm():
    return resolve_model("tiny", ENV, ENV_ARGS)


def weights(lm):
    return {name: value.clone() for name, value in lm.model.state_dict().items()}


@pytest.mark.parametrize("average", AVERAGES)
def test_both_take_the_same_updates_on_one_batch(lm, average):
    before = weights(lm)
    found = compare(lm, ENV_ARGS, average, trajectories=16, updates=2)
    assert len(found.ours) == len(found.theirs) == 2
    assert found.loss_difference <= LOSS_BOUND
    assert found.equal
    first, second = found.theirs
    assert first.grad_norm > 0  # some group has members that earned differently
    assert first.clipped == 0 < second.clipped  # the second update has ratios that are not 1
    for ours, theirs in zip(found.ours, found.theirs, strict=True):
        assert ours.clipped == pytest.approx(theirs.clipped, abs=2e-3)
    assert found.weights < found.moved / 10
    assert all(torch.equal(before[name], value) for name, value in weights(lm).items())


def test_losses_that_differ_are_told_and_end_with_status_1(lm, monkeypatch, capsys):
    monkeypatch.setattr(trl_side_by_side, "AVERAGES", {"token_mean": "dr_grpo"})
    monkeypatch.setattr(trl_side_by_side, "resolve_model", lambda *_: lm)
    argv = ["trl_side_by_side", "--steps", "1", "--trajectories", "16", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", [*argv, "--updates", "1"])
    with pytest.raises(SystemExit, match="the losses differ: token_mean"):
        trl_side_by_side.main()
    assert "ratio" in capsys.readouterr().out


def test_both_play_and_learn_from_as_much(lm):
    found = speed(lm, ENV_ARGS, steps=1, trajectories=16, repeats=1)
    assert set(found) == {"trainers.grpo", "trl.GRPOTrainer"}
    for (run,) in found.values():
        assert run.trajectories == 16
        assert run.tokens >= 16
        assert 0 < run.sampling.cpu <= run.steps.cpu <= run.whole.cpu
        assert run.rate == pytest.approx(16 / run.steps.cpu)
        assert run.whole_rate <= run.rate
        assert 0 <= run.reward <= 1


def test_two_steps_of_trl_change_the_policy(lm):
    policy = lm.clone()
    before = weights(policy)
    found = learn(policy, ENV_ARGS, steps=2, trajectories=16, seed=0, evaluate=4)
    assert len(found.rewards) == len(found.losses) == 2
    assert all(math.isfinite(loss) for loss in found.losses)
    assert all(0 <= reward <= 1 for reward in found.rewards)
    assert max(found.rewards) > 0
    after = weights(policy)
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert all(bool(torch.isfinite(value).all()) for value in after.values())
    assert found.before is not None
    assert 0 <= found.before <= 1
    assert 0 <= found.after <= 1


def run_of(rewards):
    return Learned(tuple(rewards), (0.0,) * len(rewards), None, None, 1.0)


def test_what_counts_as_rising():
    up = run_of([0.1 * step for step in range(10)])
    assert up.slope == pytest.approx(0.1)
    assert up.ends == pytest.approx((0.2, 0.7))
    assert up.rising
    assert not run_of([0.5] * 10).rising
    assert not run_of([0.9 - 0.05 * step for step in range(10)]).rising


def test_a_reward_that_does_not_rise_ends_with_status_1(lm, monkeypatch, capsys):
    flat = {0: run_of([0.1 * step for step in range(10)]), 3: run_of([0.5] * 10)}
    monkeypatch.setattr(trl_webshop, "resolve_model", lambda *_: lm)
    monkeypatch.setattr(trl_webshop, "learn", lambda *_, seed, **__: flat[seed])
    monkeypatch.setattr(sys, "argv", ["trl_webshop", "--seeds", "0"])
    trl_webshop.main()
    monkeypatch.setattr(sys, "argv", ["trl_webshop", "--seeds", "0", "3"])
    with pytest.raises(SystemExit, match="does not rise with seed 3"):
        trl_webshop.main()
    assert "slope +0.1000" in capsys.readouterr().out


def test_too_few_steps_to_compare_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["trl_webshop", "--steps", "9"])
    with pytest.raises(SystemExit):
        trl_webshop.main()
    assert "--steps is 9; it must be at least 10" in capsys.readouterr().err
