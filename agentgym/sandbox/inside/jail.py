"""Own namespaces and a root of one's own: how a process goes into a sandbox.

A process that calls :func:`leave` has new namespaces; its first child is process 1 of the new
process namespace and calls :func:`settle`, which builds a root of read-only system folders and
small file systems in memory, makes it the root, and lets the old one go.

Where the caller is the superuser, the sandbox's user is one that owns nothing, so that a process
that would break out had no rights, and so that limits bind, which they do not for the superuser.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from agentgym.sandbox.inside import kernel

__all__ = [
    "BOX",
    "OUTSIDE_USER",
    "USER",
    "fork_within",
    "fresh_folders",
    "leave",
    "mount_point",
    "settle",
    "settle_again",
]

#: The folder of the code inside.
BOX = "/box"
#: The user and group inside.
USER = 1000
#: The user and group outside for a caller who is the superuser.
OUTSIDE_USER = 61234

_NAMESPACES = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)
_MOUNT_POINTS = ("/mnt", "/media", "/srv", "/opt", "/sys", "/tmp")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def leave() -> None:
    """Move to new namespaces, with one user mapped; process ids change for children only.

    Raises:
        OSError: If the kernel or its settings do not allow it.
    """
    if os.geteuid() == 0:
        os.setgroups([])
        outside = OUTSIDE_USER
        with _mapper(f"{USER} {outside} 1", f"{USER} {outside} 1") as write:
            _unshare()
            write()
    else:
        user, group = os.geteuid(), os.getegid()
        _unshare()
        _map_self(user, group)


def fork_within() -> int:
    """From inside a sandbox, fork process 1 of namespaces of its own.

    Returns:
        The child's process id, in the child 0.
    """
    pid = kernel.fork_into(_NAMESPACES | kernel.CLONE_NEWCGROUP)
    if pid == 0:
        kernel.set_dumpable(True)  # its own folder in /proc has to be written to
        _map_self(USER, USER)
    return pid


def _unshare() -> None:
    try:
        kernel.unshare(_NAMESPACES | kernel.CLONE_NEWCGROUP)
    except OSError:
        kernel.unshare(_NAMESPACES)


def _map_self(user: int, group: int) -> None:
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{USER} {user} 1")
    _write("/proc/self/gid_map", f"{USER} {group} 1")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


@contextlib.contextmanager
def _mapper(users: str, groups: str) -> Any:
    """A child that stays in the old user namespace, where it may map any user."""
    ready, done = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(ready[1])
            if os.read(ready[0], 1):
                parent = os.getppid()
                _write(f"/proc/{parent}/gid_map", groups)
                _write(f"/proc/{parent}/uid_map", users)
                os.write(done[1], b"y")
                code = 0
        finally:
            os._exit(code)
    os.close(ready[0])
    os.close(done[1])

    def write() -> None:
        os.write(ready[1], b"y")
        if not os.read(done[0], 1):
            raise PermissionError("the users of the new namespace cannot be mapped")

    try:
        yield write
    finally:
        os.close(ready[1])
        os.close(done[0])
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def settle(layout: dict[str, Any]) -> list[str]:
    """As process 1: become the sandbox's user, build the root and move there.

    Args:
        layout: ``binds`` (source, target, writable, may be absent), ``links`` (path, target),
            ``texts`` (path, content), ``box`` (folder to show at ``/box``, or None), ``box_size``
            and ``tmp_size`` (bytes of the file systems in memory).

    Returns:
        What could not be had.

    Raises:
        OSError: If the root cannot be built.
    """
    missing: list[str] = []
    # The sources are opened as the user who may reach them; from then on they need no path.
    sources: list[tuple[int, bool, str, bool]] = []
    binds = [*layout["binds"], *((f"/dev/{name}", f"/dev/{name}", True, True) for name in _DEVICES)]
    if layout["box"] is not None:
        binds.append((layout["box"], BOX, True, False))
    for source, target, writable, optional in binds:
        try:
            fd = os.open(source, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            if optional:
                continue
            raise
        sources.append((fd, os.path.isdir(f"/proc/self/fd/{fd}"), target, writable))
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    kernel.set_dumpable(True)  # taken by the change of user, and with it /proc/self
    os.umask(0o022)

    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    base = mount_point([bind[0] for bind in binds])
    _memory(base, "size=8m,nr_inodes=8192,mode=755")
    os.chdir(base)
    for folder in ("proc", "dev", "dev/shm", "dev/pts", "tmp", "box", "run", "var", "etc"):
        if folder == "dev":
            os.mkdir(folder)
            _memory(f"{base}/dev", "size=64k,nr_inodes=64,mode=755")
        else:
            os.mkdir(folder, 0o755)
    for path, target in layout["links"]:
        _parents(base + path)
        os.symlink(target, base + path)
    for path, text in layout["texts"]:
        _parents(base + path)
        with open(base + path, "w", encoding="utf-8") as file:
            file.write(text)
    for path, target in (
        ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"), ("ptmx", "pts/ptmx"),
    ):  # fmt: skip
        os.symlink(target, f"{base}/dev/{path}")
    for fd, is_folder, target, writable in sources:
        _bind(fd, is_folder, base + target, writable, target.startswith("/dev/"))
        os.close(fd)
    if layout["box"] is None:
        _memory(base + BOX, _size(layout["box_size"]) + ",mode=700")
    _memory(f"{base}/tmp", _size(layout["tmp_size"]) + ",mode=1777")
    _memory(f"{base}/dev/shm", _size(layout["tmp_size"]) + ",mode=1777")
    for name, step in (
        ("proc", lambda: _proc(f"{base}/proc")),
        ("terminals", lambda: _terminals(f"{base}/dev/pts")),
    ):
        missing += _attempt(name, step)
    for folder in (f"{base}/dev", base):
        flags = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID
        kernel.mount("none", folder, flags=flags | kernel.MS_NODEV)
    kernel.pivot_root(".", ".")
    kernel.umount(".", kernel.MNT_DETACH)
    os.chdir(BOX)
    _leave_watches()
    missing += _attempt("loopback", kernel.bring_up_loopback)
    return [name for name in missing if name != "terminals"]


def settle_again(has_proc: bool) -> None:
    """As process 1 of namespaces within a sandbox: a view of its own processes, and a loopback."""
    if has_proc:
        _proc("/proc")
    _attempt("loopback", kernel.bring_up_loopback)


def fresh_folders(size: int) -> None:
    """Empty folders over the writable ones, in memory and of limited size."""
    _memory(BOX, _size(size) + ",mode=700")
    _memory("/tmp", _size(size) + ",mode=1777")
    _memory("/dev/shm", _size(size) + ",mode=1777")
    os.chdir(BOX)


def _leave_watches() -> None:
    """Take few of what the kernel counts for the user outside as well, who has 128 in all."""
    for name, most in (("max_inotify_instances", 16), ("max_inotify_watches", 16_384)):
        with contextlib.suppress(OSError):
            _write(f"/proc/sys/user/{name}", str(most))


def _attempt(name: str, step: Callable[[], None]) -> list[str]:
    try:
        step()
    except OSError:
        return [name]
    return []


def _size(size: int) -> str:
    return f"size={max(4096, size)},nr_inodes={max(1024, min(size // 1024, 100_000))}"


def _memory(target: str, options: str) -> None:
    kernel.mount("tmpfs", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def _proc(target: str) -> None:
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("proc", target, "proc", flags)


def _terminals(target: str) -> None:
    flags = kernel.MS_NOSUID | kernel.MS_NOEXEC
    kernel.mount("devpts", target, "devpts", flags, "newinstance,ptmxmode=0666,mode=620")


def mount_point(sources: Sequence[str]) -> str:
    """A folder where a root can be built, and that hides no source."""
    for candidate in _MOUNT_POINTS:
        hides = any(source == candidate or source.startswith(candidate + "/") for source in sources)
        if os.path.isdir(candidate) and not os.path.islink(candidate) and not hides:
            return candidate
    raise FileNotFoundError(f"none of {', '.join(_MOUNT_POINTS)} can hold the new root")


def _parents(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)


def _bind(fd: int, is_folder: bool, target: str, writable: bool, device: bool) -> None:
    if is_folder:
        os.makedirs(target, exist_ok=True)
    else:
        _parents(target)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    source = f"/proc/self/fd/{fd}"
    try:
        kernel.mount(source, target, flags=kernel.MS_BIND)
    except OSError:  # something is mounted below it that may not be uncovered
        kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)
    kernel.read_only(target, writable=writable, keep_devices=device)
