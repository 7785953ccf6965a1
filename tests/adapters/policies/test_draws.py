from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from adapters.policies.draws import draw, fold_key, uniforms  # noqa: E402


def test_uniforms_are_a_function_of_key_and_counter() -> None:
    keys = np.array([fold_key((1, n)) for n in range(500)], np.uint64)
    counters = np.arange(500, dtype=np.int64) % 7
    whole = uniforms(keys, counters)
    for at in (0, 3, 499):
        assert uniforms(keys[at : at + 1], counters[at : at + 1])[0] == whole[at]
    assert whole.min() >= 0
    assert whole.max() < 1
    assert len(set(whole.tolist())) == 500


def test_splitmix_reference_values() -> None:
    # The published generator's first outputs from state 0 and from state 1234567.
    first = uniforms(np.array([0], np.uint64), np.array([0]))[0]
    assert first == (0xE220A8397B1DCDAF >> 11) * 2.0**-53
    for counter, value in enumerate((6457827717110365317, 3203168211198807973)):
        got = uniforms(np.array([1234567], np.uint64), np.array([counter]))[0]
        assert got == (value >> 11) * 2.0**-53


def test_uniforms_are_uniform_along_keys_and_along_counters() -> None:
    n = 20_000
    for keys, counters in (
        (np.array([fold_key((n_,)) for n_ in range(n)], np.uint64), np.zeros(n, np.int64)),
        (np.full(n, fold_key((5,)), np.uint64), np.arange(n)),
    ):
        values = uniforms(keys, counters)
        counts = np.bincount((values * 20).astype(int), minlength=20)
        assert float(((counts - n / 20) ** 2 / (n / 20)).sum()) < 50  # chi-square, 19 degrees
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.03


def test_keys_differ_in_value_sign_size_order_and_length() -> None:
    keys = [
        (), (0,), (0, 0), (1,), (-1,), (1, 2), (2, 1), (12,), (2**64,), (2**64 + 1,), (1, 0),
        (2**200,),
    ]  # fmt: skip
    assert len({fold_key(key) for key in keys}) == len(keys)
    assert fold_key((np.int64(3),)) == fold_key((3,))


def test_draw_never_takes_an_impossible_token() -> None:
    logits = torch.full((4, 6), float("-inf"))
    logits[:, 2], logits[:, 4] = 0.0, 0.0
    numbers = np.array([0.0, 0.5, np.nextafter(0.5, 0), 1 - 2.0**-53])
    tokens, logp = draw(logits, np.ones(4), numbers)
    assert tokens.tolist() == [2, 4, 2, 4]
    assert logp.tolist() == pytest.approx([np.log(0.5)] * 4)


def test_draw_mixes_temperatures_in_a_batch() -> None:
    logits = torch.tensor([[0.0, 1.0, 3.0]]).repeat(3, 1)
    tokens, logp = draw(logits, np.array([0.0, 1.0, 2.0]), np.array([0.01, 0.01, 0.99]))
    assert tokens.tolist() == [2, 0, 2]
    plain, warm = torch.log_softmax(logits[0], -1), torch.log_softmax(logits[0] / 2, -1)
    assert logp.tolist() == pytest.approx([plain[2].item(), plain[0].item(), warm[2].item()])


def test_logits_that_are_not_numbers_show_in_the_log_probs() -> None:
    tokens, logp = draw(torch.full((1, 3), float("nan")), np.ones(1), np.array([0.3]))
    assert 0 <= int(tokens[0]) < 3
    assert torch.isnan(logp).all()
