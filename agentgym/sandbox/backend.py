"""What a backend offers, and the part that all those with a supervisor share."""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentgym.sandbox.handle import Died, Handle
from agentgym.sandbox.inside.jail import OUTSIDE_USER
from agentgym.sandbox.request import ENVIRONMENT, Request, to_result
from agentgym.sandbox.types import REPORT_FD, Result, SandboxError, Status

__all__ = ["Backend", "Engine", "Settings", "SupervisedBackend", "SupervisedEngine"]

#: Seconds after a deadline until the sandbox itself is taken for dead.
GRACE = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What a sandbox is made with.

    Attributes:
        preload: Modules to import once.
        packages: Show the packages that are installed for this interpreter.
        mounts: Path inside to path outside, read-only.
        disk: Bytes of the file systems in memory.
    """

    preload: tuple[str, ...] = ()
    packages: bool = True
    mounts: Mapping[str, str] = field(default_factory=dict)
    disk: int = 256 << 20


class Engine(ABC):
    """A running sandbox around one workspace."""

    @abstractmethod
    def run(self, request: Request) -> Result:
        """Run one command. Never raises for what it does.

        Raises:
            Died: If the sandbox was gone before the command began.
        """

    @abstractmethod
    def output(self, job: int) -> Result:
        """What a background command wrote and did so far."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it still runs."""

    @abstractmethod
    def close(self) -> None:
        """End it with everything in it. May be called twice."""


class Backend(ABC):
    """A way of making sandboxes. Safe to use from threads."""

    name: str

    @abstractmethod
    def run(self, request: Request) -> Result:
        """Run one command in a sandbox of its own."""

    @abstractmethod
    def open(self, folder: str, mounts: Mapping[str, str]) -> Engine:
        """Start a sandbox around a folder.

        Raises:
            SandboxError: If it cannot be started.
        """

    @abstractmethod
    def close(self) -> None:
        """End what runs. May be called twice."""

    @abstractmethod
    def forget(self) -> None:
        """In a forked child: leave what runs to the parent."""

    #: User outside that the code inside is, or None for the caller.
    owner: int | None = None
    #: What was found missing while sandboxes were made.
    missing: tuple[str, ...] = ()


class SupervisedEngine(Engine):
    """A sandbox whose first process is the supervisor.

    Args:
        handle: The sandbox.
        environment: What commands find in their environment.
        besides: Processes that count against the limit of processes.
    """

    def __init__(self, handle: Handle, environment: Mapping[str, str], besides: int) -> None:
        self.handle = handle
        self._environment, self._besides = environment, besides
        self._requests: dict[int, Request] = {}

    def run(self, request: Request) -> Result:
        """Run one command in a sandbox of its own."""
        result = converse(self.handle, request, self._environment, self._besides)
        if result.job is not None:
            self._requests[result.job] = request
        return result

    def output(self, job: int) -> Result:
        """What a background command wrote and did so far."""
        if job not in self._requests:
            raise SandboxError(f"there is no background command {job!r} in this sandbox")
        reply, blob, _ = self.handle.ask({"op": "output", "job": job}, seconds=GRACE)
        return to_result(self._requests[job], reply, blob)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.handle.alive

    def close(self) -> None:
        """End what runs. May be called twice."""
        self.handle.close()


class SupervisedBackend(Backend):
    """A backend whose sandboxes are led by the supervisor."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

        self.owner = OUTSIDE_USER if os.geteuid() == 0 else None

    environment: Mapping[str, str] = ENVIRONMENT
    besides = 1

    @abstractmethod
    def handle(self, folder: str | None, mounts: Mapping[str, str]) -> Handle:
        """Make a sandbox.

        Args:
            folder: Its workspace, or None for one command in a file system in memory.
            mounts: Further mounts, path inside to path outside.
        """

    def open(self, folder: str, mounts: Mapping[str, str]) -> Engine:
        """Start a sandbox around a folder."""
        handle = self.handle(folder, mounts)
        handle.wait_ready()
        self.missing = tuple(dict.fromkeys([*self.missing, *handle.missing]))
        return SupervisedEngine(handle, self.environment, self.besides)

    def run(self, request: Request) -> Result:
        """Run one command in a sandbox of its own."""
        handle = self.handle(None, {})
        try:
            return converse(handle, request, self.environment, self.besides)
        finally:
            handle.close()


def converse(
    handle: Handle, request: Request, environment: Mapping[str, str], besides: int
) -> Result:
    """Run a command in a sandbox that waits for one.

    Raises:
        SandboxError: If the sandbox could not be made, or a descriptor cannot be passed.
    """
    data, blob = request.to_wire(environment, besides)
    report: int | None = None
    fds = dict(request.pass_fds)
    writer: int | None = None
    if request.report:
        report, writer = os.pipe()
        os.set_blocking(report, False)
        fds[REPORT_FD] = writer
    data["fds"] = list(fds)
    began = time.monotonic()
    try:
        reply, out, reported = handle.ask(
            data,
            blob,
            tuple(fds.values()),
            seconds=request.limits.seconds + GRACE,
            report=report,
            most=request.limits.report,
            watch=request.watch,
        )
    except (Died, TimeoutError) as error:
        handle.kill()
        seconds = time.monotonic() - began
        if isinstance(error, TimeoutError):
            message = f"killed with its sandbox after {request.limits.seconds:g} s"
            return Result(
                Status.TIMEOUT, deadline=request.deadline, message=message, seconds=seconds
            )
        return Result(Status.DIED, message="the sandbox ended", seconds=seconds)
    except OSError as error:
        raise SandboxError(f"a descriptor cannot be passed: {error}") from error
    except BaseException:
        handle.kill()  # interrupted: nobody will ever read the answer
        raise
    finally:
        if writer is not None:
            with contextlib.suppress(OSError):
                os.close(writer)
    return to_result(request, reply, out, report=reported, seconds=time.monotonic() - began)
