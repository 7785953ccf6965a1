"""How isolated a sandbox is, found out from inside."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from agentgym.sandbox.backend import Backend
from agentgym.sandbox.request import Request
from agentgym.sandbox.types import Level, Limits, SandboxError, Status

__all__ = ["measure"]

_NAMESPACES = {"user": "users", "pid": "processes", "net": "network", "ipc": "ipc", "mnt": "mounts"}
#: What a sandbox of the highest level has.
_WANTED = (
    "users", "processes", "network", "ipc", "mounts", "private_root", "no_capabilities",
    "no_new_privileges", "call_filter", "limits_bind",
)  # fmt: skip
#: Without one of these there is no isolation worth the name.
_LEAST = ("processes", "network", "private_root")

# The last line tells. 198.51.100.1 belongs to nobody (RFC 5737).
_CODE = """
import ctypes, errno, json, os, resource, socket, sys
facts = {"namespaces": {}, "pid": os.getpid(), "user": os.getuid()}
for name in ("user", "pid", "net", "ipc", "mnt"):
    try:
        facts["namespaces"][name] = os.readlink("/proc/self/ns/" + name)
    except OSError:
        facts["namespaces"][name] = None
libc = ctypes.CDLL(None, use_errno=True)
facts["no_new_privileges"] = libc.prctl(39, 0, 0, 0, 0)
facts["seccomp"] = libc.prctl(21, 0, 0, 0, 0)
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
failed = libc.capget(header, data)
facts["capabilities"] = -1 if failed else sum(data)
facts["canary"] = os.path.exists(sys.argv[1])
facts["root"] = [os.stat("/").st_dev, os.stat("/").st_ino]
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    probe.connect(("198.51.100.1", 9))
    facts["network"] = True
except OSError as error:
    facts["network"] = error.errno not in (errno.ENETUNREACH, errno.EPERM, errno.EACCES)
probe.close()
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    facts["limits_bind"] = False
except OSError:
    facts["limits_bind"] = True
print(json.dumps(facts))
"""


def measure(backend: Backend) -> tuple[Level, list[str], list[str]]:
    """Run a command in a sandbox that looks around.

    Returns:
        The level, what is isolated, and what is missing.

    Raises:
        SandboxError: If the command does not do what it should.
    """
    with tempfile.NamedTemporaryFile(prefix="agentgym-canary-") as canary:
        os.chmod(canary.name, 0o644)
        found = _run(backend, canary.name)
    root = os.stat("/")
    same_root = found["root"] == [root.st_dev, root.st_ino]
    present = set()
    for name, feature in _NAMESPACES.items():
        inside = found["namespaces"][name]
        try:
            outside = os.readlink(f"/proc/self/ns/{name}")
        except OSError:
            outside = None
        if inside is not None and inside != outside:
            present.add(feature)
    if found["namespaces"]["pid"] is None and found["pid"] < 16:
        present.add("processes")  # there is no /proc; the small number tells as well
        present |= {"users", "ipc", "mounts"}
    if found["user"] not in (0, os.geteuid()):
        present.add("users")  # a container's: another user, if not a namespace of users
    if found["network"]:
        present.discard("network")
    elif found["namespaces"]["net"] is None:
        present.add("network")
    for feature, given in (
        ("private_root", not found["canary"] and not same_root),
        ("no_capabilities", found["capabilities"] == 0),
        ("no_new_privileges", found["no_new_privileges"] == 1),
        ("call_filter", found["seccomp"] == 2),
        ("limits_bind", found["limits_bind"]),
    ):
        if given:
            present.add(feature)
    missing = [name for name in _WANTED if name not in present]
    missing += [name for name in backend.missing if name not in missing]
    if any(name not in present for name in _LEAST):
        level = Level.NONE
    else:
        level = Level.PARTIAL if any(name in _WANTED for name in missing) else Level.FULL
    return level, [name for name in _WANTED if name in present], missing


def _run(backend: Backend, canary: str) -> dict[str, Any]:
    request = Request.make(Limits(seconds=60.0), code=_CODE, args=[canary])
    result = backend.run(request)
    if result.status is not Status.OK:
        said = result.stderr.strip()[-300:]
        raise SandboxError(f"a first command failed: {result.message} {said}".rstrip())
    try:
        found = json.loads(result.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise SandboxError(f"a first command printed {result.stdout[-200:]!r}") from None
    return dict(found)
