"""The folder of a sandbox, as the caller may safely touch it.

Code inside may change the folder at any moment, so nothing here trusts a path twice: every step
from folder to folder goes through an open descriptor and follows no link.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator

from agentgym.sandbox.inside import tree
from agentgym.sandbox.types import Entry, Snapshot, WorkspaceError

__all__ = ["Workspace", "sweep"]

_FOLDER = tree.FOLDER
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_BOX = "/box"
_PREFIX = "agentgym-box-"
_MOST_COUNTED = 1_000_000
# So long a folder may be there before its maker has locked it.
_YOUNG_SECONDS = 60.0


class Workspace:
    """A temporary folder outside that is ``/box`` inside.

    Args:
        owner: User and group that the code inside has outside, or None for the caller's.
    """

    def __init__(self, owner: int | None = None) -> None:
        self._outer = tempfile.mkdtemp(prefix=_PREFIX)
        # Held until the end of this process: tells others that the folder is in use.
        self._hold = os.open(self._outer, _FOLDER)
        with contextlib.suppress(OSError):
            fcntl.flock(self._hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.folder = os.path.join(self._outer, "box")
        self._owner = owner
        os.mkdir(self.folder, 0o700)
        self._root = os.open(self.folder, _FOLDER)
        if owner is not None:
            os.chown(self._root, owner, owner)
        self._closed = False

    # Paths --------------------------------------------------------------------------------------

    @staticmethod
    def parts(path: str) -> list[str]:
        """The names on the way to a path.

        Raises:
            WorkspaceError: If the path leads out, or cannot be one.
        """
        if not isinstance(path, str) or "\0" in path:
            raise WorkspaceError(f"not a path: {path!r:.100}")
        inner = path
        if path == _BOX or path.startswith(_BOX + "/"):
            inner = path[len(_BOX) + 1 :]
        elif path.startswith("/"):
            raise WorkspaceError(f"{path!r:.200} is outside the workspace {_BOX}")
        names: list[str] = []
        for name in inner.split("/"):
            if name == "..":
                if not names:
                    raise WorkspaceError(f"{path!r:.200} is outside the workspace {_BOX}")
                names.pop()
            elif name not in ("", "."):
                if len(os.fsencode(name)) > 255:
                    raise WorkspaceError(f"a name in {path!r:.100} is too long")
                names.append(name)
        return names

    @contextlib.contextmanager
    def _walk(self, names: list[str], path: str, *, create: bool = False) -> Iterator[int]:
        """A descriptor of the folder that the names lead to."""
        fd = os.dup(self._root)
        try:
            for name in names:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o755, dir_fd=fd)
                        self._give(name, fd)
                inner = os.open(name, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
        except OSError as error:
            raise WorkspaceError(_sentence(path, error)) from None
        finally:
            os.close(fd)

    def _give(self, name: str, folder: int) -> None:
        if self._owner is not None:
            os.chown(name, self._owner, self._owner, dir_fd=folder, follow_symlinks=False)

    # Files --------------------------------------------------------------------------------------

    def read(self, path: str, limit: int | None = None) -> bytes:
        """The content of a file, or its first ``limit`` bytes.

        Raises:
            WorkspaceError: If it is no regular file of the workspace.
        """
        names = self.parts(path)
        if not names:
            raise WorkspaceError(f"{path!r} is a folder")
        with self._walk(names[:-1], path) as folder:
            fd = os.open(names[-1], _FILE, dir_fd=folder)
            kind = os.fstat(fd).st_mode
            if not stat.S_ISREG(kind):
                os.close(fd)
                raise WorkspaceError(f"{path!r:.200} is {_kind_in_words(kind)}")
            with open(fd, "rb", buffering=0) as file:
                parts, left = [], limit
                while left is None or left > 0:
                    part = file.read(1 << 20 if left is None else min(left, 1 << 20))
                    if not part:
                        break
                    parts.append(part)
                    if left is not None:
                        left -= len(part)
                return b"".join(parts)

    def write(self, path: str, content: bytes, *, executable: bool | None = None) -> None:
        """Write a file in one step; folders on the way are made.

        A link of that name is replaced, not followed. Permissions of a file that is there stay,
        unless ``executable`` says otherwise.

        Raises:
            WorkspaceError: If there is a folder of that name, or the path is none.
        """
        names = self.parts(path)
        if not names:
            raise WorkspaceError(f"{path!r} is a folder")
        with self._walk(names[:-1], path, create=True) as folder:
            mode = 0o644
            with contextlib.suppress(FileNotFoundError):
                there = os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_mode
                if stat.S_ISDIR(there):
                    raise WorkspaceError(f"{path!r:.200} is a folder")
                if stat.S_ISREG(there):
                    mode = stat.S_IMODE(there) & 0o777
            if executable is not None:
                mode = mode | 0o111 if executable else mode & ~0o111
            temporary = f".{secrets.token_hex(8)}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o600, dir_fd=folder)
            try:
                with open(fd, "wb") as file:
                    file.write(content)
                    file.flush()
                    if self._owner is not None:
                        os.fchown(fd, self._owner, self._owner)
                    os.fchmod(fd, mode | 0o200)
                os.replace(temporary, names[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def remove(self, path: str) -> None:
        """Remove a file, a link, or a folder with all that is in it.

        Raises:
            WorkspaceError: If there is no such thing, or it is the workspace itself.
        """
        names = self.parts(path)
        if not names:
            raise WorkspaceError("the workspace itself cannot be removed")
        with self._walk(names[:-1], path) as folder:
            kind = os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(kind):
                os.unlink(names[-1], dir_fd=folder)
                return
            tree.make_readable(names[-1], folder)
            inner = os.open(names[-1], _FOLDER, dir_fd=folder)
            try:
                _empty(inner)
            finally:
                os.close(inner)
            os.rmdir(names[-1], dir_fd=folder)

    def list(self, path: str = ".", *, recursive: bool = False, most: int = 10_000) -> list[Entry]:
        """What is in a folder, by path; at most ``most`` entries.

        Raises:
            WorkspaceError: If it is no folder of the workspace.
        """
        names = self.parts(path)
        found: list[Entry] = []
        with self._walk(names, path) as folder:
            for name, info in tree.walk(folder, recursive=recursive):
                found.append(_entry("/".join([*names, name]), info))
                if len(found) >= most:
                    break
        return sorted(found, key=lambda entry: entry.path)

    def stat(self, path: str) -> Entry | None:
        """What is at a path, or None; a link is reported as such."""
        names = self.parts(path)
        if not names:
            return Entry(".", "folder", 0, 0o700)
        try:
            with self._walk(names[:-1], path) as folder:
                info = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
        except WorkspaceError:
            return None
        return _entry("/".join(names), info)

    # The whole ----------------------------------------------------------------------------------

    def usage(self) -> tuple[int, int]:
        """Bytes on disk, and number of files, folders and links; very many if nested too deep."""
        return tree.usage(self._root, _MOST_COUNTED)

    def snapshot(self, max_bytes: int, max_files: int) -> Snapshot:
        """The content, read file by file.

        Raises:
            WorkspaceError: If it is larger than allowed.
        """
        files: dict[str, bytes] = {}
        folders: list[str] = []
        executable: set[str] = set()
        skipped: dict[str, str] = {}
        left, room = max_bytes, max_files
        for name, info in tree.walk(self._root, recursive=True, open_up=True):
            room -= 1
            if room < 0:
                raise WorkspaceError(f"the workspace holds more than {max_files} files")
            if stat.S_ISDIR(info.st_mode):
                folders.append(name)
                if tree.too_deep(name, info):
                    skipped[name] = f"what is below it is nested deeper than {tree.DEEPEST} folders"
            elif not stat.S_ISREG(info.st_mode):
                skipped[name] = _kind_in_words(info.st_mode)
            else:
                try:
                    content = self.read(name, left + 1)
                except WorkspaceError as error:
                    skipped[name] = str(error)
                    continue
                left -= len(content)
                if left < 0:
                    raise WorkspaceError(f"the workspace holds more than {max_bytes} bytes")
                files[name] = content
                if info.st_mode & 0o100:
                    executable.add(name)
        return Snapshot(files, tuple(sorted(folders)), frozenset(executable), skipped)

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the content. The one inside should not run meanwhile."""
        _empty(self._root)
        for folder in snapshot.folders:
            with self._walk(self.parts(folder), folder, create=True):
                continue
        for path, content in snapshot.files.items():
            self.write(path, content, executable=path in snapshot.executable)

    def close(self) -> None:
        """Delete the folder. May be called twice."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            _empty(self._root)
        os.close(self._root)
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)
            os.rmdir(self._outer)
        os.close(self._hold)

    def forget(self) -> None:
        """In a forked child: the folder is the parent's."""
        if not self._closed:
            self._closed = True
            os.close(self._root)
            os.close(self._hold)


def sweep() -> None:
    """Delete the workspaces of processes that were killed before they could."""
    place = tempfile.gettempdir()
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _sweep_one(os.path.join(place, entry.name))


def _sweep_one(folder: str) -> None:
    fd = os.open(folder, _FOLDER)
    try:
        info = os.fstat(fd)
        if info.st_uid != os.geteuid() or time.time() - info.st_mtime < _YOUNG_SECONDS:
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an error where somebody uses it
        _empty(fd)
        os.rmdir(folder)
    finally:
        os.close(fd)


def _empty(root: int) -> None:
    """Remove everything in a folder, however deep: inner folders are first moved up into it."""
    number = 0
    while names := os.listdir(root):
        for name in names:
            try:
                os.unlink(name, dir_fd=root)
                continue
            except (IsADirectoryError, PermissionError):
                tree.make_readable(name, root)
            fd = os.open(name, _FOLDER, dir_fd=root)
            try:
                for inner in os.listdir(fd):
                    try:
                        os.unlink(inner, dir_fd=fd)
                    except (IsADirectoryError, PermissionError):
                        tree.make_readable(inner, fd)
                        number += 1
                        os.rename(inner, f".{secrets.token_hex(8)}-{number}", src_dir_fd=fd,
                                  dst_dir_fd=root)  # fmt: skip
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=root)


def _entry(path: str, info: os.stat_result) -> Entry:
    mode = info.st_mode
    kind = "other"
    for test, word in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link")):
        if test(mode):
            kind = word
    return Entry(path, kind, info.st_size if kind == "file" else 0, stat.S_IMODE(mode))


def _kind_in_words(mode: int) -> str:
    for test, words in (
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISLNK, "a link, which is not followed"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if test(mode):
            return words
    return "a device"


def _sentence(path: str, error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return f"{path!r:.200} goes through a link, which is not followed"
    if error.errno == errno.ENOTDIR:
        return f"{path!r:.200} goes through what is no folder, or a link, which is not followed"
    if error.errno == errno.ENXIO:
        return f"{path!r:.200} is a pipe or a socket"
    return f"{path!r:.200}: {error.strerror}"
