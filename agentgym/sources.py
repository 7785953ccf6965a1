"""Rows of tasks from files, folders, iterables and the hub, by split.

What a row means is the environment's business; here it is a mapping of columns with a place that an
error can name.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from agentgym.registry import missing_extra
from agentgym.tasks import TaskSet

__all__ = ["SPLITS", "DataError", "LoadedTasks", "Row", "Source", "open_once", "rows_by_split"]

SPLITS = ("train", "validation", "test")
_NAMES = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation",
    "val": "validation", "dev": "validation", "test": "test", "eval": "test",
}  # fmt: skip
_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson", ".json", ".json.gz", ".parquet")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(?::[\w.-]+)?")

Rows = Iterable[Mapping[str, Any]]
Source = str | os.PathLike[str] | Rows
#: Where a row stands, for error messages, and what it holds.
Row = tuple[str, Mapping[str, Any]]


class DataError(ValueError):
    """Data that cannot be used; the message names place and remedy."""


def rows_by_split(data: Source | Mapping[str, Source], extra: str) -> dict[str, list[Row]]:
    """The rows of each split.

    Args:
        data: A path (JSON lines, JSON, either one gzipped, or parquet), a folder with a file for
            each split, an iterable of rows, a dataset id of the hub such as
            ``openai/gsm8k:main``, or a mapping of split names to any of these. A single file whose
            name does not begin with a split's is the training split. A row's own column ``split``
            outranks all of these.
        extra: Extra of this suite that brings ``pyarrow``, named where it is missing.

    Returns:
        ``train``, ``validation`` and ``test``, each in the order of its rows.

    Raises:
        DataError: If something cannot be read; the message names the place.
        ImportError: If parquet or the hub is asked for and its extra is not installed.
    """
    parts: dict[str, list[Row]] = {name: [] for name in SPLITS}
    for split, source in _sources(data):
        for place, row in _rows(source, extra):
            named = row.get("split") if isinstance(row, Mapping) else None
            own = _NAMES.get(named.lower()) if isinstance(named, str) else None
            parts[own or split].append((place, row))
    return parts


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
    if not os.fspath(data):
        raise DataError("data is empty; it must be a path, an id of the hub or rows")
    path = Path(data).expanduser()
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


def _rows(source: Source, extra: str) -> Iterator[Row]:
    """Rows with their places."""
    if isinstance(source, str | os.PathLike):
        yield from _file_rows(Path(source).expanduser(), extra)
        return
    try:
        iterator = iter(source)
    except TypeError:
        raise DataError(
            f"data must be a path, a dataset id, a mapping or an iterable, got {source!r:.80}"
        ) from None
    for number, row in enumerate(iterator, 1):
        yield f"row {number}", row


def _file_rows(path: Path, extra: str) -> Iterator[Row]:
    try:
        if path.name.endswith(".parquet"):
            for number, row in enumerate(_parquet(path, extra), 1):
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


def _parquet(path: Path, extra: str) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise missing_extra("pyarrow", extra) from error
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            yield from batch.to_pylist()


# Loaded tasks ----------------------------------------------------------------------------------


class _Named(Protocol):
    @property
    def id(self) -> str:
        """Stable id."""
        ...


T = TypeVar("T", bound=_Named)


class LoadedTasks(Generic[T]):
    """Tasks from data, by id.

    Args:
        tasks: Those of each split.

    Raises:
        DataError: If there are none at all.
    """

    def __init__(self, tasks: Mapping[str, Sequence[T]]) -> None:
        held = [split for split in SPLITS if tasks[split]]
        if not held:
            raise DataError("the data hold no rows")
        self._tasks = {task.id: task for split in SPLITS for task in tasks[split]}
        # Data for evaluation alone are played as they are.
        train = "train" if "train" in held else held[0]
        self.tasks = TaskSet(
            {split: [task.id for task in tasks[split]] for split in SPLITS},
            train_split=train,
            eval_splits=[split for split in ("validation", "test") if split in held] or [train],
        )

    def task(self, task_id: str) -> T:
        """The task of an id."""
        return self._tasks[task_id]


_open: WeakValueDictionary[Any, Any] = WeakValueDictionary()
_lock = threading.Lock()


def open_once(data: Any, kind: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """What ``make`` makes of data; of files once for all environments, until the files change.

    Args:
        data: As for :func:`rows_by_split`.
        kind: What else decides the result; hashable.
        make: Reads the data.
    """
    if not isinstance(data, str | os.PathLike):
        return make()
    key = (_state(Path(data).expanduser()), kind)
    with _lock:
        made = _open.get(key)
        if made is None:
            made = _open[key] = make()
    return made


def _state(path: Path) -> tuple[Any, ...]:
    """What tells whether files have changed since they were read."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    facts = []
    for file in files:
        if file.exists():
            stat = file.stat()
            facts.append((str(file.resolve()), stat.st_mtime_ns, stat.st_size))
    return (str(path), *facts)
