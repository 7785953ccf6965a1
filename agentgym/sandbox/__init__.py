"""Run code that nobody trusts: one-shot, or in a workspace that lives over many commands."""

from agentgym.sandbox.types import (
    REPORT_FD,
    Entry,
    Level,
    Limits,
    Result,
    SandboxError,
    SandboxUnavailable,
    Snapshot,
    Status,
    WorkspaceError,
)

__all__ = [
    "REPORT_FD",
    "Entry",
    "Level",
    "Limits",
    "Result",
    "SandboxError",
    "SandboxUnavailable",
    "Snapshot",
    "Status",
    "WorkspaceError",
]
