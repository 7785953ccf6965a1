"""Rows cut into forward passes of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from agentgym.packing import Batch, Row, collate

__all__ = ["microbatches", "pad_rows", "to_tensor"]


def microbatches(
    rows: Sequence[Row],
    max_tokens: float,
    chosen: Sequence[int] | None = None,
    pad_id: int = 0,
) -> Iterator[tuple[list[int], Batch]]:
    """Rows of similar length together, at most ``max_tokens`` with their padding.

    The order depends on the rows alone.

    Args:
        rows: The rows.
        max_tokens: Bound of one forward pass; a single row may exceed it.
        chosen: Indices of the rows to take; all when omitted.
        pad_id: Token to pad with. Any will do: nothing looks at padding on the right.

    Yields:
        Indices of the rows, and the rows as a batch.
    """
    indices = list(range(len(rows))) if chosen is None else list(chosen)
    indices.sort(key=lambda index: (len(rows[index]), index))
    part: list[int] = []
    for index in indices:
        if part and (len(part) + 1) * len(rows[index]) > max_tokens:
            yield part, collate([rows[i] for i in part], pad_id)
            part = []
        part.append(index)
    if part:
        yield part, collate([rows[i] for i in part], pad_id)


def to_tensor(array: np.ndarray, device: torch.device) -> Tensor:
    """The array as a tensor on a device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def pad_rows(arrays: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Arrays of different lengths as lines of one, zeros behind; float32."""
    out = np.zeros((len(arrays), width), np.float32)
    for line, array in zip(out, arrays, strict=True):
        line[: len(array)] = array
    return out
