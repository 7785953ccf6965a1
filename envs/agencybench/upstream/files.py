"""Reading a clone: plain files alone, within bounds, and never those that hold secrets."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from envs.agencybench.upstream.policies import Seed

__all__ = ["CloneError", "read_observations", "read_plain", "read_references", "read_seed"]

MOST_BYTES = 64 << 20
_NEVER = (".DS_Store", "__pycache__", "claude", "eval_task.py", "evaluator.j2", ".git")


class CloneError(ValueError):
    """The clone lacks something, or holds what it should not."""


def _skipped(name: str) -> bool:
    """Secrets (``.env`` and its like), other runs' results, and answers are never opened."""
    low = name.casefold()
    return (
        low.startswith(".env")
        or low.endswith((".env", ".pyc"))
        or name in _NEVER
        or (low.startswith("query_") and low.endswith(".json"))
    )


def read_plain(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a plain file; links, pipes and devices are refused.

    Raises:
        CloneError: If it cannot be read.
    """
    if _skipped(path.name):
        raise CloneError(f"{path.name} is never read")
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CloneError(f"{path} cannot be read: {error.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise CloneError(f"{path} is no plain file")
        content = file.read(most + 1)
    if len(content) > most:
        raise CloneError(f"{path} is larger than {most} bytes")
    return content


def _walk(folder: Path, leave_out: frozenset[str]) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise CloneError(f"{folder} cannot be read: {error.strerror}") from None
    for entry in found:
        if _skipped(entry.name) or entry.name in leave_out:
            continue
        if not entry.name.isprintable():
            raise CloneError(f"{entry.path!r} has a name that is no text")
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), leave_out)
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def read_seed(scenario: Path, seed: Seed) -> dict[str, bytes]:
    """The files that the agent starts with, without what would tell it the answers.

    Raises:
        CloneError: If they are not there, or a table cannot be rid of its answers.
    """
    root = scenario / seed.source
    if not root.is_dir() or root.is_symlink():
        raise CloneError(f"the clone has no folder {scenario.name}/{seed.source}")
    files: dict[str, bytes] = {}
    left = MOST_BYTES
    for path in _walk(root, seed.leave_out):
        content = read_plain(path, left)
        left -= len(content)
        if seed.drop_columns and path.suffix == ".parquet":
            content = _without(content, seed.drop_columns, path.name)
        name = path.relative_to(root).as_posix()
        files[f"{seed.target}/{name}" if seed.target else name] = content
    if not files:
        raise CloneError(f"the clone's folder {scenario.name}/{seed.source} is empty")
    return files


def _table(content: bytes, name: str) -> tuple[Any, Any]:
    """The module for parquet files, and the table that one holds."""
    import io

    try:
        from pyarrow import parquet
    except ImportError:
        raise CloneError(
            f"{name} holds the answers in columns that must be dropped; that needs pyarrow: "
            "pip install 'agentgym-suite[math]'"
        ) from None
    try:
        return parquet, parquet.read_table(io.BytesIO(content))
    except Exception as error:
        raise CloneError(f"{name} is no parquet file: {type(error).__name__}") from None


def _without(content: bytes, columns: frozenset[str], name: str) -> bytes:
    """A parquet file without the columns that hold answers."""
    import io

    parquet, table = _table(content, name)
    kept = [column for column in table.column_names if column not in columns]
    out = io.BytesIO()
    # The pandas part of the metadata repeats the dropped columns' names.
    parquet.write_table(table.select(kept).replace_schema_metadata(None), out)
    return out.getvalue()


@lru_cache(maxsize=8)
def read_observations(path: Path) -> dict[str, Any]:
    """The observations of an equation: ``names`` of its inputs, and rows of output and inputs.

    Returns:
        ``train``, ``test`` and ``ood`` (elsewhere) beside ``names``.

    Raises:
        CloneError: If they are not there.
    """
    _, table = _table(read_plain(path), path.name)
    try:
        row = table.slice(0, 1).to_pylist()[0]
        samples = row["samples"]
        found = {
            "train": row["training_set"], "test": samples["test"], "ood": samples["ood_test"],
        }  # fmt: skip
        names = [str(name) for name in row["symbols"][1:]]
        made = {name: [[float(v) for v in line] for line in rows] for name, rows in found.items()}
    except (IndexError, KeyError, TypeError, ValueError):
        raise CloneError(f"{path.name} holds no observations in the known form") from None
    if not made["train"] or any(len(r) != 1 + len(names) for rows in made.values() for r in rows):
        raise CloneError(f"{path.name} holds rows that are no observations of {names}")
    return {"names": names, **made}


@lru_cache(maxsize=2)
def read_references(root: Path) -> dict[str, dict[str, Any]]:
    """The problems of a folder of references, with their answers: family to number to problem.

    Raises:
        CloneError: If there is none.
    """
    import json

    made: dict[str, dict[str, Any]] = {}
    for path in _walk(root, frozenset()) if root.is_dir() else ():
        parts = path.relative_to(root).parts
        if len(parts) != 3 or path.suffix != ".json":
            continue
        content = read_plain(path)
        try:
            problem = json.loads(content)
        except (ValueError, RecursionError):
            raise CloneError(f"{path} is not valid JSON") from None
        if not isinstance(problem, dict):
            raise CloneError(f"{path} must hold an object, got {type(problem).__name__}")
        made.setdefault(parts[0], {})[parts[1]] = problem
    if not made:
        raise CloneError(f"the clone has no folder {root.name} with references")
    return made
