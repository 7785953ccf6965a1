"""Rows that name tasks, for libraries that train on a data set."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from agentgym.guarded import env_maker

__all__ = ["task_rows"]


def task_rows(
    env_id: str, number: int, *, split: str | None = None, seed: int = 0, **env_args: Any
) -> list[dict[str, Any]]:
    """Rows with ``task_id`` and ``seed``, and both again as JSON in ``prompt``.

    Every copy of a row plays the same episode: that is what makes a group. The prompt is for
    libraries that pass nothing else; the model never sees it.

    Args:
        env_id: Id of the environment.
        number: How many rows.
        split: Split to draw from; None for the training split.
        seed: Seed of the draws; row ``k`` is played with seed ``seed + k``.
        **env_args: Arguments of the environment.

    Raises:
        ValueError: If there is no such split.
    """
    env = env_maker(env_id, **env_args)()
    try:
        tasks = env.unwrapped.tasks  # type: ignore[attr-defined]
        rng = np.random.default_rng(seed)
        rows = [{"task_id": tasks.sample(rng, split), "seed": seed + row} for row in range(number)]
    finally:
        env.close()
    return [{"prompt": json.dumps(row), **row} for row in rows]
