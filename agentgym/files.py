"""Files that are either whole or not there: a killed process never leaves half of one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ["sync_folder", "write_atomically"]


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write a file in one step: readers see the old content or the new, nothing between.

    The content goes to a temporary file in the same folder, which is forced to disk and then
    renamed. Missing parent folders are made. Text is written as UTF-8; lone surrogates, which
    UTF-8 cannot hold, become ``?``.

    Args:
        path: File to write or replace.
        content: Text or bytes.

    Returns:
        The path.
    """
    target = Path(path)
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)
    return target


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Force a folder's entries (new names, renames) to disk, where the platform can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # folders cannot be opened everywhere
        return
    try:
        os.fsync(handle)
    except OSError:  # some file systems refuse; the rename itself stands
        return
    finally:
        os.close(handle)
