"""The tiny policy: a small transformer of a stock class.

A stock class of transformers is used, so that everything that loads a causal language model (this
suite, vLLM) loads this one. It is Qwen3: folders of Qwen2 models get Qwen2's tokenizer class
whatever tokenizer they hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from adapters.policies.causal_lm import CausalLM
from adapters.policies.tokenization import END, NUMBERED, PAD

__all__ = ["TinyConfig", "build_tiny"]

_HEAD = 32  # dimensions of a head
_NOTE_GAIN = 1.5  # size of a note beside a token's embedding
_COPY_GAIN = 4.0  # size of what is copied beside a token's embedding
_BRANCH_GAIN = 0.2  # size of what other branches write, likewise
_NUMBER_SHARE = 0.5  # size of what a number adds to its kind's embedding, beside an embedding
_TURNING = 4  # frequencies, from the highest, that tell positions; the others compare contents
_LOOK_BACK_SCALE = 2.5  # of normalised queries and keys: sharpness of the look back
_LOOK_UP_SCALE = 1.5  # the same for the comparison with the notes


@dataclass(frozen=True, slots=True)
class TinyConfig:
    """Shape and start of the tiny model (a Qwen3 model with tied embeddings).

    Attributes:
        layers: Transformer layers; copying needs two.
        heads: Attention heads of 32 dimensions each (what vLLM's kernels ask for at least); the
            hidden width is 32 times their number.
        intermediate: Width of the MLP.
        max_positions: Longest sequence, in tokens.
        rope_theta: Base of the rotary position encoding. Large: most of a head's 16 frequencies
            then hardly turn within an episode, and are free to compare contents.
        embedding_std: Standard deviation of the initial embeddings.
        induction: Start with one induction circuit in place (see :func:`build_tiny`).
        numbered: Start with the embedding of a numbered name, such as ``mug 2``, composed of that
            of its kind and that of its number.
    """

    layers: int = 2
    heads: int = 2
    intermediate: int = 128
    max_positions: int = 1024
    rope_theta: float = 1e7
    embedding_std: float = 0.2
    induction: bool = True
    numbered: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "intermediate", "max_positions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)!r}")
        if self.induction and self.layers < 2:
            raise ValueError("an induction circuit spans two layers; set induction=False for one")

    @property
    def hidden(self) -> int:
        """Hidden width."""
        return 32 * self.heads


def build_tiny(tokenizer: Any, config: TinyConfig | None = None, *, seed: int = 0) -> CausalLM:
    """A freshly initialised tiny model.

    All an agent must do with a name is to copy it from a page. The circuit that copies is known
    (Elhage et al., "A Mathematical Framework for Transformer Circuits", 2021; Olsson et al.,
    "In-context Learning and Induction Heads", 2022): a head of the first layer notes at each token
    which one came before it, and a head of the second layer looks for the place whose note equals
    the current token and raises the probability of what stands there. Random weights find it only
    after thousands of updates, so it is put in place here, crudely, and training does the rest. No
    word of the environment enters: the circuit is the same random projections for every token.

    Args:
        tokenizer: Its tokenizer; see :func:`adapters.policies.tokenization.build_tokenizer`.
        config: Its shape.
        seed: Seed of the weights; torch's global generator is left as it was.
    """
    config = config or TinyConfig()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=config.hidden,
                intermediate_size=config.intermediate,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.heads,
                head_dim=_HEAD,
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
        if config.numbered:
            _compose_numbered(model, tokenizer)
    return CausalLM(model, tokenizer)


@torch.no_grad()
def _initialise(model: PreTrainedModel, config: TinyConfig) -> None:
    for name, value in model.named_parameters():
        if "embed_tokens" in name:
            value.normal_(0.0, config.embedding_std)
        elif value.ndim == 2:
            scale = 1.0 / math.sqrt(value.shape[1])
            if "o_proj" in name or "down_proj" in name:
                # What branches add to the embeddings starts out small beside them.
                scale *= _BRANCH_GAIN * config.embedding_std
            value.normal_(0.0, scale)
    if config.induction:
        inner: Any = model.base_model
        # A constant that every token carries; the output layer adds the same to all logits.
        inner.embed_tokens.weight[:, 0] = 3.0 * config.embedding_std
        notes = _look_back(inner.layers[0].self_attn, config)
        _look_up(inner.layers[1].self_attn, config, *notes)


@torch.no_grad()
def _compose_numbered(model: PreTrainedModel, tokenizer: Any) -> None:
    """Embed each token for a kind and a number as the kind's token, moved a little by the number.

    What is learned of ``mug 1`` then holds for ``mug 2`` from the start.
    """
    ids: dict[str, int] = tokenizer.get_vocab()
    embedding = model.get_input_embeddings().weight
    numbers: dict[str, Tensor] = {}
    for token in sorted(ids):
        parts = NUMBERED.fullmatch(token)
        if parts is None or parts["kind"] not in ids:
            continue
        number = parts["number"]
        if number not in numbers:
            numbers[number] = _NUMBER_SHARE * embedding[ids[token]].clone()
            numbers[number][0] = 0.0  # the constant of the induction circuit
        embedding[ids[token]] = embedding[ids[parts["kind"]]] + numbers[number]


def _look_back(attention: Any, config: TinyConfig) -> tuple[Tensor, Tensor]:
    """Make head 0 attend to the token before and note in the residual stream what stands there.

    Queries and keys of the head read the constant alone, so they are the same for every token.
    Rotary encoding turns the product of two constant vectors into a function of their distance,
    ``sum_i a^2 cos((distance - 1) t_i)`` over the fastest frequencies ``t_i``, which is greatest
    at distance 1 since the query is turned back by one position beforehand.

    Returns:
        How a token is read, (32, hidden), and where the note is written, (hidden, 32).
    """
    half = _HEAD // 2
    angles = config.rope_theta ** (-torch.arange(_TURNING) / half)
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight[:_HEAD] = 0.0
    attention.k_proj.weight[:_TURNING, 0] = 1.0
    attention.q_proj.weight[:_TURNING, 0] = torch.cos(angles)
    attention.q_proj.weight[half : half + _TURNING, 0] = -torch.sin(angles)
    for norm in (attention.q_norm, attention.k_norm):
        norm.weight[:_TURNING] = norm.weight[half : half + _TURNING] = _LOOK_BACK_SCALE
    reads = nn.init.orthogonal_(torch.empty(_HEAD, config.hidden))
    writes = nn.init.orthogonal_(torch.empty(config.hidden, _HEAD))
    reads[:, 0] = writes[0] = 0.0  # the constant says nothing about a token
    attention.v_proj.weight[:_HEAD] = reads
    attention.o_proj.weight[:, :_HEAD] = _NOTE_GAIN * config.embedding_std * writes
    return reads, writes


def _look_up(attention: Any, config: TinyConfig, reads: Tensor, writes: Tensor) -> None:
    """Make head 0 attend to where the note equals the current token, and copy what stands there."""
    steady = torch.zeros(_HEAD, 1)
    steady[_TURNING : _HEAD // 2] = steady[_HEAD // 2 + _TURNING :] = 1.0
    attention.q_proj.weight[:_HEAD] = steady * reads
    attention.k_proj.weight[:_HEAD] = steady * writes.T
    for norm in (attention.q_norm, attention.k_norm):
        norm.weight[:] = _LOOK_UP_SCALE
    copies = nn.init.orthogonal_(torch.empty(_HEAD, config.hidden))
    copies[:, 0] = 0.0
    attention.v_proj.weight[:_HEAD] = copies
    attention.o_proj.weight[:, :_HEAD] = _COPY_GAIN * config.embedding_std * copies.T
