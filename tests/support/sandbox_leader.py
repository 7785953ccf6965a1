"""Kills a sandbox from outside, as an out-of-memory killer would: its first process, by SIGKILL."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def leader(marker: str) -> int | None:
    """The first process of the sandbox in which a command line holds ``marker``; None if none."""
    outside = len(_status(os.getpid())["NSpid"])
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if marker.encode() not in (entry / "cmdline").read_bytes():
                continue
            pid = int(entry.name)
            depth = len(_status(pid)["NSpid"])
            if depth <= outside:
                continue
            while (status := _status(pid))["NSpid"][-1] != "1":
                pid = int(status["PPid"][0])
            if len(status["NSpid"]) == depth:
                return pid
        except OSError:  # it has just ended
            continue
    return None


def _status(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}


def kill_when_seen(marker: str, stop: threading.Event | None = None) -> int | None:
    """Wait for a command line with ``marker`` in a sandbox, kill the sandbox; its first process."""
    until = time.monotonic() + 120.0
    while time.monotonic() < until and not (stop is not None and stop.is_set()):
        pid = leader(marker)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            return pid
        time.sleep(0.01)
    return None


@contextmanager
def killed_meanwhile(marker: str) -> Iterator[list[int | None]]:
    """Kill the sandbox with ``marker`` as soon as it is seen, while the block runs."""
    killed: list[int | None] = []
    stop = threading.Event()
    thread = threading.Thread(target=lambda: killed.append(kill_when_seen(marker, stop)))
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()
