"""BLPO's terms and their fusion, on numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_tables import rollout, single_steps, step

from trainers.advantages.blpo import (
    ProgressOptions,
    collect_effects,
    fuse,
    progress_advantages,
    relative_returns,
)
from trainers.advantages.gigpo import episode_advantages, local_advantages
from trainers.advantages.memory import Effect, ProgressMemory
from trainers.advantages.steps import anchor_groups, step_rows

PAPER = ProgressOptions()


def credit(trajectories, memory, *, options=PAPER, p_local=1.0, p_progress=0.5, balanced=True,
           write_first=True, balance="context"):  # fmt: skip
    """One update: the terms (A^E, A^L, A^P), micro and the total, a row each."""
    rows = step_rows(trajectories)
    anchor = anchor_groups(rows.group_R, rows.observation_R)
    returns = rows.returns(0.95, 0.1)
    episode = episode_advantages(
        rows.scores(0.1), rows.group_R, rows.trajectory_R, cross_steps=True
    )
    local, local_on = local_advantages(returns, anchor, rows.action_R if balanced else None)
    memory.tick()
    effects = collect_effects(rows, relative_returns(returns, anchor), anchor, balance)
    if write_first:
        memory.absorb(effects)
    progress, progress_on = progress_advantages(memory, rows, options)
    if not write_first:
        memory.absorb(effects)
    micro = fuse([(p_local, local, local_on), (p_progress, progress, progress_on)])
    return {
        "episode": episode,
        "local": local,
        "progress": progress,
        "micro": micro,
        "total": episode + micro,
        "effects": effects,
    }


# Local -------------------------------------------------------------------------------------------


def test_equal_actions_get_equal_credit():
    returns, anchor = np.array([10.0, 8, 1, 0]), np.zeros(4, np.int64)
    balanced, _ = local_advantages(returns, anchor, [0, 0, 1, 1])
    assert balanced == pytest.approx([0.85142, 0.85142, -0.85142, -0.85142], abs=6e-6)
    plain, _ = local_advantages(returns, anchor)
    assert plain == pytest.approx([1.0518, 0.6511, -0.7513, -0.9516], abs=6e-5)
    uneven, _ = local_advantages(np.array([10.0, 10, 4, 0]), anchor, [0, 0, 0, 1])
    assert uneven == pytest.approx([0.40825] * 3 + [-1.22474], abs=6e-6)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.floats(-10, 10)), min_size=1),
    st.floats(-100, 100),
)
def test_local_terms_add_up_to_nothing_and_know_no_offset(rows, offset):
    anchor, action, returns = (np.array(column) for column in zip(*rows, strict=True))
    codes = np.unique(anchor, return_inverse=True)[1]
    local, active = local_advantages(returns, codes, action)
    assert np.bincount(codes, weights=local) == pytest.approx(
        np.zeros(codes.max() + 1), abs=1e-6 * len(rows)
    )
    assert not local[~active].any()
    for pair in {*zip(codes.tolist(), action.tolist(), strict=True)}:
        same = local[(codes == pair[0]) & (action == pair[1])]
        assert np.ptp(same) == 0
    spread = np.array([np.ptp(returns[codes == c]) for c in codes])
    if (spread[spread > 0] > 1e-3).all():
        moved, _ = local_advantages(returns + offset, codes, action)
        assert moved == pytest.approx(local, abs=1e-5)


# Progress ----------------------------------------------------------------------------------------


def first_two() -> list:
    one = single_steps("u1", [("TAKE", 10.0), ("TAKE", 8.0), ("LOOK", 0.0)], context="c1")
    two = single_steps("u2", [("TAKE", 5.0), ("LOOK", 3.0), ("LOOK", 1.0)], context="c2")
    return one + two


def test_effects_are_relative_to_their_situation():
    found = credit(first_two(), ProgressMemory())["effects"]
    assert found == [
        Effect("z", "TAKE", "c1", 3.0),
        Effect("z", "LOOK", "c1", -6.0),
        Effect("z", "TAKE", "c2", 2.0),
        Effect("z", "LOOK", "c2", -1.0),
    ]


def test_a_memory_over_two_updates():
    memory = ProgressMemory()
    now = credit(first_two(), memory)
    take, look = memory.cells("z")["TAKE"], memory.cells("z")["LOOK"]
    assert take[1:] == pytest.approx((2.5, 0.5, 2))
    assert look[1:] == pytest.approx((-3.5, 12.5, 2))
    signs = np.array([1, 1, -1, 1, -1, -1])
    assert now["progress"] == pytest.approx(0.225719 * signs, abs=1e-6)
    then = credit(single_steps("u3", [("TAKE", 2.0), ("LOOK", 0.0)], context="c3"), memory)
    take, look = memory.cells("z")["TAKE"], memory.cells("z")["LOOK"]
    assert take == pytest.approx((2.834008, 1.970714, 1.014226, 2.994863), abs=1e-6)
    assert look[1:3] == pytest.approx((-2.617857, 8.214781), abs=1e-6)
    assert then["progress"] == pytest.approx([0.292212, -0.292212], abs=1e-6)


def test_one_context_is_not_enough():
    memory = ProgressMemory()
    memory.absorb([Effect("z", "a", "c", 0.425), Effect("z", "b", "c", -0.425)])
    rows = step_rows(single_steps("u", [("a", 1.0), ("b", 0.0)]))
    values, active = progress_advantages(memory, rows, PAPER)
    assert not values.any()
    assert not active.any()
    # What it would be if it were not gated.
    from trainers.advantages.blpo import reliable_scores

    assert reliable_scores(memory.cells("z"), PAPER)["a"] == pytest.approx(0.14093, abs=1e-5)


def test_a_batch_of_one_situation_has_no_progress_term():
    """Four rollouts, 1, .8, .1, 0, two links: what is left is the local and the episode term."""
    rewards = [("one", 1.0), ("one", 0.8), ("two", 0.1), ("two", 0.0)]
    now = credit(single_steps("u", rewards), ProgressMemory())
    assert not now["progress"].any()
    assert now["total"] == pytest.approx([1.90317, 1.50250, -1.60267, -1.80300], abs=2e-4)


def test_an_action_alone_says_nothing():
    memory = ProgressMemory()
    trajectories = single_steps("u1", [("TAKE", 9.0), ("TAKE", 1.0)], context="c1")
    trajectories += single_steps("u2", [("TAKE", 5.0), ("TAKE", 3.0)], context="c2")
    assert credit(trajectories, memory)["effects"] == []
    assert len(memory) == 0


def test_rows_that_cannot_be_shared_are_compared_but_not_heard():
    def one(member, kind, reward, shareable):
        turn = step("x", kind, reward, state="z", kind=kind, context="c", shareable=shareable)
        return rollout("u", member, [turn])

    rows = [one(0, "a", 6.0, True), one(1, "b", 0.0, True), one(2, "c", 3.0, False)]
    now = credit(rows, ProgressMemory())
    assert now["effects"] == [Effect("z", "a", "c", 3.0), Effect("z", "b", "c", -3.0)]
    alone = credit(rows[1:], ProgressMemory())
    assert alone["effects"] == []  # one row that can be shared
    assert alone["local"].any()


@pytest.mark.parametrize(
    ("balance", "mean", "weight"), [("context", 0.55, 4), ("task", 0.2, 2), ("row", 0.7, 7)]
)
def test_who_counts_once(balance, mean, weight):
    """Task A says .9 in three contexts (twice in each), task B -.5 in one."""
    trajectories = []
    for context in ("c1", "c2", "c3"):
        for member, kind in enumerate(("TAKE", "TAKE", "LOOK", "LOOK")):
            reward = 1.8 if kind == "TAKE" else 0.0
            turn = step(context, kind, reward, state="z", kind=kind, context=context)
            trajectories.append(rollout(f"A-{context}", member, [turn], task="A"))
    for member, (kind, reward) in enumerate((("TAKE", 0.0), ("LOOK", 1.0))):
        turn = step("c4", kind, reward, state="z", kind=kind, context="c4")
        trajectories.append(rollout("B", member, [turn], task="B"))
    memory = ProgressMemory()
    credit(trajectories, memory, balance=balance)
    cell = memory.cells("z")["TAKE"]
    assert cell.mean == pytest.approx(mean)
    assert cell.weight == pytest.approx(weight)
    if balance == "task":
        assert cell.support == pytest.approx(2)


@pytest.mark.parametrize("copies", [1, 2, 25])
def test_repetition_within_a_context_leaves_the_memory_as_it_is(copies):
    memory, once = ProgressMemory(), ProgressMemory()
    rewards = [("TAKE", 3.0), ("LOOK", 1.0)]
    credit(single_steps("u", rewards), once)
    credit(single_steps("u", rewards * copies), memory)
    for kind, cell in memory.cells("z").items():
        assert cell == pytest.approx(once.cells("z")[kind])


def test_read_before_write_knows_nothing_at_first():
    memory = ProgressMemory()
    assert not credit(first_two(), memory, write_first=False)["progress"].any()
    assert credit(first_two(), memory, write_first=False)["progress"].any()


def test_hard_tasks_do_not_drag_their_actions_down():
    """A constant on all returns of a group changes nothing that is written."""
    easy = credit(first_two(), ProgressMemory())["effects"]
    hard = [("TAKE", 10.0 - 99), ("TAKE", 8.0 - 99), ("LOOK", 0.0 - 99)]
    moved = single_steps("u1", hard, context="c1") + first_two()[3:]
    assert [e.value for e in credit(moved, ProgressMemory())["effects"]] == pytest.approx(
        [e.value for e in easy]
    )


@pytest.mark.parametrize(
    ("kinds", "values", "active"),
    [
        (["a", "a", "a", "b"], [0.25, 0.25, 0.25, -0.75], True),
        (["a", "a", "a"], [0.0, 0.0, 0.0], False),
    ],
)
def test_centring_within_a_batch(kinds, values, active, monkeypatch):
    from trainers.advantages import blpo

    memory = ProgressMemory()
    memory.absorb(Effect("z", b, f"c{n}", 0.0) for b in "ab" for n in (1, 2))
    monkeypatch.setattr(blpo, "reliable_scores", lambda cells, options: {"a": 0.5, "b": -0.5})
    rows = step_rows(single_steps("u", [(kind, 0.0) for kind in kinds]))
    found, on = progress_advantages(memory, rows, ProgressOptions(center=True))
    assert found.tolist() == values
    assert on.tolist() == [active] * len(kinds)


# Fusion ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("local_on", "progress_on", "expected"),
    [(True, True, 0.7), (True, False, 1.2), (False, True, -0.3), (False, False, 0.0)],
)
def test_only_what_is_active_is_averaged(local_on, progress_on, expected):
    micro = fuse(
        [
            (1.0, np.array([1.2]), np.array([local_on])),
            (0.5, np.array([-0.3]), np.array([progress_on])),
        ]
    )
    assert micro[0] == pytest.approx(expected)


def test_from_end_to_end():
    pair = [("TAKE", 10.0), ("LOOK", 0.0)]
    won = single_steps("u1", pair, context="c1") + single_steps("u2", pair, context="c2")
    two = credit(won, ProgressMemory())
    sign = np.array([1, -1, 1, -1])
    for name, size in (
        ("episode", 0.707107),
        ("local", 0.707107),
        ("progress", 0.235696),
        ("micro", 0.549970),
        ("total", 1.257077),
    ):
        assert two[name] == pytest.approx(size * sign, abs=2e-6), name

    lost = single_steps("u3", [("TAKE", 0.0), ("LOOK", 0.0)], context="c3")
    memory = ProgressMemory()
    three = credit(won + lost, memory)
    assert memory.cells("z")["TAKE"] == pytest.approx((3, 10 / 3, 25 / 3, 3))
    assert memory.cells("z")["LOOK"] == pytest.approx((3, -10 / 3, 25 / 3, 3))
    sign = np.array([1, -1] * 3)
    assert three["progress"] == pytest.approx(0.293982 * sign, abs=2e-6)
    assert three["total"][:4] == pytest.approx(1.276505 * sign[:4], abs=2e-6)
    # A task that was failed throughout still learns.
    assert not three["episode"][4:].any()
    assert not three["local"][4:].any()
    assert three["total"][4:] == pytest.approx(0.293982 * sign[4:], abs=2e-6)


# Properties --------------------------------------------------------------------------------------

turns = st.lists(
    st.tuples(
        st.sampled_from(["x1", "x2"]),
        st.sampled_from(["z1", "z2"]),
        st.sampled_from("abc"),
        st.sampled_from([0.0, 1.0, 5.0]),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)
batches = st.lists(st.tuples(st.integers(0, 2), turns), min_size=2, max_size=8)


def built(drawn):
    made, members = [], {}
    for group, own in drawn:
        member = members[group] = members.get(group, -1) + 1
        made.append(
            rollout(
                f"u{group}",
                member,
                [
                    step(x, kind, reward, state=z, kind=kind, context=f"{group}{x}", valid=valid,
                         shareable=valid)
                    for x, z, kind, reward, valid in own
                ],
            )
        )  # fmt: skip
    return made


@given(batches)
@settings(max_examples=50)
def test_without_memory_and_balance_it_is_gigpo(drawn):
    trajectories = built(drawn)
    rows = step_rows(trajectories)
    anchor = anchor_groups(rows.group_R, rows.observation_R)
    step_term, _ = local_advantages(rows.returns(0.95, 0.1), anchor)
    found = credit(trajectories, ProgressMemory(), p_progress=0.0, balanced=False)
    assert found["total"].tolist() == (found["episode"] + 1.0 * step_term).tolist()


@given(batches, st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_order_of_rollouts_does_not_matter(drawn, random):
    trajectories = built(drawn)
    plain, mixed = ProgressMemory(), ProgressMemory()
    found = credit(trajectories, plain)["total"]
    order = list(range(len(trajectories)))
    random.shuffle(order)
    other = credit([trajectories[place] for place in order], mixed)["total"]
    cut = np.split(found, np.cumsum([len(item.turns) for item in trajectories])[:-1])
    assert np.concatenate([cut[place] for place in order]) == pytest.approx(other, abs=1e-6)
    for state in ("z1", "z2"):
        for kind, cell in plain.cells(state).items():
            assert cell == pytest.approx(mixed.cells(state)[kind], abs=1e-9)


@given(batches)
@settings(max_examples=50)
def test_a_loaded_memory_gives_the_same_advantages(drawn):
    trajectories = built(drawn)
    memory, loaded = ProgressMemory(), ProgressMemory()
    credit(trajectories, memory)
    loaded.load_state_dict(memory.state_dict())
    one, other = credit(trajectories, memory), credit(trajectories, loaded)
    assert one["total"].tolist() == other["total"].tolist()
    assert np.isfinite(one["total"]).all()
