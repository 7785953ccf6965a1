"""Sampling beside learning: its bounds, its result at bound 0, its speed, its faults."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_rounds
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_training import make_config, make_trainer

from adapters.policies.chat_text import END, ChatText
from agentgym.collector import Collector, CollectorConfig
from agentgym.policy import Completion, FinishReason, Request, Sampling
from agentgym.prompts import ConversationRenderer, EnvPrompt
from agentgym.trajectory import EpisodeSpec, Trajectory, TrajectoryGroup
from benchmarks.async_throughput import Rounds, SlowPolicy, Workload, measure
from benchmarks.simulated_time import Clock, SimulatedAsyncSource
from trainers.algorithm import Plan
from trainers.cursor import TaskCursor
from trainers.grpo import GRPO, GRPOConfig
from trainers.rollouts import AsyncSource
from trainers.run_dir import RunDir, read_status

# Throughput, in simulated time ------------------------------------------------------------------


def test_sampling_ahead_pays_where_turns_take_differently_long() -> None:
    """An ideal scheduler reaches 3.3 times the synchronous rate here; at least 2.5 is asked."""
    workload = Workload()
    together = measure(workload, 0, 12, warm_up=3)
    apart = measure(workload, 4, 12, warm_up=4)
    assert apart.rate / together.rate >= 2.5
    assert apart.rate <= workload.ideal * 1.1
    assert apart.oldest <= 4
    assert together.oldest == 0
    assert together.dropped == 0


def test_it_gains_nothing_where_there_is_nothing_to_gain() -> None:
    workload = Workload(sigma=0.0, fewest=8, most=8, learn=0.0, slots=16, batch=16)
    together, apart = (measure(workload, staleness, 12, warm_up=3) for staleness in (0, 4))
    assert together.rate == pytest.approx(workload.ideal, rel=0.01)
    assert 0.97 <= apart.rate / together.rate <= 1.05


def test_simulated_time_is_the_same_every_time() -> None:
    workload = Workload(slots=8, batch=8, seed=3)
    assert measure(workload, 2, 6).rate == pytest.approx(measure(workload, 2, 6).rate, rel=0.05)


# The bounds under random schedules --------------------------------------------------------------


class Counting(Rounds):
    """Tells when an episode begins."""

    def __init__(self, began: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.began = began

    def _begin(self, task_id: str) -> Any:
        self.began()
        return super()._begin(task_id)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    staleness=st.integers(0, 4),
    slots=st.integers(1, 9),
    group_size=st.sampled_from([1, 2, 4]),
    groups=st.integers(1, 3),
    sigma=st.sampled_from([0.0, 1.0, 2.5]),
    steps=st.lists(st.tuples(st.sampled_from([0.0, 0.1, 1.0, 30.0]), st.integers(0, 2)), min_size=2,
                   max_size=5),
)  # fmt: skip
def test_neither_bound_is_ever_exceeded(
    seed: int,
    staleness: int,
    slots: int,
    group_size: int,
    groups: int,
    sigma: float,
    steps: list[tuple[float, int]],
) -> None:
    """Latencies, lengths of steps and requests for more are drawn; the collector is the real one.

    Admission: with weights of version v, no more than ``(staleness + v + 1) N`` episodes have ever
    begun, those not counted that were dropped or asked for in addition. Consumption: no token is
    older than ``staleness`` versions.
    """
    workload = Workload(sigma=sigma, fewest=1, most=4, slots=slots, seed=seed)
    policy = SlowPolicy(workload)
    plan = Plan(groups, group_size)
    n = plan.trajectories
    state = {"begun": 0, "released": 0}
    broken: list[str] = []

    def began() -> None:
        state["begun"] += 1
        # The policy has new weights before the source counts on them, never after.
        most = (staleness + policy.version + 1) * n + state["released"] + source._dropped_stale
        if state["begun"] > most:
            broken.append(f"{state['begun']} begun, {most} allowed at version {policy.version}")

    renderer = ConversationRenderer(ChatText(), EnvPrompt("bare"))
    collector = Collector(
        lambda: Counting(began, fewest=1, most=4),
        renderer,
        policy,
        CollectorConfig(slots=slots, run_seed=seed),
    )
    cursor = TaskCursor(None, None, seed)
    source = SimulatedAsyncSource(
        Clock(), collector, cursor, plan, staleness=staleness, version=0, interrupted=lambda: False
    )
    consumed: list[tuple[str, int]] = []
    try:
        source.publish({}, 0)
        for version, (learn, more) in enumerate(steps):
            wanted = n
            for round_ in range(more + 1):
                if round_:  # the algorithm found too little in the batch
                    wanted = group_size
                    state["released"] += wanted
                    source.release(wanted)
                found = source.next_groups(plan, wanted)
                members = [member for group in found for member in group]
                assert len(members) == wanted
                assert all(len(group) == group_size for group in found)
                assert all(version - member.min_version <= staleness for member in members)
                consumed += [(member.spec.group_id, member.spec.member) for member in members]
            source.run(asyncio.sleep(learn))
            with source._lock:
                waiting = state["begun"] - len(consumed) - source._dropped_stale
                assert waiting <= (staleness + 1) * n
            source.publish({}, version + 1)
            source.commit()
        assert source._failure is None
    finally:
        source.close()
    assert not broken
    assert len(set(consumed)) == len(consumed), "no episode is consumed twice"


# Bound 0 is sampling and learning in turn -------------------------------------------------------

_LETTERS = "abcdef"


class TablePolicy:
    """A Markov chain over letters whose table are the weights; yields to others at random."""

    max_context = 10_000

    def __init__(self) -> None:
        self.version, self.table = -1, np.zeros((8, len(_LETTERS) + 1))

    def sample(self, request: Request) -> Completion:
        previous, ids, logprobs = int(request.token_ids[-1]) % 8, [], []
        for index in range(request.sampling.max_tokens):
            row = self.table[previous]
            chances = np.exp(row - row.max())
            chances /= chances.sum()
            rng = np.random.default_rng([*request.key, index])
            drawn = int(np.searchsorted(np.cumsum(chances), rng.random()).clip(max=len(row) - 1))
            logprobs.append(math.log(chances[drawn]))
            ids.append(END if drawn == len(_LETTERS) else ord(_LETTERS[drawn]))
            if ids[-1] == END:
                break
            previous = drawn
        stopped = ids[-1] == END
        return Completion(
            tuple(ids),
            np.array(logprobs, np.float32),
            np.full(len(ids), self.version, np.int32),
            FinishReason.STOP if stopped else FinishReason.LENGTH,
        )

    async def generate(self, request: Request) -> Completion:
        completion = self.sample(request)
        for _ in range(int(np.random.default_rng([*request.key, 99]).integers(0, 9))):
            await asyncio.sleep(0)
        return completion

    async def load_weights(self, state: Mapping[str, Any], version: int) -> None:
        await asyncio.sleep(0)
        self.table, self.version = state["table"].copy(), version

    def release(self, session: str) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        """Nothing is held."""


def learn(table: np.ndarray, members: list[Trajectory]) -> np.ndarray:
    """An update in which the order of trajectories shows in the last bit."""
    table = table.copy()
    for member in members:
        for turn in member.turns:
            for token, logprob in zip(turn.action_ids, turn.logprobs, strict=True):
                column = len(_LETTERS) if token == END else _LETTERS.index(chr(token))
                table[int(token) % 8, column] += (member.total_reward - 0.3) * float(logprob) / 7
    return table


def sequential(
    cursor: TaskCursor, plan: Plan, sampling: Sampling, steps: int
) -> tuple[list[list[Trajectory]], np.ndarray]:
    """What sampling and learning in turn is, one episode after another."""
    policy, renderer = TablePolicy(), ConversationRenderer(ChatText(), EnvPrompt("bare"))
    table, batches = policy.table, []
    for version in range(steps):
        asyncio.run(policy.load_weights({"table": table}, version))
        batch = []
        for spec in cursor.take(plan.tasks, plan.group_size):
            batch.append(one_episode(policy, renderer, spec, sampling))
        table = learn(table, batch)
        batches.append(batch)
    return batches, table


def one_episode(
    policy: TablePolicy, renderer: ConversationRenderer, spec: EpisodeSpec, sampling: Sampling
) -> Trajectory:
    from agentgym.collector import _stable_hash
    from agentgym.trajectory import Turn

    env = toy_rounds.ToyRounds()
    observation, info = env.reset(seed=spec.seed, options={"task_id": spec.task_id})
    dialogue = renderer.dialogue()
    prompt = dialogue.open(observation, info)
    trajectory = Trajectory(spec)
    while True:
        key = (0, spec.seed, _stable_hash(spec.task_id or ""), spec.member, len(trajectory.turns))
        answer = policy.sample(Request(prompt.ids, sampling, key))
        ids = np.array(answer.token_ids, np.int32)
        stopped = answer.finish_reason is FinishReason.STOP
        text = "".join(map(chr, ids[:-1] if stopped else ids))
        action = renderer.prompt.parse(text).action
        turn = Turn(
            prompt.context_ids, prompt.extends, ids, answer.logprobs, answer.versions,
            np.ones(len(ids), bool), answer.finish_reason, text, action,
        )  # fmt: skip
        trajectory.turns.append(turn)
        observation, turn.reward, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            return trajectory
        prompt = dialogue.reply(ids, text, action, observation, info)


@pytest.mark.parametrize("plan", [Plan(6, 1), Plan(2, 3)], ids=["singles", "groups"])
def test_bound_0_equals_a_sequential_reference_bit_for_bit(plan: Plan) -> None:
    sampling, tasks, steps = Sampling(1.0, 4), tuple(f"train-{n}" for n in range(12)), 4
    expected, table = sequential(TaskCursor(tasks, "train", 5), plan, sampling, steps)
    policy = TablePolicy()
    collector = Collector(
        toy_rounds.ToyRounds,
        ConversationRenderer(ChatText(), EnvPrompt("bare")),
        policy,
        CollectorConfig(slots=4, sampling=sampling),
    )
    source = AsyncSource(
        collector,
        TaskCursor(tasks, "train", 5),
        plan,
        staleness=0,
        version=0,
        interrupted=lambda: False,
    )
    own = np.zeros_like(table)
    try:
        for version in range(steps):
            source.publish({"table": own}, version)
            groups: list[TrajectoryGroup] = source.next_groups(plan, plan.trajectories)
            members = [member for group in groups for member in group]
            assert len(members) == len(expected[version])
            for found, wanted in zip(members, expected[version], strict=True):
                assert found.spec == wanted.spec
                assert len(found.turns) == len(wanted.turns)
                for one, other in zip(found.turns, wanted.turns, strict=True):
                    assert (one.text, one.action, one.reward, one.finish_reason) == (
                        other.text, other.action, other.reward, other.finish_reason,
                    )  # fmt: skip
                    for name in ("context_ids", "action_ids", "logprobs", "versions"):
                        left, right = getattr(one, name), getattr(other, name)
                        assert left.dtype == right.dtype
                        np.testing.assert_array_equal(left, right)
            own = learn(own, members)
            source.commit()
    finally:
        source.close()
    assert own.tobytes() == table.tobytes()
    assert not np.array_equal(own, np.zeros_like(own))


# Faults -----------------------------------------------------------------------------------------


def test_a_crash_of_the_producer_stops_the_run_with_its_cause(tmp_path: Path) -> None:
    config = make_config(GRPOConfig, run_dir=tmp_path / "run", staleness=2, steps=30)
    trainer = make_trainer(GRPO, config)
    engine = trainer.policy._engine
    step, count = engine.step, [0]

    def crash() -> Any:
        count[0] += engine.version >= 3
        if count[0] > 5:
            raise ZeroDivisionError("the sampler's board burns")
        return step()

    engine.step = crash
    with pytest.raises(RuntimeError, match="the sampler's board burns") as caught:
        trainer.run()
    causes: list[BaseException] = []
    error: BaseException | None = caught.value
    while error is not None:
        causes.append(error)
        error = error.__cause__
    assert isinstance(causes[-1], ZeroDivisionError)
    status = read_status(tmp_path / "run")
    assert status["state"] == "failed"
    assert "board burns" in status["detail"]
    with RunDir.open(tmp_path / "run", total_steps=30) as folder:
        (saved,) = folder.checkpoints()
    assert 3 <= saved.step < 30, "what was learned before is kept"


class Exiting(TablePolicy):
    """Wants to end the process at a given call."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    async def generate(self, request: Request) -> Completion:
        if self.at == "generate":
            raise SystemExit("the policy went away")
        return await super().generate(request)

    async def load_weights(self, state: Mapping[str, np.ndarray], version: int) -> None:
        if self.at == "load_weights":
            raise SystemExit("the policy went away")
        await super().load_weights(state, version)


@pytest.mark.parametrize("at", ["generate", "load_weights"])
@pytest.mark.parametrize("work", ["next_groups", "play", "ask"])
def test_a_policy_that_wants_to_exit_does_not_leave_the_learner_waiting(at: str, work: str) -> None:
    policy = Exiting(at)
    collector = Collector(
        toy_rounds.ToyRounds, ConversationRenderer(ChatText(), EnvPrompt("bare")), policy
    )
    asked = iter(range(200))
    source = AsyncSource(
        collector, TaskCursor(None, None, 5), Plan(2, 1), staleness=0, version=0,
        interrupted=lambda: next(asked, None) is None,
    )  # fmt: skip
    table = {"table": np.zeros_like(policy.table)}

    def use() -> None:
        source.publish(table, 0)
        if work == "next_groups":
            source.next_groups(Plan(2, 1), 2)
        elif work == "play":
            source.play(collector, [EpisodeSpec(None, None, 1, "g0", 0)])
        else:
            source.ask(Request(np.array([1], np.int32), Sampling(1.0, 3), (0,)))

    try:
        with pytest.raises(RuntimeError, match="the policy went away") as caught:
            use()
        assert isinstance(caught.value.__cause__, SystemExit)
        policy.at = ""
        source.publish(table, 1)  # the loop still does what it is asked
    finally:
        source.close()
    assert not source._thread.is_alive()


class Raising(TablePolicy):
    """Fails at its third answer."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error, self.asked = error, 0

    async def generate(self, request: Request) -> Completion:
        self.asked += 1
        if self.asked > 2:
            raise self.error
        return await super().generate(request)


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError("the engine has left"), KeyboardInterrupt("the engine has left"),
     GeneratorExit("the engine has left"), OSError("the engine has left")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_whatever_a_policy_raises_the_learner_hears_of(error: BaseException) -> None:
    """An error that asyncio takes for a wish to stop would leave it waiting for ever."""
    policy, asked = Raising(error), iter(range(200))
    collector = Collector(
        toy_rounds.ToyRounds, ConversationRenderer(ChatText(), EnvPrompt("bare")), policy
    )
    source = AsyncSource(
        collector, TaskCursor(None, None, 5), Plan(2, 1), staleness=1, version=0,
        interrupted=lambda: next(asked, None) is None,
    )  # fmt: skip
    table = {"table": np.zeros_like(policy.table)}
    try:
        source.publish(table, 0)
        with pytest.raises(RuntimeError, match="sampling failed: the engine has left") as caught:
            source.next_groups(Plan(64, 1), 64)
        assert caught.value.__cause__ is error
    finally:
        source.close()
    assert not source._thread.is_alive()
