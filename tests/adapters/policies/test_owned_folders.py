"""Temporary folders whose owner may be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from adapters.policies.owned_folders import OwnedFolder

_HOLDER = """
import sys, time
from pathlib import Path
from adapters.policies.owned_folders import OwnedFolder
folder = OwnedFolder("weights", Path(sys.argv[1]))
(folder.path / "file").write_text("much")
print(folder.path, flush=True)
if sys.argv[2] == "wait":
    time.sleep(600)
"""


def hold(base: Path, how: str) -> tuple[subprocess.Popen[str], Path]:
    """Another process that has a folder there."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(base), how], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def aged(folder: Path) -> None:
    """Make it older than one that is just being made."""
    os.utime(folder.with_name(f"{folder.name}.lock"), (0, 0))


def test_it_goes_when_it_is_removed(tmp_path: Path) -> None:
    folder = OwnedFolder("weights", tmp_path)
    (folder.path / "inner").mkdir()
    assert folder.path.name.startswith("weights-")
    for _ in range(2):
        folder.remove()
        assert list(tmp_path.iterdir()) == []


def test_it_goes_with_its_process(tmp_path: Path) -> None:
    process, folder = hold(tmp_path, "end")
    process.communicate()
    assert process.returncode == 0
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_the_next_one_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    process, folder = hold(tmp_path, "wait")
    aged(folder)
    others = [tmp_path / "weights-nobodys", tmp_path / "other-thing"]
    for other in others:
        other.mkdir()
    mine = OwnedFolder("weights", tmp_path)
    aged(mine.path)
    assert (folder / "file").read_text() == "much", "its owner lives"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert folder.exists()
    young = OwnedFolder("weights", tmp_path)
    assert not folder.exists()
    left = {path.name for path in tmp_path.iterdir()}
    kept = {mine.path.name, young.path.name}
    assert left == kept | {f"{name}.lock" for name in kept} | {other.name for other in others}
    mine.remove()
    young.remove()


def test_one_that_was_just_made_is_left_alone(tmp_path: Path) -> None:
    process, folder = hold(tmp_path, "wait")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    OwnedFolder("weights", tmp_path).remove()
    assert folder.exists()
    aged(folder)
    OwnedFolder("weights", tmp_path).remove()
    assert not folder.exists()
