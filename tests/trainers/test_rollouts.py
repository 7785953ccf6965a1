"""Sources of trajectories: order of tasks, bounds on staleness, faults, changes of plan."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable
from pathlib import Path

import numpy as np
import pytest
import toy_rounds
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_training import make_config

from agentgym.info import StopReason
from agentgym.policy import FinishReason
from agentgym.trajectory import EpisodeSpec, Trajectory, TrajectoryGroup, Turn
from trainers.algorithm import Plan
from trainers.cursor import TaskCursor
from trainers.grpo import GRPOConfig
from trainers.rollouts import AsyncSource, Interrupted, SyncSource
from trainers.setup import Setup, World

TASKS = tuple(f"t{number}" for number in range(5))


# The cursor -------------------------------------------------------------------------------------


def test_every_epoch_holds_every_task_once_in_another_order() -> None:
    specs = TaskCursor(TASKS, "train", seed=3).take(15, 1)
    epochs = [[spec.task_id for spec in specs[start : start + 5]] for start in (0, 5, 10)]
    assert all(sorted(map(str, epoch)) == list(TASKS) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert len({spec.seed for spec in specs}) == 15


def test_members_of_a_group_are_replicas() -> None:
    specs = TaskCursor(TASKS, "train", seed=3).take(3, 4)
    assert [spec.group_id for spec in specs] == [f"g{n}" for n in range(3) for _ in range(4)]
    for start in (0, 4, 8):
        group = specs[start : start + 4]
        assert len({(spec.task_id, spec.seed, spec.split) for spec in group}) == 1
        assert [spec.member for spec in group] == [0, 1, 2, 3]


@pytest.mark.parametrize("ids", [TASKS, None])
def test_a_cursor_goes_on_where_it_was(ids: tuple[str, ...] | None) -> None:
    whole = TaskCursor(ids, None, seed=1).take(12, 2)
    first = TaskCursor(ids, None, seed=1)
    begun = first.take(7, 2)
    second = TaskCursor(ids, None, seed=1)
    second.load_state_dict(first.state_dict())
    assert begun + second.take(5, 2) == whole
    # Groups 4 and 6 were under way: they come first, then the walk goes on.
    third = TaskCursor(ids, None, seed=1)
    third.load_state_dict(first.state_dict(["g6", "g4", "g6"]))
    again = third.take(3, 2)
    assert again == whole[8:10] + whole[12:14] + whole[14:16]


def test_another_seed_is_another_walk() -> None:
    assert TaskCursor(TASKS, None, 1).take(5, 1) != TaskCursor(TASKS, None, 2).take(5, 1)


# A policy without a model -----------------------------------------------------------------------


class FakePolicy:
    """Knows its version; loading takes a few turns of the loop."""

    def __init__(self) -> None:
        self.version = 0
        self.closed = False

    async def load_weights(self, state, version: int) -> None:
        await asyncio.sleep(0)
        self.version = version

    async def aclose(self) -> None:
        self.closed = True


class FakeCollector:
    """Plays an episode in a random number of turns of the loop, many at a time."""

    def __init__(self, seed: int = 0, slots: int = 5, break_at: int | None = None) -> None:
        self.policy = FakePolicy()
        self.rng = np.random.default_rng(seed)
        self.slots, self.break_at = slots, break_at
        self.started: list[EpisodeSpec] = []
        self.closed = False
        self.on_start = lambda: None

    async def stream(self, specs: AsyncIterable[EpisodeSpec]) -> AsyncGenerator[Trajectory, None]:
        source = aiter(specs)
        running: set[asyncio.Task] = set()
        coming: asyncio.Task | None = None
        try:
            while True:
                if coming is None and len(running) < self.slots:
                    coming = asyncio.ensure_future(anext(source))
                waits = running | ({coming} if coming is not None else set())
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if coming in done:
                    spec = coming.result()
                    coming = None
                    self.started.append(spec)
                    self.on_start()
                    if self.break_at == len(self.started):
                        raise ZeroDivisionError("the sampler broke")
                    running.add(asyncio.ensure_future(self.play(spec)))
                for task in done & running:
                    running.discard(task)
                    yield task.result()
        finally:
            for task in (*running, *([coming] if coming else ())):
                task.cancel()

    async def play(self, spec: EpisodeSpec) -> Trajectory:
        versions = []
        for _ in range(int(self.rng.integers(1, 4))):
            versions.append(self.policy.version)
            for _ in range(int(self.rng.integers(0, 6))):
                await asyncio.sleep(0)
        return trajectory(spec, versions)

    async def collect(self, specs, check=None) -> list[Trajectory]:
        out = []
        for spec in specs:
            out.append(await self.play(spec))
            if check is not None:
                check()
        return out

    def close(self) -> None:
        self.closed = True


def trajectory(spec: EpisodeSpec, versions: list[int]) -> Trajectory:
    turns = [
        Turn(
            context_ids=np.ones(2, np.int32),
            extends=number > 0,
            action_ids=np.ones(1, np.int32),
            logprobs=np.zeros(1, np.float32),
            versions=np.array([version], np.int32),
            trainable=np.ones(1, bool),
            finish_reason=FinishReason.STOP,
        )
        for number, version in enumerate(versions)
    ]
    return Trajectory(spec=spec, turns=turns, stop_reason=StopReason.FAILED)


def make_source(
    collector: FakeCollector, plan: Plan, staleness: int, interrupted=lambda: False, version=0
) -> AsyncSource:
    return AsyncSource(
        collector,  # type: ignore[arg-type]
        TaskCursor(TASKS, "train", seed=0),
        plan,
        staleness=staleness,
        version=version,
        interrupted=interrupted,
    )


# Bounds under random schedules ------------------------------------------------------------------


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    staleness=st.integers(0, 3),
    slots=st.integers(1, 9),
    group_size=st.sampled_from([1, 2, 4]),
    groups=st.integers(1, 3),
    extra=st.lists(st.integers(0, 2), min_size=3, max_size=5),
)
def test_admission_and_consumption_keep_their_bounds(
    seed: int, staleness: int, slots: int, group_size: int, groups: int, extra: list[int]
) -> None:
    """Whatever the order of events: nothing too old is consumed, nothing too early is begun."""
    collector = FakeCollector(seed, slots)
    plan = Plan(groups, group_size)
    n = plan.trajectories
    consumed = released = version = 0
    source = make_source(collector, plan, staleness)

    def on_start() -> None:
        # Called on the producer's thread, under no lock: the learner's counts can only be behind.
        assert len(collector.started) <= (staleness + version + 2) * n + released + dropped()

    def dropped() -> int:
        return source._dropped_stale  # not reset here, so it only grows

    collector.on_start = on_start
    try:
        source.publish({}, 0)
        for more in extra:
            wanted = n
            for round_ in range(more + 1):
                if round_:  # the algorithm found too little in the batch
                    released += group_size
                    wanted = group_size
                    source.release(wanted)
                found = source.next_groups(plan, wanted)
                members = [member for group in found for member in group]
                assert len(members) == wanted
                if group_size > 1:
                    assert all(len(group) == group_size for group in found)
                    for group in found:
                        assert len({m.spec.group_id for m in group}) == 1
                        assert [m.spec.member for m in group] == list(range(group_size))
                oldest = min(member.min_version for member in members)
                assert version - oldest <= staleness
                assert max(int(t.versions.max()) for m in members for t in m.turns) <= version
                numbers = [int(group.group_id[1:]) for group in found]
                assert numbers == sorted(numbers)
                consumed += wanted
            with source._lock:
                outstanding = len(collector.started) - consumed - dropped()
                assert outstanding <= (staleness + 1) * n
                admitted = source._admitted
            assert admitted <= (staleness + version + 1) * n
            version += 1
            source.publish({}, version)
            source.commit()
    finally:
        source.close()
    assert collector.closed
    assert collector.policy.closed
    assert source._failure is None, source._failure


def test_old_rollouts_are_dropped_and_replaced() -> None:
    collector = FakeCollector(slots=8)
    plan = Plan(2, 2)
    source = make_source(collector, plan, staleness=1)
    try:
        source.publish({}, 0)
        wait_for(lambda: sum(len(p.arrived) for p in source._pending.values()) == 8)
        # Three versions later, all that was sampled under version 0 is too old.
        for version in (1, 2, 3):
            source.publish({}, version)
        found = source.next_groups(plan, 4)
        assert all(m.min_version >= 2 for group in found for m in group)
        assert source.metrics()["dropped_stale"] >= 8
    finally:
        source.close()


def test_without_staleness_a_batch_waits_for_the_weights() -> None:
    collector = FakeCollector()
    plan = Plan(4, 1)
    source = make_source(collector, plan, staleness=0)
    try:
        assert not collector.started, "nothing is sampled before there are weights"
        source.publish({}, 0)
        assert len(source.next_groups(plan, 4)) == 4
        time.sleep(0.05)
        assert len(collector.started) == 4
        source.publish({}, 1)
        assert all(m.min_version == 1 for g in source.next_groups(plan, 4) for m in g)
        assert len(collector.started) == 8
    finally:
        source.close()


def test_a_resumed_producer_admits_as_if_it_had_played_all_along() -> None:
    collector = FakeCollector()
    source = make_source(collector, Plan(4, 1), staleness=1, version=50)
    try:
        source.publish({}, 50)
        wait_for(lambda: len(collector.started) == 8)
        time.sleep(0.05)
        assert len(collector.started) == 8
    finally:
        source.close()


# A change of plan with rollouts in flight -------------------------------------------------------


def test_leftover_members_of_groups_become_single_rollouts() -> None:
    collector = FakeCollector(slots=3)
    groups, singles = Plan(2, 4), Plan(8, 1)
    source = make_source(collector, groups, staleness=2)
    try:
        source.publish({}, 0)
        source.next_groups(groups, 8)
        source.publish({}, 1)
        seen: list[tuple[str, int]] = []
        for version in (2, 3, 4):
            found = source.next_groups(singles, 8)
            members = [member.spec for group in found for member in group]
            assert len(members) == 8, "the number of trajectories a step stays the same"
            seen += [(spec.group_id, spec.member) for spec in members]
            source.publish({}, version)
        assert len(set(seen)) == len(seen), "no rollout is consumed twice"
        assert any(member > 0 for _, member in seen), "what was admitted in groups is used up"
    finally:
        source.close()


def test_leftover_single_rollouts_are_of_no_use_to_groups() -> None:
    collector = FakeCollector(slots=3)
    groups, singles = Plan(2, 4), Plan(8, 1)
    source = make_source(collector, singles, staleness=2)
    try:
        source.publish({}, 0)
        source.next_groups(singles, 8)
        source.publish({}, 1)
        for version in (2, 3, 4):
            found = source.next_groups(groups, 8)
            assert [len(group) for group in found] == [4, 4]
            source.publish({}, version)
    finally:
        source.close()


def test_a_half_consumed_group_does_not_come_back_as_a_group() -> None:
    source = make_source(FakeCollector(slots=1), Plan(1, 4), staleness=3)
    try:
        source.publish({}, 0)
        source.next_groups(Plan(2, 1), 2)  # two of the four
        found = source.next_groups(Plan(1, 4), 4)
        assert [len(group) for group in found] == [4]
        assert found[0].group_id != "g0"
    finally:
        source.close()


# Checkpoints ------------------------------------------------------------------------------------


def test_what_is_not_committed_is_played_again() -> None:
    source = make_source(FakeCollector(), Plan(2, 2), staleness=1)
    try:
        source.publish({}, 0)
        found = source.next_groups(Plan(2, 2), 4)
        wait_for(lambda: source._admitted == 8)
        names = {int(group.group_id[1:]) for group in found}
        state = source.cursor_state()
        assert names <= set(state["replay"])
        assert state == {"position": 4, "replay": [0, 1, 2, 3]}
        source.commit()
        assert set(source.cursor_state()["replay"]) == {0, 1, 2, 3} - names
    finally:
        source.close()


def test_a_synchronous_source_commits_after_the_step() -> None:
    class Collector(FakeCollector):
        async def collect(self, specs, check=None):
            if self.break_at:
                raise Interrupted
            return await super().collect(specs, check)

    collector = Collector()
    source = SyncSource(collector, TaskCursor(TASKS, None, 0), lambda: False)  # type: ignore[arg-type]
    first = source.next_groups(Plan(2, 2), 4)
    source.commit()
    assert source.cursor_state() == {"position": 2, "replay": []}
    collector.break_at = 1
    with pytest.raises(Interrupted):
        source.next_groups(Plan(3, 2), 6)
    assert source.cursor_state() == {"position": 5, "replay": [2, 3, 4]}
    source.close()
    source.close()
    assert [group.group_id for group in first] == ["g0", "g1"]


# Faults -----------------------------------------------------------------------------------------


def test_a_broken_producer_stops_the_learner_with_its_cause() -> None:
    collector = FakeCollector(break_at=6)
    source = make_source(collector, Plan(4, 1), staleness=3)
    try:
        source.publish({}, 0)
        with pytest.raises(RuntimeError, match="sampling failed: the sampler broke") as caught:
            source.next_groups(Plan(16, 1), 16)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        source.publish({}, 1)  # whoever else waits on the thread is not left hanging
    finally:
        source.close()
    assert collector.policy.closed
    with pytest.raises(RuntimeError, match="sampling has stopped"):
        source.publish({}, 2)


def test_an_interrupt_ends_the_wait() -> None:
    stop = threading.Event()
    source = make_source(FakeCollector(), Plan(4, 1), 1, stop.is_set)
    try:
        source.publish({}, 0)
        source.next_groups(Plan(4, 1), 4)
        stop.set()
        with pytest.raises(Interrupted):
            source.next_groups(Plan(4, 1), 4)
        with pytest.raises(Interrupted):
            source.play(source.collector, TaskCursor(TASKS, None, 0).take(2, 1))
    finally:
        source.close()


# The real collector and policy ------------------------------------------------------------------


def real_source(tmp_path: Path, asynchronous: bool) -> tuple[SyncSource | AsyncSource, Setup]:
    config = make_config(GRPOConfig, run_dir=tmp_path)
    setup = Setup.around(config, World.open(config), toy_rounds.build_model())
    collector = setup.collector(setup.policy(), 1.0)
    cursor = setup.world.cursor(0)
    if not asynchronous:
        return SyncSource(collector, cursor, lambda: False), setup
    source = AsyncSource(
        collector, cursor, Plan(2, 4), staleness=0, version=0, interrupted=lambda: False
    )
    return source, setup


def test_no_staleness_through_the_thread_equals_sampling_in_turn(tmp_path: Path) -> None:
    played: dict[bool, list[TrajectoryGroup]] = {}
    for asynchronous in (False, True):
        source, setup = real_source(tmp_path, asynchronous)
        found = []
        try:
            weights = setup.lm.model.state_dict()
            for version in (0, 1, 2):
                source.publish(weights, version)
                found += source.next_groups(Plan(2, 4), 8)
                source.commit()
                weights = {name: value * 1.1 for name, value in weights.items()}
        finally:
            source.close()
        played[asynchronous] = found
    assert [g.group_id for g in played[True]] == [g.group_id for g in played[False]]
    for one, other in zip(played[True], played[False], strict=True):
        for left, right in zip(one, other, strict=True):
            assert (left.spec, left.score, left.stop_reason) == (
                right.spec, right.score, right.stop_reason,
            )  # fmt: skip
            assert len(left.turns) == len(right.turns)
            for a, b in zip(left.turns, right.turns, strict=True):
                np.testing.assert_array_equal(a.action_ids, b.action_ids)
                np.testing.assert_array_equal(a.versions, b.versions)
                np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)


def test_a_policy_that_fails_stops_the_run_with_its_cause(tmp_path: Path) -> None:
    source, setup = real_source(tmp_path, asynchronous=True)
    try:
        broken = {name: value * float("nan") for name, value in setup.lm.model.state_dict().items()}
        source.publish(broken, 0)
        with pytest.raises(RuntimeError, match="not finite"):
            source.next_groups(Plan(2, 4), 8)
    finally:
        source.close()


def wait_for(true) -> None:
    """Wait for what another thread is sure to do, however busy the machine is."""
    for _ in range(100_000):
        if true():
            return
        time.sleep(0.005)
    pytest.fail("it never happened")
