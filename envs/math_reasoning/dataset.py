"""Tasks from files, iterables and the hub, checked when they are loaded."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace

from agentgym.sources import SPLITS, DataError, Row, Source, rows_by_split
from envs.math_reasoning.columns import ROLES, ColumnError, MathTask, task_from
from envs.math_reasoning.grading.grader import check_gold

__all__ = ["SPLITS", "DataError", "Source", "load"]

_PLAIN_NUMBER = re.compile(r"-?\d{1,15}")


def load(
    data: Source | Mapping[str, Source], *, columns: Mapping[str, str] | None = None
) -> dict[str, list[MathTask]]:
    """The tasks of each split.

    Args:
        data: See :func:`agentgym.sources.rows_by_split`.
        columns: Role to column, for columns with unusual names.

    Returns:
        ``train``, ``validation`` and ``test``, each in the order of its rows.

    Raises:
        DataError: If something cannot be read, a row holds no task, a gold answer cannot be graded,
            or two rows disagree; the message names the row.
        ImportError: If parquet or the hub is asked for and its extra is not installed.
    """
    columns = dict(columns or {})
    unknown = sorted(set(columns) - set(ROLES))
    if unknown:
        raise DataError(f"columns names {unknown}; roles are {', '.join(ROLES)}")
    parts = rows_by_split(data, "math")
    tasks = {split: _checked(split, rows, columns) for split, rows in parts.items()}
    if not any(tasks.values()):
        raise DataError("the data hold no rows")
    return _without_repeats(tasks)


# Checks ----------------------------------------------------------------------------------------


def _checked(split: str, rows: list[Row], columns: Mapping[str, str]) -> list[MathTask]:
    tasks = []
    for number, (place, row) in enumerate(rows):
        try:
            task = task_from(row, f"{split}-{number}", columns)
            if not _PLAIN_NUMBER.fullmatch(task.answer):
                check_gold(task.answer)
        except (ColumnError, ValueError) as error:
            raise DataError(f"{place}: {error}") from None
        tasks.append(task)
    return tasks


def _without_repeats(tasks: dict[str, list[MathTask]]) -> dict[str, list[MathTask]]:
    """Each question once. Evaluation splits keep theirs; the training split gives way.

    Raises:
        DataError: If a question has two answers, or two questions have one id.
    """
    answers: dict[str, tuple[str, str]] = {}
    seen: set[str] = set()
    homes: dict[str, str] = {}
    used: set[str] = set()
    out: dict[str, list[MathTask]] = {}
    repeated = 0
    for split in ("test", "validation", "train"):
        kept = []
        for task in tasks[split]:
            question = " ".join(task.question.split())
            known = answers.setdefault(question, (task.answer, task.id))
            if known[0] != task.answer:
                raise DataError(
                    f"the question of {known[1]!r} and of {task.id!r} is the same, and the answers "
                    f"are {known[0]!r} and {task.answer!r}: {question[:120]!r}"
                )
            if question in seen:
                repeated += 1
                continue
            seen.add(question)
            home = homes.setdefault(task.id, split)
            if home != split:  # files number their rows alike
                task = replace(task, id=f"{split}/{task.id}")
            if task.id in used:
                raise DataError(f"the id {task.id!r} of split {split!r} stands for two questions")
            used.add(task.id)
            kept.append(task)
        out[split] = kept
    if repeated:
        warnings.warn(f"{repeated} rows repeat a question and are left out", stacklevel=4)
    return {split: out[split] for split in SPLITS}
