"""Rows that name tasks, for libraries that train on a data set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from agentgym.evaluation import evaluation_specs
from agentgym.guarded import env_maker
from agentgym.tasks import TaskSet

__all__ = ["evaluation_rows", "read_prompt", "task_rows"]


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
    rng = np.random.default_rng(seed)
    with _tasks(env_id, **env_args) as tasks:
        rows = [{"task_id": tasks.sample(rng, split), "seed": seed + row} for row in range(number)]
    return _with_prompts(rows)


def evaluation_rows(
    env_id: str, number: int, *, split: str | None = None, **env_args: Any
) -> list[dict[str, Any]]:
    """Rows to test on: the episodes that the suite's own evaluations play, in the same order.

    Args:
        env_id: Id of the environment.
        number: How many rows; where the split has fewer tasks, they repeat with other seeds.
        split: Split to take them from; None for the environment's last evaluation split.
        **env_args: Arguments of the environment.

    Raises:
        ValueError: If there is no such split, no task in it, or the environment names none, or
            the number is not positive.
    """
    if number < 1:
        raise ValueError(f"the number of rows to test on must be positive, got {number}")
    with _tasks(env_id, **env_args) as tasks:
        if split is None and not tasks.eval_splits:
            raise ValueError(
                f"{env_id} names no split for evaluation; choose one of {list(tasks.splits)}"
            )
        name = tasks.eval_splits[-1] if split is None else split
        ids = tasks.ids(name)
    if not ids:
        raise ValueError(f"split {name!r} of {env_id} holds no task")
    specs = evaluation_specs(ids, name, number)
    return _with_prompts([{"task_id": item.task_id, "seed": item.seed} for item in specs])


def read_prompt(prompt: Any) -> dict[str, Any]:
    """The ``task_id`` and ``seed`` that the prompt of a row names.

    Raises:
        ValueError: If it is the prompt of no such row.
    """
    try:
        row = json.loads(prompt)
        return {"task_id": row["task_id"], "seed": int(row["seed"])}
    except (TypeError, ValueError, KeyError):
        raise ValueError(f"a prompt must be one of task_rows(), got {prompt!r:.200}") from None


@contextmanager
def _tasks(env_id: str, **env_args: Any) -> Iterator[TaskSet]:
    env = env_maker(env_id, **env_args)()
    try:
        yield env.unwrapped.tasks  # type: ignore[attr-defined]
    finally:
        with suppress(Exception):  # the rows are there
            env.close()


def _with_prompts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"prompt": json.dumps(row), **row} for row in rows]
