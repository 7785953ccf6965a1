"""Comparing vector environments: the same answers, to the type of every array."""

from __future__ import annotations

from typing import Any

import numpy as np


def same(first: Any, second: Any, where: str = "") -> None:
    """Assert that two answers are alike in structure, types and values."""
    assert type(first) is type(second), f"{where}: {type(first)} and {type(second)}"
    if isinstance(first, dict):
        assert set(first) == set(second), f"{where}: {sorted(first)} and {sorted(second)}"
        for key in first:
            same(first[key], second[key], f"{where}.{key}")
    elif isinstance(first, np.ndarray):
        assert first.dtype == second.dtype, f"{where}: {first.dtype} and {second.dtype}"
        assert first.shape == second.shape, f"{where}: {first.shape} and {second.shape}"
        for slot, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            same(*pair, f"{where}[{slot}]")
    elif isinstance(first, tuple | list):
        assert len(first) == len(second), f"{where}: {len(first)} and {len(second)}"
        for slot, pair in enumerate(zip(first, second, strict=True)):
            same(*pair, f"{where}[{slot}]")
    else:
        assert first == second, f"{where}: {first!r} and {second!r}"
