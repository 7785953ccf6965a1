"""JSON-lines files that survive a kill: appended row by row, repaired and rewound when reopened."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentgym.recording import spelled

__all__ = ["JsonRows", "RowsError", "read_rows"]


class RowsError(RuntimeError):
    """A rows file holds something that no interrupted write can explain."""


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the rows of a file, also while another process appends to it.

    A torn last line is ignored. A missing file has no rows.

    Raises:
        RowsError: A line before the last is not a JSON object; the message names file and line.
    """
    try:
        with open(path, "rb") as file:
            return [row for _, row in _scan(Path(path), file.read())]
    except FileNotFoundError:
        return []


class JsonRows:
    """A JSON-lines file whose rows carry a ``step`` that never decreases.

    Opening repairs a last line torn by a kill: a complete object gets its newline, anything else
    is cut off.

    Args:
        path: File to append to; made if it is missing.
        strict: Each step may have one row only.

    Raises:
        RowsError: A line before the last is not a JSON object with a ``step``, or steps decrease.
    """

    def __init__(self, path: str | os.PathLike[str], *, strict: bool) -> None:
        self.path = Path(path)
        self.strict = strict
        self.last_step: int | None = None
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            self._repair()
        except BaseException:
            os.close(self._handle)
            raise

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row with a single system call.

        Strict JSON knows no NaN and no infinity: directly under a key they are written as the
        texts ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` (which `float` reads back), deeper down
        they are refused.

        Raises:
            ValueError: The row has no integer ``step``, its step is too small, or a value is not
                JSON.
        """
        step = row.get("step")
        if not isinstance(step, int) or isinstance(step, bool):
            raise ValueError(f"a row needs an integer step, got {step!r}")
        if self.last_step is not None and step < self.last_step + self.strict:
            least = self.last_step + self.strict
            raise ValueError(f"{self.path.name}: step must be >= {least} here, got {step}")
        plain = {
            key: spelled(value) if isinstance(value, float) else value for key, value in row.items()
        }
        line = json.dumps(plain, allow_nan=False, separators=(",", ":")) + "\n"
        before, self.last_step = self.last_step, step
        try:
            self._write(line.encode("ascii"))
        except BaseException:
            self.last_step = before
            raise

    def rewind(self, step: int) -> int:
        """Cut off every row after ``step``; returns how many there were."""
        data = self.path.read_bytes()
        keep, rows, last = len(data), 0, None
        for start, row in _scan(self.path, data):
            if row["step"] > step:
                keep = min(keep, start)
                rows += 1
            else:
                last = row["step"]
        if rows:
            os.ftruncate(self._handle, keep)
            self.sync()
        self.last_step = last
        return rows

    def sync(self) -> None:
        """Force what was written to disk."""
        os.fsync(self._handle)

    def close(self) -> None:
        """Close the file; nothing can be appended afterwards. Closing twice does nothing."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _write(self, data: bytes) -> None:
        size = os.fstat(self._handle).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(self._handle, data[written:])
        except BaseException:
            os.ftruncate(self._handle, size)  # a full disk must not leave half a row
            raise

    def _repair(self) -> None:
        data = self.path.read_bytes()
        end = 0
        for start, row in _scan(self.path, data):
            step = row.get("step")
            number = data.count(b"\n", 0, start) + 1
            if not isinstance(step, int):
                raise RowsError(f"{self.path}, line {number}: a row needs a step, got {step!r}")
            if self.last_step is not None and step < self.last_step + self.strict:
                raise RowsError(
                    f"{self.path}, line {number}: step {step} after step {self.last_step}"
                )
            self.last_step = step
            newline = data.find(b"\n", start)
            end = len(data) if newline < 0 else newline + 1
        if end < len(data):
            os.ftruncate(self._handle, end)
        elif data and not data.endswith(b"\n"):
            self._write(b"\n")


def _scan(path: Path, data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (byte offset, row); the last line may be torn, with or without its newline."""
    start, number = 0, 0
    while start < len(data):
        number += 1
        newline = data.find(b"\n", start)
        end = len(data) if newline < 0 else newline
        is_last = end + 1 >= len(data)
        try:
            row = json.loads(data[start:end])
        except ValueError as error:  # also undecodable bytes
            if is_last:
                return
            raise RowsError(f"{path}, line {number}: not JSON ({error})") from None
        if not isinstance(row, dict):
            if is_last:
                return
            raise RowsError(f"{path}, line {number}: expected a JSON object, got {row!r:.80}")
        yield start, row
        start = end + 1
