"""Calls of the Linux kernel that Python does not offer, by ``ctypes``."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct

__all__ = [
    "CLONE_NEWCGROUP",
    "CLONE_NEWIPC",
    "CLONE_NEWNET",
    "CLONE_NEWNS",
    "CLONE_NEWPID",
    "CLONE_NEWUSER",
    "CLONE_NEWUTS",
    "MNT_DETACH",
    "MS_BIND",
    "MS_NODEV",
    "MS_NOEXEC",
    "MS_NOSUID",
    "MS_PRIVATE",
    "MS_RDONLY",
    "MS_REC",
    "MS_REMOUNT",
    "bring_up_loopback",
    "drop_capabilities",
    "fork_into",
    "mount",
    "no_new_privileges",
    "pivot_root",
    "read_only",
    "set_child_subreaper",
    "set_dumpable",
    "umount",
    "unshare",
]

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_SECUREBITS = 4, 24, 28
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
# Keep capabilities out of every later exec, whatever the user id: NOROOT and its lock.
_SECBITS = 0b000011
_CAPABILITY_VERSION_3 = 0x20080522
_AT_RECURSIVE, _AT_EMPTY_PATH = 0x8000, 0x1000
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
]
_libc.syscall.restype = ctypes.c_long
_held_libc = ctypes.PyDLL(None, use_errno=True)
_held_libc.syscall.restype = ctypes.c_long


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces named by ``flags`` for new ones."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def fork_into(flags: int) -> int:
    """Fork a child that is in new namespaces from its first moment on.

    One fork less than to leave one's own namespaces and then to fork.

    Args:
        flags: Which namespaces are new.

    Returns:
        The child's process id, in the child 0.
    """
    number = _SYS_CLONE.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"clone is not known on {os.uname().machine}")
    python = ctypes.pythonapi  # keeps the interpreter's lock, which a fork must not lose
    python.PyOS_BeforeFork()
    # No stack of its own: like fork, it goes on here with a copy of this one.
    pid = _held_libc.syscall(
        ctypes.c_long(number), ctypes.c_ulong(flags | signal.SIGCHLD), None, None, None, None
    )
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    error = ctypes.get_errno()
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(error, f"clone: {os.strerror(error)}")
    return int(pid)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount; see ``mount(2)``."""
    _check(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() or None,
            flags,
            data.encode() or None,
        ),
        f"mount {target}",
    )


def umount(target: str, flags: int = 0) -> None:
    """Unmount; see ``umount2(2)``."""
    _check(_libc.umount2(os.fsencode(target), flags), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root and put the old one at ``old``."""
    number = _SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"pivot_root is not known on {os.uname().machine}")
    result = _libc.syscall(
        ctypes.c_long(number), ctypes.c_char_p(os.fsencode(new)), ctypes.c_char_p(os.fsencode(old))
    )
    _check(result, "pivot_root")


def read_only(target: str, *, writable: bool = False, keep_devices: bool = False) -> None:
    """Take from a mount, and what is mounted below it, writing, setuid and devices.

    Args:
        target: The mount.
        writable: Leave writing.
        keep_devices: Leave devices.
    """
    attributes = MS_NOSUID | (0 if writable else MS_RDONLY) | (0 if keep_devices else MS_NODEV)
    # The attributes of mount_setattr have the values of the MS_ flags for these three.
    order = struct.pack("=QQQQ", attributes, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(-100),
        ctypes.c_char_p(os.fsencode(target)),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.c_char_p(order),
        ctypes.c_size_t(len(order)),
    )
    if result == 0:
        return
    # Before Linux 5.12: flags that the mount already has must be named again.
    held = os.statvfs(target).f_flag & (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    held |= os.statvfs(target).f_flag & (0x400 | 0x800 | 0x1000)  # noatime, nodiratime, relatime
    flags = MS_BIND | MS_REMOUNT | attributes | (held & ~0x1000) | (held & 0x1000) << 9
    mount("none", target, flags=flags)


def bring_up_loopback() -> None:
    """Switch the loopback device of this network namespace on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        import fcntl

        request = struct.pack("16sH22x", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(probe, 0x8914, request)  # SIOCSIFFLAGS


def drop_capabilities() -> None:
    """Give up every capability, for good."""
    # The bounding set first: that needs a capability itself.
    for number in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            break  # past the last capability of this kernel, or none was held
    _libc.prctl(_PR_SET_SECUREBITS, ctypes.c_ulong(_SECBITS), 0, 0, 0)
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(ctypes.c_char_p(header), ctypes.c_char_p(bytes(24))), "capset")


def no_new_privileges() -> None:
    """From now on no exec gives privileges."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(no_new_privs)")


def set_dumpable(value: bool) -> None:
    """Whether processes of the same user may look into this one."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, int(value), 0, 0, 0), "prctl(dumpable)")


def set_child_subreaper() -> None:
    """Become the parent of every orphan among the descendants."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(child_subreaper)")
