"""A tool that runs Python in a sandbox."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agentgym.sandbox import Level, Limits, Result, Sandbox, Status, shared_sandbox
from envs.math_reasoning.tools import Tool, ToolReply

__all__ = ["python_tool"]

_FENCE = re.compile(r"\A\s*```[a-zA-Z0-9]*[ \t]*\n(.*?)\n?[ \t]*```\s*\Z", re.DOTALL)
_LIMITS = Limits(seconds=5.0, memory=512 << 20, processes=16, disk=16 << 20, output=4096)
#: Lines of an error that the model gets to see.
_ERROR_LINES = 6


def python_tool(
    backend: str = "auto",
    *,
    name: str = "python",
    minimum: Level = Level.FULL,
    limits: Limits = _LIMITS,
    preload: Sequence[str] = (),
) -> Tool:
    """A tool whose input is Python and whose output is what that prints.

    Each call runs in a sandbox of its own: nothing is left for the next one. Where no sandbox can
    be had that isolates, making the tool is an error, unless ``backend`` is ``"local"``.

    Its details in ``info``: ``status`` (:class:`~agentgym.sandbox.Status`), ``deadline`` (which one
    fired, or None), ``backend``, ``level``.

    Args:
        backend: See :func:`agentgym.sandbox.open_sandbox`.
        name: The tag.
        minimum: How isolated it has to be.
        limits: Of one call.
        preload: Modules imported once; ``("sympy",)`` makes its use fast and other calls slower.

    Raises:
        SandboxUnavailable: If there is no such sandbox.
    """

    def sandbox() -> Sandbox:
        # Asked for at every call: a forked process needs another one than its parent.
        return shared_sandbox(backend, minimum=minimum, limits=limits, preload=tuple(preload))

    sandbox()

    def run(source: str) -> ToolReply:
        fenced = _FENCE.match(source)
        held = sandbox()
        result = held.run(fenced[1] if fenced else source)
        details: dict[str, Any] = {
            "status": str(result.status),
            "deadline": result.deadline,
            "backend": held.backend,
            "level": held.level.name.lower(),
        }
        return ToolReply(_told(result), result.ok, details)

    return Tool(name, run, f"<{name}>code</{name}> runs Python and shows what it prints")


def _told(result: Result) -> str:
    """What the model reads: the output, then the end of what went wrong."""
    parts = [result.stdout.rstrip("\n")] if result.stdout.strip() else []
    errors = result.stderr.strip("\n").split("\n")
    if not result.ok:
        if any(errors):
            kept = errors[-_ERROR_LINES:]
            parts += [*(["..."] if len(errors) > len(kept) else []), *kept]
        if result.status is not Status.ERROR or not any(errors):
            parts.append(f"error: {result.message}")
    return "\n".join(parts) or "(no output)"
