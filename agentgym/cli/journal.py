"""Episodes written one by one, so that an evaluation that is stopped goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym.files import write_atomically

__all__ = ["Journal", "JournalError"]

Key = tuple[str, int]


class JournalError(ValueError):
    """The file belongs to something else."""


class Journal:
    """A JSONL file: what is evaluated, then one episode a line, each forced to disk.

    A last line that a kill cut off is dropped when the file is opened again.

    Args:
        path: The file; made if it is not there.
        about: What is evaluated. A file of something else is refused.
        restart: Start over where there is a file.

    Attributes:
        rows: The latest row of every episode that was played, by group and member.

    Raises:
        JournalError: If the file is of another evaluation; the message says where they differ.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = path
        self.rows: dict[Key, dict[str, Any]] = {}
        header = json.dumps({"evaluation": about}, ensure_ascii=False)
        if path.exists() and not restart:
            self._read(json.loads(header)["evaluation"])
            return
        write_atomically(path, header + "\n")

    def add(self, row: dict[str, Any]) -> None:
        """Append an episode."""
        line = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
        with open(self.path, "ab") as file:
            file.write(line.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        self.rows[_key(row)] = row

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
        if torn:
            write_atomically(self.path, whole + b"\n")


def _key(row: Mapping[str, Any]) -> Key:
    return str(row["group_id"]), int(row["member"])


def _flat(about: Mapping[str, Any]) -> dict[str, Any]:
    """Settings one by one, to say which of them differ."""
    out: dict[str, Any] = {}
    for name, value in about.items():
        out |= value if isinstance(value, dict) else {name: value}
    return out
