"""The benchmark runs and measures; how fast is for the benchmark to say."""

import subprocess
import sys
from pathlib import Path

from benchmarks import webshop_speed

CHECKOUT = Path(webshop_speed.__file__).resolve().parents[1]


def test_measure_reports_all_figures():
    figures = webshop_speed.measure({"catalogue": "builtin:90"}, windows=1, seconds=0.05)
    assert set(figures) == {
        "build_cpu_s",
        "steps_per_cpu_s",
        "steps_per_cpu_s_cold",
        "memory_mib",
        "peak_memory_mib",
    }
    assert figures["steps_per_cpu_s"] > 0
    assert figures["steps_per_cpu_s_cold"] > 0


def test_command():
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.webshop_speed", "--catalogue", "builtin:90"),
            *("--windows", "1", "--seconds", "0.05"),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=CHECKOUT,
    )
    assert "steps per CPU-second" in finished.stdout
    assert "memory" in finished.stdout


def test_memory_of_the_default_shop():
    """A default shop, played for a while, takes less than 60 MB beyond its bare requirements."""
    program = (
        "import gymnasium, numpy, random, resource;"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024;"
        "before = peak();"
        "import agentgym;"
        "from benchmarks.webshop_speed import play;"
        "env = gymnasium.make('WebShop-v0'); env.reset(seed=0);"
        "play(env, 1.0, random.Random(0), cold=False);"
        "print(peak() - before)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=CHECKOUT,
    )
    assert float(finished.stdout) < 60
