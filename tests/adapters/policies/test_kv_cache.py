"""The memory of keys and values: taken as it is needed, and bounded."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from small_models import BUILDERS, CONTEXT, make_lm, make_policy, play, worst_gap  # noqa: E402

from adapters.policies.kv_cache import default_cache_bytes  # noqa: E402


@pytest.mark.parametrize("kind", list(BUILDERS))
def test_a_cache_that_grows_gives_the_bits_of_one_that_was_large_at_once(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = make_lm(kind)
    large = make_policy(lm)
    at_once = play(large, 6, 4)
    monkeypatch.setattr("adapters.policies.kv_cache._FIRST_POSITIONS", 3)
    policy = make_policy(lm)
    assert policy._engine._cache.bytes == 0, "nothing is taken before it is needed"
    grown = play(policy, 6, 4)
    assert 0 < policy._engine._cache.bytes < large._engine._cache.bytes
    for (_, a), (_, b) in zip(chain(*at_once), chain(*grown), strict=True):
        assert a.token_ids == b.token_ids
        assert np.array_equal(a.logprobs, b.logprobs)


def test_the_memory_of_the_cache_is_bounded() -> None:
    lm = make_lm()
    token = 2 * 2 * 32 * 4  # two layers, keys and values, 32 numbers of four bytes
    row = token * (CONTEXT + 1)
    with pytest.warns(UserWarning, match=r"8 sequences of 160 tokens would take .*; 3 run at a t"):
        policy = make_policy(lm, cache_bytes=4 * row - 1)
    results = play(policy, 8, 4)
    assert policy._engine._cache.bytes <= 4 * row - 1
    assert worst_gap(lm, results) < 2e-5
    assert [[c.token_ids for _, c in e] for e in results] == [
        [c.token_ids for _, c in e] for e in play(make_policy(lm, max_slots=8), 8, 4)
    ]
    with pytest.raises(ValueError, match=r"one sequence of 160 tokens .* a smaller max_context"):
        make_policy(lm, cache_bytes=row - 1)
    with pytest.raises(ValueError, match="cache_bytes must be >= 1, got 0"):
        make_policy(lm, cache_bytes=0)


def test_the_memory_that_may_be_taken_is_half_of_what_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpu = torch.device("cpu")
    limit = tmp_path / "memory.max"
    monkeypatch.setattr("adapters.policies.kv_cache._LIMITS", (str(limit),))
    machine = default_cache_bytes(cpu)
    assert machine == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    limit.write_text("max\n")
    assert default_cache_bytes(cpu) == machine
    limit.write_text("1000000\n")
    assert default_cache_bytes(cpu) == 500_000
