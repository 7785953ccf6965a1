"""Locks: one holder at a time, and none that is dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agentgym.run_lock import RunLock, RunLocked, lock_holder


def test_once_in_a_process(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / ".lock")
    with pytest.raises(RunLocked, match="by this process"):
        RunLock(tmp_path / ".lock")
    assert lock_holder(tmp_path / ".lock") == os.getpid()
    lock.release()
    lock.release()
    assert lock_holder(tmp_path / ".lock") is None
    again = RunLock(tmp_path / ".lock")
    assert again.taken_over is None
    again.release()


def test_a_recycled_process_id_does_not_hold_a_lock(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(json.dumps({"pid": os.getppid()}))
    lock = RunLock(tmp_path / ".lock")
    assert lock.taken_over == os.getppid()
    lock.release()


@pytest.mark.parametrize("content", ["", "not json", "[]", '{"pid": "x"}'])
def test_nonsense_in_the_file_is_taken_over(tmp_path: Path, content: str) -> None:
    (tmp_path / ".lock").write_text(content)
    RunLock(tmp_path / ".lock").release()
    assert not (tmp_path / ".lock").exists()


def test_a_forked_child_does_not_release(tmp_path: Path) -> None:
    code = """
        import os, sys
        from agentgym.run_lock import RunLock
        lock = RunLock(sys.argv[1])
        if os.fork() == 0:
            lock.release()
            os._exit(0)
        os.wait()
        print("ready", flush=True)
        sys.stdin.read()
    """
    path = tmp_path / ".lock"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert lock_holder(path) == process.pid
    with pytest.raises(RunLocked):
        RunLock(path)
    process.communicate("")
    assert lock_holder(path) is None
