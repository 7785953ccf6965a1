"""Runs inside the sandbox: starts the service, speaks HTTP with it, kills it; tells what came."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from typing import Any

from envs.agencybench.inside.prelude import PAYLOAD, report

_HOST = "127.0.0.1"


class Service:
    """The agent's service, and what was learned from it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.names: dict[str, Any] = {}

    def start(self) -> Any:
        """Start it and wait until it listens."""
        with socket.socket() as free:
            free.bind((_HOST, 0))
            self.port = free.getsockname()[1]
        os.makedirs("data", exist_ok=True)
        environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "server.py"],
            env=environment | {"PORT": str(self.port), "DATA": "data"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + 15
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection((_HOST, self.port), 1):
                return "up"
            time.sleep(0.02)
        return "down"

    def kill(self) -> Any:
        """Kill it, without a warning."""
        if self.process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, 9)
            self.process.wait()
            self.process = None
        return "killed"

    def fill(self, value: Any) -> Any:
        """Put names that were learned in the place of ``$name``."""
        if isinstance(value, str):
            for name, known in self.names.items():
                if value == f"${name}":
                    return known
                value = value.replace(f"${name}$", str(known))
            return value
        if isinstance(value, dict):
            return {key: self.fill(item) for key, item in value.items()}
        return [self.fill(item) for item in value] if isinstance(value, list) else value

    def ask(self, method: str, path: str, body: Any = None, save: str = "") -> Any:
        """One request: status and JSON, or None where no answer came."""
        headers, data = {}, None
        if body is not None:
            text = body["raw"] if isinstance(body, dict) and "raw" in body else None
            data = (json.dumps(self.fill(body)) if text is None else text).encode()
            headers = {"Content-Type": "application/json"}
        connection = http.client.HTTPConnection(_HOST, self.port, timeout=5)
        try:
            target = urllib.parse.quote(self.fill(path), safe="/?&=%")
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            text = answer.read(1 << 20)
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if save and isinstance(value, dict):
            self.names[save] = value.get("id")
        return [answer.status, value]

    def crowd(self, clients: list[list[Any]], kill_after: float = 0.0) -> Any:
        """Several clients at once; maybe a kill while they ask."""
        made: list[list[Any]] = [[] for _ in clients]

        def client(number: int) -> None:
            for request in clients[number]:
                made[number].append(self.ask(*request))

        threads = [threading.Thread(target=client, args=(n,)) for n in range(len(clients))]
        for thread in threads:
            thread.start()
        if kill_after:
            time.sleep(kill_after)
            self.kill()
        for thread in threads:
            thread.join()
        return made


def play(steps: list[Any]) -> list[Any]:
    """Play the steps, one after the other."""
    service, made = Service(), []
    try:
        for name, *arguments in steps:
            if name == "append":
                with open("data/journal.jsonl", "ab") as file:
                    made.append(file.write(arguments[0].encode()))
            else:
                made.append(getattr(service, name)(*arguments))
    finally:
        service.kill()
    return made


if __name__ == "__main__":
    report(play(PAYLOAD))
