"""Deadlines for calls into an environment."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import gymnasium as gym
import pytest

from agentgym.guarded import GuardedEnv
from agentgym.seats import EnvironmentHang
from agentgym.timed import TimedEnv, timed_maker


class Clock(gym.Env):
    """Notes the thread of each call; ``step`` and ``close`` wait for a gate, or raise."""

    observation_space = gym.spaces.Discrete(3)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, gate, notes):
        self.gate, self.notes = gate, notes
        self.note("make")

    def note(self, call):
        self.notes.append((call, threading.current_thread().name))

    def reset(self, *, seed=None, options=None):
        self.note("reset")
        return seed, dict(options or {})

    def step(self, action):
        self.note("step")
        if isinstance(action, BaseException):
            raise action
        if action == "wait":
            self.gate.wait(60)
        return action, 1.0, False, False, {}

    def close(self):
        if "close hangs" in self.notes:
            self.gate.wait(60)
        self.note("close")


@pytest.fixture
def gate():
    held = threading.Event()
    yield held
    held.set()


def threads():
    return sum(thread.name == "agentgym-timed-env" for thread in threading.enumerate())


def eventually(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_all_calls_are_made_on_one_thread(gate):
    notes = []
    env = TimedEnv(lambda: Clock(gate, notes), 60)
    assert env.reset(seed=3, options={"a": 1}) == (3, {"a": 1})
    assert env.step("x") == ("x", 1.0, False, False, {})
    assert env.unwrapped.notes is notes
    assert env.action_space.n == 3
    env.close()
    env.close()
    assert [call for call, _ in notes] == ["make", "reset", "step", "close"]
    assert {thread for _, thread in notes} == {"agentgym-timed-env"}
    with pytest.raises(RuntimeError, match="has been closed"):
        env.step("x")
    assert eventually(lambda: threads() == 0)


@pytest.mark.parametrize(
    "fault", [OSError("x"), TimeoutError("own"), asyncio.CancelledError("x"), SystemExit(3)]
)
def test_what_the_environment_raises_arrives(gate, fault):
    env = TimedEnv(lambda: Clock(gate, []), 60)
    with pytest.raises(type(fault)) as told:
        env.step(fault)
    assert told.value is fault
    assert env.step("x")[0] == "x"
    env.close()


def test_a_call_that_hangs_raises_and_the_environment_is_closed_later(gate):
    notes = []
    env = TimedEnv(lambda: Clock(gate, notes), 0.2)
    for _ in range(2):  # the second does not even begin
        with pytest.raises(EnvironmentHang, match=r"step\(\) did not return within 0\.2 s"):
            env.step("wait")
    env.close()
    assert [call for call, _ in notes] == ["make", "step"]
    gate.set()
    assert eventually(lambda: threads() == 0)
    assert [call for call, _ in notes] == ["make", "step", "close"]


def test_a_close_that_hangs_is_given_up(gate):
    notes = []
    env = TimedEnv(lambda: Clock(gate, notes), 0.2)
    notes.append("close hangs")
    env.close()
    assert notes[-1] == "close hangs"
    gate.set()
    assert eventually(lambda: threads() == 0)


def test_making_it_has_a_deadline_too(gate):
    notes = []

    def make():
        gate.wait(60)
        return Clock(gate, notes)

    with pytest.raises(EnvironmentHang, match="making the environment did not return"):
        TimedEnv(make, 0.2)
    gate.set()
    assert eventually(lambda: threads() == 0)
    assert [call for call, _ in notes] == ["make", "close"]


def test_one_that_cannot_be_made_leaves_no_thread():
    with pytest.raises(TypeError, match="nope"):
        timed_maker("WebShop-v0", nope=1)()
    with pytest.raises(ValueError, match="must be positive, got 0"):
        timed_maker("WebShop-v0", deadline=0)()
    with pytest.raises(ValueError, match="nobody can wait inf s for a call"):
        timed_maker("WebShop-v0", deadline=float("inf"))()
    assert eventually(lambda: threads() == 0)


def test_one_that_nobody_refers_to_is_closed(gate):
    notes = []
    env = TimedEnv(lambda: Clock(gate, notes), 60)
    env.step("x")
    del env
    gc.collect()
    assert eventually(lambda: threads() == 0)
    assert notes[-1][0] == "close"


def test_no_deadline_is_no_thread():
    env = timed_maker("WebShop-v0", deadline=None, difficulty="small")()
    assert threads() == 0
    env.close()


def test_a_guarded_environment_that_hangs_ends_its_episode(gate):
    notes = []
    env = GuardedEnv(lambda: TimedEnv(lambda: Clock(gate, notes), 0.2))
    env._env.unwrapped.reset = lambda **_: ("text", {})
    env.reset(seed=1)
    text, reward, terminated, truncated, info = env.step("wait")
    assert (text, reward, terminated, truncated) == ("", 0.0, False, True)
    assert info["stop_reason"] == "deadline"
    assert info["details"]["error"] == "step() did not return within 0.2 s"
    env.reset(seed=1)
    assert [call for call, _ in notes].count("make") == 2
    env.close()
