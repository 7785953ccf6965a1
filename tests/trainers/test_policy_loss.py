"""Policy surrogates: worked numbers, gradients, identities, and what must not leak."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.aggregation import Reduction, merge_metrics
from trainers.losses import DisOptions, correction_weights, policy_loss

torch.set_num_threads(1)

KINDS = ["ppo", "dis", "cispo", "gspo", "reinforce"]
MATH = {"kind": "dis", "clip_low": 0.3, "clip_high": 5.0}
AGENT = {"kind": "dis", "clip_low": 0.8, "clip_high": 3.0}


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def objective(rho: float, advantage: float, *, logp: float = -1.0, **options) -> float:
    """What one token contributes to the objective that is maximised."""
    lp = row(logp)
    out = policy_loss(lp, lp - math.log(rho), row(advantage), row(1), **options)
    return -float(out.loss)


def gradient(logp, logp_old, advantages, mask, **options) -> torch.Tensor:
    lp = logp.clone().requires_grad_(True)
    policy_loss(lp, logp_old, advantages, mask, **options).loss.backward()
    assert lp.grad is not None
    return lp.grad


def weight_of(rho: float, **options) -> float:
    """Factor on ``A grad logp`` that the surrogate gives a token with this ratio."""
    lp = row(-1.0)
    return -float(gradient(lp, lp - math.log(rho), row(1.0), row(1), **options))


# -- clipping and rejecting: worked numbers ------------------------------------------------------


@pytest.mark.parametrize(
    ("rho", "advantage", "value"),
    [(1.5, 1, 1.28), (1.5, -1, -1.5), (0.5, 1, 0.5), (0.5, -1, -0.8), (1.27, 1, 1.27)],
)
def test_ppo_with_clip_higher(rho, advantage, value) -> None:
    assert objective(rho, advantage, clip_low=0.2, clip_high=0.28) == pytest.approx(value)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize(("rho", "factor"), [(1.5, 0.0), (0.5, 0.0), (1.27, 1.27)])
def test_dis_rejects_for_both_signs_where_ppo_clips_for_one(rho, factor, advantage) -> None:
    band = {"kind": "dis", "clip_low": 0.2, "clip_high": 0.28}
    assert weight_of(rho, **band) == pytest.approx(factor)
    # At logp = -1 the surrogate -f A logp is worth minus its own weight.
    assert objective(rho, advantage, **band) == pytest.approx(-factor * advantage)


@pytest.mark.parametrize(
    ("band", "rho", "factor"),
    [
        (MATH, 0.69, 0.0),
        (MATH, 0.71, 0.71),
        (MATH, 5.99, 5.99),
        (MATH, 6.01, 0.0),
        (AGENT, 0.19, 0.0),
        (AGENT, 0.21, 0.21),
        (AGENT, 3.99, 3.99),
        (AGENT, 4.01, 0.0),
    ],
)
def test_dis_bands_lie_around_one(band, rho, factor) -> None:
    """The published pairs are distances from 1: 0.31 and 5.5 tell the misread band apart."""
    assert weight_of(rho, **band) == pytest.approx(factor)


def test_the_misread_band_would_accept_other_ratios() -> None:
    assert weight_of(0.31, **MATH) == 0.0  # inside [0.3, 5.0], outside (0.7, 6.0)
    assert weight_of(5.5, **MATH) == pytest.approx(5.5)  # the other way round
    with pytest.raises(ValueError, match=r"distance below 1 .* got 5.0"):
        policy_loss(row(0), row(0), row(0), row(1), kind="dis", clip_low=5.0, clip_high=0.3)


@pytest.mark.parametrize(("band", "rho"), [(MATH, 0.7), (MATH, 6.0), (AGENT, 4.0)])
def test_ends_of_the_published_bands_are_rejected_in_float32(band, rho) -> None:
    d = torch.tensor([[math.log(rho)]], dtype=torch.float32)
    assert (
        float(gradient(torch.zeros_like(d) + d, torch.zeros_like(d), d * 0 + 1, d * 0 + 1, **band))
        == 0.0
    )


@pytest.mark.parametrize("rho", [0.5, 2.0])
def test_exact_ends_of_a_representable_band(rho) -> None:
    band = {"kind": "dis", "clip_low": 0.5, "clip_high": 1.0}
    logp = row(0.0)  # log-ratios log(0.5) and log(2) are what log1p gives for the bounds
    old = logp - math.log(rho)
    assert float(gradient(logp, old, row(1), row(1), **band)) == 0.0
    closed = gradient(logp, old, row(1), row(1), dis=DisOptions(closed_band=True), **band)
    assert float(closed) == pytest.approx(-rho)


@pytest.mark.parametrize(("logp", "literal"), [(-0.1, -0.9), (-1.0, 0.0), (-3.0, 2.0)])
def test_dis_gradient_is_minus_one_at_ratio_one_for_every_log_prob(logp, literal) -> None:
    lp = row(logp)
    assert float(gradient(lp, lp, row(1), row(1), **MATH)) == -1.0
    # Differentiating rho A logp as it is written reverses the sign of unlikely tokens.
    as_written = gradient(lp, lp, row(1), row(1), dis=DisOptions(stop_gradient=False), **MATH)
    assert float(as_written) == pytest.approx(literal)


def test_rejected_tokens_stay_in_the_denominator_unless_asked() -> None:
    logp, old = row(-1.0, -1.0), row(-1.0, -1.0 - math.log(9.0))
    stay = gradient(logp, old, row(1, 1), row(1, 1), **MATH)
    assert stay.tolist() == [[-0.5, 0.0]]
    leave = DisOptions(keep_rejected=False)
    assert gradient(logp, old, row(1, 1), row(1, 1), dis=leave, **MATH).tolist() == [[-1.0, 0.0]]
    with pytest.raises(ValueError, match="keep_rejected"):
        policy_loss(
            logp, old, row(1, 1), row(1, 1), dis=leave, reduction=Reduction(denominator=2.0), **MATH
        )


def test_dis_reports_what_it_rejected() -> None:
    ratios = row(0.5, 1.0, 7.0, 1.0, 1.0)
    old = -ratios.log()
    old[0, 3] = math.inf
    out = policy_loss(torch.zeros_like(old), old, row(1, 1, 1, 1, 9), row(1, 1, 1, 1, 0), **MATH)
    assert out.metrics["reject_low"] == 0.25
    assert out.metrics["reject_high"] == 0.25
    assert out.metrics["nonfinite"] == 0.25
    assert out.metrics["tokens"] == 4
    assert out.metrics["ratio_max"] == pytest.approx(7.0)
    assert out.metrics["ratio_mean"] == pytest.approx((0.5 + 1 + 7) / 3)


def test_dual_clip_bounds_the_loss_of_bad_actions() -> None:
    assert objective(10.0, -1.0) == pytest.approx(-10.0)
    assert objective(10.0, -1.0, dual_clip=3.0) == pytest.approx(-3.0)
    assert objective(2.0, -1.0, dual_clip=3.0) == pytest.approx(-2.0)
    assert objective(10.0, 1.0, dual_clip=3.0) == pytest.approx(1.2)
    assert weight_of(10.0, dual_clip=3.0) == 0.0


def test_cispo_caps_the_weight_and_keeps_the_gradient() -> None:
    options = {"kind": "cispo", "clip_low": None, "clip_high": 0.28}
    assert weight_of(5.0, **options) == pytest.approx(1.28)
    assert weight_of(1.1, **options) == pytest.approx(1.1)
    assert weight_of(0.01, **options) == pytest.approx(0.01)
    assert weight_of(0.01, kind="cispo", clip_low=0.2, clip_high=0.2) == pytest.approx(0.8)


def test_gspo_takes_the_geometric_mean_of_the_sequence() -> None:
    logp, d = row(-1, -1, -1, -7), row(0.1, -0.1, 0.3, 5.0)
    mask = row(1, 1, 1, 0)
    out = policy_loss(
        logp, logp - d, row(1, 1, 1, 1), mask, kind="gspo", clip_low=0.5, clip_high=0.5
    )
    assert -float(out.loss) == pytest.approx(math.exp(0.1))
    assert out.metrics["ratio_max"] == pytest.approx(math.exp(0.1))
    clipped = policy_loss(
        logp, logp - d, row(1, 1, 1, 1), mask, kind="gspo", clip_low=3e-4, clip_high=4e-4
    )
    assert -float(clipped.loss) == pytest.approx(1.0004)
    assert clipped.metrics["clip_high"] == 1.0


def test_gspo_gradient_is_that_of_the_sequence_ratio() -> None:
    logp = row(-1, -2, -0.5)
    d = row(0.1, -0.1, 0.3)
    found = gradient(
        logp, logp - d, row(2, 2, 2), row(1, 1, 1), kind="gspo", clip_low=0.5, clip_high=0.5
    )
    lp = logp.clone().requires_grad_(True)
    (-2 * (lp - (logp - d)).mean().exp()).backward()
    torch.testing.assert_close(found, lp.grad)


def test_sequence_ratio_does_not_explode_with_length() -> None:
    # 0.012 a token over 100 tokens: the product is 3.3, the geometric mean 1.012.
    logp = torch.full((1, 100), -1.0, dtype=torch.float64)
    ones = torch.ones_like(logp)
    out = policy_loss(logp, logp - 0.012, ones, ones, kind="gspo")
    assert out.metrics["ratio_mean"] == pytest.approx(math.exp(0.012))


# -- against slow references ---------------------------------------------------------------------


def slow_token_loss(kind, logp, old, advantage, low, high, sequence_mean):
    if not (math.isfinite(logp) and math.isfinite(old)):
        return 0.0
    d = sequence_mean if kind == "gspo" else logp - old
    rho = math.exp(d)
    clipped = min(max(rho, 1 - low), 1 + high)
    if kind in ("ppo", "gspo"):
        return -min(rho * advantage, clipped * advantage)
    if kind == "cispo":
        return -clipped * advantage * logp
    if kind == "dis":
        return -rho * advantage * logp if 1 - low < rho < 1 + high else 0.0
    return -advantage * logp


log_probs = st.one_of(st.floats(-4, 0), st.sampled_from([-math.inf, math.nan]))
tokens = st.tuples(log_probs, log_probs, st.floats(-2, 2), st.booleans())


@given(
    st.lists(st.lists(tokens, min_size=3, max_size=3), min_size=1, max_size=4),
    st.sampled_from(KINDS),
)
def test_surrogates_against_plain_python(rows, kind) -> None:
    low, high = 0.317, 1.913
    total = count = 0.0
    for tokens_of_row in rows:
        ds = [
            lp - old
            for lp, old, _, m in tokens_of_row
            if m and math.isfinite(lp) and math.isfinite(old)
        ]
        mean = sum(ds) / max(len(ds), 1)
        for lp, old, advantage, m in tokens_of_row:
            if m:
                count += 1
                total += slow_token_loss(kind, lp, old, advantage, low, high, mean)
    columns = [
        torch.tensor([[x[i] for x in r] for r in rows], dtype=torch.float64) for i in range(4)
    ]
    lp = columns[0].requires_grad_(True)
    out = policy_loss(
        lp, columns[1], columns[2], columns[3], kind=kind, clip_low=low, clip_high=high
    )
    assert float(out.loss.detach()) == pytest.approx(total / max(count, 1), abs=1e-9)
    out.loss.backward()
    assert torch.isfinite(lp.grad).all()
    assert all(math.isfinite(x) for x in out.metrics.values())


# -- identities ----------------------------------------------------------------------------------


def batch(seed: int = 0, rows: int = 5, width: int = 8, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    logp = -torch.rand(rows, width, generator=g, dtype=dtype) * 3
    old = logp + 0.3 * torch.randn(rows, width, generator=g, dtype=dtype)
    advantages = torch.randn(rows, width, generator=g, dtype=dtype)
    mask = torch.rand(rows, width, generator=g) < 0.6
    return logp, old, advantages, mask


def test_on_policy_gradients_of_dis_ppo_cispo_and_reinforce_are_identical() -> None:
    logp, _, advantages, mask = batch(dtype=torch.float32)
    expected = gradient(logp, logp, advantages, mask, kind="reinforce")
    assert expected.abs().sum() > 0
    for options in ({"kind": "ppo"}, MATH, AGENT, {"kind": "cispo"}):
        assert torch.equal(gradient(logp, logp, advantages, mask, **options), expected)
    # The sequence ratio weighs tokens the same way where it is 1.
    torch.testing.assert_close(gradient(logp, logp, advantages, mask, kind="gspo"), expected)


def test_same_weights_give_ratio_one_and_reject_nothing() -> None:
    logp, _, advantages, mask = batch()
    metrics = policy_loss(logp, logp.clone(), advantages, mask, **MATH).metrics
    assert metrics["ratio_mean"] == metrics["ratio_max"] == 1.0
    assert metrics["reject_low"] == metrics["reject_high"] == metrics["nonfinite"] == 0.0
    assert metrics["approx_kl"] == 0.0


def test_loss_zero_with_a_gradient_is_told_from_loss_zero_without() -> None:
    logp = torch.full((2, 3), -1.0)
    mask = torch.ones(2, 3)
    centred = torch.tensor([[0.5], [-0.5]])
    learns = policy_loss(logp, logp, centred, mask)
    assert float(learns.loss) == 0.0
    assert learns.metrics["advantage_rms"] == 0.5
    assert gradient(logp, logp, centred, mask).abs().sum() > 0
    # All rewards of the group equal: nothing to learn from.
    idle = policy_loss(logp, logp, torch.zeros(2, 1), mask)
    assert float(idle.loss) == 0.0
    assert idle.metrics["advantage_rms"] == 0.0
    assert gradient(logp, logp, torch.zeros(2, 1), mask).abs().sum() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "how", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"]
)
def test_micro_batches_change_neither_loss_nor_gradient_nor_metrics(kind, how) -> None:
    logp, old, advantages, mask = batch()
    mask[2] = False  # one row without action tokens
    reduction = Reduction.over(mask.sum(-1), how, max_length=16)
    lp = logp.clone().requires_grad_(True)
    whole = policy_loss(lp, old, advantages, mask, kind=kind, reduction=reduction)
    whole.loss.backward()
    parts = logp.clone().requires_grad_(True)
    outs = []
    for at in ([4, 0], [2], [1, 3]):
        out = policy_loss(
            parts[at], old[at], advantages[at], mask[at], kind=kind, reduction=reduction
        )
        out.loss.backward()
        outs.append(out)
    assert float(sum(out.loss.detach() for out in outs)) == pytest.approx(
        float(whole.loss.detach()), abs=1e-12
    )
    torch.testing.assert_close(parts.grad, lp.grad, atol=1e-15, rtol=1e-12)
    merged = merge_metrics([out.metrics for out in outs])
    assert merged == pytest.approx(whole.metrics, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_permuting_padding_and_duplicating_trajectories(kind) -> None:
    logp, old, advantages, mask = batch()
    plain = float(policy_loss(logp, old, advantages, mask, kind=kind).loss)
    order = [3, 0, 4, 1, 2]
    permuted = policy_loss(logp[order], old[order], advantages[order], mask[order], kind=kind)
    assert float(permuted.loss) == pytest.approx(plain, abs=1e-14)
    twice = [torch.cat([x, x]) for x in (logp, old, advantages, mask)]
    assert float(policy_loss(*twice, kind=kind).loss) == pytest.approx(plain, abs=1e-14)
    wide = [torch.nn.functional.pad(x, (2, 3)) for x in (logp, old, advantages, mask)]
    assert float(policy_loss(*wide, kind=kind).loss) == pytest.approx(plain, abs=1e-14)


def test_decoupled_ppo_is_the_clipped_loss_times_the_behaviour_weight() -> None:
    prox, roll, new = row(-1.0), row(-1.5), row(-0.2)
    w, _ = correction_weights(prox, roll, row(1), rule="none")
    assert float(w) == pytest.approx(math.exp(0.5))
    out = policy_loss(new, prox, row(1), row(1), weights=w)
    assert -float(out.loss) == pytest.approx(math.exp(0.5) * min(math.exp(0.8), 1.2))


# -- what stands off the mask --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("junk", [1.0, -100.0, math.nan, math.inf, -math.inf])
def test_sentinels_off_the_mask_reach_neither_loss_nor_gradient(kind, junk) -> None:
    logp, old, advantages, mask = batch()
    clean = policy_loss(logp, old, advantages, mask, kind=kind)
    dirty = [torch.where(mask, x, junk) for x in (logp, old, advantages)]
    out = policy_loss(*dirty, mask, kind=kind)
    assert float(out.loss) == float(clean.loss)
    assert out.metrics == clean.metrics
    assert torch.equal(
        gradient(*dirty, mask, kind=kind), gradient(logp, old, advantages, mask, kind=kind)
    )


def test_sentinel_log_prob_of_one_does_not_enter_the_mean_ratio() -> None:
    # Masked tokens once carried log-prob 1 on the sampler's side: a ratio of 1/e leaked.
    out = policy_loss(row(-1, 0), row(-1, 1), row(1, 1), row(1, 0), kind="gspo")
    assert out.metrics["ratio_mean"] == 1.0
    w, metrics = correction_weights(row(-1, 0), row(-1, 1), row(1, 0), level="sequence_product")
    assert w.tolist() == [[1.0, 0.0]]
    assert metrics["correction_mean"] == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_fully_masked_batch_is_a_zero_that_can_be_differentiated(kind) -> None:
    logp = torch.full((2, 3), math.nan, requires_grad=True)
    out = policy_loss(
        logp, logp.detach(), torch.full((2, 3), math.nan), torch.zeros(2, 3), kind=kind
    )
    out.loss.backward()
    assert float(out.loss.detach()) == 0.0
    assert torch.equal(logp.grad, torch.zeros(2, 3))
    assert all(math.isfinite(x) for x in out.metrics.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
@pytest.mark.parametrize("side", ["logp", "logp_old"])
def test_non_finite_log_prob_of_an_action_is_rejected_and_stays_counted(kind, bad, side) -> None:
    values = {"logp": row(-1, -1), "logp_old": row(-1, -1)}
    values[side] = row(bad, -1)
    found = gradient(values["logp"], values["logp_old"], row(1, 1), row(1, 1), kind=kind)
    assert found.tolist() == [[0.0, -0.5]]


def test_log_prob_of_minus_infinity_gives_the_logits_no_nan() -> None:
    logits = torch.tensor([[[0.0, -math.inf], [0.0, 1.0]]], requires_grad=True)
    logp = torch.log_softmax(logits, -1)[..., 1]
    policy_loss(
        logp,
        torch.zeros(1, 2),
        torch.ones(1, 2),
        torch.ones(1, 2),
        kind="dis",
        clip_low=None,
        clip_high=None,
    ).loss.backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 1].abs().sum() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_ratios_stay_finite(kind) -> None:
    for d in (500.0, -500.0):
        for a in (1.0, -1.0):
            lp = torch.tensor([[-1.0]])
            found = gradient(
                lp,
                lp - d,
                torch.tensor([[a]]),
                torch.ones(1, 1),
                kind=kind,
                clip_low=None,
                clip_high=None,
            )
            assert torch.isfinite(found).all()


def test_half_precision_is_computed_in_float32() -> None:
    logp, old, advantages, mask = batch(dtype=torch.float32)
    half = policy_loss(logp.bfloat16(), old.bfloat16(), advantages, mask, **MATH)
    same = policy_loss(logp.bfloat16().float(), old.bfloat16().float(), advantages, mask, **MATH)
    assert half.loss.dtype == torch.float32
    assert float(half.loss) == float(same.loss)


def test_multi_turn_mask_counts_action_tokens_of_all_turns() -> None:
    # Two turns of 2 and 1 action tokens with observations between: 3 tokens, not 6, not 2.
    mask = row(0, 1, 1, 0, 0, 1)
    found = gradient(row(*[-1] * 6), row(*[-1] * 6), row(*[3] * 6), mask)
    assert found.tolist() == [[0, -1, -1, 0, 0, -1]]


def test_truncation_mask_must_be_the_mask_of_numerator_and_denominator() -> None:
    logp = torch.full((2, 3), -1.0, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    trained = mask.clone()
    trained[1] = 0  # the second answer ran out of tokens and is left out
    reduction = Reduction.over(trained.sum(-1))
    assert reduction.denominator == 3
    found = gradient(logp, logp, torch.ones_like(logp), trained, reduction=reduction)
    assert found.tolist() == [[-1 / 3] * 3, [0, 0, 0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "trpo"}, "'trpo'"),
        ({"clip_low": 1.5}, "clip_low"),
        ({"clip_high": -0.1}, "clip_high"),
        ({"dual_clip": 1.0}, "dual_clip must be > 1"),
        ({"kind": "dis", "dual_clip": 3.0}, "dual_clip belongs"),
    ],
)
def test_bad_options_are_refused(change, message) -> None:
    with pytest.raises(ValueError, match=message):
        policy_loss(row(0), row(0), row(0), row(1), **change)


def test_bad_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match="share one shape"):
        policy_loss(row(0, 0), row(0), row(0), row(1))
    with pytest.raises(ValueError, match=r"\(B, T\) or \(B, 1\)"):
        policy_loss(row(0, 0), row(0, 0), torch.zeros(1), row(1, 1))
    with pytest.raises(ValueError, match="advantage on an action token"):
        policy_loss(row(0), row(0), row(math.nan), row(1))
