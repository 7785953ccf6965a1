"""Models of every kind of attention, small enough to check each number they give."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from adapters.policies.causal_lm import CausalLM
from adapters.policies.torch_policy import TorchPolicy
from agentgym.policy import Request, Sampling

VOCAB, CONTEXT = 97, 160
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
BUILDERS = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, num_key_value_heads=2)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_key_value_heads=1, head_dim=32)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=1)),
    "mistral-window": lambda: MistralForCausalLM(
        MistralConfig(**SHAPE, num_key_value_heads=1, sliding_window=9)
    ),
    # Alternating windows, eager soft-capped attention, soft-capped logits.
    "gemma2": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SHAPE, num_key_value_heads=1, head_dim=16, sliding_window=9)
    ),
    # Absolute positions, no rotary embedding.
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB,
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_positions=CONTEXT,
            bos_token_id=None,
            eos_token_id=None,
        )
    ),
}


def make_lm(kind: str = "qwen2", seed: int = 0, scale: float = 6.0) -> CausalLM:
    torch.manual_seed(seed)
    model = BUILDERS[kind]()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim > 1:
                value.mul_(scale)  # random models are otherwise close to uniform
            elif "bias" in name:
                value.normal_(0.0, 0.2)
    return CausalLM(model)


def make_policy(lm: CausalLM, **options: Any) -> TorchPolicy:
    return TorchPolicy(
        lm, **{"max_slots": 8, "max_context": CONTEXT, "prefill_tokens": 64} | options
    )


def reference(lm: CausalLM, prompt: list[int], tokens: tuple[int, ...], temperature: float = 1.0):
    """Log-probs by one plain forward pass of the transformers model, no cache and no mask."""
    ids = torch.tensor([[*prompt, *tokens]])
    with torch.no_grad():
        logits = lm.model(input_ids=ids, use_cache=False).logits[0].double()
    logp = torch.log_softmax(logits / (temperature or 1.0), -1)
    at = range(len(prompt) - 1, len(prompt) + len(tokens) - 1)
    return np.array([float(logp[i, t]) for i, t in zip(at, tokens, strict=True)])


def play(policy: TorchPolicy, episodes: int, turns: int, temperature: float = 1.0, seed: int = 5):
    """Multi-turn conversations; returns (prompt, completion) of every turn, by episode."""

    async def episode(number: int):
        rng = np.random.default_rng((seed, number))
        ids = rng.integers(0, VOCAB, rng.integers(3, 20)).tolist()
        out = []
        for turn in range(turns):
            request = Request(
                list(ids),
                Sampling(temperature, int(rng.integers(1, 7)), (3, 7, 11)),
                (1, number, turn),
                f"episode-{number}",
            )
            completion = await policy.generate(request)
            out.append((list(ids), completion))
            ids += [*completion.token_ids, *rng.integers(0, VOCAB, rng.integers(1, 12)).tolist()]
        policy.release(f"episode-{number}")
        return out

    async def everything():
        return await asyncio.gather(*(episode(number) for number in range(episodes)))

    return asyncio.run(everything())


def worst_gap(lm: CausalLM, results, temperature: float = 1.0) -> float:
    return max(
        float(np.abs(reference(lm, prompt, c.token_ids, temperature) - c.logprobs).max())
        for episode in results
        for prompt, c in episode
    )
