from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import credit, trajectory, turn

from agentgym.packing import Credit, collate, gather_turns, pack


def ids_of(row) -> list[int]:
    return row.token_ids.tolist()


def test_an_episode_is_one_row():
    mask = np.array([True, False])
    played = trajectory([turn([1, 2], [3, 4], extends=False, trainable=mask), turn([5], [6])])
    (row,) = pack([played], [credit(played)])
    assert ids_of(row) == [1, 2, 3, 4, 5, 6]
    assert row.action_mask.tolist() == [False, False, True, True, False, True]
    assert row.loss_mask.tolist() == [False, False, True, False, False, True]
    assert row.logprobs.tolist() == [0, 0, -3, -4, 0, -6]
    assert row.versions.tolist() == [-1, -1, 3, 3, -1, 3]
    assert row.turn.tolist() == [-1, -1, 0, 0, -1, 1]
    assert row.advantages.tolist() == [0, 0, 3, 4, 0, 6]
    assert row.targets.tolist() == [0, 0, 30, 40, 0, 60]
    assert row.spans == [(0, 2, 4), (1, 5, 6)]
    assert (row.trajectory, row.n_tail, len(row)) == (0, 0, 6)
    assert [row.token_ids.dtype, row.logprobs.dtype, row.advantages.dtype, row.turn.dtype] == [
        np.int32, np.float32, np.float32, np.int32,
    ]  # fmt: skip


def test_a_row_a_turn_holds_its_whole_prefix_and_trains_its_own_tokens():
    played = trajectory([turn([1, 2], [3, 4], extends=False), turn([5], [6]), turn([7], [8, 9])])
    rows = pack([played], [credit(played)], unit="turn")
    assert [ids_of(row) for row in rows] == [
        [1, 2, 3, 4],
        [1, 2, 3, 4, 5, 6],
        [1, 2, 3, 4, 5, 6, 7, 8, 9],
    ]
    assert [row.token_ids[row.action_mask].tolist() for row in rows] == [[3, 4], [6], [8, 9]]
    assert rows[2].advantages.tolist() == [0] * 7 + [8, 9]
    assert rows[2].logprobs.tolist() == [0] * 7 + [-8, -9]
    assert rows[2].spans == [(2, 7, 9)]


@pytest.mark.parametrize("unit", ["sequence", "turn"])
def test_a_turn_that_does_not_extend_starts_a_new_row(unit):
    played = trajectory(
        [turn([1], [2], extends=False), turn([1, 9], [3], extends=False), turn([4], [5])]
    )
    rows = pack([played], [credit(played)], unit=unit)
    expected = [[1, 2], [1, 9, 3, 4, 5]]
    if unit == "turn":
        expected.insert(1, [1, 9, 3])
    assert [ids_of(row) for row in rows] == expected
    assert [[span[0] for span in row.spans] for row in rows] == (
        [[0], [1, 2]] if unit == "sequence" else [[0], [1], [2]]
    )


@st.composite
def recordings(draw):
    """Trajectories of any shape, with distinct token ids throughout."""
    count = iter(range(10_000))
    out = []
    for index in range(draw(st.integers(1, 3))):
        turns = []
        for _ in range(draw(st.integers(0, 4))):
            context = [next(count) for _ in range(draw(st.integers(0, 3)))]
            action = [next(count) for _ in range(draw(st.integers(0, 3)))]
            trainable = np.array([draw(st.booleans()) for _ in action], bool)
            extends = draw(st.booleans())
            turns.append(turn(context, action, extends=extends, trainable=trainable))
        tail = [next(count) for _ in range(draw(st.integers(0, 2)))]
        extends = draw(st.booleans())
        out.append(trajectory(turns, tail=tail, tail_extends=extends, member=index))
    return out


@given(recordings(), st.booleans())
def test_packing_changes_no_number(played, tail):
    """The same tokens carry the same numbers whether a row is an episode or a turn."""
    assigned = [credit(item, offset=0.25) for item in played]

    def by_token(unit):
        found = {}
        for row in pack(played, assigned, unit=unit, tail=tail):
            for at in np.flatnonzero(row.action_mask):
                key = int(row.token_ids[at])
                assert key not in found, "a sampled token is trained once"
                found[key] = (
                    bool(row.loss_mask[at]),
                    float(row.logprobs[at]),
                    int(row.versions[at]),
                    int(row.turn[at]),
                    float(row.advantages[at]),
                    float(row.targets[at]),
                    row.trajectory,
                )
        return found

    together = by_token("sequence")
    assert together == by_token("turn")
    assert len(together) == sum(item.n_actions for item in played)


@given(recordings(), st.sampled_from(["sequence", "turn"]))
def test_values_come_back_to_their_turns(played, unit):
    rows = pack(played, unit=unit, tail=True)
    values = [row.token_ids.astype(np.float32) for row in rows]
    back = gather_turns(rows, values, [len(item.turns) for item in played])
    assert [[array.tolist() for array in turns] for turns in back] == [
        [part.action_ids.tolist() for part in item.turns] for item in played
    ]


@pytest.mark.parametrize("unit", ["sequence", "turn"])
def test_the_tail_follows_the_last_action(unit):
    played = trajectory([turn([1], [2], extends=False), turn([3], [4])], tail=[5, 6])
    *others, last = pack([played], [credit(played)], unit=unit, tail=True)
    assert ids_of(last) == [1, 2, 3, 4, 5, 6]
    assert last.n_tail == 2
    assert all(row.n_tail == 0 for row in others)
    assert not last.action_mask[-2:].any()
    assert last.advantages[-2:].tolist() == [0, 0]
    assert ids_of(pack([played], unit=unit)[-1]) == [1, 2, 3, 4]


@pytest.mark.parametrize("unit", ["sequence", "turn"])
def test_a_tail_that_is_a_prompt_of_its_own_is_a_row_of_its_own(unit):
    played = trajectory(
        [turn([1], [2], extends=False), turn([3], [4], extends=False)],
        tail=[5, 6],
        tail_extends=False,
    )
    first, second, third = pack([played], [credit(played)], unit=unit, tail=True)
    assert [ids_of(first), ids_of(second), ids_of(third)] == [[1, 2], [3, 4], [5, 6]]
    assert (third.spans, third.n_tail, third.trajectory) == ([], 2, 0)
    assert not third.action_mask.any()
    assert not third.loss_mask.any()
    assert len(pack([played], unit=unit)) == 2


def test_turns_without_a_sampled_token_make_no_row():
    played = trajectory([turn([1, 2], [], extends=False), turn([3], [4]), turn([5], [])])
    assert [ids_of(row) for row in pack([played], unit="turn")] == [[1, 2, 3, 4]]
    assert [row.spans for row in pack([played])] == [[(1, 3, 4)]]
    assert pack([trajectory([]), trajectory([turn([1], [])])]) == []


def test_without_credit_advantages_are_zero():
    (row,) = pack([trajectory([turn([1], [2])])])
    assert not row.advantages.any()
    assert not row.targets.any()
    (row,) = pack([trajectory([turn([1], [2])])], [Credit([np.ones(1)])])
    assert (row.advantages.tolist(), row.targets.tolist()) == ([0, 1], [0, 0])


def test_credit_must_fit():
    played = trajectory([turn([1], [2, 3]), turn([4], [5])], task_id="shop-7")
    good = credit(played)
    with pytest.raises(ValueError, match="2 credits for 1 trajectories"):
        pack([played], [good, good])
    for name in ("advantages", "targets"):
        for wrong, lengths in (([np.ones(2)], r"\[2\]"), ([np.ones(2), np.ones(2)], r"\[2, 2\]")):
            bad = Credit(good.advantages, good.targets)
            setattr(bad, name, wrong)
            words = rf"{name} of task 'shop-7' have lengths {lengths}; its turns have \[2, 1\]"
            with pytest.raises(ValueError, match=words):
                pack([played], [bad])


def test_an_unknown_unit_is_refused():
    with pytest.raises(ValueError, match="unknown unit 'episode'; known: sequence, turn"):
        pack([], unit="episode")


def test_rows_pad_on_the_right():
    long = trajectory([turn([1, 2], [3, 4], extends=False)], tail=[9])
    short = trajectory([turn([5], [6], extends=False)])
    played = [long, short]
    batch = collate(pack(played, [credit(item) for item in played], tail=True), pad_id=99)
    assert len(batch) == 2
    assert batch.token_ids.tolist() == [[1, 2, 3, 4, 9], [5, 6, 99, 99, 99]]
    assert batch.attention.tolist() == [[True] * 5, [True, True, False, False, False]]
    assert batch.action_mask.tolist()[1] == [False, True, False, False, False]
    assert batch.loss_mask.tolist() == batch.action_mask.tolist()
    assert batch.logprobs.tolist()[1] == [0, -6, 0, 0, 0]
    assert batch.versions.tolist()[1] == [-1, 3, -1, -1, -1]
    assert batch.turn.tolist()[1] == [-1, 0, -1, -1, -1]
    assert batch.advantages.tolist()[1] == [0, 6, 0, 0, 0]
    assert batch.targets.tolist()[1] == [0, 60, 0, 0, 0]
    assert batch.trajectory.tolist() == [0, 1]
    assert batch.n_tail.tolist() == [1, 0]
    assert batch.token_ids.dtype == np.int64
    with pytest.raises(ValueError, match="no rows to collate"):
        collate([], 0)


def test_values_for_another_number_of_rows_are_refused():
    rows = pack([trajectory([turn([1], [2])])])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        gather_turns(rows, [], [1])
