"""What a sandbox is asked for, and what it answers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any

__all__ = [
    "REPORT_FD",
    "Entry",
    "Level",
    "Limits",
    "Result",
    "SandboxError",
    "SandboxUnavailable",
    "Snapshot",
    "Status",
    "WorkspaceError",
]

#: Number of the file descriptor behind ``Result.report``.
REPORT_FD = 3


class SandboxError(RuntimeError):
    """The sandbox cannot do what it is asked for; never said of what the code inside does."""


class SandboxUnavailable(SandboxError):
    """No backend reaches the level that is asked for; the message says why, one by one."""


class WorkspaceError(ValueError):
    """A path of a workspace cannot be used; the message may be shown to the one who gave it."""


class Level(IntEnum):
    """How much keeps the code inside from the outside, measured from inside.

    Attributes:
        NONE: Limits of resources only. The code has the caller's files and network.
        PARTIAL: Isolated, but ``describe()["missing"]`` is not empty.
        FULL: Own user, process, network, IPC and mount namespaces (or a container), a private
            root, no capabilities, no new privileges, a system call filter, and limits that bind.
    """

    NONE = 0
    PARTIAL = 1
    FULL = 2


class Status(StrEnum):
    """What became of a command.

    Attributes:
        OK: It ended with exit code 0.
        ERROR: It ended with another exit code.
        TIMEOUT: Killed at a deadline; ``Result.deadline`` names which.
        MEMORY: Out of memory.
        OUTPUT: Killed because it wrote without end.
        DISK: Killed because it filled the workspace.
        KILLED: It died by a signal that the sandbox did not send.
        DIED: The sandbox itself ended, by no doing of the command that is known.
    """

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    DISK = "disk"
    KILLED = "killed"
    DIED = "died"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use.

    Attributes:
        seconds: Wall time from dispatch to the kill.
        cpu_seconds: Processor seconds of each process; None sets no limit.
        memory: Bytes of resident memory, summed over all processes (watched), and the files of a
            one-shot run besides.
        address_space: Bytes of address space of each process; None means ``memory``, 0 means no
            limit (for programs that reserve much and use little: java, node, browsers).
        processes: Processes and threads at once.
        disk: Bytes of files: of the file system of a one-shot run, or of the workspace (watched;
            also the largest single file).
        files: Files in the workspace (watched).
        open_files: File descriptors of each process.
        output: Bytes kept of each of stdout and stderr, half from the head, half from the tail.
        flood: Bytes written to stdout and stderr until the command is killed.
        report: Bytes kept of what is written to descriptor :data:`REPORT_FD`, where that is asked
            for.

    Raises:
        ValueError: If a value is out of range.
    """

    seconds: float = 10.0
    cpu_seconds: int | None = None
    memory: int = 1 << 30
    address_space: int | None = None
    processes: int = 64
    disk: int = 256 << 20
    files: int = 20_000
    open_files: int = 512
    output: int = 64 << 10
    flood: int = 64 << 20
    report: int = 1 << 20

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"seconds must be a finite number > 0, got {self.seconds!r}")
        least = {
            "memory": 16 << 20, "processes": 1, "disk": 4096, "files": 1, "open_files": 16,
            "output": 2, "flood": 2, "report": 1,
        }  # fmt: skip
        for name, smallest in least.items():
            value = getattr(self, name)
            if type(value) is not int or value < smallest:
                raise ValueError(f"{name} must be an int >= {smallest}, got {value!r}")
        for name, smallest in {"cpu_seconds": 1, "address_space": 0}.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < smallest):
                raise ValueError(f"{name} must be None or an int >= {smallest}, got {value!r}")

    def but(self, **changes: Any) -> Limits:
        """The same limits with some changed."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Result:
    """What a command did.

    Attributes:
        status: See :class:`Status`.
        exit_code: Exit code, or None if the command did not end by itself.
        signal: Number of the signal that ended it, or None.
        stdout: What it wrote, as text; of much output head and tail, with a note between.
        stderr: The same of its errors.
        stdout_bytes: Bytes that it wrote.
        stderr_bytes: The same of its errors.
        truncated: Something is left out of ``stdout`` or ``stderr``.
        deadline: Which deadline ended it: ``"command"``, ``"episode"``, ``"cpu"``, or None.
        message: One sentence on how it ended.
        report: What was written to descriptor :data:`REPORT_FD`, where that was asked for.
        seconds: Wall time, for statistics. It differs from run to run.
        restarted: The sandbox had died before, and a new one served this command.
        left_over: Processes of this command that run on in the background.
        job: Number of a background command, or None.
        running: A background command still runs.
    """

    status: Status
    exit_code: int | None = None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    truncated: bool = False
    deadline: str | None = None
    message: str = ""
    report: bytes = b""
    seconds: float = 0.0
    restarted: bool = False
    left_over: int = 0
    job: int | None = None
    running: bool = False

    @property
    def ok(self) -> bool:
        """It ended with exit code 0."""
        return self.status is Status.OK


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a workspace.

    Attributes:
        path: From the workspace's root, with ``/`` between.
        kind: ``"file"``, ``"folder"``, ``"link"`` or ``"other"``.
        size: Bytes of a file, else 0.
        mode: Permission bits.
    """

    path: str
    kind: str
    size: int
    mode: int


@dataclass(frozen=True)
class Snapshot:
    """The content of a workspace, held in memory.

    Attributes:
        files: Path to content.
        folders: Folders, empty ones included.
        executable: Paths of the files that may be executed.
        skipped: Path of what was left out (links, pipes, devices) to the reason.
    """

    files: Mapping[str, bytes]
    folders: tuple[str, ...] = ()
    executable: frozenset[str] = frozenset()
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", dict(self.files))
        object.__setattr__(self, "skipped", dict(self.skipped))

    def digest(self) -> str:
        """SHA-256 of files, folders and permissions, the same in every process."""
        state = hashlib.sha256()
        for folder in sorted(self.folders):
            state.update(b"D%d:%b" % _sized(folder.encode("utf-8", "surrogateescape")))
        for path in sorted(self.files):
            state.update(b"X" if path in self.executable else b"F")
            state.update(b"%d:%b" % _sized(path.encode("utf-8", "surrogateescape")))
            state.update(b"%d:%b" % _sized(self.files[path]))
        return state.hexdigest()


def _sized(data: bytes) -> tuple[int, bytes]:
    return len(data), data
