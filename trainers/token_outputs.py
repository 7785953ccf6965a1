"""From a model's raw outputs to per-token quantities, and the index convention between them.

Position ``t`` denotes the *token*: ``logp[t] = log pi(x_t | x_<t)`` and ``V[t] = v(x_<t)``, both
read off the model's output at position ``t - 1``. Position 0 has nothing before it; its entry is 0
and it is never an action token. ``B`` rows, ``T`` tokens, ``V`` vocabulary entries.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.aggregation import at_least_float32


def token_log_probs(
    logits_BTV: Tensor,
    token_ids_BT: Tensor,
    *,
    temperature: float = 1.0,
    segment_ids_BT: Tensor | None = None,
) -> Tensor:
    """Log-probability of every token of a row, given the tokens before it.

    Args:
        logits_BTV: Raw logits, one vector after each token.
        token_ids_BT: The tokens themselves.
        temperature: The temperature the tokens were sampled at. The recomputed log-probabilities
            must have the same one, or the ratio to the recorded ones is off from the first token.
        segment_ids_BT: Which document each token belongs to, where several share a row. The first
            token of a document is not predicted from the document before it: its entry is 0.

    Returns:
        ``logp_BT``, float32 (float64 for float64 logits).

    Raises:
        ValueError: ``temperature`` is not positive or shapes differ.
    """
    logp = torch.log_softmax(_scaled(logits_BTV, token_ids_BT.shape, temperature)[:, :-1], dim=-1)
    chosen = logp.gather(-1, token_ids_BT[:, 1:, None].long()).squeeze(-1)
    return _shifted(chosen, segment_ids_BT)


def token_entropy(
    logits_BTV: Tensor,
    *,
    temperature: float = 1.0,
    segment_ids_BT: Tensor | None = None,
) -> Tensor:
    """Entropy in nats of the distribution each token was drawn from.

    Args and Raises are those of `token_log_probs`.

    Returns:
        ``entropy_BT``; position ``t`` is the entropy *before* token ``t``.
    """
    logits = _scaled(logits_BTV, logits_BTV.shape[:2], temperature)[:, :-1]
    logp = torch.log_softmax(logits, dim=-1)
    # A forbidden token has logit -inf; it adds 0 to the entropy and must not add 0 * -inf.
    safe = torch.where(torch.isfinite(logp), logp, torch.zeros_like(logp))
    return _shifted(-(logp.exp() * safe).sum(-1), segment_ids_BT)


def prefix_values(
    head_BT: Tensor, lengths_B: Tensor, *, segment_ids_BT: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Values before each token, and the value after the last one.

    Args:
        head_BT: Value head applied to the hidden state of every token.
        lengths_B: Tokens of each row without the padding (right padding).
        segment_ids_BT: As in `token_log_probs`.

    Returns:
        ``values_BT`` with ``values[t] = head[t - 1]``, and ``v_boot_B = head[length - 1]``, the
        bootstrap value of a row that was cut off after its last observation.

    Raises:
        ValueError: A length is not in 1..T.
    """
    if bool(((lengths_B < 1) | (lengths_B > head_BT.shape[1])).any()):
        raise ValueError(f"row lengths must lie in 1..{head_BT.shape[1]}, got {lengths_B.tolist()}")
    v_boot = head_BT.gather(1, (lengths_B - 1)[:, None].long()).squeeze(1)
    return _shifted(head_BT[:, :-1], segment_ids_BT), v_boot


def _scaled(logits_BTV: Tensor, shape: torch.Size, temperature: float) -> Tensor:
    if not temperature > 0:
        raise ValueError(
            f"temperature must be > 0, got {temperature}; greedy tokens have no log-probability "
            "to train on"
        )
    if logits_BTV.shape[:2] != shape:
        raise ValueError(f"logits {tuple(logits_BTV.shape)} do not fit tokens {tuple(shape)}")
    logits = at_least_float32(logits_BTV)
    return logits if temperature == 1.0 else logits / temperature


def _shifted(before_next_BT: Tensor, segment_ids_BT: Tensor | None) -> Tensor:
    """Move what was computed for the next token onto that token; 0 where there is no prefix."""
    shifted = torch.nn.functional.pad(before_next_BT, (1, 0))
    if segment_ids_BT is None:
        return shifted
    same = segment_ids_BT[:, 1:] == segment_ids_BT[:, :-1]
    same = torch.nn.functional.pad(same, (1, 0), value=False)
    return torch.where(same, shifted, torch.zeros_like(shifted))
