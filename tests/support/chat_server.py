"""A local server that speaks the OpenAI protocol and misbehaves as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass
class Answer:
    """What one request gets.

    Attributes:
        text: The model's words.
        status: HTTP status; the body of others than 200 is ``error``.
        headers: Further header fields.
        error: Body of an error: JSON values, or bytes as they are.
        finish: ``finish_reason``; None leaves it out.
        body: The whole body in place of a completion.
        cut: Send only so many bytes of the body, then hang up.
        hang: Seconds to wait before anything is sent.
        hang_up: Close without an answer.
        prompt_tokens: What ``usage`` says.
        completion_tokens: The same; None counts the words.
    """

    text: str = "look"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Any = None
    finish: str | None = "stop"
    body: bytes | None = None
    cut: int | None = None
    hang: float = 0.0
    hang_up: bool = False
    prompt_tokens: int = 7
    completion_tokens: int | None = None


@dataclass
class Seen:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class ChatServer:
    """Serves on the loopback address until closed.

    Args:
        answer: From the request's number (from 0) and its body to the answer.
    """

    def __init__(self, answer: Callable[[int, dict[str, Any]], Answer]) -> None:
        self.answer = answer
        self.seen: list[Seen] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        self.closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.handle(self)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """Clients hang up on purpose here."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        data = request.rfile.read(int(request.headers["Content-Length"]))
        body = json.loads(data)
        with self._lock:
            number = len(self.seen)
            self.seen.append(Seen(request.path, dict(request.headers), body))
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            self._send(request, self.answer(number, body), body)
        finally:
            with self._lock:
                self._now -= 1

    def _send(self, request: BaseHTTPRequestHandler, answer: Answer, body: dict[str, Any]) -> None:
        self.closing.wait(answer.hang)
        if answer.hang_up:
            request.close_connection = True
            return
        data = answer.body if answer.body is not None else self._body(answer, body)
        request.send_response(answer.status)
        for name, value in answer.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if answer.cut is not None:
            data = data[: answer.cut]
            request.close_connection = True
        request.wfile.write(data)

    def _body(self, answer: Answer, body: dict[str, Any]) -> bytes:
        if answer.status != 200:
            error = answer.error
            return error if isinstance(error, bytes) else json.dumps({"error": error}).encode()
        counted = answer.completion_tokens
        usage = {
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": len(answer.text.split()) if counted is None else counted,
        }
        choice: dict[str, Any] = {"index": 0}
        if answer.finish is not None:
            choice["finish_reason"] = answer.finish
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": answer.text}
        else:
            choice["text"] = answer.text
            ids = [ord(character) for character in answer.text]
            choice["token_ids"] = ids
            choice["logprobs"] = {"token_logprobs": [-0.5] * len(ids)}
        return json.dumps({"choices": [choice], "usage": usage, "created": time.time()}).encode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def always(text: str = "look") -> Callable[[int, dict[str, Any]], Answer]:
    """The same words every time."""
    return lambda number, body: Answer(text)


def in_turn(*answers: Answer) -> Callable[[int, dict[str, Any]], Answer]:
    """One answer after another; the last for ever."""
    return lambda number, body: answers[min(number, len(answers) - 1)]
