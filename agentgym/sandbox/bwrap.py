"""Sandboxes that bubblewrap makes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Mapping

from agentgym.sandbox.backend import Settings, SupervisedBackend
from agentgym.sandbox.handle import START_SECONDS, Handle
from agentgym.sandbox.layout import INSIDE, boot_command, make_layout, module_path
from agentgym.sandbox.types import SandboxError

__all__ = ["BwrapBackend"]

_PLACE = "/opt/agentgym"


class BwrapBackend(SupervisedBackend):
    """One call of ``bwrap`` a sandbox.

    It needs no warm process, and works where a profile of the system lets ``bwrap`` alone make
    user namespaces; a one-shot command costs the start of an interpreter.
    """

    name = "bwrap"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        program = shutil.which("bwrap")
        if program is None:
            raise SandboxError("bwrap is not installed (the package is called bubblewrap)")
        self._program = program
        self._lock = threading.RLock()  # an abandoned session may end in the midst of anything
        self._open: set[Handle] = set()
        self._closed = False

    def handle(self, folder: str | None, mounts: Mapping[str, str]) -> Handle:
        """Make a sandbox; see the base class."""
        settings, once = self.settings, folder is None
        if self._closed:
            raise SandboxError("the sandbox is closed")
        ours, theirs = socket.socketpair()
        info, info_end = os.pipe()
        path = module_path(settings.packages)
        arguments = f"{theirs.fileno()}, {path!r}, {once}"
        order = {
            "program": self._program,
            "layout": make_layout(
                packages=settings.packages,
                mounts={**settings.mounts, **mounts},
                box=folder,
                box_size=settings.disk,
                tmp_size=settings.disk,
            ),
            "info": info_end,
            "inside": str(INSIDE),
            "environment": {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "PATH": os.defpath},
            "command": boot_command(
                "fork_server", "supervisor_main", arguments, python="/opt/python/bin/python3",
                folder=_PLACE,
            ),
        }  # fmt: skip
        try:
            process = subprocess.Popen(
                boot_command("launch", "bubblewrap_main", repr(json.dumps(order))),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno(), info_end],
                start_new_session=True,
                cwd="/",
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            )
        except OSError as error:
            ours.close()
            os.close(info)
            raise SandboxError(f"bwrap cannot be started: {error}") from error
        finally:
            theirs.close()
            os.close(info_end)
        handle = Handle(ours, lambda: self._reap(handle, process))
        try:
            handle.adopt(_first_process(info, process))
        except BaseException as error:
            process.kill()
            assert process.stderr is not None
            said = process.stderr.read(4000).decode("utf-8", "replace").strip()
            ours.close()
            self._reap(handle, process)
            if isinstance(error, (ValueError, OSError)):
                raise SandboxError(f"bwrap does not start: {said[-500:] or error}") from None
            raise
        finally:
            os.close(info)
        assert process.stderr is not None
        process.stderr.close()
        with self._lock:
            self._open.add(handle)
        return handle

    def _reap(self, handle: Handle, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._open.discard(handle)
        if process.stderr is not None:
            process.stderr.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5.0)
            return
        process.kill()
        process.wait()

    def close(self) -> None:
        """End what runs. May be called twice."""
        self._closed = True
        with self._lock:
            handles = list(self._open)
        for handle in handles:
            handle.close()

    def forget(self) -> None:
        """In a forked child: leave what runs to the parent."""
        self._lock = threading.RLock()
        self._closed = True
        for handle in self._open:
            handle.forget()
        self._open = set()


def _first_process(info: int, process: subprocess.Popen[bytes]) -> int:
    """A descriptor of the sandbox's first process, of which bubblewrap tells the id.

    Raises:
        ValueError: If bubblewrap ends without telling.
    """
    os.set_blocking(info, False)
    text, deadline = b"", time.monotonic() + START_SECONDS
    import select

    while b"}" not in text:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([info], [], [], left)[0]:
            raise ValueError("bwrap says nothing")
        part = os.read(info, 4096)
        if not part:
            raise ValueError("bwrap ended")
        text += part
    pid = json.loads(text)["child-pid"]
    handle = os.pidfd_open(pid)
    # The id may be another's by now, unless the process is bubblewrap's child still.
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        parent = -1
    if parent != process.pid:
        os.close(handle)
        raise ValueError("bwrap ended")
    return handle
