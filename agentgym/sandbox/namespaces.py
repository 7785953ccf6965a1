"""Sandboxes of Linux namespaces, forked from a warm interpreter."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from agentgym.sandbox.backend import Settings, SupervisedBackend, converse
from agentgym.sandbox.factory import Factory, ask_for_fork
from agentgym.sandbox.handle import Handle
from agentgym.sandbox.inside import wire
from agentgym.sandbox.layout import make_layout, module_path
from agentgym.sandbox.request import Request
from agentgym.sandbox.types import Result, SandboxError, Status

__all__ = ["NamespacesBackend"]

#: One-shot sandboxes that are made ahead of the next request.
_SPARES = 1


class NamespacesBackend(SupervisedBackend):
    """User, mount, process, network, IPC and host name namespaces, made by the fork server.

    One-shot commands run in sandboxes within a sandbox whose interpreter is warm: what it sees of
    the file system was decided once, and each command gets namespaces, folders and processes of
    its own.
    """

    name = "namespaces"
    besides = 2

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._factory = Factory()
        self._lock = threading.Lock()
        self._warm: Handle | None = None
        self._spares: list[Handle] = []
        self._closed = False

    def handle(self, folder: str | None, mounts: Mapping[str, str]) -> Handle:
        """Make a sandbox; see the base class."""
        if folder is None:
            return self._once(self.settings.disk)
        return self._factory.make(self._order("session", folder, mounts))

    def run(self, request: Request) -> Result:
        """Run one command in a sandbox of its own."""
        while True:
            handle, ahead = self._take(request.limits.disk)
            try:
                self._prepare()
                result = converse(handle, request, self.environment, self.besides)
            finally:
                handle.close()
            # One that was made ahead may have died since, of no fault of this command.
            if result.status is Status.DIED and ahead:
                continue
            return result

    def _take(self, disk: int) -> tuple[Handle, bool]:
        with self._lock:
            while self._spares and disk == self.settings.disk:
                spare = self._spares.pop()
                if spare.alive:
                    return spare, True
                spare.close()
        return self._once(disk), False

    def _prepare(self) -> None:
        """Have a sandbox made for the next command while the caller goes on."""
        with self._lock:
            if self._closed or self._warm is None or len(self._spares) >= _SPARES:
                return
            try:
                self._spares.append(ask_for_fork(self._warm, self.settings.disk))
            except (wire.Closed, OSError):
                return  # the next command finds out, and heals it

    def _once(self, disk: int) -> Handle:
        with self._lock:
            for attempt in (1, 2):
                if self._closed:
                    raise SandboxError("the sandbox is closed")
                if self._warm is None or not self._warm.alive:
                    self._warm = self._make_warm()
                try:
                    return ask_for_fork(self._warm, disk)
                except wire.Closed:
                    self._warm.close()
                    self._warm = None
                    if attempt == 2:
                        raise SandboxError("the warm sandbox ends when it is used") from None
        raise AssertionError

    def _make_warm(self) -> Handle:
        if self._warm is not None:
            self._warm.close()
        handle = self._factory.make(self._order("warm", None, {}))
        handle.wait_ready()
        self.missing = tuple(dict.fromkeys([*self.missing, *handle.missing]))
        return handle

    def _order(self, mode: str, folder: str | None, mounts: Mapping[str, str]) -> dict[str, object]:
        settings = self.settings
        return {
            "mode": mode,
            "once": False,
            "path": module_path(settings.packages),
            "preload": list(settings.preload),
            "layout": make_layout(
                packages=settings.packages,
                mounts={**settings.mounts, **mounts},
                box=folder,
                box_size=settings.disk,
                tmp_size=settings.disk,
            ),
        }

    @property
    def processes(self) -> tuple[int | None, ...]:
        """Process id of the fork server, for tests that kill it."""
        return (self._factory.pid,)

    def close(self) -> None:
        """End what runs. May be called twice."""
        with self._lock:
            self._closed = True
            for spare in self._spares:
                spare.close()
            self._spares = []
            if self._warm is not None:
                self._warm.close()
                self._warm = None
        self._factory.close()

    def forget(self) -> None:
        """In a forked child: leave what runs to the parent."""
        self._lock = threading.Lock()
        self._closed = True
        for spare in self._spares:
            spare.forget()
        if self._warm is not None:
            self._warm.forget()
        self._spares, self._warm = [], None
        self._factory.forget()
