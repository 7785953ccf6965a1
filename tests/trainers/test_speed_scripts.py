"""The scripts that measure sampling and check a GPU, at toy size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import toy_rounds
from toy_training import make_config

from benchmarks import gpu_check, rollout
from trainers.grpo import GRPOConfig
from trainers.setup import Setup, World

torch.set_num_threads(1)


def test_sampling_is_measured(tmp_path: Path) -> None:
    config = make_config(GRPOConfig, run_dir=tmp_path)
    setup = Setup.around(config, World.open(config), toy_rounds.build_model())
    figures = rollout.measure(config, 16, learn=True, setup=setup)
    assert figures.episodes == 16
    assert figures.sampled >= 16
    assert figures.read > figures.sampled
    assert 0 < figures.engine_cpu < figures.cpu
    assert 0 < figures.overhead < 1
    assert figures.learn is not None
    shares = figures.lines()[-1]
    assert all(word in shares for word in ("generate", "env", "learn", "sync"))
    parts = [float(word.rstrip("%,")) for word in shares.split() if word.rstrip(",").endswith("%")]
    assert sum(parts) == pytest.approx(100, abs=0.3)
    assert len(rollout.measure(config, 4, setup=setup).lines()) == 3


def test_the_check_passes_with_a_sound_sampler(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--sizes", "toy", "--device", "cpu", "--policies", "torch"]
    assert gpu_check.main(words) == 0
    shown = capsys.readouterr().out
    assert shown.rstrip().endswith("passed")
    for part in ("parity", "update", "throughput", "training"):
        assert part in shown


def test_the_check_finds_a_sampler_that_keeps_old_weights(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stale(lm: Any) -> Any:
        policy = gpu_check.torch_policy(lm)
        load = policy.load_weights

        async def ignore(state: Any, version: int) -> None:
            if version == 0:
                await load(state, version)

        policy.load_weights = ignore
        return policy

    monkeypatch.setitem(gpu_check.POLICIES, "torch", stale)
    words = ["--sizes", "toy", "--device", "cpu", "--policies", "torch"]
    assert gpu_check.main(words) == 1
    shown = capsys.readouterr().out
    assert "FAIL torch toy update" in shown
    assert shown.rstrip().endswith("failed: torch toy update")


def test_without_a_gpu_it_says_how_to_try(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert "--device cpu" in capsys.readouterr().err
