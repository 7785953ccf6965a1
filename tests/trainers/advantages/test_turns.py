"""Rewards end up on action tokens, all of them, and turns are never inferred from rewards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.advantages import (
    concatenate,
    earned_before,
    place_token_rewards,
    place_turn_rewards,
    split_by_turn,
    turn_index,
    turn_starts,
)

lengths_lists = st.lists(st.integers(0, 4), min_size=0, max_size=8)


def test_turn_index_repeats_each_turn_by_its_length() -> None:
    assert turn_index([2, 0, 1]).tolist() == [0, 0, 2]


def test_turn_index_refuses_negative_lengths() -> None:
    with pytest.raises(ValueError, match="-1"):
        turn_index([2, -1])


@given(lengths_lists)
def test_splitting_by_turn_undoes_laying_end_to_end(lengths: list[int]) -> None:
    flat = np.arange(sum(lengths), dtype=float)
    parts = split_by_turn(flat, lengths)
    assert [len(part) for part in parts] == lengths
    assert concatenate(parts).tolist() == flat.tolist()


def test_splitting_refuses_lengths_that_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="3 action tokens, the array has 4"):
        split_by_turn(np.zeros(4), [1, 2])


def test_zero_reward_turn_is_still_a_turn() -> None:
    assert turn_starts([0, 0, 1, 1, 2]).tolist() == [True, False, True, False, True]
    assert turn_starts([]).tolist() == []


def test_reward_stands_on_last_action_token_of_its_turn() -> None:
    assert place_turn_rewards([0.3, 1.0], [0, 0, 1, 1]).tolist() == [0, 0.3, 0, 1.0]


def test_reward_of_turn_without_action_tokens_moves_left() -> None:
    # Turns 1 and 3 have no action token.
    assert place_turn_rewards([0.5, 1.0, 0.25, 2.0], [0, 0, 2]).tolist() == [0, 1.5, 2.25]


def test_reward_before_any_action_goes_to_the_first_action_token() -> None:
    assert place_turn_rewards([1.0, 0.5], [1, 1, 1]).tolist() == [1.0, 0, 0.5]


def test_trajectory_without_action_tokens_has_nothing_to_credit() -> None:
    assert place_turn_rewards([1.0, 2.0], []).tolist() == []


def test_non_finite_reward_is_refused_by_turn() -> None:
    with pytest.raises(ValueError, match="reward of turn 1 is nan"):
        place_turn_rewards([0.0, np.nan], [0, 1])


def test_turn_without_reward_is_refused() -> None:
    with pytest.raises(ValueError, match="turn index 2 has no reward"):
        place_turn_rewards([0.0, 1.0], [0, 2])


def test_decreasing_turns_are_refused() -> None:
    with pytest.raises(ValueError, match="non-decreasing"):
        place_turn_rewards([0.0, 1.0], [1, 0])


@given(st.data())
def test_placing_against_a_loop(data: st.DataObject) -> None:
    lengths = data.draw(lengths_lists.filter(lambda x: sum(x) > 0))
    rewards = data.draw(st.lists(st.integers(-8, 8), min_size=len(lengths), max_size=len(lengths)))
    expected = [0.0] * sum(lengths)
    end = 0
    for length, reward in zip(lengths, rewards, strict=True):
        end += length
        expected[max(end - 1, 0)] += reward
    placed = place_turn_rewards(rewards, turn_index(lengths))
    assert placed.tolist() == expected
    assert placed.sum() == sum(rewards)


def test_terminal_reward_on_padding_moves_to_the_action_before() -> None:
    # Score put on the padding after the end-of-text token, and on a trailing observation.
    assert place_token_rewards([0, 0, 0, 1.0], [1, 1, 0, 0]).tolist() == [0, 1.0, 0, 0]


def test_token_reward_before_any_action_moves_right() -> None:
    assert place_token_rewards([1.0, 0, 0], [0, 1, 1]).tolist() == [0, 1.0, 0]


def test_token_rewards_of_a_fully_masked_row() -> None:
    assert place_token_rewards([1.0, 2.0], [0, 0]).tolist() == [0, 0]


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=1, max_size=12))
def test_token_rewards_against_a_loop(row: list[tuple[int, bool]]) -> None:
    rewards, mask = [r for r, _ in row], [m for _, m in row]
    if not any(mask):
        return
    expected = [0.0] * len(row)
    for t, r in enumerate(rewards):
        at = t
        while at >= 0 and not mask[at]:
            at -= 1
        expected[at if at >= 0 else mask.index(True)] += r
    assert place_token_rewards(rewards, mask).tolist() == expected


def test_earned_before_is_strict() -> None:
    assert earned_before([0, 0.3, 0, 1.0]).tolist() == [0, 0, 0.3, 0.3]
    assert earned_before([]).tolist() == []


def test_concatenating_nothing() -> None:
    assert concatenate([]).shape == (0,)
