"""Runs from start to end: they resume exactly, survive kills, and end cleanly when asked to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toy_training import (
    actor,
    assert_same,
    make_config,
    make_trainer,
    rows,
    state,
    train,
)

from agentgym.collector import Collector
from trainers.evaluation import evaluation_table
from trainers.grpo import GRPO, GRPOConfig
from trainers.li2sao import Li2SAO, Li2SAOConfig
from trainers.lisao import LiSAO, LiSAOConfig
from trainers.loop import Trainer
from trainers.rollouts import Interrupted
from trainers.run_dir import read_metrics, read_status, read_trajectories

ALGORITHMS = {
    "grpo": (GRPO, GRPOConfig, {}),
    "grpo with KL": (GRPO, GRPOConfig, {"kl_coef": 0.1, "minibatches": 2}),
    "lisao": (LiSAO, LiSAOConfig, {}),
    "li2sao in phase A": (Li2SAO, Li2SAOConfig, {}),
    # The switch lies before, at, and behind the checkpoint of step 3.
    "li2sao switching at 2": (Li2SAO, Li2SAOConfig, {"gate_max_steps": 2}),
    "li2sao switching at 3": (Li2SAO, Li2SAOConfig, {"gate_max_steps": 3}),
    "li2sao switching at 4": (Li2SAO, Li2SAOConfig, {"gate_max_steps": 4}),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_six_steps_are_three_and_three_more(name: str, tmp_path: Path) -> None:
    algorithm, kind, changes = ALGORITHMS[name]
    whole = train(algorithm, kind, tmp_path / "whole", steps=6, eval_every=3, **changes)
    train(algorithm, kind, tmp_path / "parts", steps=3, eval_every=3, **changes)
    config = make_config(kind, steps=6, eval_every=3, resume=tmp_path / "parts", **changes)
    # Another random model: nothing of the start may be left after a resume.
    resumed = make_trainer(algorithm, config, seed=0 if config.kl_coef else 1)
    assert resumed.step == 3
    assert resumed.run() == 0
    assert_same(state(whole), state(resumed))
    assert rows(tmp_path / "whole") == rows(tmp_path / "parts")


def test_resumed_kl_needs_the_reference_it_started_from(tmp_path: Path) -> None:
    train(GRPO, GRPOConfig, tmp_path, steps=1, kl_coef=0.1)
    config = make_config(GRPOConfig, steps=2, kl_coef=0.1, resume=tmp_path)
    with pytest.raises(ValueError, match="another reference"):
        make_trainer(GRPO, config, seed=1)
    assert read_status(tmp_path)["state"] == "failed"


def test_runs_of_one_seed_are_equal_and_of_another_are_not(tmp_path: Path) -> None:
    first = train(Li2SAO, Li2SAOConfig, tmp_path / "a")
    second = train(Li2SAO, Li2SAOConfig, tmp_path / "b")
    other = train(Li2SAO, Li2SAOConfig, tmp_path / "c", seed=1)
    assert_same(state(first), state(second))
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    with pytest.raises(AssertionError):
        assert_same(actor(first), actor(other))


def test_batch_composition_changes_rounding_alone(tmp_path: Path) -> None:
    """Fewer slots: other batches, the same episodes."""
    train(LiSAO, LiSAOConfig, tmp_path / "a", steps=1, slots=8)
    train(LiSAO, LiSAOConfig, tmp_path / "b", steps=1, slots=3)
    (_, left), (_, right) = rows(tmp_path / "a"), rows(tmp_path / "b")
    for name in ("reward_mean", "turns_mean", "action_tokens", "prompt_tokens", "target_mean"):
        assert left[name] == right[name]
    for name in ("loss_policy", "grad_norm_actor", "grad_norm_critic", "entropy"):
        assert left[name] == pytest.approx(right[name], rel=1e-5)


# Interrupts -------------------------------------------------------------------------------------


def interrupt_after(trainer: Trainer, monkeypatch: pytest.MonkeyPatch, episodes: int) -> None:
    """Ask the run to stop once so many episodes have ended."""
    played = 0
    original = Collector.run_episode

    async def run_episode(self, spec):
        nonlocal played
        trajectory = await original(self, spec)
        played += 1
        if played == episodes:
            trainer._stop.set()
        return trajectory

    monkeypatch.setattr(Collector, "run_episode", run_episode)


@pytest.mark.parametrize(
    ("episodes", "step"),
    # 4 episodes of evaluation, 8 a step, 4 of the evaluation after step 2, 8, 8.
    [(2, 0), (4, 0), (9, 0), (12, 0), (17, 1), (22, 2), (27, 2), (33, 3), (41, 4)],
)
def test_interrupted_anywhere_a_run_goes_on_exactly(
    episodes: int, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"steps": 4, "eval_every": 2, "checkpoint_every": 100, "gate_max_steps": 2}
    whole = train(Li2SAO, Li2SAOConfig, tmp_path / "whole", **changes)
    config = make_config(Li2SAOConfig, run_dir=tmp_path / "parts", **changes)
    trainer = make_trainer(Li2SAO, config)
    with monkeypatch.context() as patch:
        interrupt_after(trainer, patch, episodes)
        assert trainer.run() == 130
    assert trainer.step == step
    status = read_status(tmp_path / "parts")
    assert (status["state"], status["detail"]) == ("stopped", f"by the user after step {step}")
    resumed = make_trainer(Li2SAO, replace(config, run_dir=None, resume=tmp_path / "parts"))
    assert resumed.step == step
    assert resumed.run() == 0
    assert_same(state(whole), state(resumed))
    assert rows(tmp_path / "whole") == rows(tmp_path / "parts")


def test_an_interrupt_during_an_update_waits_for_the_end_of_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(GRPO, GRPOConfig, tmp_path / "whole")
    config = make_config(GRPOConfig, run_dir=tmp_path / "parts")
    trainer = make_trainer(GRPO, config)
    with monkeypatch.context() as patch:
        update = trainer.learner.update

        def interrupted(*arguments):
            trainer._stop.set()
            return update(*arguments)

        patch.setattr(trainer.learner, "update", interrupted)
        assert trainer.run() == 130
    assert trainer.step == 1
    resumed = make_trainer(GRPO, replace(config, run_dir=None, resume=tmp_path / "parts"))
    assert resumed.run() == 0
    assert_same(state(whole), state(resumed))
    assert rows(tmp_path / "whole") == rows(tmp_path / "parts")


def test_an_interrupt_between_rounds_of_dynamic_sampling_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"dynamic_sampling": True, "steps": 2, "max_resamples": 6, "trajectories": 16}
    whole = train(GRPO, GRPOConfig, tmp_path / "whole", **changes)
    played = [row["trajectories"] for row in rows(tmp_path / "whole")[1:]]
    assert played[0] > 16, "the first step must have needed a second round"
    config = make_config(GRPOConfig, run_dir=tmp_path / "parts", **changes)
    trainer = make_trainer(GRPO, config)
    with monkeypatch.context() as patch:
        interrupt_after(trainer, patch, 4 + 16 + 1)
        assert trainer.run() == 130
    assert trainer.step == 0
    resumed = make_trainer(GRPO, replace(config, run_dir=None, resume=tmp_path / "parts"))
    assert resumed.run() == 0
    assert_same(state(whole), state(resumed))


def test_a_finished_run_that_is_resumed_ends_at_once(tmp_path: Path) -> None:
    train(GRPO, GRPOConfig, tmp_path)
    before = rows(tmp_path)
    resumed = make_trainer(GRPO, make_config(GRPOConfig, resume=tmp_path))
    assert resumed.run() == 0
    assert rows(tmp_path) == before


def test_a_failing_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(GRPO, make_config(GRPOConfig, run_dir=tmp_path))
    monkeypatch.setattr(trainer.learner, "update", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    status = read_status(tmp_path)
    assert (status["state"], status["detail"]) == ("failed", "ZeroDivisionError: division by zero")
    assert (tmp_path / "report.html").is_file()


def test_a_run_whose_sampler_fails_keeps_what_it_has_learned(tmp_path: Path) -> None:
    trainer = make_trainer(Li2SAO, make_config(Li2SAOConfig, run_dir=tmp_path, steps=4))
    take, calls = trainer.source.next_groups, []

    def fail(plan, count):
        calls.append(count)
        if len(calls) == 3:
            raise RuntimeError("the engine is gone")
        return take(plan, count)

    trainer.source.next_groups = fail
    with pytest.raises(RuntimeError, match="the engine is gone"):
        trainer.run()
    resumed = make_trainer(Li2SAO, make_config(Li2SAOConfig, resume=tmp_path, steps=4))
    assert resumed.step == 2
    assert resumed.run() == 0
    whole = train(Li2SAO, Li2SAOConfig, tmp_path / "whole", steps=4)
    assert_same(state(whole), state(resumed))


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("what", ["publish", "ask", "play"])
def test_a_step_whose_weights_find_no_engine_is_kept(
    what: str, staleness: int, tmp_path: Path
) -> None:
    """The engine goes while it takes weights, is compared with the learner, or is evaluated."""
    settings = {"steps": 4, "eval_every": 3, "parity_every": 1, "staleness": staleness}
    trainer = make_trainer(Li2SAO, make_config(Li2SAOConfig, run_dir=tmp_path, **settings))
    work = getattr(trainer.source, what)

    def fail(*args):
        # Weights are published before the step counts as made.
        if trainer.step == (2 if what == "publish" else 3):
            raise RuntimeError("the engine is gone")
        return work(*args)

    setattr(trainer.source, what, fail)
    with pytest.raises(RuntimeError, match="the engine is gone"):
        trainer.run()
    assert [row["step"] for row in read_metrics(tmp_path)] == [0, 1, 2]
    resumed = make_trainer(Li2SAO, make_config(Li2SAOConfig, resume=tmp_path, **settings))
    assert resumed.step == 3
    assert_same(actor(trainer), actor(resumed))
    assert resumed.run() == 0
    found = rows(tmp_path)
    assert [row["step"] for row in found] == [0, 1, 2, 3, 4]
    assert found[3]["trajectories"] == 24
    if staleness == 0:
        whole = train(Li2SAO, Li2SAOConfig, tmp_path / "whole", **settings)
        assert_same(state(whole), state(resumed))
        lost = {"parity_max", "parity_mean"}  # of the engine that is gone, with the row of its step
        for one, other in zip(found, rows(tmp_path / "whole"), strict=True):
            assert {k: v for k, v in one.items() if k not in lost} == {
                k: v for k, v in other.items() if k not in lost
            }


def test_the_checkpoint_with_the_best_evaluation_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(
        GRPOConfig,
        run_dir=tmp_path,
        steps=4,
        eval_every=1,
        checkpoint_every=1,
        keep_checkpoints=1,
    )
    trainer = make_trainer(GRPO, config)
    scores = iter([0.1, 0.2, 0.9, 0.3, 0.4])
    monkeypatch.setattr(trainer, "_evaluate", lambda: {"eval/test/sampled/success": next(scores)})
    assert trainer.run() == 0
    assert [info.step for info in trainer.run_dir.checkpoints()] == [2, 4]


def test_a_run_in_which_nothing_can_be_played_ends_with_the_reason(tmp_path: Path) -> None:
    config = make_config(GRPOConfig, run_dir=tmp_path, prompt_mode="conversation")
    trainer = make_trainer(GRPO, config)

    def broken(self, observation, info):
        raise KeyError("goal of the day")

    trainer.setup.renderer.prompt.first = broken.__get__(trainer.setup.renderer.prompt)
    with pytest.raises(RuntimeError, match=r"every one of 8 episodes was lost.*goal of the day"):
        trainer.run()


def test_single_faults_do_not_end_a_run(tmp_path: Path) -> None:
    train(Li2SAO, Li2SAOConfig, tmp_path, env_arg=("fault=2",), slots=1, steps=3)
    lost = [row["dropped_infra"] for row in rows(tmp_path)[1:]]
    assert sum(lost) > 0
    assert all(row["batch_trajectories"] + gone == 8 for row, gone in zip(
        rows(tmp_path)[1:], lost, strict=True
    ))  # fmt: skip


# What a run leaves ------------------------------------------------------------------------------


def test_rows_hold_what_a_person_asks_for(tmp_path: Path) -> None:
    train(Li2SAO, Li2SAOConfig, tmp_path, gate_max_steps=1, steps=3, kl_coef=0.01)
    found = read_metrics(tmp_path)
    assert [row["step"] for row in found] == [0, 1, 2, 3]
    assert found[0]["eval/test/rule/success"] == 0.5
    assert found[0]["eval/test/sampled/n"] == 2
    assert "hits" in {name.rpartition("/")[2] for name in found[0]}
    wanted = {
        *("phase", "forced", "explained_variance", "explained_variance_mse"),
        *("loss_value", "loss_policy", "loss_kl", "kl_k3", "value_mean", "target_mean"),
        *("adv_rms", "adv_mean", "dis_rejected_low", "dis_rejected_high", "ratio_mean"),
        *("ratio_max", "staleness_max", "staleness/0", "truncated_frac", "entropy"),
        *("grad_norm_actor", "grad_norm_critic", "batch_action_tokens", "baseline_b"),
        *("logp_diff_max", "updates_skipped", "weight_version", "generate_s", "tokens_per_s"),
    }
    assert wanted | {"skill_raw", "skill_ema", "frac_zero_variance"} <= set(found[1])
    assert wanted | {"switch_step"} <= set(found[3])
    assert [row["phase"] for row in found[1:]] == ["group", "single", "single"]
    assert all(row["logp_diff_max"] < 1e-4 for row in found[1:]), "learner and sampler disagree"
    sources = {row["source"] for row in read_trajectories(tmp_path)}
    assert sources == {"train", "eval/test/sampled", "eval/test/greedy"}
    assert next(set(line) for line in evaluation_table(found)) >= {"split", "mode"}


def test_kl_in_the_reward_is_trained_on_but_not_reported(tmp_path: Path) -> None:
    plain = train(LiSAO, LiSAOConfig, tmp_path / "plain", learning_rate=0.05)
    changes = {"kl_coef": 5.0, "kl_in": "reward", "kl_kind": "k1", "learning_rate": 0.05}
    shaped = train(LiSAO, LiSAOConfig, tmp_path / "shaped", **changes)
    left, right = rows(tmp_path / "plain"), rows(tmp_path / "shaped")
    # In the first step policy and reference are one, so nothing differs yet.
    assert right[1]["kl_k1"] == pytest.approx(0, abs=1e-6)
    assert left[2]["reward_mean"] == right[2]["reward_mean"]
    assert abs(right[2]["kl_k1"]) > 1e-4
    assert left[2]["target_mean"] != right[2]["target_mean"]
    with pytest.raises(AssertionError):
        assert_same(actor(plain), actor(shaped))
    logged = {
        turn["reward"] for row in read_trajectories(tmp_path / "shaped") for turn in row["turns"]
    }
    assert logged <= {0.0, 0.5}


def test_evaluations_do_not_touch_training(tmp_path: Path) -> None:
    often = train(LiSAO, LiSAOConfig, tmp_path / "often", steps=3, eval_every=1)
    seldom = train(LiSAO, LiSAOConfig, tmp_path / "seldom", steps=3)
    assert_same(state(often), state(seldom))


def test_further_splits_are_evaluated_before_and_after(tmp_path: Path) -> None:
    train(LiSAO, LiSAOConfig, tmp_path, steps=2, eval_every=1, eval_also=("validation",))
    shown = [
        {name.split("/")[1] for name in row if name.startswith("eval/")} for row in rows(tmp_path)
    ]
    assert shown == [{"test", "validation"}, {"test"}, {"test", "validation"}]
    with pytest.raises(ValueError, match="unknown split 'dev'"):
        train(LiSAO, LiSAOConfig, tmp_path / "other", eval_also=("dev",))


def test_nothing_is_made_when_something_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for changes, message in (
        ({"env": "Toyy-v0"}, "unknown environment 'Toyy-v0'"),
        ({"env_arg": ("speed=3",)}, "does not suit ToyRounds-v0"),
        ({"env_arg": ("split=trian",)}, "unknown split 'trian'"),
        ({"eval_split": "tset"}, "unknown split 'tset'"),
        ({"critic": tmp_path}, "has no critic.safetensors"),
    ):
        config = make_config(GRPOConfig, run_dir=folder, **changes)
        with pytest.raises((ValueError, KeyError), match=message):
            Trainer(GRPO, config)
        assert not folder.exists()


def test_asynchronous_run_trains_and_resumes(tmp_path: Path) -> None:
    changes = {"staleness": 2, "gate_max_steps": 2}
    train(Li2SAO, Li2SAOConfig, tmp_path, steps=4, **changes)
    resumed = make_trainer(Li2SAO, make_config(Li2SAOConfig, steps=6, resume=tmp_path, **changes))
    assert resumed.cursor.replay, "what was under way is played again"
    assert resumed.run() == 0
    found = rows(tmp_path)
    assert [row["phase"] for row in found[1:]] == ["group"] * 2 + ["single"] * 4
    assert all(row["staleness_max"] <= 2 for row in found[1:])
    assert all(row["batch_trajectories"] == 8 for row in found[1:])


def test_ctrl_c_reaches_a_waiting_asynchronous_learner(tmp_path: Path) -> None:
    trainer = make_trainer(GRPO, make_config(GRPOConfig, run_dir=tmp_path, staleness=1))
    trainer.source.publish(trainer.learner.weights(), 0)
    trainer._stop.set()
    with pytest.raises(Interrupted):
        trainer.source.play(trainer.collector, trainer.eval_specs)
    assert trainer.run() == 130
