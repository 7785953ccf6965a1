"""Runs inside the sandbox: starts the service, speaks HTTP with it, kills it; tells what came."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from typing import Any

from envs.agencybench.inside.prelude import PAYLOAD, adopt, begin, end_all, report

_HOST = "127.0.0.1"
_CROWD_SECONDS = 30.0


class Service:
    """The agent's service, and what was learned from it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.names: dict[str, Any] = {}
        # Not in the workspace, which may hold data of the agent's own trials.
        self.data = tempfile.mkdtemp()

    def move(self) -> Any:
        """Give it another folder from the next start on."""
        self.data = tempfile.mkdtemp()
        return "moved"

    def append(self, text: str) -> Any:
        """Write behind what the journal holds."""
        with open(f"{self.data}/journal.jsonl", "ab") as file:
            return file.write(text.encode())

    def journal(self) -> Any:
        """Number of whole lines of the journal, and of those that are JSON objects."""
        try:
            with open(f"{self.data}/journal.jsonl", "rb") as file:
                lines = file.read(1 << 24).split(b"\n")[:-1]
        except OSError:
            return [0, 0]
        good = 0
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                good += isinstance(json.loads(line), dict)
        return [len(lines), good]

    def start(self) -> Any:
        """Start it and wait until it listens."""
        with socket.socket() as free:
            free.bind((_HOST, 0))
            self.port = free.getsockname()[1]
        environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "server.py"],
            env=environment | {"PORT": str(self.port), "DATA": self.data},
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
        """Kill it with all that it started, without a warning."""
        end_all()
        if self.process is not None:
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
        try:  # ids are the service's, and may be anything
            target = urllib.parse.quote(self.fill(path), safe="/?&=%")
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            text = answer.read(1 << 20)
        except (OSError, ValueError, http.client.HTTPException):
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

    def crowd(self, clients: list[list[Any]], kill_at: int = 0) -> Any:
        """Several clients at once; maybe a kill in the midst, at so many answers."""
        made: list[list[Any]] = [[] for _ in clients]
        enough = threading.Event()

        def client(number: int) -> None:
            for request in clients[number]:
                made[number].append(self.ask(*request))
                if kill_at and sum(map(len, made)) >= kill_at:
                    enough.set()

        threads = [threading.Thread(target=client, args=(n,)) for n in range(len(clients))]
        for thread in threads:
            thread.start()
        if kill_at:
            enough.wait(_CROWD_SECONDS)
            self.kill()
        for thread in threads:
            thread.join()
        return made


def play(steps: list[Any]) -> list[Any]:
    """Play the steps, one after the other."""
    adopt()
    begin()
    service, made = Service(), []
    try:
        for name, *arguments in steps:
            made.append(getattr(service, name)(*arguments))
    finally:
        service.kill()
    return made


if __name__ == "__main__":
    report(play(PAYLOAD))
