"""The tiny policy: a small transformer of a stock class, and a tokenizer of the environment's words.

Stock classes of transformers are used, so that everything that loads a causal language model
(this suite, vLLM) loads this one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from adapters.policies.causal_lm import CausalLM
from adapters.policies.tokenization import END, PAD

__all__ = ["TinyConfig", "build_tiny"]


@dataclass(frozen=True, slots=True)
class TinyConfig:
    """Shape and start of the tiny model (a Qwen2 model with tied embeddings).

    Attributes:
        layers: Transformer layers; copying needs two.
        heads: Attention heads of 32 dimensions each (what vLLM's kernels ask for at least); the
            hidden width is 32 times their number.
        intermediate: Width of the MLP.
        max_positions: Longest sequence, in tokens.
        rope_theta: Base of the rotary position encoding.
        embedding_std: Standard deviation of the initial embeddings.
        previous_token_head: Let the first head of the first layer start out looking at the
            previous token. Copying a name is attention to what followed its last occurrence
            (Olsson et al., "In-context Learning and Induction Heads", 2022), which needs such a
            head; finding it takes most of a short training.
    """

    layers: int = 2
    heads: int = 2
    intermediate: int = 128
    max_positions: int = 1024
    rope_theta: float = 10_000.0
    embedding_std: float = 0.05
    previous_token_head: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "intermediate", "max_positions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)!r}")

    @property
    def hidden(self) -> int:
        """Hidden width."""
        return 32 * self.heads


def build_tiny(tokenizer: Any, config: TinyConfig | None = None, *, seed: int = 0) -> CausalLM:
    """A freshly initialised tiny model.

    Args:
        tokenizer: Its tokenizer; see :func:`adapters.policies.tokenization.build_tokenizer`.
        config: Its shape.
        seed: Seed of the weights; torch's global generator is left as it was.
    """
    config = config or TinyConfig()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=len(tokenizer),
                hidden_size=config.hidden,
                intermediate_size=config.intermediate,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.heads,
                max_position_embeddings=config.max_positions,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
                tie_word_embeddings=True,
                bos_token_id=None,
                eos_token_id=tokenizer.convert_tokens_to_ids(END),
                pad_token_id=tokenizer.convert_tokens_to_ids(PAD),
                dtype="float32",
            )
        )
        _initialise(model, config)
    return CausalLM(model, tokenizer)


@torch.no_grad()
def _initialise(model: PreTrainedModel, config: TinyConfig) -> None:
    width = config.hidden
    for name, value in model.named_parameters():
        if "embed_tokens" in name:
            value.normal_(0.0, config.embedding_std)
        elif value.ndim == 2:
            # Residual branches start small, so that the depth does not matter at first.
            scale = 1.0 / math.sqrt(value.shape[1])
            if "o_proj" in name or "down_proj" in name:
                scale /= math.sqrt(2.0 * config.layers)
            value.normal_(0.0, scale)
    if config.previous_token_head:
        _look_back(model.model.layers[0].self_attn, width)  # type: ignore[union-attr]


def _look_back(attention: Any, width: int, peak: float = 6.0) -> None:
    """Make head 0 attend to the token before, and pass on what stands there.

    Its queries and keys are constant (their biases). Rotary encoding turns the product of two
    constant vectors into a function of distance, ``sum_i a^2 cos((distance - 1) theta_i)``, whose
    maximum is at distance 1 because the query is turned back by one position beforehand.
    """
    size = 32
    half = size // 2
    theta = attention.config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight[:size] = 0.0
        projection.bias[:size] = 0.0
    attention.k_proj.bias[:half] = peak
    attention.q_proj.bias[:half] = peak * torch.cos(theta)
    attention.q_proj.bias[half:size] = -peak * torch.sin(theta)
    reads = torch.empty(size, width)
    nn.init.orthogonal_(reads)
    writes = torch.empty(width, size)
    nn.init.orthogonal_(writes)
    attention.v_proj.weight[:size] = reads
    attention.o_proj.weight[:, :size] = writes
