"""KL estimators: worked numbers, expectations, non-negativity."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.advantages import kl_penalized_rewards
from trainers.advantages.kl import kl_terms

P, Q = np.array([0.7, 0.3]), np.array([0.5, 0.5])


@pytest.mark.parametrize(
    ("kind", "terms", "mean"),
    [
        ("k1", [0.336472, -0.510826], 0.0822829),
        ("k2", [0.056607, 0.130471], 0.0787662),
        ("k3", [0.050758, 0.155841], 0.0822829),
    ],
)
def test_estimators_of_two_coins(kind, terms, mean) -> None:
    found = kl_terms(np.log(P) - np.log(Q), kind, np.expm1)
    np.testing.assert_allclose(found, terms, atol=5e-7)
    assert (P * found).sum() == pytest.approx(mean, abs=5e-8)


@given(st.floats(-30, 30))
def test_k3_is_never_negative(log_ratio) -> None:
    assert kl_terms(np.float64(log_ratio), "k3", np.expm1) >= 0


def test_k3_is_exact_near_zero() -> None:
    # exp(-d) - 1 + d in plain float64 would be 0 or noise here.
    assert kl_terms(np.float64(1e-6), "k3", np.expm1) == pytest.approx(5e-13, rel=1e-3)


def test_kl_as_reward_penalty() -> None:
    found = kl_penalized_rewards(
        [0.0, 1.0], np.log([0.7, 0.3]), np.log([0.5, 0.5]), beta=0.1, kind="k1"
    )
    np.testing.assert_allclose(found, [-0.0336472, 1.0510826], atol=5e-8)


def test_kl_penalty_refuses_bad_input() -> None:
    with pytest.raises(ValueError, match="'k4'"):
        kl_penalized_rewards([0.0], [0.0], [0.0], beta=0.1, kind="k4")
    with pytest.raises(ValueError, match="not finite"):
        kl_penalized_rewards([0.0], [-np.inf], [0.0], beta=0.1)
    with pytest.raises(ValueError, match="shape"):
        kl_penalized_rewards([0.0], [0.0, 1.0], [0.0], beta=0.1)
