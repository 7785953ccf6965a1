"""The gauge of sampler against learner, and the alarm that ends a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import toy_rounds
from toy_training import make_config, make_trainer

from agentgym.policy import Completion, FinishReason, Request
from trainers.grpo import GRPO, GRPOConfig
from trainers.loop import Trainer
from trainers.parity import ParityAlarm, ParityProbe, default_bound
from trainers.run_dir import RunDir, read_metrics, read_status


def trainer(folder: Path, **changes: object) -> Trainer:
    settings = {"parity_every": 1, "learning_rate": 0.05, "run_dir": folder, "steps": 3}
    return make_trainer(GRPO, make_config(GRPOConfig, **(settings | changes)))


def test_the_gauge_is_logged_each_step(tmp_path: Path) -> None:
    assert trainer(tmp_path / "run").run() == 0
    rows = read_metrics(tmp_path / "run")[1:]
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert 0 <= float(row["parity_mean"]) <= float(row["parity_max"]) < 1e-4


@pytest.mark.parametrize(("every", "logged"), [(0, []), (2, [2]), (None, [])])
def test_how_often_it_is_taken(every: int | None, logged: list[int], tmp_path: Path) -> None:
    assert trainer(tmp_path / "run", parity_every=every).run() == 0
    rows = read_metrics(tmp_path / "run")
    assert [row["step"] for row in rows if "parity_mean" in row] == logged


def test_it_changes_nothing(tmp_path: Path) -> None:
    with_, without = trainer(tmp_path / "a"), trainer(tmp_path / "b", parity_every=0)
    assert with_.run() == without.run() == 0
    other = without.learner.weights()
    for name, value in with_.learner.weights().items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("staleness", [0, 1])
def test_an_engine_that_keeps_old_weights_ends_the_run(staleness: int, tmp_path: Path) -> None:
    """What is taken for an update has no effect from the second on; the run stops, and is saved."""
    run = trainer(tmp_path / "run", staleness=staleness)
    engine = run.policy._engine
    put = engine.set_weights
    engine.set_weights = lambda state, version: (
        put(state, version) if version < 2 else setattr(engine, "version", version)
    )
    with pytest.raises(ParityAlarm, match=r"differ from the learner's by .* --parity-bound 0\.001"):
        run.run()
    rows = read_metrics(tmp_path / "run")
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert float(rows[1]["parity_mean"]) < 1e-4 < float(rows[2]["parity_mean"])
    assert read_status(tmp_path / "run")["state"] == "failed"
    with RunDir.open(tmp_path / "run", total_steps=3) as folder:
        assert [info.step for info in folder.checkpoints()] == [2]


def test_the_bound_is_a_setting(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run", parity_bound=1e-12)
    with pytest.raises(ParityAlarm, match="1e-12"):
        run.run()
    assert default_bound(torch.float32) == 1e-3
    assert default_bound(torch.bfloat16) == 0.2
    with pytest.raises(ValueError, match="--parity-bound is -1"):
        make_config(GRPOConfig, parity_bound=-1).validate()
    with pytest.raises(ValueError, match="--parity-every is -1"):
        make_config(GRPOConfig, parity_every=-1).validate()


class Answering:
    """A source whose engine says what it is told to."""

    def __init__(self, completion: Completion) -> None:
        self.completion = completion
        self.asked: list[Request] = []

    def ask(self, request: Request) -> Completion:
        self.asked.append(request)
        return self.completion


def test_another_version_than_the_published_one_is_an_alarm() -> None:
    probe = ParityProbe(toy_rounds.build_model(), max_context=64, bound=1e-3, temperature=1.0)
    answer = Completion(
        (5, 6), np.zeros(2, np.float32), np.array([3, 4], np.int32), FinishReason.LENGTH
    )
    source = Answering(answer)
    with pytest.raises(ParityAlarm, match=r"version 4 were published.*\[3, 4\]"):
        probe.measure(source, 4)  # type: ignore[arg-type]
    prompt = source.asked[0].token_ids
    assert len(prompt) + source.asked[0].sampling.max_tokens == 64
    with pytest.raises(ParityAlarm, match="nan"):
        probe.judge({"parity_mean": float("nan"), "parity_max": 0.0})
