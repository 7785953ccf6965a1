"""Whether the engine that samples computes what the learner computes.

After every publication of weights the engine continues a fixed prompt, and its log-probs of the
tokens it drew are compared with the learner's. An engine that kept old weights, mixed up names or
found stale keys and values in a cache shows at once; training on it would go wrong without a sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from agentgym.policy import Request, Sampling

if TYPE_CHECKING:
    from adapters.policies.causal_lm import CausalLM
    from trainers.rollouts import Source

__all__ = ["ParityAlarm", "ParityProbe", "default_bound"]

# Beyond a block of any engine's prefix cache (128 tokens with vLLM on CPU), so that what such a
# cache holds is put to the test too.
_PROMPT_TOKENS = 160
_NEW_TOKENS = 16
_KEY = (0x9A217, 0)


class ParityAlarm(RuntimeError):
    """Sampler and learner disagree about the same weights."""


def default_bound(dtype: torch.dtype) -> float:
    """Largest mean difference in nats that is no cause for alarm, by the engine's precision.

    In float32 differences come to 1e-5; in bfloat16 a mean of 0.04 was seen with a model of 135 M
    parameters.
    """
    return 1e-3 if dtype == torch.float32 else 0.2


class ParityProbe:
    """Compares log-probs of a fixed text's continuation.

    Args:
        lm: The learner's model.
        max_context: Most tokens that the engine takes.
        bound: Largest mean difference in nats; above it the run is to end.
        temperature: The one that training samples at.
    """

    def __init__(
        self,
        lm: CausalLM,
        *,
        max_context: int,
        bound: float,
        temperature: float,
    ) -> None:
        size = max(1, min(_PROMPT_TOKENS, max_context - _NEW_TOKENS))
        self.lm, self.bound, self.temperature = lm, bound, temperature
        # Tokens from all over the vocabulary, so that no weight of it is left out for long.
        self._prompt = np.random.default_rng(0).integers(lm.vocab_size, size=size, dtype=np.int32)
        room = max(1, min(_NEW_TOKENS, max_context - size))
        self._sampling = Sampling(temperature, room)

    def measure(self, source: Source, version: int) -> dict[str, float]:
        """Ask the engine and compare; ``parity_max`` and ``parity_mean`` in nats.

        Args:
            source: Leads to the engine.
            version: Version of the weights that the learner holds and has published.

        Raises:
            ParityAlarm: If the engine says that it uses another version.
        """
        completion = source.ask(Request(self._prompt, self._sampling, _KEY))
        versions = set(np.asarray(completion.versions).tolist())
        if versions - {version}:
            raise ParityAlarm(
                f"weights of version {version} were published, and the engine samples with "
                f"{sorted(versions)}"
            )
        ids = np.concatenate([self._prompt, np.asarray(completion.token_ids, np.int32)])
        device = self.lm.device
        ids_BT = torch.from_numpy(ids.astype(np.int64))[None].to(device)
        mask_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
        mask_BT[:, len(self._prompt) :] = True
        with torch.no_grad():
            scores = self.lm.token_logprobs(ids_BT, mask_BT, temperature=self.temperature)
        own = scores.logprobs[mask_BT].float().cpu().numpy()
        difference = np.abs(own - np.asarray(completion.logprobs, np.float32))
        return {
            "parity_max": float(difference.max(initial=0.0)),
            "parity_mean": float(difference.mean()) if len(difference) else 0.0,
        }

    def judge(self, measured: dict[str, float]) -> None:
        """End the run if sampler and learner are too far apart.

        Raises:
            ParityAlarm: With the difference and the bound.
        """
        mean = measured["parity_mean"]
        if not mean <= self.bound:  # also when it is no number
            raise ParityAlarm(
                f"the sampler's log-probs of a fixed text differ from the learner's by {mean:.3g} "
                f"nats on average (at most {measured['parity_max']:.3g}), more than "
                f"--parity-bound {self.bound:g}: the engine does not use the learner's weights, or "
                "computes them otherwise"
            )
