"""Critic targets around a group baseline, re-centring, and the moving averages behind it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.advantages import (
    BiasCorrectedEMA,
    ReturnLevel,
    critic_targets,
    group_advantages,
    place_turn_rewards,
    recenter_rewards,
    reward_to_go,
    skip_observation_gae,
    turn_index,
)


@pytest.mark.parametrize(("center", "c"), [("loo", 1.0), ("mean", 0.75)])
def test_sparse_reward_gives_the_centred_return_on_every_token(center, c) -> None:
    group = group_advantages([1, 0, 0, 0], "gggg", center=center)
    target = critic_targets([0, 0, 1.0], centered_return=group.centered_N[0])
    assert target.tolist() == [c, c, c]


def test_dense_reward_subtracts_what_was_earned_before() -> None:
    rewards = place_turn_rewards([0.25, 0.5], turn_index([2, 2]))
    target = critic_targets(rewards, centered_return=0.75 - 0.5)
    assert target.tolist() == [0.25, 0.25, 0.0, 0.0]


def test_raw_and_group_mean_targets() -> None:
    rewards = [0.25, 0, 0.5]
    assert critic_targets(rewards, "raw").tolist() == [0.75, 0.5, 0.5]
    assert critic_targets(rewards, "group_mean", group_mean=0.4).tolist() == [0.4, 0.4, 0.4]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.integers(-4, 4)), min_size=1, max_size=4),
        min_size=2,
        max_size=5,
    )
)
def test_centred_targets_are_the_reward_to_go_minus_the_baseline(members) -> None:
    placed = [
        place_turn_rewards([r for _, r in turns], turn_index([n for n, _ in turns]))
        for turns in members
    ]
    returns = np.array([rewards.sum() for rewards in placed])
    group = group_advantages(returns, ["g"] * len(members), center="loo")
    for i, rewards in enumerate(placed):
        others = [returns[j] for j in range(len(members)) if j != i]
        target = critic_targets(rewards, centered_return=group.centered_N[i])
        same = group.zero_variance_N[i]
        expected = reward_to_go(rewards) - (returns[i] if same else np.mean(others))
        np.testing.assert_allclose(target, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: critic_targets([1.0], centered_return=0.0, gamma=0.99), "gamma must be 1"),
        (lambda: critic_targets([1.0]), "centered_return, got None"),
        (lambda: critic_targets([1.0], centered_return=np.nan), "centered_return, got nan"),
        (lambda: critic_targets([1.0], "group_mean"), "group_mean, got None"),
        (lambda: critic_targets([1.0], "loo"), "'loo'"),
    ],
)
def test_targets_refuse_what_they_cannot_use(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_level_at_the_switch() -> None:
    # A critic taught centred returns says 0; the mean return so far is 0.5.
    for reward, advantage in ((1.0, 0.5), (0.0, -0.5)):
        shifted = recenter_rewards([0, reward], 0.5, bootstrapped=False)
        assert skip_observation_gae(shifted, [0, 0]).tolist() == [advantage, advantage]
        assert skip_observation_gae([0, reward], [0, 0])[0] == reward
        assert reward_to_go(shifted).tolist() == [advantage, advantage]


def test_bootstrapped_episode_is_not_shifted() -> None:
    rewards = np.array([0.0, 0.2])
    assert recenter_rewards(rewards, 0.5, bootstrapped=True).tolist() == [0.0, 0.2]
    assert recenter_rewards(rewards, 0.5, bootstrapped=False)[1] == pytest.approx(-0.3)
    assert rewards.tolist() == [0.0, 0.2], "the caller's array is left alone"
    assert recenter_rewards([], 0.5, bootstrapped=False).shape == (0,)


@pytest.mark.parametrize(
    ("lam", "level", "expected"), [(0.5, 0.0, 0.125), (0.5, 1.0, 0.0), (1.0, 0.0, 0.0)]
)
def test_offset_of_the_level_is_a_length_bias(lam, level, expected) -> None:
    """Stop now or take one more turn, reward 1 either way: the true gradient is 0."""
    gradient = 0.0
    for stops in (True, False):
        turns = 1 if stops else 2
        rewards = place_turn_rewards([0.0] * (turns - 1) + [1.0], turn_index([1] * turns))
        rewards = recenter_rewards(rewards, level, bootstrapped=False)
        advantage = skip_observation_gae(rewards, np.zeros(turns), lam=lam)[0]
        gradient += 0.5 * advantage * (float(stops) - 0.5)
    assert gradient == pytest.approx(expected, abs=1e-15)


def test_moving_average_is_not_pulled_to_zero() -> None:
    ema = BiasCorrectedEMA(0.9)
    assert ema.value is None
    ema.update(5.0)
    assert ema.value == pytest.approx(5.0)
    ema.update(7.0)
    assert ema.value == pytest.approx((0.09 * 5 + 0.1 * 7) / 0.19)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30), st.sampled_from([0.0, 0.5, 0.9]))
def test_moving_average_against_explicit_weights(xs, beta) -> None:
    ema = BiasCorrectedEMA(beta)
    for x in xs:
        ema.update(x)
    weights = np.array([beta ** (len(xs) - 1 - i) for i in range(len(xs))])
    assert ema.value == pytest.approx((weights * xs).sum() / weights.sum(), abs=1e-9)


def test_moving_average_refuses_what_would_stay_forever() -> None:
    with pytest.raises(ValueError, match="nan"):
        BiasCorrectedEMA().update(float("nan"))
    with pytest.raises(ValueError, match="beta"):
        BiasCorrectedEMA(1.0)


def test_return_level_resumes_exactly_through_json() -> None:
    level = ReturnLevel(0.9)
    assert level.value == 0.0
    level.update([1, 0, 0])
    level.update([])
    assert level.value == pytest.approx(1 / 3)
    again = ReturnLevel(0.9)
    again.load_state_dict(json.loads(json.dumps(level.state_dict())))
    for batch in ([1, 1, 0], [0.1, 0.7]):
        level.update(batch)
        again.update(batch)
        assert again.value == level.value
