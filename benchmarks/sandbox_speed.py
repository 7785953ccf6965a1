"""Latency of one command in a sandbox, by backend.

    python -m benchmarks.sandbox_speed [--backends namespaces bwrap local] [--runs 100]

For each backend: a one-shot Python text, again with pauses between (as between a model's turns,
when the next sandbox is made ahead), a one-shot command, and a command in a workspace. Wall time
in milliseconds at the 10th, 50th, 90th and 99th percentile. A bare fork beside them says how fast
the machine is now: other work on it makes every figure larger.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence

from agentgym.sandbox import Limits, Sandbox, SandboxUnavailable, open_sandbox

_LIMITS = Limits(seconds=120.0)


def measure(call: Callable[[], object], runs: int, pause: float = 0.0) -> list[float]:
    """Sorted wall times of ``runs`` calls, in milliseconds, after one that does not count."""
    call()
    times = []
    for _ in range(runs):
        if pause:
            time.sleep(pause)
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return sorted(times)


def fork() -> None:
    """Fork, end, and be waited for."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def line(name: str, times: Sequence[float]) -> str:
    """One row of the table."""
    at = [times[min(len(times) - 1, int(len(times) * part))] for part in (0.1, 0.5, 0.9, 0.99)]
    return f"{name:34s}" + "".join(f"{value:9.2f}" for value in at)


def show(sandbox: Sandbox, runs: int) -> None:
    """Print the rows of one backend."""
    few = max(1, runs // (1 if sandbox.backend == "namespaces" else 5))
    with sandbox.session() as session:
        rows: list[tuple[str, Callable[[], object], int, float]] = [
            ("Python text", lambda: sandbox.run("print(6 * 7)"), few, 0.0),
            ("Python text, after a pause", lambda: sandbox.run("print(6 * 7)"), few, 0.1),
            ("command", lambda: sandbox.run(argv=["/bin/true"]), few, 0.0),
            ("command in a workspace", lambda: session.run(["/bin/true"]), runs, 0.0),
        ]
        for name, call, count, pause in rows:
            print(line(f"{sandbox.backend}: {name}", measure(call, count, pause)), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backends", nargs="+", default=["namespaces", "bwrap", "docker", "local"])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--preload", nargs="*", default=[], help="modules of the fork server")
    options = parser.parse_args(arguments)
    print(f"{'milliseconds':34s}" + "".join(f"{name:>9s}" for name in ("p10", "p50", "p90", "p99")))
    print(line("(a bare fork)", measure(fork, options.runs)))
    for backend in options.backends:
        try:
            sandbox = open_sandbox(backend, limits=_LIMITS, preload=options.preload)
        except SandboxUnavailable as error:
            print(f"{backend:34s} {error}"[:100])
            continue
        with sandbox:
            show(sandbox, options.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
