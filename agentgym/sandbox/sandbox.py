"""Sandboxes: which backend, one-shot commands, workspaces."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agentgym.sandbox.backend import Backend, Settings
from agentgym.sandbox.layout import check_mounts
from agentgym.sandbox.probe import measure
from agentgym.sandbox.request import Request
from agentgym.sandbox.session import Session
from agentgym.sandbox.types import (
    Level,
    Limits,
    Result,
    SandboxError,
    SandboxUnavailable,
    Snapshot,
)
from agentgym.sandbox.workspace import Workspace, sweep

__all__ = ["BACKENDS", "Sandbox", "open_sandbox", "shared_sandbox"]

#: Every backend; ``"auto"`` tries all but the last, in this order.
BACKENDS = ("namespaces", "bwrap", "docker", "local")


class Sandbox:
    """Runs commands that nobody trusts. Made by :func:`open_sandbox`.

    Safe to use from threads. A process that is forked from this one cannot use it.

    Args:
        backend: What makes the sandboxes.
        level: How isolated they are.
        isolation: What is isolated.
        missing: What is not.
        limits: Limits of commands that name none.
        workers: How many one-shot commands run at once.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        level: Level,
        isolation: Sequence[str],
        missing: Sequence[str],
        limits: Limits,
        workers: int,
    ) -> None:
        self.limits, self.level, self.workers = limits, level, workers
        self._backend = backend
        self._isolation, self._missing = tuple(isolation), tuple(missing)
        self._places = threading.BoundedSemaphore(workers)
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._closed = False
        self._finalizer = weakref.finalize(self, backend.close)
        _open.add(self)

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return self._backend.name

    def describe(self) -> dict[str, Any]:
        """Backend, level, what is isolated and what is not; JSON-able and the same every time."""
        return {
            "backend": self.backend,
            "level": self.level.name.lower(),
            "isolation": list(self._isolation),
            "missing": list(self._missing),
        }

    # One-shot -----------------------------------------------------------------------------------

    def run(
        self,
        code: str | None = None,
        *,
        argv: Sequence[str] | None = None,
        args: Sequence[str] = (),
        files: Mapping[str, bytes | str] | None = None,
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        report: bool = False,
        pass_fds: Mapping[int, int] | None = None,
    ) -> Result:
        """Run one command in a sandbox of its own. Never raises for what it does.

        Args:
            code: Python text, run as ``__main__``.
            argv: A program and its arguments, instead of ``code``.
            args: ``sys.argv[1:]`` of the code.
            files: Files in its folder: path to content.
            stdin: What it reads; nothing by default.
            env: Additions to its environment.
            limits: Its limits; by default the sandbox's. Time counts from dispatch.
            report: Collect what it writes to descriptor 3.
            pass_fds: Its descriptor number to a descriptor of the caller.

        Raises:
            SandboxError: If an argument cannot be used, or no sandbox can be started.
        """
        return self._run(
            None, code=code, argv=argv, args=args, files=files, stdin=stdin, env=env,
            limits=limits, report=report, pass_fds=pass_fds,
        )  # fmt: skip

    async def arun(self, code: str | None = None, **kwargs: Any) -> Result:
        """The same for ``asyncio``; a cancelled call kills its command."""
        return await self._in_thread(lambda cancelled: self._run(cancelled, code=code, **kwargs))

    def _run(
        self, cancelled: threading.Event | None, *, limits: Limits | None = None, **kwargs: Any
    ) -> Result:
        request = Request.make(limits or self.limits, **kwargs)
        if cancelled is not None:
            request.watch = lambda: "cancelled" if cancelled.is_set() else None
        with self._places:
            if self._closed:
                raise SandboxError("the sandbox is closed")
            return self._backend.run(request)

    async def _in_thread(self, call: Callable[[threading.Event], Result]) -> Result:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(
                    max(self.workers, 4), thread_name_prefix="agentgym-sandbox"
                )
            executor = self._executor
        cancelled = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, call, cancelled)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    # Workspaces ---------------------------------------------------------------------------------

    def session(
        self,
        *,
        files: Mapping[str, bytes | str] | Snapshot | None = None,
        limits: Limits | None = None,
        episode_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        mounts: Mapping[str, str] | None = None,
    ) -> Session:
        """A workspace; its sandbox starts with the first command.

        Args:
            files: What is in it: path to content, or the snapshot of another.
            limits: Limits of commands that name none.
            episode_seconds: Seconds that all commands together may run.
            env: Additions to the environment of every command.
            mounts: Further folders and files, read-only: path inside to path outside.

        Raises:
            SandboxError: If an argument cannot be used, or this is closed.
            WorkspaceError: If a file cannot be written.
        """
        if self._closed:
            raise SandboxError("the sandbox is closed")
        if episode_seconds is not None and not episode_seconds > 0:
            raise SandboxError(f"episode_seconds must be > 0, got {episode_seconds!r}")
        extra = check_mounts(mounts or {})
        workspace = Workspace(self._backend.owner)
        try:
            session = Session(
                self,
                lambda folder: self._backend.open(folder, extra),
                workspace,
                limits=limits or self.limits,
                episode_seconds=episode_seconds,
                env=env or {},
            )
            if isinstance(files, Snapshot):
                session.restore(files)
            else:
                for path, content in (files or {}).items():
                    session.write(path, content)
        except BaseException:
            workspace.close()
            raise
        self._sessions.add(session)
        return session

    # Life ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """End all that runs, and delete all workspaces. May be called twice."""
        self._closed = True
        self._finalizer.detach()
        for session in list(self._sessions):
            session.close()
        self._backend.close()
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forget(self) -> None:
        """In a forked child: what runs is the parent's."""
        self._closed = True
        self._finalizer.detach()
        self._lock = threading.Lock()
        self._executor = None
        for session in list(self._sessions):
            session._forget()
        self._backend.forget()


# Opening ----------------------------------------------------------------------------------------


def open_sandbox(
    backend: str = "auto",
    *,
    minimum: Level = Level.FULL,
    limits: Limits | None = None,
    preload: Sequence[str] = (),
    packages: bool = True,
    workers: int = 4,
    mounts: Mapping[str, str] | None = None,
) -> Sandbox:
    """A sandbox that was tried and measured, or an error.

    Args:
        backend: ``"auto"``, or one of :data:`BACKENDS`. ``"local"`` isolates nothing, and is what
            it is asked for.
        minimum: What ``"auto"``, and any other backend named, has to reach. It is never lowered:
            ``Level.NONE`` is how one agrees to ``"local"`` where nothing better works.
        limits: Limits of commands that name none.
        preload: Modules that the fork server imports once, for ``code``.
        packages: Show the packages that are installed for this interpreter.
        workers: How many one-shot commands run at once.
        mounts: Further folders and files, read-only: path inside to path outside.

    Raises:
        SandboxUnavailable: If nothing works that reaches the minimum; says why, one by one.
        SandboxError: If an argument cannot be used.
    """
    if backend != "auto" and backend not in BACKENDS:
        raise SandboxError(f"backend must be 'auto' or one of {BACKENDS}, got {backend!r}")
    if type(workers) is not int or workers < 1:
        raise SandboxError(f"workers must be an int >= 1, got {workers!r}")
    if isinstance(preload, str):
        raise SandboxError(f"preload must be a list of modules, got the str {preload!r}")
    minimum = Level(minimum)
    limits = limits or Limits()
    sweep()
    settings = Settings(tuple(preload), packages, check_mounts(mounts or {}), limits.disk)
    names: tuple[str, ...] = (backend,)
    if backend == "auto":
        names = BACKENDS if minimum is Level.NONE else BACKENDS[:-1]
    refused = []
    for name in names:
        try:
            made = _make(name, settings)
        except SandboxError as error:
            refused.append(f"{name}: {error}")
            continue
        try:
            level, isolation, missing = measure(made)
        except SandboxError as error:
            made.close()
            refused.append(f"{name}: {error}")
            continue
        except BaseException:
            made.close()
            raise
        if level < minimum and name != "local":
            made.close()
            refused.append(
                f"{name}: reaches {level.name}, not {minimum.name}; missing: {', '.join(missing)}"
            )
            continue
        return Sandbox(
            made,
            level=level,
            isolation=isolation,
            missing=missing,
            limits=limits,
            workers=workers,
        )
    raise SandboxUnavailable(
        "no sandbox can be had. " + "; ".join(refused) + ". Without isolation, code runs only "
        "where that is asked for by name: backend='local'"
    )


def _make(name: str, settings: Settings) -> Backend:
    if not hasattr(os, "pidfd_open"):
        raise SandboxError("this needs Linux 5.3 or newer")
    if name == "namespaces":
        from agentgym.sandbox.namespaces import NamespacesBackend

        return NamespacesBackend(settings)
    if name == "bwrap":
        from agentgym.sandbox.bwrap import BwrapBackend

        return BwrapBackend(settings)
    if name == "docker":
        from agentgym.sandbox.docker import DockerBackend

        return DockerBackend(settings)
    from agentgym.sandbox.local import LocalBackend

    return LocalBackend(settings)


_open: weakref.WeakSet[Sandbox] = weakref.WeakSet()
_shared: dict[str, Sandbox] = {}
_shared_lock = threading.Lock()


def shared_sandbox(backend: str = "auto", **kwargs: Any) -> Sandbox:
    """One sandbox for all in this process that ask for the same; closed at exit.

    Args:
        backend: As in :func:`open_sandbox`.
        **kwargs: As there.

    Raises:
        SandboxUnavailable: As there.
    """
    key = repr((backend, sorted(kwargs.items())))
    with _shared_lock:
        held = _shared.get(key)
        if held is None or held._closed:
            if not _shared:
                atexit.register(_close_shared)
            held = _shared[key] = open_sandbox(backend, **kwargs)
        return held


def _close_shared() -> None:
    for sandbox in list(_shared.values()):
        sandbox.close()


def _after_fork() -> None:
    global _shared_lock
    for sandbox in list(_open):
        sandbox._forget()
    _shared.clear()
    _shared_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
