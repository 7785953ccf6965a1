"""Forks sandboxes from an interpreter that is already there.

Started by exec, so that a caller with threads is never forked, and with one thread of its own.
The *factory* stands outside and makes sandboxes on request; a *warm* sandbox holds modules
that were imported once, and forks one-shot sandboxes within itself. Requests of the code's owner
never pass through either: they go straight to the process that is to run them.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from agentgym.sandbox.inside import jail, kernel, wire
from agentgym.sandbox.inside.seccomp import Filter
from agentgym.sandbox.inside.supervisor import Supervisor, confine, make_filter, protect

__all__ = ["container_main", "factory_main", "supervisor_main"]


def factory_main(fd: int) -> None:
    """Make sandboxes until the caller is gone.

    Args:
        fd: The control connection. A message names a ``mode`` and carries the connection that the
            new sandbox is to serve.
    """
    control = socket.socket(fileno=fd)
    kernel.set_child_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by the kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the caller's business
    gc.freeze()
    wire.send(control, {"ready": True, "pid": os.getpid()})
    while True:
        try:
            message = wire.receive(control)
        except wire.Closed:
            return
        if os.fork() == 0:
            control.close()
            _make(message)
        message.close()


def _make(message: wire.Message) -> NoReturn:
    """In a child of the factory: make one sandbox, and become it."""
    data = message.data
    connection = socket.socket(fileno=message.fds[0])
    path, once = data["path"], data["once"]
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        if data["mode"] == "bare":
            os.chdir(data["layout"]["box"])
            kernel.set_child_subreaper()
            _announce(connection, os.getpid(), [])
            _announce(connection, None, [])
            _supervise(connection, alone=False, path=path, once=once)
        jail.leave()
        _first_process(connection)
        missing = jail.settle(data["layout"])
        os.close(0)
        os.open("/dev/null", os.O_RDONLY)
        if data["mode"] == "warm":
            _warm(connection, data, missing)
        _announce(connection, None, missing)
        confine(make_filter())
        _supervise(connection, alone=True, path=path, once=once)
    except BaseException as error:
        _fail(connection, error)


def _fail(connection: socket.socket, error: BaseException) -> NoReturn:
    _refuse(connection, error)
    os._exit(1)


def _refuse(connection: socket.socket, error: BaseException) -> None:
    with contextlib.suppress(BaseException):
        kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
        wire.send(connection, {"error": f"{kind}{error}"}, deadline=time.monotonic() + 5)
        connection.close()


def _first_process(connection: socket.socket) -> None:
    """Fork process 1 of the new namespace and go on as it; the parent hands it over and ends."""
    pid = os.fork()
    if pid == 0:
        return
    code = 1
    try:
        _announce(connection, pid, [])
        code = 0
    finally:
        # Without its handle nobody could kill it: better there is none.
        if code:
            os.kill(pid, signal.SIGKILL)
        os._exit(code)


def _announce(connection: socket.socket, pid: int | None, missing: list[str]) -> None:
    if pid is None:
        wire.send(connection, {"ready": True, "missing": missing})
        return
    handle = os.pidfd_open(pid)
    try:
        wire.send(connection, {"process": True, "missing": missing}, fds=[handle])
    finally:
        os.close(handle)


def _supervise(
    connection: socket.socket,
    *,
    alone: bool,
    path: list[str],
    once: bool,
) -> NoReturn:
    protect()
    supervisor = Supervisor(connection, alone=alone, path=path, once=once)
    if once:
        supervisor.make_ready()
    supervisor.serve()
    os._exit(0)


# A warm sandbox ---------------------------------------------------------------------------------


def _warm(connection: socket.socket, data: dict[str, Any], missing: list[str]) -> NoReturn:
    """Import what is wanted, then fork a sandbox for each connection that arrives."""
    path: list[str] = data["path"]
    gc.enable()
    before = list(sys.path)
    sys.path[:] = [*path]
    for name in data["preload"]:
        importlib.import_module(name)
    sys.path[:] = before
    kernel.drop_capabilities()
    protect()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    call_filter = make_filter()
    gc.collect()
    gc.freeze()
    gc.disable()  # collecting would touch, and so copy, every page after a fork
    wire.send(connection, {"ready": True, "missing": missing})
    while True:
        try:
            message = wire.receive(connection)
        except wire.Closed:
            os._exit(0)
        new = socket.socket(fileno=message.fds.pop())
        try:
            pid = jail.fork_within()
        except OSError as error:
            _refuse(new, error)
            continue
        if pid == 0:
            connection.close()
            size = message.data["disk"]
            _live_within(new, path, "proc" not in missing, size, call_filter)
        with new, contextlib.suppress(wire.Closed, ProcessLookupError):
            _announce(new, pid, [])


def _live_within(
    connection: socket.socket,
    path: list[str],
    has_proc: bool,
    size: int,
    call_filter: Filter | None,
) -> NoReturn:
    """As process 1 of a sandbox within a warm one: serve one command."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        jail.settle_again(has_proc)
        jail.fresh_folders(size)
        confine(call_filter)
        _supervise(connection, alone=True, path=path, once=True)
    except BaseException as error:
        _fail(connection, error)


def supervisor_main(fd: int, path: list[str], once: bool) -> None:
    """Serve a connection as process 1 of a sandbox that something else has made.

    Args:
        fd: The connection.
        path: ``sys.path`` of Python text.
        once: End with the first command.
    """
    connection = socket.socket(fileno=fd)
    missing: list[str] = []
    with contextlib.suppress(OSError):
        os.chdir(jail.BOX)
    wire.send(connection, {"ready": True, "missing": missing})
    alone = os.getpid() == 1
    confine(make_filter())
    _supervise(connection, alone=alone, path=path, once=once)


def container_main(place: str, once: bool) -> None:
    """Serve the caller from within a container.

    Args:
        place: Path of the caller's socket.
        once: End with the first command.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(place)
    path = [entry for entry in sys.path if entry]
    supervisor_main(connection.detach(), path, once)
