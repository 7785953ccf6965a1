"""Run code that nobody trusts: one-shot, or in a workspace that lives over many commands."""

from agentgym.sandbox.sandbox import Sandbox, open_sandbox, shared_sandbox
from agentgym.sandbox.session import Session
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
    "Sandbox",
    "SandboxError",
    "SandboxUnavailable",
    "Session",
    "Snapshot",
    "Status",
    "WorkspaceError",
    "open_sandbox",
    "shared_sandbox",
]
