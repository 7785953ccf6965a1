"""From per-token losses to one scalar, independent of how a batch was cut into micro-batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"]


@dataclass
class LossOutput:
    """A scalar to minimise and what to log about it.

    Attributes:
        loss: This micro-batch's share of the batch loss; shares add up.
        metrics: Plain floats; merge those of several micro-batches with `merge_metrics`.
    """

    loss: Tensor
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Reduction:
    """How token losses become one number.

    =====================  ==========================================  ========================
    how                    batch loss                                  known from
    =====================  ==========================================  ========================
    token_mean             ``sum_i sum_t m l / sum_i sum_t m``         DAPO, arXiv 2503.14476
    seq_mean_token_mean    ``mean_i (sum_t m l / sum_t m)``            GRPO, arXiv 2402.03300
    seq_mean_token_sum     ``mean_i (sum_t m l)``                      REINFORCE
    constant               ``sum_i sum_t m l / (N max_length)``        Dr.GRPO, arXiv 2503.20783
    =====================  ==========================================  ========================

    Sequences without action tokens count in no mean. ``denominator`` is that of the whole
    optimiser batch, all micro-batches and workers: build a reduction once with `over` and give it
    to every micro-batch. Without a denominator the rows at hand are taken for the whole batch.

    Attributes:
        how: One of the four.
        denominator: What the summed loss is divided by.
        max_length: Constant length in tokens, ``"constant"`` only.
        sequence_tokens_B: For ``seq_mean_token_mean`` where a trajectory takes several rows:
            action tokens of the whole trajectory each row of this micro-batch belongs to. The
            row's own when omitted.
    """

    how: Aggregation = "token_mean"
    denominator: float | None = None
    max_length: int | None = None
    sequence_tokens_B: Tensor | None = None  # noqa: N815 - shape suffix

    def __post_init__(self) -> None:
        known = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant")
        if self.how not in known:
            raise ValueError(f"aggregation must be one of {known}, got {self.how!r}")
        needs_length = self.how == "constant" and self.denominator is None
        if needs_length and (self.max_length is None or self.max_length < 1):
            raise ValueError(f"aggregation 'constant' needs max_length >= 1, got {self.max_length}")

    @classmethod
    def over(
        cls,
        tokens_N: Tensor | Sequence[int],
        how: Aggregation = "token_mean",
        *,
        max_length: int | None = None,
    ) -> Reduction:
        """Reduction with the denominator of a whole batch.

        Args:
            tokens_N: Action tokens of every *trajectory* of the batch that the mask of the loss
                keeps: numerator and denominator must be counted with the same mask. With one row
                a trajectory this is ``mask.sum(-1)``.
            how: One of the four.
            max_length: Constant length in tokens, ``"constant"`` only.
        """
        reduction = cls(how, max_length=max_length)
        counts = torch.as_tensor(tokens_N).tolist()
        return cls(how, _denominator(counts, reduction), max_length)


TOKEN_MEAN = Reduction()


def aggregate(loss_BT: Tensor, mask: Tensor, reduction: Reduction = TOKEN_MEAN) -> Tensor:
    """Reduce a per-token loss to this micro-batch's share of the batch loss.

    Args:
        loss_BT: Per-token loss; entries off the mask count for nothing, whatever they are.
        mask: Action mask of these rows.
        reduction: How, and divided by what.

    Returns:
        A scalar connected to the graph of ``loss_BT``, also when no token is on the mask.
    """
    mask = mask.bool()
    denominator = reduction.denominator
    if denominator is None:
        denominator = _denominator(mask.sum(-1).tolist(), reduction)
    summed_B = torch.where(mask, loss_BT, torch.zeros_like(loss_BT)).sum(-1)
    if reduction.how == "seq_mean_token_mean":
        tokens_B = reduction.sequence_tokens_B
        tokens_B = mask.sum(-1) if tokens_B is None else tokens_B
        summed_B = summed_B / tokens_B.clamp(min=1)
    return summed_B.sum() / max(denominator, 1.0)


def _denominator(tokens_N: Sequence[int], reduction: Reduction) -> float:
    if reduction.how == "token_mean":
        return float(sum(tokens_N))
    sequences = sum(1 for tokens in tokens_N if tokens > 0)
    if reduction.how == "constant":
        return float(sequences * (reduction.max_length or 1))
    return float(sequences)


def merge_metrics(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """Metrics of a batch from those of its micro-batches.

    Losses and ``tokens`` add up (their denominators are global), ``*_max`` takes the largest,
    ``*_rms`` the root of the mean square, everything else the mean, weighted by action tokens.
    """
    merged: dict[str, float] = {}
    names = dict.fromkeys(name for part in parts for name in part)
    for name in names:
        values = [(part[name], part["tokens"]) for part in parts if name in part]
        total = sum(tokens for _, tokens in values) or 1.0
        if name == "tokens" or name.endswith("loss"):
            merged[name] = sum(value for value, _ in values)
        elif name.endswith("_max"):
            merged[name] = max(value for value, _ in values)
        elif name.endswith("_rms"):
            merged[name] = math.sqrt(sum(v * v * tokens for v, tokens in values) / total)
        else:
            merged[name] = sum(value * tokens for value, tokens in values) / total
    return merged


def at_least_float32(x: Tensor) -> Tensor:
    """Half-precision inputs in float32, float64 as it is: ratios are not formed in bfloat16."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
