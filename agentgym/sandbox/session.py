"""A workspace that lives over many commands."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentgym.sandbox.backend import Engine
from agentgym.sandbox.handle import Died
from agentgym.sandbox.request import Request, as_bytes
from agentgym.sandbox.types import (
    Entry,
    Limits,
    Result,
    SandboxError,
    Snapshot,
    Status,
    WorkspaceError,
)
from agentgym.sandbox.workspace import Workspace

if TYPE_CHECKING:
    from agentgym.sandbox.sandbox import Sandbox

__all__ = ["Session"]


class _Running:
    """What a session's finalizer has to know: the engine of the moment."""

    engine: Engine | None = None


def _abandon(running: _Running, workspace: Workspace) -> None:
    if running.engine is not None:
        running.engine.close()
    workspace.close()


class Session:
    """A folder, and a sandbox around it in which commands run one after the other.

    Made by :meth:`Sandbox.session`. The commands share processes, network and ``/tmp``: what one
    leaves running in the background is there for the next, and dies with the session. The folder
    is outside and survives a sandbox that is killed; the next command gets a new one.

    Safe to use from threads; commands wait for each other.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        start: Callable[[str], Engine],
        workspace: Workspace,
        *,
        limits: Limits,
        episode_seconds: float | None,
        env: Mapping[str, str],
    ) -> None:
        self._sandbox, self._start, self._workspace = sandbox, start, workspace
        self._limits, self._env = limits, dict(env)
        self._left = episode_seconds
        self._lock = threading.RLock()
        self._running = _Running()
        self._closed = False
        # Whoever forgets to close it: nothing is left running, and no folder behind.
        self._finalizer = weakref.finalize(self, _abandon, self._running, workspace)

    @property
    def _engine(self) -> Engine | None:
        return self._running.engine

    @_engine.setter
    def _engine(self, engine: Engine | None) -> None:
        self._running.engine = engine

    # Commands -----------------------------------------------------------------------------------

    def run(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = ".",
        limits: Limits | None = None,
        background: bool = False,
        report: bool = False,
        pass_fds: Mapping[int, int] | None = None,
    ) -> Result:
        """Run a command in the workspace. Never raises for what it does.

        Args:
            command: A line for ``sh``, or a program with its arguments.
            stdin: What it reads; nothing by default.
            env: Additions to its environment.
            cwd: Its folder, from the workspace's root.
            limits: Its limits; by default the session's.
            background: Do not wait for its end; see :meth:`output`.
            report: Collect what it writes to descriptor 3.
            pass_fds: Its descriptor number to a descriptor of the caller.

        Raises:
            SandboxError: If an argument cannot be used, the sandbox cannot be started, or the
                session is closed.
        """
        return self._run(
            command, None, stdin=stdin, env=env, cwd=cwd, limits=limits, background=background,
            report=report, pass_fds=pass_fds,
        )  # fmt: skip

    async def arun(self, command: str | Sequence[str], **kwargs: Any) -> Result:
        """The same for ``asyncio``; a cancelled call kills its command."""
        return await self._sandbox._in_thread(
            lambda cancelled: self._run(command, cancelled, **kwargs)
        )

    def _run(
        self,
        command: str | Sequence[str],
        cancelled: threading.Event | None,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = ".",
        limits: Limits | None = None,
        **kwargs: Any,
    ) -> Result:
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        limits = limits or self._limits
        inside = "/".join(["/box", *Workspace.parts(cwd)])
        request = Request.make(
            limits, argv=argv, env={**self._env, **(env or {})}, cwd=inside, **kwargs
        )
        with self._lock:
            if self._closed:
                raise SandboxError("the session is closed")
            if self._left is not None and not request.background:
                if self._left <= 0:
                    message = "not started: the time of the episode is used up (episode deadline)"
                    return Result(Status.TIMEOUT, deadline="episode", message=message)
                if self._left < limits.seconds:
                    request.limits = limits.but(seconds=self._left)
                    request.deadline = "episode"
            if cancelled is not None:
                request.watch = lambda: "cancelled" if cancelled.is_set() else None
            result = self._attempt(request)
            if self._left is not None:
                self._left = max(0.0, self._left - result.seconds)
                if result.deadline == "episode":
                    self._left = 0.0
            return result

    def _attempt(self, request: Request) -> Result:
        restarted = False
        if self._engine is not None and not self._engine.alive:
            self._engine.close()
            self._engine, restarted = None, True
        if self._engine is None:
            self._engine = self._start(self._workspace.folder)
        try:
            result = self._engine.run(request)
        except Died:
            result = Result(Status.DIED, message="the sandbox ended")
        if not restarted:
            return result
        return replace(result, restarted=True)

    def output(self, job: int) -> Result:
        """What a background command wrote and did so far.

        Args:
            job: Its ``Result.job``.

        Raises:
            SandboxError: If there is no such command, or its sandbox is gone.
        """
        with self._lock:
            if self._engine is None or not self._engine.alive:
                raise SandboxError(f"background command {job!r} is gone with its sandbox")
            return self._engine.output(job)

    # Files --------------------------------------------------------------------------------------

    def read(self, path: str, limit: int | None = None) -> bytes:
        """The content of a file, or its first ``limit`` bytes. Links are not followed.

        Raises:
            WorkspaceError: If it is no regular file of the workspace.
        """
        return self._workspace.read(path, limit)

    def write(self, path: str, content: bytes | str) -> None:
        """Write a file in one step; folders on the way are made.

        Raises:
            WorkspaceError: If it cannot be, or is larger than the workspace may be.
        """
        data = as_bytes(content)
        if len(data) > self._limits.disk:
            raise WorkspaceError(f"{len(data)} bytes are more than the workspace may hold")
        self._workspace.write(path, data)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it.

        Raises:
            WorkspaceError: If there is no such thing.
        """
        self._workspace.remove(path)

    def list(self, path: str = ".", *, recursive: bool = False, most: int = 10_000) -> list[Entry]:
        """What is in a folder, sorted by path; at most ``most`` entries.

        Raises:
            WorkspaceError: If it is no folder of the workspace.
        """
        return self._workspace.list(path, recursive=recursive, most=most)

    def stat(self, path: str) -> Entry | None:
        """What is at a path, or None; a link is reported as one."""
        return self._workspace.stat(path)

    def usage(self) -> tuple[int, int]:
        """Bytes on disk, and number of files and folders."""
        return self._workspace.usage()

    def snapshot(self, max_bytes: int = 64 << 20, max_files: int = 20_000) -> Snapshot:
        """The content of the workspace.

        Raises:
            WorkspaceError: If it is larger than allowed.
        """
        return self._workspace.snapshot(max_bytes, max_files)

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the content of the workspace; everything that runs in it is killed first."""
        with self._lock:
            self.kill()
            self._workspace.restore(snapshot)

    # Life ---------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether a sandbox runs now; the first command starts one."""
        return self._engine is not None and self._engine.alive

    @property
    def seconds_left(self) -> float | None:
        """What is left of the episode's time, or None where it has no end."""
        return self._left

    def describe(self) -> dict[str, Any]:
        """The sandbox's description; see :meth:`Sandbox.describe`."""
        return self._sandbox.describe()

    def kill(self) -> None:
        """Kill everything that runs; the files stay."""
        with self._lock:
            if self._engine is not None:
                self._engine.close()
                self._engine = None

    def close(self) -> None:
        """Kill everything and delete the files. May be called twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._finalizer.detach()
                self.kill()
                self._workspace.close()
                self._sandbox._sessions.discard(self)

    def _forget(self) -> None:
        """In a forked child: the session is the parent's."""
        self._lock = threading.RLock()
        self._finalizer.detach()
        self._closed, self._engine = True, None
        self._workspace.forget()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
