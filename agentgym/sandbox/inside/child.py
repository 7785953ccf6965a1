"""The last steps of a process before it runs what nobody trusts."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import linecache
import os
import resource
import shutil
import signal
import socket
import sys
import threading
import traceback
import types
from typing import Any, NoReturn, TextIO

from agentgym.sandbox.inside import kernel, wire

__all__ = ["SETUP_FAILED", "Start", "start", "start_ahead"]

#: Exit code of a process whose preparation failed; the error is on its stderr.
SETUP_FAILED = 125


#: What the code does not see; taking it apart would take longer than keeping it.
_hidden: list[Any] = []


class Start:
    """How a command begins.

    Attributes:
        argv: Program and arguments; None runs ``code``.
        code: Python text.
        args: Arguments of ``code``.
        env: The whole environment.
        cwd: Working folder.
        limits: ``address_space``, ``cpu_seconds``, ``disk``, ``open_files``, ``processes``.
        held: Bytes of address space that the interpreter has before it runs ``code``.
        path: ``sys.path`` of ``code``.
    """

    __slots__ = ("args", "argv", "code", "cwd", "env", "held", "limits", "path")

    def __init__(self, data: dict[str, Any], *, held: int, path: list[str]) -> None:
        self.argv: list[str] | None = data.get("argv")
        self.code: str = data.get("code", "")
        self.args: list[str] = data.get("args", [])
        self.env: dict[str, str] = data["env"]
        self.cwd: str = data["cwd"]
        self.limits: dict[str, Any] = data["limits"]
        self.held, self.path = held, path


def start(begin: Start, fds: dict[int, int]) -> int:
    """Fork a process that runs the command, with the rights and refusals of this one.

    Args:
        begin: What to run.
        fds: The process's descriptor number to the one it comes from.

    Returns:
        The process id.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        _leave_parent(fds)
        _prepare(begin)
    except BaseException as error:
        _fail(error, fds)
    return _begin(begin)


def start_ahead(orders: socket.socket, fds: dict[int, int], *, held: int, path: list[str]) -> int:
    """The same before the command is known: fork, get ready, and wait for it.

    Args:
        orders: Where a message with the command will come from; its descriptors go where its
            ``fds`` say.
        fds: As for :func:`start`, for 0, 1 and 2.
        held: See :class:`Start`.
        path: See :class:`Start`.

    Returns:
        The process id.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        _leave_parent({**fds, 3: orders.detach()})
        _rehearse()
        message = wire.receive(socket.socket(fileno=3))
        begin = Start(message.data, held=held, path=path)
        given = dict(zip(message.data["fds"], message.fds, strict=True))
        _place({0: 0, 1: 1, 2: 2, **given})
        _prepare(begin)
    except wire.Closed:
        os._exit(SETUP_FAILED)
    except BaseException as error:
        _fail(error, fds)
    return _begin(begin)


def _fail(error: BaseException, fds: dict[int, int]) -> NoReturn:
    said = f"the sandbox could not start it: {error}\n".encode()
    for fd in (fds.get(2, 2), 2):  # in its place already, or not yet
        try:
            os.write(fd, said)
            break
        except OSError:
            continue
    os._exit(SETUP_FAILED)


def _begin(begin: Start) -> NoReturn:
    if begin.argv is not None:
        _execute(begin)
    _run_code(begin)


def _leave_parent(fds: dict[int, int]) -> None:
    os.setsid()
    _place(fds)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.umask(0o022)


def _rehearse() -> None:
    """Touch what running text will touch: the memory is this process's own from then on."""
    stream = _writer(1, -1)
    exec(compile("print(end='', file=stream)", "<rehearsal>", "exec"), {"stream": stream})
    _hide_modules()
    _hidden.append(stream)


def _hide_modules() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "agentgym"]:
        _hidden.append(sys.modules.pop(name))


def _prepare(begin: Start) -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        # Ignored as an interpreter has it, for text.
        signal.signal(number, signal.SIG_IGN if begin.argv is None else signal.SIG_DFL)
    os.chdir(begin.cwd)
    _set_limits(begin)
    kernel.set_dumpable(True)
    # Where the machine runs out of memory, this goes before whoever asked for it.
    with contextlib.suppress(OSError):
        _write("/proc/self/oom_score_adj", b"500")


def _write(path: str, text: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)


def _place(fds: dict[int, int]) -> None:
    """Put the descriptors where the process expects them, and close all others."""
    lowest = max([*fds, *fds.values(), 9]) + 1
    # First out of the way, so that no source is overwritten before it is used.
    moved = {}
    for target, source in fds.items():
        moved[target] = fcntl.fcntl(source, fcntl.F_DUPFD, lowest)
    for target, source in moved.items():
        os.dup2(source, target)
    previous = -1
    for target in [*sorted(fds), 1 << 20]:
        if target - previous > 1:
            os.closerange(previous + 1, target)
        previous = target


def _set_limits(begin: Start) -> None:
    limits = begin.limits
    wanted: list[tuple[int, int]] = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits["disk"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_MEMLOCK, 1 << 20),
        (resource.RLIMIT_MSGQUEUE, 1 << 16),
        # Timers and queued signals are counted for the caller outside too, who needs some.
        (resource.RLIMIT_SIGPENDING, 1024),
    ]
    if limits["cpu_seconds"] is not None:
        wanted.append((resource.RLIMIT_CPU, limits["cpu_seconds"]))
    if limits["address_space"]:
        # What the interpreter holds already is not the command's doing.
        held = begin.held if begin.argv is None else 0
        wanted.append((resource.RLIMIT_AS, limits["address_space"] + held))
    for number, value in wanted:
        hard = resource.getrlimit(number)[1]
        room = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # A second later the kernel kills what ignores the signal at the soft limit.
        top = room + 1 if number == resource.RLIMIT_CPU else room
        if hard != resource.RLIM_INFINITY:
            top = min(top, hard)
        resource.setrlimit(number, (room, top))


def _execute(begin: Start) -> NoReturn:
    assert begin.argv is not None
    try:
        os.execvpe(begin.argv[0], begin.argv, begin.env)
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        os.write(2, f"{begin.argv[0]}: {reason}\n".encode("utf-8", "replace"))
        os._exit(127 if missing else 126)


def _run_code(begin: Start) -> NoReturn:
    """Run Python text in this process as a fresh interpreter would run a file."""
    os.environ.clear()
    os.environ.update(begin.env)
    sys.argv = ["<code>", *begin.args]
    if not os.path.exists(sys.executable):
        sys.executable = shutil.which("python3") or ""  # where it lies inside
    sys.path[:] = [begin.cwd, *begin.path]
    _hide_modules()
    # They stay open to the end of the process.
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stdout = _writer(1, -1)
    sys.stderr = _writer(2, 1)
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    random = getattr(sys.modules.get("numpy"), "random", None)
    if random is not None:
        random.seed()  # Python's own generator reseeds itself after a fork; this one does not
    code = begin.code
    linecache.cache["<code>"] = (len(code), None, code.splitlines(True), "<code>")
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __file__="<code>", __spec__=None)
    sys.modules["__main__"] = main
    begin.code = ""
    gc.enable()
    status = 0
    try:
        compiled = compile(code, "<code>", "exec", dont_inherit=True)
        exec(compiled, main.__dict__)
    except SystemExit as error:
        status = _exit_status(error)
    except BaseException as error:
        status = 1
        _report(error)
    finally:
        status = _end(status)
        os._exit(status & 0xFF)


def _writer(fd: int, buffering: int) -> TextIO:
    return open(fd, "w", buffering, encoding="utf-8", errors="backslashreplace", closefd=False)


def _exit_status(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    with contextlib.suppress(BaseException):
        print(error.code, file=sys.stderr)
    return 1


def _report(error: BaseException) -> None:
    """Print the traceback from the first line of the code on."""
    trace = error.__traceback__
    trace = trace.tb_next if trace is not None else None
    try:
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exception(type(error), error, trace)
        else:
            sys.excepthook(type(error), error.with_traceback(trace), trace)
    except BaseException:
        with contextlib.suppress(BaseException):
            os.write(2, f"{type(error).__name__}\n".encode())


def _end(status: int) -> int:
    """What an interpreter does at its end: threads, exit functions, buffers."""
    for step in (getattr(threading, "_shutdown", None), atexit._run_exitfuncs):
        try:
            if step is not None:
                step()
        except SystemExit as error:
            status = _exit_status(error)
        except BaseException as error:
            _report(error)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            status = status or 120
    return status
