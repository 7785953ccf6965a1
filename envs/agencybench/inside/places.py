"""Runs inside the sandbox: writing and reading where the agent may have put anything.

What stands in the way is removed, and what cannot be read is not there; neither ends the program.
"""

from __future__ import annotations

import contextlib
import os
import shutil


def clear(path: str) -> None:
    """Make room for a file: its folders are folders, and nothing else is in its place."""
    parts = os.path.normpath(path).split(os.sep)
    for count in range(1, len(parts)):
        folder = os.sep.join(parts[:count])
        if folder and (os.path.islink(folder) or not os.path.isdir(folder)):
            with contextlib.suppress(OSError):
                os.remove(folder)
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        with contextlib.suppress(OSError):
            os.remove(path)


def put(path: str, text: str, mode: int = 0o644) -> bool:
    """Write a file; whether that could be done."""
    clear(path)
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(path, mode)
    except OSError:
        return False
    return True


def read(path: str, most: int) -> str | None:
    """The text of a plain file, or None."""
    if not os.path.isfile(path) or os.path.islink(path):
        return None
    try:
        with open(path, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return None
