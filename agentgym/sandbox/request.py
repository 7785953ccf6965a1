"""A command on its way in, and its answer on the way out."""

from __future__ import annotations

import codecs
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.sandbox.types import REPORT_FD, Limits, Result, SandboxError, Status

__all__ = ["ENVIRONMENT", "Request", "as_bytes", "readable", "to_result"]

#: The whole environment of a command, but for what the caller adds.
ENVIRONMENT = {
    "HOME": "/box",
    "LANG": "C.UTF-8",
    "PATH": "/opt/python/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "PWD": "/box",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "SHELL": "/bin/sh",
    "TERM": "dumb",
    "TMPDIR": "/tmp",
    "USER": "user",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Everything that moves a terminal's cursor, and what reverses the order of what is read.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(slots=True)
class Request:
    """A command.

    Attributes:
        argv: Program and arguments, or None to run ``code``.
        code: Python text.
        args: Arguments of ``code``.
        files: Path to content, for a one-shot run.
        stdin: What it reads.
        env: Additions to the environment.
        cwd: Working folder inside.
        limits: What it may use.
        background: Do not wait for its end.
        report: Collect what it writes to :data:`REPORT_FD`.
        pass_fds: Its descriptor number to a descriptor of the caller.
        deadline: Name of the deadline that ``limits.seconds`` stands for.
        watch: Called a few times a second; a reason to kill the command, or None.
    """

    limits: Limits
    argv: list[str] | None = None
    code: str = ""
    args: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = "/box"
    background: bool = False
    report: bool = False
    pass_fds: dict[int, int] = field(default_factory=dict)
    deadline: str = "command"
    watch: Callable[[], str | None] | None = None

    @classmethod
    def make(
        cls,
        limits: Limits,
        *,
        code: str | None = None,
        argv: Sequence[str] | None = None,
        args: Sequence[str] = (),
        files: Mapping[str, bytes | str] | None = None,
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = "/box",
        background: bool = False,
        report: bool = False,
        pass_fds: Mapping[int, int] | None = None,
    ) -> Request:
        """A request whose every part has been looked at.

        Raises:
            SandboxError: If a part cannot be used; the message names it.
        """
        if (code is None) == (argv is None):
            raise SandboxError("give either code or argv")
        if isinstance(argv, str):
            raise SandboxError(f"argv must be a list of words, got the str {argv!r:.80}")
        words = None if argv is None else [_word("argv", word) for word in argv]
        if words is not None and (not words or not words[0]):
            raise SandboxError("argv must name a program")
        contents = {_relative(path): as_bytes(content) for path, content in (files or {}).items()}
        for path in contents:
            if any(other.startswith(path + "/") for other in contents):
                raise SandboxError(f"files has {path!r} as a file and as a folder")
        added = {}
        for name, value in (env or {}).items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise SandboxError(f"env must have names such as 'PORT', got {name!r}")
            added[name] = _word(f"env[{name!r}]", value)
        fds = dict(pass_fds or {})
        for number, fd in fds.items():
            lowest = REPORT_FD + 1 if report else REPORT_FD
            if type(number) is not int or not lowest <= number < REPORT_FD + 32:
                raise SandboxError(
                    f"pass_fds must map numbers from {lowest} to {REPORT_FD + 31}, got {number!r}"
                )
            if type(fd) is not int or fd < 0:
                raise SandboxError(f"pass_fds[{number}] must be an open descriptor, got {fd!r}")
        return cls(
            limits=limits,
            argv=words,
            code=_text(code or ""),
            args=[_word("args", word) for word in args],
            files=contents,
            stdin=as_bytes(stdin),
            env=added,
            cwd=cwd,
            background=background,
            report=report,
            pass_fds=fds,
        )

    def to_wire(
        self, base: Mapping[str, str], processes_besides: int
    ) -> tuple[dict[str, Any], bytes]:
        """The request as a message to a supervisor, but for descriptors.

        Args:
            base: The environment that ``env`` is added to.
            processes_besides: Processes of the same user that count against the limit.
        """
        limits = self.limits
        address_space = limits.memory if limits.address_space is None else limits.address_space
        data: dict[str, Any] = {
            "op": "run",
            "env": {**base, **self.env},
            "cwd": self.cwd,
            "background": self.background,
            "files": [[path, len(content)] for path, content in self.files.items()],
            "limits": {
                "seconds": limits.seconds,
                "cpu_seconds": limits.cpu_seconds,
                "memory": limits.memory,
                "address_space": address_space,
                "processes": limits.processes + processes_besides,
                "disk": limits.disk,
                "files": limits.files,
                "open_files": limits.open_files,
                "output": limits.output,
                "flood": limits.flood,
            },
        }
        if self.argv is not None:
            data["argv"] = self.argv
        else:
            data["code"], data["args"] = self.code, self.args
        return data, b"".join([*self.files.values(), self.stdin])


def as_bytes(content: bytes | str) -> bytes:
    """Text as UTF-8; bytes as they are.

    Raises:
        SandboxError: If it is neither.
    """
    if isinstance(content, str):
        return content.encode("utf-8", "surrogateescape" if _escaped(content) else "replace")
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    raise SandboxError(f"content must be str or bytes, got {type(content).__name__}")


def _escaped(text: str) -> bool:
    """Whether its only surrogates stand for bytes."""
    return not any(
        "\ud800" <= char <= "\udfff" and not "\udc80" <= char <= "\udcff" for char in text
    )


def _text(text: str) -> str:
    """Text without lone surrogates, which no file could hold."""
    if not isinstance(text, str):
        raise SandboxError(f"code must be a str, got {type(text).__name__}")
    return text.encode("utf-8", "replace").decode()


def _word(what: str, word: Any) -> str:
    if not isinstance(word, str):
        raise SandboxError(f"{what} must hold str, got {word!r:.80}")
    if "\0" in word:
        raise SandboxError(f"{what} must not hold the character NUL, got {word!r:.80}")
    return word.encode("utf-8", "replace").decode()


def _relative(path: str) -> str:
    parts = path.split("/") if isinstance(path, str) else []
    if not parts or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise SandboxError(f"files must have relative paths without '.' and '..', got {path!r:.80}")
    return path


def readable(head: bytes, tail: bytes, total: int) -> tuple[str, bool]:
    r"""Head and tail of a stream as text, and whether something is left out.

    Control characters other than tab, newline and carriage return are written as ``\\x1b``, so
    that nothing of it acts on a terminal.
    """
    left_out = total - len(head) - len(tail)
    if left_out <= 0:
        return _visible((head + tail).decode("utf-8", "replace")), False
    # A character that was cut in two is left out whole.
    begin = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    while tail and 0x80 <= tail[0] < 0xC0:
        tail = tail[1:]
    note = f"\n[... {left_out} bytes left out ...]\n"
    return _visible(begin) + note + _visible(tail.decode("utf-8", "replace")), True


def _visible(text: str) -> str:
    return _CONTROL.sub(
        lambda found: (
            f"\\x{ord(found[0]):02x}" if ord(found[0]) < 256 else f"\\u{ord(found[0]):04x}"
        ),
        text,
    )


def to_result(
    request: Request,
    reply: dict[str, Any],
    blob: bytes,
    *,
    report: bytes = b"",
    seconds: float = 0.0,
) -> Result:
    """The supervisor's reply as a result."""
    parts, place = [], 0
    for size in reply["sizes"]:
        parts.append(blob[place : place + size])
        place += size
    out_bytes, err_bytes = reply["totals"]
    stdout, out_cut = readable(parts[0], parts[1], out_bytes)
    stderr, err_cut = readable(parts[2], parts[3], err_bytes)
    exit_code, number = reply["exit_code"], reply["signal"]
    status, deadline, message = judge(
        request, reply["reason"], exit_code, number, reply["cpu"], stderr, reply["running"]
    )
    if reply["others_killed"]:
        message += "; every background process was killed with it"
    if reply["culled"]:
        cause = "held too much memory" if reply["culled"] == "memory" else "filled the workspace"
        message += f"; what earlier commands left running {cause} and was killed"
    return Result(
        status=status,
        exit_code=None if reply["reason"] else exit_code,
        signal=number,
        stdout=stdout,
        stderr=stderr,
        stdout_bytes=out_bytes,
        stderr_bytes=err_bytes,
        truncated=out_cut or err_cut,
        deadline=deadline,
        message=message,
        report=report,
        seconds=seconds,
        left_over=reply["left_over"],
        job=reply["job"] if request.background else None,
        running=reply["running"],
    )


def judge(
    request: Request,
    reason: str | None,
    exit_code: int | None,
    number: int | None,
    cpu: float,
    stderr: str,
    running: bool,
) -> tuple[Status, str | None, str]:
    """Status, deadline and message from how a command ended.

    Args:
        request: The command.
        reason: Why the sandbox killed it, or None.
        exit_code: Its exit code, or None.
        number: The signal that ended it, or None.
        cpu: Processor seconds that it used.
        stderr: Its errors.
        running: It has not ended.
    """
    limits = request.limits
    if running:
        return Status.OK, None, "runs in the background"
    if reason == "timeout":
        name = request.deadline
        return Status.TIMEOUT, name, f"killed after {limits.seconds:g} s ({name} deadline)"
    if reason == "memory":
        bound = f"{limits.memory >> 20} MiB"
        return Status.MEMORY, None, f"killed: its processes held more than {bound} of memory"
    if reason == "output":
        return Status.OUTPUT, None, f"killed: it wrote more than {limits.flood} bytes of output"
    if reason == "disk":
        return Status.DISK, None, f"killed: the workspace holds more than {_room(limits)}"
    if reason == "cancelled":
        return Status.KILLED, None, "killed: nobody waits for it any more"
    # A shell reports a signal of its child as 128 and the signal's number.
    number = exit_code - 128 if number is None and exit_code and exit_code > 128 else number
    spent = limits.cpu_seconds is not None and cpu >= limits.cpu_seconds
    if number == signal.SIGXCPU or (number == signal.SIGKILL and spent):
        spent_seconds = f"{limits.cpu_seconds} s" if limits.cpu_seconds else "all its time"
        return Status.TIMEOUT, "cpu", f"killed after {spent_seconds} on the processor"
    if number == signal.SIGXFSZ:
        return Status.DISK, None, f"killed: a file grew past {limits.disk} bytes"
    if exit_code == 0:
        return Status.OK, None, "ended with exit code 0"
    if exit_code is None:
        return Status.KILLED, None, f"killed by signal {number} ({_signal_name(number)})"
    if stderr.rstrip().rpartition("\n")[2].startswith("MemoryError"):
        return Status.MEMORY, None, "out of memory"
    return Status.ERROR, None, f"ended with exit code {exit_code}"


def _room(limits: Limits) -> str:
    return f"{limits.disk} bytes or {limits.files} files"


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return "unknown"
