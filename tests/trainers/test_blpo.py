"""BLPO in whole runs: its limits, its memory, what it leaves behind for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import toy_rounds
from step_tables import single_steps
from toy_training import Bench, assert_same, make_config, make_trainer, rows, state, train

from agentgym.progress import GenericProgress
from agentgym.trajectory import TrajectoryGroup
from trainers.advantages.memory import MemoryMismatch
from trainers.blpo import BLPO, BLPOConfig
from trainers.blpo import main as blpo_main
from trainers.command_line import with_preset
from trainers.gigpo import GiGPO, GiGPOConfig
from trainers.gigpo import main as gigpo_main
from trainers.report.memory import memory_html
from trainers.run_dir import read_findings, read_trajectories
from trainers.setup import Setup, World

PLAIN: dict[str, Any] = {"minibatches": 2, "kl_coef": 0.0}


def bench(**changes: Any) -> Bench:
    return Bench(BLPO, make_config(BLPOConfig, **{**PLAIN, **changes}))


# Limits, bit for bit -----------------------------------------------------------------------------


@pytest.mark.parametrize("off", [{"memory": False}, {"prior_progress": 0.0}], ids=str)
def test_without_memory_and_balance_it_is_gigpo(off: dict[str, Any], tmp_path: Path) -> None:
    shared = {**PLAIN, "steps": 3}
    ours = train(BLPO, BLPOConfig, tmp_path / "a", action_balance=False, **off, **shared)
    gigpo = train(GiGPO, GiGPOConfig, tmp_path / "b", **shared)
    assert_same(state(ours)["learner"], state(gigpo)["learner"])
    for left, right in zip(rows(tmp_path / "a"), rows(tmp_path / "b"), strict=True):
        for name in left.keys() & right.keys():
            assert left[name] == right[name], name


def test_with_them_it_is_not(tmp_path: Path) -> None:
    ours = train(BLPO, BLPOConfig, tmp_path / "a", **PLAIN)
    gigpo = train(GiGPO, GiGPOConfig, tmp_path / "b", **PLAIN)
    with pytest.raises(AssertionError):
        assert_same(state(ours)["learner"], state(gigpo)["learner"])
    row = rows(tmp_path / "a")[-1]
    assert row["memory_cells"] >= 2
    assert row["memory_written"] > 0
    assert row["progress_active"] > 0
    assert 0 < row["shareable_rows"] <= 1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"read_before_write": True, "effect_balance": "task"},
        {"memory_max_cells": 6, "estimator": "ours", "memory_half_life": 1.0},
        {"kl_coef": 0.01},
    ],
    ids=str,
)
def test_a_resumed_run_goes_on_exactly(changes: dict[str, Any], tmp_path: Path) -> None:
    changes = {**PLAIN, **changes}
    whole = train(BLPO, BLPOConfig, tmp_path / "whole", steps=4, **changes)
    train(BLPO, BLPOConfig, tmp_path / "parts", steps=2, **changes)
    config = make_config(BLPOConfig, steps=4, resume=tmp_path / "parts", **changes)
    resumed = make_trainer(BLPO, config, seed=0 if config.kl_coef else 1)
    assert len(resumed.algorithm.memory) > 0
    assert resumed.run() == 0
    assert_same(state(whole), state(resumed))
    assert read_findings(tmp_path / "whole") == read_findings(tmp_path / "parts")
    left = rows(tmp_path / "whole", evaluations=False)
    assert left == rows(tmp_path / "parts", evaluations=False)


def test_a_memory_of_another_half_life_is_refused(tmp_path: Path) -> None:
    train(BLPO, BLPOConfig, tmp_path, steps=1, **PLAIN)
    config = make_config(BLPOConfig, steps=2, resume=tmp_path, memory_half_life=4.0, **PLAIN)
    with pytest.raises(MemoryMismatch, match=r"half-life of 8\.0 updates, not 4\.0"):
        make_trainer(BLPO, config)


# The memory --------------------------------------------------------------------------------------


def two_tasks() -> list[TrajectoryGroup]:
    pair = [("TAKE", 10.0), ("LOOK", 0.0)]
    return [
        TrajectoryGroup(name, single_steps(name, pair, context=f"c-{name}")) for name in ("a", "b")
    ]


def test_an_update_is_credited_as_worked_out_by_hand() -> None:
    algorithm = bench(group_size=2, trajectories=4).algorithm
    lost = TrajectoryGroup("c", single_steps("c", [("TAKE", 0.0), ("LOOK", 0.0)], context="c-c"))
    batch = algorithm.credit([*two_tasks(), lost], None)
    found = [own.advantages[0][0] for own in batch.credit]
    expected = [1.276505, -1.276505, 1.276505, -1.276505, 0.293982, -0.293982]
    assert found == pytest.approx(expected, abs=2e-6)
    assert batch.metrics["progress_active"] == 1
    assert batch.metrics["local_active"] == pytest.approx(4 / 6)
    assert batch.metrics["memory_written"] == 6


def test_a_batch_that_comes_again_is_written_once() -> None:
    """Dynamic sampling credits a growing batch until it is full."""
    once = bench(group_size=2, trajectories=8, dynamic_sampling=True).algorithm
    groups = two_tasks()
    assert once.credit(groups, None).missing > 0
    assert (once.memory.step, len(once.memory)) == (0, 0)
    more = [
        TrajectoryGroup(name, single_steps(name, [("TAKE", 1.0), ("LOOK", 0.0)], context=name))
        for name in ("d", "e")
    ]
    assert once.credit([*groups, *more], None).missing == 0
    assert once.memory.step == 1
    assert once.memory.cells("z")["TAKE"].weight == 4


def test_an_update_without_rollouts_passes_all_the_same() -> None:
    algorithm = bench(mask_zero_variance=True).algorithm
    same = [TrajectoryGroup("a", single_steps("a", [("TAKE", 0.0), ("LOOK", 0.0)]))]
    batch = algorithm.credit(same, None)
    assert batch.trajectories == []
    assert batch.metrics["progress_active"] == 0
    assert algorithm.memory.step == 1


def test_progress_is_watched_in_training_and_recorded(tmp_path: Path) -> None:
    train(BLPO, BLPOConfig, tmp_path, logged_trajectories=4, **PLAIN)
    played = read_trajectories(tmp_path)
    trained = [turn for row in played if row["source"] == "train" for turn in row["turns"]]
    assert trained
    for turn in trained:
        assert turn["state"].startswith("ToyRounds-v0 parity ")
        assert turn["abstract_action"] in ("even", "odd")
        assert turn["shareable"] is True
    evaluated = [turn for row in played if row["source"] != "train" for turn in row["turns"]]
    assert evaluated
    assert not any("state" in turn for turn in evaluated)


def test_without_memory_nothing_is_watched() -> None:
    one = bench(memory=False)
    assert one.setup.world.make_progress is None
    assert not any(turn.state for group in one.play() for m in group for turn in m.turns)


# For people --------------------------------------------------------------------------------------


def test_the_report_shows_what_was_learnt(tmp_path: Path) -> None:
    train(BLPO, BLPOConfig, tmp_path, steps=3, **PLAIN)
    findings = read_findings(tmp_path)
    assert findings["step"] == 3
    assert findings["memory"]["updates"] == 3
    html = (tmp_path / "report.html").read_text("utf-8")
    assert 'id="memory"' in html
    assert 'id="credit"' in html
    for cell in findings["memory"]["strongest"]:
        assert cell["state"] in html
        assert f"{cell['mean']:+.3f}" in html
    assert findings["memory"]["strongest"], "nothing was learnt that can be shown"


def test_findings_are_hostile_text_too() -> None:
    cell = {"state": "<b>", "action": "a&b", "mean": 1.0, "weight": 2.0, "support": 2.0}
    cell |= {"deviation": 0.5, "advantage": 0.25}
    html = memory_html({"step": 1, "memory": {"strongest": [cell, {"state": "torn"}]}})
    assert "&lt;b&gt;" in html
    assert "a&amp;b" in html
    assert "torn" not in html
    for nothing in ({}, {"memory": None}, {"memory": {"strongest": []}}):
        assert memory_html(nothing) == ""


def test_damaged_findings_do_not_prevent_a_report(tmp_path: Path) -> None:
    from trainers.report import write_report

    train(BLPO, BLPOConfig, tmp_path, steps=1, **PLAIN)
    (tmp_path / "findings.json").write_text('{"step": 1, "mem', "utf-8")
    html = write_report(tmp_path).read_text("utf-8")
    assert "findings.json is damaged" in html
    assert 'id="memory"' not in html


def test_findings_are_plain_json() -> None:
    algorithm = bench(group_size=2, trajectories=4).algorithm
    algorithm.credit(two_tasks(), None)
    found = json.loads(json.dumps(algorithm.findings(), allow_nan=False))["memory"]
    assert [(cell["action"], cell["mean"]) for cell in found["strongest"]] == [
        ("TAKE", 5.0),
        ("LOOK", -5.0),
    ]
    assert bench(memory=False).algorithm.findings() == {}


# Command line ------------------------------------------------------------------------------------

WORDS = [
    "--env",
    "ToyRounds-v0",
    "--model",
    "random",
    "--action-format",
    "bare",
    "--steps",
    "2",
    "--trajectories",
    "8",
    "--group-size",
    "4",
    "--minibatches",
    "2",
    "--slots",
    "8",
    "--max-action-tokens",
    "4",
    "--max-context",
    "256",
    "--eval-episodes",
    "2",
    "--logged-trajectories",
    "1",
]


@pytest.mark.parametrize(
    ("main", "more"),
    [
        (gigpo_main, "--kl-coef 0"),
        (gigpo_main, "--hgpo formula --prompt-mode conversation"),
        (blpo_main, "--estimator ours --prompt-mode conversation"),
        (blpo_main, "--estimator paper --abstraction generic"),
    ],
)
def test_the_command_line_trains(main, more: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(
        Setup,
        "make",
        classmethod(
            lambda cls, config, world, say: cls.around(config, world, toy_rounds.build_model())
        ),
    )
    assert main([*WORDS, *more.split(), "--run-dir", str(tmp_path)]) == 0
    last = rows(tmp_path)[-1]
    assert last["step"] == 2
    assert last["rows"] > 8
    assert last["updates_skipped"] == 0
    assert main(["--resume", str(tmp_path), "--steps", "3"]) == 0
    assert [row["step"] for row in rows(tmp_path)] == [0, 1, 2, 3]
    assert main(["--env", "ToyRounds-v0", "--model", "random", "--run-dir", str(tmp_path)]) == 2


def test_an_environment_of_others_is_watched_too(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    config = with_preset(BLPOConfig, "tiny", env="guess_number:GuessNumber-v0")
    watch = World.open(config).make_progress()
    assert isinstance(watch, GenericProgress)
    watch.reset("I have a number.", {"goal": "Guess my number."})
    assert watch.state() == "GuessNumber-v0 default gains=0 new=all idle=0 phase=early"


# Settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hgpo": "formula"}, "--hgpo is formula; it must be off"),
        ({"similarity": 0.9}, "--similarity is 0.9; it must be None"),
        (
            {"memory_half_life": 0.0},
            "--memory-half-life is 0.0; it must be a finite number above 0",
        ),
        ({"kappa": -1.0}, "--kappa is -1.0"),
        ({"tau": -1.0}, "--tau is -1.0; it must be a finite number, 0 or more"),
        ({"prior_progress": float("inf")}, "--prior-progress is inf"),
        ({"memory_max_cells": 0}, "--memory-max-cells is 0; it must be at least 1"),
        ({"memory_min_weight": 1.0}, "--memory-min-weight is 1.0; it must be between 0 and 1, or"),
        ({"effect_balance": "x"}, "--effect-balance is x; it must be one of context, task, row"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        make_config(BLPOConfig, **{**PLAIN, **changes}).validate()


def test_an_estimator_sets_what_is_left_open() -> None:
    paper, ours = BLPOConfig(), BLPOConfig(estimator="ours")
    assert (paper.by_row, paper.reading().support, paper.progress_preset) == (True, "kish", "paper")
    assert (ours.by_row, ours.reading().support) == (False, "kish_capped")
    assert ours.progress_preset == "compact"
    assert paper.new_memory().min_weight == 1e-6
    assert ours.new_memory().min_weight == 1e-4
    mine = BLPOConfig(estimator="ours", support="kish", cross_steps=True, abstraction="generic")
    assert (mine.by_row, mine.reading().support, mine.progress_preset) == (True, "kish", "generic")


def test_presets() -> None:
    paper, tiny = with_preset(BLPOConfig, "paper"), with_preset(BLPOConfig, "tiny")
    assert (paper.memory_half_life, paper.kappa, paper.tau, paper.steps) == (8, 4, 0.05, 160)
    assert (paper.prior_local, paper.prior_progress, paper.read_before_write) == (1, 0.5, False)
    assert (tiny.estimator, tiny.tau, tiny.prompt_mode) == ("ours", 0.005, "conversation")
    for config in (paper, tiny):
        config.validate()
