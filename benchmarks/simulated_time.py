"""Sources whose time is simulated: a sleep costs nothing, and comes to an end in the right order.

Everything else about them is real: the thread, the event loop, the lock, the queue. The loop's
clock jumps to the next timer when nothing is ready, but only while the learner's thread waits (for
trajectories, for weights, or for the end of a step that it pretends to take).
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from trainers.rollouts import AsyncSource, SyncSource

__all__ = ["Clock", "SimulatedAsyncSource", "SimulatedLoop", "SimulatedSyncSource"]


class Clock:
    """Simulated seconds, and whether the learner is at work (time then stands still).

    Attributes:
        now: Seconds since the start.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._busy = True
        self._lock = threading.Lock()
        self._waits = threading.Event()

    def learner_waits(self) -> None:
        """From here on time may pass."""
        with self._lock:
            self._busy = False
            self._waits.set()

    def learner_works(self) -> None:
        """From here on time stands still."""
        with self._lock:
            self._busy = True
            self._waits.clear()

    def jump(self, seconds: float) -> bool:
        """Let time pass, unless the learner is at work."""
        with self._lock:
            if self._busy:
                return False
            self.now += seconds
            return True


class _Selector(selectors.DefaultSelector):  # type: ignore[valid-type, misc]
    """Waits for timers by moving the clock."""

    clock: Clock

    def select(self, timeout: float | None = None) -> list[Any]:
        while True:
            ready = super().select(0)
            if ready or timeout == 0 or (timeout is not None and self.clock.jump(timeout)):
                return list(ready)
            # The learner works, or there is no timer: something must happen in real time.
            ready = super().select(0.001)
            if ready:
                return list(ready)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop on a simulated clock."""

    def __init__(self, clock: Clock) -> None:
        selector = _Selector()
        selector.clock = clock
        self.clock = clock
        super().__init__(selector)

    def time(self) -> float:
        """Simulated seconds."""
        return self.clock.now


class _Lock(threading.Condition):
    """Tells the clock when the learner waits; whoever wakes it stops the clock first."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock, self._sleepers = clock, 0

    def wait(self, timeout: float | None = None) -> bool:
        self._sleepers += 1
        self._clock.learner_waits()
        try:
            return super().wait(timeout)
        finally:
            self._sleepers -= 1
            self._clock.learner_works()

    def notify_all(self) -> None:
        if self._sleepers:
            self._clock.learner_works()
        super().notify_all()


class _Result:
    """The result of work on the loop; waiting for it lets time pass."""

    def __init__(self, future: Future[Any], clock: Clock) -> None:
        self._future, self._clock = future, clock
        self._lock = threading.Lock()
        self._done = False
        future.add_done_callback(self._wake)

    def _wake(self, _: Future[Any]) -> None:
        with self._lock:
            self._done = True
            self._clock.learner_works()

    def result(self) -> Any:
        with self._lock:
            if not self._done:
                self._clock.learner_waits()
        return self._future.result()


class SimulatedAsyncSource(AsyncSource):
    """An :class:`AsyncSource` in simulated time.

    Args:
        clock: The clock.
        args: See :class:`AsyncSource`.
        kwargs: Likewise.
    """

    def __init__(self, clock: Clock, *args: Any, **kwargs: Any) -> None:
        self.clock = clock
        super().__init__(*args, **kwargs)

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return SimulatedLoop(self.clock)

    def _new_lock(self) -> threading.Condition:
        return _Lock(self.clock)

    def _submit(self, work: Any) -> Any:
        return _Result(super()._submit(work), self.clock)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something on the loop while sampling goes on; ``asyncio.sleep`` for a step."""
        return self._submit(work).result()


class SimulatedSyncSource(SyncSource):
    """A :class:`SyncSource` in simulated time.

    Args:
        clock: The clock.
        args: See :class:`SyncSource`.
        kwargs: Likewise.
    """

    def __init__(self, clock: Clock, *args: Any, **kwargs: Any) -> None:
        self.clock = clock
        clock.learner_waits()  # there is one thread only
        super().__init__(*args, **kwargs)

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return SimulatedLoop(self.clock)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something on the loop; ``asyncio.sleep`` for a step."""
        return self._loop.run_until_complete(work)
