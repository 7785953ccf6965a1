import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest

from agentgym.info import StopReason
from agentgym.policy import FinishReason
from agentgym.run_lock import RunLocked, lock_holder
from agentgym.trajectory import EpisodeSpec, Trajectory, Turn
from trainers import run_facts
from trainers.metrics import MetricError
from trainers.rows import JsonRows, RowsError, read_rows
from trainers.run_dir import (
    RunDir,
    RunDirError,
    pick_readable,
    read_config,
    read_metrics,
    read_status,
    read_trajectories,
)


def make_trajectory(reward=1.0, member=0, *, stop=StopReason.SOLVED, text="<b>\ud800 & 'x'"):
    turn = Turn(
        context_ids=np.arange(5),
        extends=False,
        action_ids=np.arange(3),
        logprobs=np.zeros(3, np.float32),
        versions=np.array([4, 4, 5], np.int32),
        trainable=np.ones(3, bool),
        finish_reason=FinishReason.STOP,
        text=text,
        action="click[buy now]",
        reward=reward,
        observation="page 1",
        score=0.5,
    )
    return Trajectory(
        spec=EpisodeSpec("t1", "train", 7, "g", member),
        turns=[turn],
        task_id="t1",
        goal="buy a lamp",
        terminated=True,
        stop_reason=stop,
        score=reward,
        success=reward == 1.0,
        details={"parts": (1, np.float32(0.5)), "price": math.inf},
    )


class Color(StrEnum):
    RED = "red"


@dataclass
class Inner:
    lr: float = 1e-3
    color: Color = Color.RED


@dataclass
class Config:
    inner: Inner = field(default_factory=Inner)
    path: Path = Path("a/b")
    sizes: tuple[int, ...] = (1, 2)
    limit: float = math.inf
    api_key: str = "sk-123"
    base_url: str = "https://me:pw@host/v1"
    max_tokens: int = 64
    stop_token: str | None = None


class TestCreate:
    def test_config_and_status(self, tmp_path):
        command = ["python", "-m", "trainers.x", "--api-key", "sk-123", "--seed", "3"]
        with RunDir.create(tmp_path / "r", "li2sao", Config(), total_steps=5, command=command):
            assert read_status(tmp_path / "r")["state"] == "running"
        about = read_config(tmp_path / "r")
        assert about["config"] == {
            "inner": {"lr": 1e-3, "color": "red"},
            "path": "a/b",
            "sizes": [1, 2],
            "limit": "Infinity",
            "api_key": "<hidden>",
            "base_url": "https://<hidden>@host/v1",
            "max_tokens": 64,
            "stop_token": None,
        }
        assert about["command"][3:] == ["--api-key", "<hidden>", "--seed", "3"]
        assert about["software"]["packages"]["numpy"] == np.__version__
        assert "sk-123" not in (tmp_path / "r" / "config.json").read_text()
        status = read_status(tmp_path / "r")
        assert (status["state"], status["total_steps"]) == ("finished", 5)
        assert not (tmp_path / "r" / ".lock").exists()

    def test_default_place(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        paths = []
        for _ in range(2):
            with RunDir.create(None, "grpo") as run:
                paths.append(run.path)
        assert len(set(paths)) == 2
        assert all(path.parent == Path("runs") and path.name.startswith("grpo-") for path in paths)

    def test_foreign_folders_are_refused_untouched(self, tmp_path):
        (tmp_path / "thesis.tex").write_text("x")
        with pytest.raises(RunDirError, match=r"not empty \(it holds thesis.tex\)"):
            RunDir.create(tmp_path, "grpo")
        assert os.listdir(tmp_path) == ["thesis.tex"]
        with pytest.raises(RunDirError, match="is a file"):
            RunDir.create(tmp_path / "thesis.tex", "grpo")

    def test_an_existing_run_is_not_overwritten(self, tmp_path):
        RunDir.create(tmp_path / "r", "grpo").close()
        with pytest.raises(RunDirError, match=r"already holds a run \(grpo.*--resume"):
            RunDir.create(tmp_path / "r", "grpo")

    def test_bad_arguments(self, tmp_path):
        with pytest.raises(ValueError, match="name is letters"):
            RunDir.create(tmp_path / "r", "../x")
        with pytest.raises(TypeError, match=r"config\.a\[1\] is a complex"):
            RunDir.create(tmp_path / "r", "x", {"a": [0, 1j]})
        with pytest.raises(ValueError, match="keep_last"):
            RunDir.create(tmp_path / "s", "x", keep_last=0)
        assert not (tmp_path / "r").exists()
        assert lock_holder(tmp_path / "s" / ".lock") is None

    def test_opening_what_is_no_run(self, tmp_path):
        with pytest.raises(RunDirError, match=r"no config\.json"):
            RunDir.open(tmp_path)
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(RunDirError, match="not written by a run"):
            RunDir.open(tmp_path)
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(RunDirError, match="damaged"):
            RunDir.open(tmp_path)


class TestRows:
    def test_metrics_round_trip(self, tmp_path):
        with RunDir.create(tmp_path / "r", "x") as run:
            run.log_metrics(0, {"eval/test/greedy/success": 0.1, "eval/test/greedy/n": 200})
            run.log_metrics(1, {"entropy": math.nan, "ratio_max": math.inf, "phase": "group"})
            run.log_metrics(3, {"step": 3, "entropy": np.float64(0.1), "skill_raw": None})
        rows = read_metrics(tmp_path / "r")
        assert rows[0] == {"step": 0, "eval/test/greedy/success": 0.1, "eval/test/greedy/n": 200}
        assert math.isnan(rows[1].pop("entropy"))
        assert rows[1] == {"step": 1, "ratio_max": math.inf, "phase": "group"}
        assert rows[2] == {"step": 3, "entropy": 0.1}
        for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines():
            json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    def test_each_step_once_and_in_order(self, tmp_path):
        with RunDir.create(tmp_path / "r", "x") as run:
            run.log_metrics(2, {"entropy": 1.0})
            for step in (2, 1):
                with pytest.raises(ValueError, match=r"step must be >= 3"):
                    run.log_metrics(step, {"entropy": 1.0})
            with pytest.raises(MetricError, match="row of step 3"):
                run.log_metrics(3, {"step": 4})
            with pytest.raises(MetricError, match="unknown"):
                run.log_metrics(3, {"entropie": 4})
            assert run.last_step == 2
        assert len(read_metrics(tmp_path / "r")) == 1

    def test_trajectories(self, tmp_path):
        with RunDir.create(tmp_path / "r", "x") as run:
            run.log_trajectories(1, [make_trajectory(), make_trajectory(math.nan, 1)])
            run.log_trajectories(1, [make_trajectory(0.0)], source="eval/test/greedy")
        first, second, third = read_trajectories(tmp_path / "r")
        assert first["turns"] == [
            {
                "observation": "page 1",
                "text": "<b>\ud800 & 'x'",
                "action": "click[buy now]",
                "reward": 1.0,
                "score": 0.5,
                "format_ok": True,
                "action_valid": True,
                "finish_reason": "stop",
                "context_tokens": 5,
                "action_tokens": 3,
                "versions": [4, 5],
            }
        ]
        assert (first["step"], first["goal"], first["stop_reason"]) == (1, "buy a lamp", "solved")
        assert first["details"] == {"parts": [1, 0.5], "price": "Infinity"}
        assert second["reward"] is None
        assert third["source"] == "eval/test/greedy"

    @pytest.mark.parametrize(
        ("tail", "kept"),
        [
            (b'{"step":2,"entr', 1),
            (b'{"step":2,"entropy":1.0}', 2),
            (b"\x00\x00\x00\x00\n", 1),
            (b"\xff\xfe", 1),
            (b"17\n", 1),
            (b"\n", 1),
            (b"", 1),
        ],
    )
    def test_torn_last_lines_are_repaired(self, tmp_path, tail, kept):
        RunDir.create(tmp_path / "r", "x").close()
        path = tmp_path / "r" / "metrics.jsonl"
        path.write_bytes(b'{"step":1,"entropy":0.5}\n' + tail)
        assert len(read_metrics(tmp_path / "r")) == kept  # a reader does not stumble either
        with RunDir.open(tmp_path / "r") as run:
            assert run.last_step == kept
            run.log_metrics(kept + 1, {"entropy": 2.0})
        assert [row["step"] for row in read_metrics(tmp_path / "r")] == list(range(1, kept + 2))
        assert path.read_bytes().endswith(b"\n")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b'{"step":1}\ngarbage\n{"step":2}\n', "line 2: not JSON"),
            (b'{"step":1}\n[1]\n{"step":2}\n', "line 2: expected a JSON object"),
            (b'{"step":2}\n{"step":1}\n', "line 2: step 1 after step 2"),
            (b'{"step":1}\n{"x":1}\n', "line 2: a row needs a step"),
        ],
    )
    def test_other_damage_is_an_error(self, tmp_path, content, message):
        path = tmp_path / "rows.jsonl"
        path.write_bytes(content)
        with pytest.raises(RowsError, match=message):
            JsonRows(path, strict=True)
        assert path.read_bytes() == content

    def test_a_full_disk_leaves_no_half_row(self, tmp_path, monkeypatch):
        rows = JsonRows(tmp_path / "rows.jsonl", strict=True)
        rows.append({"step": 1})
        real = os.write

        def short(handle, data):
            if len(data) > 5:
                return real(handle, data[:5])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", short)
        with pytest.raises(OSError, match="No space"):
            rows.append({"step": 2, "x": 1})
        monkeypatch.undo()
        rows.append({"step": 2})
        rows.close()
        assert read_rows(tmp_path / "rows.jsonl") == [{"step": 1}, {"step": 2}]

    def test_nested_non_finite_numbers_are_refused(self, tmp_path):
        rows = JsonRows(tmp_path / "rows.jsonl", strict=False)
        with pytest.raises(ValueError, match="JSON compliant"):
            rows.append({"step": 1, "x": [math.nan]})
        rows.close()
        assert read_rows(tmp_path / "rows.jsonl") == []


class TestResume:
    def make(self, path):
        run = RunDir.create(path, "x", {"lr": 0.1, "gate": {"tau": 0.0}}, total_steps=6)
        for step in range(1, 6):
            run.log_metrics(step, {"entropy": float(step)})
            run.log_trajectories(step, [make_trajectory(), make_trajectory(0.0)])
            if step in (2, 4):
                run.save_checkpoint(step, {"step": step}, score=1.0 / step)
        return run

    def test_rows_after_the_checkpoint_are_cut(self, tmp_path):
        self.make(tmp_path / "r").close("stopped")
        said = []
        with RunDir.open(tmp_path / "r", total_steps=8) as run:
            assert run.resume(say=said.append).state == {"step": 4}
            assert run.last_step == 4
            run.log_metrics(5, {"entropy": 50.0})
            run.log_trajectories(5, [make_trajectory()])
        assert said == [
            "1 rows of metrics.jsonl after the checkpoint of step 4 were cut off; those steps run "
            "again"
        ]
        assert [(r["step"], r["entropy"]) for r in read_metrics(tmp_path / "r")] == [
            (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 50.0)
        ]  # fmt: skip
        assert [row["step"] for row in read_trajectories(tmp_path / "r")].count(5) == 1
        status = read_status(tmp_path / "r")
        assert (status["state"], status["total_steps"]) == ("finished", 8)
        assert [s["from_step"] for s in status["sessions"]] == [0, 4]

    def test_a_damaged_newest_falls_back_and_rewinds_further(self, tmp_path):
        run = self.make(tmp_path / "r")
        (run.checkpoint_dir / "step_000004" / "state.json").write_text("[]")
        run.close()
        said = []
        with RunDir.open(tmp_path / "r") as run:
            assert run.resume(say=said.append).step == 2
            assert run.last_step == 2
        assert "state.json" in said[0]
        assert "going back to step 2" in said[0]

    def test_without_a_checkpoint_the_run_starts_over(self, tmp_path):
        with RunDir.create(tmp_path / "r", "x") as run:
            run.log_metrics(0, {"entropy": 1.0})
            run.log_metrics(1, {"entropy": 1.0})
        with RunDir.open(tmp_path / "r") as run:
            with pytest.warns(UserWarning, match="2 rows .* after the start"):
                assert run.resume() is None
            run.log_metrics(0, {"entropy": 2.0})
        assert read_metrics(tmp_path / "r") == [{"step": 0, "entropy": 2.0}]

    def test_config_differences(self, tmp_path):
        with self.make(tmp_path / "r") as run:
            same = {"lr": 0.1, "gate": {"tau": 0.0}}
            assert run.config_differences(same) == {}
            other = {"lr": 0.2, "gate": {"tau": 0.0, "beta": 0.9}}
            assert run.config_differences(other) == {"gate.beta": (None, 0.9), "lr": (0.1, 0.2)}

    def test_checkpoints_are_pruned(self, tmp_path):
        with RunDir.create(tmp_path / "r", "x", keep_last=2) as run:
            for step in range(1, 7):
                run.save_checkpoint(step, {}, score=-abs(step - 3.0))
            assert [info.step for info in run.checkpoints()] == [3, 5, 6]

    def test_exceptions_are_recorded(self, tmp_path):
        with pytest.raises(KeyError), RunDir.create(tmp_path / "a", "x"):
            raise KeyError("lost")
        status = read_status(tmp_path / "a")
        assert (status["state"], status["detail"]) == ("failed", "KeyError: 'lost'")
        with pytest.raises(KeyboardInterrupt), RunDir.create(tmp_path / "b", "x"):
            raise KeyboardInterrupt
        assert read_status(tmp_path / "b")["state"] == "stopped"

    def test_a_missing_status_is_unknown(self, tmp_path):
        assert read_status(tmp_path)["state"] == "unknown"


WRITER = """
    import sys, os, time
    from trainers.run_dir import RunDir
    run = RunDir.create(sys.argv[1], "x", total_steps=10**9)
    if sys.argv[2] == "fork" and os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
    step = 0
    while True:
        step += 1
        run.log_metrics(step, {"entropy": 1.0 / step})
        if step % 5 == 0:
            run.save_checkpoint(step, {"step": step, "blob": "x" * 200_000})
            print("saved", flush=True)
"""


def start_writer(path, kind):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(path), kind],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("kind", ["alone", "fork"])
def test_a_killed_run_is_taken_over(tmp_path, kind):
    """SIGKILL in the middle of writing: the lock is free, the rows whole, the checkpoint intact."""
    path = tmp_path / "r"
    process = start_writer(path, kind)
    orphan = int(process.stdout.readline()) if kind == "fork" else None
    try:
        for _ in range(3):
            assert process.stdout.readline() == "saved\n"
        with pytest.raises(RunLocked, match=f"process {process.pid}"):
            RunDir.open(path)
        assert read_status(path)["state"] == "running"
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert read_status(path)["state"] == "killed"
        with RunDir.open(path) as run:
            checkpoint = run.resume(say=lambda _: None)
            assert checkpoint.step >= 10
            assert checkpoint.state["step"] == checkpoint.step
            assert [r["step"] for r in read_metrics(path)] == list(range(1, checkpoint.step + 1))
            run.log_metrics(checkpoint.step + 1, {"entropy": 0.0})
        assert read_status(path)["sessions"][-1]["after_killed"] is True
        assert not [n for n in os.listdir(path / "checkpoints") if not n.startswith("step_")]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        if orphan:
            os.kill(orphan, signal.SIGKILL)


def test_whatever_an_environment_tells_is_logged(tmp_path):
    """It has no JSON form, and must not end the run."""
    item = make_trajectory()
    item.details = {"board": object, "odd": Exception("x"), "key": {(1, 2): {3}}, "loss": math.nan}
    item.details["self"] = item.details
    with RunDir.create(tmp_path / "r", "grpo") as run:
        run.log_trajectories(1, [item])
    (row,) = read_trajectories(tmp_path / "r")
    assert row["details"]["odd"] == "x"
    assert row["details"]["key"] == {"(1, 2)": [3]}
    assert row["details"]["loss"] == "NaN"


def test_pick_readable():
    pool = [make_trajectory(r, m) for m, r in enumerate([0.0, 1.0, 0.5, 0.25, 0.75])]
    pool.append(make_trajectory(0.9, 9, stop=StopReason.INFRA_ERROR))
    assert [t.total_reward for t in pick_readable(pool, 3)] == [1.0, 0.5, 0.0]
    assert pick_readable(pool[::-1], 3) == pick_readable(pool, 3)
    assert [t.total_reward for t in pick_readable(pool, 1)] == [1.0]
    assert pick_readable(pool, 0) == []
    assert len(pick_readable(pool, 50)) == 6
    assert pick_readable(pool, 50)[-1].stop_reason == StopReason.INFRA_ERROR
    with pytest.raises(ValueError, match="n must be"):
        pick_readable(pool, -1)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key", "k"], ["--api-key", "<hidden>"]),
        (["--api_key=k"], ["--api_key=<hidden>"]),
        (["--env-arg", "password=k"], ["--env-arg", "password=<hidden>"]),
        (["--max-tokens", "64"], ["--max-tokens", "64"]),
        (["--hf-token", "--verbose"], ["--hf-token", "--verbose"]),
        (["https://u:p@h/x"], ["https://<hidden>@h/x"]),
    ],
)
def test_secrets_on_the_command_line(words, shown):
    assert run_facts.command_line(["python", *words]) == ["python", *shown]


def test_json_forms():
    assert run_facts.to_json({"f": time.sleep, "s": {"b", "a"}, "n": np.arange(2)}) == {
        "f": "time.sleep",
        "s": ["a", "b"],
        "n": [0, 1],
    }
