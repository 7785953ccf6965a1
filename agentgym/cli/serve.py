"""``python -m agentgym serve``: offer an environment to other programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium as gym

from agentgym.arguments import gathered, parse_pairs
from agentgym.guarded import env_maker
from agentgym.registry import missing_extra, spec
from agentgym.serve.server import Limits, serving
from agentgym.timed import CheckedMaker

__all__ = ["ServeConfig", "main", "serve"]


@dataclass(kw_only=True)
class ServeConfig:
    """Serve an environment over OpenEnv's protocol, one session a connection.

    Attributes:
        env: Id of a registered environment; ``package:Id`` imports the package first.
        env_arg: Arguments of the environment, each ``KEY=VALUE``.
        host: Interface to listen on. Anything but this machine's own needs a token.
        port: Port; 0 takes a free one.
        token_variable: Environment variable that holds the token clients must send. Where it is
            not set, none is asked for.
        max_sessions: Most sessions at a time.
        call_deadline: Seconds that one call into an environment may take.
        session_deadline: Seconds that a session may last; None for no limit.
        idle_deadline: Seconds without a message after which a session ends.
        resume: Seconds that a session waits for a client whose connection broke.
    """

    env: str
    env_arg: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    token_variable: str = "AGENTGYM_TOKEN"
    max_sessions: int = 256
    call_deadline: float = 60.0
    session_deadline: float | None = None
    idle_deadline: float = 600.0
    resume: float = 30.0


def main(argv: Sequence[str]) -> int:
    """Run the command line.

    Returns:
        0 when it was ended by a signal, 2 when something was refused.
    """
    try:
        import tyro
    except ModuleNotFoundError as error:
        raise missing_extra("tyro", "cli") from error
    config = tyro.cli(
        ServeConfig,
        args=gathered(argv, ServeConfig),
        prog="python -m agentgym serve",
        config=(tyro.conf.FlagConversionOff,),
    )
    try:
        asyncio.run(serve(config))
    except (ValueError, LookupError, ImportError, OSError) as error:
        print(f"error: {error.args[0] if len(error.args) == 1 else error}", file=sys.stderr)
        return 2
    return 0


async def serve(config: ServeConfig) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        ValueError: If a setting cannot work.
        OSError: If the port is taken.
    """
    entry = spec(config.env)
    args = parse_pairs(config.env_arg)
    limits = Limits(
        sessions=config.max_sessions,
        call_s=config.call_deadline,
        session_s=config.session_deadline,
        idle_s=config.idle_deadline,
        resume_s=config.resume,
    )
    try:  # what is wrong with the arguments is better said now than to each client
        CheckedMaker(config.env, deadline=limits.call_s, **args)
    except (TypeError, RuntimeError, gym.error.Error) as error:
        raise ValueError(f"{entry.id} cannot be made: {error}") from error
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # not on every system
            loop.add_signal_handler(number, stop.set)
    token = os.environ.get(config.token_variable)
    async with serving(
        env_maker(config.env, **args),
        host=config.host,
        port=config.port,
        token=token,
        limits=limits,
        name=entry.id,
    ) as server:
        asked = "a token is asked for" if token else "no token is asked for"
        print(f"serving {entry.id} at {server.url}; {asked}", flush=True)
        await stop.wait()
        counts = ", ".join(f"{name} {count}" for name, count in server.sessions.counters.items())
        print(f"stopped; sessions: {counts or 'none'}", flush=True)
