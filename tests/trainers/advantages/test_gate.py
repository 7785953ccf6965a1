"""The critic's skill, and the gate that goes over to it."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.advantages import (
    GateConfig,
    PhaseGate,
    SkillSums,
    critic_targets,
    explained_variance,
    group_advantages,
    skill_sums,
    turn_starts,
)

# -- explained variance and skill ----------------------------------------------------------------

Y = np.array([0.5, -0.5, 0.5, -0.5])


@pytest.mark.parametrize(
    ("values", "mse", "var"),
    [(0 * Y, 0.0, 0.0), (Y / 2, 0.75, 0.75), (-Y, -3.0, -3.0), (Y + 0.5, 0.0, 1.0)],
)
def test_explained_variance(values, mse, var) -> None:
    assert explained_variance(Y, values) == pytest.approx(mse, abs=1e-15)
    assert explained_variance(Y, values, form="var") == pytest.approx(var, abs=1e-15)


def test_explained_variance_off_the_mask_and_undefined() -> None:
    dirty = np.append(Y / 2, np.nan)
    assert explained_variance(np.append(Y, np.inf), dirty, [1, 1, 1, 1, 0]) == 0.75
    assert explained_variance([1.0, 1.0], [0.0, 0.0]) is None
    assert explained_variance([], []) is None
    with pytest.raises(ValueError, match="shape"):
        explained_variance([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("values", "skill"), [(0 * Y, 0.0), (Y / 2, 0.75), (-Y, -3.0), (Y + 0.5, 0.0)]
)
def test_skill_is_explained_variance_in_mean_square_form(values, skill) -> None:
    sums = skill_sums(Y, [[y] for y in Y], [[v] for v in values])
    assert sums.skill == pytest.approx(skill, abs=1e-15)
    assert sums.sse_group == 1.0
    assert sums.sse_critic == pytest.approx(1.0 - skill)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.integers(1, 50)), min_size=2, max_size=10),
    st.sampled_from(["loo", "mean"]),
)
def test_a_critic_that_says_zero_has_skill_exactly_zero(members, center) -> None:
    returns = [r for r, _ in members]
    group = group_advantages(returns, ["g"] * len(members), center=center)
    targets = [
        critic_targets([0.0] * (n - 1) + [r], centered_return=c)
        for (r, n), c in zip(members, group.centered_N, strict=True)
    ]
    sums = skill_sums(group.centered_N, targets, [np.zeros(n) for _, n in members])
    assert sums.skill in (0.0, None)
    assert sums.sse_critic == sums.sse_group


@given(
    st.lists(
        st.tuples(
            st.integers(-4, 4),
            st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), max_size=6),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_skill_against_loops(members) -> None:
    sse_c = sse_g = 0.0
    for c, tokens in members:
        if tokens:
            sse_g += c**2
            for y, v in tokens:
                sse_c += (y - v) ** 2 / len(tokens)
    sums = skill_sums(
        [c for c, _ in members],
        [[y for y, _ in tokens] for _, tokens in members],
        [[v for _, v in tokens] for _, tokens in members],
    )
    if sse_g == 0:
        assert sums.skill is None
    else:
        assert sums.skill == pytest.approx(1 - sse_c / sse_g, abs=1e-12)


def test_each_trajectory_counts_once_however_long() -> None:
    short = skill_sums([1.0, -1.0], [[1.0], [-1.0]], [[1.0], [0.0]])
    long = skill_sums([1.0, -1.0], [[1.0] * 100, [-1.0]], [[1.0] * 100, [0.0]])
    assert short.skill == long.skill == 0.5


def test_skill_at_turn_starts_only() -> None:
    values = [[0.0, 1.0, 0.0, 1.0]]
    everywhere = skill_sums([1.0], [[1.0] * 4], values)
    starts = skill_sums([1.0], [[1.0] * 4], values, positions=[turn_starts([0, 0, 1, 1])])
    assert (everywhere.skill, starts.skill) == (0.5, 0.0)


def test_sums_of_two_workers_give_the_skill_of_both() -> None:
    a = skill_sums([1.0], [[1.0, 1.0]], [[0.5, 0.0]])
    b = skill_sums([-2.0], [[-2.0]], [[-1.0]])
    both = skill_sums([1.0, -2.0], [[1.0, 1.0], [-2.0]], [[0.5, 0.0], [-1.0]])
    assert (a + b).skill == both.skill
    assert SkillSums().skill is None


def test_skill_refuses_arrays_that_do_not_match() -> None:
    with pytest.raises(ValueError, match="rollout 0"):
        skill_sums([1.0], [[1.0, 1.0]], [[1.0]])
    with pytest.raises(ValueError, match="2 returns, 1 outcomes"):
        skill_sums([1.0, 2.0], [[1.0]], [[1.0]])


# -- the gate ------------------------------------------------------------------------------------


def switch_step(skills, **options):
    gate = PhaseGate(GateConfig(**options))
    for k, skill in enumerate(skills, start=1):
        before = gate.phase
        credited = gate.judge(skill)
        assert credited == before, "a switch takes effect with the next batch"
        if gate.phase == "single":
            return k, gate
    return None, gate


def test_rising_skill_switches_at_18() -> None:
    step, gate = switch_step([-0.5 + 0.05 * k for k in range(1, 41)])
    assert step == gate.switched_at == 18
    assert not gate.forced
    assert gate.ema == pytest.approx(0.108941, abs=5e-7)
    assert gate.metrics()["skill_ema"] == gate.ema
    assert gate.metrics()["skill"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("skills", "options", "expected"),
    [
        ([0.1] * 60, {}, 10),
        ([-0.1] * 60, {}, None),
        ([0.0] * 60, {}, None),  # strictly above the threshold
        ([None] * 20 + [0.2] * 40, {}, 23),
        ([math.nan] * 20 + [0.2] * 40, {}, 23),
        ([-50.0] + [0.2] * 60, {}, 10),
        ([-50.0] + [0.2] * 60, {"clip": math.inf}, 34),
        ([0.1] * 60, {"tau": math.inf}, None),
        ([0.1] * 60, {"min_steps": 0}, 3),
        ([0.1] * 60, {"min_steps": 0, "patience": 1}, 1),
    ],
)
def test_step_of_the_switch(skills, options, expected) -> None:
    step, gate = switch_step(skills, **options)
    assert step == expected
    assert not gate.forced


def test_patience_wants_consecutive_steps() -> None:
    # Without memory the average is the skill itself; an undefined step interrupts nothing.
    options = {"beta": 0.0, "min_steps": 0}
    assert switch_step([0.1, 0.1, -0.1, 0.1, 0.1, 0.1], **options)[0] == 6
    assert switch_step([0.1, 0.1, None, 0.1], **options)[0] == 4


def test_switch_forced_at_the_last_step() -> None:
    step, gate = switch_step([-0.1] * 60, max_steps=40)
    assert step == 40
    assert gate.forced
    assert gate.switched_at == 40


def test_forced_at_step_zero_starts_with_the_critic() -> None:
    gate = PhaseGate(GateConfig(max_steps=0, min_steps=0))
    assert gate.phase == "single"
    assert (gate.switched_at, gate.forced) == (0, True)
    assert gate.judge(-1.0) == "single"


def test_never_switching_needs_no_number() -> None:
    step, gate = switch_step([1.0] * 200, tau=math.inf, max_steps=math.inf)
    assert step is None
    assert gate.samples_groups


def test_switch_is_a_latch() -> None:
    step, gate = switch_step([0.1] * 10)
    assert step == 10
    for _ in range(100):
        assert gate.judge(-1.0) == "single"
    assert gate.switched_at == 10
    assert not gate.samples_groups


def test_fallback_when_the_critic_fails_for_long() -> None:
    _, gate = switch_step([0.1] * 10, tau_off=-0.2)
    history = []
    for signal in [0.1, -0.5, -0.5, None, -0.5, -0.5, -0.5]:
        gate.judge(signal)
        history.append(gate.phase)
    # Averages: .1, -.216, -.321, (undefined), -.373: the third in a row below the threshold.
    assert history == ["single"] * 4 + ["group"] * 3
    assert gate.fallbacks == 1
    assert gate.switched_at is None
    # It can earn its place again, under the same rule.
    for _ in range(8):
        gate.judge(0.9)
    assert gate.phase == "single"


def test_fixed_step() -> None:
    step, gate = switch_step([-1.0] * 60, mode="fixed_step", switch_step=7)
    assert step == 7
    assert not gate.forced
    assert PhaseGate(GateConfig(mode="fixed_step", switch_step=0)).phase == "single"


def test_critic_only_warmup_freezes_the_actor() -> None:
    gate = PhaseGate(GateConfig(mode="critic_only_warmup", switch_step=2))
    trained = []
    for _ in range(4):
        trained.append(gate.trains_actor)
        gate.judge(1.0)
    assert trained == [False, False, True, True]
    assert PhaseGate(GateConfig()).trains_actor


def test_per_step_gate_judges_each_batch_by_its_own_skill() -> None:
    gate = PhaseGate(GateConfig(mode="per_step_gate"))
    credited = [gate.judge(s) for s in (-0.1, 0.2, None, 0.0, 0.3)]
    assert credited == ["group", "single", "group", "group", "single"]
    assert gate.samples_groups, "the group baseline must be there whatever the verdict"


signals = st.lists(st.one_of(st.none(), st.floats(-2, 2)), min_size=1, max_size=60)


@given(signals, st.integers(0, 60), st.sampled_from([{}, {"tau_off": -0.1}, {"max_steps": 25}]))
def test_resuming_at_any_step_changes_nothing(skills, at, options) -> None:
    config = GateConfig(min_steps=4, **options)
    whole, first, second = PhaseGate(config), PhaseGate(config), PhaseGate(config)
    for skill in skills:
        whole.judge(skill)
    for skill in skills[:at]:
        first.judge(skill)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for skill in skills[at:]:
        second.judge(skill)
    assert second.state_dict() == whole.state_dict()
    assert second.metrics() == whole.metrics()


def slow_gate(skills, tau, beta, patience, min_steps, max_steps):
    """Step of the switch by recomputing the average from all skills seen, at every step."""
    seen, above = [], []
    for step, skill in enumerate(skills, start=1):
        if skill is not None:
            seen.append(max(-1.0, min(1.0, skill)))
            weights = [beta ** (len(seen) - 1 - i) for i in range(len(seen))]
            average = sum(w * s for w, s in zip(weights, seen, strict=True)) / sum(weights)
            above.append(average - tau)
        ready = len(above) >= patience and min(above[-patience:]) > 0
        if (ready and step >= min_steps) or (max_steps is not None and step >= max_steps):
            return step
    return None


@given(
    st.lists(st.one_of(st.none(), st.integers(-20, 20)), max_size=50),
    st.sampled_from([0.0, 0.05]),
    st.integers(1, 4),
    st.integers(0, 12),
    st.sampled_from([None, 1, 30]),
)
def test_gate_against_a_slow_reference(skills, tau, patience, min_steps, max_steps) -> None:
    # Eighths plus a little, so that no average is a rounding error away from the threshold.
    skills = [None if s is None else s / 8 + 0.011 for s in skills]
    step, _ = switch_step(
        skills, tau=tau, patience=patience, min_steps=min_steps, max_steps=max_steps
    )
    assert step == slow_gate(skills, tau, 0.9, patience, min_steps, max_steps)


def test_state_of_another_configuration_is_refused() -> None:
    state = PhaseGate(GateConfig(tau=0.1)).state_dict()
    with pytest.raises(ValueError, match=r"'tau': \(0\.1, 0\.0\)"):
        PhaseGate(GateConfig()).load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "hope"}, "gate mode"),
        ({"beta": 1.0}, "beta"),
        ({"patience": 0}, "patience"),
        ({"min_steps": -1}, "min_steps"),
        ({"max_steps": -1}, "max_steps"),
        ({"clip": 0.0}, "clip"),
        ({"tau": math.nan}, "NaN"),
        ({"mode": "fixed_step"}, "needs switch_step"),
        ({"mode": "skill", "switch_step": 3}, "takes no switch_step"),
        ({"mode": "fixed_step", "switch_step": 3, "tau_off": 0.0}, "tau_off"),
    ],
)
def test_bad_configurations_are_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        GateConfig(**options)
