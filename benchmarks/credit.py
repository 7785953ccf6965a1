"""GRPO, GiGPO and BLPO beside each other: the same tasks, the same number of episodes.

    python -m benchmarks.credit --out runs/credit [--seeds 0 1 2 3 4] [--jobs 2]

Each run is ``python -m trainers.ALGORITHM --env ENV --seed SEED`` with the environment's flags of
:data:`SHORT`, in a folder of its own; runs that are finished already are kept. Prints, for each
environment and algorithm, held-out success with its 95 % interval over seeds, the area under its
curve, the mean length of solved episodes, and what each algorithm gains over the first one with the
same seed; draws the curves in one picture.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from agentgym.files import write_atomically
from agentgym.statistics import mean_interval
from benchmarks.learning import splits_of, train
from trainers.report.chart import Chart, Line
from trainers.report.comparison import compose, mean_line
from trainers.run_dir import read_config, read_metrics

#: Flags of all runs on an environment: a third of the trainers' own steps, so that thirty runs take
#: an hour, and no penalty for refused commands, which helps none of the three in so few steps.
SHORT = {
    "AlfWorld-v0": "--steps 40 --decay-steps 40 --eval-every 10 --eval-also valid_unseen"
    " --invalid-penalty 0",
    "WebShop-v0": "--steps 50 --decay-steps 50 --eval-every 10",
}
#: What has to be the same for a comparison: the preset's values that spend episodes and tokens.
BUDGET = (
    "trajectories",
    "steps",
    "group_size",
    "eval_episodes",
    "minibatches",
    "learning_rate",
    "invalid_penalty",
)


def curve(folder: Path, split: str, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """Trajectories sampled so far, and held-out success, at each evaluation."""
    key = f"eval/{split}/{mode}/success"
    points = [
        (float(row.get("trajectories", 0)), float(row[key]))
        for row in read_metrics(folder)
        if key in row
    ]
    return np.array([x for x, _ in points]), np.array([y for _, y in points])


def area(folder: Path, split: str, mode: str) -> float:
    """Mean height of the curve: its area over the trajectories, divided by their number."""
    x, y = curve(folder, split, mode)
    return float(np.sum((x[1:] - x[:-1]) * (y[1:] + y[:-1]) / 2) / (x[-1] - x[0]))


def last(folder: Path, split: str, mode: str, quantity: str) -> float:
    """A quantity of the last evaluation; NaN where it is undefined."""
    value = read_metrics(folder)[-1].get(f"eval/{split}/{mode}/{quantity}", math.nan)
    return float(value)


def told(values: Sequence[float], scale: float = 100.0, unit: str = "%", sign: str = "") -> str:
    """Mean and 95 % interval over seeds."""
    finite = [scale * value for value in values if math.isfinite(value)]
    if not finite:
        return "-"
    mean, low, high = mean_interval(finite)
    interval = f" [{low:{sign}.1f}, {high:{sign}.1f}]" if math.isfinite(low) else ""
    return f"{mean:{sign}.1f}{unit}{interval}"


def table(env: str, runs: dict[str, list[Path]]) -> Iterator[str]:
    """The numbers of one environment."""
    reference = next(iter(runs))
    for split in splits_of(runs[reference][0]):
        for mode in ("sampled", "greedy"):
            start = [last_of_first(folder, split, mode) for folder in runs[reference]]
            yield f"{env}, {split}, {mode}: before training {told(start)}"
            for name, folders in runs.items():
                success = [last(folder, split, mode, "success") for folder in folders]
                length = [last(folder, split, mode, "turns_solved") for folder in folders]
                cells = [
                    f"  {name:8}",
                    f"success {told(success)}",
                    f"solved in {told(length, 1.0, ' turns')}",
                ]
                if len(curve(folders[0], split, mode)[0]) > 2:
                    areas = [area(folder, split, mode) for folder in folders]
                    cells.append(f"area {told(areas)}")
                if name != reference:
                    base = [last(folder, split, mode, "success") for folder in runs[reference]]
                    gain = [a - b for a, b in zip(success, base, strict=True)]
                    cells.append(f"over {reference} {told(gain, unit=' points', sign='+')}")
                yield ", ".join(cells)


def last_of_first(folder: Path, split: str, mode: str) -> float:
    """Success before training."""
    return float(read_metrics(folder)[0].get(f"eval/{split}/{mode}/success", math.nan))


def chart(env: str, runs: dict[str, list[Path]], mode: str) -> Chart:
    """Held-out success against trajectories, mean and range over seeds."""
    split = splits_of(next(iter(runs.values()))[0])[0]
    thin, means = [], []
    for color, (name, folders) in enumerate(runs.items()):
        curves = [curve(folder, split, mode) for folder in folders]
        if len(curves) == 1:
            x, y = curves[0]
            means.append(Line(x.tolist(), y.tolist(), name, color))
            continue
        thin += [Line(x.tolist(), y.tolist(), "", color, faint=True) for x, y in curves]
        means.append(mean_line(curves, name, color))
    label = f"{env}, {split}, {mode}: trajectories"
    return Chart(f"Held-out success, {label}", [*thin, *means], x_label=label, percent=True)


def check_budgets(runs: dict[str, list[Path]]) -> None:
    """Refuse to compare runs that spent different budgets.

    Raises:
        ValueError: Naming the setting and its values.
    """
    configs = {name: read_config(folders[0])["config"] for name, folders in runs.items()}
    for setting in BUDGET:
        values = {name: config.get(setting) for name, config in configs.items()}
        if len(set(values.values())) > 1:
            raise ValueError(f"budgets differ in {setting}: {values}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--envs", nargs="+", default=["AlfWorld-v0", "WebShop-v0"])
    parser.add_argument("--algorithms", nargs="+", default=["grpo", "gigpo", "blpo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--picture", type=Path, help="default: OUT/credit.svg")
    parser.add_argument("--mode", default="sampled", choices=["sampled", "greedy"])
    parser.add_argument(
        "--flags",
        nargs="+",
        default=[],
        metavar="ALGORITHM='--flag value'",
        help="flags of one algorithm's runs; all='...' for every run",
    )
    options = parser.parse_args(argv)
    flags = {name: shlex.split(text) for name, _, text in (f.partition("=") for f in options.flags)}
    unknown = set(flags) - {*options.algorithms, "all"}
    if unknown:
        parser.error(f"--flags names {sorted(unknown)}; known are {options.algorithms} and all")
    charts = []
    for env in options.envs:
        out = options.out / env
        out.mkdir(parents=True, exist_ok=True)
        calls = [(name, seed) for seed in options.seeds for name in options.algorithms]

        def call(pair: tuple[str, int], env: str = env, out: Path = out) -> Path:
            own = [*SHORT.get(env, "").split(), *flags.get("all", ()), *flags.get(pair[0], ())]
            return train(pair[0], env, pair[1], out, own)

        first = call(calls[0])  # makes the warm start that the others find in the cache
        with ThreadPoolExecutor(options.jobs) as pool:
            folders = [first, *pool.map(call, calls[1:])]
        runs: dict[str, list[Path]] = {name: [] for name in options.algorithms}
        for (name, _), folder in zip(calls, folders, strict=True):
            runs[name].append(folder)
        check_budgets(runs)
        print(*table(env, runs), sep="\n", flush=True)
        charts.append(chart(env, runs, options.mode))
    count = len(options.seeds)
    key = [(f"{name} ({count} seeds)", i, "solid") for i, name in enumerate(options.algorithms)]
    picture = options.picture or options.out / "credit.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    print(write_atomically(picture, compose(charts, key, "Held-out success")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
