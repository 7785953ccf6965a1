"""The memory of task progress: decay, statistics, forgetting, and going on exactly."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.advantages.blpo import ProgressOptions, reliable_scores
from trainers.advantages.memory import Effect, MemoryMismatch, ProgressMemory
from trainers.state_codec import pack_state, unpack_state

PAPER = ProgressOptions()


def memory(*effects: tuple[str, str, float], **settings_) -> ProgressMemory:
    """One update with (kind of action, unit, value), all in state z."""
    made = ProgressMemory(**settings_)
    made.tick()
    made.absorb(Effect("z", *effect) for effect in effects)
    return made


def test_a_cell_after_eight_updates():
    made = memory(("b", "c1", 0.5), ("b", "c2", 0.5), ("b", "c1", 0.5), ("b", "c2", 0.5))
    # Replace the moments by those of the worked example: W, S, Q, R = 4, 2, 3, 4.
    cell = made._states["z"].cells["b"]
    cell.square = 3.0
    assert made.moments("z", "b") == (4, 2, 3, 4)
    assert made.units("z", "b") == {"c1": 2, "c2": 2}
    made.tick(8)
    assert made.moments("z", "b") == pytest.approx((2, 1, 1.5, 1))
    assert made.units("z", "b") == pytest.approx({"c1": 1, "c2": 1})


def test_one_update_takes_a_twelfth():
    made = memory(("b", "c", 1.0))
    made.tick()
    assert made.moments("z", "b")[0] == pytest.approx(0.917004, abs=1e-6)


def test_pure_decay_leaves_what_is_known_but_not_its_weight():
    made = memory(("b", "c1", 1.0), ("b", "c2", 2.0), ("b", "c3", 3.0), min_weight=1e-6)
    made.tick(100)
    view = made.cells("z")["b"]
    assert view[1:] == pytest.approx((2, 1, 3))
    assert view.weight == pytest.approx(5.18e-4, rel=1e-3)
    capped = min(view.support, view.weight)
    assert capped == pytest.approx(5.18e-4, rel=1e-3)


def test_stale_cells_lose_their_say_only_where_support_is_capped():
    effects = [(b, f"c{n}", value) for n in range(4) for b, value in (("t", 1.0), ("l", -1.0))]
    made = memory(*effects)
    fresh = reliable_scores(made.cells("z"), PAPER)
    made.tick(40)
    stale = reliable_scores(made.cells("z"), PAPER)
    assert stale["t"] == pytest.approx(fresh["t"])
    capped = reliable_scores(made.cells("z"), ProgressOptions(support="kish_capped"))
    assert 0 < capped["t"] < 0.1 * fresh["t"]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [([1, 1, 1, 1], 4), ([3, 1], 1.6), ([10, 1, 1], 1.41176), ([0.5, 1], 1.8)],
)
def test_kish_counts_units_by_their_weight(weights, expected):
    made = ProgressMemory()
    made.absorb(Effect("z", "b", f"c{n}", 0.0, w) for n, w in enumerate(weights))
    assert made.cells("z")["b"].support == pytest.approx(expected, abs=1e-5)


def test_the_union_takes_each_unit_with_its_largest_weight():
    made = memory(("a", "c1", 0.0), ("a", "c1", 0.0), ("b", "c1", 0.0), ("b", "c2", 0.0))
    assert made.union_support("z") == pytest.approx(9 / 5)  # weights 2 and 1
    made.tick()
    made.absorb([Effect("z", "b", "c2", 0.0)] * 2)
    d = 2 ** (-1 / 8)
    c1, c2 = 2 * d, d + 2
    assert made.union_support("z") == pytest.approx((c1 + c2) ** 2 / (c1**2 + c2**2))
    assert made.union_support("nowhere") == 0.0
    assert made.cells("nowhere") == {}


def test_one_effect_has_no_variance():
    assert memory(("b", "c", 3.0)).cells("z")["b"] == (1, 3, 0, 1)


# What it takes to be heard ----------------------------------------------------------------------


def spread(contexts: int, effect: float = 1.0) -> float:
    """Score of TAKE where every context says +effect of it and -effect of LOOK."""
    made = memory(
        *((b, f"c{n}", s * effect) for n in range(contexts) for b, s in (("t", 1), ("l", -1)))
    )
    scores = reliable_scores(made.cells("z"), PAPER)
    assert scores["t"] == -scores["l"]
    return scores["t"]


@pytest.mark.parametrize(
    ("contexts", "expected"),
    [(2, 0.23556), (4, 0.35333), (8, 0.47111), (32, 0.62815), (128, 0.68525)],
)
def test_more_contexts_say_it_louder(contexts, expected):
    assert spread(contexts) == pytest.approx(expected, abs=6e-6)
    assert spread(contexts) < spread(contexts + 1) < 0.70667


@pytest.mark.parametrize(
    ("effect", "expected"), [(1.0, 0.47111), (0.1, 0.44444), (0.05, 0.38490), (0.01, 0.12830)]
)
def test_tiny_differences_are_not_blown_up(effect, expected):
    assert spread(8, effect) == pytest.approx(expected, abs=6e-6)


def test_noise_lowers_the_voice():
    noisy = [1.2, -0.8, 1.2, -0.8]
    made = memory(
        *((b, f"c{n}", s * y) for n, y in enumerate(noisy) for b, s in (("t", 1), ("l", -1)))
    )
    view = made.cells("z")["t"]
    assert view.mean == pytest.approx(0.2)
    assert view.variance == pytest.approx(4 / 3)
    assert view.support == pytest.approx(4)
    error = math.sqrt(2 * 0.25 * (4 / 3) / 4)
    assert error == pytest.approx(0.408248, abs=1e-6)
    scores = reliable_scores(made.cells("z"), PAPER)
    assert scores == pytest.approx({"t": 0.200334, "l": -0.200334}, abs=1e-6)
    assert scores["t"] < spread(4, 0.2)


def views(means, supports):
    """Cells without noise."""
    made = ProgressMemory()
    made.absorb(
        Effect("z", f"b{n}", f"c{m}", mean)
        for n, (mean, support) in enumerate(zip(means, supports, strict=True))
        for m in range(support)
    )
    return made.cells("z")


def test_three_actions_of_different_support():
    scores = reliable_scores(views([0.6, 0, -0.6], [4, 2, 1]), PAPER)
    assert list(scores.values()) == pytest.approx([0.332182, 0, -0.265746], abs=1e-6)


def test_a_comparison_is_as_good_as_its_weaker_side():
    scores = reliable_scores(views([1.0, -1.0], [8, 1]), PAPER)
    assert scores == pytest.approx({"b0": 0.217435, "b1": -0.217435}, abs=1e-6)


def test_a_rare_action_need_not_move_the_baseline():
    cells = views([1.0, 0.0, -9.0], [16, 16, 1])
    plain = reliable_scores(cells, PAPER)
    weighted = reliable_scores(cells, ProgressOptions(baseline="support_weighted"))
    assert plain["b1"] > 0.1  # pushed up by the rare failure alone
    assert abs(weighted["b1"]) < 0.05
    even = views([1.0, -1.0], [4, 4])
    assert reliable_scores(even, PAPER) == pytest.approx(
        reliable_scores(even, ProgressOptions(baseline="support_weighted"))
    )


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.integers(1, 20)), min_size=2, max_size=6),
    st.sampled_from([0.0, 0.05, 1.0]),
)
def test_no_score_is_beyond_its_bound(cells, tau):
    scores = reliable_scores(views(*zip(*cells, strict=True)), ProgressOptions(tau=tau))
    K = len(cells)
    assert all(abs(score) <= (K - 1) / math.sqrt(K) for score in scores.values())
    if len(set(cells)) == len(cells) == 2 and cells[0][1] == cells[1][1] and scores:
        assert scores["b0"] == pytest.approx(-scores["b1"])


# Balance ----------------------------------------------------------------------------------------


def test_repetition_in_a_context_adds_nothing():
    made = memory(("b", "cA", 0.9), ("b", "cB", -0.5))
    assert made.cells("z")["b"].mean == pytest.approx(0.2)
    by_row = memory(*[("b", "cA", 0.9)] * 50, ("b", "cB", -0.5))
    assert by_row.cells("z")["b"].mean == pytest.approx(0.87255, abs=1e-5)


# Forgetting -------------------------------------------------------------------------------------


def test_a_cell_is_forgotten_when_its_weight_is_gone():
    made = memory(("a", "c", 1.0), ("b", "c", 1.0), ("b", "d", 1.0))
    last = math.floor(8 * math.log2(1 / 1e-4))
    made.tick(last)
    assert len(made) == 2
    made.tick()
    assert list(made.cells("z")) == ["b"]
    made.absorb([Effect("z", "b", "c", 1.0)])  # renewed
    made.tick(last)
    assert len(made) == 1
    made.tick(8)
    assert (len(made), made.states, made.evicted) == (0, 0, 2)


def test_above_its_size_it_forgets_what_was_written_longest_ago():
    made = ProgressMemory(max_cells=2)
    made.absorb(
        [Effect("z", "a", "c", 0.0), Effect("z", "b", "c", 0.0), Effect("z", "a", "c", 0.0)]
    )
    made.absorb([Effect("y", "a", "c", 0.0)])
    assert (list(made.cells("z")), list(made.cells("y"))) == (["a"], ["a"])
    assert made.evicted == 1


def test_cells_that_come_and_go_leave_nothing_behind():
    made = ProgressMemory(half_life=1.0, max_cells=1)
    for _ in range(200):
        made.tick()
        for kind in "ab":
            made.absorb([Effect("z", kind, "c", 0.0)])
    # What is yet to be looked at is of the last 14 updates, after which a cell has lost its weight.
    assert sum(map(len, made._expiring.values())) <= 2 * 15
    made.tick(14)
    assert (len(made), made.states, made._expiring, made._due) == (0, 0, {}, {})


def test_what_is_forgotten_leaves_the_union():
    made = ProgressMemory(max_cells=2)
    made.absorb([Effect("z", "a", "c1", 0.0), Effect("z", "b", "c2", 0.0)])
    assert made.union_support("z") == 2
    made.absorb([Effect("z", "d", "c2", 0.0)])
    assert made.union_support("z") == 1


@pytest.mark.parametrize(
    "effect", [Effect("z", "a", "c", math.nan), Effect("z", "a", "c", 1.0, 0.0)]
)
def test_effects_that_mean_nothing_are_refused(effect):
    with pytest.raises(ValueError, match="finite value and a weight above 0"):
        ProgressMemory().absorb([effect])


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"half_life": 0}, "half_life must be a finite number above 0, got 0"),
        ({"half_life": math.inf}, "got inf"),
        ({"min_weight": 1}, "min_weight must lie between 0 and 1, got 1"),
        ({"max_cells": 0}, "max_cells must be at least 1, got 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings_, message):
    with pytest.raises(ValueError, match=message):
        ProgressMemory(**settings_)


@pytest.mark.parametrize(("half_life", "left"), [(1e-4, 0), (1e-308, 0), (1e308, 2)])
def test_half_lives_of_any_length_work(half_life, left):
    made = memory(("a", "c", 1.0), ("b", "c", 1.0), half_life=half_life)
    made.tick(3)
    assert len(made) == left
    made.absorb([Effect("z", "a", "d", 2.0)])
    assert made.cells("z")["a"].mean == pytest.approx(1.5 if left else 2.0)


# Against the plain formulas ---------------------------------------------------------------------

updates = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from("yz"),
            st.sampled_from("ab"),
            st.sampled_from("cde"),
            st.floats(-4, 4),
            st.sampled_from([1.0, 0.5]),
        ),
        max_size=6,
    ),
    min_size=1,
    max_size=12,
)


@given(updates, st.integers(1, 40))
@settings(max_examples=20)
def test_lazy_decay_is_decay_at_every_update(drawn, gap):
    """The reference multiplies every number at every update, as the paper's formulas say."""
    made = ProgressMemory(half_life=2.0, min_weight=1e-300)
    cells: dict[tuple[str, str], list] = {}
    d = 2 ** (-1 / 2)
    for number, batch in enumerate(drawn):
        wait = gap if number % 4 == 3 else 1  # long enough for the scale to be renewed
        made.tick(wait)
        for cell in cells.values():
            cell[:3] = [x * d**wait for x in cell[:3]]
            cell[3] *= d ** (2 * wait)
            cell[4] = {unit: w * d**wait for unit, w in cell[4].items()}
        for state, action, unit, value, weight in batch:
            cell = cells.setdefault((state, action), [0.0, 0.0, 0.0, 0.0, {}])
            cell[0] += weight
            cell[1] += weight * value
            cell[2] += weight * value**2
            cell[3] += weight**2
            cell[4][unit] = cell[4].get(unit, 0.0) + weight
        made.absorb(Effect(*effect) for effect in batch)
        for (state, action), (w, s, q, r, units) in cells.items():
            assert made.moments(state, action) == pytest.approx((w, s, q, r), rel=1e-9, abs=1e-12)
            kish = sum(units.values()) ** 2 / sum(x * x for x in units.values())
            assert made.cells(state)[action].support == pytest.approx(kish, rel=1e-6)
        for state in {state for state, _ in cells}:
            union: dict[str, float] = {}
            for (own, _), cell in cells.items():
                if own == state:
                    for unit, w in cell[4].items():
                        union[unit] = max(union.get(unit, 0.0), w)
            kish = sum(union.values()) ** 2 / sum(x * x for x in union.values())
            assert made.union_support(state) == pytest.approx(kish, rel=1e-6)


# Going on ---------------------------------------------------------------------------------------


def random_batch(rng: np.random.Generator, count: int = 60) -> list[Effect]:
    return [
        Effect(
            f"z{rng.integers(6)}", f"b{rng.integers(4)}", f"c{rng.integers(9)}", float(rng.normal())
        )
        for _ in range(count)
    ]


def stored(state):
    """A state as a checkpoint writes and reads it."""
    packed = pack_state(state)
    packed.structure = json.loads(json.dumps(packed.structure, allow_nan=False))
    return unpack_state(packed)


def assert_same(one, other):
    for name, value in one.items():
        assert np.array_equal(value, other[name]), name


def test_a_loaded_memory_goes_on_bit_for_bit():
    rng = np.random.default_rng(0)
    made = ProgressMemory(half_life=1.5, max_cells=18)
    for _ in range(60):  # beyond a renewal of the scale
        made.tick()
        made.absorb(random_batch(rng))
    loaded = ProgressMemory(half_life=1.5, max_cells=18)
    loaded.load_state_dict(stored(made.state_dict()))
    assert_same(made.state_dict(), loaded.state_dict())
    for _ in range(60):
        batch = random_batch(rng, 20)
        for one in (made, loaded):
            one.tick()
            one.absorb(batch)
        for state in [f"z{n}" for n in range(6)]:
            assert made.cells(state) == loaded.cells(state)
            assert made.union_support(state) == loaded.union_support(state)
    assert_same(made.state_dict(), loaded.state_dict())
    assert made.evicted > 0


def test_an_empty_memory_goes_on_too():
    made, loaded = ProgressMemory(), ProgressMemory()
    made.tick(3)
    loaded.load_state_dict(stored(made.state_dict()))
    assert (loaded.step, len(loaded)) == (3, 0)


def test_another_half_life_is_refused():
    with pytest.raises(MemoryMismatch, match=r"half-life of 8\.0 updates, not 4\.0"):
        ProgressMemory(half_life=4.0).load_state_dict(ProgressMemory().state_dict())


def test_another_version_is_refused():
    with pytest.raises(MemoryMismatch, match="version 0, this is version 1"):
        ProgressMemory().load_state_dict(ProgressMemory().state_dict() | {"version": 0})


# For people -------------------------------------------------------------------------------------


def test_the_strongest_cells_come_first():
    effects = [("take", f"c{n}", 1.0) for n in range(4)] + [
        ("look", f"c{n}", -1.0) for n in range(4)
    ]
    made = memory(*effects)
    made.absorb(Effect("y", b, f"c{n}", 0.01) for b in ("take", "look") for n in range(4))
    made.absorb([Effect("alone", "take", "c1", 9.0), Effect("alone", "take", "c2", 9.0)])
    made.absorb([Effect("once", "take", "c1", 9.0), Effect("once", "look", "c1", -9.0)])

    def score(cells):
        return reliable_scores(cells, PAPER)

    rows = made.strongest(3, score)
    assert [(row["state"], row["action"]) for row in rows] == [("z", "take"), ("z", "look")]
    assert [row["mean"] for row in rows] == [1, -1]
    assert rows[0]["support"] == pytest.approx(4)
    assert [row["advantage"] for row in rows] == pytest.approx([0.35333, -0.35333], abs=6e-6)
    made.absorb([Effect("y", "take", "c0", 0.5)])
    assert [row["state"] for row in made.strongest(99, score)] == ["z", "z", "y", "y"]
