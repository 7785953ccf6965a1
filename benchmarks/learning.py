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
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainers.report import write_comparison
from trainers.run_dir import read_metrics, read_status


def train(algorithm: str, env: str, seed: int, out: Path, flags: Sequence[str] = ()) -> Path:
    """One run; its console goes to a file beside its folder.

    Args:
        algorithm: Module under ``trainers``.
        env: Environment.
        seed: Seed.
        out: Folder of all runs.
        flags: Further flags of a run that is begun.
    """
    folder = out / f"{algorithm}-{seed}"
    if folder.is_dir() and read_status(folder)["state"] == "finished":
        return folder
    where = ["--resume", str(folder)] if folder.is_dir() else ["--run-dir", str(folder)]
    command = [sys.executable, "-m", f"trainers.{algorithm}"]
    if "--run-dir" in where:
        command += ["--env", env, "--seed", str(seed), *flags]
    with open(out / f"{algorithm}-{seed}.log", "a") as log:
        subprocess.run([*command, *where], stdout=log, stderr=log, check=True)
    return folder


def splits_of(folder: Path) -> list[str]:
    """Splits that a run evaluated at its end, the one of its curve first."""
    rows = read_metrics(folder)
    named = [{name.split("/")[1] for name in row if name.startswith("eval/")} for row in rows]
    often = Counter(split for splits in named for split in splits)
    return sorted(named[-1], key=lambda split: (-often[split], split))


def lines(folder: Path) -> Iterator[str]:
    """For each split, success before and after, sampled and greedy; then how it went."""
    rows = read_metrics(folder)
    first, last = rows[0], rows[-1]
    for split in splits_of(folder):
        cells = [f"{folder.name:12}", f"{split:12}"]
        for mode in ("sampled", "greedy"):
            key = f"eval/{split}/{mode}/success"
            cells.append(f"{mode} {float(first[key]):6.1%} -> {float(last[key]):6.1%}")
        invalid = f"eval/{split}/sampled/invalid_rate"
        cells.append(f"inadmissible {float(first[invalid]):5.1%} -> {float(last[invalid]):5.1%}")
        share = f"eval/{split}/sampled/first_result_share"
        if share in last:
            cells.append(f"first result {float(last[share]):5.1%}")
        yield "  ".join(cells)
    cells = [f"{folder.name:12}", f"{float(last['elapsed_s']) / 60:.1f} min"]
    if "switch_step" in last:
        cells.append(f"switch after step {last['switch_step']}, forced: {last['forced']}")
    yield "  ".join(cells)


def means(name: str, folders: list[Path]) -> Iterator[str]:
    """Means over seeds, before and after: success, and success by type of task."""
    ends = [(rows[0], rows[-1]) for rows in map(read_metrics, folders)]
    for split in splits_of(folders[0]):
        for mode in ("sampled", "greedy"):
            start = f"eval/{split}/{mode}/success"
            keys = [key for key in ends[0][1] if key == start or key.startswith(start + "/")]
            cells = []
            for key in keys:
                before, after = (
                    statistics.mean(float(end[index][key]) for end in ends) for index in (0, 1)
                )
                what = key.removeprefix(start).lstrip("/") or "success"
                cells.append(f"{what} {before:.1%} -> {after:.1%}")
            yield f"{name:12}  {split} {mode}, mean of {len(folders)}: " + ", ".join(cells)


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
        for folder in own:
            print(*lines(folder), sep="\n")
        print(*means(name, own), sep="\n")
    for path in write_comparison(folders, options.out / "comparison.svg"):
        print(path)
    return 0


def _call(pair: tuple[str, int], options: argparse.Namespace) -> tuple[str, str, int, Path]:
    return pair[0], options.env, pair[1], options.out


if __name__ == "__main__":
    raise SystemExit(main())
