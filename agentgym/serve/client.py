"""An environment that is played on a server."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import time
from typing import Any

import gymnasium as gym

from agentgym.info import Info, StopReason
from agentgym.registry import missing_extra
from agentgym.serve.wire import SESSION_HEADER, check_token
from agentgym.spaces import UnicodeText

__all__ = ["RemoteEnv", "RemoteError"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_TOO_BIG = 1009  # with this code a peer closes when a message is longer than it takes


class RemoteError(RuntimeError):
    """The server refused a request, or could not be reached in time."""


class RemoteEnv(gym.Env[str, str]):
    """A session on a server, with Gymnasium's interface.

    Where the connection breaks or an answer does not come in time, the client connects again and
    asks for the answer to the same request: the server carries a request out once, and a reply is
    only taken with the number of the request that waits for it.

    Args:
        url: The server, for instance ``ws://127.0.0.1:8000`` or ``http://127.0.0.1:8000``.
        token: Its token, if it asks for one.
        reply_s: Seconds to wait for an answer before connecting again.
        patience_s: Seconds after which a request is given up. The server keeps a session without
            a connection for its own ``resume_s``.

    Attributes:
        reconnects: How often it has connected again.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own shape

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        reply_s: float = 90.0,
        patience_s: float = 300.0,
    ) -> None:
        for name, value in (("reply_s", reply_s), ("patience_s", patience_s)):
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value!r}")
        check_token(token)
        scheme, colon, rest = url.rstrip("/").partition("://")
        schemes = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
        if not colon or scheme not in schemes:
            raise ValueError(f"url must be like ws://127.0.0.1:8000, got {url!r}")
        if set("@?#") & set(rest):  # not repeated here: what stands there may be a secret
            raise ValueError("url may hold no user, query or fragment; give a token by token=")
        try:
            import websockets  # noqa: F401 - said here rather than at the first request
        except ModuleNotFoundError as error:
            raise missing_extra("websockets", "serve") from error
        self.observation_space = UnicodeText(1 << 17)
        self.action_space = UnicodeText(1 << 16, legal_actions=self._offered)
        self._url, self._token = f"{schemes[scheme]}://{rest.removesuffix('/ws')}/ws", token
        self._reply_s, self._patience_s = reply_s, patience_s
        self._numbers = itertools.count(1)
        self._connection: Any = None
        self._session: str | None = None
        self._info: Info | None = None
        self._over = False  # it ended with its reset, and nobody was told
        self.reconnects = 0

    def reset(  # type: ignore[override]
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Start an episode; ``options`` may name ``task_id`` and ``split``.

        One that could not begin within the server's deadline ends with its first step.

        Raises:
            RemoteError: If the server refuses, or cannot be reached.
        """
        super().reset(seed=seed)
        data = self._ask({"type": "reset", "data": {"seed": seed, **(options or {})}})
        text, _, terminated, truncated, info = self._read(data)
        self._over = terminated or truncated
        return text, info

    def step(  # type: ignore[override]
        self, action: str
    ) -> tuple[str, float, bool, bool, Info]:
        """Apply an action, once.

        Raises:
            RemoteError: If the server refuses, or cannot be reached.
        """
        if self._over and self._info is not None:
            self._over = False
            return "", 0.0, False, True, self._info
        return self._read(self._ask({"type": "step", "data": {"action": action}}))

    def state(self) -> dict[str, Any]:
        """The server's view: ``task_id``, ``step_count``, ``playing``."""
        return self._ask({"type": "state"})

    def close(self) -> None:
        """End the session."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.send(json.dumps({"type": "close"}))
                connection.close()
            except _closed():  # the server notices by itself
                pass
        self._session = None

    def _offered(self) -> tuple[str, ...] | None:
        return None if self._info is None else self._info["admissible_actions"]

    def _read(self, data: dict[str, Any]) -> tuple[str, Any, bool, bool, Info]:
        try:
            text, told = data["observation"]["text"], data["metadata"]
            reward, terminated, truncated = data["reward"], told["terminated"], told["truncated"]
            info = told["info"]
            listed, reason = info["admissible_actions"], info["stop_reason"]
            info["admissible_actions"] = None if listed is None else tuple(listed)
            info["stop_reason"] = None if reason is None else StopReason(reason)
            if "reference" in info:
                info["reference"] = tuple(info["reference"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._no_server_of_ours(error) from error
        self._info = info
        return text, reward, terminated, truncated, info

    def _no_server_of_ours(self, error: Exception) -> RemoteError:
        return RemoteError(
            f"what answers at {self._url} is no `python -m agentgym serve`: its answer has not the "
            f"form of one ({type(error).__name__}: {error})"
        )

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its reply, over as many connections as it takes."""
        from websockets.exceptions import ConnectionClosed

        number = next(self._numbers)
        text = json.dumps({**message, "request_id": number})
        give_up, pause, trouble = time.monotonic() + self._patience_s, _FIRST_PAUSE, "nothing"
        while time.monotonic() < give_up:
            try:
                connection = self._connect()
                # Where the server refuses a session, its reason may be there before the request is.
                with contextlib.suppress(ConnectionClosed):
                    connection.send(text)
                while True:
                    raw = connection.recv(timeout=self._reply_s)
                    try:
                        reply = json.loads(raw)
                        kind, found, given = reply["type"], reply["data"], reply.get("request_id")
                    except (ValueError, TypeError, KeyError) as error:
                        raise self._no_server_of_ours(error) from error
                    if given == number or (given is None and kind == "error"):
                        break  # else it belongs to a request that was given up
                    if given is None:
                        raise self._no_server_of_ours(KeyError("request_id"))
                if kind == "error":
                    code = found.get("code")
                    if code in ("CAPACITY_REACHED", "SESSION_ERROR"):
                        self._drop()
                    if code == "SESSION_ERROR":
                        self._session = None
                    told = f"{code}: {found.get('message')}"
                    if code == "VALIDATION_ERROR" and given is None:  # ours would have read it
                        told += "; other servers of OpenEnv want adapters.openenv.TextClient"
                    raise RemoteError(told)
                answer: dict[str, Any] = found
                return answer
            except _closed() as error:  # a timeout is an OSError
                if getattr(getattr(error, "rcvd", None), "code", None) == _TOO_BIG:
                    self._drop()
                    raise RemoteError(
                        f"the server takes no request as long as this: {error}"
                    ) from None
                trouble = f"{type(error).__name__}: {error}"
                self._drop()
                self.reconnects += 1
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        raise RemoteError(f"no answer within {self._patience_s:g} s; last trouble: {trouble}")

    def _connect(self) -> Any:
        if self._connection is None:
            from websockets.exceptions import InvalidStatus
            from websockets.sync.client import connect

            headers = {SESSION_HEADER: self._session} if self._session else {}
            if self._token:
                headers["Authorization"] = f"Bearer {self._token}"
            try:
                connection = connect(
                    self._url,
                    additional_headers=headers,
                    open_timeout=self._reply_s,
                    max_size=None,
                    compression=None,
                    proxy=None,
                )
            except InvalidStatus as error:
                status = error.response.status_code
                if status < 500:  # to ask again would change nothing
                    raise RemoteError(f"the server at {self._url} answers {status}") from error
                raise
            # Since websockets 17 a connection wants to be entered; before, that changes nothing.
            self._connection = connection.__enter__()
            self._session = self._connection.response.headers.get(SESSION_HEADER, self._session)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:  # no farewell: the other side may not be there
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)  # ends the thread that reads,
            connection.recv_events_thread.join(1.0)  # which would never hear of it once closed
            connection.socket.close()


def _closed() -> tuple[type[Exception], ...]:
    """What says that a connection is gone, or not to be had."""
    from websockets.exceptions import ConnectionClosed, InvalidHandshake

    return (OSError, ConnectionClosed, InvalidHandshake)
