"""Which OpenAI-compatible server, and how to treat it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["EndpointConfig"]

Api = Literal["chat", "tokens"]

# What the policy itself says, or could not read the answer to.
_OWN = frozenset({"messages", "prompt", "stream", "n"})
# With token ids the log-probs must be those of the distribution that was sampled.
_OWN_TOKENS = _OWN | {
    "max_tokens", "logprobs", "return_token_ids", "return_tokens_as_token_ids", "echo", "best_of",
    "skip_special_tokens", "stop_token_ids", "temperature", "top_p", "top_k", "min_p",
    "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """A server and how to treat it.

    Attributes:
        base_url: Up to and including the version, for instance ``http://127.0.0.1:8000/v1``.
        model: What the server calls the model.
        api: ``chat`` sends messages to ``/chat/completions`` (any server). ``tokens`` sends token
            ids to ``/completions`` and wants token ids with log-probs back (vLLM's server), which
            makes data that can be trained on.
        key_variable: Environment variable that holds the key. Only servers elsewhere need one.
        max_context: Most tokens of prompt and answer; None leaves it to the server.
        exact_logprobs: With ``tokens``: the server was started with processed log-probs, so that
            they are those of the sampling distribution at every temperature. Otherwise tokens
            that are sampled at a temperature other than 1 are marked as not trainable.
        version: Weight version that is recorded on every token.
        concurrency: Most requests at a time.
        requests_per_minute: Rate limit, or None.
        tokens_per_minute: Rate limit, prompt and answer together, or None.
        request_timeout: Seconds for one try.
        deadline: Seconds for one generation with all its tries and the waits between them, from
            when the rate limits let it through; waiting for them does not count.
        retries: Most tries after the first.
        backoff: Seconds before the first retry; doubled for each further one, up to a minute, and
            shortened by up to half at random. ``Retry-After`` of the server overrules it.
        failures_in_row: Generations that may fail for good, one after another, before the policy
            raises. Until then a failure ends its own episode as ``CANCELLED``.
        extra_body: Further fields of every request; None as a value leaves a field out.
    """

    base_url: str
    model: str
    api: Api = "chat"
    key_variable: str = "OPENAI_API_KEY"
    max_context: int | None = None
    exact_logprobs: bool = False
    version: int = 0
    concurrency: int = 64
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    request_timeout: float = 120.0
    deadline: float = 600.0
    retries: int = 6
    backoff: float = 0.5
    failures_in_row: int = 3
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model is empty; give the name that the server knows the model by")
        if self.api not in ("chat", "tokens"):
            raise ValueError(f"api must be 'chat' or 'tokens', got {self.api!r}")
        for name in ("request_timeout", "deadline", "backoff"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a finite number of seconds > 0, got {value!r}")
        for name, least in (
            ("concurrency", 1), ("retries", 0), ("failures_in_row", 1), ("version", 0),
            ("max_context", 1), ("requests_per_minute", 1), ("tokens_per_minute", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name} must be >= {least}, got {value!r}")
        own = sorted(set(self.extra_body) & (_OWN if self.api == "chat" else _OWN_TOKENS))
        if own:
            raise ValueError(f"extra_body must not set {', '.join(own)}: the policy rests on them")
        try:
            json.dumps(dict(self.extra_body), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"extra_body is no JSON object: {error}") from None
