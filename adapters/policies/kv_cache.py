"""Keys and values of many sessions in one block, each row at its own position.

The block is what a transformers model sees as its ``past_key_values``. A forward pass names the
rows it covers and the position of every token; the pass writes its keys and values there and
attends to what the rows hold. Which positions a token may see is the mask's business
(:class:`AttentionMasks`), so rows of different lengths share a pass.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import Cache

__all__ = ["AttentionMasks", "SlotCache", "UnsupportedAttentionError", "default_cache_bytes"]

# Positions of a new block; it doubles as sequences grow.
_FIRST_POSITIONS = 512
# A container's limit on memory, in bytes or "max": control groups of version 2, then 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

# Kinds of layers whose whole state is keys and values by position.
_BY_POSITION = frozenset({"full_attention", "sliding_attention"})


class UnsupportedAttentionError(ValueError):
    """A model whose state is not keys and values by position."""


class SlotCache(Cache):
    """A block of keys and values; layer tensors have shape (slots, heads, room + 1, head dim).

    The last position is a place to write padding to; nothing attends to it. Layers are allocated
    at their first use, when their shapes and types are known, and ``room`` grows up to
    ``capacity`` with the longest sequence.

    Args:
        slots: Number of rows.
        capacity: Tokens a row can hold.
    """

    def __init__(self, slots: int, capacity: int) -> None:
        super().__init__(layers=[])
        self.slots, self.capacity = slots, capacity
        self._room = min(_FIRST_POSITIONS, capacity)
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._rows: Tensor | slice = slice(0, 0)
        self._row_index: Tensor | None = None
        self._positions: Tensor | None = None
        self._seen = 0

    def aim(self, rows: Tensor | int, positions_BT: Tensor, seen: int) -> None:
        """Say what the next forward pass covers.

        Args:
            rows: Row of each batch entry, int64 (B,), or the number B for rows 0 to B - 1, which
                are then read in place instead of gathered.
            positions_BT: Position of each token; ``capacity`` for padding. int64 (B, T).
            seen: Number of leading positions that the pass attends to.
        """
        device = positions_BT.device
        if isinstance(rows, int):
            self._rows = slice(0, rows)
            self._row_index = torch.arange(rows, device=device)[:, None]
        else:
            self._rows = rows
            self._row_index = rows[:, None]
        while self._room < min(seen, self.capacity):
            self._room = min(2 * self._room, self.capacity)
        self._positions, self._seen = positions_BT.clamp(max=self._room), seen

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values, shape (B, heads, T, head dim); return all seen."""
        keys = self._block(self._keys, layer_idx, key_states)
        values = self._block(self._values, layer_idx, value_states)
        keys[self._row_index, :, self._positions] = key_states.transpose(1, 2)
        values[self._row_index, :, self._positions] = value_states.transpose(1, 2)
        # Narrow before gathering: a gather copies.
        return keys[:, :, : self._seen][self._rows], values[:, :, : self._seen][self._rows]

    def _block(self, blocks: dict[int, Tensor], layer: int, states: Tensor) -> Tensor:
        """A layer's block, with room for every position that the pass covers."""
        block = blocks.get(layer)
        if block is None or block.shape[2] <= self._room:
            shape = (self.slots, states.shape[1], self._room + 1, states.shape[3])
            grown = states.new_zeros(shape)
            if block is not None:
                grown[:, :, : block.shape[2] - 1] = block[:, :, :-1]
            block = blocks[layer] = grown
        return block

    # Models size their own masks with these; ours are given, so the answers are never used.

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions are passed in explicitly, so no offset applies."""
        return 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """See :meth:`get_seq_length`."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Width and offset of the attention mask."""
        return self._seen, 0

    @property
    def bytes(self) -> int:
        """Memory of the blocks allocated so far."""
        blocks = [*self._keys.values(), *self._values.values()]
        return sum(block.numel() * block.element_size() for block in blocks)

    @property
    def bytes_per_position(self) -> int:
        """Memory that one token of one row takes in all layers; 0 before the first pass."""
        return self.bytes // (self.slots * (self._room + 1))


def default_cache_bytes(device: torch.device) -> int:
    """Half of the memory of a device; on CPU of the machine, or of the container's limit."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory) // 2
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _LIMITS:
        try:
            memory = min(memory, int(Path(name).read_text("ascii")))
        except (OSError, ValueError):  # not there, or without a limit
            continue
    return memory // 2


class AttentionMasks:
    """Explicit causal masks for a model, with a sliding window where its layers have one.

    Args:
        config: The model's configuration.

    Raises:
        UnsupportedAttentionError: If a layer keeps anything but keys and values by position.
    """

    def __init__(self, config: PretrainedConfig) -> None:
        text = config.get_text_config()
        kinds = list(getattr(text, "layer_types", None) or ())
        window = getattr(text, "sliding_window", None)
        if not kinds:
            kinds = ["sliding_attention" if window else "full_attention"]
        strange = sorted(set(kinds) - _BY_POSITION)
        if strange:
            raise UnsupportedAttentionError(
                f"{type(config).__name__} has layers of kind {strange}; a cache by position "
                f"serves {sorted(_BY_POSITION)}"
            )
        self.kinds = tuple(sorted(set(kinds)))
        self.window = int(window) if "sliding_attention" in self.kinds and window else None
        self.additive = getattr(config, "_attn_implementation", "eager") == "eager"
        self.dtype: torch.dtype = torch.float32

    def build(self, positions_BT: Tensor, seen: int) -> Tensor | dict[str, Tensor]:
        """The mask argument of a forward pass.

        Args:
            positions_BT: Position of each query token; int64 (B, T).
            seen: Number of key positions.

        Returns:
            (B, 1, T, seen): True (or 0, for eager attention) where a token may look. Models that
            mix kinds of layers get one mask a kind.
        """
        queries = positions_BT[:, None, :, None]
        keys = torch.arange(seen, device=positions_BT.device)
        causal = keys <= queries
        masks = {"full_attention": causal}
        if self.window is not None:
            masks["sliding_attention"] = causal & (keys > queries - self.window)
        chosen = {kind: self._finish(masks.get(kind, causal)) for kind in self.kinds}
        return chosen if len(chosen) > 1 else next(iter(chosen.values()))

    def _finish(self, allowed: Tensor) -> Tensor:
        if not self.additive:
            return allowed
        # The most negative number instead of -inf, as transformers' own masks have it: a padding
        # query with nothing to look at must not turn into NaN.
        lowest = torch.finfo(self.dtype).min
        zero = torch.zeros((), dtype=self.dtype, device=allowed.device)
        return torch.where(allowed, zero, torch.full_like(zero, lowest))
