"""Steps per CPU-second, reset times and memory of AlfWorld-v0's engines under a random policy.

    python -m benchmarks.alfworld_speed [--data DIR] [--split valid_seen] [--original-games 5]

The native figures are taken on the games of one split, in windows of two CPU-seconds, and the
best of four windows counts: ``simulator`` plays episodes of at most 50 admissible commands chosen
at random, asking for the list of admissible commands and for the win at each step; ``environment``
does the same through ``env.unwrapped.step`` and ``reset`` with full ``info``; ``vector`` steps 256
environments of ``gym.make_vec`` in one process, once with its own vector environment and once with
Gymnasium's ``SyncVectorEnv``. Resets are part of the time, only steps are counted. A cold reset
reads and parses the game file (of an embedded game: makes it); a warm one starts an episode of a
game in memory. Memory is measured first, as the growth of the resident set since
gymnasium and numpy were imported: with all games of the split loaded, and after the play.

The original engine (extra ``alfworld``) plays the same games with the same policy in its worker
process; its CPU time is that of the worker.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from benchmarks.webshop_speed import resident_mib

_WINDOW_SECONDS = 2.0
_EPISODE_STEPS = 50
_SLOTS = 256
_RESETS = 2000
_COLD_RESETS = 140


def simulator(worlds: list, seconds: float, rng: random.Random) -> float:
    """Steps per CPU-second of the native engine itself."""
    from envs.alfworld.simulator import Sim

    sims = [Sim(world) for world in worlds]
    steps = episodes = 0
    start = time.process_time()
    while time.process_time() - start < seconds:
        sim = sims[episodes % len(sims)]
        episodes += 1
        sim.reset()
        for _ in range(_EPISODE_STEPS):
            commands = sim.admissible()
            sim.step(commands[int(rng.random() * len(commands))])
            steps += 1
            if sim.won:
                break
    return steps / (time.process_time() - start)


def environment(env: gym.Env, seconds: float, rng: random.Random) -> float:
    """Steps per CPU-second through the environment."""
    bare = env.unwrapped
    steps = 0
    start = time.process_time()
    while time.process_time() - start < seconds:
        _, info = bare.reset()
        over = False
        while not over:
            actions = info["admissible_actions"]
            _, _, won, cut, info = bare.step(actions[int(rng.random() * len(actions))])
            steps += 1
            over = won or cut
    return steps / (time.process_time() - start)


def vector(envs: gym.vector.VectorEnv, seconds: float, rng: random.Random) -> float:
    """Steps per CPU-second of all slots together."""
    _, infos = envs.reset()
    steps = 0
    start = time.process_time()
    while time.process_time() - start < seconds:
        draw = rng.random
        chosen = [listed[int(draw() * len(listed))] for listed in infos["admissible_actions"]]
        *_, infos = envs.step(chosen)
        steps += envs.num_envs
    return steps / (time.process_time() - start)


def resets(worlds: list, make_world: Callable[[str], Any], ids: list[str]) -> tuple[float, float]:
    """Seconds of a cold and of a warm reset, on average."""
    from envs.alfworld.simulator import Sim

    start = time.process_time()
    for task_id in ids:
        Sim(make_world(task_id)).reset()
    cold = (time.process_time() - start) / len(ids)
    sims = [Sim(world) for world in worlds]
    for sim in sims:
        sim.reset()
    start = time.process_time()
    for count in range(_RESETS):
        sims[count % len(sims)].reset()
    return cold, (time.process_time() - start) / _RESETS


def original(dataset, ids: list[str], rng: random.Random) -> tuple[float, float]:
    """Steps per CPU-second and CPU-seconds a reset of the original engine."""
    from envs.alfworld.textworld_backend import TextWorldSim

    engine = TextWorldSim()
    ticks = os.sysconf("SC_CLK_TCK")

    def used() -> float:
        fields = Path(f"/proc/{engine.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / ticks

    resetting = stepping = 0.0
    steps = 0
    try:
        for task_id in ids:
            game = dataset.game(task_id)
            began = used()
            engine.reset(game)
            ready = used()
            resetting += ready - began
            for _ in range(_EPISODE_STEPS):
                engine.step(rng.choice(engine.admissible()))
                steps += 1
                if engine.won:
                    break
            stepping += used() - ready
    finally:
        engine.close()
    return steps / stepping, resetting / len(ids)


def measure(
    data: str | None, split: str, windows: int, seconds: float, original_games: int
) -> dict[str, float]:
    """All figures."""
    before, _ = resident_mib()
    import agentgym  # noqa: F401 - registers the environments
    from envs.alfworld.world import World

    env = gym.make("AlfWorld-v0", data=data, split=split)
    source = env.unwrapped.source
    ids = list(source.tasks.ids(split))
    worlds = [source.world(task_id) for task_id in ids]
    loaded, _ = resident_mib()
    rng = random.Random(0)
    env.reset(seed=0)
    figures = {
        "worlds": float(len(worlds)),
        "memory_loaded_mib": loaded - before,
        "simulator": max(simulator(worlds, seconds, rng) for _ in range(windows)),
        "environment": max(environment(env, seconds, rng) for _ in range(windows)),
    }
    played, _ = resident_mib()
    figures["memory_played_mib"] = played - before
    for name, mode in (("vector", "vector_entry_point"), ("gymnasium_sync", "sync")):
        envs = gym.make_vec(
            "AlfWorld-v0", num_envs=_SLOTS, vectorization_mode=mode, data=data, split=split
        )
        figures[name] = max(vector(envs, seconds, rng) for _ in range(windows))
        envs.close()

    def make_world(task_id: str) -> World:
        if data is None:
            return source.world.__wrapped__(task_id)
        return World.load(source.path(task_id))

    cold = ids[:_COLD_RESETS]
    figures["cold_reset_s"], figures["warm_reset_s"] = map(
        min, zip(*(resets(worlds, make_world, cold) for _ in range(windows)), strict=True)
    )
    env.close()
    if original_games:
        chosen = rng.sample(ids, min(original_games, len(ids)))
        figures["original"], figures["original_reset_s"] = original(source, chosen, rng)
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alfworld_speed")
    parser.add_argument("--data", help="folder of official games; embedded ones without it")
    parser.add_argument("--split", default="valid_seen")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=_WINDOW_SECONDS, help="CPU time a window")
    parser.add_argument(
        "--original-games", type=int, default=0, help="games that the original plays beside"
    )
    options = parser.parse_args(argv)
    figures = measure(
        options.data, options.split, options.windows, options.seconds, options.original_games
    )
    print(f"games in memory         {figures['worlds']:,.0f}")
    print(f"memory                  {figures['memory_loaded_mib']:.1f} MiB loaded, "
          f"{figures['memory_played_mib']:.1f} played")  # fmt: skip
    print(f"simulator               {figures['simulator']:,.0f} steps per CPU-second")
    print(f"environment             {figures['environment']:,.0f} steps per CPU-second")
    print(f"vector, {_SLOTS} slots       {figures['vector']:,.0f} steps per CPU-second in all, "
          f"Gymnasium's {figures['gymnasium_sync']:,.0f}")  # fmt: skip
    print(f"cold reset              {figures['cold_reset_s'] * 1e3:.2f} ms")
    print(f"warm reset              {figures['warm_reset_s'] * 1e6:.1f} us")
    if "original" in figures:
        print(f"original engine         {figures['original']:,.1f} steps per CPU-second, "
              f"reset {figures['original_reset_s']:.2f} s")  # fmt: skip
        print(f"  a native step is      {figures['simulator'] / figures['original']:,.0f} x faster")
    return 0


if __name__ == "__main__":
    sys.exit(main())
