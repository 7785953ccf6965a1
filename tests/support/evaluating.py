"""Evaluations of the doors: a model behind a local server, and reading what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chat_server import Answer, ChatServer

from agentgym.cli.evaluate import EvalConfig, evaluate


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def doors(number: int, body: dict[str, Any]) -> Answer:
    """A model that tries the doors one after another."""
    said = sum(message["role"] == "assistant" for message in body["messages"])
    return Answer(f"<think>hm</think><action>open {said + 1}</action>", prompt_tokens=10)


def run(server: ChatServer, out: Path, **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "env": "ToyDoors-v0",
        "policy": "openai",
        "model": "m",
        "base_url": server.url,
        "out": out,
        "slots": 2,
    }
    return evaluate(EvalConfig(**(settings | changes)), say=lambda text: None)
