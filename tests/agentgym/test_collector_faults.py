"""One broken episode is that episode's outcome; the others go on."""

from __future__ import annotations

import asyncio
import math
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from scripted import Faulty, ScriptedPolicy, count_pauses, episodes, in_turn, keyed
from templates import char_tokenizer
from toy_text import ToyDoors

from agentgym.collector import Collector, CollectorConfig
from agentgym.info import StopReason
from agentgym.policy import Completion, FinishReason
from agentgym.prompts import EnvPrompt, make_renderer

TOKENIZER = char_tokenizer("compact")
DEADLINE = 1.5
BAD = "train-2"


def collector(make=ToyDoors, answer=in_turn, prompt=None, pauses=None, **config) -> Collector:
    policy = ScriptedPolicy(TOKENIZER, answer, pauses or (lambda request: 0))
    renderer = make_renderer("conversation", TOKENIZER, prompt or EnvPrompt("bare"))
    return Collector(make, renderer, policy, CollectorConfig(**config))


def collect(made: Collector, specs) -> list:
    played = asyncio.run(made.collect(specs))
    made.close()
    return played


def env_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "agentgym-env"]


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    """Whatever a test does, its threads end with it."""
    before = set(env_threads())
    yield
    for thread in set(env_threads()) - before:
        thread.join(30)
        assert not thread.is_alive()


def raising(error):
    def fault(env, result):
        raise error

    return fault


def returning(change):
    return lambda env, result: change(result)


def with_info(**values):
    return returning(lambda result: (*result[:-1], {**result[-1], **values}))


FAULTS = {
    "reset raises": ("reset", raising(OSError("disk")), "reset() raised OSError('disk')"),
    "step raises": ("step", raising(KeyError("room")), "step() raised KeyError('room')"),
    "step exits": ("step", raising(SystemExit(1)), "step() raised SystemExit(1)"),
    "step cancels": ("step", raising(asyncio.CancelledError()), "raised CancelledError()"),
    "step times out": ("step", raising(TimeoutError("db")), "step() raised TimeoutError('db')"),
    "reset returns nothing": ("reset", returning(lambda r: None), "reset() returned None"),
    "step returns four": ("step", returning(lambda r: r[:4]), "not the five values"),
    "reward is NaN": (
        "step",
        returning(lambda r: (r[0], math.nan, *r[2:])),
        "reward nan, not a finite number",
    ),
    "observation is bytes": ("step", returning(lambda r: (b"x", *r[1:])), "b'x', not a str"),
    "surrogate at reset": ("reset", returning(lambda r: ("\ud800", r[1])), "lone surrogate"),
    "info is a list": ("step", returning(lambda r: (*r[:4], [])), "info [], not a dict"),
    "unknown stop reason": ("step", with_info(stop_reason="bored"), "known reasons are solved"),
    "score is text": ("step", with_info(score="high"), "info['score'] 'high'"),
    "score is out of range": ("step", with_info(score=7), "not within [0, 1]"),
    "score at reset is NaN": ("reset", with_info(score=math.nan), "info['score'] nan"),
    "details is no dict": ("step", with_info(details=3), "info['details']=3, not a dict"),
    "success is an array": ("step", with_info(success=np.zeros(2)), "info['success']=array"),
    "task id is a surrogate": ("reset", with_info(task_id="\ud800"), "info['task_id'] with a lone"),
    "actions are numbers": ("step", with_info(admissible_actions=(1,)), "admissible_actions'"),
}


@pytest.mark.parametrize("deadline", [None, 60.0], ids=["inline", "thread"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_its_own_episode_alone(name, deadline):
    method, fault, words = FAULTS[name]
    envs = []

    def make():
        envs.append(Faulty({BAD: (method, fault)}))
        return envs[-1]

    made = collector(make, slots=3, turn_deadline=deadline, pauses=count_pauses)
    specs = episodes(8)
    played = collect(made, specs)
    assert [item.spec for item in played] == specs
    for item in played:
        if item.spec.task_id != BAD:
            assert item.stop_reason is StopReason.SOLVED
            assert item.error is None
            continue
        assert item.stop_reason is StopReason.INFRA_ERROR
        assert words in item.error
        assert not item.usable
        assert len(item.turns) == (method == "step")
    count = made.counters
    assert (count["episodes"], count["stop/infra_error"], count["stop/solved"]) == (8, 1, 7)
    assert (count["env_lost"], count["env_hung"], count["env_made"]) == (1, 0, len(envs))
    assert 2 <= len(envs) <= 4  # one a place, and one more where it was needed again
    assert all(env.closed for env in envs)
    assert len(made.policy.released) == 8


@pytest.mark.parametrize("deadline", [None, 60.0], ids=["inline", "thread"])
def test_failing_to_make_an_environment_is_one_episodes_fault(deadline):
    calls = []

    def make():
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError("too many")
        return ToyDoors()

    made = collector(make, slots=2, turn_deadline=deadline, pauses=lambda request: 3)
    played = collect(made, episodes(6))
    faults = [item for item in played if item.stop_reason is StopReason.INFRA_ERROR]
    assert [item.error for item in faults] == [
        "making the environment failed: MemoryError('too many')"
    ]
    assert made.counters["stop/solved"] == 5


def test_an_environment_that_fails_while_closing_hurts_no_one():
    class Clinging(ToyDoors):
        def close(self):
            raise RuntimeError("no")

    for deadline in (None, 60.0):
        made = collector(Clinging, slots=2, turn_deadline=deadline)
        assert all(item.success for item in collect(made, episodes(3)))


def test_a_prompt_that_chokes_on_an_environment_is_that_episodes_fault():
    class Picky(EnvPrompt):
        def next(self, observation, info):
            return observation + info["details"]["extra"]

    made = collector(prompt=Picky("bare"), answer=lambda request, text: "say hi")
    (played,) = collect(made, episodes(1))
    assert played.stop_reason is StopReason.INFRA_ERROR
    assert played.error == "the prompt could not be rendered: KeyError('extra')"


def test_an_environment_may_name_the_reason_itself():
    fault = returning(lambda r: (*r[:2], False, True, {**r[4], "stop_reason": "infra_error"}))
    made = collector(lambda: Faulty({BAD: ("step", fault)}))
    played = collect(made, episodes(4))
    assert [item.stop_reason for item in played].count(StopReason.INFRA_ERROR) == 1
    assert made.counters["env_lost"] == 0


# Hangs and deadlines ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["reset", "step"])
def test_an_environment_that_hangs_is_abandoned(method):
    release = threading.Event()

    def hang(env, result):
        release.wait(60)
        return result

    made = collector(
        lambda: Faulty({BAD: (method, hang)}), slots=2, turn_deadline=DEADLINE, pauses=count_pauses
    )
    try:
        played = collect(made, episodes(8))
        for item in played:
            if item.spec.task_id == BAD:
                assert item.stop_reason is StopReason.INFRA_ERROR
                assert item.error == f"{method}() did not return within {DEADLINE:g} s"
            else:
                assert item.success
        count = made.counters
        assert (count["env_lost"], count["env_hung"]) == (1, 1)
        assert count["env_made"] in (2, 3)  # the last episodes may not need two places any more
        assert len(env_threads()) == 1, "only the one that hangs is left"
    finally:
        release.set()


def test_making_an_environment_may_hang_too():
    release = threading.Event()
    calls = []

    def make():
        calls.append(1)
        if len(calls) == 1:
            release.wait(60)
        return ToyDoors()

    made = collector(make, slots=1, turn_deadline=DEADLINE)
    try:
        first, second = collect(made, episodes(2))
        assert first.stop_reason is StopReason.INFRA_ERROR
        assert second.success
    finally:
        release.set()


def test_closing_may_hang_and_is_counted():
    release = threading.Event()

    class Clinging(ToyDoors):
        def close(self):
            release.wait(60)

    made = collector(Clinging, slots=1, turn_deadline=DEADLINE)
    try:
        collect(made, episodes(1))
        assert made.counters["env_hung"] == 1
    finally:
        release.set()


def test_a_generation_that_takes_too_long_is_a_deadline():
    def answer(request, text):
        return "hang" if f"{BAD}:" in text else in_turn(request, text)

    made = collector(answer=answer, slots=2, turn_deadline=DEADLINE)
    played = collect(made, episodes(5))
    for item in played:
        if item.spec.task_id == BAD:
            assert (item.stop_reason, item.truncated) == (StopReason.DEADLINE, True)
            assert item.error == f"a generation took over {DEADLINE:g} s"
            assert item.turns == []
            assert not item.usable
        else:
            assert item.success
    assert made.policy.cancelled == 1
    count = made.counters
    assert (count["stop/deadline"], count["env_lost"], count["env_made"]) == (1, 0, 2)
    assert len(made.policy.released) == 5


@pytest.mark.parametrize("deadline", [None, 60.0], ids=["inline", "thread"])
def test_an_episode_has_a_deadline_of_its_own(deadline):
    def answer(request, text):
        if f"{BAD}:" not in text:
            return in_turn(request, text)
        return "say hi" if request.key[-1] < 2 else "hang"

    made = collector(answer=answer, slots=2, turn_deadline=deadline, episode_deadline=DEADLINE)
    played = collect(made, episodes(5))
    (late,) = [item for item in played if item.stop_reason is StopReason.DEADLINE]
    assert late.spec.task_id == BAD
    assert late.error == f"the episode took over {DEADLINE:g} s"
    assert len(late.turns) == 2
    assert late.usable
    assert made.counters["env_lost"] == 0


def test_an_episode_deadline_within_an_environments_call_loses_the_environment():
    release = threading.Event()

    def hang(env, result):
        release.wait(60)
        return result

    made = collector(
        lambda: Faulty({BAD: ("step", hang)}), turn_deadline=60.0, episode_deadline=DEADLINE
    )
    try:
        played = collect(made, episodes(4))
        assert [item.stop_reason for item in played].count(StopReason.DEADLINE) == 1
        assert (made.counters["env_lost"], made.counters["env_hung"]) == (1, 0)
    finally:
        release.set()


def test_threads_end_when_the_collector_is_closed():
    before = len(env_threads())
    made = collector(slots=4, turn_deadline=60.0)
    asyncio.run(made.collect(episodes(9)))
    assert len(env_threads()) == before + 4
    made.close()
    assert len(env_threads()) == before
    made.close()
    assert made.counters["env_hung"] == 0


def test_a_collector_outlives_its_event_loop_and_its_close():
    made = collector(slots=2, turn_deadline=60.0)
    for _ in range(3):
        assert all(item.success for item in asyncio.run(made.collect(episodes(4))))
    assert made.counters["env_made"] == 2
    made.close()
    assert len(collect(made, episodes(4))) == 4
    assert made.counters["env_made"] == 4


# The policy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [RuntimeError("out of memory"), TimeoutError("engine"), ValueError("bad")], ids=repr
)
@pytest.mark.parametrize(
    "limits", [{}, {"turn_deadline": 60.0, "episode_deadline": 60.0}], ids=["free", "limited"]
)
def test_an_error_of_the_policy_is_the_runs(error, limits):
    def answer(request, text):
        return error if f"{BAD}:" in text else "hang" if "train-3:" in text else "open 1"

    made = collector(answer=answer, slots=4, **limits)
    with pytest.raises(type(error), match=str(error)):
        asyncio.run(made.collect(episodes(8)))
    made.close()
    count = made.counters
    assert not made.policy.in_flight
    assert count["dropped"] >= 2
    assert count["started"] == count["episodes"] + count["dropped"]
    assert len(made.policy.released) == count["started"]
    if not limits:  # with threads, other episodes may be anywhere when the error comes
        assert made.policy.cancelled == 1
        assert count["env_lost"] == 0


def test_what_was_played_well_comes_before_the_error():
    """Two episodes and the error end in the same turn of the loop; the good ones are not lost."""

    def answer(request, text):
        return RuntimeError("engine") if f"{BAD}:" in text else ToyAnswers.right(text)

    made = collector(answer=answer, slots=3)
    played = []

    async def play():
        async for item in made.stream(episodes(6)):
            played.append(item)

    with pytest.raises(RuntimeError, match="engine"):
        asyncio.run(play())
    made.close()
    assert {item.spec.task_id for item in played} >= {"train-0", "train-1"}
    assert len(played) == made.counters["episodes"]
    assert made.counters["undelivered"] == 0


class ToyAnswers:
    """The right door of each training task under the seed that :func:`episodes` gives it."""

    @staticmethod
    def right(text: str) -> str:
        number = int(text.split("train-")[1].split(":")[0])
        env = ToyDoors()
        env.reset(seed=number, options={"task_id": f"train-{number}"})
        return env.reference()[0]


def completion(**changes) -> Completion:
    values = {
        "token_ids": (97, 98),
        "logprobs": np.zeros(2, np.float32),
        "versions": np.zeros(2, np.int32),
        "finish_reason": FinishReason.LENGTH,
    }
    return Completion(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"logprobs": np.zeros(1)}, ValueError, "the policy returned 1 logprobs for 2 tokens"),
        ({"versions": np.zeros(3)}, ValueError, "the policy returned 3 versions for 2 tokens"),
        ({"trainable": np.ones(1)}, ValueError, "the policy returned 1 trainable for 2 tokens"),
        ({"logprobs": np.array([0, np.nan])}, ValueError, "non-finite log-probs"),
        ({"logprobs": np.array([0, -np.inf])}, ValueError, "non-finite log-probs"),
        ({"finish_reason": "stop"}, TypeError, "finish_reason 'stop', not a FinishReason"),
    ],
)
def test_a_policy_that_breaks_its_contract_is_told_so(changes, error, words):
    made = collector(answer=lambda request, text: completion(**changes))
    with pytest.raises(error, match=words):
        asyncio.run(made.collect(episodes(1)))
    made.close()


def test_scores_of_a_run_with_faults_are_those_of_the_others():
    """A fault in one episode changes no number of another."""
    plain = {item.spec: item.score for item in collect(collector(answer=keyed), episodes(8))}
    make = SimpleNamespace(fault=raising(OSError())).fault
    faulty = collect(
        collector(lambda: Faulty({BAD: ("step", make)}), answer=keyed, slots=3), episodes(8)
    )
    for item in faulty:
        if item.spec.task_id != BAD:
            assert item.score == plain[item.spec]


@pytest.mark.slow
@pytest.mark.parametrize("deadline", [None, 60.0], ids=["inline", "thread"])
def test_a_long_run_with_faults_everywhere(deadline):
    """Every fault at once, by chance of the seed; all is counted and the sound episodes agree."""
    rng = np.random.default_rng(0)
    kinds = list(FAULTS.values())
    plan = {number: kinds[int(rng.integers(len(kinds)))] for number in range(0, 2000, 3)}
    specs = episodes(2000)

    class Chaos(Faulty):
        def reset(self, *, seed=None, options=None):
            method, fault, _ = plan.get(seed, ("", None, ""))
            self.faults = {options["task_id"]: (method, fault)}
            return super().reset(seed=seed, options=options)

    made = collector(lambda: Chaos({}), answer=keyed, slots=32, turn_deadline=deadline)
    played = collect(made, specs)
    sound = collect(collector(answer=keyed, slots=1), specs)
    assert [item.spec for item in played] == specs
    for item, plain in zip(played, sound, strict=True):
        if item.spec.seed in plan:
            assert item.stop_reason is StopReason.INFRA_ERROR
            assert plan[item.spec.seed][2] in item.error
        else:
            assert (item.stop_reason, item.score) == (plain.stop_reason, plain.score)
            assert [t.action for t in item.turns] == [t.action for t in plain.turns]
    count = made.counters
    assert count["stop/infra_error"] == count["env_lost"] == len(plan)
    assert count["started"] == count["episodes"] == 2000
    assert count["env_hung"] == 0
