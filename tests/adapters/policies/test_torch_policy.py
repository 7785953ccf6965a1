from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from small_models import BUILDERS, CONTEXT, VOCAB, make_lm, make_policy, play, reference, worst_gap  # noqa: E402

from adapters.policies.causal_lm import CausalLM  # noqa: E402
from adapters.policies.torch_policy import PolicyError  # noqa: E402
from agentgym.policy import Completion, FinishReason, Request, Sampling  # noqa: E402


@pytest.mark.parametrize("kind", list(BUILDERS))
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampled_logprobs_equal_a_plain_forward_pass(kind: str, temperature: float) -> None:
    lm = make_lm(kind)
    policy = make_policy(lm)
    assert policy._engine.keeps_cache
    results = play(policy, 6, 4, temperature)
    assert worst_gap(lm, results, temperature) < 2e-5
    assert policy.stats["reused_tokens"] > 100
    assert policy.stats.get("evictions", 0) == 0


@pytest.mark.parametrize("kind", list(BUILDERS))
def test_learner_recomputes_the_same_logprobs(kind: str) -> None:
    lm = make_lm(kind)
    results = play(make_policy(lm), 5, 4, 0.9)
    rows = []
    for episode in results:
        prompt, last = episode[-1]
        ids, mask, recorded = [*prompt, *last.token_ids], [], []
        for before, completion in episode:
            mask += [False] * (len(before) - len(mask)) + [True] * len(completion.token_ids)
            recorded += [0.0] * (len(before) - len(recorded)) + completion.logprobs.tolist()
        rows.append((ids, mask, recorded))
    width = max(len(row[0]) for row in rows)
    pad = lambda values, fill: [[*v, *[fill] * (width - len(v))] for v in values]  # noqa: E731
    ids = torch.tensor(pad([row[0] for row in rows], 0))
    mask = torch.tensor(pad([row[1] for row in rows], False))
    scores = lm.token_logprobs(ids, mask, temperature=0.9, entropy=True)
    assert scores.logprobs.requires_grad
    expected = torch.tensor(pad([row[2] for row in rows], 0.0))
    assert float((scores.logprobs.detach() - expected).abs().max()) < 1e-5
    assert scores.entropy is not None
    assert bool((scores.entropy[mask] > 0).all())
    assert bool((scores.entropy[~mask] == 0).all())


def test_few_rows_evict_sessions_and_change_no_probability() -> None:
    lm = make_lm()
    policy = make_policy(lm, max_slots=3)
    results = play(policy, 9, 4)
    assert policy.stats["evictions"] > 0
    assert worst_gap(lm, results) < 2e-5
    roomy = play(make_policy(lm, max_slots=16), 9, 4)
    assert [[c.token_ids for _, c in e] for e in results] == [
        [c.token_ids for _, c in e] for e in roomy
    ]


def test_same_requests_give_the_same_bits() -> None:
    lm = make_lm()
    first, second = (play(make_policy(lm, max_slots=4), 7, 4) for _ in range(2))
    for one, two in zip(first, second, strict=True):
        for (_, a), (_, b) in zip(one, two, strict=True):
            assert a.token_ids == b.token_ids
            assert a.logprobs.tobytes() == b.logprobs.tobytes()


def test_draws_depend_on_the_key_alone() -> None:
    lm = make_lm()
    prompt = [5, 6, 8, 9]
    sampling = Sampling(1.0, 12, (3,))

    async def alone(key):
        return await make_policy(lm).generate(Request(prompt, sampling, key))

    async def crowd():
        policy = make_policy(lm)
        jobs = [policy.generate(Request([n + 1] * 9, sampling, (9, n))) for n in range(6)]
        jobs.insert(3, policy.generate(Request(prompt, sampling, (1, 2))))
        return (await asyncio.gather(*jobs))[3]

    mine = asyncio.run(alone((1, 2)))
    assert asyncio.run(crowd()).token_ids == mine.token_ids
    assert asyncio.run(alone((2, 1))).token_ids != mine.token_ids


def test_draws_follow_the_distribution() -> None:
    lm = make_lm(scale=3.0)
    policy = make_policy(lm, max_slots=64)
    prompt, n = [4, 9, 2], 6000

    async def draws():
        jobs = (policy.generate(Request(prompt, Sampling(0.8, 1, (0,)), (k,))) for k in range(n))
        return await asyncio.gather(*jobs)

    counts = np.bincount([c.token_ids[0] for c in asyncio.run(draws())], minlength=VOCAB)
    with torch.no_grad():
        logits = lm.model(input_ids=torch.tensor([prompt])).logits[0, -1].double()
    expected = torch.softmax(logits / 0.8, -1).numpy() * n
    big = expected > 5
    chi2 = float((((counts - expected) ** 2) / expected)[big].sum())
    assert big.sum() > 10
    assert chi2 < big.sum() + 4 * np.sqrt(2 * big.sum())


def test_greedy_takes_the_most_likely_token_and_reports_its_probability_at_one() -> None:
    lm = make_lm()
    results = play(make_policy(lm), 4, 3, temperature=0.0)
    for episode in results:
        for prompt, completion in episode:
            with torch.no_grad():
                ids = torch.tensor([[*prompt, *completion.token_ids]])
                best = lm.model(input_ids=ids).logits[0].argmax(-1).tolist()
            assert list(completion.token_ids) == best[len(prompt) - 1 : -1]
    assert worst_gap(lm, results) < 2e-5


def test_a_prompt_that_departs_from_the_cache_is_recomputed_from_there() -> None:
    lm = make_lm()
    policy = make_policy(lm)
    sampling = Sampling(1.0, 4, (0,))

    async def run():
        await policy.generate(Request([1, 2, 3, 4, 5, 6], sampling, (0,), "s"))
        changed = await policy.generate(Request([1, 2, 3, 9, 5, 6, 7], sampling, (1,), "s"))
        again = await policy.generate(Request([1, 2, 3, 9, 5, 6, 7], sampling, (1,), "s"))
        return changed, again

    changed, again = asyncio.run(run())
    assert changed.details["reused_tokens"] == 3
    assert again.details["reused_tokens"] == 6
    assert again.token_ids == changed.token_ids
    gap = reference(lm, [1, 2, 3, 9, 5, 6, 7], changed.token_ids) - changed.logprobs
    assert np.abs(gap).max() < 2e-5


def test_finish_reasons() -> None:
    lm = make_lm()
    policy = make_policy(lm, max_context=20)

    def run(prompt: list[int], sampling: Sampling) -> Completion:
        return asyncio.run(policy.generate(Request(prompt, sampling, (4,))))

    full = run([1] * 20, Sampling(1.0, 4, (0,)))
    assert full.finish_reason is FinishReason.CONTEXT_OVERFLOW
    assert full.token_ids == ()
    none_of_these = Sampling(1.0, 4, (0,))
    length = run([1, 2, 3], none_of_these)
    assert (length.finish_reason, len(length.token_ids)) == (FinishReason.LENGTH, 4)
    stop = run([1, 2, 3], Sampling(1.0, 4, (length.token_ids[1],)))
    assert stop.finish_reason is FinishReason.STOP
    assert stop.token_ids == length.token_ids[: length.token_ids.index(length.token_ids[1]) + 1]
    cut = run([1] * 17, Sampling(1.0, 9, (96,)))
    assert (cut.finish_reason, len(cut.token_ids)) == (FinishReason.CONTEXT_OVERFLOW, 3)
    exact = run([1] * 17, Sampling(1.0, 3, (96,)))
    assert (exact.finish_reason, len(exact.token_ids)) == (FinishReason.LENGTH, 3)


def perturbed(lm: CausalLM, seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: value + 0.05 * torch.randn(value.shape, generator=generator)
        for name, value in lm.model.state_dict().items()
    }


def check_versions(results, models: dict[int, CausalLM]) -> set[int]:
    seen: set[int] = set()
    for episode in results:
        for prompt, completion in episode:
            for version in np.unique(completion.versions):
                own = completion.versions == version
                expected = reference(models[int(version)], prompt, completion.token_ids)
                assert np.abs(expected - completion.logprobs)[own].max() < 2e-5
                seen.add(int(version))
    return seen


def test_weights_change_in_the_middle_of_a_completion() -> None:
    lm = make_lm()
    models = {0: lm.clone()}
    for version in (1, 2, 3):
        models[version] = lm.clone()
        models[version].copy_weights(perturbed(lm, version))
    policy = make_policy(lm)
    prompts = [[n + 1, n + 2, n + 3] for n in range(5)]

    async def run():
        sampling = Sampling(1.0, 40, (96,))
        jobs = [
            asyncio.ensure_future(policy.generate(Request(p, sampling, (k,), str(k))))
            for k, p in enumerate(prompts)
        ]
        for version in (1, 2, 3):
            while policy.stats.get("passes", 0) < 8 * version:
                await asyncio.sleep(0)
            await policy.load_weights(models[version].model.state_dict(), version)
            assert policy.version == version
        return await asyncio.gather(*jobs)

    completions = asyncio.run(run())
    results = [[(p, c)] for p, c in zip(prompts, completions, strict=True)]
    assert check_versions(results, models) == {0, 1, 2, 3}
    assert any(len(np.unique(c.versions)) > 1 for c in completions)


def test_weights_from_another_thread_while_sampling() -> None:
    lm = make_lm()
    models = {0: lm.clone()}
    policy = make_policy(lm)
    for version in range(1, 6):
        models[version] = lm.clone()
        models[version].copy_weights(perturbed(lm, version))
    out: dict[str, Any] = {}
    producer = threading.Thread(target=lambda: out.update(results=play(policy, 12, 10)))
    producer.start()
    scratch = {name: value.clone() for name, value in lm.model.state_dict().items()}
    for version in range(1, 6):
        for name, value in models[version].model.state_dict().items():
            scratch[name].copy_(value)
        asyncio.run(policy.load_weights(scratch, version))
        for value in scratch.values():
            value.fill_(float("nan"))  # the caller's tensors are its own again
    producer.join(timeout=120)
    assert not producer.is_alive()
    assert policy.version == 5
    check_versions(out["results"], models)


def test_weights_that_do_not_fit_change_nothing() -> None:
    lm = make_lm()
    policy = make_policy(lm)
    state = dict(lm.model.state_dict())
    before = {name: value.clone() for name, value in state.items()}
    with pytest.raises(ValueError, match="1 unknown weights: extra"):
        asyncio.run(policy.load_weights(state | {"extra": torch.zeros(1)}, 1))
    with pytest.raises(
        ValueError, match=r"misshapen weights: model.norm.weight \(3,\) for \(32,\)"
    ):
        asyncio.run(policy.load_weights(state | {"model.norm.weight": torch.zeros(3)}, 1))
    del state["model.norm.weight"]
    with pytest.raises(ValueError, match=r"1 missing weights: model\.norm"):
        asyncio.run(policy.load_weights(state, 1))
    assert policy.version == 0
    assert all(torch.equal(before[n], v) for n, v in lm.model.state_dict().items())


def test_cancelling_frees_the_row_and_disturbs_nobody() -> None:
    lm = make_lm()
    policy = make_policy(lm, max_slots=2)
    endless = Sampling(1.0, 100, (96,))

    async def run():
        stuck = [
            asyncio.ensure_future(policy.generate(Request([k + 1] * 4, endless, (k,))))
            for k in range(4)
        ]
        while policy.stats.get("passes", 0) < 3:
            await asyncio.sleep(0)
        for task in stuck[:3]:  # two running, one waiting
            task.cancel()
        late = await policy.generate(Request([5, 6, 7], Sampling(1.0, 3, (96,)), (8,)))
        rest = await asyncio.gather(*stuck, return_exceptions=True)
        return late, rest

    late, rest = asyncio.run(run())
    assert [isinstance(r, asyncio.CancelledError) for r in rest] == [True, True, True, False]
    assert np.abs(reference(lm, [5, 6, 7], late.token_ids) - late.logprobs).max() < 2e-5
    assert not policy._engine.busy
    assert len(policy._engine._free) == 2


def test_an_error_in_the_engine_reaches_every_waiter(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = make_lm()
    policy = make_policy(lm, max_slots=2)
    sampling = Sampling(1.0, 5, (96,))
    original = lm.features
    calls = iter(range(100))

    def failing(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 2:
            raise MemoryError("no memory left for the test")
        return original(*args, **kwargs)

    monkeypatch.setattr(lm, "features", failing)

    async def run():
        jobs = (policy.generate(Request([k + 1], sampling, (k,), str(k))) for k in range(5))
        return await asyncio.gather(*jobs, return_exceptions=True)

    for result in asyncio.run(run()):
        assert isinstance(result, PolicyError)
        assert isinstance(result.__cause__, MemoryError)
        assert "no memory left" in str(result)
    monkeypatch.undo()
    after = asyncio.run(policy.generate(Request([1, 2], sampling, (1,), "0")))
    assert np.abs(reference(lm, [1, 2], after.token_ids) - after.logprobs).max() < 2e-5


def test_nan_weights_are_an_error_not_a_sample() -> None:
    lm = make_lm()
    policy = make_policy(lm)
    bad = {n: torch.full_like(v, float("nan")) for n, v in lm.model.state_dict().items()}
    asyncio.run(policy.load_weights(bad, 7))
    with pytest.raises(PolicyError, match=r"not finite \(weight version 7\)"):
        asyncio.run(policy.generate(Request([1, 2], Sampling(1.0, 2, (3,)), (0,))))


def test_bad_requests_are_refused() -> None:
    policy = make_policy(make_lm())
    sampling = Sampling(1.0, 2, (3,))
    with pytest.raises(ValueError, match="non-empty"):
        asyncio.run(policy.generate(Request([], sampling)))
    with pytest.raises(ValueError, match=r"token id 97 is outside the vocabulary 0\.\.96"):
        asyncio.run(policy.generate(Request([1, 97], sampling)))
    with pytest.raises(ValueError, match="token id -1"):
        asyncio.run(policy.generate(Request([-1, 5], sampling)))
    with pytest.raises(ValueError, match="stop token 400"):
        asyncio.run(policy.generate(Request([5], Sampling(1.0, 2, (400,)))))
    with pytest.raises(ValueError, match="max_context must lie in"):
        make_policy(make_lm(), max_context=CONTEXT + 1)
    with pytest.raises(ValueError, match="max_slots"):
        make_policy(make_lm(), max_slots=0)


def test_closing_ends_calls_in_flight() -> None:
    policy = make_policy(make_lm())

    async def run():
        job = asyncio.ensure_future(
            policy.generate(Request([1, 2], Sampling(1.0, 150, (96,)), (0,)))
        )
        while policy.stats.get("passes", 0) < 2:
            await asyncio.sleep(0)
        await policy.aclose()
        with pytest.raises(PolicyError, match="closed"):
            await job
        with pytest.raises(PolicyError, match="closed"):
            await policy.generate(Request([1, 2], Sampling(1.0, 2, (96,)), (0,)))

    asyncio.run(run())


def test_two_requests_of_one_session_take_turns() -> None:
    lm = make_lm()
    policy = make_policy(lm)
    sampling = Sampling(1.0, 5, (96,))

    async def run():
        jobs = (policy.generate(Request([1, 2, k], sampling, (k,), "same")) for k in range(3))
        return await asyncio.gather(*jobs)

    for k, completion in enumerate(asyncio.run(run())):
        assert (
            np.abs(reference(lm, [1, 2, k], completion.token_ids) - completion.logprobs).max()
            < 2e-5
        )


def test_a_loop_that_died_with_work_in_flight_is_no_obstacle() -> None:
    lm = make_lm()
    policy = make_policy(lm)

    async def abandon():
        request = Request([1], Sampling(1.0, 150, (96,)), (0,))
        left_behind = asyncio.ensure_future(policy.generate(request))
        for _ in range(6):
            await asyncio.sleep(0)
        assert not left_behind.done()

    asyncio.run(abandon())
    done = asyncio.run(policy.generate(Request([1, 2], Sampling(1.0, 2, (96,)), (0,))))
    assert len(done.token_ids) == 2


def test_models_without_a_cache_by_position_are_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = make_lm("llama")
    lm.model.config.layer_types = ["full_attention", "linear_attention"]
    policy = make_policy(lm)
    assert not policy._engine.keeps_cache
    results = play(policy, 5, 3)
    assert worst_gap(lm, results) < 2e-5
    assert policy.stats["reused_tokens"] == 0


def test_long_prompts_are_prefilled_in_pieces() -> None:
    lm = make_lm()
    policy = make_policy(lm, prefill_tokens=16)
    prompt = np.random.default_rng(0).integers(0, VOCAB, 150).tolist()

    async def run():
        jobs = (
            policy.generate(Request(prompt[: 150 - 40 * k], Sampling(1.0, 6, (96,)), (k,)))
            for k in range(3)
        )
        return await asyncio.gather(*jobs)

    for k, completion in enumerate(asyncio.run(run())):
        gap = reference(lm, prompt[: 150 - 40 * k], completion.token_ids) - completion.logprobs
        assert np.abs(gap).max() < 2e-5
