"""A pool of processes for the external verifier; one that does not answer in time is killed.

No signal is used in the calling process, no thread is started, and the caller is never forked: it
may hold threads, locks and an event loop. Workers come from a zygote (see
:mod:`~envs.math_reasoning.grading.zygote`), so that a new one costs milliseconds.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.math_reasoning.grading.nodes import Node
from envs.math_reasoning.grading.suspects import is_harmless, to_plain
from envs.math_reasoning.grading.verdict import Status

__all__ = ["Pool", "PoolError", "Reply", "default_pool", "warm_up"]

#: Seconds from dispatch until a worker is killed.
TIMEOUT = 1.0
_START_TIMEOUT = 120.0
_REQUESTS_PER_WORKER = 400
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from envs.math_reasoning.grading.zygote import main; main(int(sys.argv[2]))"
)


class PoolError(RuntimeError):
    """The verifier cannot be started."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a request.

    Attributes:
        equal: The two are equal.
        status: ``OK``, ``TIMEOUT``, ``DIED``, or ``UNDECIDED`` (not asked, or the verifier failed).
    """

    equal: bool
    status: Status


@dataclass(slots=True)
class _Worker:
    connection: socket.socket
    pid: int
    served: int = 0


class Pool:
    """Processes that ask ``math-verify`` about pairs of expressions. Safe to use from threads.

    Processes start with the first request, or with :meth:`start`. A caller that finds all workers
    busy waits; its own time counts from the moment a worker is free.

    Args:
        workers: How many requests run at once.
        timeout: Seconds a request may take, counted from its dispatch.

    Raises:
        ValueError: If a number is out of range.
    """

    def __init__(self, workers: int = 2, timeout: float = TIMEOUT) -> None:
        if workers < 1:
            raise ValueError(f"workers must be >= 1, got {workers!r}")
        if not timeout > 0:
            raise ValueError(f"timeout must be > 0 seconds, got {timeout!r}")
        self.workers, self.timeout = workers, timeout
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        # One place for each worker; None is a place whose worker has yet to be forked.
        self._places: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(workers):
            self._places.put(None)
        _pools.add(self)

    # Requests -----------------------------------------------------------------------------------

    def verify(self, gold: Node, answer: Node) -> Reply:
        """Whether two scalar expressions are equal. Never raises for what they are.

        Raises:
            PoolError: If the verifier cannot be started, or the pool is closed.
        """
        if not is_harmless(gold) or not is_harmless(answer):
            return Reply(False, Status.UNDECIDED)
        return self.request({"gold": to_plain(gold), "answer": to_plain(answer)})

    def request(self, message: dict[str, Any]) -> Reply:
        """Send one request to the next free worker; see :meth:`verify`."""
        worker = self._places.get()
        try:
            if worker is None or worker.served >= _REQUESTS_PER_WORKER:
                if worker is not None:
                    self._discard(worker)
                    worker = None
                worker = self._fork()
            reply = self._exchange(worker, message)
            if reply.status in (Status.TIMEOUT, Status.DIED):
                broken, worker = worker, None
                self._discard(broken)
            return reply
        finally:
            self._places.put(worker)

    def _exchange(self, worker: _Worker, message: dict[str, Any]) -> Reply:
        from envs.math_reasoning.grading.zygote import receive

        connection = worker.connection
        deadline = time.monotonic() + self.timeout
        worker.served += 1

        def read(size: int) -> bytes:
            parts = bytearray()
            while len(parts) < size:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                connection.settimeout(left)
                part = connection.recv(size - len(parts))
                if not part:
                    raise EOFError
                parts += part
            return bytes(parts)

        data = json.dumps(message).encode()
        try:
            connection.settimeout(self.timeout)
            connection.sendall(len(data).to_bytes(4, "big") + data)
            answer = receive(read)
        except TimeoutError:
            return Reply(False, Status.TIMEOUT)
        except (EOFError, OSError, ValueError):
            return Reply(False, Status.DIED)
        if "equal" not in answer:
            return Reply(False, Status.UNDECIDED)
        return Reply(answer["equal"] is True, Status.OK)

    # Processes ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the zygote and every worker now.

        Raises:
            PoolError: If the verifier cannot be started, or the pool is closed.
        """
        taken = [self._places.get() for _ in range(self.workers)]
        try:
            for place, worker in enumerate(taken):
                if worker is None:
                    taken[place] = self._fork()
        finally:
            for worker in taken:
                self._places.put(worker)

    def _fork(self) -> _Worker:
        with self._lock:
            for attempt in (1, 2):
                control = self._zygote()
                ours, theirs = socket.socketpair()
                try:
                    socket.send_fds(control, [b"F"], [theirs.fileno()])
                    data = b""
                    while len(data) < 8:
                        part = control.recv(8 - len(data))
                        if not part:
                            raise EOFError
                        data += part
                    return _Worker(ours, int.from_bytes(data, "big"))
                except (OSError, EOFError):
                    ours.close()
                    self._stop()  # the zygote is gone; once more with a new one
                    if attempt == 2:
                        raise PoolError("the verifier's process ends when it is used") from None
                finally:
                    theirs.close()
        raise AssertionError

    def _discard(self, worker: _Worker) -> None:
        """Kill a worker, and let the zygote reap it."""
        worker.connection.close()
        with self._lock:
            if self._control is None:
                return
            # Not reaped yet, so the id is still this worker's.
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
            try:
                self._control.sendall(b"R" + worker.pid.to_bytes(8, "big"))
                if not self._control.recv(1):
                    raise EOFError
            except (OSError, EOFError):
                self._stop()

    def _zygote(self) -> socket.socket:
        if self._closed:
            raise PoolError("the pool is closed")
        if self._control is not None:
            return self._control
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[3])
        path = [root, *(entry for entry in sys.path if entry and entry != root)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(path), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise PoolError(f"the verifier's process cannot be started: {error}") from error
        finally:
            theirs.close()
        ours.settimeout(_START_TIMEOUT)
        from envs.math_reasoning.grading.zygote import read_exactly, receive

        try:
            hello = receive(lambda size: read_exactly(ours, size))
        except (OSError, EOFError, ValueError) as error:
            ours.close()
            self._stop()
            raise PoolError(f"the verifier's process did not start: {error!r}") from None
        if "ready" not in hello:
            ours.close()
            self._stop()
            raise PoolError(f"math-verify cannot be used: {hello.get('error')}")
        ours.settimeout(10.0)
        self._control = ours
        return ours

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(timeout=2.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self) -> None:
        """End all processes; requests that still wait fail."""
        with self._lock:
            self._closed = True
            self._stop()
        while True:
            try:
                worker = self._places.get_nowait()
            except queue.Empty:
                break
            if worker is not None:
                worker.connection.close()
        for _ in range(self.workers):
            self._places.put(None)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forget(self) -> None:
        """In a forked child: the processes are the parent's."""
        self._closed = True
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.returncode = 0  # not this process's child
            self._process = None


# The shared pool -------------------------------------------------------------------------------

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_shared: Pool | None = None
_shared_lock = threading.Lock()
_unusable = False


def default_pool() -> Pool | None:
    """The pool that this process shares, or None where ``math-verify`` cannot be used."""
    global _shared
    if _unusable:
        return None
    with _shared_lock:
        if _shared is None:
            supported = hasattr(os, "fork") and hasattr(socket, "send_fds")
            if not supported or importlib.util.find_spec("math_verify") is None:
                return None
            _shared = Pool()
            atexit.register(_shared.close)
        return _shared


def give_up(error: PoolError) -> None:
    """Do without the verifier from now on, and say so once."""
    global _unusable
    if not _unusable:
        _unusable = True
        warnings.warn(f"answers are graded without math-verify: {error}", stacklevel=2)


def warm_up() -> bool:
    """Start the shared pool's processes now; whether there is one.

    Raises:
        PoolError: If ``math-verify`` is installed and cannot be used.
    """
    pool = default_pool()
    if pool is None:
        return False
    pool.start()
    return True


def _after_fork() -> None:
    global _shared, _shared_lock
    for pool in list(_pools):
        pool._forget()
    _shared = None
    _shared_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
