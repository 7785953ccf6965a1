"""Seats, deaths and updates of the policy over vLLM, with engines that only pretend.

What vLLM itself does is the business of ``test_vllm_policy.py``, which runs the real engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deselected anyway")
pytestmark = pytest.mark.torch

from safetensors.torch import load_file  # noqa: E402

from adapters.policies import vllm_policy, weight_files  # noqa: E402
from adapters.policies.vllm_engine import (  # noqa: E402
    EngineDied,
    EngineOptions,
    Weights,
)
from adapters.policies.vllm_policy import VllmPolicy  # noqa: E402
from agentgym.policy import (  # noqa: E402
    Completion,
    FinishReason,
    PolicyError,
    Request,
    Sampling,
)


class Pretended:
    """An engine that answers with its first weight; tests tell it when to die."""

    made: list[Pretended]

    def __init__(self, options: EngineOptions, devices: str | None = None) -> None:
        self.options, self.devices, self.number = options, devices, len(self.made)
        self.made.append(self)
        self.version, self.pids = -1, frozenset({1000 + self.number})
        self.weights: Weights | None = None
        self.weight = 0.0
        self.starts = self.stops = 0
        self.die_at: list[str] = []  # which calls kill it, once each
        self.fail_at: list[str] = []
        self.generations: list[Request] = []
        self.gate: asyncio.Event | None = None
        self.running = False

    def _step(self, what: str) -> None:
        if what in self.fail_at:
            raise RuntimeError(f"{what} does not work")
        if self.running and what in self.die_at:
            self.die_at.remove(what)
            self.running = False
        if not self.running:
            raise EngineDied(f"dead at {what}")

    async def start(self, weights: Weights) -> None:
        await asyncio.sleep(0)
        self.starts += 1
        self.running = True
        self._step("start")
        self._take(weights)

    def _take(self, weights: Weights) -> None:
        if weights.path is not None:
            self.weight = float(load_file(weights.path)["w"][0])
        self.version, self.weights = weights.version, weights

    def stop(self) -> None:
        self.stops += 1
        self.running = False

    def wake(self) -> None:
        if self.gate is not None:
            self.gate.set()

    async def generate(self, request: Request, stops: tuple[int, ...]) -> Completion:
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        self._step("generate")
        self.generations.append(request)
        details = {"cached_tokens": 0, "weight": self.weight, "stops": stops, "by": self.number}
        return Completion(
            (1, 2), np.zeros(2, np.float32), np.full(2, self.version, np.int32),
            FinishReason.STOP, None, details,
        )  # fmt: skip

    async def update(self, weights: Weights) -> None:
        await asyncio.sleep(0)
        self._step("update")
        self._take(weights)


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Pretended]]:
    Pretended.made = []
    monkeypatch.setattr(vllm_policy, "VllmEngine", Pretended)
    monkeypatch.setattr(vllm_policy, "check_vllm", lambda: "0.32.0")
    yield Pretended.made
    assert not [t for t in threading.enumerate() if t.name == "agentgym-vllm"]


def make(engines: int = 1, restarts: int = 2, **settings: Any) -> VllmPolicy:
    options = EngineOptions(model="m", max_context=64)
    return VllmPolicy(
        options, stop_token_ids=(9,), engines=engines, restarts=restarts,
        shapes={"w": (2,), "tied": (1,)}, tied=frozenset({"tied"}), **settings,
    )  # fmt: skip


def ask(session: str | None = None, stops: tuple[int, ...] = ()) -> Request:
    return Request([3, 4, 5], Sampling(1.0, 4, stops), (1,), session)


def weights(value: float) -> dict[str, Any]:
    return {"w": torch.tensor([value, 0.0])}


def run(policy: VllmPolicy, work: Any) -> Any:
    async def whole() -> Any:
        try:
            return await work
        finally:
            await policy.aclose()

    return asyncio.run(whole())


def test_a_session_stays_where_it_began(engines: list[Pretended]) -> None:
    policy = make(3)

    async def play() -> None:
        for _ in range(2):
            by = [await policy.generate(ask(f"s{n}")) for n in range(6)]
            assert [answer.details["by"] for answer in by] == [0, 1, 2, 0, 1, 2]
        policy.release("s1")
        policy.release("s1")
        policy.release("unknown")
        assert (await policy.generate(ask("new"))).details["by"] == 1
        assert policy.stats["completions"] == 13
        assert policy.stats["prompt_tokens"] == 39
        assert policy.pids == {1000, 1001, 1002}

    run(policy, play())


def test_seats_of_cancelled_calls_are_free_again(engines: list[Pretended]) -> None:
    """A session may be released before the engines' thread comes to its request."""
    policy = make(2)

    async def play() -> None:
        await policy.start()
        for number in range(300):
            task = asyncio.create_task(policy.generate(ask(f"s{number}")))
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            policy.release(f"s{number}")
        await policy.generate(ask())
        assert policy._seats == {}
        assert policy._load == [0, 0]

    run(policy, play())


def test_engines_start_with_the_first_request(engines: list[Pretended]) -> None:
    policy = make(2)
    assert [engine.starts for engine in engines] == [0, 0]

    async def play() -> None:
        answers = await asyncio.gather(*(policy.generate(ask()) for _ in range(5)))
        assert [engine.starts for engine in engines] == [1, 0]
        assert all(answer.details["stops"] == (9,) for answer in answers)
        assert (await policy.generate(ask(stops=(7,)))).details["stops"] == (7,)

    run(policy, play())


def test_weights_reach_every_engine_and_old_files_go(engines: list[Pretended]) -> None:
    policy = make(2)

    async def play() -> None:
        for version in (4, 5):
            await policy.load_weights(weights(version / 2), version)
            assert policy.version == version
            assert [(e.version, e.weight) for e in engines] == [(version, version / 2)] * 2
        left = [path.name for folder in policy._folders for path in folder.path.iterdir()]
        assert left == ["version-5.1.safetensors"]
        assert policy.stats["weight_updates"] == 2

    run(policy, play())
    assert not any(folder.path.exists() for folder in policy._folders)


def test_other_weights_of_the_same_version_are_loaded_too(engines: list[Pretended]) -> None:
    policy = make(2)

    async def play() -> None:
        for value in (0.5, 0.75):
            await policy.load_weights(weights(value), 0)
            assert [(e.version, e.weight) for e in engines] == [(0, value)] * 2
            answer = await policy.generate(ask())
            assert answer.details["weight"] == value

    run(policy, play())


def test_publications_do_not_mix(engines: list[Pretended]) -> None:
    """Engines end with one and the same of two that come at a time, and no file stays."""
    policy = make(2)

    async def play() -> None:
        await policy.start()
        for version in range(1, 6):
            both = (policy.load_weights(weights(value), version) for value in (0.25, 0.75))
            await asyncio.gather(*both)
            assert len({(engine.weight, engine.weights) for engine in engines}) == 1
            assert engines[0].weights == policy._weights
        left = [path for folder in policy._folders for path in folder.path.iterdir()]
        assert left == [policy._weights.path]

    run(policy, play())


def test_a_publisher_that_is_cancelled_leaves_no_engine_halfway(engines: list[Pretended]) -> None:
    policy = make()

    async def play() -> None:
        await policy.start()
        taken, steps = asyncio.Event(), list[str]()

        async def update(new: Weights) -> None:
            steps.append("begun")
            await asyncio.sleep(0.05)
            steps.append("done")
            await Pretended.update(engines[0], new)
            taken.set()

        engines[0].update = update  # type: ignore[method-assign]
        publishing = asyncio.create_task(policy.load_weights(weights(0.5), 1))
        while not steps:
            await asyncio.sleep(0.001)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        async with asyncio.timeout(10):
            while not taken.is_set():
                await asyncio.sleep(0.01)
        assert (await policy.generate(ask())).details["weight"] == 0.5

    run(policy, play())


def test_weights_go_where_there_is_room(
    engines: list[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared memory of a container is often smaller than the weights."""
    policy = make()
    free: dict[Path, int] = dict.fromkeys([folder.path for folder in policy._folders], 0)
    monkeypatch.setattr(
        weight_files.shutil, "disk_usage", lambda path: type("Usage", (), {"free": free[path]})
    )
    first, last = policy._folders[0].path, policy._folders[-1].path

    async def play() -> None:
        for version, (where, room) in enumerate([(first, 1 << 30), (last, 1 << 30)]):
            free.update(dict.fromkeys(free, 0))
            free[where] = room
            await policy.load_weights(weights(0.5), version)
            assert [path.parent for path in (policy._weights.path,) if path] == [where]
            assert engines[0].weight == 0.5
        free.update(dict.fromkeys(free, 0))
        with pytest.raises(OSError, match=r"0\.00 GiB have no room .* has 0\.00 GiB"):
            await policy.load_weights(weights(0.5), 9)
        assert policy.version == 1

    run(policy, play())


def test_temperatures_that_vllm_would_change_are_refused() -> None:
    policy = make()

    async def play() -> None:
        for temperature in (1e-3, 0.0099, 2.1):
            with pytest.raises(ValueError, match=f"0.01 to 2, or at 0 .*, not at {temperature:g}"):
                await policy.generate(Request([3], Sampling(temperature, 4), (1,)))
        for temperature in (0.0, 0.01, 1.0, 2.0):
            assert (await policy.generate(Request([3], Sampling(temperature, 4), (1,)))).token_ids

    run(policy, play())


def test_tied_weights_may_be_left_out_and_others_not() -> None:
    policy = make()

    async def play() -> None:
        shared = torch.zeros(2)
        await policy.load_weights({"w": shared, "tied": shared[:1]}, 1)
        for state, words in (
            ({"tied": torch.zeros(1)}, "1 missing weights: w"),
            ({"w": torch.zeros(3)}, r"misshapen weights: w \(3,\) for \(2,\)"),
            (weights(0) | {"x": torch.zeros(1)}, "unknown weights: x"),
            (weights(float("inf")), "1 not finite weights: w"),
        ):
            with pytest.raises(ValueError, match=words):
                await policy.load_weights(state, 2)
        assert policy.version == 1

    run(policy, play())


@pytest.mark.parametrize("when", ["generate", "update", "start"])
def test_an_engine_that_dies_comes_back_with_the_weights_in_use(
    when: str, engines: list[Pretended]
) -> None:
    policy = make(2)

    async def play() -> None:
        if when != "start":
            await policy.load_weights(weights(0.5), 3)
        engines[0].die_at = [when]
        if when == "update":
            await policy.load_weights(weights(0.75), 4)
        answers = await asyncio.gather(*(policy.generate(ask(f"s{n}")) for n in range(8)))
        assert [answer.details["by"] for answer in answers] == [0, 1] * 4
        expected = {"generate": 0.5, "update": 0.75, "start": 0.0}[when]
        assert {answer.details["weight"] for answer in answers} == {expected}
        assert [engine.starts for engine in engines] == [2, 1]
        assert policy.stats["restarts"] == 1
        # All that ran on it are asked for again, and each is answered once.
        assert policy.stats["completions"] == 8

    run(policy, play())


def test_too_many_deaths_end_the_run_for_everybody(engines: list[Pretended]) -> None:
    policy = make(2, restarts=2)

    async def play() -> None:
        await policy.load_weights(weights(1.0), 1)
        engines[0].die_at = ["generate"] * 3
        engines[1].gate = asyncio.Event()  # would wait for ever
        results = await asyncio.gather(
            *(policy.generate(ask(f"s{n}")) for n in range(4)), return_exceptions=True
        )
        failed = [result for result in results if isinstance(result, BaseException)]
        assert len(failed) >= 2
        for error in failed:
            assert isinstance(error, PolicyError)
            assert "died once more, after 2 restarts: dead at generate" in str(error)
        with pytest.raises(PolicyError, match="after 2 restarts"):
            await policy.generate(ask())
        with pytest.raises(PolicyError, match="after 2 restarts"):
            await policy.load_weights(weights(2.0), 2)

    run(policy, play())


def test_an_engine_that_dies_again_and_again_while_it_starts_ends_the_run(
    engines: list[Pretended],
) -> None:
    policy = make(restarts=2)
    engines[0].die_at = ["start"] * 3

    async def play() -> None:
        results = await asyncio.gather(
            *(policy.generate(ask(f"s{n}")) for n in range(3)), return_exceptions=True
        )
        for error in results:
            assert isinstance(error, PolicyError)
            assert "died once more, after 2 restarts: dead at start" in str(error)
        assert engines[0].starts == 3

    run(policy, play())


def test_an_engine_that_does_not_start_says_why(engines: list[Pretended]) -> None:
    policy = make()
    engines[0].fail_at = ["start"]

    async def play() -> None:
        for _ in range(2):
            with pytest.raises(PolicyError, match="does not start: start does not work"):
                await policy.generate(ask())
        assert engines[0].starts == 1

    run(policy, play())


def test_an_engine_that_refuses_weights_ends_the_run(engines: list[Pretended]) -> None:
    policy = make()

    async def play() -> None:
        await policy.load_weights(weights(1.0), 1)
        engines[0].fail_at = ["update"]
        with pytest.raises(PolicyError, match="refused the weights"):
            await policy.load_weights(weights(2.0), 2)
        with pytest.raises(PolicyError, match="refused the weights"):
            await policy.generate(ask())

    run(policy, play())


def test_closing_ends_what_runs_and_may_be_done_twice(engines: list[Pretended]) -> None:
    policy = make()

    async def play() -> None:
        await policy.start()
        engines[0].gate = asyncio.Event()
        running = asyncio.create_task(policy.generate(ask()))
        await asyncio.sleep(0.05)
        await policy.aclose()
        with pytest.raises(PolicyError, match="closed"):
            await running
        assert engines[0].stops == 1
        with pytest.raises(PolicyError, match="closed"):
            await policy.generate(ask())

    run(policy, play())


def test_it_serves_any_thread_and_loop(engines: list[Pretended]) -> None:
    policy = make()
    asyncio.run(policy.load_weights(weights(0.25), 2))
    found: list[float] = []

    def elsewhere() -> None:
        found.append(asyncio.run(policy.generate(ask())).details["weight"])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [0.25]
    assert asyncio.run(policy.generate(ask())).versions.tolist() == [2, 2]
    asyncio.run(policy.aclose())


def test_room_is_known_without_an_engine(engines: list[Pretended]) -> None:
    policy = make()

    async def play() -> None:
        full = await policy.generate(Request([1] * 64, Sampling()))
        assert full.finish_reason is FinishReason.CONTEXT_OVERFLOW
        with pytest.raises(ValueError, match="non-empty"):
            await policy.generate(Request([], Sampling()))
        assert engines[0].starts == 0

    run(policy, play())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engines": 0}, "engines must be >= 1"),
        ({"restarts": -1}, "restarts must be >= 0"),
        ({"engines": 2, "devices": ("0",)}, "1 devices are given for 2 engines"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(**settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_context", 1), ("slots", 0), ("on_update", "x"), ("memory", 1.5), ("cache_gib", 0),
        ("silence", 0.0), ("start_deadline", -1.0),
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        EngineOptions(**({"model": "m", "max_context": 9} | {name: value}))


def test_arguments_that_exactness_rests_on_are_not_to_be_changed() -> None:
    with pytest.raises(ValueError, match="must leave logprobs_mode alone"):
        EngineOptions(model="m", max_context=9, engine_args={"logprobs_mode": "raw_logprobs"})
    with pytest.raises(ValueError, match="must leave max_model_len alone"):
        EngineOptions(model="m", max_context=9, engine_args={"max_model_len": 8})
    EngineOptions(model="m", max_context=9, engine_args={"block_size": 64})


def test_a_model_made_here_is_saved_for_the_engines(tmp_path: Path) -> None:
    import toy_rounds

    lm = toy_rounds.build_model()
    policy = VllmPolicy.around(lm, max_context=64, slots=5, engines=2, devices=("0", "1"))
    folder = Path(policy.options.model)
    assert (folder / "model.safetensors").is_file()
    assert policy.options.slots == 5
    assert [engine.devices for engine in Pretended.made] == ["0", "1"]
    assert policy.stop_token_ids == lm.stop_token_ids()

    async def play() -> None:
        state = lm.model.state_dict()
        policy_weights = policy._check_state(state)
        assert policy_weights is None
        state.pop("lm_head.weight")
        policy._check_state(state)

    run(policy, play())
    assert not folder.exists()
