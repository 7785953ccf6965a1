"""The process of one vLLM engine: its start, its calls, and how its end is found out."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

__all__ = ["OWNER", "EngineDied", "Launch", "Life"]

T = TypeVar("T")

#: Environment variable that tells an engine's workers whom they work for.
OWNER = "AGENTGYM_ENGINE_OWNER"

_LAUNCHING = threading.Lock()


class EngineDied(RuntimeError):
    """The engine's process is gone, or does not answer any more."""


class Launch:
    """A start of an engine's process, which may be given up.

    Args:
        environ: Variables that the process inherits; what the user has set stays.
        devices: Its ``CUDA_VISIBLE_DEVICES``; None leaves it as it is.
        deadline: Seconds that the start may take.

    Attributes:
        llm: The engine, once it is ready.
        pids: The ids of its processes that are children of this one.
    """

    def __init__(self, environ: Mapping[str, str], devices: str | None, deadline: float) -> None:
        self._environ, self._devices, self._deadline = environ, devices, deadline
        self._before: set[multiprocessing.process.BaseProcess] | None = None
        self._processes: set[multiprocessing.process.BaseProcess] = set()
        self._given_up: str | None = None
        self.llm: Any = None
        self.pids: frozenset[int] = frozenset()

    def run(self, make: Callable[[], Any]) -> None:
        """Start it; blocks until it is ready.

        Args:
            make: Makes the engine, and with it the process.

        Raises:
            EngineDied: If the process was killed, took too long, or was given up.
        """
        # One at a time: what a process inherits is this process's environment for the moment.
        with _LAUNCHING:
            ready = threading.Event()
            self._before = set(multiprocessing.active_children())
            threading.Thread(target=self._attend, args=[ready], daemon=True).start()
            try:
                # Nothing here or above may name the engine: libraries keep exceptions of their
                # start, with the frames of all callers, and it could never be collected.
                with _environment(self._environ, self._devices):
                    self.llm = make() if self._given_up is None else None
                self._note()
            except BaseException as error:
                self._note()
                if self._given_up is not None or any(map(_was_killed, self._processes)):
                    raise EngineDied(self._given_up or "it was killed while it started") from error
                raise
            finally:
                ready.set()
        if self._given_up is not None:
            if self.llm is not None:
                self.llm.shutdown()
            raise EngineDied(self._given_up)
        self.pids = frozenset(p.pid for p in self._processes if p.pid is not None and p.is_alive())

    def give_up(self, why: str) -> None:
        """End the process, whatever it does; whoever waits for it learns why."""
        self._given_up = self._given_up or why
        self._note()
        for process in self._processes:
            with suppress(OSError):
                process.kill()

    def _attend(self, ready: threading.Event) -> None:
        """Keep an eye on the process until it is ready: vLLM itself would wait for ever."""
        until = time.monotonic() + self._deadline
        while not ready.wait(0.1):
            self._note()
            if time.monotonic() > until:
                self.give_up(f"it was not ready after {self._deadline:g} s")
                return

    def _note(self) -> None:
        """Remember the process; one that has ended is in no list any more."""
        if self._before is not None:
            new = set(multiprocessing.active_children()) - self._before
            self._processes |= {p for p in new if p.name.startswith("EngineCore")}


def _was_killed(process: multiprocessing.process.BaseProcess) -> bool:
    process.join(1.0)  # that it has ended may be known before how
    return (process.exitcode or 0) < 0


class Life:
    """An engine's process from its start to its end; all methods belong to one event loop.

    Args:
        llm: The engine.
        silence: Seconds without a sign of life after which the process is taken for hung.
    """

    def __init__(self, llm: Any, silence: float) -> None:
        self.llm, self._silence = llm, silence
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._watcher = asyncio.create_task(self._watch())

    @property
    def running(self) -> bool:
        """Whether the process can be asked."""
        return not self._ended.done() and not self.llm.errored

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a call into the engine.

        vLLM leaves some calls waiting for ever when its process dies. Cancelling the caller
        cancels the call.

        Raises:
            EngineDied: If the process has ended or ends before it answers.
        """
        if self._ended.done():
            work.close()
            raise EngineDied(self._ended.result())
        task = asyncio.ensure_future(work)
        try:
            first: set[asyncio.Future[Any]] = {task, self._ended}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.add_done_callback(_forget)
                task.cancel()
        if not task.done():
            raise EngineDied(self._ended.result())
        try:
            return task.result()
        except Exception as error:
            if self.llm.errored:
                raise EngineDied(str(error)) from error
            raise

    def end(self, why: str) -> None:
        """End the process, and the calls in flight as :class:`EngineDied`."""
        if not self._ended.done():
            self._ended.set_result(why)
        self._watcher.cancel()
        self.llm.shutdown()

    async def _watch(self) -> None:
        """Find out that the process has died or hangs."""
        silent, ping, pause = 0.0, None, 0.0
        while not self.llm.errored and silent <= self._silence:
            began = time.monotonic()
            await asyncio.sleep(min(0.1, self._silence / 10))
            # Where this process was stopped for a while, the other may have been, too.
            passed = min(time.monotonic() - began, 1.0)
            if ping is not None and not ping.done():
                silent += passed
                continue
            if ping is not None:
                _forget(ping)
                ping, silent, pause = None, 0.0, min(5.0, self._silence / 4)
            pause -= passed
            if pause <= 0:
                # Answered between two steps of the engine, also while it is paused.
                ping = asyncio.ensure_future(self.llm.get_weight_version())
        why = "the engine's process has ended"
        if not self.llm.errored:
            why = f"the engine's process has not answered for {self._silence:g} s"
            # It blocks until the process is gone, and with it what it held of a GPU.
            await asyncio.get_running_loop().run_in_executor(None, self.llm.shutdown)
        if ping is not None and not ping.done():
            ping.add_done_callback(_forget)
            ping.cancel()
        if not self._ended.done():
            self._ended.set_result(why)


def _forget(task: asyncio.Future[Any]) -> None:
    """Take note of an outcome that nobody waits for."""
    if not task.cancelled():
        task.exception()


@contextmanager
def _environment(wanted: Mapping[str, str], devices: str | None) -> Iterator[None]:
    added = {OWNER: str(os.getpid())}
    added |= {name: value for name, value in wanted.items() if name not in os.environ}
    if devices is not None:
        added["CUDA_VISIBLE_DEVICES"] = devices
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
