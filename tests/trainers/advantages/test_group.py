"""Group-relative advantages, worked numbers and the edges where implementations go wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.advantages import (
    check_group_size,
    dynamic_sample,
    group_advantages,
    normalise,
    soft_overlong_penalty,
)

ONE = ["g"]


def grpo(returns, **options):
    options = {"std": "group", **options}
    return group_advantages(returns, ONE * len(returns), **options).advantages_N


# -- worked numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ddof", "eps", "size"),
    [(1, 1e-6, 0.866024), (1, 1e-4, 0.865875), (0, 1e-6, 0.999998)],
)
def test_two_of_four_succeed_std_normalised(ddof, eps, size) -> None:
    expected = [size, -size, -size, size]
    np.testing.assert_allclose(grpo([1, 0, 0, 1], ddof=ddof, eps=eps), expected, atol=5e-7)


def test_two_of_four_succeed_centred_and_leave_one_out() -> None:
    assert grpo([1, 0, 0, 1], std="none").tolist() == [0.5, -0.5, -0.5, 0.5]
    loo = grpo([1, 0, 0, 1], std="none", center="loo")
    np.testing.assert_allclose(loo, [2 / 3, -2 / 3, -2 / 3, 2 / 3], rtol=1e-15)


def test_one_of_four_succeeds() -> None:
    third = -1 / 3
    np.testing.assert_allclose(
        grpo([1, 0, 0, 0]), [1.499997, -0.499999, -0.499999, -0.499999], atol=5e-7
    )
    assert grpo([1, 0, 0, 0], std="none").tolist() == [0.75, -0.25, -0.25, -0.25]
    np.testing.assert_allclose(
        grpo([1, 0, 0, 0], std="none", center="loo"), [1, third, third, third], rtol=1e-15
    )


def test_graded_rewards() -> None:
    assert grpo([2, 0, 1], std="none").tolist() == [1, -1, 0]
    assert grpo([2, 0, 1], std="none", center="loo").tolist() == [1.5, -1.5, 0]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_mean_centring_shrinks_the_expected_advantage_and_loo_does_not(size) -> None:
    """E[A_1 | R_1 = 1] over all outcomes of the others, Bernoulli 0.5."""
    expected = {"mean": {2: 0.25, 4: 0.375, 8: 0.4375}[size], "loo": 0.5}
    for center, value in expected.items():
        total = 0.0
        for others in range(2 ** (size - 1)):
            returns = [1] + [(others >> j) & 1 for j in range(size - 1)]
            total += grpo(returns, std="none", center=center)[0]
        assert total / 2 ** (size - 1) == pytest.approx(value, abs=1e-15)


def expected_bandit_gradient(p: float, size: int, **options) -> float:
    """E[(1/G) sum_i A_i d log pi(a_i)/d logit] of a two-armed bandit paying 1 on arm 1."""
    total = 0.0
    for outcome in range(2**size):
        arms = np.array([(outcome >> j) & 1 for j in range(size)])
        probability = np.prod(np.where(arms == 1, p, 1 - p))
        gradient = np.mean(grpo(arms.astype(float), **options) * (arms - p))
        total += probability * gradient
    return total


@pytest.mark.parametrize(
    ("p", "size", "options", "value"),
    [
        (0.5, 2, {"std": "none"}, 0.125),
        (0.5, 2, {"std": "none", "center": "loo"}, 0.25),
        (0.5, 2, {"ddof": 0, "eps": 0.0}, 0.25),
        (0.5, 2, {"ddof": 1, "eps": 0.0}, 0.176777),
        (0.5, 4, {"std": "none"}, 0.1875),
        (0.5, 4, {"std": "none", "center": "loo"}, 0.25),
        (0.5, 4, {"ddof": 0, "eps": 0.0}, 0.404006),
        (0.5, 4, {"ddof": 1, "eps": 0.0}, 0.34988),
        (0.1, 4, {"std": "none"}, 0.0675),
        (0.1, 4, {"std": "none", "center": "loo"}, 0.09),
    ],
)
def test_expected_gradient_of_a_two_armed_bandit(p, size, options, value) -> None:
    assert expected_bandit_gradient(p, size, **options) == pytest.approx(value, abs=1e-6)


# -- invariances ---------------------------------------------------------------------------------


@pytest.mark.parametrize("center", ["mean", "loo"])
@pytest.mark.parametrize("std", ["none", "group", "batch"])
def test_adding_a_constant_changes_nothing(center, std) -> None:
    returns, groups = np.array([1.0, 0, 0, 2, 3, 1]), ["a", "a", "a", "b", "b", "b"]
    plain = group_advantages(returns, groups, center=center, std=std).advantages_N
    shifted = group_advantages(returns + 7, groups, center=center, std=std).advantages_N
    np.testing.assert_allclose(shifted, plain, atol=1e-12)


def test_scaling_rewards_leaves_normalised_advantages_within_eps() -> None:
    returns = np.array([1.0, 0, 0, 2])
    np.testing.assert_allclose(grpo(10 * returns), grpo(returns), atol=2e-6)


def test_statistics_are_of_the_group_and_not_of_the_batch() -> None:
    groups = ["easy"] * 4 + ["hard"] * 4
    returns = [1, 1, 1, 0, 0, 0, 0, 1]
    both = group_advantages(returns, groups, std="group").advantages_N
    np.testing.assert_array_equal(both[:4], grpo(returns[:4]))
    np.testing.assert_array_equal(both[4:], grpo(returns[4:]))


def test_batch_scale_keeps_the_group_mean() -> None:
    groups, returns = ["a", "a", "b", "b"], np.array([1.0, 0, 5, 3])
    found = group_advantages(returns, groups, std="batch", eps=1e-4).advantages_N
    expected = np.array([0.5, -0.5, 1, -1]) / (returns.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def reference_advantages(returns, groups, center, std, ddof, eps):
    """Group advantages as one would compute them by hand."""
    out = [0.0] * len(returns)
    batch = []
    for g in set(groups):
        members = [i for i, other in enumerate(groups) if other == g]
        if len(members) >= 2:
            batch += members
    mean_b = sum(returns[i] for i in batch) / max(len(batch), 1)
    var_b = sum((returns[i] - mean_b) ** 2 for i in batch) / max(len(batch) - ddof, 1)
    for g in set(groups):
        members = [i for i, other in enumerate(groups) if other == g]
        x = [returns[i] for i in members]
        if len(x) < 2 or max(x) == min(x):
            continue
        mean = sum(x) / len(x)
        var = sum((v - mean) ** 2 for v in x) / (len(x) - ddof)
        for i in members:
            rest = [returns[j] for j in members if j != i]
            base = mean if center == "mean" else sum(rest) / len(rest)
            scale = {"none": 1.0, "group": var**0.5 + eps, "batch": var_b**0.5 + eps}[std]
            out[i] = (returns[i] - base) / scale
    return out


@given(
    st.lists(st.tuples(st.integers(-4, 4), st.sampled_from("abcd")), min_size=1, max_size=20),
    st.sampled_from(["mean", "loo"]),
    st.sampled_from(["none", "group", "batch"]),
    st.sampled_from([0, 1]),
)
def test_against_a_slow_reference(members, center, std, ddof) -> None:
    returns, groups = [r / 4 for r, _ in members], [g for _, g in members]
    found = group_advantages(returns, groups, center=center, std=std, ddof=ddof, eps=1e-6)
    expected = reference_advantages(returns, groups, center, std, ddof, 1e-6)
    np.testing.assert_allclose(found.advantages_N, expected, atol=1e-9)
    lone = [groups.count(g) < 2 for g in groups]
    assert (~found.kept_N).tolist() == lone


@given(st.permutations(range(9)))
def test_order_of_members_and_names_of_groups_do_not_matter(order) -> None:
    returns = np.array([1, 0, 0, 2, 2, 1, 0, 1, 1.0])
    groups = ["a", "a", "a", "b", "b", "b", "c", "c", "c"]
    plain = group_advantages(returns, groups, std="group").advantages_N
    mixed = group_advantages(
        returns[order], [{"a": 3, "b": "b", "c": (1, 2)}[groups[i]] for i in order], std="group"
    ).advantages_N
    np.testing.assert_allclose(mixed, plain[order], atol=1e-12)


# -- edges ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("std", ["none", "group", "batch"])
@pytest.mark.parametrize("center", ["mean", "loo"])
@pytest.mark.parametrize("value", [1.0, 0.0, 0.1, 1e6 / 3])
def test_zero_variance_group_is_exactly_zero_whatever_the_scale(std, center, value) -> None:
    # The second group varies, so that a batch-wide deviation could not give the first away.
    found = group_advantages(
        [value] * 3 + [1.0, 0.0], ["z"] * 3 + ["v"] * 2, std=std, center=center, eps=0.0
    )
    assert found.advantages_N[:3].tolist() == [0.0, 0.0, 0.0]
    assert found.zero_variance_N.tolist() == [True] * 3 + [False] * 2
    assert found.groups_zero_variance == 1
    assert found.metrics()["zero_variance_fraction"] == 0.5
    assert (found.advantages_N[3:] != 0).all()


@pytest.mark.parametrize(("tol", "same"), [(0.0, False), (1e-8, False), (0.25, True), (1.0, True)])
def test_tolerance_of_zero_variance(tol, same) -> None:
    found = group_advantages([1.0, 0.75], ONE * 2, zero_variance_tol=tol)
    assert found.zero_variance_N.tolist() == [same, same]
    assert (found.advantages_N == 0).all() == same


def test_equal_returns_are_zero_variance_without_any_tolerance() -> None:
    assert group_advantages([0.1] * 3, ONE * 3, zero_variance_tol=0.0).zero_variance_N.all()


def test_group_without_a_valid_member_is_never_kept() -> None:
    found = group_advantages([1.0, 0.0], ONE * 2, valid_N=[False, False], min_valid_fraction=0.0)
    assert (found.groups_kept, found.groups_too_few) == (0, 1)
    assert found.groups_zero_variance == 0


def test_group_of_one_is_dropped_and_counted_never_nan() -> None:
    found = group_advantages([1.0, 1.0, 0.0], ["alone", "pair", "pair"], std="group")
    assert found.kept_N.tolist() == [False, True, True]
    assert found.advantages_N[0] == 0.0
    assert np.isnan(found.baseline_N[0])
    assert (found.groups, found.groups_kept, found.groups_single) == (2, 1, 1)


def test_group_size_of_one_is_refused_when_the_config_is_read() -> None:
    check_group_size(2, "GRPO")
    with pytest.raises(ValueError, match=r"GRPO .* group_size must be >= 2, got 1"):
        check_group_size(1, "GRPO")


def test_statistics_are_recomputed_on_the_valid_members() -> None:
    found = group_advantages(
        [1.0, 0.0, 0.0, 123.0], ONE * 4, valid_N=[True, True, True, False], std="none"
    )
    np.testing.assert_allclose(found.advantages_N, [2 / 3, -1 / 3, -1 / 3, 0], rtol=1e-15)
    assert found.kept_N.tolist() == [True, True, True, False]
    assert found.members_invalid == 1


def test_non_finite_reward_drops_its_member_and_nobody_else() -> None:
    found = group_advantages(
        [np.nan, 1.0, 0.0, np.inf, 2.0, 0.0], ["a", "a", "a", "b", "b", "b"], std="none"
    )
    assert found.advantages_N.tolist() == [0, 0.5, -0.5, 0, 1, -1]
    assert found.members_nonfinite == 2
    assert np.isfinite(found.advantages_N).all()


def test_group_with_less_than_half_its_members_is_dropped() -> None:
    valid = [True, True, True, False, False, False, False, False]  # 3 of 8
    found = group_advantages([1, 0, 1, 0, 0, 0, 0, 0], ONE * 8, valid_N=valid)
    assert not found.kept_N.any()
    assert found.groups_too_few == 1
    valid[3] = True  # 4 of 8
    assert group_advantages([1, 0, 1, 0, 0, 0, 0, 0], ONE * 8, valid_N=valid).kept_N.sum() == 4


def test_members_that_never_arrived_count_towards_the_planned_size() -> None:
    assert group_advantages([1, 0], ONE * 2, planned_size=4).groups_kept == 1
    assert group_advantages([1, 0], ONE * 2, planned_size=5).groups_too_few == 1


def test_no_rollouts_at_all() -> None:
    found = group_advantages([], [], std="batch")
    assert found.advantages_N.shape == (0,)
    assert found.groups == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"center": "median"}, "center"),
        ({"std": "token"}, "std"),
        ({"ddof": 2}, "ddof"),
        ({"min_valid_fraction": 1.5}, "min_valid_fraction"),
        ({"valid_N": [True]}, "valid_N"),
    ],
)
def test_bad_options_are_named(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        group_advantages([1, 0], ONE * 2, **options)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        group_advantages([1, 0], ONE * 3)


# -- DAPO ----------------------------------------------------------------------------------------


def test_dynamic_sampling_keeps_groups_that_differ_and_releases_the_others() -> None:
    groups = ["same", "diff", "lone", "same", "diff", "bad", "bad"]
    advantages = group_advantages(
        [1, 1, 1, 1, 0, np.nan, np.nan], groups, std="group", min_valid_fraction=0.5
    )
    sample = dynamic_sample(groups, advantages)
    assert sample.keep_N.tolist() == [False, True, False, False, True, False, False]
    assert sample.kept_groups == ("diff",)
    assert sample.released_groups == ("same", "lone", "bad")


def test_soft_overlong_penalty() -> None:
    lengths = [0, 16384, 16385, 18432, 20480, 30000]
    expected = [0, 0, -1 / 4096, -0.5, -1, -1]
    np.testing.assert_allclose(soft_overlong_penalty(lengths), expected, atol=0)
    with pytest.raises(ValueError, match="cache_length"):
        soft_overlong_penalty([1], max_length=10, cache_length=11)


# -- batch normalisation -------------------------------------------------------------------------


def test_whitening_over_the_mask() -> None:
    advantages = [0.325, 0.25, 0.0, 0.0, 0.3, 0.4]
    mask = [1, 1, 0, 0, 1, 1]
    assert np.mean([0.325, 0.25, 0.3, 0.4]) == pytest.approx(0.31875)
    assert np.var([0.325, 0.25, 0.3, 0.4]) == pytest.approx(0.0029297, abs=5e-8)
    found = normalise(advantages, mask)
    np.testing.assert_allclose(found, [0.1155, -1.2702, 0, 0, -0.3464, 1.5011], atol=5e-5)


@pytest.mark.parametrize("how", ["none", "batch_std", "whiten"])
def test_what_stands_off_the_mask_is_never_read(how) -> None:
    mask = np.array([[1, 1, 0], [0, 1, 1]])
    clean = np.array([[0.1, -0.3, 0.0], [0.0, 0.7, 0.2]])
    dirty = np.where(mask == 1, clean, np.nan)
    found = normalise(dirty, mask, how=how)
    np.testing.assert_array_equal(found, normalise(clean, mask, how=how))
    assert (found[mask == 0] == 0).all()


def test_batch_std_keeps_zeros_and_signs() -> None:
    found = normalise([0.5, 0.0, -0.5, 1.5], how="batch_std")
    assert np.sign(found).tolist() == [1, 0, -1, 1]
    assert np.mean(found**2) == pytest.approx(1.0, abs=1e-7)


def test_a_common_offset_does_not_blow_up_the_scale() -> None:
    found = normalise([0.01, 0.0100001, 0.0099999], how="batch_std")
    np.testing.assert_allclose(found, 1.0, atol=1e-4)


@pytest.mark.parametrize("how", ["none", "batch_std", "whiten"])
def test_normalising_constants_and_nothing(how) -> None:
    assert np.isfinite(normalise([0.3, 0.3, 0.3], how=how)).all()
    assert normalise([0.0, 0.0], how=how).tolist() == [0, 0]
    assert normalise([1.0, 2.0], [0, 0], how=how).tolist() == [0, 0]
    assert normalise([], how=how).shape == (0,)


def test_normalise_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="not finite"):
        normalise([np.nan, 1.0])
    with pytest.raises(ValueError, match="group_std"):
        normalise([0.0, 1.0], how="group_std")
    with pytest.raises(ValueError, match="shape"):
        normalise([0.0, 1.0], [1])
