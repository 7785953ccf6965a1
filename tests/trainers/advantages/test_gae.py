"""GAE over action tokens and over turns: worked numbers, limits, and everything that may leak."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.advantages import (
    EndRules,
    earned_before,
    end_of_episode,
    length_adaptive_lambda,
    place_token_rewards,
    place_turn_rewards,
    reward_to_go,
    skip_observation_gae,
    turn_index,
    turn_level_gae,
)

MASK = [1, 1, 0, 0, 1, 1]
VALUES = [0.2, 0.4, 9, 9, 0.5, 0.6]
REWARDS = [0, 0, 0, 0, 0, 1.0]


def slow_gae(rewards, values, mask, v_end, gamma, lam):
    """Advantages as explicit double sums over action tokens: no recursion shared with the code."""
    at = [t for t, m in enumerate(mask) if m]
    out = [0.0] * len(mask)
    for k, t in enumerate(at):
        total = 0.0
        for j in range(k, len(at)):
            following = values[at[j + 1]] if j + 1 < len(at) else v_end
            delta = rewards[at[j]] + gamma * following - values[at[j]]
            total += (gamma * lam) ** (j - k) * delta
        out[t] = total
    return out


def slow_reward_to_go(rewards, mask, v_end, gamma):
    at = [t for t, m in enumerate(mask) if m]
    out = [0.0] * len(mask)
    for k, t in enumerate(at):
        out[t] = sum(gamma ** (j - k) * rewards[at[j]] for j in range(k, len(at)))
        out[t] += gamma ** (len(at) - k) * v_end
    return out


# -- lambda --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "length", "lam"),
    [
        (1.5, 1, 0.333333),
        (1.5, 2, 0.666667),
        (1.5, 10, 0.933333),
        (1.5, 100, 0.993333),
        (1.5, 1000, 0.999333),
        (0.05, 10, 0.0),  # -1 before the clamp
        (0.05, 20, 0.0),
        (0.05, 100, 0.8),
        (0.05, 1000, 0.98),
        (math.inf, 7, 1.0),
        (1.5, 0, 0.0),
    ],
)
def test_lambda_schedule(alpha, length, lam) -> None:
    assert float(length_adaptive_lambda(length, alpha)) == pytest.approx(lam, abs=5e-7)


def test_credit_that_reaches_the_first_token_does_not_depend_on_length() -> None:
    n = 100_000
    assert float(length_adaptive_lambda(n)) ** (n - 1) == pytest.approx(0.5134, abs=5e-5)
    assert math.exp(-1 / 1.5) == pytest.approx(0.5134, abs=5e-5)


def test_lambda_of_many_lengths_and_bad_ones() -> None:
    np.testing.assert_allclose(length_adaptive_lambda([1, 2]), [1 / 3, 2 / 3])
    with pytest.raises(ValueError, match="alpha"):
        length_adaptive_lambda(3, 0.0)
    with pytest.raises(ValueError, match="lengths"):
        length_adaptive_lambda(-1)


# -- skip-observation GAE ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gamma", "lam", "expected"),
    [
        (1, 1, [0.8, 0.6, 0, 0, 0.5, 0.4]),
        (1, 0.5, [0.325, 0.25, 0, 0, 0.3, 0.4]),
        (1, 0, [0.2, 0.1, 0, 0, 0.1, 0.4]),
        (0.9, 1, [0.529, 0.41, 0, 0, 0.4, 0.4]),
        (0.9, 0.95, [0.482002, 0.37661, 0, 0, 0.382, 0.4]),
    ],
)
def test_two_turns_with_an_observation_between(gamma, lam, expected) -> None:
    found = skip_observation_gae(REWARDS, VALUES, MASK, gamma=gamma, lam=lam)
    np.testing.assert_allclose(found, expected, atol=5e-7)


def test_adaptive_lambda_counts_action_tokens() -> None:
    lam = length_adaptive_lambda(sum(MASK))
    assert float(lam) == pytest.approx(0.833333, abs=5e-7)
    found = skip_observation_gae(REWARDS, VALUES, MASK, lam=lam)
    np.testing.assert_allclose(found, [0.584259, 0.461111, 0, 0, 0.433333, 0.4], atol=5e-7)
    counting_observations = skip_observation_gae(
        REWARDS, VALUES, MASK, lam=length_adaptive_lambda(len(MASK))
    )
    np.testing.assert_allclose(
        counting_observations, [0.648834, 0.504938, 0, 0, 0.455556, 0.4], atol=5e-7
    )


def test_reward_in_both_turns() -> None:
    rewards = np.zeros(6)
    rewards[np.array(MASK) == 1] = place_turn_rewards([0.3, 1], turn_index([2, 2]))
    found = skip_observation_gae(rewards, VALUES, MASK, lam=0.5)
    np.testing.assert_allclose(found, [0.475, 0.55, 0, 0, 0.3, 0.4], atol=1e-15)


@pytest.mark.parametrize("junk", [0.0, -1e9, 100.0, math.nan, math.inf])
def test_values_at_observations_are_never_read(junk) -> None:
    dirty = np.where(np.array(MASK) == 1, VALUES, junk)
    clean = skip_observation_gae(REWARDS, VALUES, MASK, lam=0.5)
    np.testing.assert_array_equal(skip_observation_gae(REWARDS, dirty, MASK, lam=0.5), clean)


def test_a_longer_observation_costs_no_more() -> None:
    def stretched(x, filler):
        return [*x[:3], *[filler] * 100, *x[3:]]

    long = skip_observation_gae(
        stretched(REWARDS, 0.0), stretched(VALUES, 7.0), stretched(MASK, 0), gamma=0.9, lam=0.95
    )
    short = skip_observation_gae(REWARDS, VALUES, MASK, gamma=0.9, lam=0.95)
    np.testing.assert_array_equal(long[np.r_[:2, 104:106]], short[[0, 1, 4, 5]])


def test_treating_observations_as_transitions_would_be_far_off() -> None:
    naive = skip_observation_gae(REWARDS, VALUES, lam=0.5)
    np.testing.assert_allclose(naive[:2], [3.456, 6.513], atol=5e-4)


def test_trailing_observation_bears_nothing() -> None:
    rewards = place_token_rewards([0, 0, 1.0], [1, 1, 0])
    found = skip_observation_gae(rewards, [0.2, 0.4, 9], [1, 1, 0])
    np.testing.assert_allclose(found, [0.8, 0.6, 0], atol=1e-15)


def test_flat_action_tokens_give_what_the_masked_row_gives() -> None:
    at = np.flatnonzero(MASK)
    row = skip_observation_gae(REWARDS, VALUES, MASK, gamma=0.9, lam=0.8, v_end=0.3)
    flat = skip_observation_gae(
        np.array(REWARDS)[at], np.array(VALUES)[at], gamma=0.9, lam=0.8, v_end=0.3
    )
    np.testing.assert_array_equal(row[at], flat)


def test_single_turn_is_ordinary_gae() -> None:
    rewards, values = [0.1, 0.0, 1.0], [0.5, 0.2, 0.7]
    d2 = 1.0 - 0.7
    d1 = 0.9 * 0.7 - 0.2
    d0 = 0.1 + 0.9 * 0.2 - 0.5
    expected = [d0 + 0.72 * d1 + 0.72**2 * d2, d1 + 0.72 * d2, d2]
    found = skip_observation_gae(rewards, values, gamma=0.9, lam=0.8)
    np.testing.assert_allclose(found, expected, atol=1e-15)


rows = st.lists(
    st.tuples(st.integers(-4, 4), st.integers(-8, 8), st.booleans()), min_size=1, max_size=12
)
unit = st.sampled_from([0.0, 0.25, 0.5, 0.9, 0.95, 1.0])


@given(rows, unit, unit, st.integers(-4, 4))
def test_against_double_sums(row, gamma, lam, v_end) -> None:
    mask = [m for _, _, m in row]
    rewards = [r / 2 if m else 0.0 for r, _, m in row]
    values = [v / 4 for _, v, _ in row]
    found = skip_observation_gae(rewards, values, mask, v_end=v_end, gamma=gamma, lam=lam)
    np.testing.assert_allclose(
        found, slow_gae(rewards, values, mask, v_end, gamma, lam), atol=1e-11
    )
    target = reward_to_go(rewards, mask, v_end=v_end, gamma=gamma)
    np.testing.assert_allclose(target, slow_reward_to_go(rewards, mask, v_end, gamma), atol=1e-11)
    at_lambda_one = skip_observation_gae(rewards, values, mask, v_end=v_end, gamma=gamma)
    np.testing.assert_allclose(
        target, np.where(mask, at_lambda_one + np.array(values), 0.0), atol=1e-11
    )


@given(st.lists(rows, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_rows_of_a_batch_do_not_influence_each_other(batch, random) -> None:
    width = max(len(row) for row in batch)
    shape = (len(batch), width)
    rewards, values, mask = np.zeros(shape), np.full(shape, np.nan), np.zeros(shape, bool)
    for i, row in enumerate(batch):
        mask[i, : len(row)] = [m for _, _, m in row]
        rewards[i, : len(row)] = [r if m else 0 for r, _, m in row]
        values[i, : len(row)] = [v for _, v, _ in row]
    v_end = np.array([random.uniform(-1, 1) for _ in batch])
    lam = np.array([random.random() for _ in batch])
    together = skip_observation_gae(rewards, values, mask, v_end=v_end, lam=lam, gamma=0.9)
    for i in range(len(batch)):
        alone = skip_observation_gae(
            rewards[i], values[i], mask[i], v_end=v_end[i], lam=lam[i], gamma=0.9
        )
        np.testing.assert_array_equal(together[i], alone)
    order = random.sample(range(len(batch)), len(batch))
    shuffled = skip_observation_gae(
        rewards[order], values[order], mask[order], v_end=v_end[order], lam=lam[order], gamma=0.9
    )
    np.testing.assert_array_equal(shuffled, together[order])


def test_trajectory_without_action_tokens() -> None:
    assert skip_observation_gae([0.0, 0.0], [9.0, 9.0], [0, 0]).tolist() == [0, 0]
    assert skip_observation_gae([], []).shape == (0,)
    assert reward_to_go([]).shape == (0,)


def test_reward_off_the_mask_is_refused_rather_than_lost() -> None:
    with pytest.raises(ValueError, match=r"reward 1.0 at position \(2,\).*place_t"):
        skip_observation_gae([0, 0, 1.0], [0, 0, 0], [1, 1, 0])
    with pytest.raises(ValueError, match="place_t"):
        reward_to_go([0, 0, 1.0], [1, 1, 0], gamma=0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: skip_observation_gae([0.0], [np.nan]), r"value nan at action token \(0,\)"),
        (lambda: skip_observation_gae([np.inf], [0.0]), r"reward inf at action token \(0,\)"),
        (lambda: skip_observation_gae([0.0], [0.0, 1.0]), "share one shape"),
        (lambda: skip_observation_gae([0.0], [0.0], gamma=1.1), "gamma must lie in"),
        (lambda: skip_observation_gae([0.0], [0.0], lam=-1.0), "lam must lie in"),
        (lambda: skip_observation_gae([0.0], [0.0], v_end=np.nan), "v_end must be finite"),
        (lambda: skip_observation_gae([[0.0]], [[0.0]], v_end=[1, 2]), "v_end must be a number"),
    ],
)
def test_bad_input_is_named(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# -- faults reported against other implementations ----------------------------------------------


def test_large_value_in_a_masked_slot() -> None:
    # A value of 100 after the last action token once turned [0.95, 1] into [5.7, 6].
    found = skip_observation_gae([0, 1, 0], [0, 0, 100], [1, 1, 0], lam=0.95)
    np.testing.assert_allclose(found, [0.95, 1.0, 0], atol=1e-15)


def test_return_is_not_restarted_at_an_observation() -> None:
    found = reward_to_go([0, 0, 1], [1, 0, 1], gamma=0.5)
    np.testing.assert_allclose(found[[0, 2]], [0.5, 1], atol=0)
    assert reward_to_go([0, 0, 1], [1, 0, 1]).tolist() == [1, 0, 1]


@pytest.mark.parametrize("gamma", [1.0, 0.5, 0.0])
def test_terminal_reward_on_a_masked_token_neither_decays_nor_vanishes(gamma) -> None:
    rewards = place_token_rewards([0, 0, 0, 0, 1.0], [1, 1, 0, 0, 0])
    found = reward_to_go(rewards, [1, 1, 0, 0, 0], gamma=gamma)
    assert found.tolist() == [gamma, 1.0, 0, 0, 0]


# -- ends ----------------------------------------------------------------------------------------


def test_truncated_episode_is_bootstrapped() -> None:
    values, rewards = [0.2, 0.4], [0.0, 0.0]
    end = end_of_episode("max_turns", terminated=False, v_boot=0.7)
    assert (end.keep, end.bootstrapped, end.v_end) == (True, True, 0.7)
    np.testing.assert_allclose(
        skip_observation_gae(rewards, values, v_end=end.v_end), [0.5, 0.3], atol=1e-15
    )
    assert reward_to_go(rewards, v_end=end.v_end).tolist() == [0.7, 0.7]
    np.testing.assert_allclose(
        reward_to_go(rewards, v_end=end.v_end, gamma=0.9), [0.567, 0.63], atol=1e-15
    )


@pytest.mark.parametrize("reason", ["failed", "max_turns", "max_tokens"])
def test_terminated_ends_at_zero_also_when_truncated_in_the_same_step(reason) -> None:
    end = end_of_episode(reason, terminated=True, v_boot=0.7)
    assert (end.keep, end.bootstrapped, end.v_end) == (True, False, 0.0)
    found = skip_observation_gae([0.0, 0.0], [0.2, 0.4], v_end=end.v_end)
    np.testing.assert_allclose(found, [-0.2, -0.4], atol=1e-15)
    assert reward_to_go([0.0, 0.0], v_end=end.v_end).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("reason", "rules", "expected"),
    [
        ("solved", EndRules(), (True, False, 0.0)),
        ("failed", EndRules(), (True, False, 0.0)),
        ("max_turns", EndRules(), (True, True, 0.7)),
        ("max_turns", EndRules(time_limit="zero"), (True, False, 0.0)),
        ("max_tokens", EndRules(), (True, False, 0.0)),
        ("context_overflow", EndRules(), (True, False, 0.0)),
        ("max_tokens", EndRules(length_limit="bootstrap"), (True, True, 0.7)),
        ("context_overflow", EndRules(length_limit="drop"), (False, False, 0.0)),
        ("deadline", EndRules(), (True, True, 0.7)),
        ("deadline", EndRules(deadline="drop"), (False, False, 0.0)),
        ("infra_error", EndRules(), (False, False, 0.0)),
        ("cancelled", EndRules(), (False, False, 0.0)),
    ],
)
def test_table_of_ends(reason, rules, expected) -> None:
    end = end_of_episode(reason, terminated=False, v_boot=0.7, rules=rules)
    assert (end.keep, end.bootstrapped, end.v_end) == expected


def test_infrastructure_failure_is_dropped_even_if_flagged_terminated() -> None:
    assert not end_of_episode("infra_error", terminated=True).keep


def test_ends_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="'tired'"):
        end_of_episode("tired", terminated=False)
    with pytest.raises(ValueError, match="v_boot is None"):
        end_of_episode("max_turns", terminated=False)
    with pytest.raises(ValueError, match="v_boot is nan"):
        end_of_episode("max_turns", terminated=False, v_boot=np.nan)
    with pytest.raises(ValueError, match=r"length_limit .* 'ignore'"):
        EndRules(length_limit="ignore")  # type: ignore[arg-type]


# -- turns ---------------------------------------------------------------------------------------


def test_turn_level_worked_number() -> None:
    found = turn_level_gae([0, 1], [0.2, 77, 0.5], [0, 0, 1], gamma=0.9, lam=0.95)
    np.testing.assert_allclose(found.advantages_n, [0.6775, 0.6775, 0.5], atol=1e-12)
    np.testing.assert_allclose(found.targets_n, [0.9, 0, 1], atol=1e-15)
    assert found.critic_mask_n.tolist() == [True, False, True]


def test_turn_without_reward_is_a_boundary() -> None:
    rewards, values = [0, 0, 1], [0.1, 0.2, 0.4]
    found = turn_level_gae(rewards, values, [0, 1, 2], gamma=1, lam=0.5)
    np.testing.assert_allclose(
        found.advantages_n, slow_gae(rewards, values, [1, 1, 1], 0, 1, 0.5), atol=1e-15
    )


def test_turn_level_folds_turns_without_action_tokens() -> None:
    found = turn_level_gae([0.5, 1.0, 2.0], [0.0, 0.0, 0.0], [0, 0, 2], gamma=1, lam=1, v_end=4)
    assert found.advantages_n.tolist() == [7.5, 7.5, 6.0]


def test_turn_level_of_an_empty_trajectory() -> None:
    assert turn_level_gae([1.0], [], []).advantages_n.shape == (0,)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(-4, 4), st.integers(-4, 4)), min_size=1),
    unit,
    unit,
)
def test_turn_level_against_double_sums(turns, gamma, lam) -> None:
    lengths = [length for length, _, _ in turns]
    rewards, values = [r for _, r, _ in turns], [v for _, _, v in turns]
    values_n = np.full(sum(lengths), np.pi)  # only turn starts are read
    values_n[np.cumsum([0, *lengths[:-1]])] = values
    found = turn_level_gae(rewards, values_n, turn_index(lengths), v_end=1, gamma=gamma, lam=lam)
    expected = slow_gae(rewards, values, [1] * len(turns), 1, gamma, lam)
    np.testing.assert_allclose(found.advantages_n, np.repeat(expected, lengths), atol=1e-11)
    targets = slow_reward_to_go(rewards, [1] * len(turns), 1, gamma)
    np.testing.assert_allclose(found.targets_n[found.critic_mask_n], targets, atol=1e-11)


# -- expectations --------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_exact_values_give_the_true_gradient_at_any_lambda(lam) -> None:
    np.testing.assert_allclose(
        two_turn_gradient([0.36, 0.36], [0.3, 0.4], lam), [0.012, -0.084, 0.144], atol=1e-15
    )


@pytest.mark.parametrize(("lam", "first"), [(0.0, 0.0), (0.5, 0.006), (1.0, 0.012)])
def test_without_values_lambda_scales_the_early_gradient(lam, first) -> None:
    found = two_turn_gradient([0, 0], [0, 0], lam)
    np.testing.assert_allclose(found, [first, -0.084, 0.144], atol=1e-15)


def two_turn_gradient(v0, v1, lam):
    """Enumerate a two-turn task; gradient with respect to its three logits.

    First action 1 with probability 0.6; observation 1 with probability 0.8 after it, else 0.3;
    second action 1 with probability 0.7 or 0.4 after observation 0 or 1; reward 1 if it matches.
    """
    p0, p_obs, p1 = 0.6, {1: 0.8, 0: 0.3}, {0: 0.7, 1: 0.4}
    gradient = np.zeros(3)
    for a in (0, 1):
        for o in (0, 1):
            for c in (0, 1):
                probability = (p0 if a else 1 - p0) * (p_obs[a] if o else 1 - p_obs[a])
                probability *= p1[o] if c else 1 - p1[o]
                advantages = skip_observation_gae(
                    [0, 0, float(c == o)], [v0[0], np.nan, v1[o]], [1, 0, 1], lam=lam
                )
                gradient[0] += probability * advantages[0] * (a - p0)
                gradient[1 + o] += probability * advantages[2] * (c - p1[o])
    return gradient


def test_credit_of_the_first_token_without_a_critic() -> None:
    n = 50
    lam = length_adaptive_lambda(n)
    rewards = place_turn_rewards([1.0], np.zeros(n, int))
    found = skip_observation_gae(rewards, np.zeros(n), lam=lam)
    assert found[0] == pytest.approx(float(lam) ** (n - 1), rel=1e-12)
    assert earned_before(rewards).tolist() == [0.0] * n
