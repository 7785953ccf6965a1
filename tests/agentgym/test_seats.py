from __future__ import annotations

import asyncio
import math
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import toy_text

from agentgym.info import StopReason
from agentgym.seats import (
    EnvironmentFault,
    EnvironmentHang,
    InlineSeat,
    ThreadSeat,
    check_reset,
    check_step,
)

GOOD = ("text", 1.0, False, True, {"score": 0.5})


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no repr")


def spoiled(place: int, value: object) -> tuple:
    return (*GOOD[:place], value, *GOOD[place + 1 :])


BAD_INFO = [
    ({"score": math.nan}, "info['score'] nan, not a finite number"),
    ({"score": "1"}, "info['score'] '1', not a finite number"),
    ({"score": None}, "info['score'] None, not a finite number"),
    ({"score": 1.5}, "info['score']=1.5, not within [0, 1]"),
    ({"score": -0.1}, "info['score']=-0.1, not within [0, 1]"),
    ({"stop_reason": "tired"}, "info['stop_reason']='tired'; known reasons are solved, failed"),
    ({"stop_reason": ["solved"]}, "info['stop_reason']=['solved']"),
    ({"stop_reason": np.zeros(2)}, "info['stop_reason']=array"),
    ({"action_valid": 1}, "info['action_valid']=1, not a bool"),
    ({"success": "yes"}, "info['success']='yes', not a bool"),
    ({"task_id": 7}, "info['task_id'] 7, not a str"),
    ({"goal": "\ud800"}, "info['goal'] with a lone surrogate"),
    ({"split": None}, "info['split'] None, not a str"),
    ({"details": []}, "info['details']=[], not a dict"),
    ({"admissible_actions": "go"}, "info['admissible_actions']='go', not a tuple of str or None"),
    ({"admissible_actions": ("a", 1)}, "info['admissible_actions']=('a', 1)"),
    (None, "info None, not a dict"),
    ([("score", 1)], "info [('score', 1)], not a dict"),
]

BAD_STEPS = [
    (None, "step() returned None, not the five values (observation, reward, terminated,"),
    ((), "step() returned ()"),
    (GOOD[:4], "not the five values"),
    ((*GOOD, 1), "not the five values"),
    (list(GOOD), "not the five values"),
    (Unprintable(), "<Unprintable whose repr() fails>"),
    (spoiled(0, b"text"), "observation b'text', not a str"),
    (spoiled(0, None), "observation None, not a str"),
    (spoiled(0, np.zeros(3)), "observation array([0., 0., 0.]), not a str"),
    (spoiled(0, "a\udc00"), "observation with a lone surrogate"),
    (spoiled(1, math.nan), "reward nan, not a finite number"),
    (spoiled(1, -math.inf), "reward -inf, not a finite number"),
    (spoiled(1, 10**400), "reward 1000"),
    (spoiled(1, "1.0"), "reward '1.0', not a finite number"),
    (spoiled(1, None), "reward None, not a finite number"),
    (spoiled(1, 1j), "reward 1j, not a finite number"),
    (spoiled(1, np.ones(2)), "reward array([1., 1.]), not a finite number"),
    (spoiled(2, 0), "terminated=0, not a bool"),
    (spoiled(3, None), "truncated=None, not a bool"),
    (spoiled(3, "False"), "truncated='False', not a bool"),
    *((spoiled(4, info), words) for info, words in BAD_INFO),
]


@pytest.mark.parametrize(("result", "words"), BAD_STEPS)
def test_nonsense_from_step_is_named(result, words):
    with pytest.raises(EnvironmentFault) as caught:
        check_step(result)
    assert words in str(caught.value)
    assert str(caught.value).startswith("step() returned ")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("text", "reset() returned 'text', not (observation, info)"),
        (("text",), "not (observation, info)"),
        (GOOD, "not (observation, info)"),
        ((3, {}), "reset() returned observation 3, not a str"),
        *((("text", info), words) for info, words in BAD_INFO),
    ],
)
def test_nonsense_from_reset_is_named(result, words):
    with pytest.raises(EnvironmentFault) as caught:
        check_reset(result)
    assert words in str(caught.value)


@pytest.mark.parametrize("reward", [1, True, 0.5, np.float32(0.5), np.int64(2), np.array(1.5)])
def test_good_results_pass_as_plain_values(reward):
    info = {"score": np.float64(1), "stop_reason": StopReason.SOLVED, "success": np.True_}
    result = check_step(("日本", reward, np.True_, False, info))
    assert result == ("日本", float(reward), True, False, info)
    assert [type(part) for part in result] == [str, float, bool, bool, dict]
    assert check_step(GOOD) == GOOD
    assert check_reset(("", {})) == ("", {})
    assert check_reset(("", {"stop_reason": "failed", "admissible_actions": None}))
    assert check_reset(("", {"admissible_actions": ["a"], "details": {}, "goal": "鍵"}))


SEATS = {
    "inline": InlineSeat,
    "thread": lambda make: ThreadSeat(make, 30.0),
    "thread without end": lambda make: ThreadSeat(make, math.inf),
}


@pytest.mark.parametrize("kind", SEATS)
def test_a_seat_plays_an_environment(kind):
    async def play():
        seat = SEATS[kind](toy_text.ToyDoors)
        observation, info = await seat.call("reset", seed=1, options={"task_id": "test-1"})
        assert info["task_id"] == "test-1"
        assert not seat.busy
        *_, after = await seat.call("step", "say hi")
        seat.close()
        return observation, after, seat.join()

    observation, after, closed = asyncio.run(play())
    assert "test-1" in observation
    assert after["turn"] == 1
    assert closed


@pytest.mark.parametrize("kind", SEATS)
@pytest.mark.parametrize(
    "error",
    [ValueError("bad"), SystemExit(3), asyncio.CancelledError(), TimeoutError(), StopIteration(4),
     Exception(Unprintable())],
)  # fmt: skip
def test_what_an_environment_raises_is_its_fault(kind, error):
    class Bad(toy_text.ToyDoors):
        def step(self, action):
            raise error

        def close(self):
            raise error

    async def play():
        seat = SEATS[kind](Bad)
        await seat.call("reset", seed=1)
        with pytest.raises(EnvironmentFault, match=r"step\(\) raised ") as caught:
            await seat.call("step", "x")
        assert not isinstance(caught.value, EnvironmentHang)
        assert caught.value.__cause__ is error
        seat.close()
        assert seat.join()

    asyncio.run(play())


@pytest.mark.parametrize("kind", SEATS)
def test_failing_to_make_one_is_told_from_failing_to_reset(kind):
    def make():
        raise OSError("no data")

    async def play():
        seat = SEATS[kind](make)
        try:
            await seat.call("reset")
        finally:
            seat.close()

    with pytest.raises(EnvironmentFault, match=r"making the environment failed: OSError\('no data"):
        asyncio.run(play())


def test_control_c_is_the_users():
    class Interrupted(toy_text.ToyDoors):
        def step(self, action):
            raise KeyboardInterrupt

    async def play():
        seat = InlineSeat(Interrupted)
        await seat.call("reset", seed=1)
        with pytest.raises(KeyboardInterrupt):
            await seat.call("step", "x")

    asyncio.run(play())


def hanging(release: threading.Event) -> toy_text.ToyDoors:
    class Hanging(toy_text.ToyDoors):
        closed = threading.Event()

        def step(self, action):
            release.wait(60)
            return super().step(action)

        def close(self):
            self.closed.set()

    return Hanging


def test_a_hang_is_abandoned_and_cleans_up_when_it_ends():
    release = threading.Event()
    kind = hanging(release)

    async def play():
        seat = ThreadSeat(kind, 0.3)
        await seat.call("reset", seed=1)
        with pytest.raises(EnvironmentHang, match=r"step\(\) did not return within 0\.3 s"):
            await seat.call("step", "x")
        assert seat.busy
        seat.close()
        assert not seat.join()
        assert not kind.closed.is_set()
        return seat

    seat = asyncio.run(play())
    release.set()  # the loop that waited is gone by now
    seat._thread.join(30)
    assert kind.closed.is_set()
    assert not seat.busy


def test_a_cancelled_call_leaves_the_seat_busy_until_it_returns():
    release = threading.Event()

    async def play():
        seat = ThreadSeat(hanging(release), 60)
        await seat.call("reset", seed=1)
        call = asyncio.create_task(seat.call("step", "x"))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
        assert seat.busy
        release.set()
        seat.close()
        assert seat.join()
        assert not seat.busy

    asyncio.run(play())


def test_threads_do_not_keep_the_program_alive():
    seat = ThreadSeat(lambda: SimpleNamespace(close=lambda: None), 1.0)
    assert seat._thread.daemon
    assert seat._thread.name == "agentgym-env"
    seat.close()
    assert seat.join()
