"""Runs inside the sandbox as a process of its own: the agent's FastAPI service, step by step.

It reads one step a line and answers with one line. The database is the one in memory, which is
joined before this text. Nothing of what is expected comes here.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import importlib
import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from envs.agencybench.inside.containers import containers, install_docker
from envs.agencybench.inside.mongo import STATE, Collection, Database, install

_HELD: dict[str, Any] = {}


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, Database | Collection):
        return {type(value).__name__.lower(): value.name}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth > 8:
        return "..."
    if isinstance(value, dict):
        return {str(key): plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    for name in ("model_dump", "_asdict"):
        if callable(getattr(value, name, None)):
            return plain(getattr(value, name)(), depth + 1)
    if hasattr(value, "__dataclass_fields__"):
        return plain(vars(value), depth + 1)
    if isinstance(value, str | bytes):
        return str(value)
    with contextlib.suppress(TypeError):
        return [plain(one, depth + 1) for one in list(value)[:200]]
    return str(value)


def call(module: str, names: list[str], arguments: list[Any], named: dict[str, Any]) -> Any:
    """Call the first of some functions that the module has."""
    place = importlib.import_module(module)
    name = next((one for one in names if callable(getattr(place, one, None))), None)
    if name is None:
        raise AttributeError(f"{module} has no {names[0]}")
    made = getattr(place, name)(*arguments, **named)
    return plain(asyncio.run(made) if inspect.iscoroutine(made) else made)


def start() -> Any:
    """Start the service, its lifespan included."""
    service = importlib.import_module("app.main").app
    client = _HELD["client"](service, raise_server_exceptions=False)
    client.__enter__()
    _HELD["open"] = client
    return True


def request(method: str, path: str, headers: dict[str, str], body: str) -> Any:
    """One request: status, JSON (None if it is none) and text."""
    answer = _HELD["open"].request(method, path, headers=headers, content=body.encode())
    made = None
    with contextlib.suppress(ValueError):
        made = answer.json()
    return {"status": answer.status_code, "json": plain(made), "text": answer.text[:2000]}


def server(up: bool) -> Any:
    """Let the database answer, or not."""
    STATE.up = up
    return up


def dump() -> Any:
    """Everything that the database holds."""
    return {"databases": plain(STATE.databases), "clients": STATE.clients}


def insert(collection: str, documents: list[Any]) -> Any:
    """Put documents where the service looks for them."""
    place = importlib.import_module("app.db.mongo").get_db()[collection]
    for document in documents:
        for key, seconds in document.pop("ago", {}).items():
            now = datetime.datetime.now(datetime.UTC)
            document[key] = now - datetime.timedelta(seconds=seconds)
        place.insert_one(document)
    return len(documents)


def log(fields: dict[str, str]) -> Any:
    """Write one log entry; its type takes the time as such, as text, or makes it by itself."""
    kind = importlib.import_module("app.logs.models").AgentLog
    write = importlib.import_module("app.logs.db_logger").write_log
    now = datetime.datetime.now(datetime.UTC)
    entry, fault = None, None
    for more in ({"timestamp": now}, {"timestamp": now.isoformat()}, {}):
        try:
            entry = kind(**fields, **more)
            break
        except Exception as error:
            fault = error
    if entry is None:
        assert fault is not None
        raise fault
    made = write(entry)
    return plain(asyncio.run(made) if inspect.iscoroutine(made) else made)


def logs_of(session: str) -> Any:
    """What a function of ``app.logs`` that reads logs returns for a session."""
    words = ("get", "list", "read", "fetch", "find", "query", "retrieve", "load")
    for module in ("app.logs.db_logger", "app.logs.service", "app.logs"):
        with contextlib.suppress(ModuleNotFoundError):
            place = importlib.import_module(module)
            for name, function in sorted(vars(place).items()):
                named = name.startswith(words) and "log" in name and inspect.isroutine(function)
                if named and "session_id" in inspect.signature(function).parameters:
                    return call(module, [name], [], {"session_id": session})
    raise AttributeError("no function reads the logs of a session_id")


_STEPS: dict[str, Callable[..., Any]] = {
    "start": start,
    "request": request,
    "call": call,
    "server": server,
    "dump": dump,
    "containers": containers,
    "insert": insert,
    "log": log,
    "logs_of": logs_of,
}


def main() -> None:
    """Answer steps until there are no more."""
    take, give = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    warnings.simplefilter("ignore")
    loads, dumps = json.loads, json.dumps
    absent = None
    try:
        _HELD["client"] = importlib.import_module("fastapi.testclient").TestClient
    except (ImportError, RuntimeError) as error:
        absent = f"{type(error).__name__}: {error}"[:200]
    install()
    install_docker()
    sys.path.insert(0, os.getcwd())
    for line in take:
        name, arguments = loads(line)
        made: Any = {"absent": absent}
        if absent is None:
            try:
                made = {"value": _STEPS[name](*arguments)}
            except BaseException as error:
                told = f"{type(error).__name__}: {error}"[:200]
                made = {"raised": type(error).__name__, "message": told}
        try:
            text = dumps(made)
        except (TypeError, ValueError, RecursionError):
            text = dumps({"raised": "ValueError", "message": "the value cannot be told"})
        give.write(text.encode() + b"\n")


if __name__ == "__main__":
    main()
