"""JSON over HTTP for many concurrent calls, with the standard library alone.

A call is one POST on a worker thread over a connection that is kept alive. Cancelling the call, or
running out of its time, closes the connection, which frees the thread even where a server hangs or
drips. Redirects are not followed: they would carry the key elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

__all__ = ["HttpClient", "Reply", "TransportError"]

_MOST_BYTES = 64 << 20
# Longer than any key.
_SECRET = 16384


class TransportError(ConnectionError):
    """No whole answer came: the server is away, hung up, or sent something that is not HTTP."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of any status.

    Attributes:
        status: HTTP status.
        headers: Header fields, names in lower case.
        body: The bytes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def text(self, most: int = 500, clean: Callable[[str], str] | None = None) -> str:
        """The beginning of the body, for messages.

        Args:
            most: Characters of it.
            clean: Applied before the text is cut, so that no half of a secret is left at the end.
        """
        text = self.body[: 4 * most + _SECRET].decode("utf-8", "replace").strip()
        if clean is not None:
            text = clean(text)
        return text if len(text) <= most else text[:most] + "..."

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            TransportError: If it is none; the message does not quote it.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise TransportError("the answer is not JSON") from None


class HttpClient:
    """Posts JSON to one server.

    Args:
        base_url: For instance ``https://api.openai.com/v1``.
        headers: Sent with every request.
        connections: Most requests at a time.

    Raises:
        ValueError: If the URL is not of that form, or holds a password.
    """

    def __init__(
        self, base_url: str, headers: Mapping[str, str] | None = None, connections: int = 64
    ) -> None:
        parts, port = _split(base_url)
        self.url = base_url.rstrip("/")
        self.host, self._secure = str(parts.hostname), parts.scheme == "https"
        self._port = port or (443 if self._secure else 80)
        self._path = parts.path.rstrip("/")
        self._headers = {"Accept": "application/json", **(headers or {})}
        self._context = ssl.create_default_context() if self._secure else None
        self._proxy = _proxy(parts.scheme, self.host)
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="agentgym-http")
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._closed = False

    async def post(self, path: str, body: Mapping[str, Any], timeout: float) -> Reply:
        """Send ``body`` and read the answer.

        Args:
            path: After the base URL, with a leading slash.
            body: JSON object.
            timeout: Seconds for all of it.

        Raises:
            TransportError: If no whole answer came.
            TimeoutError: If it took too long.
        """
        data = json.dumps(body).encode()
        call = _Call()
        work = asyncio.get_running_loop().run_in_executor(
            self._threads, self._post, call, self._path + path, data, timeout
        )
        try:
            async with asyncio.timeout(timeout):
                return await work
        except TimeoutError:
            raise TimeoutError(f"no answer within {timeout:.3g} s") from None
        finally:
            if not work.done() or work.cancelled():
                call.abandon()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # On a worker thread -------------------------------------------------------------------------

    def _post(self, call: _Call, path: str, data: bytes, timeout: float) -> Reply:
        connection, kept = self._take()
        try:
            return self._exchange(call, connection, path, data, timeout)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            connection.close()
            if not kept or call.abandoned:
                raise TransportError(f"the server hung up: {error!r}") from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise TransportError(f"{type(error).__name__}: {error}") from error
        # A server may close a connection that was idle just as it is used again.
        connection = self._connection()
        try:
            return self._exchange(call, connection, path, data, timeout)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise TransportError(f"{type(error).__name__}: {error}") from error

    def _exchange(
        self,
        call: _Call,
        connection: http.client.HTTPConnection,
        path: str,
        data: bytes,
        timeout: float,
    ) -> Reply:
        call.hold(connection, timeout)
        headers = {**self._headers, "Content-Type": "application/json"}
        connection.request("POST", path, data, headers)
        answer = connection.getresponse()
        body = answer.read(_MOST_BYTES + 1)
        if len(body) > _MOST_BYTES:
            raise http.client.HTTPException(f"the answer is longer than {_MOST_BYTES} bytes")
        if answer.length:  # the connection ended before all of it had come
            raise http.client.IncompleteRead(body, answer.length)
        call.finish()
        self._put_back(connection, answer.will_close)
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, names, body)

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self._idle:
                return self._idle.pop(), True
        return self._connection(), False

    def _put_back(self, connection: http.client.HTTPConnection, will_close: bool) -> None:
        with self._lock:
            if not will_close and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._proxy or (self.host, self._port)
        connection: http.client.HTTPConnection
        if self._secure:
            connection = http.client.HTTPSConnection(host, port, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, port)
        if self._proxy:
            connection.set_tunnel(self.host, self._port)
        return connection


class _Call:
    """One call, which the event loop may give up while a thread is in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self.abandoned = False

    def hold(self, connection: http.client.HTTPConnection, timeout: float) -> None:
        """From here on, giving up closes the connection."""
        connection.timeout = timeout
        if connection.sock is None:
            connection.connect()
        else:
            connection.sock.settimeout(timeout)
        with self._lock:
            if self.abandoned:
                raise TransportError("the call was given up")
            self._connection = connection

    def finish(self) -> None:
        """The answer is there."""
        with self._lock:
            self._connection = None

    def abandon(self) -> None:
        """Wake the thread, whatever it waits for."""
        with self._lock:
            self.abandoned = True
            if self._connection is not None and self._connection.sock is not None:
                with contextlib.suppress(OSError):
                    self._connection.sock.shutdown(2)


def _split(url: str) -> tuple[urllib.parse.SplitResult, int | None]:
    """The parts of a URL, and its port.

    Raises:
        ValueError: If it is not of the form that is wanted here.
    """
    if "@" in url.partition("//")[2].partition("/")[0]:
        raise ValueError("the base URL holds a user or a password; keys come from a variable")
    shown = url if "@" not in url else f"...@{url.rpartition('@')[2]}"
    refusal = f"base URL {shown!r} is not of the form http(s)://host[:port][/path]"
    # What neither a request line nor a host may hold.
    if not url.isascii() or any(not "!" <= sign <= "~" for sign in url):
        raise ValueError(f"{refusal}: it holds a blank or a sign that has to be encoded")
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{refusal}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(refusal)
    if parts.query or parts.fragment:
        raise ValueError(f"{refusal}: nothing may follow the path")
    return parts, port


def _proxy(scheme: str, host: str) -> tuple[str, int] | None:
    """The proxy that the environment names for a host."""
    named = urllib.request.getproxies().get(scheme)
    if not named or host in ("localhost", "127.0.0.1", "::1"):
        return None
    if urllib.request.proxy_bypass(host):
        return None
    parts = urllib.parse.urlsplit(named if "//" in named else f"//{named}")
    return (parts.hostname, parts.port or 80) if parts.hostname else None
