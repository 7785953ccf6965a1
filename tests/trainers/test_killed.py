"""Processes that are killed or interrupted in the middle of a step, and go on from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import toy_rounds
from processes import SUPPORT
from toy_training import assert_same, rows

from trainers.checkpoint import load_latest
from trainers.grpo import main as grpo_main
from trainers.li2sao import main
from trainers.run_dir import read_status
from trainers.setup import Setup

ARGUMENTS = [
    *("--env", "toy_rounds:ToyRounds-v0", "--model", "random", "--action-format", "bare"),
    *("--trajectories", "8", "--slots", "8", "--group-size", "4", "--max-action-tokens", "4"),
    *("--max-context", "128", "--learning-rate", "1e-3", "--critic-learning-rate", "1e-3"),
    *("--freeze-attention", "False", "--eval-episodes", "2", "--gate-max-steps", "2"),
    *("--checkpoint-every", "2"),
]
MAIN = """
import os, signal, sys
import toy_rounds
from trainers.learner import Learner
from trainers.li2sao import main
from trainers.setup import Setup

Setup.make = classmethod(
    lambda cls, config, world, say: cls.around(config, world, toy_rounds.build_model())
)
"""
SUICIDE = """
plain = Learner._actor_step

def die(self, *arguments):
    result = plain(self, *arguments)
    if self.algorithm._steps == {step}:  # the fifth batch is credited, half of the update is done
        os.kill(os.getpid(), signal.SIGKILL)
    return result

Learner._actor_step = die
"""


def in_process(arguments: list[str], extra: str = "") -> subprocess.Popen[str]:
    """Start the trainer in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", f"{MAIN}{extra}\nsys.exit(main({arguments!r}))"],
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )


@pytest.fixture
def toy_main(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], int]:
    """The trainer's command line in this process."""
    monkeypatch.setattr(
        Setup,
        "make",
        classmethod(
            lambda cls, config, world, say: cls.around(config, world, toy_rounds.build_model())
        ),
    )
    return main


def test_a_run_killed_in_mid_step_resumes_and_equals_one_that_lived(
    toy_main: Callable[[list[str]], int], tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    steps = [*ARGUMENTS, "--steps", "6"]
    process = in_process([*steps, "--run-dir", str(killed)], SUICIDE.format(step=5))
    said, _ = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, said
    assert read_status(killed)["state"] == "killed"
    assert [row["step"] for row in rows(killed)] == [0, 1, 2, 3, 4]
    assert toy_main(["--resume", str(killed)]) == 0
    assert toy_main([*steps, "--run-dir", str(whole)]) == 0
    assert rows(whole) == rows(killed)
    states = []
    for folder in (whole, killed):
        checkpoint = load_latest(folder / "checkpoints")
        assert checkpoint is not None
        assert checkpoint.step == 6
        for name in ("elapsed_s", "cpu_s"):
            del checkpoint.state["totals"][name]
        states.append(checkpoint.state)
    assert_same(*states)
    assert read_status(killed)["sessions"][1]["after_killed"] is True


def test_ctrl_c_ends_with_a_checkpoint_and_status_130(tmp_path: Path) -> None:
    process = in_process([*ARGUMENTS, "--steps", "100000", "--run-dir", str(tmp_path)])
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("step 3/"):
                process.send_signal(signal.SIGINT)
                break
        said = process.stdout.read()
        assert process.wait(60) == 130, said
    finally:
        process.kill()
    status = read_status(tmp_path)
    assert status["state"] == "stopped"
    step = status["step"]
    assert f"stopped after step {step}" in said
    assert "Traceback" not in said
    checkpoint = load_latest(tmp_path / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.step == step >= 3
    assert (tmp_path / "report.html").is_file()


def test_steps_alone_may_be_given_beside_resume(
    toy_main: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert toy_main([*ARGUMENTS, "--steps", "2", "--run-dir", str(tmp_path)]) == 0
    for more, message in (
        (["--learning-rate", "1"], "--learning-rate cannot be given with --resume"),
        (["--gate_tau=1"], "--gate-tau cannot be given with --resume"),
        (["--steps", "1"], "--steps is 1; it must be at least the 2"),
    ):
        with pytest.raises(SystemExit, match="2"):
            toy_main(["--resume", str(tmp_path), *more])
        assert message in capsys.readouterr().err
    assert toy_main(["--resume", str(tmp_path), "--steps", "3"]) == 0
    assert [row["step"] for row in rows(tmp_path)] == [0, 1, 2, 3]
    # The raised number stands: the plan is no longer that of config.json.
    with pytest.raises(SystemExit, match="2"):
        toy_main(["--resume", str(tmp_path), "--steps", "2"])
    assert "at least the 3" in capsys.readouterr().err


def test_another_trainer_does_not_resume_it(
    toy_main: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert toy_main([*ARGUMENTS, "--steps", "1", "--run-dir", str(tmp_path)]) == 0
    with pytest.raises(SystemExit, match="2"):
        grpo_main(["--resume", str(tmp_path)])
    assert "python -m trainers.li2sao" in capsys.readouterr().err
    assert toy_main([*ARGUMENTS, "--steps", "1", "--run-dir", str(tmp_path)]) == 2
    assert "already holds a run" in capsys.readouterr().err
