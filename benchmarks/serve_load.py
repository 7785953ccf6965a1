"""Many clients on one server, some of which are killed: is every reply there, and the right one?

    python -m benchmarks.serve_load [--sessions 200] [--episodes 3] [--kill 0.05] [--victims 4]

Each client plays episodes on the server and the same ones in this process, and compares every
observation, reward and info. Before a share of the requests its connection is cut. Meanwhile
processes with clients of their own are started and killed with SIGKILL in the middle of an episode.
Prints how many replies came, were lost (never came) and crossed (were another request's).
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from agentgym.guarded import env_maker
from agentgym.serve.client import RemoteEnv, RemoteError
from agentgym.serve.server import EnvServer, Limits

VICTIM_SESSIONS = 4


@dataclass
class Tally:
    """What the clients met with."""

    replies: int = 0
    lost: int = 0
    crossed: int = 0
    reconnects: int = 0
    waits: list[float] = field(default_factory=list)


def play(url: str, env_id: str, env_args: dict[str, Any], number: int, episodes: int, kill: float,
         tally: Tally, lock: threading.Lock) -> None:  # fmt: skip
    """One client."""
    rng = random.Random(number)
    remote, local = RemoteEnv(url, patience_s=900), gym.make(env_id, **env_args)

    def ask(call: str, *args: Any, **kwargs: Any) -> Any:
        if remote._connection is not None and rng.random() < kill:
            remote._connection.socket.shutdown(2)
        began = time.perf_counter()
        try:
            found = getattr(remote, call)(*args, **kwargs)
        except RemoteError as error:
            print(f"client {number}: {error}", file=sys.stderr)
            with lock:
                tally.lost += 1
            raise
        right = getattr(local, call)(*args, **kwargs)
        with lock:
            tally.replies += 1
            tally.crossed += found != right
            tally.waits.append(time.perf_counter() - began)
        return right

    local.action_space.seed(number)
    try:
        for episode in range(episodes):
            ask("reset", seed=1000 * number + episode)
            over = False
            while not over:
                _, _, terminated, truncated, _ = ask("step", local.action_space.sample())
                over = terminated or truncated
    except RemoteError:
        pass
    finally:
        with lock:
            tally.reconnects += remote.reconnects
        remote.close()
        local.close()


def victim(url: str, sessions: int, plays: Any) -> None:
    """A process that plays until it is killed; says so once it does."""
    envs = [RemoteEnv(url) for _ in range(sessions)]
    while True:
        for env in envs:
            env.reset(seed=0)
            env.step("look")
        plays.set()


def load(server: EnvServer, env_id: str, env_args: dict[str, Any], *, sessions: int, episodes: int,
         kill: float, victims: int) -> Tally:  # fmt: skip
    """Play on a running server."""
    tally, lock = Tally(), threading.Lock()
    clients = [
        threading.Thread(
            target=play,
            args=(server.url, env_id, env_args, number, episodes, kill, tally, lock),
        )
        for number in range(sessions)
    ]
    context = multiprocessing.get_context("spawn")
    for client in clients:
        client.start()
    for _ in range(victims):
        plays = context.Event()
        args = (server.url, VICTIM_SESSIONS, plays)
        process = context.Process(target=victim, args=args, daemon=True)
        process.start()
        while process.is_alive() and not plays.wait(0.05):
            pass
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    for client in clients:
        client.join()
    return tally


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="WebShop-v0")
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=3)
    parser.add_argument("--kill", type=float, default=0.05)
    parser.add_argument("--victims", type=int, default=4)
    args = parser.parse_args()
    from agentgym.serve.background import served

    env_args = {"difficulty": "small"}
    limits = Limits(sessions=args.sessions + 64, resume_s=120)
    with served(env_maker(args.env, **env_args), limits=limits) as server:
        began, cpu = time.perf_counter(), time.process_time()
        tally = load(
            server, args.env, env_args,
            sessions=args.sessions, episodes=args.episodes, kill=args.kill, victims=args.victims,
        )  # fmt: skip
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        end = time.monotonic() + 240  # those of the killed processes wait for their clients
        while len(server.sessions) and time.monotonic() < end:
            time.sleep(0.1)
        left, counters = len(server.sessions), dict(server.sessions.counters)
    waits = sorted(tally.waits)
    print(
        f"{args.sessions} clients, {args.episodes} episodes each, {args.victims} processes killed"
    )
    print(f"replies {tally.replies}, lost {tally.lost}, crossed {tally.crossed}")
    print(f"connections cut and resumed {tally.reconnects}; sessions left {left}; {counters}")
    print(
        f"{wall:.1f} s, {cpu:.1f} CPU-s for server and clients, "
        f"{tally.replies / cpu:.0f} replies a CPU-second; wait p50 {waits[len(waits) // 2]:.3f} s, "
        f"p99 {waits[len(waits) * 99 // 100]:.3f} s"
    )
    raise SystemExit(bool(tally.lost or tally.crossed or left))


if __name__ == "__main__":
    main()
