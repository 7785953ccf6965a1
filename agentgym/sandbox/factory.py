"""The caller's side of the fork server: asks for sandboxes, and starts it anew when it is gone."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from typing import Any

from agentgym.sandbox.handle import START_SECONDS, Handle
from agentgym.sandbox.inside import wire
from agentgym.sandbox.layout import boot_command
from agentgym.sandbox.types import SandboxError

__all__ = ["Factory", "ask_for_fork"]


class Factory:
    """A process that forks sandboxes. Starts with the first request. Safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def make(self, order: dict[str, Any]) -> Handle:
        """Ask for a sandbox; it may not be ready yet.

        Args:
            order: ``mode``, ``layout``, ``path``, ``once``, ``preload``.

        Raises:
            SandboxError: If the fork server cannot be started, or this is closed.
        """
        with self._lock:
            for attempt in (1, 2):
                control = self._started()
                ours, theirs = socket.socketpair()
                try:
                    deadline = time.monotonic() + START_SECONDS
                    wire.send(control, order, fds=[theirs.fileno()], deadline=deadline)
                    return Handle(ours)
                except (wire.Closed, TimeoutError):
                    ours.close()
                    self._stop()  # it is gone; once more with a new one
                    if attempt == 2:
                        raise SandboxError("the fork server ends when it is used") from None
                except BaseException:
                    ours.close()
                    raise
                finally:
                    theirs.close()
        raise AssertionError

    @property
    def pid(self) -> int | None:
        """Process id of the fork server, if it runs."""
        return None if self._process is None else self._process.pid

    def _started(self) -> socket.socket:
        if self._closed:
            raise SandboxError("the sandbox is closed")
        if self._control is not None and self._process is not None:
            if self._process.poll() is None:
                return self._control
            self._stop()
        ours, theirs = socket.socketpair()
        fd = theirs.fileno()
        try:
            self._process = subprocess.Popen(
                boot_command("fork_server", "factory_main", str(fd)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[fd],
                start_new_session=True,
                cwd="/",
                env={"PYTHONHASHSEED": "0", "PATH": os.defpath, "LANG": "C.UTF-8"},
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"the fork server cannot be started: {error}") from error
        finally:
            theirs.close()
        try:
            wire.receive(ours, time.monotonic() + START_SECONDS)
        except (wire.Closed, TimeoutError):
            ours.close()
            assert self._process.stderr is not None
            self._process.kill()
            said = self._process.stderr.read(2000).decode("utf-8", "replace").strip()
            self._stop()
            raise SandboxError(f"the fork server does not start: {said[-500:]}") from None
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._control = ours
        return ours

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        process, self._process = self._process, None
        if process is not None:
            if process.stderr is not None:
                process.stderr.close()
            try:
                process.wait(timeout=2.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self) -> None:
        """End the fork server. May be called twice."""
        with self._lock:
            self._closed = True
            self._stop()

    def forget(self) -> None:
        """In a forked child: the processes are the parent's."""
        self._lock = threading.Lock()
        self._closed = True
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.returncode = 0  # not this process's child
            self._process = None


def ask_for_fork(warm: Handle, disk: int) -> Handle:
    """A sandbox forked by a warm one; it may not be ready yet.

    Args:
        warm: The warm one.
        disk: Bytes of its file systems.

    Raises:
        wire.Closed: If the warm one is gone.
    """
    ours, theirs = socket.socketpair()
    try:
        deadline = time.monotonic() + START_SECONDS
        wire.send(warm.connection, {"disk": disk}, fds=[theirs.fileno()], deadline=deadline)
        return Handle(ours)
    except BaseException as error:
        ours.close()
        if isinstance(error, TimeoutError):
            raise wire.Closed("the warm sandbox does not answer") from None
        raise
    finally:
        theirs.close()
