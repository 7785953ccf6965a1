"""How the end of an engine's process is found out, with engines and processes that only pretend."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="deselected anyway")
pytestmark = pytest.mark.torch

from adapters.policies.vllm_life import OWNER, EngineDied, Launch, Life  # noqa: E402


class Llm:
    """An engine of which a test decides how it fares."""

    def __init__(self) -> None:
        self.errored = False
        self.answers = True
        self.shutdowns = self.pings = 0

    async def get_weight_version(self) -> str:
        self.pings += 1
        while not self.answers:
            await asyncio.sleep(0.01)
        return "0"

    def shutdown(self) -> None:
        self.shutdowns += 1
        self.errored = True


async def for_ever() -> None:
    await asyncio.Event().wait()


def run(play: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await play()

    asyncio.run(bounded())


def test_a_call_that_vllm_leaves_waiting_ends_with_the_process() -> None:
    async def play() -> None:
        llm = Llm()
        life = Life(llm, silence=60)
        assert life.running
        waiting = [asyncio.create_task(life.call(for_ever())) for _ in range(3)]
        await asyncio.sleep(0)
        llm.errored = True
        assert not life.running
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, EngineDied)
            assert "process has ended" in str(result)
        with pytest.raises(EngineDied):
            await life.call(for_ever())

    run(play)


def test_whoever_ends_it_first_ends_all_calls() -> None:
    """One call hears of the death from vLLM, and the engine is ended; the others must not wait."""

    async def play() -> None:
        life = Life(Llm(), silence=60)
        waiting = asyncio.create_task(life.call(for_ever()))
        await asyncio.sleep(0)
        life.end("the engine was stopped")
        with pytest.raises(EngineDied, match="was stopped"):
            await waiting

    run(play)


def test_errors_are_the_engines_own_while_it_runs_and_deaths_afterwards() -> None:
    async def play() -> None:
        llm = Llm()
        life = Life(llm, silence=60)

        async def refuse() -> None:
            raise ValueError("top_p is out of range")

        async def answer() -> int:
            return 3

        assert await life.call(answer()) == 3
        with pytest.raises(ValueError, match="top_p"):
            await life.call(refuse())
        llm.errored = True
        with pytest.raises(EngineDied, match="top_p"):
            await life.call(refuse())
        life.end("over")

    run(play)


def test_cancelling_a_caller_cancels_the_call() -> None:
    async def play() -> None:
        life = Life(Llm(), silence=60)
        heard: list[str] = []

        async def work() -> None:
            try:
                await for_ever()
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise

        caller = asyncio.create_task(life.call(work()))
        await asyncio.sleep(0.01)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await asyncio.sleep(0)
        assert heard == ["cancelled"]
        life.end("over")

    run(play)


def test_an_engine_that_does_not_answer_is_ended() -> None:
    async def play() -> None:
        llm = Llm()
        llm.answers = False
        life = Life(llm, silence=0.2)
        with pytest.raises(EngineDied, match=r"has not answered for 0\.2 s"):
            await life.call(for_ever())
        assert llm.shutdowns == 1
        assert not life.running

    run(play)


def test_an_engine_that_answers_in_time_is_left_alone() -> None:
    async def play() -> None:
        llm = Llm()
        life = Life(llm, silence=0.4)
        for _ in range(8):  # late each time, and twice as long in all as may be waited for once
            llm.answers = not llm.answers
            await asyncio.sleep(0.1)
        assert life.running
        assert llm.pings > 1
        life.end("over")

    run(play)


# The start of a process -------------------------------------------------------------------------


def start(seconds: float = 600.0) -> multiprocessing.process.BaseProcess:
    """A process that does nothing, under the name that vLLM gives its engines."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=time.sleep, args=(seconds,), name="EngineCore")
    process.start()
    return process


def until_it_ends(process: multiprocessing.process.BaseProcess) -> Any:
    """What vLLM does when its engine goes while it starts."""
    process.join()
    raise RuntimeError("Engine core initialization failed.")


@pytest.mark.parametrize("how", ["killed", "late", "given up"])
def test_a_start_that_is_cut_off_is_a_death(how: str) -> None:
    launch = Launch({}, None, deadline=0.5 if how == "late" else 600)
    made: list[multiprocessing.process.BaseProcess] = []

    def make() -> Any:
        made.append(start())
        if how == "killed":
            threading.Timer(0.5, os.kill, [made[0].pid or 0, signal.SIGKILL]).start()
        elif how == "given up":
            threading.Timer(0.3, launch.give_up, ["the engine was stopped"]).start()
        return until_it_ends(made[0])

    words = {"killed": "killed while it started", "late": "not ready after", "given up": "stopped"}
    with pytest.raises(EngineDied, match=words[how]):
        launch.run(make)
    assert made[0].exitcode == -signal.SIGKILL


def test_an_engine_that_ends_by_itself_while_it_starts_is_no_death() -> None:
    with pytest.raises(RuntimeError, match="initialization failed") as caught:
        Launch({}, None, deadline=600).run(lambda: until_it_ends(start(0.0)))
    assert not isinstance(caught.value, EngineDied)


def test_a_start_that_was_given_up_before_makes_nothing() -> None:
    launch = Launch({}, None, deadline=600)
    launch.give_up("the engine was stopped")
    with pytest.raises(EngineDied, match="was stopped"):
        launch.run(lambda: pytest.fail("it was made"))


def test_the_process_inherits_what_it_is_given_and_the_user_has_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENTGYM_SET", "by the user")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.delenv("AGENTGYM_UNSET", raising=False)
    names = ("AGENTGYM_SET", "AGENTGYM_UNSET", "CUDA_VISIBLE_DEVICES", OWNER)
    before = {name: os.environ.get(name) for name in names}
    wanted = {"AGENTGYM_SET": "by us", "AGENTGYM_UNSET": "by us"}
    launch = Launch(wanted, "2,3", 600)
    launch.run(lambda: {n: os.environ.get(n) for n in names})
    assert launch.llm == {
        "AGENTGYM_SET": "by the user", "AGENTGYM_UNSET": "by us", "CUDA_VISIBLE_DEVICES": "2,3",
        OWNER: str(os.getpid()),
    }  # fmt: skip
    assert launch.pids == frozenset()
    assert {name: os.environ.get(name) for name in names} == before


def test_an_exception_that_is_kept_from_the_start_does_not_keep_the_engine() -> None:
    class Engine:
        pass

    kept: list[Exception] = []

    def make() -> Engine:
        try:
            raise ImportError("a library that is not there")
        except ImportError as error:
            kept.append(error)  # with the frames of all callers
        return Engine()

    launch = Launch({}, None, 600)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(launch.run, make).result()
    engine = weakref.ref(launch.llm)
    launch.llm = None
    gc.collect()
    assert engine() is None
