"""How many rollouts are guided, and for how long: worked numbers, and slow references."""

import itertools
import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.advantages.guidance import (
    GuidanceSchedule,
    LengthController,
    exact,
    guided_count,
    linear_length,
    scaled_length,
)

RATES = [0.20, 0.30, 0.50, 0.40, 0.40, 0.20, 0.30, 0.30, 0.60]


def lengths(rates, **settings) -> list[int]:
    """Lengths used in each step, and the one that would come next."""
    controller = LengthController(GuidanceSchedule(**({"length": 3072} | settings)))
    used = [controller.length]
    for rate in rates:
        controller.observe(rate)
        used.append(controller.length)
    return used


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mode": "cycle"}, [3072, 3072, 3072, 1536, 1536, 1536, 3072, 3072, 3072, 1536]),
        ({"window": 2}, [3072, 3072, 2048, 1024, 1024, 1152, 2304, 2304, 1920, 960]),
        ({"window": 1}, [3072, 3072, 2048, 1228, 1535, 1535, 3070, 2046, 2046, 1023]),
        ({"window": 3}, [3072, 3072, 2048, 1024, 853, 853, 1848, 2053, 2053, 912]),
    ],
    ids=str,
)
def test_lengths_of_one_run(settings, expected) -> None:
    assert lengths(RATES, factor=None, zero="keep", **settings) == expected


@pytest.mark.parametrize(
    ("length", "history", "rate", "settings", "expected"),
    [
        (3072, [0.4, 0.5], 0.5, {}, 2764),
        (2000, [0.4, 0.4], 0.2, {"longest": 3072}, 3072),
        (2000, [0.4, 0.4], 0.2, {"longest": 9999, "factor": None}, 4000),
        (1, [0.1], 0.9, {}, 1),
        (2764, [0.4, 0.5], 0, {"longest": 9999, "zero": "keep"}, 2764),
        (384, [0.4, 0.5], 0, {"longest": 768, "zero": "epsilon", "factor": None}, 768),
        (1000, [0.4, 0.5], 0, {"longest": 9999}, 2000),
        (1000, [0.4, 0.5], 0, {"longest": 9999, "factor": 3.0}, 3000),
        (1000, [0, 0], 0.5, {}, 500),
        (1000, [0, 0], 0.5, {"factor": None}, 500),
        (1000, [0, 0], 0, {}, 1000),
        (1000, [0, 0], 0, {"zero": "epsilon"}, 1000),
        (1000, [0.1, 0.1], 0.9, {}, 500),  # an eighth and more, but for the bound
        (1000, [0.1, 0.1], 0.9, {"factor": None}, 111),
    ],
)
def test_single_changes(length, history, rate, settings, expected) -> None:
    assert len(history) <= 2
    schedule = GuidanceSchedule(**({"length": length, "mode": "cycle"} | settings))
    controller = LengthController(schedule)
    for before in [*history, *history][:2]:  # a cycle holds two
        controller.observe(before)
    assert controller.length == length
    controller.observe(rate)
    assert controller.length == expected


def slow_lengths(rates, length, longest, window, mode, factor) -> list[int]:
    """The sliding and the cyclic rule in decimal arithmetic."""
    used, past = [length], []
    for rate in (Decimal(r) / 1000 for r in rates):
        if mode == "cycle" and len(past) == window:
            block, past = past, []
        elif mode == "cycle":
            past.append(rate)
            used.append(length)
            continue
        else:
            block = past[-window:]
            past = [*past, rate]
        if block:
            mean = sum(block) / len(block)
            if mean and rate:
                ratio = mean / rate
            elif mean == rate:
                ratio = Decimal(1)
            else:
                ratio = Decimal(factor or 2) if mean else 1 / Decimal(factor or 2)
            if factor:
                ratio = min(max(ratio, 1 / Decimal(factor)), Decimal(factor))
            # What decimal division cuts off must not carry a whole number below itself.
            length = int(
                (length * ratio + Decimal("1e-15")).to_integral_value(rounding="ROUND_FLOOR")
            )
            length = min(max(length, 1), longest)
        used.append(length)
    return used


@given(
    st.lists(st.integers(0, 1000), max_size=12),
    st.integers(1, 4000),
    st.integers(0, 4000),
    st.integers(1, 4),
    st.sampled_from(["sliding", "cycle"]),
    st.sampled_from([None, 2.0, 4.0]),
)
def test_the_controller_agrees_with_a_slow_one(rates, length, more, window, mode, factor) -> None:
    fast = lengths(
        [rate / 1000 for rate in rates],
        length=length,
        longest=length + more,
        window=window,
        mode=mode,
        factor=factor,
    )
    assert fast == slow_lengths(rates, length, length + more, window, mode, factor)
    assert all(1 <= value <= length + more for value in fast)


rates_above_0 = st.lists(st.integers(1, 500), min_size=1, max_size=10)


@given(rates_above_0, st.integers(1, 4), st.sampled_from(["sliding", "cycle"]))
def test_scaling_all_rates_changes_nothing(rates, window, mode) -> None:
    one = lengths([rate / 1000 for rate in rates], window=window, mode=mode, factor=None)
    two = lengths([rate / 500 for rate in rates], window=window, mode=mode, factor=None)
    assert one == two


@given(st.floats(0, 1), st.integers(0, 9), st.sampled_from(["double", "keep", "epsilon"]))
def test_a_constant_rate_keeps_the_length(rate, steps, zero) -> None:
    assert set(lengths([rate] * steps, zero=zero)) == {3072}


def test_with_a_window_of_one_length_times_rate_is_constant() -> None:
    length: Fraction | int = 3072
    rates = [exact(rate) for rate in RATES]
    for before, rate in itertools.pairwise(rates):
        length = scaled_length(length, [before], rate, factor=None)
    assert length == 1024 == 3072 * rates[0] / rates[-1]


def test_rates_are_the_ratios_they_stand_for() -> None:
    assert exact(0.1) == Fraction(1, 10)
    assert exact(1 / 6) == Fraction(1, 6)
    assert exact(Fraction(3, 7)) == Fraction(3, 7)
    # In floating point 100 * 0.29 / 0.1 is 289.99999999999994.
    assert lengths([0.29, 0.1], length=100, longest=999, factor=None, window=1)[-1] == 290


@pytest.mark.parametrize(
    ("share", "size", "count"),
    [
        (1 / 6, 12, 2),
        (1 / 4, 10, 3),
        (1 / 4, 4, 1),
        (3 / 4, 4, 3),
        (0, 9, 0),
        (1, 9, 9),
        (0.1, 30, 3),
    ],
)
def test_guided_rollouts_of_a_group(share, size, count) -> None:
    assert guided_count(share, size) == count


@given(st.integers(0, 64), st.integers(1, 64))
def test_the_count_is_the_smallest_that_reaches_the_share(part, size) -> None:
    count = guided_count(min(part, size) / size, 64)
    share = Fraction(min(part, size), size)
    assert count >= share * 64 > count - 1


def test_noise_shortens_guidance_for_good_where_the_bound_is_the_first_length() -> None:
    """6 of 64 rollouts succeed on average, always: guidance has no reason to change."""
    medians = {}
    for longest in (16, 64):
        ends = []
        for seed in range(40):
            counts = np.random.default_rng(seed).binomial(64, 0.1, size=60).tolist()
            rates = [Fraction(count, 64) for count in counts]
            ends.append(np.mean(lengths(rates, length=16, longest=longest, window=5)[-20:]))
        medians[longest] = float(np.median(ends))
    assert medians[16] < 2
    assert medians[64] > 16


def test_linear_decay() -> None:
    assert [linear_length(3072, 0, step, 5) for step in range(1, 7)] == [
        3072,
        2304,
        1536,
        768,
        0,
        0,
    ]
    assert linear_length(3072, 100, 1, 1) == 100
    assert linear_length(10, 4, 2, 4) == 8
    assert lengths([0.5] * 5, kind="linear", steps=5) == [3072, 2304, 1536, 768, 0, 0]


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 50))
def test_linear_decay_never_rises_and_ends_where_it_should(one, two, steps) -> None:
    first, last = max(one, two), min(one, two)
    found = [linear_length(first, last, step, steps) for step in range(1, steps + 1)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == last
    assert steps == 1 or found[0] == first
    for step, value in enumerate(found, 1):
        if steps > 1:
            true = first - Fraction(step - 1, steps - 1) * (first - last)
            assert value == max(last, math.floor(true))


@pytest.mark.parametrize("kind", ["none", "fixed", "linear", "adaptive"])
def test_no_length_is_no_guidance_under_every_kind(kind) -> None:
    assert set(lengths([0.1, 0.9, 0.0, 0.0, 0.2], kind=kind, length=0, longest=99)) == {0}


def test_kinds() -> None:
    assert set(lengths(RATES, kind="none")) == {0}
    assert set(lengths(RATES, kind="fixed")) == {3072}


def test_a_step_without_a_rate_counts_as_a_step_alone() -> None:
    assert lengths([0.2, None, 0.4], factor=None) == lengths([0.2, 0.4], factor=None)[:1] * 3 + [
        1536
    ]
    assert lengths([None] * 2, kind="linear", steps=3) == [3072, 1536, 0]


@given(
    st.lists(st.integers(0, 12), max_size=12),
    st.integers(0, 12),
    st.sampled_from(["sliding", "cycle"]),
)
def test_a_restored_controller_goes_on_exactly(counts, at, mode) -> None:
    schedule = GuidanceSchedule(length=64, longest=512, mode=mode)
    whole, first, second = (LengthController(schedule) for _ in range(3))
    rates = [Fraction(count, 12) for count in counts]
    for rate in rates:
        whole.observe(rate)
    for rate in rates[:at]:
        first.observe(rate)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for rate in rates[at:]:
        second.observe(rate)
    assert second.length == whole.length
    assert second.state_dict() == whole.state_dict()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "cosine"}, "kind must be one of"),
        ({"length": -1}, "length must be >= 0"),
        ({"length": 9, "longest": 8}, "longest must be >= length"),
        ({"length": 9, "last": 10}, "last must lie in 0..length"),
        ({"window": 0}, "steps and window must be >= 1"),
        ({"factor": 1.0}, "factor must be above 1"),
    ],
)
def test_what_cannot_be_is_refused(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        GuidanceSchedule(**settings)


def test_rates_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="a success rate lies in"):
        LengthController(GuidanceSchedule(length=5)).observe(1.5)
    with pytest.raises(ValueError, match="must lie in"):
        guided_count(1.5, 4)
