"""Where the loop gets its trajectories: sampled in turn with learning, or all the while.

Both sources play the same endless list of tasks. ``SyncSource`` samples one batch when asked.
``AsyncSource`` samples on a thread with its own event loop while the learner steps; how far ahead
it may run is bounded when episodes are admitted and again when they are consumed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from agentgym.collector import Collector
from agentgym.trajectory import (
    EpisodeSpec,
    Trajectory,
    TrajectoryGroup,
    group_trajectories,
)
from trainers.algorithm import Plan
from trainers.staleness import rollout_capacity, too_stale

__all__ = ["AsyncSource", "Interrupted", "Source", "SyncSource", "TaskCursor"]


class Interrupted(Exception):
    """The user asked the run to end while it was sampling."""


@dataclass
class TaskCursor:
    """Walks through the training tasks in a seeded order, epoch after epoch.

    Attributes:
        ids: Task ids of the training split; None draws tasks by environment seed.
        split: Name of that split.
        seed: Seed of the order and of the episodes.
        position: Groups handed out so far.
        replay: Numbers of groups to hand out again first: those that were under way when the
            run that is resumed was stopped.
    """

    ids: tuple[str, ...] | None
    split: str | None
    seed: int
    position: int = 0
    replay: list[int] = field(default_factory=list)
    _order: tuple[int, np.ndarray] | None = field(default=None, repr=False)

    def take(self, plan: Plan, count: int | None = None) -> list[EpisodeSpec]:
        """Episodes of the next ``count`` groups (default: the whole plan)."""
        specs: list[EpisodeSpec] = []
        for _ in range(plan.tasks if count is None else count):
            if self.replay:
                number = self.replay.pop(0)
            else:
                number = self.position
                self.position += 1
            # One seed a group: its members are replicas of one (task, seed).
            episode_seed = int(np.random.default_rng([self.seed, number, 0xE9]).integers(2**31 - 1))
            task_id = self._task(number)
            specs += [
                EpisodeSpec(task_id, self.split, episode_seed, f"g{number}", member)
                for member in range(plan.group_size)
            ]
        return specs

    def state_dict(self) -> dict[str, Any]:
        """Plain values that resume the walk."""
        return {"position": self.position, "replay": list(self.replay)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.position, self.replay = int(state["position"]), [int(n) for n in state["replay"]]

    def _task(self, number: int) -> str | None:
        if self.ids is None:
            return None
        epoch, at = divmod(number, len(self.ids))
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch, 0x7A5C])
            self._order = (epoch, rng.permutation(len(self.ids)))
        return self.ids[int(self._order[1][at])]


class Source(Protocol):
    """Supplies the loop with groups and takes its weights."""

    dropped_stale: int

    def cursor_state(self) -> dict[str, Any]:
        """Where the tasks are, for a checkpoint."""
        ...

    def next_groups(self, plan: Plan, count: int, grouped: bool) -> list[TrajectoryGroup]:
        """The next ``count`` trajectories, in groups."""
        ...

    def release(self, dropped: int) -> None:
        """Trajectories that the learner left out; their places are free again."""
        ...

    def publish(self, state: Mapping[str, Any], version: int) -> None:
        """Put new weights to use."""
        ...

    def play(self, collector: Collector, specs: Sequence[EpisodeSpec]) -> list[Trajectory]:
        """Play given episodes with another collector (for evaluation)."""
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
        self.dropped_stale = 0
        self._loop = asyncio.new_event_loop()

    def next_groups(self, plan: Plan, count: int, grouped: bool) -> list[TrajectoryGroup]:
        """See :class:`Source`.

        Raises:
            Interrupted: If the user asked to end; the cursor is where it was before.
        """
        before = self.cursor_state()
        specs = self.cursor.take(plan, count // plan.group_size)
        try:
            return group_trajectories(self.play(self.collector, specs))
        except Interrupted:
            self.cursor.load_state_dict(before)
            raise

    def cursor_state(self) -> dict[str, Any]:
        """See :class:`Source`."""
        return self.cursor.state_dict()

    def release(self, dropped: int) -> None:
        """Nothing to free: every batch is asked for."""

    def publish(self, state: Mapping[str, Any], version: int) -> None:
        """See :class:`Source`."""
        self._loop.run_until_complete(self.collector.policy.load_weights(state, version))

    def play(self, collector: Collector, specs: Sequence[EpisodeSpec]) -> list[Trajectory]:
        """See :class:`Source`."""
        return self._loop.run_until_complete(collector.collect(specs, self._check))

    def _check(self) -> None:
        if self._interrupted():
            raise Interrupted

    def close(self) -> None:
        """See :class:`Source`."""
        self.collector.close()
        self._loop.run_until_complete(self.collector.policy.aclose())
        self._loop.close()


class AsyncSource:
    """Samples on a thread of its own while the learner steps.

    Admission: ``(staleness + version + 1) N`` episodes may ever have been started by the time the
    weights have ``version`` (AReaL, arXiv 2505.24298). Consumption: a trajectory (or group) whose
    oldest token is more than ``staleness`` versions old is dropped, and its place is free again.

    Args:
        collector: Plays the episodes.
        cursor: Supplies the tasks.
        plan: What to sample now; asked at every admission.
        staleness: The bound, in weight versions.
        batch: Trajectories of one step.
        version: Version of the weights at the start (above 0 after a resume).
        interrupted: Asked while waiting; True ends the wait.
    """

    def __init__(
        self,
        collector: Collector,
        cursor: TaskCursor,
        plan: Callable[[], Plan],
        *,
        staleness: int,
        batch: int,
        version: int,
        interrupted: Callable[[], bool],
    ) -> None:
        self.collector, self.cursor = collector, cursor
        self.dropped_stale = 0
        self._plan, self._staleness, self._batch = plan, staleness, batch
        self._interrupted = interrupted
        self._version = version
        # All that was ever admitted; what a resumed learner has consumed counts as admitted.
        self._admitted = version * batch
        self._lock = threading.Condition()
        self._groups: dict[str, list[Trajectory]] = {}
        self._sizes: dict[str, int] = {}
        self._failure: BaseException | None = None
        self._stopping = False
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Event()
        self._thread = threading.Thread(target=self._work, name="agentgym-rollouts", daemon=True)
        self._thread.start()

    # The learner's side -------------------------------------------------------------------------

    def next_groups(self, plan: Plan, count: int, grouped: bool) -> list[TrajectoryGroup]:
        """See :class:`Source`; waits until there are enough.

        Raises:
            Interrupted: If the user asked to end.
            RuntimeError: If the producer failed; its error is the cause.
        """
        taken: list[TrajectoryGroup] = []
        have = 0
        with self._lock:
            while have < count:
                self._check()
                group = self._pop(grouped)
                if group is None:
                    self._lock.wait(0.1)
                    continue
                oldest = min((item.min_version for item in group if item.n_actions), default=0)
                if too_stale(oldest, self._version, self._staleness):
                    self.dropped_stale += len(group)
                    self._free(len(group))
                    continue
                taken.append(group)
                have += len(group)
        # Arrival order is an accident; the order of the tasks is not.
        return sorted(taken, key=lambda group: _number(group.group_id))

    def cursor_state(self) -> dict[str, Any]:
        """See :class:`Source`; groups that are not consumed yet will be played again."""
        with self._lock:
            state = self.cursor.state_dict()
            state["replay"] = sorted({*state["replay"], *(_number(name) for name in self._sizes)})
        return state

    def release(self, dropped: int) -> None:
        """See :class:`Source`."""
        with self._lock:
            self._free(dropped)

    def publish(self, state: Mapping[str, Any], version: int) -> None:
        """See :class:`Source`; running episodes go on under the new weights."""
        self._submit(self.collector.policy.load_weights(state, version)).result()
        with self._lock:
            self._version = version
        self._loop.call_soon_threadsafe(self._room.set)

    def play(self, collector: Collector, specs: Sequence[EpisodeSpec]) -> list[Trajectory]:
        """See :class:`Source`; sampling for training goes on beside it."""
        return self._submit(collector.collect(specs)).result()

    def close(self) -> None:
        """See :class:`Source`."""
        self._stopping = True
        self._loop.call_soon_threadsafe(self._room.set)
        self._thread.join(timeout=60)

    # The producer's side ------------------------------------------------------------------------

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._produce())
        except BaseException as error:
            with self._lock:
                self._failure = error
                self._lock.notify_all()
        finally:
            self.collector.close()
            self._loop.run_until_complete(self.collector.policy.aclose())

    async def _produce(self) -> None:
        stream = self.collector.stream(self._admit())
        try:
            async for trajectory in stream:
                if self._stopping:
                    return
                self._deliver(trajectory)
        finally:
            await stream.aclose()

    async def _admit(self) -> AsyncIterator[EpisodeSpec]:
        """Episodes, as the bound on admission allows; whole groups at a time."""
        while not self._stopping:
            plan = self._plan()
            with self._lock:
                room = rollout_capacity(
                    self._staleness, self._version, self._admitted, 0, self._batch
                )
                specs: list[EpisodeSpec] = []
                if room >= plan.group_size:
                    specs = self.cursor.take(plan, 1)
                    self._admitted += len(specs)
                    self._sizes[specs[0].group_id] = len(specs)
            if not specs:
                self._room.clear()
                await self._room.wait()
                continue
            for spec in specs:
                yield spec

    def _deliver(self, trajectory: Trajectory) -> None:
        with self._lock:
            self._groups.setdefault(trajectory.spec.group_id, []).append(trajectory)
            self._lock.notify_all()

    # Both, under the lock -----------------------------------------------------------------------

    def _pop(self, grouped: bool) -> TrajectoryGroup | None:
        for name, members in self._groups.items():
            complete = len(members) == self._sizes[name]
            if grouped and not complete:
                continue
            del self._groups[name]
            members.sort(key=lambda item: item.spec.member)
            if complete:
                del self._sizes[name]
            else:  # after the switch the rest of a group arrives as single rollouts
                self._sizes[name] -= len(members)
            return TrajectoryGroup(name, members)
        return None

    def _free(self, count: int) -> None:
        self._admitted -= count
        self._loop.call_soon_threadsafe(self._room.set)

    def _check(self) -> None:
        if self._failure is not None:
            raise RuntimeError("sampling failed while the learner waited") from self._failure
        if self._interrupted():
            raise Interrupted

    def _submit(self, work: Any) -> Future[Any]:
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError("sampling has stopped") from self._failure
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def _number(group_id: str) -> int:
    """Number of a group in the cursor's walk."""
    return int(group_id[1:])
