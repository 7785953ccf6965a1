"""The processes below this one, read from ``/proc``."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterable

__all__ = [
    "Process",
    "descendants",
    "kill_all",
    "proportional_memory",
    "resident_memory",
    "tree",
    "unlinked",
]


class Process:
    """A process.

    Attributes:
        pid: Its id.
        parent: The id of its parent.
        began: When it began, in ticks since the machine did; with ``pid`` it names the process.
        zombie: It has ended and waits to be reaped.
    """

    __slots__ = ("began", "parent", "pid", "zombie")

    def __init__(self, pid: int, parent: int, began: int, zombie: bool) -> None:
        self.pid, self.parent, self.began, self.zombie = pid, parent, began, zombie

    @property
    def key(self) -> tuple[int, int]:
        """What no later process has in common with it."""
        return self.pid, self.began


def _read(pid: str) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()  # the name before may hold anything
    return Process(int(pid), int(fields[1]), int(fields[19]), fields[0] in (b"Z", b"X"))


def descendants() -> dict[int, Process]:
    """Every process below this one, by its id; none where ``/proc`` is not to be had."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return {}
    found = {}
    for name in names:
        if name.isdigit() and (process := _read(name)) is not None:
            found[process.pid] = process
    return tree([os.getpid()], found)


def tree(roots: Iterable[int], processes: dict[int, Process]) -> dict[int, Process]:
    """Those of ``processes`` that are below one of ``roots``."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    below: dict[int, Process] = {}
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child.pid not in below:
                below[child.pid] = child
                waiting.append(child.pid)
    return below


def resident_memory(processes: Iterable[Process]) -> int:
    """Bytes of memory that they hold, shared memory too; pages that are shared count for each."""
    total = 0
    for process in processes:
        try:
            with open(f"/proc/{process.pid}/status", "rb") as file:
                text = file.read()
        except OSError:
            continue
        for name in (b"\nRssAnon:", b"\nRssShmem:"):
            at = text.find(name)
            if at >= 0:
                total += int(text[at + len(name) : at + 60].split(None, 1)[0]) * 1024
    return total


def proportional_memory(processes: Iterable[Process]) -> int:
    """Bytes of memory that they hold, shared pages divided among those who share them."""
    total = 0
    for process in processes:
        try:
            with open(f"/proc/{process.pid}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")):
                        total += int(line.split()[1]) * 1024
        except PermissionError:  # it hides itself, and so pays in full
            total += resident_memory([process])
        except OSError:
            continue
    return total


def unlinked(processes: Iterable[Process], device: int) -> int:
    """Bytes of files that have no name any more and that some process holds open.

    Args:
        processes: Where to look; those that hide their descriptors are left out.
        device: Of the file system that counts.
    """
    sizes: dict[int, int] = {}
    for process in processes:
        folder = f"/proc/{process.pid}/fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                info = os.stat(f"{folder}/{name}")
            except OSError:
                continue
            if info.st_nlink == 0 and info.st_dev == device and stat.S_ISREG(info.st_mode):
                sizes[info.st_ino] = info.st_blocks * 512
    return sum(sizes.values())


def kill_all() -> None:
    """Kill every process that this one may reach. For process 1 of a namespace only."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return
