"""How much room the files of a sandbox take, and whether that is more than they may."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from typing import Any

from agentgym.sandbox.inside import processes, tree

__all__ = ["Room"]

_INTERVAL = 0.2
#: Files beyond the limit that are counted, and seconds to clean up where there are more than that.
_OVERSHOOT, _CLEANING = 2000, 0.5
#: Files in one of the file systems in memory, where a file without content takes memory too.
_MOST_INODES = 100_000
_IN_MEMORY = ("/box", "/tmp", "/dev/shm")


class Room:
    """The workspace and the file systems in memory, looked at now and then.

    A workspace that is too full already may be cleaned up: it counts as overfull only where there
    is more than there was.

    Args:
        workspace: The current folder is a workspace outside, which nothing else limits.
        alone: The file systems in memory are this sandbox's own.
    """

    def __init__(self, *, workspace: bool, alone: bool) -> None:
        self._root = os.open(".", tree.FOLDER) if workspace else None
        self._device = os.fstat(self._root).st_dev if self._root is not None else -1
        self._folders = _IN_MEMORY[1 if workspace else 0 :] if alone else ()
        self._allowed: tuple[int, ...] = (0, 0, 0)
        self._most = 0
        self._began, self._after = 0.0, float("inf")

    def begin(self, limits: dict[str, Any], everyone: Collection[processes.Process]) -> None:
        """Take the limits of a command that begins.

        Args:
            limits: ``disk`` (bytes) and ``files`` (number).
            everyone: All processes of the sandbox.
        """
        allowed = (limits["disk"], limits["files"], _MOST_INODES)
        self._most = limits["files"] + _OVERSHOOT
        used = self._used(everyone)
        self._allowed = tuple(map(max, allowed, used))
        self._began, self._after = time.monotonic(), 0.0

    def overfull(self, everyone: Collection[processes.Process]) -> bool | None:
        """Whether there is more than there may be; the next time, only if it is more still.

        None if it was not looked at, because it was a moment ago.
        """
        began = time.monotonic()
        if began < self._after:
            return None
        used = self._used(everyone)
        now = time.monotonic()
        # Looking costs time with many files: at most a tenth of it goes there.
        self._after = now + max(_INTERVAL, 9 * (now - began))
        if used[1] >= tree.ENDLESS and now - self._began > _CLEANING:
            return True  # whether there are more still cannot be told
        if all(one <= other for one, other in zip(used, self._allowed, strict=True)):
            return False
        self._allowed = tuple(map(max, used, self._allowed))
        return True

    def _used(self, everyone: Collection[processes.Process]) -> tuple[int, int, int]:
        size = files = inodes = 0
        if self._root is not None:
            size, files = tree.usage(self._root, self._most)
            size += processes.unlinked(everyone, self._device)
        for folder in self._folders:
            with contextlib.suppress(OSError):
                state = os.statvfs(folder)
                inodes += state.f_files - state.f_ffree
        return size, files, inodes
