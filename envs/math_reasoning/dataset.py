"""Tasks from files, iterables and the hub, checked when they are loaded."""

from __future__ import annotations

import gzip
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym.registry import missing_extra
from envs.math_reasoning.columns import ROLES, ColumnError, MathTask, task_from
from envs.math_reasoning.grading.grader import check_gold

__all__ = ["SPLITS", "DataError", "Source", "load"]

SPLITS = ("train", "validation", "test")
_NAMES = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation",
    "val": "validation", "dev": "validation", "test": "test", "eval": "test",
}  # fmt: skip
_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson", ".json", ".json.gz", ".parquet")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(?::[\w.-]+)?")
_PLAIN_NUMBER = re.compile(r"-?\d{1,15}")

Rows = Iterable[Mapping[str, Any]]
Source = str | os.PathLike[str] | Rows


class DataError(ValueError):
    """Data that cannot be used; the message names place and remedy."""


def load(
    data: Source | Mapping[str, Source], *, columns: Mapping[str, str] | None = None
) -> dict[str, list[MathTask]]:
    """The tasks of each split.

    Args:
        data: A path (JSON lines, JSON, either one gzipped, or parquet), a folder with a file for
            each split, an iterable of rows, a dataset id of the hub such as
            ``openai/gsm8k:main``, or a mapping of split names to any of these. A single file whose
            name does not begin with a split's is the training split.
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
    parts: dict[str, list[tuple[str, Mapping[str, Any]]]] = {name: [] for name in SPLITS}
    for split, source in _sources(data):
        for place, row in _rows(source):
            named = row.get("split") if isinstance(row, Mapping) else None
            own = _NAMES.get(named.lower()) if isinstance(named, str) else None
            parts[own or split].append((place, row))
    tasks = {split: _checked(split, rows, columns) for split, rows in parts.items()}
    if not any(tasks.values()):
        raise DataError("the data hold no rows")
    return _without_repeats(tasks)


# Sources ---------------------------------------------------------------------------------------


def _sources(data: Source | Mapping[str, Source]) -> Iterator[tuple[str, Source]]:
    """Pairs of a split and what holds its rows."""
    if isinstance(data, Mapping):
        for name, source in data.items():
            split = _NAMES.get(str(name).lower())
            if split is None:
                raise DataError(f"unknown split {name!r}; known: {', '.join(SPLITS)}")
            yield split, source
        return
    if not isinstance(data, str | os.PathLike):
        yield "train", data
        return
    path = Path(data)
    if path.is_dir():
        found = [
            (split, file)
            for file in sorted(path.iterdir())
            if file.name.endswith(_SUFFIXES) and (split := _split_of(file))
        ]
        if not found:
            raise DataError(f"{path} holds no file named after a split, such as train.jsonl")
        yield from found
    elif path.exists() or path.name.endswith(_SUFFIXES):
        yield _split_of(path) or "train", path
    elif isinstance(data, str) and _HUB.fullmatch(data):
        yield from _hub(data)
    else:
        raise DataError(f"{data!r} is neither a file, nor a folder, nor the id of a dataset")


def _split_of(path: Path) -> str | None:
    """The split that a file's name begins with, as in ``train-00000-of-00001.parquet``."""
    return _NAMES.get(re.split(r"[^a-z]", path.name.lower(), maxsplit=1)[0])


def _hub(name: str) -> Iterator[tuple[str, Source]]:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise missing_extra("datasets", "datasets") from error
    path, _, config = name.partition(":")
    loaded = datasets.load_dataset(path, config or None)
    for split, rows in loaded.items():
        home = _NAMES.get(split.lower())
        if home is None:
            warnings.warn(f"{name}: the split {split!r} is left out", stacklevel=4)
        else:
            yield home, rows


def _rows(source: Source) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows with their places."""
    if isinstance(source, str | os.PathLike):
        yield from _file_rows(Path(source))
        return
    try:
        iterator = iter(source)
    except TypeError:
        raise DataError(
            f"data must be a path, a dataset id, a mapping or an iterable, got {source!r:.80}"
        ) from None
    for number, row in enumerate(iterator, 1):
        yield f"row {number}", row


def _file_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        if path.name.endswith(".parquet"):
            for number, row in enumerate(_parquet(path), 1):
                yield f"{path.name}, row {number}", row
            return
        opened = gzip.open if path.name.endswith(".gz") else open
        with opened(path, "rt", encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise DataError(f"{path}: {error}") from None
    if path.name.removesuffix(".gz").endswith(".json"):
        try:
            content = json.loads(text)
        except ValueError as error:
            raise DataError(f"{path}: {error}") from None
        if isinstance(content, Mapping):
            lists = [value for value in content.values() if isinstance(value, list)]
            if len(lists) != 1:
                raise DataError(f"{path}: expected a list of rows, or an object that holds one")
            content = lists[0]
        for number, row in enumerate(content, 1):
            yield f"{path.name}, row {number}", row
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{path.name}, line {number}", json.loads(line)
            except ValueError as error:
                raise DataError(f"{path.name}, line {number}: {error}") from None


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise missing_extra("pyarrow", "math") from error
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            yield from batch.to_pylist()


# Checks ----------------------------------------------------------------------------------------


def _checked(
    split: str, rows: list[tuple[str, Mapping[str, Any]]], columns: Mapping[str, str]
) -> list[MathTask]:
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
