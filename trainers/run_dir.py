"""The run directory: everything a training run leaves behind, readable at any moment.

::

    config.json              configuration, command, versions (written once)
    status.json              state of the run and the sessions it took
    metrics.jsonl            one JSON object a learner step (names: trainers/metrics.py)
    trajectories.jsonl       sampled episodes, readable
    checkpoints/step_000100  complete checkpoints (trainers/checkpoint.py)
    findings.json            what the algorithm found out, where it has something to tell
    report.html              trainers/report

A run that is killed at any moment can be reopened: torn lines are repaired, leftovers cleared, and
rows later than the checkpoint it continues from are cut off, so that each step appears once.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

from agentgym.files import write_atomically
from agentgym.recording import plain, readable
from agentgym.run_lock import RunLock, lock_holder
from agentgym.trajectory import Trajectory
from trainers.checkpoint import (
    Checkpoint,
    CheckpointInfo,
    list_checkpoints,
    load_latest,
    prune_checkpoints,
    save_checkpoint,
    tidy_checkpoints,
)
from trainers.metrics import MetricError, MetricValue, check_metrics
from trainers.rows import JsonRows, read_rows
from trainers.run_facts import command_line, config_differences, software, to_json

__all__ = [
    "Outcome",
    "RunDir",
    "RunDirError",
    "pick_readable",
    "read_config",
    "read_findings",
    "read_metrics",
    "read_status",
    "read_trajectories",
]

Outcome = Literal["finished", "stopped", "failed"]

_FORMAT = "agentgym-run"
_LOCK = ".lock"
_NON_FINITE = ("NaN", "Infinity", "-Infinity")


class RunDirError(RuntimeError):
    """A folder cannot be used as a run directory."""


class RunDir:
    """A run directory opened for writing; use `create` or `open`.

    Attributes:
        path: The folder.
        name: What kind of run it is (the algorithm); runs of one name are compared as seeds.
        config: The configuration in its JSON form.
    """

    def __init__(self, path: Path, lock: RunLock, about: dict[str, Any], keep_last: int) -> None:
        if keep_last < 1:
            raise ValueError(f"keep_last must be >= 1, got {keep_last!r}")
        self.path = path
        self.name: str = about["name"]
        self.config: dict[str, Any] = about["config"]
        self._lock = lock
        self._keep_last = keep_last
        self._status: dict[str, Any] = read_status(path)
        self._closed = False
        self._metrics = JsonRows(path / "metrics.jsonl", strict=True)
        self._trajectories = JsonRows(path / "trajectories.jsonl", strict=False)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str] | None,
        name: str,
        config: object = None,
        *,
        total_steps: int | None = None,
        command: list[str] | None = None,
        keep_last: int = 3,
    ) -> Self:
        """Start a new run.

        Args:
            path: A folder that is missing or empty; None makes ``runs/<name>-<time>``.
            name: Kind of run, as a rule the algorithm: letters, digits, ``.``, ``_``, ``-``.
            config: Dataclass or mapping; see `trainers.run_facts.to_json`.
            total_steps: Learner steps planned.
            command: The command line; by default that of this process.
            keep_last: Number of newest checkpoints to keep (the best-scored one stays, too).

        Raises:
            RunDirError: The folder holds something already.
            RunLocked: Another process is starting a run there.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ValueError(f"a run's name is letters, digits, '.', '_' and '-', got {name!r}")
        about = {
            "format": _FORMAT,
            "name": name,
            "created": _now(),
            "command": command_line(command),
            "software": software(),
            "config": to_json({} if config is None else config),
        }
        folder = _fresh_folder(name) if path is None else Path(path)
        _refuse_foreign(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lock = RunLock(folder / _LOCK)
        try:
            _refuse_foreign(folder)  # again, now that nobody else can write into it
            write_atomically(folder / "config.json", json.dumps(about, indent=2) + "\n")
            run = cls(folder, lock, about, keep_last)
            run._status = {"total_steps": total_steps, "sessions": []}
            run._begin_session(about["command"], from_step=0)
        except BaseException:
            lock.release()
            raise
        return run

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        total_steps: int | None = None,
        command: list[str] | None = None,
        keep_last: int = 3,
    ) -> Self:
        """Open an existing run to continue it; call `resume` next.

        Args:
            path: Its folder.
            total_steps: Learner steps planned; None leaves the former number.
            command: The command line; by default that of this process.
            keep_last: As in `create`.

        Raises:
            RunDirError: There is no run in the folder.
            RunLocked: Another process works on it.
        """
        folder = Path(path)
        about = read_config(folder)
        lock = RunLock(folder / _LOCK)
        try:
            run = cls(folder, lock, about, keep_last)
            tidy_checkpoints(run.checkpoint_dir)
            if total_steps is not None:
                run._status["total_steps"] = total_steps
            run._begin_session(command_line(command), from_step=run.last_step)
        except BaseException:
            lock.release()
            raise
        return run

    @property
    def checkpoint_dir(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def last_step(self) -> int:
        """Step of the last row of ``metrics.jsonl``; 0 if there is none."""
        return self._metrics.last_step or 0

    def log_metrics(self, step: int, metrics: Mapping[str, Any]) -> dict[str, MetricValue]:
        """Append the row of a step; each step has one row, in increasing order.

        Numbers of an evaluation belong into the row of the step after which it took place; step
        0 is the state before training. Log a step before saving its checkpoint.

        Args:
            step: Learner steps done.
            metrics: Names of `trainers.metrics` to values; None is left out.

        Returns:
            The row as written, without the step.

        Raises:
            MetricError: An unknown name or a value of the wrong kind.
            ValueError: The step has a row already.
        """
        row = check_metrics(metrics)
        if row.pop("step", step) != step:
            raise MetricError(f"metric 'step' is {metrics['step']!r} in the row of step {step}")
        self._metrics.append({"step": step, **row})
        return row

    def log_trajectories(
        self, step: int, trajectories: Iterable[Trajectory], *, source: str = "train"
    ) -> None:
        """Append readable episodes.

        Args:
            step: Learner steps done when they were sampled, not below that of earlier calls.
            trajectories: The episodes; `pick_readable` chooses a few.
            source: Where they are from: ``train`` or ``eval/<split>/<mode>``.
        """
        for trajectory in trajectories:
            self._trajectories.append({"step": step, "source": source, **_readable(trajectory)})

    def save_checkpoint(self, step: int, state: Any, *, score: float | None = None) -> Path:
        """Write a checkpoint and delete those no longer kept.

        Args:
            step: Learner steps done.
            state: See `trainers.checkpoint.save_checkpoint`.
            score: Higher is better; the best-scored checkpoint is never deleted.

        Returns:
            Its folder.
        """
        self._metrics.sync()
        self._trajectories.sync()
        path = save_checkpoint(self.checkpoint_dir, step, state, score=score)
        prune_checkpoints(self.checkpoint_dir, self._keep_last)
        return path

    def save_findings(self, step: int, findings: Mapping[str, Any]) -> None:
        """Replace what the algorithm has found out, for the report; nothing is written if empty.

        Args:
            step: Learner steps done.
            findings: JSON-able values by name.
        """
        if findings:
            content = to_json({"step": step, **findings}, place="findings")
            write_atomically(self.path / "findings.json", json.dumps(content) + "\n")

    def checkpoints(self) -> list[CheckpointInfo]:
        """Complete checkpoints, oldest step first."""
        return list_checkpoints(self.checkpoint_dir)

    def resume(self, *, say: Callable[[str], None] = warnings.warn) -> Checkpoint | None:
        """Load the newest intact checkpoint and cut off everything later than it.

        Without any checkpoint the run starts over, its rows cut off.

        Args:
            say: Is told what was found damaged or cut off.

        Returns:
            The checkpoint, or None if there has never been one.

        Raises:
            DamagedCheckpoint: There are checkpoints and all are damaged.
        """
        checkpoint = load_latest(self.checkpoint_dir, say=say)
        step = -1 if checkpoint is None else checkpoint.step
        tidy_checkpoints(self.checkpoint_dir, after=step)
        lost = self._metrics.rewind(step)
        self._trajectories.rewind(step)
        if lost:
            where = "the start" if checkpoint is None else f"the checkpoint of step {step}"
            say(f"{lost} rows of metrics.jsonl after {where} were cut off; those steps run again")
        self._status["sessions"][-1]["from_step"] = max(step, 0)
        self._write_status("running")
        return checkpoint

    def config_differences(self, config: object) -> dict[str, tuple[Any, Any]]:
        """Where a configuration differs from the run's: dotted place to (run's, given)."""
        return config_differences(self.config, config)

    def close(self, outcome: Outcome = "finished", detail: str = "") -> None:
        """End the session and give the folder back. Closing twice does nothing.

        Args:
            outcome: ``stopped`` is an orderly end before the last step (Ctrl-C).
            detail: Shown in the report, for instance the error.
        """
        if outcome not in get_args(Outcome):
            raise ValueError(f"outcome must be one of {get_args(Outcome)}, got {outcome!r}")
        if self._closed:
            return
        self._closed = True
        try:
            self._metrics.sync()
            self._write_status(outcome, detail)
        finally:
            self._metrics.close()
            self._trajectories.close()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        elif isinstance(error, KeyboardInterrupt):
            self.close("stopped", "interrupted from the keyboard")
        else:
            self.close("failed", f"{type(error).__name__}: {error}"[:2000])

    def _begin_session(self, command: list[str], *, from_step: int) -> None:
        session = {"started": _now(), "from_step": from_step, "command": command}
        if self._lock.taken_over is not None:
            session["after_killed"] = True
        self._status.setdefault("sessions", []).append(session)
        self._write_status("running")

    def _write_status(self, state: str, detail: str = "") -> None:
        now = _now()
        self._status.update(state=state, step=self.last_step, detail=detail, updated=now)
        if state != "running":
            self._status["sessions"][-1]["ended"] = now
        write_atomically(self.path / "status.json", json.dumps(self._status, indent=2) + "\n")


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Content of a run's ``config.json``: format, name, created, command, software, config.

    Raises:
        RunDirError: There is no run in the folder, or the file is damaged.
    """
    file = Path(path) / "config.json"
    try:
        about = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise RunDirError(f"{path} is not a run directory: it has no config.json") from None
    except ValueError as error:
        raise RunDirError(f"{file} is damaged: {error}") from None
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise RunDirError(f"{file} was not written by a run of this project")
    if not isinstance(about.get("name"), str) or not isinstance(about.get("config"), dict):
        raise RunDirError(f"{file} is damaged: name or config is missing")
    return about


def read_status(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Content of a run's ``status.json``, with ``state`` as it is in truth.

    ``state`` is ``finished``, ``stopped``, ``failed``, ``running``, or ``killed`` where the file
    says running but no process holds the run. A missing or damaged file gives ``unknown``.
    """
    try:
        status = json.loads((Path(path) / "status.json").read_bytes())
    except (OSError, ValueError):
        return {"state": "unknown", "total_steps": None, "sessions": []}
    if status.get("state") == "running" and lock_holder(Path(path) / _LOCK) is None:
        status["state"] = "killed"
    return dict(status)


def read_findings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Content of a run's ``findings.json``: the step, and findings by name; empty without it.

    Raises:
        RunDirError: The file is damaged.
    """
    try:
        found = json.loads((Path(path) / "findings.json").read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RunDirError(f"{Path(path) / 'findings.json'} is damaged: {error}") from None
    return dict(found)


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, MetricValue]]:
    """Rows of a run's ``metrics.jsonl``, non-finite numbers included; also of a running one."""
    rows = read_rows(Path(path) / "metrics.jsonl")
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str) and value in _NON_FINITE:
                row[name] = float(value)
    return rows


def read_trajectories(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Rows of a run's ``trajectories.jsonl``; also of a running one."""
    return read_rows(Path(path) / "trajectories.jsonl")


def pick_readable(trajectories: Iterable[Trajectory], n: int = 4) -> list[Trajectory]:
    """Choose episodes worth reading: the best, the worst, and others evenly between.

    The choice depends on the episodes alone, not on their order or on chance. Episodes lost to
    faults come last.
    """
    if n < 0:
        raise ValueError(f"n must be >= 0, got {n!r}")
    ranked = sorted(
        trajectories,
        key=lambda t: (not t.usable, -t.total_reward, t.task_id, t.spec.seed, t.spec.member),
    )
    usable = [t for t in ranked if t.usable]
    lost = [t for t in ranked if not t.usable]
    if n <= 1 or len(usable) <= n:
        return (usable + lost)[:n]
    return [usable[round(i * (len(usable) - 1) / (n - 1))] for i in range(n)]


def _readable(trajectory: Trajectory) -> dict[str, Any]:
    # First plain: what an environment tells must not end a run. Then to_json hides secrets.
    return readable(trajectory) | {"details": to_json(plain(trajectory.details))}


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def _fresh_folder(name: str) -> Path:
    base = Path("runs") / f"{name}-{dt.datetime.now().strftime('%Y%m%d-%H%M%S')}"
    folder, number = base, 1
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def _refuse_foreign(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunDirError(f"{folder} is a file; a run needs a folder of its own")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name != _LOCK)
    if not names:
        return
    try:
        about = read_config(folder)
    except RunDirError:
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise RunDirError(
            f"{folder} is not empty (it holds {shown}); a run needs a folder that is missing or "
            "empty"
        ) from None
    raise RunDirError(
        f"{folder} already holds a run ({about['name']}, started {about.get('created', '?')}); "
        f"continue it with --resume {folder}, or choose another folder"
    )
