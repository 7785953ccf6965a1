"""Random numbers by counter, and drawing tokens with them.

A token's number depends on its request's key and its index in the completion and on nothing else:
not on what else is in the batch, nor on when the request arrived. The generator is SplitMix64
(Steele, Lea and Flood, 2014), whose n-th output is a hash of ``key + n * GOLDEN``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

__all__ = ["draw", "fold_key", "uniforms"]

_GOLDEN = 0x9E3779B97F4A7C15
_M1 = 0xBF58476D1CE4E5B9
_M2 = 0x94D049BB133111EB


def fold_key(key: Iterable[int]) -> int:
    """Hash integers (of any size and sign) and their order to 64 bits."""
    text = ",".join(str(int(part)) for part in key)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def uniforms(keys: np.ndarray, counters: np.ndarray) -> np.ndarray:
    """One number in [0, 1) for each pair.

    Args:
        keys: Folded keys; uint64 (n,).
        counters: Index of the draw under its key, from 0; int64 (n,).

    Returns:
        float64 (n,), multiples of 2**-53.
    """
    with np.errstate(over="ignore"):
        state = keys + (counters.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(_M1)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(_M2)
        state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw(logits_BV: Tensor, temperatures: np.ndarray, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
    """Draw one token a row by inverting the cumulative distribution.

    Args:
        logits_BV: Raw logits.
        temperatures: Divisor of each row's logits; 0 takes the most likely token, and its
            log-prob is that at temperature 1. float64 (B,).
        numbers: The rows' random numbers in [0, 1); float64 (B,).

    Returns:
        Tokens, int64 (B,), and their log-probs under the distribution drawn from, float32 (B,).
    """
    logits = logits_BV.float()
    if not (temperatures == 1.0).all():
        divisors = np.where(temperatures == 0.0, 1.0, temperatures).astype(np.float32)
        logits = logits / torch.from_numpy(divisors).to(logits.device)[:, None]
    logp = torch.log_softmax(logits, dim=-1)
    greedy = temperatures == 0.0
    if greedy.all():
        tokens = logp.argmax(-1)
    else:
        cumulative = logp.double().exp_().cumsum_(-1)
        total = cumulative[:, -1]
        target = torch.from_numpy(numbers).to(logits.device) * total
        # Rounding must not carry the target onto the total: the search would then fall off the
        # end, or onto a token of probability 0.
        target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
        tokens = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
        tokens = tokens.clamp_(
            max=logits.shape[-1] - 1
        )  # NaN logits: the caller sees NaN log-probs
        if greedy.any():
            is_greedy = torch.from_numpy(greedy).to(logits.device)
            tokens = torch.where(is_greedy, logp.argmax(-1), tokens)
    return tokens, logp.gather(-1, tokens[:, None])[:, 0]
