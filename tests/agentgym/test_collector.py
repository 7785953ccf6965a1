from __future__ import annotations

import asyncio
import itertools
import math

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Faulty, ScriptedPolicy, count_pauses, episodes, in_turn, keyed
from templates import char_tokenizer
from toy_text import ToyDoors

from agentgym.collector import Collector, CollectorConfig
from agentgym.info import StopReason
from agentgym.packing import pack
from agentgym.policy import Completion, FinishReason, Sampling
from agentgym.prompts import EnvPrompt, make_renderer
from agentgym.trajectory import EpisodeSpec, group_trajectories

TOKENIZER = char_tokenizer("compact")


def collector(answer=keyed, *, make=ToyDoors, mode="conversation", pauses=None, **config):
    """A collector over a scripted policy; ``max_context`` goes to the policy."""
    context = config.pop("max_context", 100_000)
    policy = ScriptedPolicy(TOKENIZER, answer, pauses or (lambda request: 0), context)
    renderer = make_renderer(mode, TOKENIZER, EnvPrompt("bare"))
    return Collector(make, renderer, policy, CollectorConfig(**config))


def collect(made: Collector, specs) -> list:
    played = asyncio.run(made.collect(specs))
    made.close()
    return played


def check_counters(made: Collector, played: list) -> None:
    """Everything that was started is accounted for."""
    count = made.counters
    assert count["started"] == count["episodes"] + count["dropped"]
    assert count["episodes"] == len(played) + count["undelivered"]
    stops = {name: n for name, n in count.items() if name.startswith("stop/")}
    assert sum(stops.values()) == count["episodes"]
    turns = [turn for item in played for turn in item.turns]
    if not count["dropped"] + count["undelivered"]:
        assert count["action_tokens"] == sum(turn.n_actions for turn in turns)
        assert count["prompt_tokens"] == sum(len(turn.context_ids) for turn in turns)
        for reason in StopReason:
            assert stops.get(f"stop/{reason}", 0) == sum(t.stop_reason is reason for t in played)
    assert len(made.policy.released) == len(set(made.policy.released)) == count["started"]
    assert not made.policy.in_flight


# What is recorded --------------------------------------------------------------------------------


def test_an_episode_is_recorded_as_it_happened():
    made = collector(in_turn)
    spec = EpisodeSpec("test-1", "test", 5, "group", 2)
    (played,) = collect(made, [spec])
    env = ToyDoors()
    observation, info = env.reset(seed=5, options={"task_id": "test-1"})
    sequence: list[int] = []
    for number, turn in enumerate(played.turns, 1):
        assert turn.observation == observation
        assert turn.action == turn.text == f"open {number}"
        assert turn.extends == (number > 1)
        assert TOKENIZER.decode(turn.action_ids.tolist()) == f"open {number}<eos>"
        assert TOKENIZER.decode(turn.context_ids.tolist()) == f"{observation}<act>"
        assert turn.finish_reason is FinishReason.STOP
        assert (turn.format_ok, turn.action_valid) == (True, True)
        sequence += turn.context_ids.tolist()
        request = made.policy.requests[number - 1]
        assert list(request.token_ids) == sequence
        assert request.key[-1] == number - 1
        written = made.policy.completion(f"open {number}", request)
        assert turn.logprobs.tolist() == written.logprobs.tolist()
        assert turn.versions.tolist() == [0] * turn.n_actions
        assert turn.trainable.all()
        sequence += turn.action_ids.tolist()
        observation, reward, terminated, _, info = env.step(turn.action)
        assert (turn.reward, turn.score) == (reward, info["score"])
    assert terminated
    assert (played.terminated, played.truncated) == (True, False)
    assert played.stop_reason is StopReason.SOLVED
    assert (played.success, played.score) == (True, 1.0)
    assert played.details == info["details"]
    assert (played.task_id, played.task_type, played.split) == ("test-1", "doors", "test")
    assert (played.goal, played.spec, played.error) == ("Find the prize.", spec, None)
    assert played.tail_ids.tolist() == []
    (row,) = pack([played])
    assert row.token_ids.tolist() == sequence
    check_counters(made, [played])


def test_a_task_may_be_drawn_by_the_environment():
    specs = [EpisodeSpec(None, split, 3, "g") for split in ("validation", None)]
    first, second = collect(collector(), specs)
    assert first.task_id == ToyDoors(split="validation").reset(seed=3)[1]["task_id"]
    assert (first.split, second.split) == ("validation", "train")


def test_truncation_keeps_what_would_have_been_read_next():
    (played,) = collect(collector(lambda request, text: "say hi"), episodes(1))
    assert (played.terminated, played.truncated) == (False, True)
    assert played.stop_reason is StopReason.MAX_TURNS
    assert len(played.turns) == 6
    assert TOKENIZER.decode(played.tail_ids.tolist()) == "You said hi.<act>"
    assert played.tail_extends


def test_windowed_prompts_start_anew_and_so_does_the_tail():
    made = collector(lambda request, text: "say hi", mode="windowed")
    (played,) = collect(made, episodes(1))
    assert not any(turn.extends for turn in played.turns)
    texts = [TOKENIZER.decode(turn.context_ids.tolist()) for turn in played.turns]
    assert "[Action 2: say hi]" in texts[3]
    assert "[Action 1: say hi]" not in texts[3]
    assert not played.tail_extends
    tail = TOKENIZER.decode(played.tail_ids.tolist())
    assert tail.startswith("Your task: Find the prize.\nYou have taken 6 actions; the last 2:")
    *rows, last = pack([played], tail=True)
    assert len(rows) == 6
    assert last.token_ids.tolist() == played.tail_ids.tolist()


def test_bad_form_and_inadmissible_actions_are_two_flags():
    said = {0: "open 99", 1: "say\nit", 2: "open 1 ", 3: ""}
    made = collector(lambda request, text: said.get(request.key[-1], "say hi"))
    (played,) = collect(made, episodes(1))
    flags = [(turn.format_ok, turn.action_valid) for turn in played.turns[:4]]
    assert flags == [(True, False), (False, False), (True, True), (False, False)] or (
        played.success  # the first door was the right one
        and flags == [(True, False), (False, False), (True, True)]
    )
    turns = played.turns
    assert made.counters["format_errors"] == sum(not turn.format_ok for turn in turns) > 0
    assert made.counters["invalid_actions"] == sum(not turn.action_valid for turn in turns) > 0


def test_an_answer_that_was_cut_off_has_no_form():
    made = collector(lambda request, text: "open 12345", sampling=Sampling(max_tokens=4))
    (played,) = collect(made, episodes(1))
    turn = played.turns[0]
    assert (turn.finish_reason, turn.text, turn.n_actions) == (FinishReason.LENGTH, "open", 4)
    assert not turn.format_ok
    assert not turn.action_valid


def completion(ids=(), reason=FinishReason.STOP, **changes) -> Completion:
    values = {"logprobs": np.zeros(len(ids), np.float32), "versions": np.zeros(len(ids), np.int32)}
    return Completion(tuple(ids), finish_reason=reason, **(values | changes))


def test_tokens_that_must_stay_out_of_the_loss_stay_out():
    ids = TOKENIZER.encode("open 1<eos>")
    made = collector(
        lambda request, text: completion(ids, trainable=[False] * 3 + [True] * (len(ids) - 3))
    )
    (played,) = collect(made, episodes(1))
    assert played.turns[0].trainable.tolist() == [False] * 3 + [True] * 4
    assert played.turns[0].trainable.dtype == bool


def test_an_answer_of_no_token_is_an_empty_action():
    (played,) = collect(collector(lambda r, t: completion((), FinishReason.LENGTH)), episodes(1))
    assert len(played.turns) == 6
    assert all(turn.action == "" and turn.n_actions == 0 for turn in played.turns)
    assert not played.usable


# Limits ------------------------------------------------------------------------------------------


def test_a_full_context_ends_the_episode():
    made = collector(lambda request, text: "say hello", max_context=60)
    (played,) = collect(made, episodes(1))
    assert played.stop_reason is StopReason.CONTEXT_OVERFLOW
    assert (played.terminated, played.truncated) == (False, True)
    assert 1 <= len(played.turns) < 6
    assert all(len(r.token_ids) + r.sampling.max_tokens <= 60 for r in made.policy.requests[-1:])
    assert played.tail_ids.tolist() == []
    assert made.counters["env_lost"] == 0


def test_a_prompt_that_never_fitted_makes_no_turn():
    (played,) = collect(collector(max_context=5), episodes(1))
    assert played.stop_reason is StopReason.CONTEXT_OVERFLOW
    assert played.turns == []


@pytest.mark.parametrize("limit", range(20, 90, 3))
@pytest.mark.parametrize("mode", ["conversation", "windowed"])
def test_the_token_budget_is_never_overdrawn(limit, mode):
    made = collector(lambda request, text: "say hello", mode=mode, max_episode_tokens=limit)
    (played,) = collect(made, episodes(1))
    used = sum(len(turn.context_ids) + turn.n_actions for turn in played.turns)
    assert used <= limit
    assert played.stop_reason is StopReason.MAX_TOKENS
    assert played.truncated
    if played.turns and mode == "conversation":
        last = TOKENIZER.decode(played.tail_ids.tolist())
        assert last.endswith("<act>")


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        (FinishReason.CONTEXT_OVERFLOW, StopReason.CONTEXT_OVERFLOW),
        (FinishReason.ABORT, StopReason.CANCELLED),
    ],
)
@pytest.mark.parametrize("ids", [(), (97, 98)])
def test_a_generation_that_did_not_end_ends_the_episode(reason, stop, ids):
    made = collector(lambda request, text: completion(ids, reason))
    (played,) = collect(made, episodes(1))
    assert (played.stop_reason, played.truncated) == (stop, True)
    assert [turn.action_ids.tolist() for turn in played.turns] == ([list(ids)] if ids else [])
    check_counters(made, [played])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"slots": 0}, "slots must be >= 1, got 0"),
        ({"turn_deadline": 0}, "turn_deadline must be positive or None, got 0"),
        ({"episode_deadline": -1.0}, "episode_deadline must be positive or None, got -1.0"),
        ({"max_episode_tokens": 0}, "max_episode_tokens must be positive or None, got 0"),
        ({"turn_deadline": math.nan}, "turn_deadline must be positive or None, got nan"),
    ],
)
def test_limits_that_make_no_sense(changes, words):
    with pytest.raises(ValueError, match=words):
        CollectorConfig(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": -1.0}, "temperature must be finite and >= 0, got -1.0"),
        ({"temperature": math.inf}, "temperature must be finite and >= 0, got inf"),
        ({"max_tokens": 0}, "max_tokens must be >= 1, got 0"),
    ],
)
def test_sampling_that_makes_no_sense(changes, words):
    with pytest.raises(ValueError, match=words):
        Sampling(**changes)


# Many at once ------------------------------------------------------------------------------------


def test_a_place_is_refilled_while_a_slow_episode_goes_on():
    """One episode takes for ever; the other place plays all the rest meanwhile."""
    slow = episodes(1)[0]
    rest = episodes(12, seed=100)

    def pauses(request):
        return 10_000 if request.session.startswith("group-0/0#1") else 1

    made = collector(in_turn, pauses=pauses, slots=2)

    async def play():
        return [item.spec async for item in made.stream([slow, *rest])]

    order = asyncio.run(play())
    made.close()
    assert order[-1] is slow
    assert order[:-1] == rest
    assert made.policy.most_in_flight == 2


@pytest.mark.parametrize("slots", [1, 3, 7, 100])
def test_as_many_are_in_flight_as_there_are_places(slots):
    made = collector(pauses=count_pauses, slots=slots)
    played = collect(made, episodes(20))
    assert made.policy.most_in_flight == min(slots, 20)
    assert made.counters["env_made"] == min(slots, 20)
    check_counters(made, played)


def test_the_source_is_read_only_as_places_are_free():
    read = []

    def endless():
        for number in itertools.count():
            read.append(number)
            yield EpisodeSpec("train-0", None, number, f"g{number}")

    made = collector(pauses=count_pauses, slots=4)

    async def play():
        stream = made.stream(endless())
        first = [(await anext(stream)).spec.seed for _ in range(10)]
        await stream.aclose()
        return first

    first = asyncio.run(play())
    assert len(set(first)) == 10
    assert 10 <= len(read) <= 10 + 2 * 4
    count = made.counters
    assert count["started"] == count["episodes"] + count["dropped"]
    assert count["episodes"] == 10 + count["undelivered"]
    assert not made.policy.in_flight
    assert len(made.policy.released) == count["started"]
    made.close()


def test_closing_the_stream_cancels_what_is_in_flight_and_keeps_sound_environments():
    made = collector(
        lambda request, text: "hang" if "1/" in request.session else keyed(request, "")
    )

    async def play():
        stream = made.stream(episodes(3))
        played = [await anext(stream), await anext(stream)]
        await stream.aclose()
        return played

    played = asyncio.run(play())
    assert made.policy.cancelled == 1
    assert made.counters["dropped"] == 1
    assert made.counters["env_lost"] == 0
    assert {item.spec.group_id for item in played} == {"group-0", "group-2"}
    check_counters(made, played)
    made.close()


def test_a_reader_that_is_cancelled_cancels_the_episodes():
    made = collector(lambda request, text: "hang", slots=3)

    async def play():
        task = asyncio.create_task(made.collect(episodes(9)))
        while len(made.policy.in_flight) < 3:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(play())
    assert (made.policy.cancelled, made.counters["dropped"]) == (3, 3)
    check_counters(made, [])
    made.close()


def test_an_asynchronous_source_may_make_the_collector_wait():
    made = collector(pauses=count_pauses, slots=2)
    log = []

    async def source(gate):
        yield episodes(1)[0]
        await gate.wait()
        for spec in episodes(3, seed=50):
            yield spec

    async def play():
        gate = asyncio.Event()
        async for item in made.stream(source(gate)):
            log.append(item.spec.seed)
            gate.set()

    asyncio.run(play())
    assert log[0] == 0
    assert sorted(log[1:]) == [50, 51, 52]
    assert made.counters["started"] == made.counters["episodes"] == 4
    made.close()


@pytest.mark.parametrize("kind", ["plain", "asynchronous"])
def test_an_error_of_the_source_reaches_the_reader(kind):
    made = collector(slots=2)

    def plain():
        yield from episodes(3)
        raise LookupError("no more tasks")

    async def asynchronous():
        for spec in plain():
            yield spec

    source = plain() if kind == "plain" else asynchronous()
    with pytest.raises(LookupError, match="no more tasks"):
        asyncio.run(made.collect(source) if kind == "plain" else drain(made.stream(source)))
    assert not made.policy.in_flight
    assert made.counters["started"] == made.counters["episodes"] + made.counters["dropped"]
    made.close()


async def drain(stream):
    return [item async for item in stream]


def test_the_result_is_in_the_order_asked_for_even_with_one_spec_many_times():
    spec = episodes(1)[0]
    specs = [spec, *episodes(5, seed=9), spec, spec]
    played = collect(collector(pauses=count_pauses, slots=3), specs)
    assert [item.spec for item in played] == specs
    assert len({id(item) for item in played}) == 8


def test_a_check_after_each_episode_may_end_the_collection():
    made = collector(slots=2)
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    async def play():
        with pytest.raises(KeyboardInterrupt):
            await made.collect(episodes(9), check)

    asyncio.run(play())
    assert len(calls) == 3
    assert made.counters["started"] < 9
    made.close()


# Randomness and order ----------------------------------------------------------------------------


def summary(played) -> list:
    return [
        (
            item.spec,
            item.stop_reason,
            item.score,
            item.success,
            item.tail_ids.tolist(),
            [
                (t.context_ids.tolist(), t.action_ids.tolist(), t.logprobs.tolist())
                for t in item.turns
            ],
        )
        for item in played
    ]


def test_two_runs_are_identical():
    runs = []
    for _ in range(2):
        made = collector(pauses=count_pauses, slots=5)
        runs.append((summary(collect(made, episodes(6, members=4))), dict(made.counters)))
    assert runs[0] == runs[1]


@given(order=st.permutations(range(12)), slots=st.integers(1, 8), divisor=st.integers(1, 9))
def test_what_is_played_depends_on_keys_not_on_arrival(order, slots, divisor):
    specs = episodes(4, members=3)
    plain = collect(collector(slots=1), specs)
    shuffled = collector(slots=slots, pauses=lambda request: sum(request.key) % divisor)
    played = collect(shuffled, [specs[index] for index in order])
    assert sorted(summary(played), key=repr) == sorted(summary(plain), key=repr)


@pytest.mark.parametrize("deadline", [None, 60.0])
def test_threads_change_nothing_but_the_order(deadline):
    made = collector(slots=3, turn_deadline=deadline)
    played = summary(collect(made, episodes(4, members=2)))
    assert played == summary(collect(collector(slots=1), episodes(4, members=2)))


def test_keys_tell_run_seed_task_member_and_turn_apart():
    def keys(specs, **config):
        made = collector(lambda request, text: "say hi", **config)
        collect(made, specs)
        return [request.key for request in made.policy.requests]

    specs = episodes(3, members=2)
    first = keys(specs)
    assert len(set(first)) == len(first) == 6 * 6
    assert sorted(keys(specs[::-1], slots=1)) == sorted(first)
    assert not set(keys(specs, run_seed=1)) & set(first)
    other_task = [EpisodeSpec("train-5", "train", spec.seed, "x", spec.member) for spec in specs]
    assert not set(keys(other_task)) & set(first)
    renamed = [EpisodeSpec(s.task_id, s.split, s.seed, "other", s.member) for s in specs]
    assert sorted(keys(renamed)) == sorted(first)


def test_groups_are_told_apart_by_their_ids():
    played = collect(collector(pauses=count_pauses, slots=4), episodes(5, members=3))
    groups = group_trajectories(played[::-1])
    assert sorted(group.group_id for group in groups) == [f"group-{n}" for n in range(5)]
    for group in groups:
        assert [item.spec.member for item in group] == [0, 1, 2]
        assert len({item.task_id for item in group}) == 1
        assert len({item.turns[0].observation for item in group}) == 1


def test_a_new_weight_version_shows_on_its_tokens():
    made = collector(lambda request, text: "say hi")

    async def play():
        await made.policy.load_weights({}, 4)
        return await made.collect(episodes(1))

    (played,) = asyncio.run(play())
    made.close()
    assert played.min_version == 4


# An environment of another origin ----------------------------------------------------------------


class Plain(gym.Env):
    """Knows nothing of this suite: empty info, no tasks."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 2
        return "start", {}

    def step(self, action):
        self.left -= 1
        return "on", 1, self.left == 0 and action == "win", self.left == 0, {}


@pytest.mark.parametrize(
    ("said", "reason"), [("win", StopReason.FAILED), ("lose", StopReason.MAX_TURNS)]
)
def test_a_plain_environment_can_be_played(said, reason):
    made = collector(lambda request, text: said, make=Plain)
    (played,) = collect(made, [EpisodeSpec(None, None, 0, "g")])
    assert played.stop_reason is reason
    assert played.total_reward == 2
    assert (played.task_id, played.task_type, played.score) == ("", "default", 0.0)


def test_faulty_environments_are_in_their_own_file():
    """See test_collector_faults.py; here only that a proper one is not touched by the wrapper."""
    plain = summary(collect(collector(), episodes(3)))
    assert summary(collect(collector(make=lambda: Faulty({})), episodes(3))) == plain
