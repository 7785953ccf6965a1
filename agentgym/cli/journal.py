"""Episodes written one by one, so that an evaluation that is stopped goes on where it was."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentgym.files import write_atomically
from agentgym.run_lock import RunLock

__all__ = ["Journal", "JournalError"]

Key = tuple[str, int]


class JournalError(ValueError):
    """The file belongs to something else."""


class Journal:
    """A JSONL file: what is evaluated, then one episode a line, each forced to disk.

    From here to :meth:`close` the file is this process's alone. Nothing is written before
    :meth:`begin`. A last line that a kill cut off counts for nothing, and is dropped then.

    Args:
        path: The file; its folder is made.
        about: What is evaluated. A file of something else is refused.
        restart: Start over where there is a file.

    Attributes:
        rows: The latest row of every episode that was played, by group and member.

    Raises:
        JournalError: If the file is of another evaluation; the message says where they differ.
        RunLocked: If another evaluation writes it.
        OSError: If it cannot be read, or its folder not be written to.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = path
        self.rows: dict[Key, dict[str, Any]] = {}
        self._header = json.dumps({"evaluation": about}, ensure_ascii=False)
        # What is to be written at the beginning; None leaves the file as it is.
        self._content: bytes | None = self._header.encode("utf-8", "replace") + b"\n"
        self._made = _make_folders(path.parent)
        self._lock: RunLock | None = None
        try:
            self._lock = RunLock(
                path.with_name(f".{path.name}.lock"), str(path), "choose another --out"
            )
            if path.exists() and not restart:
                self._read(json.loads(self._header)["evaluation"])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def begin(self) -> None:
        """Make the file, or mend it."""
        self._made.clear()
        if self._content is not None:
            write_atomically(self.path, self._content)
            self._content = None

    def add(self, row: dict[str, Any]) -> None:
        """Append an episode.

        Raises:
            ValueError: If it is no strict JSON.
        """
        line = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
        with open(self.path, "ab") as file:
            file.write(line.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        self.rows[_key(row)] = row

    def close(self) -> None:
        """Let others write the file. If nothing was, no folder that was made for it stays."""
        if self._lock is not None:
            self._lock.release()
        for folder in self._made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        self._made.clear()

    def _read(self, about: Mapping[str, Any]) -> None:
        data = self.path.read_bytes()
        whole, _, torn = data.rpartition(b"\n")
        lines = whole.split(b"\n")
        try:
            found = json.loads(lines[0])["evaluation"]
            rows = [json.loads(line) for line in lines[1:]]
            self.rows = {_key(row): row for row in rows}
        except (ValueError, LookupError, TypeError) as error:
            raise JournalError(
                f"{self.path} is no list of episodes of an evaluation ({error}); choose another "
                "--out, or give --restart True to write over it"
            ) from error
        now, then = _flat(about), _flat(found)
        odd = sorted(name for name in {**now, **then} if now.get(name) != then.get(name))
        if odd:
            shown = "; ".join(f"{name}: {then.get(name)!r}, now {now.get(name)!r}" for name in odd)
            raise JournalError(
                f"{self.path} holds an evaluation with other settings ({shown}); choose another "
                "--out, or give --restart True to write over it"
            )
        self._content = whole + b"\n" if torn else None


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder; those that were not there, the innermost first."""
    missing = []
    for place in (folder, *folder.parents):
        if place.exists():
            break
        missing.append(place)
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _key(row: Mapping[str, Any]) -> Key:
    return str(row["group_id"]), int(row["member"])


def _flat(about: Mapping[str, Any]) -> dict[str, Any]:
    """Settings one by one, to say which of them differ."""
    out: dict[str, Any] = {}
    for name, value in about.items():
        out |= value if isinstance(value, dict) else {name: value}
    return out
