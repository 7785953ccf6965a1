"""Which backends can be tested on this machine, found by opening each one."""

from __future__ import annotations

from agentgym.sandbox import SandboxError, open_sandbox

__all__ = ["ALL", "ISOLATING"]


def _works(name: str) -> bool:
    try:
        open_sandbox(name).close()
    except SandboxError:
        return False
    return True


#: Backends that isolate and work here.
ISOLATING = [name for name in ("namespaces", "bwrap") if _works(name)]
#: With the one that isolates nothing.
ALL = [*ISOLATING, "local"]
