"""The benchmark runs and measures; how fast is for the benchmark to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import alfworld_speed

CHECKOUT = Path(alfworld_speed.__file__).resolve().parents[1]


def test_embedded_games():
    figures = alfworld_speed.measure(None, "valid_seen", 1, 0.02, original_games=0)
    assert figures["worlds"] == 200
    assert figures["vector"] > 0
    assert figures["cold_reset_s"] > figures["warm_reset_s"] > 0


@pytest.mark.data
def test_command(official):
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.alfworld_speed", "--data", str(official)),
            *("--windows", "1", "--seconds", "0.1"),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=CHECKOUT,
    )
    for line in (
        "games in memory         140",
        "simulator",
        "environment",
        "vector, 256",
        "cold",
        "warm",
    ):
        assert line in finished.stdout


@pytest.mark.data
def test_memory_of_140_games(official):
    """Growth of the peak beyond a process that has imported numpy and gymnasium, in MiB."""
    program = (
        "import gymnasium, numpy, random, resource\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "before = peak()\n"
        "import agentgym\n"
        "from benchmarks.alfworld_speed import environment\n"
        f"env = gymnasium.make('AlfWorld-v0', data={str(official)!r}, split='valid_seen')\n"
        "source = env.unwrapped.source\n"
        "ids = source.tasks.ids('valid_seen')\n"
        "worlds = [source.world(task_id) for task_id in ids]\n"
        "env.reset(seed=0)\n"
        "environment(env, 1.0, random.Random(0))\n"
        "print(len(worlds), peak() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=CHECKOUT
    )
    count, grown = done.stdout.split()
    assert int(count) == 140
    assert float(grown) < 60


@pytest.mark.data
@pytest.mark.textworld
def test_both_engines(official):
    figures = alfworld_speed.measure(str(official), "valid_seen", 1, 0.05, original_games=1)
    assert figures["original"] > 0
    assert figures["original_reset_s"] > 0
    assert figures["simulator"] > figures["original"]
