"""NeMo Gym: the HTTP of its ``GymnasiumServer``, for its ``gymnasium_agent``.

Written against NeMo Gym 0.7.0's requests and answers, and tested with such requests: the package
itself needs a newer Python than the suite's other libraries take, so it was not run here.

A row's ``task_id`` and ``seed`` arrive with ``POST /reset``; the model's answer, in the form of
OpenAI's responses, with ``POST /step``. A cookie names the session.
"""

from __future__ import annotations

import http.cookies
import json
import re
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from adapters.chat import ChatEpisode

__all__ = ["make_server"]

_COOKIE, _NAME = "agentgym_session", re.compile(r"[\w-]{1,64}", re.ASCII)
_MOST_BYTES = 8 << 20
_WRONG = (AttributeError, KeyError, TypeError, ValueError, RuntimeError)


class _Sessions:
    """The episodes that are being played, the one that was silent longest first."""

    def __init__(self, most: int, env_id: str, settings: dict[str, Any]) -> None:
        self._most, self._env_id, self._settings = most, env_id, settings
        self._lock = threading.Lock()
        self._open: dict[str, ChatEpisode] = {}

    def start(self, name: str, row: dict[str, Any]) -> dict[str, Any]:
        chat = ChatEpisode(self._env_id, **self._settings)
        try:
            messages = chat.start(**{key: row.get(key) for key in ("task_id", "seed", "split")})
        except _WRONG:
            chat.close()
            raise
        with self._lock:
            old = self._open.pop(name, None)
            full = len(self._open) >= self._most
            lost = self._open.pop(next(iter(self._open))) if full else None
            self._open[name] = chat
        for gone in filter(None, (old, lost)):
            gone.close()
        told = {name: chat.guarded.info[name] for name in ("task_id", "goal")}
        return {"observation": "\n\n".join(each["content"] for each in messages), "info": told}

    def step(self, name: str, text: str) -> dict[str, Any]:
        with self._lock:
            if name not in self._open:
                raise ValueError("there is no such session, or it has ended; send /reset")
            chat = self._open[name] = self._open.pop(name)  # the latest
        reply = chat.say(text)
        if reply.done:
            with self._lock:
                self._open.pop(name, None)
            chat.close()
        told = {"observation": reply.text, "reward": reply.reward, "info": reply.facts()}
        return told | {"terminated": reply.terminated, "truncated": reply.truncated}

    def close(self) -> None:
        with self._lock:
            chats, self._open = list(self._open.values()), {}
        for chat in chats:
            chat.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    sessions: _Sessions

    def server_close(self) -> None:
        super().server_close()
        self.sessions.close()


def make_server(
    env_id: str, *, port: int = 0, max_sessions: int = 256, **settings: Any
) -> ThreadingHTTPServer:
    """A server on this machine; ``serve_forever`` runs it, ``server_close`` ends all sessions.

    Args:
        env_id: Id of the environment.
        port: Port; 0 takes a free one (``server_address[1]``).
        max_sessions: Most episodes at a time; for one more, the one silent longest is ended.
        **settings: ``action_format``, ``deadline`` and the arguments of the environment.
    """
    ChatEpisode(env_id, **settings).close()  # what is wrong with them is better said now
    sessions = _Sessions(max_sessions, env_id, settings)

    class Handler(BaseHTTPRequestHandler):
        timeout = 60.0  # seconds without a byte

        def do_POST(self) -> None:
            cookies = http.cookies.SimpleCookie(self.headers.get("Cookie", ""))
            name = cookies[_COOKIE].value if _COOKIE in cookies else ""
            name = name if _NAME.fullmatch(name) else secrets.token_urlsafe(18)
            try:
                if "Origin" in self.headers:
                    return self._send(403, name, {"detail": "not for web pages"})
                size = int(self.headers.get("Content-Length", 0))
                if not 0 <= size <= _MOST_BYTES:
                    raise ValueError(f"a body must have 0 to {_MOST_BYTES} bytes, got {size}")
                body = json.loads(self.rfile.read(size))
                if not isinstance(body, dict):
                    raise TypeError("a body is a JSON object")
                if self.path == "/reset":
                    answer = sessions.start(name, body)
                elif self.path == "/step":
                    answer = sessions.step(name, _written(body["response"]))
                else:
                    return self._send(404, name, {"detail": "there are /reset and /step"})
            except _WRONG as error:
                return self._send(400, name, {"detail": f"{type(error).__name__}: {error}"})
            return self._send(200, name, answer)

        def _send(self, status: int, name: str, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Set-Cookie", f"{_COOKIE}={name}; HttpOnly; Path=/")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = _Server(("127.0.0.1", port), Handler)
    server.sessions = sessions
    return server


def _written(response: dict[str, Any]) -> str:
    """The text of a response: that of its messages, in order."""
    found = []
    for item in response["output"]:
        content = item["content"] if item.get("type") == "message" else ""
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
        found += [part["text"] for part in parts if part.get("type") == "output_text"]
    return "".join(found)
