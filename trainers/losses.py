"""Losses: clipped and masked policy surrogates, KL, value and entropy terms.

Arrays are rows of tokens ``(B, T)`` with an action mask; position ``t`` is the token (see
`trainers.token_outputs`). Three rules hold throughout:

* Values off the mask are replaced before anything is computed from them, so neither a sentinel
  log-probability nor a NaN there can reach the loss or its gradient.
* The denominator belongs to the whole optimiser batch. Compute it once (`Reduction.over`), hand it
  to every micro-batch, and *add* the losses: the sum does not depend on how the batch was cut.
* A batch without action tokens gives a zero that is connected to the graph, not NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trainers.advantages.kl import KLKind, kl_terms
from trainers.aggregation import TOKEN_MEAN, LossOutput, Reduction, aggregate, at_least_float32

PolicyLossKind = Literal["ppo", "dis", "cispo", "gspo", "reinforce"]
Correction = Literal["none", "truncate", "mask"]
CorrectionLevel = Literal["token", "sequence_mean", "sequence_product"]

_MAX_LOG_RATIO = 20.0  # exp(20) = 5e8: far outside every band, and finite in float32


@dataclass(frozen=True)
class DisOptions:
    """What the description of SAO leaves open about its double-sided importance sampling.

    Attributes:
        stop_gradient: The factor ``f(rho) A`` carries no gradient, so the gradient is
            ``-f(rho) A grad log pi`` for every token. Differentiating ``f(rho) A log pi`` as it is
            written multiplies that by ``1 + log pi``: zero at ``log pi = -1``, and the wrong sign
            for any less likely token.
        closed_band: Accept the end points too. The text calls the band closed, the equation is
            strict; strict is the default.
        keep_rejected: Rejected tokens stay in the denominator, so that rejecting weakens the step
            instead of giving the rest more weight. False divides by the accepted tokens, and since
            those are known only after the forward pass, needs the whole batch in one call.
    """

    stop_gradient: bool = True
    closed_band: bool = False
    keep_rejected: bool = True


# -- policy --------------------------------------------------------------------------------------


def policy_loss(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    kind: PolicyLossKind = "ppo",
    clip_low: float | None = 0.2,
    clip_high: float | None = 0.2,
    dual_clip: float | None = None,
    dis: DisOptions = DisOptions(),
    weights: Tensor | None = None,
    reduction: Reduction = TOKEN_MEAN,
) -> LossOutput:
    """Policy-gradient surrogate on action tokens.

    With ``rho = exp(logp - logp_old)`` and ``sg`` for stop-gradient, the per-token loss is

    * ``ppo``: ``-min(rho A, clip(rho, 1 - low, 1 + high) A)`` (arXiv 1707.06347; DAPO's clip-higher
      has low 0.2, high 0.28). ``dual_clip=c`` bounds it by ``-c A`` where ``A < 0``.
    * ``dis``: ``-sg(f(rho) A) logp`` with ``f(rho) = rho`` strictly inside ``(1 - low, 1 + high)``
      and 0 elsewhere (SAO, arXiv 2607.07508: (0.3, 5.0) for mathematics is the band (0.7, 6.0),
      (0.8, 3.0) for agents is (0.2, 4.0)); `DisOptions` for what the paper leaves open.
    * ``cispo``: ``-sg(clip(rho)) A logp`` (arXiv 2506.13585); ``clip_low=None`` as usual.
    * ``gspo``: ``ppo`` with the sequence's ratio, the exponential of the *mean* log-ratio, on every
      token (arXiv 2507.18071, GSPO-token form; low 3e-4, high 4e-4). Sequence means row here.
    * ``reinforce``: ``-A logp``.

    ``logp_old`` is the log-prob the ratio is taken against: the one recorded at sampling time
    (``dis``; "bypass"), or that of a proximal policy, in which case ``weights`` may hold
    `correction_weights` for the rest of the way (decoupled PPO, truncated importance sampling).

    Tokens with a non-finite log-prob add neither loss nor gradient, and stay in the denominator.

    Args:
        logp: Log-probs under the policy being trained, ``(B, T)``.
        logp_old: Log-probs of the same tokens to compare with.
        advantages: Advantage of each token, ``(B, T)`` or ``(B, 1)``.
        mask: True on action tokens.
        kind: Which surrogate.
        clip_low: Distance of the lower bound from 1; None for no lower bound.
        clip_high: Distance of the upper bound from 1; None for no upper bound.
        dual_clip: ``c`` of dual clipping (above 1, often 3); ``ppo`` and ``gspo`` only.
        dis: Options of ``dis``.
        weights: Detached factor on each token's loss.
        reduction: How token losses become one number, and what they are divided by.

    Returns:
        `LossOutput`. Metrics, over action tokens: ``ratio_mean``, ``ratio_max``, ``clip_low`` and
        ``clip_high`` (``reject_low``, ``reject_high`` for DIS): fraction of tokens whose gradient
        the bounds removed (CISPO: capped), ``nonfinite``, ``approx_kl`` (k3 of the old policy
        against the new), ``advantage_rms``. The loss being 0 with a non-zero ``advantage_rms`` is
        no fault: at ratio 1 centred advantages sum to 0 and the gradient does not. With
        ``advantage_rms`` 0 there is nothing to learn from.

    Raises:
        ValueError: Shapes or options do not fit, or an advantage on the mask is not finite.
    """
    _check_bounds(kind, clip_low, clip_high, dual_clip)
    mask = mask.bool()
    if not logp.shape == logp_old.shape == mask.shape or logp.ndim != 2:
        raise ValueError(
            "logp, logp_old and mask must share one shape (B, T), got "
            f"{tuple(logp.shape)}, {tuple(logp_old.shape)}, {tuple(mask.shape)}"
        )
    if advantages.shape not in (mask.shape, (mask.shape[0], 1)):
        raise ValueError(
            f"advantages must be (B, T) or (B, 1) for {tuple(mask.shape)}, "
            f"got {tuple(advantages.shape)}"
        )
    usable = mask & torch.isfinite(logp) & torch.isfinite(logp_old)
    lp = _kept(logp, usable)
    log_ratio = lp - _kept(logp_old.detach(), usable).to(lp.dtype)
    A = _kept(advantages.detach().expand_as(mask), mask).to(lp.dtype)
    if not bool(torch.isfinite(A).all()):
        raise ValueError("an advantage on an action token is not finite; drop that trajectory")

    counted = mask
    if kind == "dis":
        loss_BT, low, high = _dis(lp, log_ratio, A, clip_low, clip_high, dis)
        if not dis.keep_rejected:
            if reduction.denominator is not None:
                raise ValueError(
                    "keep_rejected=False divides by the accepted tokens of the batch, which no "
                    "denominator computed beforehand can know; leave it out"
                )
            counted = usable & ~low & ~high
    elif kind == "cispo":
        loss_BT, low, high = _cispo(lp, log_ratio, A, clip_low, clip_high)
    elif kind == "reinforce":
        loss_BT = -A * lp
        low = high = torch.zeros_like(mask)
    else:
        if kind == "gspo":
            mean_B1 = log_ratio.sum(-1, keepdim=True) / usable.sum(-1, keepdim=True).clamp(min=1)
            # Value of the sequence's ratio, gradient of each token's own log-prob.
            log_ratio = torch.where(usable, mean_B1.detach() + (lp - lp.detach()), log_ratio)
        loss_BT, low, high = _ppo(log_ratio, A, clip_low, clip_high, dual_clip)

    if weights is not None:
        loss_BT = loss_BT * _kept(weights.detach(), usable).to(lp.dtype)
    loss = aggregate(_kept(loss_BT, usable), counted, reduction)
    word = "reject" if kind == "dis" else "clip"
    metrics = _policy_metrics(log_ratio.detach(), A, mask, usable, low, high, word)
    metrics["loss"] = float(loss.detach())
    return LossOutput(loss, metrics)


def _ppo(
    log_ratio: Tensor, A: Tensor, low: float | None, high: float | None, dual: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    ratio = log_ratio.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    lower, upper = _bounds(low, high)
    loss = torch.maximum(-ratio * A, -ratio.clamp(lower, upper) * A)
    if dual is not None:
        loss = torch.where(A < 0, torch.minimum(loss, -dual * A), loss)
    return loss, (ratio < lower) & (A < 0), (ratio > upper) & (A > 0)


def _dis(
    logp: Tensor,
    log_ratio: Tensor,
    A: Tensor,
    low: float | None,
    high: float | None,
    options: DisOptions,
) -> tuple[Tensor, Tensor, Tensor]:
    # The band is compared in log space, where nothing overflows.
    d = log_ratio.detach()
    lower = -math.inf if low is None or low >= 1.0 else math.log1p(-low)
    upper = math.inf if high is None else math.log1p(high)
    if options.closed_band:
        too_low, too_high = d < lower, d > upper
    else:
        too_low, too_high = d <= lower, d >= upper
    accepted = ~(too_low | too_high)
    exponent = torch.where(accepted, d if options.stop_gradient else log_ratio, 0.0)
    factor = torch.where(accepted, exponent.clamp(max=_MAX_LOG_RATIO).exp(), 0.0)
    return -factor * A * logp, too_low, too_high


def _cispo(
    logp: Tensor, log_ratio: Tensor, A: Tensor, low: float | None, high: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    ratio = log_ratio.detach().clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    lower, upper = _bounds(low, high)
    return -ratio.clamp(lower, upper) * A * logp, ratio < lower, ratio > upper


def _bounds(low: float | None, high: float | None) -> tuple[float, float]:
    return (0.0 if low is None else 1.0 - low, math.inf if high is None else 1.0 + high)


def _check_bounds(
    kind: PolicyLossKind, low: float | None, high: float | None, dual: float | None
) -> None:
    if kind not in ("ppo", "dis", "cispo", "gspo", "reinforce"):
        raise ValueError(f"unknown policy loss {kind!r}; expected ppo, dis, cispo, gspo, reinforce")
    if low is not None and not 0.0 <= low <= 1.0:
        raise ValueError(
            f"clip_low is a distance below 1 and must lie in [0, 1], got {low}; the lower bound "
            "of the ratio is 1 - clip_low"
        )
    if high is not None and not high >= 0.0:
        raise ValueError(f"clip_high must be >= 0, got {high}; the upper bound is 1 + clip_high")
    if dual is not None and kind not in ("ppo", "gspo"):
        raise ValueError(f"dual_clip belongs to ppo and gspo, not to {kind}")
    if dual is not None and not dual > 1.0:
        raise ValueError(f"dual_clip must be > 1, got {dual}")


def _policy_metrics(
    log_ratio: Tensor, A: Tensor, mask: Tensor, usable: Tensor, low: Tensor, high: Tensor, word: str
) -> dict[str, float]:
    ratio = log_ratio.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    k3 = kl_terms(-log_ratio.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO), "k3", torch.expm1)
    count = mask.sum().clamp(min=1).to(ratio.dtype)
    finite = usable.sum().clamp(min=1).to(ratio.dtype)
    numbers = {
        "tokens": mask.sum(),
        "ratio_mean": _kept(ratio, usable).sum() / finite,
        "ratio_max": _kept(ratio, usable).max() if ratio.numel() else ratio.sum(),
        f"{word}_low": (low & usable).sum() / count,
        f"{word}_high": (high & usable).sum() / count,
        "nonfinite": (mask & ~usable).sum() / count,
        "approx_kl": _kept(k3, usable).sum() / finite,
        "advantage_rms": (A * A).sum().div(count).sqrt(),
    }
    # One transfer from the device instead of one a number.
    values = torch.stack([number.to(torch.float64) for number in numbers.values()]).tolist()
    return dict(zip(numbers, values, strict=True))


# -- mismatch of sampler and learner -----------------------------------------------------------


def correction_weights(
    logp_train: Tensor,
    logp_roll: Tensor,
    mask: Tensor,
    *,
    rule: Correction = "truncate",
    level: CorrectionLevel = "token",
    low: float = 0.5,
    high: float = 2.0,
) -> tuple[Tensor, dict[str, float]]:
    """Importance weights from the sampler's to the learner's view of the same policy.

    ``w = exp(logp_train - logp_roll)``, detached, to be given to `policy_loss` as ``weights``.

    * ``rule="truncate"``: ``min(w, high)`` (TIS; cap 2).
    * ``rule="mask"``: ``w`` where ``low <= w <= high``, else 0 (MIS; IcePop, arXiv 2510.18855;
      GLM-5 has 1/2 to 2).
    * ``rule="none"``: ``w`` itself; with a proximal policy's log-probs as ``logp_train`` and as
      ``logp_old`` of a ``ppo`` loss this is decoupled PPO (AReaL, arXiv 2505.24298).

    ``level="token"`` weighs each token by itself; ``"sequence_product"`` all tokens of a row by the
    ratio of the whole row, which leaves every bound as rows grow long; ``"sequence_mean"`` by its
    geometric mean, which does not.

    Args:
        logp_train: Log-probs recomputed by the learner with the weights that sampled (or by the
            proximal policy).
        logp_roll: Log-probs recorded by the sampler.
        mask: True on action tokens.
        rule: What to do with extreme weights.
        level: Over what the ratio is taken.
        low: Lower bound, ``"mask"`` only.
        high: Upper bound, ``"mask"`` and ``"truncate"``.

    Returns:
        The weights ``(B, T)``, 0 off the mask and where a log-prob is not finite, and metrics:
        ``correction_mean``, and ``correction_cut``, the fraction of action tokens truncated or
        masked.

    Raises:
        ValueError: An option is unknown or the bounds are not ordered.
    """
    if rule not in ("none", "truncate", "mask"):
        raise ValueError(f"rule must be 'none', 'truncate' or 'mask', got {rule!r}")
    if level not in ("token", "sequence_mean", "sequence_product"):
        raise ValueError(
            f"level must be 'token', 'sequence_mean' or 'sequence_product', got {level!r}"
        )
    if not 0.0 <= low <= high:
        raise ValueError(f"need 0 <= low <= high, got {low} and {high}")
    mask = mask.bool()
    usable = mask & torch.isfinite(logp_train) & torch.isfinite(logp_roll)
    d = _kept(logp_train.detach(), usable) - _kept(logp_roll.detach(), usable)
    if level != "token":
        total = d.sum(-1, keepdim=True)
        if level == "sequence_mean":
            total = total / usable.sum(-1, keepdim=True).clamp(min=1)
        d = total.expand_as(d)
    w = d.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    cut = torch.zeros_like(mask)
    if rule == "truncate":
        cut = w > high
        w = w.clamp(max=high)
    elif rule == "mask":
        cut = (w < low) | (w > high)
        w = torch.where(cut, 0.0, w)
    w = _kept(w, usable)
    count = max(int(mask.sum()), 1)
    metrics = {
        "tokens": float(mask.sum()),
        "correction_mean": float(w.sum()) / count,
        "correction_cut": float((cut & usable).sum()) / count,
    }
    return w, metrics


# -- KL, value, entropy --------------------------------------------------------------------------


def kl_loss(
    logp: Tensor,
    logp_ref: Tensor,
    mask: Tensor,
    *,
    kind: KLKind = "k3",
    logp_old: Tensor | None = None,
    reduction: Reduction = TOKEN_MEAN,
) -> LossOutput:
    """KL to a reference policy as a loss term (not yet multiplied by its coefficient).

    What the expected gradient is, on-policy: of ``k1`` zero, so it is refused without importance
    weights; of ``k2`` that of KL(pi || ref); of ``k3`` that of KL(ref || pi). With ``logp_old``
    each term is weighted by ``exp(logp - logp_old)``, gradient included; then the gradient of all
    is that of the expectation itself, for ``k3`` KL(pi || ref), off-policy too (the form of
    DeepSeek-V3.2).

    Members of zero-variance groups have no policy gradient but are still pulled by this term;
    leave them out of ``mask`` (and of the denominator) if that is not wanted.

    Args:
        logp: Log-probs under the policy being trained.
        logp_ref: Log-probs under the reference.
        mask: True on action tokens that count here.
        kind: Estimator, see `trainers.advantages.kl.kl_terms`.
        logp_old: Log-probs of the policy that sampled, for the importance-weighted form.
        reduction: How token losses become one number, and what they are divided by.

    Returns:
        `LossOutput`; ``kl`` is the unweighted mean of the estimator over action tokens.

    Raises:
        ValueError: ``k1`` as a loss without importance weights.
    """
    if kind == "k1" and logp_old is None:
        raise ValueError(
            "k1 as a loss has an expected gradient of zero; use it as a reward penalty, take "
            "'k2' or 'k3', or give logp_old"
        )
    mask = mask.bool()
    usable = mask & torch.isfinite(logp) & torch.isfinite(logp_ref)
    if logp_old is not None:
        usable = usable & torch.isfinite(logp_old)
    lp = _kept(logp, usable)
    d = lp - _kept(logp_ref.detach(), usable).to(lp.dtype)
    terms = kl_terms(d.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO), kind, torch.expm1)
    mean = float(_kept(terms.detach(), usable).sum()) / max(int(usable.sum()), 1)
    if logp_old is not None:
        log_ratio = lp - _kept(logp_old.detach(), usable).to(lp.dtype)
        terms = terms * log_ratio.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    loss = aggregate(_kept(terms, usable), mask, reduction)
    return LossOutput(
        loss, {"tokens": float(mask.sum()), "kl": mean, "kl_loss": float(loss.detach())}
    )


def value_loss(
    values: Tensor,
    targets: Tensor,
    mask: Tensor,
    *,
    old_values: Tensor | None = None,
    clip: float | None = None,
    reduction: Reduction = TOKEN_MEAN,
) -> LossOutput:
    """Half the squared error of the critic, optionally clipped as in PPO implementations.

    ``0.5 (V - y)^2``; with ``clip`` it is ``0.5 max((V - y)^2, (V_clipped - y)^2)``, where
    ``V_clipped`` stays within ``clip`` of the values from before the update. The factor stands in
    both forms, so that switching the clip on does not change the scale. Off by default: SAO does
    not mention it.

    Args:
        values: Critic's output at each token *before* it is emitted; the gradient flows here.
        targets: What it should be; detached.
        mask: True on the action tokens (or turn starts) the critic is trained on.
        old_values: Values from before the update, needed for ``clip``.
        clip: Largest change of a value that is still rewarded.
        reduction: How token losses become one number, and what they are divided by.

    Returns:
        `LossOutput` with ``value_error`` (mean squared error), ``value_mean``, ``target_mean`` and
        ``value_clipped`` (fraction of tokens where the clipped term was the larger).

    Raises:
        ValueError: ``clip`` without ``old_values``, or a target on the mask is not finite.
    """
    mask = mask.bool()
    y = _kept(targets.detach(), mask)
    if not bool(torch.isfinite(y).all()):
        raise ValueError("a value target on the mask is not finite; drop that trajectory")
    v = _kept(values, mask)
    y = y.to(v.dtype)
    squared = (v - y) ** 2
    clipped = torch.zeros_like(mask)
    loss_BT = 0.5 * squared
    if clip is not None:
        if old_values is None or not clip > 0:
            raise ValueError(f"value clipping needs old_values and clip > 0, got clip={clip}")
        v_old = _kept(old_values.detach(), mask).to(v.dtype)
        squared_clipped = (v_old + (v - v_old).clamp(-clip, clip) - y) ** 2
        clipped = squared_clipped > squared
        loss_BT = 0.5 * torch.maximum(squared, squared_clipped)
    loss = aggregate(loss_BT, mask, reduction)
    count = max(int(mask.sum()), 1)
    metrics = {
        "tokens": float(mask.sum()),
        "value_loss": float(loss.detach()),
        "value_error": float(squared.detach().sum()) / count,
        "value_mean": float(v.detach().sum()) / count,
        "target_mean": float(y.sum()) / count,
        "value_clipped": float((clipped & mask).sum()) / count,
    }
    return LossOutput(loss, metrics)


def entropy_loss(
    entropy_BT: Tensor,
    mask: Tensor,
    *,
    reduction: Reduction = TOKEN_MEAN,
) -> LossOutput:
    """Negative entropy of the policy at action tokens: minimising it keeps the policy broad.

    Args:
        entropy_BT: `trainers.token_outputs.token_entropy`.
        mask: True on action tokens.
        reduction: How token losses become one number, and what they are divided by.
    """
    mask = mask.bool()
    entropy = _kept(entropy_BT, mask)
    loss = aggregate(-entropy, mask, reduction)
    mean = float(entropy.detach().sum()) / max(int(mask.sum()), 1)
    return LossOutput(loss, {"tokens": float(mask.sum()), "entropy": mean})


def _kept(x: Tensor, keep: Tensor) -> Tensor:
    """``x`` in at least float32 where ``keep``, and a gradient-free 0 elsewhere."""
    x = at_least_float32(x)
    return torch.where(keep, x, torch.zeros_like(x))
