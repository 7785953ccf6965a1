"""One process at a time at a run directory or a result file."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path

__all__ = ["RunLock", "RunLocked", "lock_holder"]

_held: set[Path] = set()


class RunLocked(RuntimeError):
    """Another process (or this one, twice) works there."""


class RunLock:
    """Exclusive use of a folder or file, through a lock file.

    The lock is a POSIX record lock: the kernel drops it when its process dies, however it dies, so
    a stale lock cannot exist and a recycled process id cannot be taken for a living run. Forked
    workers do not inherit it, so orphans of a killed run do not keep it either. The file's content
    only tells who holds it.

    Args:
        path: The lock file; made, and removed on release.
        what: What it guards, for messages; by default the folder that it lies in.
        instead: What else the user can do than wait, for messages.

    Attributes:
        taken_over: Process id of a holder that died without releasing, or None.

    Raises:
        RunLocked: Somebody holds it; the message names the process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        what: str | None = None,
        instead: str = "use another folder",
    ) -> None:
        self.path = Path(path).resolve()
        what = what or str(self.path.parent)
        self.taken_over: int | None = None
        if self.path in _held:
            raise RunLocked(f"{what} is already in use by this process ({os.getpid()})")
        while True:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            if not _lock(handle):
                holder = _read(handle)
                os.close(handle)
                raise RunLocked(
                    f"{what} is in use by process {holder.get('pid', '?')} on "
                    f"{holder.get('host', 'this machine')}; wait for it to end, or {instead}"
                )
            # Between opening and locking, the former holder may have removed the file.
            if _is_current(handle, self.path):
                break
            os.close(handle)
        self._handle = handle
        pid = _read(handle).get("pid")
        self.taken_over = pid if isinstance(pid, int) else None
        os.ftruncate(handle, 0)
        os.pwrite(
            handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0
        )
        _held.add(self.path)
        self._owner = os.getpid()

    def release(self) -> None:
        """Give the folder back. Releasing twice, or in a forked child, does nothing."""
        if self._handle < 0 or os.getpid() != self._owner:
            return
        self.path.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = -1
        _held.discard(self.path)


def lock_holder(path: str | os.PathLike[str]) -> int | None:
    """Process id of the living holder of a lock file, or None if nobody holds it."""
    target = Path(path).resolve()
    if target in _held:  # opening and closing it here would drop this process's own lock
        return os.getpid()
    try:
        handle = os.open(target, os.O_RDWR)
    except OSError:
        return None
    try:
        if _try_lock(handle):
            return None
        pid = _read(handle).get("pid")
        return pid if isinstance(pid, int) else -1
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    """Try a few times: `lock_holder` in another process has the lock for an instant."""
    for _ in range(3):
        if _try_lock(handle):
            return True
        time.sleep(0.02)
    return False


def _try_lock(handle: int) -> bool:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def _is_current(handle: int, path: Path) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _read(handle: int) -> dict[str, object]:
    try:
        content = json.loads(os.pread(handle, 4096, 0) or b"{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
