"""A folder that somebody hostile writes to meanwhile, looked through without following a link."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

__all__ = ["DEEPEST", "ENDLESS", "FOLDER", "make_readable", "too_deep", "usage", "walk"]

#: How folders are opened.
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
#: Levels of folders that are looked into.
DEEPEST = 100
#: Added to the number of files where they were not all counted.
ENDLESS = 1 << 50
_VERY_MANY = 1 << 40
_TRIES = 3


def walk(
    root: int, *, recursive: bool, open_up: bool = False
) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below a folder; deeper than a hundred folders it ends.

    Args:
        root: Descriptor of the folder.
        recursive: Go into folders.
        open_up: Make folders readable that are not.
    """
    stack: list[tuple[int, str, list[str]]] = []

    def enter(name: str, folder: int, prefix: str) -> None:
        if open_up:
            make_readable(name, folder)
        try:
            fd = os.open(name, FOLDER, dir_fd=folder)
        except OSError:
            return
        try:
            names = sorted(os.listdir(fd), reverse=True)
        except OSError:
            names = []
        stack.append((fd, prefix, names))

    try:
        if open_up:
            _open_up(root)
        enter(".", root, "")
        while stack:
            fd, prefix, names = stack[-1]
            if not names:
                os.close(stack.pop()[0])
                continue
            name = names.pop()
            try:
                info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            yield prefix + name, info
            if recursive and stat.S_ISDIR(info.st_mode) and len(stack) < DEEPEST:
                enter(name, fd, f"{prefix}{name}/")
    finally:
        for fd, _, _ in stack:
            os.close(fd)


def too_deep(name: str, info: os.stat_result) -> bool:
    """Whether the walk does not go into it."""
    return stat.S_ISDIR(info.st_mode) and name.count("/") + 1 >= DEEPEST


def make_readable(name: str, folder: int) -> None:
    """Let the owner look into a folder, however the one inside left it."""
    with contextlib.suppress(OSError):
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=folder)
        try:
            mode = os.fstat(fd).st_mode
            if mode & 0o700 != 0o700:
                os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode) | 0o700)
        finally:
            os.close(fd)


def usage(root: int, most: int) -> tuple[int, int]:
    """Bytes on disk, and number of files, folders and links.

    Folders nested deeper than others look into count as very many files; what is below them is
    counted besides.

    Args:
        root: Descriptor of the folder.
        most: Look at no more than so many, and add :data:`ENDLESS` if there are more: somebody may
            make them faster than they can be counted.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(_Moved):
            return _count(root, most)
    return 0, _VERY_MANY  # it is never as it was a moment ago


class _Moved(Exception):
    """A folder was moved while it was looked into."""


def _count(root: int, most: int) -> tuple[int, int]:
    """Goes down by name and up by ``..``, so that depth costs no descriptors.

    Raises:
        _Moved: If the way up is not the way down.
    """
    size = count = seen = 0
    above: list[tuple[tuple[int, int], list[str]]] = []
    _open_up(root)
    fd = os.dup(root)
    try:
        fd = _replaced(fd, os.open(".", FOLDER, dir_fd=root))
        names = _names(fd)
        while names or above:
            if not names:
                place, names = above.pop()
                fd = _replaced(fd, os.open("..", FOLDER, dir_fd=fd))
                if _place(fd) != place:
                    raise _Moved
                continue
            name = names.pop()
            try:
                info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            size += info.st_blocks * 512
            count += 1
            seen += 1
            if seen > most:
                return size, count + ENDLESS
            if not stat.S_ISDIR(info.st_mode):
                continue
            if len(above) + 1 == DEEPEST:
                count += _VERY_MANY
            make_readable(name, fd)
            try:
                inner = os.open(name, FOLDER, dir_fd=fd)
            except OSError:
                continue
            above.append((_place(fd), names))
            fd = _replaced(fd, inner)
            names = _names(fd)
    except OSError:
        raise _Moved from None
    finally:
        os.close(fd)
    return size, count


def _open_up(fd: int) -> None:
    """The same for a folder that is open already."""
    with contextlib.suppress(OSError):
        mode = os.fstat(fd).st_mode
        if mode & 0o700 != 0o700:
            os.fchmod(fd, stat.S_IMODE(mode) | 0o700)


def _replaced(old: int, new: int) -> int:
    os.close(old)
    return new


def _place(fd: int) -> tuple[int, int]:
    info = os.fstat(fd)
    return info.st_dev, info.st_ino


def _names(fd: int) -> list[str]:
    try:
        return os.listdir(fd)
    except OSError:
        return []
