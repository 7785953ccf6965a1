"""Commands beside the caller: with limits, deadlines and bounded output, and no isolation."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace

from agentgym.sandbox.backend import Engine, Settings, SupervisedBackend, SupervisedEngine, converse
from agentgym.sandbox.factory import Factory
from agentgym.sandbox.handle import Handle
from agentgym.sandbox.layout import module_path
from agentgym.sandbox.request import ENVIRONMENT, Request
from agentgym.sandbox.types import Result, SandboxError

__all__ = ["LocalBackend"]

_BOX = "/box"


class LocalBackend(SupervisedBackend):
    """Runs what it is given with the caller's rights, files and network.

    For code that is trusted, and for machines where nothing better works. The folder ``/box`` of a
    command is a temporary folder elsewhere.
    """

    name = "local"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings.mounts:
            raise SandboxError("the backend 'local' cannot mount anything")
        self.owner = None
        self._factory = Factory()
        # The superuser's processes are not counted, and another user's are counted all together.
        self.besides = 0 if os.geteuid() == 0 else _own_processes()

    def handle(self, folder: str | None, mounts: Mapping[str, str]) -> Handle:
        """Make a sandbox; see the base class."""
        if mounts:
            raise SandboxError("the backend 'local' cannot mount anything")
        assert folder is not None
        return self._make(folder, once=False)

    def _make(self, folder: str, *, once: bool) -> Handle:
        order = {
            "mode": "bare",
            "once": once,
            "path": module_path(self.settings.packages, inside=False),
            "layout": {"box": folder},
        }
        handle = self._factory.make(order)
        handle.gentle = True
        return handle

    def _environment(self, folder: str) -> dict[str, str]:
        path = os.pathsep.join(
            [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
        )
        return {**ENVIRONMENT, "HOME": folder, "PWD": folder, "PATH": path}

    def open(self, folder: str, mounts: Mapping[str, str]) -> Engine:
        """Start a sandbox around a folder."""
        handle = self.handle(folder, mounts)
        handle.wait_ready()
        return _LocalEngine(handle, self._environment(folder), self.besides, folder)

    def run(self, request: Request) -> Result:
        """Run one command in a sandbox of its own."""
        folder = tempfile.mkdtemp(prefix="agentgym-")
        try:
            handle = self._make(folder, once=True)
            try:
                inside = _placed(request, folder)
                return converse(handle, inside, self._environment(folder), self.besides)
            finally:
                handle.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End what runs. May be called twice."""
        self._factory.close()

    def forget(self) -> None:
        """In a forked child: leave what runs to the parent."""
        self._factory.forget()


class _LocalEngine(SupervisedEngine):
    def __init__(
        self, handle: Handle, environment: Mapping[str, str], besides: int, folder: str
    ) -> None:
        super().__init__(handle, environment, besides)
        self._folder = folder

    def run(self, request: Request) -> Result:
        """Run one command in a sandbox of its own."""
        return super().run(_placed(request, self._folder))


def _placed(request: Request, folder: str) -> Request:
    """The request with its working folder where the workspace really is."""
    return replace(request, cwd=folder + request.cwd.removeprefix(_BOX))


def _own_processes() -> int:
    """Processes and threads of this user, which its limit of processes counts."""
    total, user = 0, os.geteuid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:
                    total += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return total
