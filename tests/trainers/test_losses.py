"""Mismatch corrections, KL, value and entropy terms: worked numbers and gradients."""

import math

import pytest
import torch

from trainers.aggregation import Reduction
from trainers.losses import correction_weights, entropy_loss, kl_loss, policy_loss, value_loss

torch.set_num_threads(1)


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


# -- sampler and learner -------------------------------------------------------------------------


def test_sequence_and_token_ratios_of_one_row() -> None:
    d, old, mask = row(0.1, -0.1, 0.3), row(0, 0, 0), row(1, 1, 1)

    def weights(**options):
        return correction_weights(d, old, mask, **options)[0].tolist()[0]

    assert weights(rule="none", level="sequence_mean") == pytest.approx([1.105171] * 3, abs=5e-7)
    assert weights(rule="none", level="sequence_product") == pytest.approx([1.349859] * 3, abs=5e-7)
    assert weights(rule="truncate", high=1.2) == pytest.approx([1.105171, 0.904837, 1.2], abs=5e-7)
    assert weights(rule="mask", low=0.95, high=1.2) == pytest.approx([1.105171, 0, 0], abs=5e-7)


def test_correction_counts_what_it_cut_and_carries_no_gradient() -> None:
    train = row(0.0, 0.0, -math.inf, 0.0).requires_grad_(True)
    w, metrics = correction_weights(train, row(0, -3, 0, 5), row(1, 1, 1, 0), rule="mask")
    assert w.tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert not w.requires_grad
    assert metrics == {
        "tokens": 3.0,
        "correction_mean": pytest.approx(1 / 3),
        "correction_cut": pytest.approx(1 / 3),
    }


def test_mask_bounds_are_inclusive() -> None:
    d = row(math.log(0.5), math.log(2.0))
    w, _ = correction_weights(d, torch.zeros_like(d), row(1, 1), rule="mask", low=0.5, high=2.0)
    assert w.tolist() == [[0.5, 2.0]]


def test_correction_weights_scale_the_gradient() -> None:
    logp = row(-1, -1)
    w, _ = correction_weights(logp, row(-1 - math.log(3), -1), row(1, 1))
    lp = logp.clone().requires_grad_(True)
    w.requires_grad_(True)
    policy_loss(lp, logp, row(1, 1), row(1, 1), weights=w).loss.backward()
    assert lp.grad.tolist() == [[-1.0, -0.5]]
    assert w.grad is None


@pytest.mark.parametrize(
    "options", [{"rule": "drop"}, {"level": "turn"}, {"low": 3.0, "high": 2.0}, {"low": -1.0}]
)
def test_bad_corrections_are_refused(options) -> None:
    with pytest.raises(ValueError, match=r"must be|need"):
        correction_weights(row(0), row(0), row(1), **options)


# -- KL ------------------------------------------------------------------------------------------


def expected_kl_gradient(kind, *, behaviour=None):
    """Exact expectation over two actions of the gradient w.r.t. the logit gap, p = .7, q = .5."""
    gap = torch.tensor(math.log(0.7 / 0.3), dtype=torch.float64, requires_grad=True)
    logp = torch.nn.functional.logsigmoid(torch.stack([gap, -gap]))[None]
    ref = row(math.log(0.5), math.log(0.5))
    old = None if behaviour is None else row(*map(math.log, behaviour))
    sampling = logp.detach().exp() if behaviour is None else row(*behaviour)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(2):
        chosen = torch.zeros_like(ref)
        chosen[0, i] = 1
        if kind == "k1" and old is None:  # refused as a loss: weigh by a ratio without gradient
            term = (logp - ref)[0, i]
        else:
            term = kl_loss(logp, ref, chosen, kind=kind, logp_old=old).loss
        total = total + sampling[0, i] * term
    total.backward()
    return float(gap.grad)


def test_expected_gradients_of_kl_losses() -> None:
    p = torch.tensor(math.log(0.7 / 0.3), dtype=torch.float64, requires_grad=True)
    pi = torch.stack([torch.sigmoid(p), torch.sigmoid(-p)])
    (pi * (pi / 0.5).log()).sum().backward()
    assert float(p.grad) == pytest.approx(0.177933, abs=5e-7)  # KL(pi || ref)
    assert float(torch.sigmoid(p.detach())) - 0.5 == pytest.approx(0.2)  # KL(ref || pi)
    assert expected_kl_gradient("k1") == pytest.approx(0.0, abs=1e-12)
    assert expected_kl_gradient("k2") == pytest.approx(0.177933, abs=5e-7)
    assert expected_kl_gradient("k3") == pytest.approx(0.2, abs=1e-12)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_importance_weighted_kl_has_the_right_gradient_off_policy(kind) -> None:
    assert expected_kl_gradient(kind, behaviour=(0.4, 0.6)) == pytest.approx(0.177933, abs=5e-7)


def test_kl_loss_values() -> None:
    logp, ref = row(math.log(0.7), math.log(0.3)), row(math.log(0.5), math.log(0.5))
    out = kl_loss(logp, ref, row(1, 1), kind="k3")
    assert float(out.loss) == pytest.approx((0.050758 + 0.155841) / 2, abs=5e-7)
    assert out.metrics["kl"] == pytest.approx(float(out.loss))
    k2 = kl_loss(logp, ref, row(1, 1), kind="k2")
    assert float(k2.loss) == pytest.approx((0.056607 + 0.130471) / 2, abs=5e-7)


def test_k1_is_refused_as_a_loss() -> None:
    with pytest.raises(ValueError, match="expected gradient of zero"):
        kl_loss(row(0), row(0), row(1), kind="k1")


def test_zero_variance_groups_can_be_left_out_of_the_kl() -> None:
    logp, ref = torch.full((2, 2), -1.0), torch.full((2, 2), -2.0)
    mask = torch.ones(2, 2)
    zero_variance = torch.tensor([True, False])
    lp = logp.clone().requires_grad_(True)
    kl_loss(lp, ref, mask).loss.backward()
    assert (lp.grad[0] != 0).all(), "the KL term pulls although the advantage is zero"
    informative = mask * ~zero_variance[:, None]
    lp = logp.clone().requires_grad_(True)
    reduction = Reduction.over(informative.sum(-1))
    kl_loss(lp, ref, informative, reduction=reduction).loss.backward()
    assert (lp.grad[0] == 0).all()
    assert reduction.denominator == 2, "nor do they dilute the denominator"


def test_non_finite_reference_gives_no_nan() -> None:
    lp = row(-1, -1).requires_grad_(True)
    out = kl_loss(lp, row(-math.inf, -1.5), row(1, 1))
    out.loss.backward()
    assert torch.isfinite(lp.grad).all()
    assert lp.grad[0, 0] == 0


# -- value and entropy ---------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "expected"), [(0.9, 0.18), (0.3, 0.245)])
def test_value_clip(value, expected) -> None:
    out = value_loss(row(value), row(1), row(1), old_values=row(0.2), clip=0.2)
    assert float(out.loss) == pytest.approx(expected)


def test_value_clip_leaves_small_changes_alone() -> None:
    clipped = value_loss(row(0.3), row(1), row(1), old_values=row(0.2), clip=0.2)
    plain = value_loss(row(0.3), row(1), row(1))
    assert float(clipped.loss) == float(plain.loss)
    assert clipped.metrics["value_clipped"] == 0.0
    far = value_loss(row(0.9), row(1), row(1), old_values=row(0.2), clip=0.2)
    assert far.metrics["value_clipped"] == 1.0


def test_critic_is_trained_and_its_target_is_not() -> None:
    values = row(0.0, 0.5, 9.0).requires_grad_(True)
    targets = row(1.0, 0.5, math.nan).requires_grad_(True)
    out = value_loss(values, targets, row(1, 1, 0))
    out.loss.backward()
    assert values.grad.tolist() == [[-0.5, 0.0, 0.0]]
    assert targets.grad is None
    assert out.metrics["value_error"] == 0.5
    assert out.metrics["value_mean"] == 0.25
    assert out.metrics["target_mean"] == 0.75


def test_a_few_critic_steps_reach_the_target() -> None:
    values = torch.zeros(1, 3, requires_grad=True)
    targets, mask = torch.tensor([[0.5, -0.25, 7.0]]), torch.tensor([[1, 1, 0]])
    optimiser = torch.optim.SGD([values], lr=1.0)
    for _ in range(30):
        optimiser.zero_grad()
        value_loss(values, targets, mask).loss.backward()
        optimiser.step()
    torch.testing.assert_close(
        values.detach(), torch.tensor([[0.5, -0.25, 0.0]]), atol=1e-6, rtol=0
    )


def test_bad_value_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="old_values"):
        value_loss(row(0), row(0), row(1), clip=0.2)
    with pytest.raises(ValueError, match="value target"):
        value_loss(row(0), row(math.nan), row(1))


def test_entropy_loss_pushes_entropy_up() -> None:
    entropy = row(0.5, 1.5, 99.0).requires_grad_(True)
    out = entropy_loss(entropy, row(1, 1, 0))
    out.loss.backward()
    assert float(out.loss.detach()) == -1.0
    assert entropy.grad.tolist() == [[-0.5, -0.5, 0.0]]
    assert out.metrics["entropy"] == 1.0


# -- nothing to average over ---------------------------------------------------------------------


def test_fully_masked_batches_of_the_other_losses() -> None:
    x = torch.full((1, 2), math.nan, requires_grad=True)
    none = torch.zeros(1, 2)
    for out in (
        kl_loss(x, x.detach(), none),
        kl_loss(x, x.detach(), none, logp_old=x.detach()),
        value_loss(x, x.detach(), none),
        value_loss(x, x.detach(), none, old_values=x.detach(), clip=0.2),
        entropy_loss(x, none),
    ):
        x.grad = None
        out.loss.backward()
        assert float(out.loss.detach()) == 0.0
        assert x.grad.tolist() == [[0.0, 0.0]]
        assert all(math.isfinite(v) for v in out.metrics.values())
