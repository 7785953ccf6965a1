"""The policy over vLLM, with the real engine on CPU."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.vllm

torch = pytest.importorskip("torch", reason="deselected anyway")

import toy_rounds  # noqa: E402

from adapters.policies.causal_lm import CausalLM  # noqa: E402
from adapters.policies.tiny import TinyConfig, build_tiny  # noqa: E402
from adapters.policies.vllm_policy import VllmPolicy  # noqa: E402
from agentgym.policy import (  # noqa: E402
    Completion,
    FinishReason,
    PolicyError,
    Request,
    Sampling,
)

torch.set_num_threads(1)

CONTEXT = 512
# Longer than a block of the prefix cache, which has 128 tokens on CPU.
LONG = np.arange(300, dtype=np.int32) % 90 + 5


def model(seed: int = 0) -> CausalLM:
    """A tiny model with random weights.

    They are so large that what it says depends on what it read, and that another seed says
    something else; and not so large that one token takes all the probability (the entropy is about
    3.5 nats).
    """
    tokenizer = toy_rounds.build_model().tokenizer
    shape = TinyConfig(max_positions=CONTEXT, embedding_std=0.3, induction=False)
    lm = build_tiny(tokenizer, shape, seed=seed)
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in lm.model.named_parameters():
            if ".layers." in name and weight.dim() == 2:
                weight.normal_(0.0, 2.0 / weight.shape[1] ** 0.5, generator=draws)
    return lm


@pytest.fixture(scope="module")
def models() -> list[CausalLM]:
    return [model(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def policy(models: list[CausalLM]) -> Iterator[VllmPolicy]:
    made = VllmPolicy.around(models[0], max_context=CONTEXT, restarts=3)
    made.stop_token_ids = ()  # answers have the length asked for
    yield made
    asyncio.run(made.aclose())


@pytest.fixture(autouse=True)
def _first_weights(request: pytest.FixtureRequest) -> None:
    """Each test begins with the weights of the first model, as version 0."""
    if "policy" in request.fixturenames:
        made = request.getfixturevalue("policy")
        first = request.getfixturevalue("models")[0]
        asyncio.run(made.load_weights(first.model.state_dict(), 0))


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def request(
    prompt: Any = LONG[:40], tokens: int = 24, temperature: float = 1.0, key: int = 0,
    stops: tuple[int, ...] = (), session: str | None = None,
) -> Request:  # fmt: skip
    return Request(prompt, Sampling(temperature, tokens, stops), (7, key), session)


def scores(
    lm: CausalLM, prompt: Any, completion: Completion, temperature: float = 1.0
) -> np.ndarray:
    """Log-probs of a completion by the learner's own forward pass."""
    ids = [*map(int, prompt), *completion.token_ids]
    ids_BT = torch.tensor([ids])
    mask_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    mask_BT[:, len(prompt) :] = True
    with torch.no_grad():
        found = lm.token_logprobs(ids_BT, mask_BT, temperature=temperature).logprobs
    return found[mask_BT].numpy()


async def all_of(policy: VllmPolicy, requests: list[Request]) -> list[Completion]:
    return list(await asyncio.gather(*(policy.generate(item) for item in requests)))


# What comes back --------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.5, 1.7, 0.0])
def test_logprobs_are_those_of_the_distribution_sampled(
    policy: VllmPolicy, models: list[CausalLM], temperature: float
) -> None:
    prompts = [LONG[start : start + size] for start, size in ((0, 1), (3, 40), (9, 130), (0, 300))]
    asked = [
        request(prompt, temperature=temperature, key=n, stops=())
        for n, prompt in enumerate(prompts)
    ]
    for prompt, answer in zip(prompts, run(all_of(policy, asked)), strict=True):
        assert answer.finish_reason is FinishReason.LENGTH
        assert answer.logprobs.dtype == np.float32
        own = scores(models[0], prompt, answer, temperature or 1.0)
        np.testing.assert_allclose(answer.logprobs, own, atol=1e-4)
        assert answer.versions.tolist() == [0] * len(answer.token_ids)
        assert answer.trainable is None


def test_the_stop_token_ends_an_answer_and_belongs_to_it(policy: VllmPolicy) -> None:
    free = run(policy.generate(request(tokens=30)))
    assert free.finish_reason is FinishReason.LENGTH
    assert len(free.token_ids) == 30
    last = free.token_ids[7]
    stopped = run(policy.generate(request(tokens=30, stops=(int(last),))))
    assert stopped.finish_reason is FinishReason.STOP
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(last) + 1]


def test_equal_keys_give_equal_draws_whatever_else_runs(policy: VllmPolicy) -> None:
    alone = run(policy.generate(request(key=1)))
    crowd = run(all_of(policy, [request(key=key % 8) for key in range(32)]))
    for number, answer in enumerate(crowd):
        assert (answer.token_ids == alone.token_ids) == (number % 8 == 1)


def test_prompts_of_more_than_one_pass_are_answered_as_alone(policy: VllmPolicy) -> None:
    # Cut into chunks, the last of a pass would end the engine: its generator cannot go back.
    prompts = [np.roll(np.resize(LONG, 301), shift) for shift in range(40)]
    asked = [request(prompt, key=n, tokens=4) for n, prompt in enumerate(prompts)]
    crowd = run(all_of(policy, asked))
    assert [len(answer.token_ids) for answer in crowd] == [4] * 40
    assert run(policy.generate(asked[-1])).token_ids == crowd[-1].token_ids


def test_room_is_respected(policy: VllmPolicy) -> None:
    prompt = np.resize(LONG, CONTEXT - 5)
    assert len(run(policy.generate(request(prompt, tokens=50))).token_ids) == 5
    full = run(policy.generate(request(np.resize(LONG, CONTEXT))))
    assert full.finish_reason is FinishReason.CONTEXT_OVERFLOW
    assert full.token_ids == ()
    with pytest.raises(ValueError, match="non-empty"):
        run(policy.generate(request([])))


def test_tokens_that_the_model_does_not_have_end_no_engine(policy: VllmPolicy) -> None:
    vocabulary = policy._engines[0]._vocabulary
    for prompt, words in (
        ([3, vocabulary], f"token id {vocabulary} is outside the vocabulary 0..{vocabulary - 1}"),
        ([3, -1], "token id -1 is outside"),
        ([2**40], "is outside"),
        ([0.5], "flat sequence of token ids, got float64"),
        ([[1, 2]], "of shape"),
    ):
        with pytest.raises(ValueError, match=words):
            run(policy.generate(request(prompt)))
    assert run(policy.generate(request([vocabulary - 1], tokens=3))).token_ids
    assert policy.stats["restarts"] == 0


def test_a_later_turn_finds_the_earlier_ones_in_the_cache(policy: VllmPolicy) -> None:
    async def turns() -> Completion:
        first = await policy.generate(request(LONG, session="s"))
        again = [*map(int, LONG), *first.token_ids, 5, 6]
        return await policy.generate(request(again, session="s"))

    assert run(turns()).details["cached_tokens"] >= 256
    policy.release("s")
    policy.release("never seen")


def test_a_cancelled_call_leaves_the_engine_free(policy: VllmPolicy) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(policy.generate(request(tokens=450)))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len((await policy.generate(request(tokens=5))).token_ids) == 5

    run(cancel())


# New weights ------------------------------------------------------------------------------------


def test_new_weights_are_used_also_where_a_cache_knows_the_prompt(
    policy: VllmPolicy, models: list[CausalLM]
) -> None:
    before = run(policy.generate(request(LONG, temperature=0.0)))
    for version, lm in ((1, models[1]), (2, models[2]), (3, models[0])):
        run(policy.load_weights(lm.model.state_dict(), version))
        assert policy.version == version
        answer = run(policy.generate(request(LONG, temperature=0.0)))
        np.testing.assert_allclose(answer.logprobs, scores(lm, LONG, answer), atol=1e-4)
        assert set(answer.versions.tolist()) == {version}
        assert (answer.token_ids == before.token_ids) == (version == 3)


def test_weights_that_do_not_fit_change_nothing(policy: VllmPolicy, models: list[CausalLM]) -> None:
    state = dict(models[1].model.state_dict())
    name = next(name for name in state if "q_proj" in name)
    for bad, words in (
        ({**state, "extra": torch.zeros(1)}, "1 unknown weights: extra"),
        ({key: value for key, value in state.items() if key != name}, "1 missing weights"),
        ({**state, name: torch.zeros(1)}, "1 misshapen weights"),
        # They would stay in the engine's cache, and reach requests under later weights.
        ({**state, name: state[name] / 0}, "1 not finite weights"),
    ):
        with pytest.raises(ValueError, match=words):
            run(policy.load_weights(bad, 9))
    assert policy.version == 0
    answer = run(policy.generate(request()))
    np.testing.assert_allclose(answer.logprobs, scores(models[0], LONG[:40], answer), atol=1e-4)


def pace(policy: VllmPolicy) -> float:
    """Seconds in which the engine, once warm, says 24 tokens on this machine."""
    spent = []
    for _ in range(4):
        began = time.perf_counter()
        assert run(policy.generate(request())).token_ids
        spent.append(time.perf_counter() - began)
    return min(spent)


async def overtaken(
    policy: VllmPolicy, lm: CausalLM, mode: str, requests: list[Request], after: float
) -> list[Completion]:
    """Completions that an update to version 1 overtakes."""
    engine = policy._engines[0]
    engine.options = dataclasses.replace(engine.options, on_update=mode)
    try:
        tasks = [asyncio.create_task(policy.generate(item)) for item in requests]
        await asyncio.sleep(after)
        await policy.load_weights(lm.model.state_dict(), 1)
        return list(await asyncio.gather(*tasks))
    finally:
        engine.options = dataclasses.replace(engine.options, on_update="recompute")


def mixed(policy: VllmPolicy, models: list[CausalLM], mode: str) -> list[Completion]:
    """The same where some completion has tokens of both versions."""
    asked = [request(key=n, tokens=470) for n in range(4)]
    for share in (4, 2, 8, 1):  # 24 tokens are a twentieth of an answer
        answers = run(overtaken(policy, models[1], mode, asked, share * pace(policy)))
        if any(len(set(answer.versions.tolist())) == 2 for answer in answers):
            return answers
        run(policy.load_weights(models[0].model.state_dict(), 0))
    pytest.fail("no update fell into a generation")


def test_an_update_in_mid_generation_keeps_versions_and_logprobs_right(
    policy: VllmPolicy, models: list[CausalLM]
) -> None:
    """Every token's log-prob is that of a fresh forward pass of its recorded version."""
    for answer in mixed(policy, models, "recompute"):
        assert answer.finish_reason is FinishReason.LENGTH
        assert answer.trainable is None
        assert (np.diff(answer.versions) >= 0).all()
        for version in (0, 1):
            chosen = answer.versions == version
            own = scores(models[version], LONG[:40], answer)
            np.testing.assert_allclose(answer.logprobs[chosen], own[chosen], atol=1e-4)


def test_tokens_that_rest_on_old_keys_and_values_are_marked(
    policy: VllmPolicy, models: list[CausalLM]
) -> None:
    exact = True
    for answer in mixed(policy, models, "keep"):
        old = answer.versions == 0
        own = scores(models[0], LONG[:40], answer)
        np.testing.assert_allclose(answer.logprobs[old], own[old], atol=1e-4)
        if old.all():
            continue
        assert answer.trainable is not None
        np.testing.assert_array_equal(answer.trainable, old)
        new = scores(models[1], LONG[:40], answer)[~old]
        exact &= bool(np.allclose(answer.logprobs[~old], new, atol=1e-4))
    assert not exact, "the old keys and values were read"
    answer = run(policy.generate(request()))
    assert answer.versions.tolist() == [1] * 24
    np.testing.assert_allclose(answer.logprobs, scores(models[1], LONG[:40], answer), atol=1e-4)


def test_an_update_may_end_what_runs_or_wait_for_it(
    policy: VllmPolicy, models: list[CausalLM]
) -> None:
    asked = [request(key=n, tokens=470) for n in range(4)]
    for answer in run(overtaken(policy, models[1], "abort", asked, 4 * pace(policy))):
        assert answer.finish_reason is FinishReason.ABORT
        assert len(answer.token_ids) < 470
        own = scores(models[0], LONG[:40], answer)
        np.testing.assert_allclose(answer.logprobs, own, atol=1e-4)
    run(policy.load_weights(models[0].model.state_dict(), 0))
    for answer in run(overtaken(policy, models[1], "wait", asked, 4 * pace(policy))):
        assert answer.finish_reason is FinishReason.LENGTH
        assert set(answer.versions.tolist()) == {0}


# Death ------------------------------------------------------------------------------------------


def core(policy: VllmPolicy) -> int:
    """Process id of its engine."""
    (pid,) = policy.pids
    return pid


def assert_gone(pids: list[int]) -> None:
    """Processes have ended, or do so soon; one that is not waited for yet has ended."""

    def runs(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    for _ in range(1200):
        if not any(map(runs, pids)):
            return
        time.sleep(0.05)
    pytest.fail(f"of the processes {pids} some are still there")


def test_a_killed_engine_comes_back_and_nothing_is_lost(
    policy: VllmPolicy, models: list[CausalLM]
) -> None:
    run(policy.load_weights(models[1].model.state_dict(), 5))
    asked = [request(key=n, tokens=300, session=f"e{n}") for n in range(8)]
    undisturbed = run(all_of(policy, asked))
    pid = core(policy)
    after = 3 * pace(policy)

    async def killed() -> list[Completion]:
        tasks = [asyncio.create_task(policy.generate(item)) for item in asked]
        await asyncio.sleep(after)
        os.kill(pid, signal.SIGKILL)
        return list(await asyncio.gather(*tasks))

    before = policy.stats["restarts"]
    disturbed = run(killed())
    assert policy.stats["restarts"] == before + 1
    assert policy.stats["asked_again"] >= 1
    for one, other in zip(undisturbed, disturbed, strict=True):
        assert one.token_ids == other.token_ids
        assert set(other.versions.tolist()) == {5}
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
        own = scores(models[1], LONG[:40], other)
        np.testing.assert_allclose(other.logprobs, own, atol=1e-4)
    assert_gone([pid])


def test_an_engine_killed_in_an_update_comes_back_and_nothing_waits_for_ever(
    policy: VllmPolicy, models: list[CausalLM]
) -> None:
    """The requests hear of the death before the update does, which vLLM leaves waiting."""
    asked = [request(key=n, tokens=400, session=f"u{n}") for n in range(4)]
    pid, after = core(policy), 3 * pace(policy)

    async def killed() -> list[Completion]:
        tasks = [asyncio.create_task(policy.generate(item)) for item in asked]
        await asyncio.sleep(after)
        os.kill(pid, signal.SIGSTOP)  # it reads no more
        update = asyncio.create_task(policy.load_weights(models[2].model.state_dict(), 6))
        while policy._engines[0]._open.is_set():
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(240):
            await update
            return list(await asyncio.gather(*tasks))

    before = policy.stats["restarts"]
    answers = run(killed())
    assert policy.stats["restarts"] == before + 1
    for answer in answers:
        assert set(answer.versions.tolist()) == {6}
        own = scores(models[2], LONG[:40], answer)
        np.testing.assert_allclose(answer.logprobs, own, atol=1e-4)
    assert_gone([pid])


def test_an_engine_that_hangs_is_ended_and_another_takes_its_place(
    policy: VllmPolicy, models: list[CausalLM]
) -> None:
    undisturbed = run(policy.generate(request()))
    pid, life = core(policy), policy._engines[0]._life
    assert life is not None
    life._silence = 2.0
    os.kill(pid, signal.SIGSTOP)
    before = policy.stats["restarts"]
    answer = run(policy.generate(request()))
    assert answer.token_ids == undisturbed.token_ids
    assert policy.stats["restarts"] == before + 1
    assert_gone([pid])


# Several engines, and an environment ------------------------------------------------------------


def alfworld() -> tuple[CausalLM, Callable[..., Any]]:
    """A tiny model with the words of AlfWorld-v0 and random weights, and how to play it."""
    import gymnasium as gym

    import agentgym
    from adapters.policies.tokenization import build_tokenizer
    from agentgym.collector import Collector, CollectorConfig
    from agentgym.prompts import ConversationRenderer
    from agentgym.registry import load

    entry = agentgym.spec("AlfWorld-v0")
    words = load(entry.vocabulary, entry.extra)(**entry.tiny)
    lm = build_tiny(build_tokenizer(words, ["a"]), TinyConfig(max_positions=1024))
    prompt = load(entry.prompt, entry.extra)(action_format="bare")
    renderer = ConversationRenderer(lm.tokenizer, prompt)

    def collector(policy: VllmPolicy) -> Collector:
        limits = CollectorConfig(slots=64, sampling=Sampling(1.0, 12, lm.stop_token_ids()))
        return Collector(
            lambda: gym.make(entry.id, max_steps=6, **entry.tiny), renderer, policy, limits
        )

    return lm, collector


def test_64_episodes_at_a_time_over_two_engines() -> None:
    import gymnasium as gym

    from agentgym.evaluation import evaluation_specs
    from agentgym.info import StopReason

    lm, make = alfworld()
    env = gym.make("AlfWorld-v0", difficulty="small")
    ids = env.unwrapped.tasks.ids("train")
    specs = evaluation_specs(ids, "train", 64)
    made = VllmPolicy.around(lm, max_context=1024, engines=2)
    collector = make(made)
    seats: dict[str, set[int]] = {}
    seat = made._seat

    def noting(session: str | None) -> int:
        number = seat(session)
        seats.setdefault(str(session), set()).add(number)
        return number

    made._seat = noting  # type: ignore[method-assign]

    async def play() -> list[Any]:
        await made.load_weights(lm.model.state_dict(), 3)
        try:
            return await collector.collect(specs)
        finally:
            collector.close()

    try:
        played = run(play())
        processes = list(made.pids)
    finally:
        run(made.aclose())
    assert len(processes) == 2
    assert_gone(processes)
    assert len(played) == 64
    reasons = {item.stop_reason for item in played}
    assert reasons <= {StopReason.SOLVED, StopReason.MAX_TURNS, StopReason.CONTEXT_OVERFLOW}
    assert all(item.usable and item.min_version == 3 for item in played)
    # An episode stays with its engine, and both have half of them.
    assert len(seats) == 64
    assert all(len(engines) == 1 for engines in seats.values())
    assert sum(min(engines) for engines in seats.values()) == 32
    assert made._load == [0, 0]
    assert made.stats["completions"] == sum(len(item.turns) for item in played)
    ages = [turn for item in played for turn in item.turns][:40]
    assert all(turn.trainable.all() for turn in ages)
    for item in played[:8]:
        context: list[int] = []
        for turn in item.turns:
            context = [*context, *turn.context_ids] if turn.extends else [*turn.context_ids]
            answer = Completion(
                tuple(map(int, turn.action_ids)), turn.logprobs, turn.versions, turn.finish_reason
            )
            np.testing.assert_allclose(turn.logprobs, scores(lm, context, answer), atol=1e-4)
            context += list(turn.action_ids)


def test_engines_that_die_too_often_end_the_run_with_their_cause(
    policy: VllmPolicy, models: list[CausalLM]
) -> None:
    """The last test: nothing comes after it."""
    pid = core(policy)
    folders = [folder.path for folder in (*policy._folders, policy._own_folder) if folder]
    after = 3 * pace(policy)
    policy._restarts_left = 0
    restarts = policy.stats["restarts"]

    async def killed() -> None:
        tasks = [asyncio.create_task(policy.generate(request(tokens=400, key=n))) for n in range(4)]
        await asyncio.sleep(after)
        os.kill(pid, signal.SIGKILL)
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, PolicyError)
            assert f"died once more, after {restarts} restarts" in str(result)
        with pytest.raises(PolicyError, match="died"):
            await policy.generate(request())
        with pytest.raises(PolicyError, match="died"):
            await policy.load_weights(models[1].model.state_dict(), 1)
        await policy.aclose()
        await policy.aclose()
        with pytest.raises(PolicyError, match="closed"):
            await policy.generate(request())

    run(killed())
    assert len(folders) == 3
    assert not any(folder.exists() for folder in folders)
    assert_gone([pid])
