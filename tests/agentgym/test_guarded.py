from __future__ import annotations

import asyncio

import numpy as np
import pytest
from scripted import Faulty

from agentgym.guarded import GuardedEnv


def broken(_env, _result):
    raise OSError("no disk")


def test_a_fault_ends_its_episode_and_the_next_one_has_a_new_environment():
    made = []

    def make_env():
        made.append(Faulty({"train-1": ("step", broken)}))
        return made[-1]

    guarded = GuardedEnv(make_env)
    guarded.reset(seed=0, task_id="train-1")
    text, reward, terminated, truncated, info = guarded.step("say a")
    assert (text, reward, terminated, truncated) == ("", 0.0, False, True)
    assert info["stop_reason"] == "infra_error"
    assert info["task_id"] == "train-1"
    assert guarded.error == info["details"]["error"] == "OSError: no disk"
    assert made[0].closed
    with pytest.raises(RuntimeError, match="call reset"):
        guarded.step("say b")
    text, info = guarded.reset(seed=0, task_id="train-2")
    assert "train-2" in text
    assert guarded.error is None
    assert len(made) == 2


def test_a_fault_in_reset_is_told_by_the_first_step():
    guarded = GuardedEnv(lambda: Faulty({"train-1": ("reset", broken)}))
    text, info = guarded.reset(seed=0, task_id="train-1")
    assert (text, info["stop_reason"]) == ("", "infra_error")
    *_, truncated, info = guarded.step("say a")
    assert truncated
    assert info["stop_reason"] == "infra_error"
    with pytest.raises(RuntimeError, match="call reset"):
        guarded.step("say b")


def test_nonsense_is_a_fault_too():
    guarded = GuardedEnv(lambda: Faulty({"train-1": ("step", lambda *_: ("text", 1.0))}))
    guarded.reset(seed=0, task_id="train-1")
    *_, info = guarded.step("say a")
    assert "not the five values" in info["details"]["error"]


def test_the_callers_mistakes_are_raised():
    guarded = GuardedEnv(lambda: Faulty({}))
    with pytest.raises(RuntimeError, match="call reset"):
        guarded.step("say a")
    with pytest.raises(KeyError, match="unknown task_id 'nowhere'"):
        guarded.reset(task_id="nowhere")
    with pytest.raises(ValueError, match="unknown split 'nowhere'"):
        guarded.reset(split="nowhere")


def test_closing_twice_and_playing_on_afterwards_is_possible():
    made = []

    def make_env():
        made.append(Faulty({}))
        return made[-1]

    guarded = GuardedEnv(make_env)
    guarded.close()
    guarded.close()
    assert made[0].closed
    guarded.reset(seed=0)
    assert len(made) == 2


def test_a_seed_of_numpy_is_a_seed():
    guarded = GuardedEnv(lambda: Faulty({}))
    plain = guarded.reset(seed=3, task_id="train-1")
    assert guarded.reset(seed=np.int64(3), task_id="train-1") == plain
    assert guarded.error is None


@pytest.mark.parametrize(("seed", "kind"), [(-1, ValueError), (1.5, TypeError), ("1", TypeError)])
def test_what_is_no_seed_is_the_callers_mistake(seed, kind):
    guarded = GuardedEnv(lambda: Faulty({}))
    with pytest.raises(kind):
        guarded.reset(seed=seed)
    guarded.reset(seed=1)
    assert guarded.error is None


def test_a_cancellation_of_its_own_is_a_fault():
    def cancel(_env, _result):
        raise asyncio.CancelledError

    guarded = GuardedEnv(lambda: Faulty({"train-1": ("step", cancel)}))
    guarded.reset(seed=0, task_id="train-1")
    assert guarded.step("say a")[4]["stop_reason"] == "infra_error"


def test_an_info_that_lacks_keys_is_completed():
    def bare(_env, result):
        return (*result[:-1], {"score": 0.5})

    guarded = GuardedEnv(lambda: Faulty({"train-1": ("step", bare)}))
    guarded.reset(seed=0, task_id="train-1")
    info = guarded.step("say a")[4]
    assert (info["score"], info["goal"], info["details"]) == (0.5, "", {})
    guarded.step("say b")


@pytest.mark.parametrize(
    ("flags", "success", "reason"),
    [((True, False), True, "solved"), ((True, False), False, "failed"),
     ((False, True), False, "max_turns")],
)  # fmt: skip
def test_an_episode_that_ends_has_a_reason(flags, success, reason):
    def end(_env, result):
        return (*result[:2], *flags, {"success": success})

    guarded = GuardedEnv(lambda: Faulty({"train-1": ("step", end)}))
    guarded.reset(seed=0, task_id="train-1")
    assert guarded.step("say a")[4]["stop_reason"] == reason
