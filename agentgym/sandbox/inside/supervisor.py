"""Process 1 of a sandbox: starts commands, keeps their output, holds the deadlines, kills.

It has one thread and waits in one place. Commands cannot look into it, since it is not dumpable,
and cannot kill it, since it is process 1 of their namespace.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from agentgym.sandbox.inside import kernel, processes, wire
from agentgym.sandbox.inside.child import SETUP_FAILED, Start, start, start_ahead
from agentgym.sandbox.inside.jobs import Ahead, Ends, Job
from agentgym.sandbox.inside.room import Room
from agentgym.sandbox.inside.seccomp import Filter, supported

__all__ = ["Supervisor", "confine", "make_filter", "protect"]

_TICK = 0.1
_IDLE_TICK = 0.2
#: Bytes read of a stream at a time, and after the end of a command that left it open.
_CHUNK, _AFTERWARDS = 1 << 16, 1 << 20
_KILL_ROUNDS = 200


class Supervisor:
    """Serves one connection until its other end is closed.

    Args:
        connection: Where requests come from.
        alone: This is process 1: everything else here belongs to the commands.
        path: ``sys.path`` of Python text.
        once: End with the first command.
    """

    def __init__(
        self,
        connection: socket.socket,
        *,
        alone: bool,
        path: list[str],
        once: bool,
    ) -> None:
        self._connection = connection
        self._alone, self._path, self._once = alone, path, once
        self._held = _address_space()
        self._ahead: Ahead | None = None
        self._poll = select.poll()
        self._jobs: dict[int, Job] = {}
        self._current: Job | None = None
        self._strays: set[int] = set()
        self._count = 0
        self._room = Room(workspace=not once, alone=alone)
        self._look = 0.0
        self._memory = 0  # what the processes of ended commands may hold
        self._left_over = False
        self._blamed = False  # for a full disk, of which nobody knows who fills it
        self._culled: str | None = None
        self._wake, wake = os.pipe()
        for fd in (self._wake, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._poll.register(connection, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)

    def serve(self) -> None:
        """Answer requests until the other side is gone, or after one command with ``once``."""
        try:
            while self._turn():
                pass
        except wire.Closed:
            pass
        finally:
            self._kill_others()

    def _turn(self) -> bool:
        for fd, _ in self._poll.poll(self._wait() * 1000):
            if fd == self._connection.fileno():
                self._request(wire.receive(self._connection))
            elif fd == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            else:
                self._stream(fd)
        self._reap()
        self._watch()
        job = self._current
        if job is not None and job.wait_status is not None:
            self._finish(job)
            return not self._once
        return True

    def _wait(self) -> float:
        job = self._current
        if job is None:
            return _IDLE_TICK if self._jobs or self._left_over else 3600.0
        assert job.until is not None
        return max(0.0, min(job.until - time.monotonic(), _TICK))

    # Requests -----------------------------------------------------------------------------------

    def _request(self, message: wire.Message) -> None:
        data = message.data
        operation = data.get("op")
        if operation == "run":
            try:
                self._run(data, message)
            except OSError as error:
                self._reply({"error": f"the sandbox could not start the command: {error}"})
            finally:
                message.close()
        elif operation == "kill":
            if self._current is not None:
                self._kill(self._current, data["reason"])
        elif operation == "output":
            job = self._jobs.get(data["job"])
            if job is None:
                self._reply({"error": f"no background job {data['job']}"})
            else:
                self._answer(job)
        else:
            self._reply({"error": f"unknown operation {operation!r}"})

    def _run(self, data: dict[str, Any], message: wire.Message) -> None:
        sizes = [size for _, size in data.get("files", ())]
        content = memoryview(message.blob)
        for (path, size), place in zip(data.get("files", ()), _places(sizes), strict=True):
            _write_file(path, content[place : place + size])
        stdin = bytes(content[sum(sizes) :])
        self._count += 1
        job = Job(self._count, data, stdin)
        everyone = {} if self._once else processes.descendants()
        job.before = {process.key for process in everyone.values()}
        self._room.begin(data["limits"], everyone.values())
        self._look, self._memory = job.began + _TICK / 2, job.memory
        fds = dict(zip(data.get("fds", ()), message.fds, strict=True))
        if stdin:
            fds[0], job.stdin_fd = os.pipe()
            os.set_blocking(job.stdin_fd, False)
        try:
            if self._ahead is not None:
                self._hand_over(job, data, fds)
            else:
                self._start(job, data, fds)
        except BaseException:
            for fd in [*job.streams, *([job.stdin_fd] if job.stdin_fd is not None else [])]:
                os.close(fd)
            raise
        finally:
            if stdin:
                os.close(fds[0])
        for fd in job.streams:
            self._poll.register(fd, select.POLLIN)
        if job.stdin_fd is not None:
            self._poll.register(job.stdin_fd, select.POLLOUT)
        self._jobs[job.number] = job
        if job.background:
            self._answer(job)
        else:
            self._current = job

    def _start(self, job: Job, data: dict[str, Any], fds: dict[int, int]) -> None:
        with Ends(fds) as ends:
            for fd, kept in zip(ends.read, job.kept, strict=True):
                job.streams[fd] = kept
            begin = Start(data, held=self._held, path=self._path)
            job.pid = start(begin, ends.fds)

    def make_ready(self) -> None:
        """Fork the process of the one command that will come, before it comes."""
        ours, theirs = socket.socketpair()
        with Ends({}) as ends:
            pid = start_ahead(theirs, ends.fds, held=self._held, path=self._path)
        theirs.close()
        self._ahead = Ahead(pid, ours, ends.read)

    def _hand_over(self, job: Job, data: dict[str, Any], fds: dict[int, int]) -> None:
        """Give the command to the process that waits for it."""
        ahead, self._ahead = self._ahead, None
        assert ahead is not None
        job.pid, job.wait_status = ahead.pid, ahead.wait_status
        for fd, kept in zip(ahead.read, job.kept, strict=True):
            job.streams[fd] = kept
        # If it was killed meanwhile, that is how the command ends.
        with ahead.orders, contextlib.suppress(wire.Closed):
            wire.send(ahead.orders, {**data, "fds": list(fds)}, fds=list(fds.values()))

    def _reply(self, data: dict[str, Any], blob: bytes = b"") -> None:
        wire.send(self._connection, data, blob)

    def _answer(self, job: Job, left_over: int = 0) -> None:
        parts = [part for kept in job.kept for part in (kept.head, kept.tail)]
        exit_code = signal_number = None
        if job.wait_status is not None:
            code = os.waitstatus_to_exitcode(job.wait_status)
            exit_code, signal_number = (code, None) if code >= 0 else (None, -code)
        self._reply(
            {
                "job": job.number,
                "running": job.wait_status is None,
                "exit_code": exit_code,
                "signal": signal_number,
                "reason": job.reason,
                "cpu": job.cpu_used,
                "setup_failed": exit_code == SETUP_FAILED,
                "left_over": left_over,
                "others_killed": job.others_killed,
                "culled": self._culled,
                "totals": [kept.total for kept in job.kept],
                "sizes": [len(part) for part in parts],
            },
            b"".join(parts),
        )
        self._culled = None

    # Streams ------------------------------------------------------------------------------------

    def _stream(self, fd: int) -> None:
        for job in self._jobs.values():
            if fd == job.stdin_fd:
                self._feed(job)
                return
            if fd in job.streams:
                self._read(job, fd)
                if sum(kept.total for kept in job.kept) > job.flood and job.reason is None:
                    self._kill(job, "output")
                return
        if fd in self._strays:
            with contextlib.suppress(BlockingIOError):
                if not os.read(fd, _CHUNK):
                    self._strays.discard(fd)
                    self._close(fd)

    def _feed(self, job: Job) -> None:
        assert job.stdin_fd is not None
        try:
            written = os.write(job.stdin_fd, job.stdin[:_CHUNK])
        except BlockingIOError:
            return
        except BrokenPipeError:
            written = len(job.stdin)
        job.stdin = job.stdin[written:]
        if not job.stdin:
            self._close(job.stdin_fd)
            job.stdin_fd = None

    def _read(self, job: Job, fd: int) -> int:
        """Read once; the number of bytes, or 0 at the end or where there is nothing now."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return 0
        if data:
            job.streams[fd].add(data)
        else:
            del job.streams[fd]
            self._close(fd)
        return len(data)

    def _close(self, fd: int) -> None:
        self._poll.unregister(fd)
        os.close(fd)

    # The end of a command -----------------------------------------------------------------------

    def _reap(self) -> None:
        while True:
            try:
                pid, status, used = os.wait3(os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._ahead is not None and self._ahead.pid == pid:
                self._ahead.wait_status = status
            for job in self._jobs.values():
                if job.pid == pid and job.wait_status is None:
                    job.wait_status = status
                    job.cpu_used = used.ru_utime + used.ru_stime

    def _finish(self, job: Job) -> None:
        self._current = None
        if self._once:
            self._kill_others()
        for fd in list(job.streams):
            left = _AFTERWARDS
            while left > 0 and (got := self._read(job, fd)):
                left -= got
        left_over = 0
        if not self._once:
            left_over = len(self._of(job))
            self._left_over = bool(left_over) or self._left_over
        if job.stdin_fd is not None:
            self._close(job.stdin_fd)
            job.stdin_fd = None
        self._strays |= set(job.streams)  # held by what runs on; read, so that nobody blocks
        job.streams = {}
        del self._jobs[job.number]
        self._answer(job, left_over)

    def _of(self, job: Job) -> list[processes.Process]:
        """The live processes that are there because of a command."""
        everyone = processes.descendants()
        background = [
            other.pid
            for other in self._jobs.values()
            if other.background and other is not job and other.wait_status is None
        ]
        spared = processes.tree(background, everyone).keys() | set(background)
        return [
            process
            for process in everyone.values()
            if process.key not in job.before and process.pid not in spared and not process.zombie
        ]

    # Limits -------------------------------------------------------------------------------------

    def _watch(self) -> None:
        now = time.monotonic()
        job = self._current
        if job is not None and job.until is not None and now >= job.until:
            self._kill(job, "timeout")
        if now < self._look:
            return
        live = [job for job in self._jobs.values() if job.wait_status is None]
        if not live and not self._left_over:
            return
        everyone = processes.descendants()
        self._look = time.monotonic() + _TICK / 2
        if not live and all(process.zombie for process in everyone.values()):
            self._left_over = False
            return
        self._watch_memory(live, everyone)
        overfull = self._room.overfull(everyone.values())
        if overfull:
            self._make_room(live)
        elif overfull is False and self._current is not None:
            self._blamed = False  # whoever filled the disk is gone

    def _watch_memory(self, live: list[Job], everyone: dict[int, processes.Process]) -> None:
        bound = min((job.memory for job in live), default=self._memory)
        if processes.resident_memory(everyone.values()) <= bound:
            return
        if processes.proportional_memory(everyone.values()) <= bound:
            return
        left = self._left(everyone)
        others = [process for process in everyone.values() if process not in left]
        held = processes.resident_memory(left)
        if left and (not live or held >= processes.resident_memory(others)):
            self._cull("memory")
        elif live:  # what came last goes first
            self._kill(max(live, key=lambda job: (not job.background, job.number)), "memory")

    def _make_room(self, live: list[Job]) -> None:
        """Kill who may have filled the disk; where it goes on after that, the next one."""
        job = self._current
        if job is not None and job.wait_status is None and not self._blamed:
            self._kill(job, "disk")
            self._blamed = True
            return
        self._blamed = False
        if self._left(processes.descendants()):
            self._cull("disk")
        elif live:
            self._kill(max(live, key=lambda job: (job.background, job.number)), "disk")

    def _left(self, everyone: dict[int, processes.Process]) -> list[processes.Process]:
        """The live processes that commands left behind that have ended."""
        running = [job.pid for job in self._jobs.values() if job.background]
        spared = processes.tree(running, everyone).keys() | set(running)
        before = None if self._current is None else self._current.before
        return [
            process
            for process in everyone.values()
            if process.pid not in spared
            and not process.zombie
            and (before is None or process.key in before)
        ]

    def _cull(self, reason: str) -> None:
        """Kill what ended commands left behind."""
        self._culled = reason
        if self._hunt(lambda: self._left(processes.descendants())):
            return
        for job in self._jobs.values():
            job.others_killed = True
        self._kill_others()

    def _hunt(self, find: Callable[[], list[processes.Process]]) -> bool:
        """Kill what is found until nothing is; False where there is more again and again."""
        for _ in range(_KILL_ROUNDS):
            self._reap()
            left = find()
            if not left:
                return True
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.001)
        return False

    def _kill(self, job: Job, reason: str) -> None:
        """Kill everything of a command, whatever it did to get away."""
        if job.reason is None:
            job.reason = reason
        if job.wait_status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(job.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.pid, signal.SIGKILL)
        if self._once:
            self._kill_others()
            self._settle(job)
            return
        if not self._hunt(lambda: self._of(job)):
            # It multiplies faster than it can be found: everything goes, the background too.
            job.others_killed = True
            self._kill_others()
        self._settle(job)

    def _settle(self, job: Job) -> None:
        for _ in range(1000):
            self._reap()
            if job.wait_status is not None:
                return
            time.sleep(0.001)

    def _kill_others(self) -> None:
        if self._alone:
            processes.kill_all()
            return
        self._hunt(lambda: [p for p in processes.descendants().values() if not p.zombie])


def _places(sizes: list[int]) -> list[int]:
    places, place = [], 0
    for size in sizes:
        places.append(place)
        place += size
    return places


def _write_file(path: str, content: memoryview) -> None:
    """Write a file below the working folder, which is still empty of anything hostile."""
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, 0o644)


def make_filter() -> Filter | None:
    """The filter of system calls, or None on a machine whose numbers are not known."""
    return Filter() if supported() else None


def confine(call_filter: Filter | None) -> None:
    """Give up what no command may have: it is inherited, so it is done once, and before the first.

    Args:
        call_filter: What refuses system calls, if there is something.
    """
    kernel.drop_capabilities()
    kernel.no_new_privileges()
    if call_filter is not None:
        call_filter.install()


def protect() -> None:
    """Keep this process from the eyes of its commands."""
    kernel.set_dumpable(False)


def _address_space() -> int:
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(200).split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 256 << 20
