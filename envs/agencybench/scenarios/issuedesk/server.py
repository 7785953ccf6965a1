"""The desk as a server of the Model Context Protocol: JSON-RPC 2.0, one message a line.

``python -m envs.agencybench.scenarios.issuedesk.server SEED`` serves a desk on standard input and
output. The environment speaks with the same :func:`answer`, without a process between.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from envs.agencybench.scenarios.issuedesk.desk import TOOLS, Desk, DeskError

__all__ = ["answer", "main", "serve"]

_PROTOCOL = "2025-06-18"
_PARSE_ERROR, _INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS = -32700, -32600, -32601, -32602


def answer(desk: Desk, message: Any) -> dict[str, Any] | None:
    """The answer to one message; None for a notification."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return _fault(None, _INVALID_REQUEST, "a message must be an object with jsonrpc 2.0")
    identity, method = message.get("id"), message.get("method")
    if not isinstance(method, str):
        return _fault(identity, _INVALID_REQUEST, "method must be a text")
    if "id" not in message:
        return None
    params = message.get("params", {})
    if not isinstance(params, dict):
        return _fault(identity, _INVALID_PARAMS, "params must be an object")
    result: dict[str, Any]
    if method == "initialize":
        result = {
            "protocolVersion": _PROTOCOL,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "issuedesk", "version": "1"},
        }
    elif method == "ping":
        result = {}
    elif method == "tools/list":
        result = {"tools": [{"name": name, **described} for name, described in TOOLS.items()]}
    elif method == "tools/call":
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return _fault(identity, _INVALID_PARAMS, "tools/call needs a name and arguments")
        if name not in TOOLS:
            return _fault(identity, _INVALID_PARAMS, f"unknown tool {name!r}")
        try:
            made, failed = desk.call(name, arguments), False
        except DeskError as error:  # told to the model as a result, as the protocol asks for
            made, failed = str(error), True
        text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False, indent=1)
        result = {"content": [{"type": "text", "text": text}], "isError": failed}
    else:
        return _fault(identity, _NO_METHOD, f"unknown method {method!r}")
    return {"jsonrpc": "2.0", "id": identity, "result": result}


def _fault(identity: Any, code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": text}}


def serve(desk: Desk, lines: Iterable[str]) -> Iterable[str]:
    """Answers to lines of JSON, one line each."""
    for line in lines:
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            made: dict[str, Any] | None = _fault(None, _PARSE_ERROR, "the line is no JSON")
        else:
            made = answer(desk, message)
        if made is not None:
            yield json.dumps(made)


def main(arguments: list[str] | None = None) -> int:
    """Serve the desk of a seed until standard input ends."""
    from agentgym.dice import Dice
    from envs.agencybench.scenarios.issuedesk.world import draw

    words = sys.argv[1:] if arguments is None else arguments
    desk, _ = draw(Dice(f"{words[0] if words else 0}/mcp/issuedesk/world"))
    for line in serve(desk, sys.stdin):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
