"""A filter of system calls, written as a program of the kernel's packet filter.

What is refused is what a program in a sandbox has no use for and an attacker has: namespaces and
mounts, other processes' memory, kernel modules, keys, tracing, ``io_uring``, ``userfaultfd``,
typing into a terminal, sockets of families that no network namespace confines (``AF_VSOCK``), and
memory that belongs to no process and so is counted for none (System V's queues, semaphores and
segments, and files of ``memfd_create``; shared memory in ``/dev/shm`` is limited and stays).
Everything else is let through.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

__all__ = ["install", "program", "supported"]

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_PR_SET_SECCOMP, _FILTER = 22, 2

# Name: number on x86_64, on aarch64; None where there is no such call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_kernel_syms": (177, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "semget": (64, 190),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_IOCTL = (16, 29)
_SOCKET = (41, 198)
_SOCKETPAIR = (53, 199)
# Namespaces that clone would make.
_CLONE_FLAGS = 0x7E020080
# Typing into a terminal, and the console's own calls.
_TERMINAL = (0x5412, 0x541C)
# AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: the last tells programs their interfaces.
_FAMILIES = (1, 2, 10, 16)


def supported() -> bool:
    """Whether the numbers of this machine's system calls are known."""
    return os.uname().machine in _ARCHITECTURES


def program(machine: str) -> bytes:
    """The filter as the kernel reads it.

    Args:
        machine: ``x86_64`` or ``aarch64``.

    Raises:
        KeyError: If the machine is another.
    """
    column = ("x86_64", "aarch64").index(machine) if machine in _ARCHITECTURES else None
    if column is None:
        raise KeyError(f"no system call numbers for {machine!r}")
    code: list[tuple[int, int, int, int]] = []

    def refuse(number: int = errno.EPERM) -> tuple[int, int, int, int]:
        return (_RETURN, 0, 0, _ERRNO | number)

    code += [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":  # the x32 numbers reach the same calls past the table
        code += [(_AT_LEAST, 0, 1, 0x40000000), refuse(errno.ENOSYS)]
    for pair in sorted(_REFUSED.values(), key=lambda pair: pair[column] or 0):
        if (number := pair[column]) is not None:
            code += [(_EQUAL, 0, 1, number), refuse()]
    # Its flags lie in memory, where a filter cannot look; libraries fall back to clone.
    code += [(_EQUAL, 0, 1, _CLONE3[column]), refuse(errno.ENOSYS)]
    code += [
        (_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _ARGUMENTS),
        (_ANY_BIT, 0, 1, _CLONE_FLAGS),
        refuse(),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code += [(_EQUAL, 0, 2 + 2 * len(_TERMINAL), _IOCTL[column]), (_LOAD, 0, 0, _ARGUMENTS + 8)]
    for number in _TERMINAL:
        code += [(_EQUAL, 0, 1, number), refuse()]
    code += [(_RETURN, 0, 0, _ALLOW)]
    for call in (_SOCKET, _SOCKETPAIR):
        code += [(_EQUAL, 0, 3 + len(_FAMILIES), call[column]), (_LOAD, 0, 0, _ARGUMENTS)]
        for place, family in enumerate(_FAMILIES):
            code += [(_EQUAL, len(_FAMILIES) - place, 0, family)]
        code += [refuse(errno.EAFNOSUPPORT), (_RETURN, 0, 0, _ALLOW)]
    code += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in code)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


class Filter:
    """The filter of this machine, ready to be installed after a fork."""

    def __init__(self) -> None:
        self._code = program(os.uname().machine)
        self._program = _Program(len(self._code) // 8, self._code)
        self._libc = ctypes.CDLL(None, use_errno=True)

    def install(self) -> None:
        """Put this process and all that come from it under the filter.

        Raises:
            OSError: If the kernel refuses; ``no_new_privileges`` has to come first.
        """
        pointer = ctypes.byref(self._program)
        if self._libc.prctl(_PR_SET_SECCOMP, _FILTER, pointer, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl(seccomp): {os.strerror(number)}")


def install() -> None:
    """Install a new filter at once; see :class:`Filter`."""
    Filter().install()


def numbers(machine: str) -> dict[str, int]:
    """Name and number of every call that is refused whatever its arguments."""
    column = ("x86_64", "aarch64").index(machine)
    return {name: number for name, pair in _REFUSED.items() if (number := pair[column]) is not None}
