"""What a supervisor knows of a command."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from agentgym.sandbox.inside.output import Kept

__all__ = ["Ahead", "Ends", "Job"]


class Job:
    """A command."""

    def __init__(self, number: int, data: dict[str, Any], stdin: bytes) -> None:
        limits = data["limits"]
        self.number = number
        self.background: bool = data.get("background", False)
        self.began = time.monotonic()
        self.until = None if self.background else self.began + limits["seconds"]
        self.memory: int = limits["memory"]
        self.flood: int = limits["flood"]
        self.cpu_seconds: int | None = limits["cpu_seconds"]
        self.kept = (Kept(limits["output"]), Kept(limits["output"]))
        self.streams: dict[int, Kept] = {}
        self.stdin = memoryview(stdin)
        self.stdin_fd: int | None = None
        self.before: set[tuple[int, int]] = set()
        self.pid = 0
        self.wait_status: int | None = None
        self.cpu_used = 0.0
        self.reason: str | None = None
        self.others_killed = False


class Ends:
    """The ends of a command's pipes: ours to read, and the command's own, closed behind it.

    Attributes:
        fds: Number of the command's descriptor to the one here.
        read: Where its output and its errors come out.
    """

    def __init__(self, fds: dict[int, int]) -> None:
        self.fds = dict(fds)
        self.read: list[int] = []
        self._own: list[int] = []

    def __enter__(self) -> Ends:
        if 0 not in self.fds:
            self.fds[0] = os.open("/dev/null", os.O_RDONLY)
            self._own.append(self.fds[0])
        for number in (1, 2):
            ours, self.fds[number] = os.pipe()
            os.set_blocking(ours, False)
            self.read.append(ours)
            self._own.append(self.fds[number])
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._own:
            os.close(fd)


class Ahead:
    """A process that waits for its command."""

    def __init__(self, pid: int, orders: socket.socket, read: list[int]) -> None:
        self.pid, self.orders, self.read = pid, orders, read
        self.wait_status: int | None = None
