"""Judge the reference solutions of a data set, and print how many pass and how long that takes.

    python -m benchmarks.code_references --data FILE [--data FILE ...]

``FILE`` is whatever ``gym.make("CodeReasoning-v0", data=FILE)`` reads: HumanEval, MBPP, one's own.
Without ``--data``, 300 generated functions are judged. Exits with 1 if a solution does not pass, or
if code that leaves early passes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from agentgym.sandbox import Level, Limits, Sandbox, shared_sandbox
from envs.code_reasoning.dataset import load
from envs.code_reasoning.generator import Generator
from envs.code_reasoning.scoring import Status, score
from envs.code_reasoning.tasks import CodeTask

_LIMITS = Limits(seconds=60.0, cpu_seconds=15, memory=512 << 20, output=4 << 10, flood=4 << 20)


def tasks_of(path: str | None) -> list[CodeTask]:
    """The tasks of a file that come with a solution, or generated ones."""
    if path is None:
        generator = Generator()
        return [generator.make("train", n).task(f"train-{n}") for n in range(300)]
    loaded = load(path)
    return [task for split in loaded.values() for task in split if task.reference]


def run(name: str, tasks: Sequence[CodeTask], sandbox: Sandbox) -> bool:
    """Judge every solution, and every tenth task's early exit; print the outcome."""
    passed, paid = 0, 0
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for number, task in enumerate(tasks):
        start = time.perf_counter()
        verdict = score(task, "\n".join(task.reference), sandbox, _LIMITS)
        seconds[bool(task.checks)].append(time.perf_counter() - start)
        passed += verdict.status is Status.OK
        if verdict.status is not Status.OK:
            print(f"  {task.id}: {verdict}")
        if number % 10 == 0:
            paid += score(task, "import os\nos._exit(0)", sandbox, _LIMITS).passed
    print(f"{name}: {passed}/{len(tasks)} reference solutions pass; early exits paid: {paid}")
    for by_code, times in seconds.items():
        if times:
            times.sort()
            kind = "tests that are code" if by_code else "tests by value"
            p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
            print(
                f"  {kind}: {len(times)} tasks, wall ms p50 {p50 * 1e3:.1f}  p99 {p99 * 1e3:.1f}"
                f"  max {times[-1] * 1e3:.1f}"
            )
    return passed == len(tasks) and not paid


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", action="append", help="file of tasks; may be given repeatedly")
    arguments = parser.parse_args()
    sandbox = shared_sandbox("auto", minimum=Level.FULL, packages=False, workers=8)
    good = [run(path or "generated", tasks_of(path), sandbox) for path in arguments.data or [None]]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
