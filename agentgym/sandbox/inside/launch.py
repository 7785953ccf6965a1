"""The way from the caller to bubblewrap: staging, the change of user, and the exec."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, NoReturn

from agentgym.sandbox.inside import jail, kernel

__all__ = ["bubblewrap_main"]


def bubblewrap_main(order: str) -> NoReturn:
    """Become bubblewrap, which becomes the supervisor.

    The superuser gives up its rights first. What only the superuser may reach is then out of
    reach, so it is shown at another place before, in a mount namespace of this process alone.

    Args:
        order: JSON with ``program``, ``layout``, ``info`` (descriptor for bubblewrap's report),
            ``command`` and ``inside`` (folder of the modules).
    """
    data: dict[str, Any] = json.loads(order)
    layout = data["layout"]
    binds = [tuple(bind) for bind in layout["binds"]]
    binds.append((data["inside"], "/opt/agentgym/inside", False, False))
    box = layout["box"]
    if os.geteuid() == 0:
        binds, box = _stage(binds, box)
        os.setgroups([])
        os.setresgid(jail.OUTSIDE_USER, jail.OUTSIDE_USER, jail.OUTSIDE_USER)
        os.setresuid(jail.OUTSIDE_USER, jail.OUTSIDE_USER, jail.OUTSIDE_USER)
    arguments = [
        data["program"],
        "--unshare-all", "--unshare-user", "--disable-userns",
        "--uid", str(jail.USER), "--gid", str(jail.USER), "--hostname", "sandbox",
        "--cap-drop", "ALL", "--clearenv", "--new-session", "--as-pid-1",
        "--info-fd", str(data["info"]),
        "--proc", "/proc", "--dev", "/dev",
        "--size", str(layout["tmp_size"]), "--tmpfs", "/dev/shm",
        "--size", str(layout["tmp_size"]), "--perms", "1777", "--tmpfs", "/tmp",
        "--dir", "/run", "--dir", "/etc",
    ]  # fmt: skip
    for source, target, writable, optional in binds:
        kind = "bind" if writable else "ro-bind"
        arguments += [f"--{kind}-try" if optional else f"--{kind}", source, target]
    for path, target in layout["links"]:
        arguments += ["--symlink", target, path]
    for path, text in layout["texts"]:
        file = os.memfd_create("text")
        os.write(file, text.encode())
        os.lseek(file, 0, os.SEEK_SET)
        os.set_inheritable(file, True)
        arguments += ["--perms", "0644", "--ro-bind-data", str(file), path]
    if box is None:
        arguments += ["--size", str(layout["box_size"]), "--perms", "0700", "--tmpfs", jail.BOX]
    else:
        arguments += ["--bind", box, jail.BOX]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", jail.BOX]
    for name, value in data["environment"].items():
        arguments += ["--setenv", name, value]
    os.execv(data["program"], [*arguments, "--", *data["command"]])


def _stage(
    binds: list[tuple[Any, ...]], box: str | None
) -> tuple[list[tuple[Any, ...]], str | None]:
    """Show the sources at places that every user may reach."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    sources = [bind[0] for bind in binds] + ([box] if box is not None else [])
    base = jail.mount_point(sources)
    kernel.mount("tmpfs", base, "tmpfs", kernel.MS_NOSUID, "size=1m,mode=755")

    def show(number: int, source: str) -> str:
        target = f"{base}/{number}"
        if os.path.isdir(source):
            os.mkdir(target, 0o755)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)
        return target

    staged: list[tuple[Any, ...]] = []
    for number, (source, target, writable, optional) in enumerate(binds):
        reachable = source == target and source.startswith(
            ("/usr", "/etc", "/bin", "/sbin", "/lib")
        )
        if reachable or (optional and not os.path.exists(source)):
            staged.append((source, target, writable, optional))
        else:
            staged.append((show(number, source), target, writable, optional))
    if box is not None:
        box = show(len(binds), box)
        with contextlib.suppress(OSError):
            os.chown(box, jail.OUTSIDE_USER, jail.OUTSIDE_USER)
    return staged, box
