"""What every program inside the sandbox starts with: it hides itself, and reports on descriptor 3.

``PAYLOAD`` is set by the one who sends the program.
"""

import contextlib
import ctypes
import json
import os
import select
import subprocess
import sys
import time
from typing import Any

#: What the judge sends.
PAYLOAD: Any = globals().get("PAYLOAD")

_REPORT_FD = 3
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36


def hide() -> None:
    """Keep other processes of the same user out of this one's memory and descriptors."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt() -> None:
    """Become the parent of every process below whose own parent ends, however it was hidden."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_all() -> None:
    """Kill every process below this one; :func:`adopt` comes first."""
    for _ in range(200):
        parents = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    parents[int(name)] = int(parent)
        below, found = {os.getpid()}, {os.getpid()}
        while found:
            found = {pid for pid, parent in parents.items() if parent in below} - below
            below |= found
        if len(below) == 1:
            return
        for pid in below - {os.getpid()}:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        time.sleep(0.005)


def begin() -> None:
    """Tell the judge that the agent's code runs from here on: what goes wrong is its doing."""
    with contextlib.suppress(OSError):
        os.write(_REPORT_FD, b"\n")


def report(value: Any) -> None:
    """Hand the result to the judge."""
    data = json.dumps(value).encode()
    while data:
        data = data[os.write(_REPORT_FD, data) :]


class Lines:
    """A child process that is spoken with line by line, each line within a deadline."""

    def __init__(self, argv: list[str], **more: Any) -> None:
        begin()
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **more,
        )
        self.held = b""

    def ask(self, value: Any, seconds: float) -> Any:
        """Send a value and return the answer; None if there is none in time."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(value).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return None
        return self.hear(seconds)

    def hear(self, seconds: float) -> Any:
        """The next answer; None if there is none in time, or it is no JSON."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self.held:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece or len(self.held) > 1 << 20:
                return None
            self.held += piece
        line, _, self.held = self.held.partition(b"\n")
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            return None

    def end(self) -> None:
        """Kill it."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, 9)
        self.process.wait()


if __name__ == "__main__":
    hide()
    sys.dont_write_bytecode = True
