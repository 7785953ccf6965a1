"""GiGPO's terms and HGPO's levels, on numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_tables import rollout, step

from trainers.advantages.gigpo import (
    episode_advantages,
    history_advantages,
    history_weights,
    local_advantages,
)
from trainers.advantages.group import group_advantages
from trainers.advantages.steps import (
    anchor_groups,
    canonical_action,
    discounted_returns,
    step_rows,
)

CLOSE = {"rel": 2e-4, "abs": 6e-5}  # the numbers are rounded to four digits


def table(*, invalid: bool = False):
    """One task: a win of two steps, a failure of four."""
    won = [step("s0", "a"), step("s1", "b", 10.0)]
    lost = [
        step("s0", "c"),
        step("s0", "d", format_ok=not invalid),
        step("s2", "e"),
        step("s2", "f"),
    ]
    return step_rows([rollout("u", 0, won), rollout("u", 1, lost)])


def terms(rows, *, cross_steps: bool = True, std: str = "group", penalty: float = 0.1):
    anchor = anchor_groups(rows.group_R, rows.observation_R)
    episode = episode_advantages(
        rows.scores(penalty),
        rows.group_R,
        rows.trajectory_R,
        cross_steps=cross_steps,
        std=std,
    )
    local, _ = local_advantages(rows.returns(0.95, penalty), anchor, std=std)
    return episode, local


# Returns -----------------------------------------------------------------------------------------


def test_returns_are_discounted_by_turn():
    assert discounted_returns([0, 0, 10], [0] * 3, 0.95) == pytest.approx([9.025, 9.5, 10])


def test_a_penalty_that_the_environment_pays_reaches_back():
    found = discounted_returns([0, -0.1, 0, 0, 10], [0] * 5, 0.95)
    assert found == pytest.approx([8.0500625, 8.47375, 9.025, 9.5, 10])


def test_returns_of_interleaved_rollouts_do_not_mix():
    both = discounted_returns([1, 5, 2, 7], [0, 1, 0, 1], 0.5)
    assert both == pytest.approx([2, 8.5, 2, 7])


# The two terms -----------------------------------------------------------------------------------


def test_rows_or_rollouts_are_compared():
    by_row, local = terms(table())
    assert by_row == pytest.approx([1.2910] * 2 + [-0.6455] * 4, **CLOSE)
    by_rollout, _ = terms(table(), cross_steps=False)
    assert by_rollout == pytest.approx([0.7071] * 2 + [-0.7071] * 4, **CLOSE)
    assert local == pytest.approx([1.1547, 0, -0.5774, -0.5774, 0, 0], **CLOSE)
    total = [2.4457, 1.2910, -1.2228, -1.2228, -0.6455, -0.6455]
    assert by_row + local == pytest.approx(total, **CLOSE)


def test_without_dividing_by_the_deviation():
    by_row, local = terms(table(), std="none")
    assert by_row == pytest.approx([20 / 3] * 2 + [-10 / 3] * 4)
    by_rollout, _ = terms(table(), std="none", cross_steps=False)
    assert by_rollout == pytest.approx([5.0] * 2 + [-5.0] * 4)
    total = [13.0, 6.6667, -6.5, -6.5, -3.3333, -3.3333]
    assert by_row + local == pytest.approx(total, **CLOSE)


def test_the_penalty_stands_on_its_own_row():
    rows = table(invalid=True)
    episode, local = terms(rows)
    expected = [1.291, 1.291, -0.6407, -0.66, -0.6407, -0.6407]
    assert episode == pytest.approx(expected, **CLOSE)
    assert local == pytest.approx([1.1547, 0, -0.5683, -0.5864, 0, 0], **CLOSE)
    clean = table().returns(0.95, 0.1)
    assert np.flatnonzero(rows.returns(0.95, 0.1) != clean).tolist() == [3]


def test_inadmissible_rows_pay_if_asked_to():
    turns = [step("x", valid=False), step("y", format_ok=False), step("z")]
    for penalty_on, bad in (("format", [0, 1, 0]), ("invalid", [1, 1, 0])):
        rows = step_rows([rollout("u", 0, turns)], penalty_on=penalty_on)
        assert rows.bad_R.tolist() == bad


def test_repeated_rows_would_change_everything_and_are_refused():
    returns, anchor = np.array([9.5, 0, 0]), np.zeros(3, np.int64)
    assert local_advantages(returns, anchor)[0] == pytest.approx(
        [1.1547, -0.5774, -0.5774], **CLOSE
    )
    padded, _ = local_advantages(np.array([9.5, 9.5, 0, 0]), np.zeros(4, np.int64))
    assert padded == pytest.approx([0.866, 0.866, -0.866, -0.866], **CLOSE)
    one = rollout("u", 0, [step("s0")])
    with pytest.raises(ValueError, match="member 0 of group 'u' stands twice"):
        step_rows([one, rollout("u", 1, [step("s0")]), one])


def test_an_entry_with_nobody_to_compare_with_has_no_advantage():
    """The release returns the score itself, 9.99999."""
    rows = step_rows([rollout("u", 0, [step("s0", reward=10.0)])])
    for cross_steps in (True, False):
        episode, local = terms(rows, cross_steps=cross_steps)
        assert episode.tolist() == local.tolist() == [0.0]


def test_a_penalty_among_equals_is_not_blown_up():
    """Compared are the first rows, which are equal; a later row is punished by what it cost."""
    turns = [[step("a"), step("b", format_ok=False)], [step("a"), step("b")]]
    rows = step_rows([rollout("u", number, own) for number, own in enumerate(turns)])
    episode, _ = terms(rows, cross_steps=False)
    assert episode == pytest.approx([0, -0.1, 0, 0])


def test_equal_rewards_teach_nothing():
    for reward in (0.0, 1 / 3, 10.0):
        turns = [step("a", reward=reward), step("b"), step("a")]
        rows = step_rows([rollout("u", member, turns) for member in range(3)])
        for cross_steps in (True, False):
            episode, local = terms(rows, cross_steps=cross_steps)
            assert episode.tolist() == [0.0] * 9
            assert np.isfinite(local).all()


def test_the_other_algorithms_of_the_family():
    rloo = group_advantages([1, 0, 0, 1], list("uuuu"), center="loo").advantages_N
    assert rloo == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])
    for ddof, expected in ((1, [1.5, -0.5]), (0, [1.732, -0.5773])):
        found = group_advantages([1, 0, 0, 0], list("uuuu"), std="group", ddof=ddof, eps=0)
        assert found.advantages_N[:2] == pytest.approx(expected, **CLOSE)


@pytest.mark.torch
def test_gspo_weighs_each_token_by_the_whole_sequence():
    import torch

    from trainers.losses import policy_loss

    logp_old = torch.full((1, 3), -1.0)
    logp = (logp_old + torch.tensor([[0.1, -0.1, 0.3]])).requires_grad_()
    out = policy_loss(logp, logp_old, torch.ones(1, 3), torch.ones(1, 3), kind="gspo")
    assert out.metrics["ratio_mean"] == pytest.approx(1.10517, rel=1e-5)
    assert out.metrics["ratio_max"] == pytest.approx(1.10517, rel=1e-5)


# Situations --------------------------------------------------------------------------------------


def test_the_same_observation_of_another_group_is_another_situation():
    assert anchor_groups([0, 0, 1, 1], ["x", "y", "x", "x"]).tolist() == [0, 1, 2, 2]


def test_similar_observations_can_share_a_situation():
    near = [
        "a drawer and a shelf 1",
        "a drawer and a shelf 2",
        "something else",
        "a drawer and a shelf 3",
    ]
    assert anchor_groups([0] * 4, near, similarity=0.95).tolist() == [0, 0, 1, 0]
    assert anchor_groups([0] * 4, near, similarity=1.0).tolist() == [0, 1, 2, 3]
    assert anchor_groups([0, 1, 1, 1], near, similarity=0.95).tolist() == [0, 1, 2, 1]
    with pytest.raises(ValueError, match=r"similarity must lie in \(0, 1\], or be None, got 0"):
        anchor_groups([0], ["x"], similarity=0.0)


def test_clusters_are_founded_in_the_order_of_rows():
    """A text joins the first cluster that is near enough, not the nearest."""
    texts = ["aaaaaaaaaa", "aaaaaaabbb", "aaaaaaaabb"]
    assert anchor_groups([0] * 3, texts, similarity=0.8).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("Open  Box", True, True), ("open box", True, True), True),
        (("ｏｐｅｎ box\n", True, True), ("open box", True, True), True),
        (("open box", True, False), ("open box", True, True), False),
        (("open box", False, False), ("open box", True, False), False),
        (("open box", False, True), ("open box", False, False), True),
    ],
)
def test_when_two_actions_are_the_same(one, other, same):
    assert (canonical_action(*one) == canonical_action(*other)) is same


# Properties --------------------------------------------------------------------------------------

stds = st.sampled_from(["group", "batch", "none"])
small = st.integers(-3, 3).map(float)
rollouts = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.lists(st.tuples(st.sampled_from("xyz"), small), min_size=1, max_size=5),
    ),
    min_size=1,
    max_size=7,
)


def built(drawn, rename=lambda name: name, order=None, scale=1.0, offset=0.0):
    made = []
    members: dict[int, int] = {}
    for group, turns in drawn:
        member = members[group] = members.get(group, -1) + 1
        steps = [step(name, name, scale * reward) for name, reward in turns]
        steps[-1].reward += offset
        made.append(rollout(rename(f"g{group}"), member, steps))
    if order is not None:
        made = [made[place] for place in order]
    return step_rows(made)


@given(rollouts, st.booleans(), stds, st.randoms(use_true_random=False))
def test_order_and_names_do_not_matter(drawn, cross_steps, std, random):
    order = list(range(len(drawn)))
    random.shuffle(order)
    lengths = [len(turns) for _, turns in drawn]
    plain = terms(built(drawn), cross_steps=cross_steps, std=std)
    mixed = terms(
        built(drawn, lambda name: f"other {name}", order), cross_steps=cross_steps, std=std
    )
    for one, other in zip(plain, mixed, strict=True):
        cut = np.split(one, np.cumsum(lengths)[:-1])
        assert np.concatenate([cut[place] for place in order]) == pytest.approx(other, abs=1e-6)


@given(rollouts, small, st.booleans())
def test_a_constant_changes_no_episode_term(drawn, offset, cross_steps):
    plain, _ = terms(built(drawn), cross_steps=cross_steps)
    moved, _ = terms(built(drawn, offset=offset), cross_steps=cross_steps)
    assert plain == pytest.approx(moved, abs=1e-6)


@given(rollouts, st.sampled_from([0.5, 4.0, 100.0]))
def test_scale_cancels_where_it_is_divided_out(drawn, scale):
    for one, other in zip(
        terms(built(drawn), penalty=0.0), terms(built(drawn, scale=scale), penalty=0.0), strict=True
    ):
        assert one == pytest.approx(other, abs=2e-5)


@given(rollouts, stds)
def test_step_terms_of_a_situation_add_up_to_nothing(drawn, std):
    rows = built(drawn)
    anchor = anchor_groups(rows.group_R, rows.observation_R)
    local, active = local_advantages(rows.returns(0.95, 0.1), anchor, std=std)
    assert np.bincount(anchor, weights=local) == pytest.approx(np.zeros(anchor.max() + 1), abs=1e-5)
    assert np.isfinite(local).all()
    assert not local[~active].any()


@given(rollouts, stds)
def test_counted_once_each_the_rollouts_are_compared_as_grpo_does(drawn, std):
    rows = built(drawn)
    first = np.unique(rows.trajectory_R, return_index=True)[1]
    scores, group = rows.scores(0.0), rows.group_R
    grpo = group_advantages(scores[first], group[first].tolist(), std=std)
    if std == "batch" and not grpo.kept_N.all():
        return  # GRPO leaves single members out before anything is compared
    mine = episode_advantages(scores, group, rows.trajectory_R, cross_steps=False, std=std)
    assert mine[first].tolist() == grpo.advantages_N.tolist()
    assert mine.tolist() == grpo.advantages_N[rows.trajectory_R].tolist()


# HGPO --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "weights"),
    [(0.0, [1 / 3] * 3), (1.0, [1 / 6, 1 / 3, 1 / 2]), (2.0, [1 / 14, 4 / 14, 9 / 14])],
)
def test_longer_histories_weigh_more(alpha, weights):
    assert history_weights(3, alpha) == pytest.approx(weights)


def test_the_release_counts_levels_from_one():
    assert history_weights(3, 1.0, first=1) == pytest.approx([2 / 9, 3 / 9, 4 / 9])


@pytest.mark.parametrize(("first", "expected"), [(0, 0.625), (1, 2 / 3)])
def test_a_level_that_says_nothing_is_left_out(first, expected):
    A = np.array([1.0, 0.0, 0.5])
    w = np.where(A != 0, history_weights(3, 1.0, first), 0)
    assert w @ A / w.sum() == pytest.approx(expected, abs=1e-4)


def levels(rows, **options):
    return history_advantages(
        rows.returns(0.95, 0.1),
        rows.group_R,
        rows.trajectory_R,
        rows.observation_R,
        **options,
    )


def forked():
    """x is reached from a and from b; what was earned depends on both."""
    paths = [("a", "x", 8.0), ("a", "x", 4.0), ("b", "x", 1.0), ("b", "x", 3.0)]
    return step_rows(
        [
            rollout("u", member, [step(first), step(second, reward=reward)])
            for member, (first, second, reward) in enumerate(paths)
        ]
    )


@pytest.mark.parametrize(("weights", "ddof", "first"), [("formula", 1, 0), ("release", 0, 1)])
def test_a_row_is_compared_with_those_of_the_same_history(weights, ddof, first):
    found = levels(forked(), history=1, weights=weights)
    x = np.array([8.0, 4, 1, 3])
    zero = (x - x.mean()) / (x.std(ddof=ddof) + 1e-6)
    one = np.concatenate(
        [(part - part.mean()) / (part.std(ddof=ddof) + 1e-6) for part in (x[:2], x[2:])]
    )
    low, high = first + 1, first + 2
    expected = np.where(zero == 0, one, (low * zero + high * one) / (low + high))
    assert found[1::2] == pytest.approx(expected)
    # The first steps have no longer history than themselves: both levels say the same.
    assert found[0] == pytest.approx(1 / math.sqrt(2) if ddof else 1, abs=1e-5)
    assert found[4] == pytest.approx(-1 / math.sqrt(2) if ddof else -1, abs=1e-5)


def test_the_episode_term_can_be_the_first_level():
    rows = forked()
    base = np.full(len(rows), 2.0)
    with_base = levels(rows, history=0, base_R=base)
    alone = levels(rows, history=0)
    assert with_base == pytest.approx((2.0 + 2 * alone) / np.where(alone != 0, 3, 1))


def test_a_return_at_the_mean_says_nothing_whatever_the_rounding():
    """In floating point the mean of .1, .2 and .3 is not .2; the level is left out all the same."""
    paths = [("a", 0.1), ("a", 0.2), ("b", 0.3)]
    rows = step_rows(
        [
            rollout("u", member, [step(first), step("x", reward=reward)])
            for member, (first, reward) in enumerate(paths)
        ]
    )
    assert rows.rewards_R[1::2].mean() != 0.2
    assert levels(rows, history=1)[3] == pytest.approx(1 / math.sqrt(2), abs=1e-4)


def test_no_history_is_gigpo_without_its_episode_term():
    rows = table()
    anchor = anchor_groups(rows.group_R, rows.observation_R)
    local, _ = local_advantages(rows.returns(0.95, 0.1), anchor)
    assert levels(rows, history=0).tolist() == local.tolist()
