"""What is said on the wire, in OpenEnv's words.

A client sends ``{"type": "reset", "data": {"seed": 1, "task_id": "…"}}``, ``{"type": "step",
"data": {"action": "…"}}``, ``{"type": "state"}`` or ``{"type": "close"}``; the answers are of the
types ``observation``, ``state`` and ``error``. A message may carry a ``request_id``, which its
answer then carries too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentgym.info import Info
from agentgym.recording import plain

__all__ = [
    "SESSION_HEADER",
    "WireError",
    "check_token",
    "dump",
    "error",
    "observation",
    "parse",
    "read_reset",
    "read_step",
]

#: Header of the handshake that names the session; with it a client asks for that session again.
SESSION_HEADER = "X-Agentgym-Session"

_TYPES = ("reset", "step", "state", "close")
# OpenEnv's clients may send these with a reset or an action; they change nothing here.
_IGNORED = {"episode_id", "metadata"}
_LONGEST_ID = 200  # a session remembers many


class WireError(Exception):
    """A message that cannot be carried out.

    Args:
        code: One of OpenEnv's error codes.
        message: What is wrong and what would be right.
        request_id: The number of the message, where it could be read.
    """

    def __init__(self, code: str, message: str, request_id: str | int | None = None) -> None:
        super().__init__(message)
        self.code, self.request_id = code, request_id


def check_token(token: str | None) -> None:
    """Refuse a token that no header can carry; the message does not repeat it.

    Raises:
        ValueError: If it is such a token.
    """
    if token and not (token.isascii() and token.isprintable() and token == token.strip()):
        raise ValueError("a token must be printable ASCII, without space around it")


def parse(raw: str | bytes) -> dict[str, Any]:
    """Read a message.

    Raises:
        WireError: If it is no JSON object, or of no known type.
    """
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise WireError("INVALID_JSON", f"invalid JSON: {error}") from None
    if not isinstance(message, dict):
        raise WireError("VALIDATION_ERROR", "a message is a JSON object")
    number = message.get("request_id")
    if isinstance(number, bool) or not isinstance(number, str | int | None):
        raise WireError("VALIDATION_ERROR", "request_id must be a whole number or a text")
    if isinstance(number, str) and len(number) > _LONGEST_ID:
        raise WireError("VALIDATION_ERROR", f"request_id is longer than {_LONGEST_ID} characters")
    if message.get("type") not in _TYPES:
        raise WireError(
            "UNKNOWN_TYPE",
            f"unknown message type {message.get('type')!r}; known: {', '.join(_TYPES)}",
            number,
        )
    return message


def read_reset(message: Mapping[str, Any]) -> dict[str, Any]:
    """Seed, task and split of a reset.

    Raises:
        WireError: If one is of the wrong kind, or there is another.
    """
    data = _data(message, {"seed", "task_id", "split"})
    seed = data.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise WireError("VALIDATION_ERROR", f"seed must be an integer, 0 or more, got {seed!r}")
    for name in ("task_id", "split"):
        if not isinstance(data.get(name), str | None):
            raise WireError("VALIDATION_ERROR", f"{name} must be a text, got {data[name]!r}")
    return data


def read_step(message: Mapping[str, Any]) -> str:
    """The action of a step.

    Raises:
        WireError: If there is none, or it is no text.
    """
    action = _data(message, {"action"}).get("action")
    if not isinstance(action, str):
        raise WireError("VALIDATION_ERROR", f"action must be a text, got {action!r}")
    return action


def _data(message: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    data = message.get("data", {})
    if not isinstance(data, dict):
        raise WireError("VALIDATION_ERROR", f"data must be an object, got {data!r}")
    unknown = set(data) - known - _IGNORED
    if unknown:
        raise WireError(
            "VALIDATION_ERROR", f"unknown fields {sorted(unknown)}; known: {sorted(known)}"
        )
    return {name: value for name, value in data.items() if name in known}


def observation(
    text: str, reward: float | None, terminated: bool, truncated: bool, info: Info
) -> dict[str, Any]:
    """The answer to a reset or step; ``metadata`` has what OpenEnv has no field for.

    Values of ``info`` that JSON does not know become texts, NaN and infinity too.
    """
    metadata = {"terminated": terminated, "truncated": truncated, "info": plain(info)}
    return {
        "type": "observation",
        "data": {
            "observation": {
                "text": text,
                "goal": info["goal"],
                "admissible_actions": info["admissible_actions"],
            },
            "reward": reward,
            "done": terminated or truncated,
            "metadata": metadata,
        },
    }


def error(fault: WireError) -> dict[str, Any]:
    """The answer to what could not be done."""
    told = {"type": "error", "data": {"message": str(fault), "code": fault.code}}
    return told if fault.request_id is None else {**told, "request_id": fault.request_id}


def dump(answer: Mapping[str, Any]) -> str:
    """An answer as text."""
    return json.dumps(answer, default=str, separators=(",", ":"))
