"""Steps per CPU-second and memory of WebShop-v0 under a random policy.

    python -m benchmarks.webshop_speed [--catalogue builtin:1000 | --data DIR] [--windows 4]

A window plays episodes for two CPU-seconds of this process: ``text_rich`` pages with the list of
admissible actions at each step; on the search page a search for three words of the goal, else an
admissible action at random; resets and purchases are part of the time, and only steps are
counted. The figure is the best of four windows. The cold figure empties the memory of searches
before each episode. Memory is measured first, as the growth of the resident set (its peak, too)
since gymnasium and numpy were imported.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np  # noqa: F401 - part of the process that memory is compared with

_WINDOW_SECONDS = 2.0


def resident_mib() -> tuple[float, float]:
    """Resident set of this process and its peak, in MiB.

    Raises:
        RuntimeError: If the system does not tell.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError as error:
        raise RuntimeError(f"memory can be measured on Linux only: {error}") from None
    fields = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(fields["VmRSS"]) / 1024, int(fields["VmHWM"]) / 1024


def play(env: gym.Env[str, str], seconds: float, rng: random.Random, *, cold: bool) -> float:
    """Play random episodes for so many CPU-seconds; returns steps per CPU-second."""
    shop = env.unwrapped.shop  # type: ignore[attr-defined]
    steps = 0
    start = time.process_time()
    while time.process_time() - start < seconds:
        if cold:
            shop.forget_searches()
        _, info = env.reset()
        words = info["goal"].split()
        over = False
        while not over:
            actions = info["admissible_actions"]
            action = actions[int(rng.random() * len(actions))]
            if action == "search[<query>]":
                action = f"search[{' '.join(rng.sample(words, 3))}]"
            _, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
            steps += 1
    return steps / (time.process_time() - start)


def measure(arguments: dict[str, Any], windows: int, seconds: float) -> dict[str, float]:
    """All figures for one environment."""
    before, _ = resident_mib()
    import agentgym  # noqa: F401 - registers the environments

    started = time.process_time()
    env: gym.Env[str, str] = gym.make("WebShop-v0", observation_mode="text_rich", **arguments)
    built = time.process_time() - started
    env.reset(seed=0)
    rng = random.Random(0)
    warm = [play(env, seconds, rng, cold=False) for _ in range(windows)]
    cold = [play(env, seconds, rng, cold=True) for _ in range(windows)]
    after, peak = resident_mib()
    env.close()
    return {
        "build_cpu_s": built,
        "steps_per_cpu_s": max(warm),
        "steps_per_cpu_s_cold": max(cold),
        "memory_mib": after - before,
        "peak_memory_mib": peak - before,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.webshop_speed")
    parser.add_argument("--catalogue", default="builtin:1000", help="builtin:N or builtin:N:SEED")
    parser.add_argument("--data", help="folder with the original's data; needs nouns*.json in it")
    parser.add_argument("--difficulty", choices=("full", "small"), default="full")
    parser.add_argument("--compat", choices=("strict", "upstream"), default="strict")
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=_WINDOW_SECONDS, help="CPU time a window")
    options = parser.parse_args(argv)
    arguments: dict[str, Any] = {"difficulty": options.difficulty, "compat": options.compat}
    if options.compat == "upstream":
        arguments["max_steps"] = 15
    if options.data is None:
        arguments["catalogue"] = options.catalogue
    else:
        nouns = sorted(Path(options.data).glob("nouns*.json"))
        arguments |= {"data": options.data, "nouns": str(nouns[0]) if nouns else None}
    figures = measure(arguments, options.windows, options.seconds)
    print(f"arguments               {arguments}")
    print(f"build                   {figures['build_cpu_s']:.2f} CPU-seconds")
    print(f"steps per CPU-second    {figures['steps_per_cpu_s']:,.0f}")
    print(f"  searches not kept     {figures['steps_per_cpu_s_cold']:,.0f}")
    memory, peak = figures["memory_mib"], figures["peak_memory_mib"]
    print(f"memory                  {memory:.1f} MiB, peak {peak:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
