"""A single-threaded process that imports the verifier once and forks workers from then on.

:class:`~envs.math_reasoning.grading.pool.Pool` starts it and speaks with it over one socket: ``F``
with a descriptor forks a worker that serves on it, and is answered by the worker's process id;
``R`` and a process id reaps a worker that the pool has killed. A worker is not reaped before that,
so that its id cannot pass to another process while the pool may still kill it. When the pool's end
of the socket closes, workers and zygote end.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

__all__ = ["main", "receive", "send"]

_HEADER = struct.Struct("!I")
_PID = struct.Struct("!q")
_MEMORY = 1 << 30
_CPU_SECONDS = 4
_MAX_MESSAGE = 1 << 20


def send(connection: socket.socket, message: Any) -> None:
    """Send one JSON message."""
    data = json.dumps(message).encode()
    connection.sendall(_HEADER.pack(len(data)) + data)


def receive(read: Callable[[int], bytes]) -> Any:
    """Receive one JSON message.

    Args:
        read: Reads exactly so many bytes, or raises :class:`EOFError`.
    """
    (size,) = _HEADER.unpack(read(_HEADER.size))
    if size > _MAX_MESSAGE:
        raise EOFError("a message of impossible size")
    return json.loads(read(size))


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes of a stream.

    Raises:
        EOFError: If it ends before.
    """
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError("the other end closed")
        parts += part
    return bytes(parts)


def main(descriptor: int) -> None:
    """Serve one pool until it goes away."""
    control = socket.socket(fileno=descriptor)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    try:
        from envs.math_reasoning.grading import sympy_worker

        sympy_worker.warm_up()
    except Exception as error:  # said to the pool, which says it to its user
        send(control, {"error": f"{type(error).__name__}: {error}"})
        return
    gc.collect()
    gc.freeze()
    send(control, {"ready": os.getpid()})
    children: set[int] = set()
    try:
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if not message:
                return
            if message == b"F":
                pid = _fork(control, descriptors, sympy_worker.answer)
                children.add(pid)
                control.sendall(_PID.pack(pid))
            else:
                (pid,) = _PID.unpack(read_exactly(control, _PID.size))
                if pid in children:
                    children.discard(pid)
                    os.waitpid(pid, 0)
                control.sendall(b".")
    except (EOFError, OSError):
        return
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


def _fork(
    control: socket.socket, descriptors: list[int], answer: Callable[[Any], dict[str, Any]]
) -> int:
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        return pid
    try:
        control.close()
        _limit()
        connection = socket.socket(fileno=descriptors[0])
        while True:
            request = receive(lambda size: read_exactly(connection, size))
            _limit_time()
            send(connection, answer(request))
    except (EOFError, OSError):
        os._exit(0)
    except BaseException:  # the pool sees the socket close
        os._exit(1)
    finally:
        os._exit(1)


def _limit() -> None:
    """No core files, no growing files, and a bound on memory above what is already mapped."""
    with open("/proc/self/statm", encoding="ascii") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    for what, limit in (
        (resource.RLIMIT_AS, mapped + _MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        resource.setrlimit(what, (limit, limit))


def _limit_time() -> None:
    """A bound on the processor time of one request, should the pool be unable to kill."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(usage.ru_utime + usage.ru_stime) + _CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
