"""Train several algorithms with several seeds, and draw their curves in one picture.

    python -m benchmarks.learning --out runs/learning [--env WebShop-v0] [--jobs 2]

Each run is ``python -m trainers.ALGORITHM --env ENV --seed SEED`` with nothing changed, in a folder
of its own; runs that are finished already are kept. Prints a table and writes
``OUT/comparison.svg`` and ``OUT/comparison.html``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainers.report import write_comparison
from trainers.run_dir import read_metrics, read_status


def train(algorithm: str, env: str, seed: int, out: Path) -> Path:
    """One run; its console goes to a file beside its folder."""
    folder = out / f"{algorithm}-{seed}"
    if folder.is_dir() and read_status(folder)["state"] == "finished":
        return folder
    where = ["--resume", str(folder)] if folder.is_dir() else ["--run-dir", str(folder)]
    command = [sys.executable, "-m", f"trainers.{algorithm}"]
    if "--run-dir" in where:
        command += ["--env", env, "--seed", str(seed)]
    with open(out / f"{algorithm}-{seed}.log", "a") as log:
        subprocess.run([*command, *where], stdout=log, stderr=log, check=True)
    return folder


def line(folder: Path) -> str:
    """Success before and after, sampled and greedy, and when the critic took over."""
    rows = read_metrics(folder)
    first, last = rows[0], rows[-1]
    split = next(name.split("/")[1] for name in last if name.startswith("eval/"))
    cells = [f"{folder.name:12}"]
    for mode in ("sampled", "greedy"):
        key = f"eval/{split}/{mode}/success"
        cells.append(f"{mode} {float(first[key]):6.1%} -> {float(last[key]):6.1%}")
    share = f"eval/{split}/sampled/first_result_share"
    if share in last:
        cells.append(f"first result {float(last[share]):5.1%}")
    if "switch_step" in last:
        cells.append(f"switch after step {last['switch_step']}, forced: {last['forced']}")
    cells.append(f"{float(last['elapsed_s']) / 60:.1f} min")
    return "  ".join(cells)


def gain(folders: list[Path]) -> str:
    """Mean over seeds of success after training."""
    cells = []
    for mode in ("sampled", "greedy"):
        values = []
        for folder in folders:
            last = read_metrics(folder)[-1]
            values += [
                float(value) for name, value in last.items() if name.endswith(f"/{mode}/success")
            ]
        cells.append(f"{mode} {statistics.mean(values):.1%}")
    return "mean: " + ", ".join(cells)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--env", default="WebShop-v0")
    parser.add_argument("--algorithms", nargs="+", default=["grpo", "lisao", "li2sao"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    pairs = [(name, seed) for name in options.algorithms for seed in options.seeds]
    # The first run makes the warm start that the others find in the cache.
    first = train(*_call(pairs[0], options))
    with ThreadPoolExecutor(options.jobs) as pool:
        rest = list(pool.map(lambda pair: train(*_call(pair, options)), pairs[1:]))
    folders = [first, *rest]
    for name in options.algorithms:
        own = [folder for folder in folders if folder.name.rpartition("-")[0] == name]
        print(*(line(folder) for folder in own), f"{name}  {gain(own)}", sep="\n")
    for path in write_comparison(folders, options.out / "comparison.svg"):
        print(path)
    return 0


def _call(pair: tuple[str, int], options: argparse.Namespace) -> tuple[str, str, int, Path]:
    return pair[0], options.env, pair[1], options.out


if __name__ == "__main__":
    raise SystemExit(main())
