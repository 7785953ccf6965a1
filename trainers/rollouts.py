"""Where the loop gets its trajectories: sampled in turn with learning, or all the while.

Both sources play the same endless list of tasks. ``SyncSource`` samples one batch when asked.
``AsyncSource`` samples on a thread with its own event loop while the learner steps; how far ahead
it may run is bounded when episodes are admitted and again when they are consumed.

A group that was handed out is *committed* once the learner has stepped on it. Where a run stops
before that, the group is played again by the run that resumes it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentgym.collector import Collector
from agentgym.policy import Completion, Request
from agentgym.trajectory import (
    EpisodeSpec,
    Trajectory,
    TrajectoryGroup,
    group_trajectories,
)
from trainers.algorithm import Plan
from trainers.cursor import TaskCursor, group_number
from trainers.staleness import rollout_capacity, too_stale

__all__ = ["AsyncSource", "Interrupted", "Source", "SyncSource"]


class Interrupted(Exception):
    """The user asked the run to end while it was sampling."""


class Source(Protocol):
    """Supplies the loop with groups and takes its weights."""

    def next_groups(self, plan: Plan, count: int) -> list[TrajectoryGroup]:
        """The next ``count`` trajectories; whole groups where the plan has groups.

        Raises:
            Interrupted: If the user asked to end.
        """
        ...

    def release(self, count: int) -> None:
        """Announce that this step will take so many trajectories more than its plan says."""
        ...

    def commit(self) -> None:
        """The learner has stepped on all that was handed out."""
        ...

    def cursor_state(self) -> dict[str, Any]:
        """Where the tasks are, for a checkpoint; what is not committed will be played again."""
        ...

    def metrics(self) -> dict[str, float]:
        """Numbers about sampling since the last call, for the run's log."""
        ...

    def publish(self, state: Mapping[str, Any], version: int) -> None:
        """Put new weights to use; returns once they are."""
        ...

    def ask(self, request: Request) -> Completion:
        """Let the policy continue a prompt, beside whatever it does."""
        ...

    def play(self, collector: Collector, specs: Sequence[EpisodeSpec]) -> list[Trajectory]:
        """Play given episodes with another collector (for evaluation).

        Raises:
            Interrupted: If the user asked to end.
        """
        ...

    def close(self) -> None:
        """Stop and free everything."""
        ...


class SyncSource:
    """Samples a batch when asked, on the caller's thread.

    Args:
        collector: Plays the episodes.
        cursor: Supplies the tasks.
        interrupted: Asked after each episode; True ends the collection.
    """

    def __init__(
        self, collector: Collector, cursor: TaskCursor, interrupted: Callable[[], bool]
    ) -> None:
        self.collector, self.cursor, self._interrupted = collector, cursor, interrupted
        self._uncommitted: list[str] = []
        self._seconds = 0.0
        self._loop = self._new_loop()

    def next_groups(self, plan: Plan, count: int) -> list[TrajectoryGroup]:
        """See :class:`Source`."""
        specs = self.cursor.take(count // plan.group_size, plan.group_size, plan.guidance)
        self._uncommitted += dict.fromkeys(spec.group_id for spec in specs)
        began = time.perf_counter()
        groups = group_trajectories(self.play(self.collector, specs))
        self._seconds += time.perf_counter() - began
        return groups

    def release(self, count: int) -> None:
        """Nothing to free: every batch is asked for."""

    def commit(self) -> None:
        """See :class:`Source`."""
        self._uncommitted.clear()

    def cursor_state(self) -> dict[str, Any]:
        """See :class:`Source`."""
        return self.cursor.state_dict(self._uncommitted)

    def metrics(self) -> dict[str, float]:
        """See :class:`Source`."""
        seconds, self._seconds = self._seconds, 0.0
        return {"generate_s": seconds}

    def publish(self, state: Mapping[str, Any], version: int) -> None:
        """See :class:`Source`."""
        self._loop.run_until_complete(self.collector.policy.load_weights(state, version))

    def ask(self, request: Request) -> Completion:
        """See :class:`Source`."""
        return self._loop.run_until_complete(self.collector.policy.generate(request))

    def play(self, collector: Collector, specs: Sequence[EpisodeSpec]) -> list[Trajectory]:
        """See :class:`Source`."""
        return self._loop.run_until_complete(collector.collect(specs, self._check))

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that episodes run in; simulations have one of their own."""
        return asyncio.new_event_loop()

    def _check(self) -> None:
        if self._interrupted():
            raise Interrupted

    def close(self) -> None:
        """See :class:`Source`."""
        if self._loop.is_closed():
            return
        self.collector.close()
        self._loop.run_until_complete(self.collector.policy.aclose())
        self._loop.close()


@dataclass(slots=True)
class _Pending:
    """An admitted group: how many members it has, those that came, and how many are gone."""

    size: int
    arrived: list[Trajectory] = field(default_factory=list)
    handed_out: int = 0


class AsyncSource:
    """Samples on a thread of its own while the learner steps.

    Admission: at most ``(staleness + version + 1) N`` episodes may ever have been started by the
    time the weights have ``version`` (AReaL, arXiv 2505.24298); since the learner takes N a
    version, no more than ``(staleness + 1) N`` are under way or waiting. Consumption: a trajectory
    (or group) whose oldest token is more than ``staleness`` versions old is dropped, and its place
    is free again.

    When the algorithm goes over from groups to single rollouts, what is left of groups arrives as
    single rollouts; what is left of single rollouts is of no use to groups and is dropped.

    Nothing is sampled before the first :meth:`publish`.

    Args:
        collector: Plays the episodes.
        cursor: Supplies the tasks.
        plan: What to sample; :meth:`next_groups` replaces it.
        staleness: The bound, in weight versions.
        version: Version of the weights at the start (above 0 after a resume).
        interrupted: Asked while waiting; True ends the wait.
    """

    def __init__(
        self,
        collector: Collector,
        cursor: TaskCursor,
        plan: Plan,
        *,
        staleness: int,
        version: int,
        interrupted: Callable[[], bool],
    ) -> None:
        self.collector, self.cursor = collector, cursor
        self._plan, self._staleness, self._batch = plan, staleness, plan.trajectories
        self._interrupted = interrupted
        self._version = version
        # All that was ever admitted and not freed; a resumed learner has consumed N a version.
        self._admitted = version * self._batch
        self._pending: dict[str, _Pending] = {}  # in order of admission
        self._uncommitted: list[str] = []
        self._dropped_stale = 0
        self._waited = 0.0
        self._failure: BaseException | None = None
        self._lock = self._new_lock()
        self._loop = self._new_loop()
        self._room, self._ready, self._closing = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._work, name="agentgym-rollouts", daemon=True)
        self._thread.start()

    # The learner's side -------------------------------------------------------------------------

    def next_groups(self, plan: Plan, count: int) -> list[TrajectoryGroup]:
        """See :class:`Source`; waits until there are enough.

        Raises:
            Interrupted: If the user asked to end.
            RuntimeError: If the producer failed; its error is the cause.
        """
        taken: list[TrajectoryGroup] = []
        have = 0
        began = time.perf_counter()
        with self._lock:
            self._plan = plan
            while have < count:
                self._check()
                group = self._pop(plan, count - have)
                if group is None:
                    self._lock.wait(0.1)
                    continue
                taken.append(group)
                have += len(group)
        self._waited += time.perf_counter() - began
        # Arrival order is an accident; the order of the tasks is not.
        return sorted(taken, key=lambda group: group_number(group.group_id))

    def release(self, count: int) -> None:
        """See :class:`Source`."""
        with self._lock:
            self._free(count)

    def commit(self) -> None:
        """See :class:`Source`."""
        with self._lock:
            self._uncommitted.clear()

    def cursor_state(self) -> dict[str, Any]:
        """See :class:`Source`; what is under way or waits counts as not committed."""
        with self._lock:
            return self.cursor.state_dict([*self._uncommitted, *self._pending])

    def metrics(self) -> dict[str, float]:
        """See :class:`Source`."""
        with self._lock:
            pending = self._pending.values()
            in_flight = sum(p.size - p.handed_out - len(p.arrived) for p in pending)
            out = {
                "wait_s": self._waited,
                "dropped_stale": self._dropped_stale,
                "in_flight": in_flight,
            }
            self._waited, self._dropped_stale = 0.0, 0
        return out

    def publish(self, state: Mapping[str, Any], version: int) -> None:
        """See :class:`Source`; running episodes go on under the new weights."""
        self._run(self.collector.policy.load_weights(state, version))
        with self._lock:
            self._version = version
            self._wake()
        self._loop.call_soon_threadsafe(self._ready.set)

    def ask(self, request: Request) -> Completion:
        """See :class:`Source`."""
        answer: Completion = self._run(self.collector.policy.generate(request))
        return answer

    def play(self, collector: Collector, specs: Sequence[EpisodeSpec]) -> list[Trajectory]:
        """See :class:`Source`; sampling for training goes on beside it."""
        played: list[Trajectory] = self._run(collector.collect(specs, self._check))
        return played

    def close(self) -> None:
        """See :class:`Source`."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            # An environment that hangs inline cannot be stopped; the thread is a daemon.
            self._thread.join(timeout=60)

    # The producer's side ------------------------------------------------------------------------

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that episodes run in; simulations have one of their own."""
        return asyncio.new_event_loop()

    def _new_lock(self) -> threading.Condition:
        """What guards the state that both threads share; likewise."""
        return threading.Condition()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        serving = self._loop.create_task(self._serve())
        try:
            while not serving.done():
                try:
                    self._loop.run_until_complete(serving)
                except (SystemExit, KeyboardInterrupt) as error:
                    self._fail(error)  # it breaks out of the loop, not only of its task
            # Generators that were let go of close on the loop.
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        """Produce until closed. The loop outlives a producer that failed: callers wait on it."""
        producer = asyncio.ensure_future(self._produce())
        await self._closing.wait()
        producer.cancel()
        await asyncio.gather(producer, return_exceptions=True)
        self.collector.close()
        await self.collector.policy.aclose()

    async def _produce(self) -> None:
        await self._ready.wait()
        stream = self.collector.stream(self._admit())
        try:
            async for trajectory in stream:
                self._deliver(trajectory)
        except asyncio.CancelledError as error:
            if not self._closing.is_set():  # the policy's doing, not :meth:`close`
                self._fail(error)
        except BaseException as error:  # whatever it is, the learner waits for no more
            self._fail(error)
        finally:
            await stream.aclose()

    async def _admit(self) -> AsyncIterator[EpisodeSpec]:
        """Episodes, as the bound on admission allows; whole groups at a time."""
        while True:
            with self._lock:
                self._room.clear()
                size = self._plan.group_size
                room = rollout_capacity(
                    self._staleness, self._version, self._admitted, 0, self._batch
                )
                given = self._plan.guidance
                specs = self.cursor.take(1, size, given) if room >= size else []
                if specs:
                    self._admitted += size
                    self._pending[specs[0].group_id] = _Pending(size)
            for spec in specs:
                yield spec
            if not specs:
                await self._room.wait()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
            self._lock.notify_all()

    def _deliver(self, trajectory: Trajectory) -> None:
        with self._lock:
            self._pending[trajectory.spec.group_id].arrived.append(trajectory)
            self._lock.notify_all()

    # Both, under the lock -----------------------------------------------------------------------

    def _pop(self, plan: Plan, most: int) -> TrajectoryGroup | None:
        """The oldest rollouts that can be consumed now, or None; drops those that never can."""
        for name, group in list(self._pending.items()):
            arrived = sorted(group.arrived, key=lambda item: item.spec.member)
            useless: list[Trajectory] = []
            if plan.group_size == 1:  # every rollout for itself
                useless = [item for item in arrived if self._stale([item])]
                taken = [item for item in arrived if not self._stale([item])][:most]
            elif group.size != plan.group_size or group.handed_out:
                useless, taken = arrived, []
            elif len(arrived) < group.size:
                continue
            elif self._stale(arrived):
                useless, taken = arrived, []
            else:
                taken = arrived
            if useless:
                self._dropped_stale += len(useless)
                self._free(len(useless))
            gone = {id(item) for item in (*useless, *taken)}
            group.arrived = [item for item in group.arrived if id(item) not in gone]
            group.handed_out += len(gone)
            if group.handed_out == group.size:
                del self._pending[name]
            if taken:
                self._uncommitted.append(name)
                return TrajectoryGroup(name, taken)
        return None

    def _stale(self, members: Sequence[Trajectory]) -> bool:
        oldest = [item.min_version for item in members if item.n_actions]
        return bool(oldest) and too_stale(min(oldest), self._version, self._staleness)

    def _free(self, count: int) -> None:
        self._admitted -= count
        self._wake()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._room.set)

    def _check(self) -> None:
        if self._failure is not None:
            raise _sampling_failed(self._failure) from self._failure
        if self._interrupted():
            raise Interrupted

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Let the producer's loop do something, and wait for it."""
        try:
            return self._submit(work).result()
        except (CancelledError, SystemExit, GeneratorExit) as error:
            # A fault of the policy, not a wish of the user.
            raise _sampling_failed(error) from error

    def _submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError("sampling has stopped") from self._failure
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def _sampling_failed(error: BaseException) -> RuntimeError:
    return RuntimeError(f"sampling failed: {str(error) or repr(error)}")
