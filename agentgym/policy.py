"""What a policy is: token ids in; token ids, log-probs and weight versions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

__all__ = ["Completion", "FinishReason", "Policy", "PolicyError", "Request", "Sampling"]


class PolicyError(RuntimeError):
    """The engine behind a policy failed or is gone; the cause is attached."""


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"
    CONTEXT_OVERFLOW = "context_overflow"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn.

    Recorded log-probs are those of the distribution that was sampled, temperature included.
    Truncated sampling (top-p, top-k) is left out on purpose: without the matching correction in
    the learner it biases every importance ratio.

    Attributes:
        temperature: Divides the logits; 0 takes the most likely token (log-probs at 1).
        max_tokens: Most tokens of one action.
        stop_token_ids: Tokens that end the action (kept as its last token).
    """

    temperature: float = 1.0
    max_tokens: int = 64
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not (self.temperature >= 0 and np.isfinite(self.temperature)):
            raise ValueError(f"temperature must be finite and >= 0, got {self.temperature!r}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be >= 1, got {self.max_tokens!r}")


@dataclass(slots=True)
class Request:
    """One generation.

    Attributes:
        token_ids: The whole prompt.
        sampling: How to draw.
        key: Integers that, with the position of a token, fix its random number. Equal keys give
            equal draws whatever else is in the batch and whenever the request arrives.
        session: Episode the request belongs to. A policy may keep its KV cache between requests
            of a session, and reuse it where the new prompt starts with the old tokens.
    """

    token_ids: Sequence[int] | np.ndarray
    sampling: Sampling
    key: tuple[int, ...] = ()
    session: str | None = None


@dataclass(slots=True)
class Completion:
    """What a policy returns.

    Attributes:
        token_ids: Sampled tokens, stop token included; shape (n,).
        logprobs: Natural-log probability of each under the sampling distribution; float32 (n,).
        versions: Weight version that produced each; int32 (n,).
        finish_reason: Why it ended.
        trainable: False where a token must stay out of the loss (for instance sampled from a KV
            cache of older weights); None means all may be used. bool (n,).
        details: What the engine has to tell besides (timings, cache hits).
    """

    token_ids: tuple[int, ...]
    logprobs: np.ndarray
    versions: np.ndarray
    finish_reason: FinishReason
    trainable: np.ndarray | None = None
    details: dict[str, Any] = field(default_factory=dict)


class Policy(Protocol):
    """An engine that continues token sequences."""

    @property
    def version(self) -> int:
        """Version of the weights in use."""
        ...

    @property
    def max_context(self) -> int:
        """Most tokens of prompt and completion together."""
        ...

    async def generate(self, request: Request) -> Completion:
        """Continue ``request.token_ids``.

        A request whose prompt leaves no room returns at once with ``CONTEXT_OVERFLOW`` and no
        token. One that a weight update overtakes goes on under the new weights.
        """
        ...

    async def load_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Replace the weights; every cached key and value computed with the old ones is dropped."""
        ...

    def release(self, session: str) -> None:
        """Forget a session's cache; unknown sessions are ignored."""
        ...

    async def aclose(self) -> None:
        """Stop the engine and free what it holds."""
        ...
