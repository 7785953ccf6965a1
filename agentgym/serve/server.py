"""The server: one WebSocket a session, on the loopback interface unless told otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http
import ipaddress
import json
import urllib.parse
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

import agentgym
from agentgym.registry import missing_extra
from agentgym.serve import wire
from agentgym.serve.sessions import Limits, Session, Sessions
from agentgym.serve.wire import SESSION_HEADER, WireError

__all__ = ["EnvServer", "Limits", "is_loopback", "serving"]

_SWEEP_S = 1.0
_MAX_MESSAGE = 1 << 20  # bytes that a client may send at once


@dataclass(slots=True)
class EnvServer:
    """A running server.

    Attributes:
        host: Interface it listens on.
        port: Its port.
        sessions: What is going on.
    """

    host: str
    port: int
    sessions: Sessions

    @property
    def url(self) -> str:
        """Where clients connect."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"ws://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@asynccontextmanager
async def serving(
    make_env: Callable[[], gym.Env[Any, Any]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    limits: Limits | None = None,
    name: str = "agentgym",
) -> AsyncGenerator[EnvServer, None]:
    """Serve while the block runs.

    ``GET /health`` and ``GET /metadata`` are answered without a session. Web pages are refused
    (requests with an ``Origin``), whatever the token.

    Args:
        make_env: Makes an environment, on the thread of its session.
        host: Interface to listen on.
        port: Port; 0 takes a free one.
        token: What clients must send as ``Authorization: Bearer TOKEN``; None asks for none.
        limits: What sessions may use.
        name: Name of the environment, for ``/metadata``.

    Yields:
        The running server.

    Raises:
        ValueError: If others could reach it and there is no token, or there is no such port, or
            no header can carry the token.
        ImportError: If the extra ``serve`` is not installed.
    """
    try:
        from websockets.asyncio.server import serve
    except ModuleNotFoundError as error:
        raise missing_extra("websockets", "serve") from error
    if not 0 <= port <= 65535:
        raise ValueError(f"port must be 0 to 65535, got {port}")
    if not token and not is_loopback(host):
        raise ValueError(f"on {host} others can connect: give a token, or listen on 127.0.0.1")
    wire.check_token(token)
    sessions = Sessions(make_env, limits or Limits())
    door = _Door(sessions, token, name)
    async with serve(
        door.talk,
        host,
        port,
        process_request=door.admit,
        process_response=door.name_session,
        origins=[None],
        max_size=_MAX_MESSAGE,
        compression=None,
        open_timeout=max(10.0, sessions.limits.call_s),
    ) as server:
        listening = next(iter(server.sockets)).getsockname()
        sweeper = asyncio.create_task(door.sweep())
        try:
            yield EnvServer(host, listening[1], sessions)
        finally:
            sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeper
            sessions.close()


class _Door:
    """Lets connections in, and talks to them."""

    def __init__(self, sessions: Sessions, token: str | None, name: str) -> None:
        self.sessions, self.token, self.name = sessions, token, name
        self._closing: set[asyncio.Task[None]] = set()

    def admit(self, connection: Any, request: Any) -> Any:
        """Answer plain requests, and refuse who has not the token."""
        path = urllib.parse.urlsplit(request.path).path
        if path == "/health":
            return connection.respond(http.HTTPStatus.OK, '{"status":"healthy"}\n')
        given = ",".join(request.headers.get_all("Authorization"))
        if self.token and not hmac.compare_digest(
            given.encode("utf-8", "replace"), f"Bearer {self.token}".encode()
        ):
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "wrong or missing token\n")
        if path == "/metadata":
            about = {
                "name": self.name,
                "version": agentgym.__version__,
                "sessions": len(self.sessions),
                "max_sessions": self.sessions.limits.sessions,
                "counters": dict(self.sessions.counters),
            }
            return connection.respond(http.HTTPStatus.OK, json.dumps(about) + "\n")
        if path != "/ws":
            return connection.respond(http.HTTPStatus.NOT_FOUND, "there is only /ws\n")
        return None

    def name_session(self, connection: Any, request: Any, response: Any) -> None:
        """Attach the session within the handshake, which tells the client its name."""
        if response.status_code != http.HTTPStatus.SWITCHING_PROTOCOLS:
            return
        named = ",".join(request.headers.get_all(SESSION_HEADER)) or None
        try:
            session, before = self.sessions.attach(named, connection)
        except WireError as fault:
            connection.agentgym = fault
            return
        if before is not None:
            self._close(before, 1008, "another connection has taken the session over")
        connection.agentgym = session
        connection.agentgym_talks = False  # it may break before it does
        response.headers[SESSION_HEADER] = session.id

    async def talk(self, connection: Any) -> None:
        """One connection, from the handshake to its end."""
        session: Session | WireError = connection.agentgym
        if isinstance(session, WireError):
            # OpenEnv's clients read the reason from a message.
            await connection.send(wire.dump(wire.error(session)))
            return
        from websockets.exceptions import ConnectionClosed

        connection.agentgym_talks = True
        try:
            async for raw in connection:
                if session.connection is not connection:  # what comes late must not be done again
                    return
                try:
                    message = wire.parse(raw)
                except WireError as fault:
                    await connection.send(wire.dump(wire.error(fault)))
                    continue
                if message["type"] == "close":
                    self.sessions.end(session, "closed")
                    return
                await connection.send(wire.dump(await session.answer(message)))
        except ConnectionClosed:
            pass
        finally:
            self.sessions.detach(session, connection)

    async def sweep(self) -> None:
        """End sessions whose time is up."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.sessions.let_go()
            for session, why in self.sessions.overdue():
                connection = session.connection
                self.sessions.end(session, why)
                if connection is not None:
                    self._close(connection, 1001, f"the session is {why}")

    def _close(self, connection: Any, code: int, reason: str) -> None:
        """Close a connection without waiting for the other side, which may not be there."""
        task = asyncio.create_task(connection.close(code, reason))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
