"""Temporary folders that go when their process has gone, however it went."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from pathlib import Path

from agentgym.run_lock import RunLock, lock_holder

__all__ = ["OwnedFolder"]

# The lock of a folder that is just being made is not there yet.
_YOUNG_S = 60.0


class OwnedFolder:
    """A temporary folder, removed by :meth:`remove`, with the process, or by the next one made.

    A process that is killed cannot clean up, and weights in shared memory are memory. Each folder
    has a lock beside it that its process holds; whoever makes a folder of the same kind removes
    those whose owner is gone.

    Args:
        kind: Begins its name; letters and hyphens.
        base: Where it lies; None takes the system's temporary folder.

    Attributes:
        path: The folder.
    """

    def __init__(self, kind: str, base: Path | None = None) -> None:
        base = Path(tempfile.gettempdir()) if base is None else base
        _sweep(kind, base)
        self.path = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=base))
        lock = RunLock(_lock_of(self.path))
        self._finalizer = weakref.finalize(self, _remove, self.path, lock)

    def remove(self) -> None:
        """Remove it with all that is in it; again does nothing."""
        self._finalizer()


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _remove(folder: Path, lock: RunLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()


def _sweep(kind: str, base: Path) -> None:
    """Remove folders whose owners died; those without a lock are not known to be anybody's."""
    for lock in base.glob(f"{kind}-*.lock"):
        folder = lock.with_name(lock.name.removesuffix(".lock"))
        try:
            facts = lock.stat()
        except OSError:
            continue  # somebody else was faster
        young = time.time() - facts.st_mtime < _YOUNG_S
        # Another user's lock cannot be asked.
        if young or facts.st_uid != os.geteuid() or lock_holder(lock) is not None:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            lock.unlink(missing_ok=True)
