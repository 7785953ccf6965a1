"""Gymnasium-compatible multi-turn text environments for training LLM agents.

Importing this package registers the environments with Gymnasium; nothing heavy is loaded until
one is made.
"""

from agentgym.builtin import register_builtin
from agentgym.env import Outcome, TextEnv, group_reset
from agentgym.info import Info, StopReason
from agentgym.registry import EnvSpec, register, registered, spec
from agentgym.spaces import UnicodeText
from agentgym.tasks import TaskSet

__version__ = "0.1.0"

__all__ = [
    "EnvSpec",
    "Info",
    "Outcome",
    "StopReason",
    "TaskSet",
    "TextEnv",
    "UnicodeText",
    "group_reset",
    "register",
    "registered",
    "spec",
]

register_builtin()
