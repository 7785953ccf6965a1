"""What a sandbox sees of this machine: system folders and an interpreter, all read-only."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from agentgym.sandbox.types import SandboxError

__all__ = ["INSIDE", "boot_command", "check_mounts", "make_layout", "module_path", "moved"]

# Of /etc only what programs need to run; nothing that says who lives here.
_ETC = (
    "alternatives", "ca-certificates", "chromium", "chromium.d", "fonts", "gai.conf",
    "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "localtime", "magic", "mime.types", "protocols", "services", "ssl/certs",
    "ssl/openssl.cnf", "timezone",
)  # fmt: skip
_TEXTS = {
    "/etc/passwd": (
        "root:x:0:0:root:/root:/usr/sbin/nologin\n"
        "user:x:1000:1000:user:/box:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    ),
    "/etc/group": "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/hostname": "sandbox\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/resolv.conf": "",
}
_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
#: Where nothing may be mounted: what a sandbox makes itself.
_OWN = ("/", "/box", "/dev", "/etc", "/proc", "/run", "/sys", "/tmp")

#: The modules that run inside.
INSIDE = Path(__file__).resolve().parent / "inside"
# The modules inside are found without their packages, whose own imports are many.
_BOOT = """
import sys, types
for name in ("agentgym", "agentgym.sandbox"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
sys.modules["agentgym.sandbox"].__path__ = [sys.argv[1]]
from agentgym.sandbox.inside.{module} import {entry}
{entry}({arguments})
"""


def boot_command(
    module: str, entry: str, arguments: str, *, python: str | None = None, folder: str | None = None
) -> list[str]:
    """The command that starts a module inside.

    Args:
        module: Module inside.
        entry: One of its functions.
        arguments: Its arguments as Python text.
        python: Interpreter; by default this one.
        folder: Folder that holds the folder ``inside``; by default this package's.
    """
    code = _BOOT.format(module=module, entry=entry, arguments=arguments)
    place = folder or str(INSIDE.parent)
    return [python or sys.executable, "-S", "-s", "-P", "-c", code, place]


@cache
def _packages() -> tuple[str, ...]:
    """Folders of installed packages that this interpreter sees."""
    names = ("site-packages", "dist-packages")
    return tuple(
        dict.fromkeys(
            entry
            for entry in sys.path
            if entry and os.path.basename(entry) in names and os.path.isdir(entry)
        )
    )


def module_path(packages: bool, *, inside: bool = True) -> list[str]:
    """``sys.path`` for Python text: the standard library, and packages if they are wanted.

    Args:
        packages: Whether they are.
        inside: As it is inside, where some folders lie elsewhere.
    """
    roots = {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}
    held = []
    for entry in sys.path:
        place = os.path.realpath(entry) if entry else ""
        library = any(place.startswith(root + os.sep) for root in roots)
        if library and os.path.basename(place) not in ("site-packages", "dist-packages"):
            held.append(entry)
    path = [*held, *(_packages() if packages else ())]
    return [moved(entry) for entry in path] if inside else path


def moved(path: str) -> str:
    """Where a folder of the interpreter lies inside: what a sandbox makes itself would hide it."""
    hidden = any(_under(path, own) for own in _OWN[1:])
    return f"/opt/outside{path}" if hidden else path


def _interpreter_folders(packages: bool) -> list[str]:
    folders = [sys.base_prefix, sys.base_exec_prefix]
    if packages:
        folders += [sys.prefix, *_packages()]
    return list(dict.fromkeys(os.path.abspath(folder) for folder in folders))


def _under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def check_mounts(mounts: Mapping[str, str]) -> dict[str, str]:
    """Mounts of the caller: target inside to source outside.

    Raises:
        SandboxError: If one cannot be mounted.
    """
    checked = {}
    for target, source in mounts.items():
        plain = isinstance(target, str) and os.path.normpath(target) == target
        if not plain or not target.startswith("/") or target in _OWN:
            raise SandboxError(
                f"mounts must have absolute paths inside other than {', '.join(_OWN)}, "
                f"got {target!r}"
            )
        if any(_under(target, own) for own in ("/box", "/dev", "/proc", "/tmp")):
            raise SandboxError(f"mounts must not lie in /box, /dev, /proc or /tmp, got {target!r}")
        place = os.path.realpath(source)
        if not os.path.exists(place):
            raise SandboxError(f"mounts[{target!r}] names {source!r}, which does not exist")
        checked[target] = place
    return checked


def make_layout(
    *,
    packages: bool,
    mounts: Mapping[str, str],
    box: str | None,
    box_size: int,
    tmp_size: int,
) -> dict[str, Any]:
    """The layout that :func:`agentgym.sandbox.inside.jail.settle` builds.

    Args:
        packages: Show the packages that are installed for this interpreter.
        mounts: Further folders and files: path inside to path outside.
        box: Folder to show, writable, at ``/box``; None makes one in memory.
        box_size: Bytes that the one in memory may hold.
        tmp_size: The same for ``/tmp``.
    """
    binds: list[tuple[str, str, bool, bool]] = [("/usr", "/usr", False, False)]
    links: list[tuple[str, str]] = [("/var/tmp", "/tmp"), ("/var/run", "/run")]
    for name in _TOP:
        path = f"/{name}"
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            binds.append((path, path, False, False))
    binds += [(f"/etc/{name}", f"/etc/{name}", False, True) for name in _ETC]
    shown = ["/usr"]
    for folder in _interpreter_folders(packages):
        place = os.path.realpath(folder)
        for path in dict.fromkeys((place, folder)):
            if not any(_under(path, other) for other in shown):
                binds.append((place, moved(path), False, False))
                shown.append(path)
    python = sys.executable if packages else os.path.realpath(sys.executable)
    links += [(f"/opt/python/bin/{name}", moved(python)) for name in ("python", "python3")]
    texts = list(_TEXTS.items())
    if packages and sys.prefix != sys.base_prefix:
        # As in a virtual environment, so that commands see its packages too.
        home = os.path.dirname(os.path.realpath(sys.executable))
        texts.append(("/opt/python/pyvenv.cfg", f"home = {moved(home)}\n"))
        inner = os.path.relpath(sysconfig.get_path("purelib"), sys.prefix)
        links.append((f"/opt/python/{inner}", moved(sysconfig.get_path("purelib"))))
    binds += [(source, target, False, False) for target, source in mounts.items()]
    # A mount in another's folder comes after it.
    binds.sort(key=lambda bind: bind[1])
    return {
        "binds": binds,
        "links": links,
        "texts": texts,
        "box": box,
        "box_size": box_size,
        "tmp_size": tmp_size,
    }
