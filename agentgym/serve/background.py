"""A server in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from agentgym.serve.server import EnvServer, serving

__all__ = ["served"]


@contextlib.contextmanager
def served(make_env: Any, **options: Any) -> Iterator[EnvServer]:
    """Serve while the block runs, from a thread.

    Args:
        make_env: Makes an environment.
        **options: See :func:`agentgym.serve.server.serving`.

    Yields:
        The running server; look at its counters, and change nothing from this thread.
    """
    ready: threading.Event = threading.Event()
    found: dict[str, Any] = {}

    async def run() -> None:
        found["loop"], found["stop"] = asyncio.get_running_loop(), asyncio.Event()
        async with serving(make_env, **options) as server:
            found["server"] = server
            ready.set()
            await found["stop"].wait()

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            found["error"] = error
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    try:
        if "error" in found:
            raise found["error"]
        yield found["server"]
    finally:
        if "server" in found:
            found["loop"].call_soon_threadsafe(found["stop"].set)
        thread.join()
