"""Training through vLLM's engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processes import VLLM_ENVIRON

pytestmark = pytest.mark.vllm


def python(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=VLLM_ENVIRON | environ,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def test_two_steps_of_li2sao_and_a_resume(tmp_path: Path) -> None:
    from trainers.run_dir import read_metrics, read_status

    folder = tmp_path / "run"
    small = ["--trajectories", "16", "--eval-episodes", "4"]
    first = python(
        "-m", "trainers.li2sao", "--env", "AlfWorld-v0", "--policy", "vllm", "--model", "tiny",
        "--steps", "2", "--run-dir", str(folder), "--slots", "16", *small, cwd=tmp_path,
    )  # fmt: skip
    assert first.returncode == 0, first.stderr[-3000:]
    assert read_status(folder)["state"] == "finished"
    second = python("-m", "trainers.li2sao", "--resume", str(folder), "--steps", "3", cwd=tmp_path)
    assert second.returncode == 0, second.stderr[-3000:]
    rows = read_metrics(folder)
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    for row in rows[1:]:
        assert row["weight_version"] == row["step"]
        # The engine computes with the learner's new weights what the learner does.
        assert float(row["parity_max"]) < 1e-4
        assert float(row["logp_diff_max"]) < 1e-4
        assert row["batch_trajectories"] == 16
