"""The caller's end of a sandbox: its connection, and a handle on its first process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from agentgym.sandbox.inside import wire
from agentgym.sandbox.types import SandboxError

__all__ = ["Died", "Handle"]

_WATCH_SECONDS = 0.2
_DAY = 86400.0
_GENTLE_SECONDS = 10.0
_CHUNK = 1 << 16
#: Seconds that a sandbox may take to come up.
START_SECONDS = 60.0


class Died(Exception):
    """The sandbox ended while it was asked."""


class Handle:
    """A sandbox that runs.

    Args:
        connection: To its supervisor. The handle closes it.
        on_close: Called once after the sandbox is gone.
    """

    def __init__(
        self, connection: socket.socket, on_close: Callable[[], None] | None = None
    ) -> None:
        self.connection = connection
        self.missing: list[str] = []
        self._process: int | None = None
        self._on_close = on_close
        self._ready = self._refused = False
        #: Killing the first process does not kill the others: it has to be let do that.
        self.gentle = False

    def adopt(self, process: int) -> None:
        """Take the descriptor of the sandbox's first process."""
        self._process = process

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until the sandbox can take requests.

        Raises:
            SandboxError: If it could not be made; the message says why.
        """
        deadline = time.monotonic() + seconds
        try:
            while not self._ready:
                self._greet(wire.receive(self.connection, deadline))
        except wire.Closed:
            self.close()
            raise SandboxError("the sandbox ended before it was ready") from None
        except TimeoutError:
            self.close()
            raise SandboxError(f"the sandbox was not ready after {seconds:g} s") from None

    def _greet(self, message: wire.Message) -> None:
        """Take one of the messages that come before the first answer."""
        if message.fds and self._process is None:
            self._process = message.fds.pop()
        message.close()
        if "error" in message.data:
            self._refused = True
            self.close()
            raise SandboxError(f"the sandbox cannot be made: {message.data['error']}")
        self.missing += message.data.get("missing", [])
        self._ready = self._ready or "ready" in message.data

    @property
    def alive(self) -> bool:
        """Whether the first process still runs."""
        if self.connection.fileno() < 0:
            return False
        if self._process is not None and select.select([self._process], [], [], 0)[0]:
            return False
        waiting = select.select([self.connection], [], [], 0)[0]
        if not waiting:
            return True
        try:  # nothing is expected but the end
            return bool(self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False

    def ask(
        self,
        data: dict[str, Any],
        blob: bytes = b"",
        fds: tuple[int, ...] = (),
        *,
        seconds: float,
        report: int | None = None,
        most: int = 0,
        watch: Callable[[], str | None] | None = None,
    ) -> tuple[dict[str, Any], bytes, bytes]:
        """Send a request and wait for the answer.

        Args:
            data: The request.
            blob: Bytes that go along.
            fds: Descriptors that go along.
            seconds: After so long the sandbox is taken for dead.
            report: Descriptor to collect meanwhile; it is closed at the end.
            most: Bytes to keep of it.
            watch: Called a few times a second; a reason to kill the command, or None.

        Returns:
            The answer, its bytes, and what came from ``report``.

        Raises:
            Died: If the sandbox is gone.
            TimeoutError: If it does not answer in time.
            SandboxError: If it answers with an error.
        """
        deadline = time.monotonic() + seconds
        collected = bytearray()
        try:
            wire.send(self.connection, data, blob, fds, deadline)
            while True:
                self._wait(deadline, report, most, collected, watch)
                message = wire.receive(self.connection, deadline)
                if "sizes" not in message.data:
                    # Its makers speak on the same connection, and may be slower than itself.
                    self._greet(message)
                    continue
                message.close()
                if report is not None:
                    _collect(report, collected, most)
                return message.data, message.blob, bytes(collected)
        except wire.Closed as error:
            raise Died(str(error)) from None
        finally:
            if report is not None:
                os.close(report)

    def _wait(
        self,
        deadline: float,
        report: int | None,
        most: int,
        collected: bytearray,
        watch: Callable[[], str | None] | None,
    ) -> None:
        """Wait for a message; meanwhile read the report and watch."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        if report is not None:
            poll.register(report, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            # Longer than a day the kernel's clocks of calls do not count.
            left = min(left, _DAY if watch is None else _WATCH_SECONDS)
            ready = {fd for fd, _ in poll.poll(left * 1000 + 1)}
            if report in ready and report is not None and not _collect(report, collected, most):
                poll.unregister(report)
            if self.connection.fileno() in ready:
                return
            if watch is not None and (reason := watch()) is not None:
                watch = None
                wire.send(self.connection, {"op": "kill", "reason": reason}, deadline=deadline)

    def kill(self) -> None:
        """Kill the sandbox with everything in it, without its help."""
        with contextlib.suppress(wire.Closed, TimeoutError, OSError, SandboxError):
            deadline = time.monotonic() + 2.0
            while self._process is None and not self._refused:
                self._greet(wire.receive(self.connection, deadline))
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            select.select([self._process], [], [], 5.0)

    def close(self) -> None:
        """Kill the sandbox, and give its handles back. May be called twice."""
        if self.connection.fileno() >= 0:
            if self.gentle and self._process is not None:
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                select.select([self._process], [], [], _GENTLE_SECONDS)
            self.kill()
            self.connection.close()
            if self._process is not None:
                os.close(self._process)
                self._process = None
            if self._on_close is not None:
                self._on_close()

    def forget(self) -> None:
        """In a forked child: close the copies, and leave the sandbox alone."""
        self.connection.close()
        if self._process is not None:
            os.close(self._process)
            self._process = None


def _collect(fd: int, into: bytearray, most: int) -> bool:
    """Read what is there; False at the end of the stream.

    Of one that is written without end only so much is read at a time as anybody wants of it.
    """
    for _ in range(most // _CHUNK + 64):
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        into += data[: most - len(into)]
    return True
