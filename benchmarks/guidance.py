"""Does guidance help where plain GRPO finds few successes? Adaptive against fixed against none.

    python -m benchmarks.guidance --out runs/guidance

Trains ``trainers.g2rpoa`` on the same warm start with each kind of guidance and several seeds,
nothing else changed; runs that are finished already are kept. Prints held-out success of every run
and the differences between kinds, paired by seed, with their 95 % intervals (Student's t over
seeds). Writes ``OUT/comparison.svg`` and ``.html``. Exits with 1 unless adaptive guidance is better
than none in the mode asked for: unless the interval of the difference lies above 0.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from agentgym.statistics import mean_interval
from trainers.command_line import parse_args
from trainers.g2rpoa import G2RPOA, G2RPOAConfig
from trainers.loop import run
from trainers.report import write_comparison
from trainers.run_dir import read_metrics, read_status

KINDS = ("adaptive", "fixed", "linear", "none")


def train(kind: str, seed: int, out: Path, flags: Sequence[str]) -> Path:
    """One run, in this process."""
    folder = out / f"{kind}-{seed}"
    if folder.is_dir() and read_status(folder)["state"] == "finished":
        return folder
    argv = ["--env", "MathReasoning-v0", *flags, "--guidance", kind, "--seed", str(seed)]
    config = parse_args(G2RPOAConfig, argv, "python -m trainers.g2rpoa")
    if folder.is_dir():
        config = parse_args(G2RPOAConfig, ["--resume", str(folder)], "python -m trainers.g2rpoa")
    else:
        config = dataclasses.replace(config, run_dir=folder)
    status = run(G2RPOA, config)
    if status:
        raise SystemExit(status)
    return folder


def ends(folder: Path, mode: str) -> tuple[float, float]:
    """Success before and after training, in an evaluation of that mode."""
    rows = read_metrics(folder)
    key = next(name for name in rows[-1] if name.endswith(f"/{mode}/success"))
    return float(rows[0][key]), float(rows[-1][key])


def train_success(folder: Path) -> tuple[float, float]:
    """Success of free rollouts, and share of groups without a signal, over all steps."""
    rows = read_metrics(folder)[1:]
    free = [float(row["success_unguided"]) for row in rows if "success_unguided" in row]
    flat = [float(row["frac_zero_variance"]) for row in rows]
    mean = sum(free) / len(free) if free else math.nan
    return mean, sum(flat) / len(flat)


def difference(left: Sequence[float], right: Sequence[float]) -> tuple[float, float, float]:
    """Mean of the paired differences and their interval; its ends are NaN for one pair."""
    return mean_interval([one - other for one, other in zip(left, right, strict=True)])


def verdict(adaptive: Sequence[float], none: Sequence[float]) -> bool:
    """Whether adaptive guidance is better than none: the whole interval lies above 0."""
    return difference(adaptive, none)[1] > 0


def table(found: dict[str, list[Path]], mode: str) -> list[str]:
    """Lines of text: every kind, then every difference."""
    out = []
    after = {kind: [ends(folder, mode)[1] for folder in own] for kind, own in found.items()}
    for kind, own in found.items():
        before = [ends(folder, mode)[0] for folder in own]
        free, flat = zip(*(train_success(folder) for folder in own), strict=True)
        mean, low, high = mean_interval(after[kind])
        each = " ".join(f"{value:.1%}" for value in after[kind])
        out.append(
            f"{kind:9} {mode}: {sum(before) / len(before):.1%} -> {mean:.1%} "
            f"[{low:.1%}, {high:.1%}]  ({each})  free rollouts {sum(free) / len(free):.1%}, "
            f"groups without a signal {sum(flat) / len(flat):.1%}"
        )
    pairs = [("adaptive", "none"), ("fixed", "none"), ("linear", "none"), ("adaptive", "fixed")]
    for one, other in pairs:
        if one in after and other in after:
            mean, low, high = difference(after[one], after[other])
            out.append(
                f"{one} - {other}, {mode}: {100 * mean:+.1f} points "
                f"[{100 * low:+.1f}, {100 * high:+.1f}], {len(after[one])} pairs"
            )
    return out


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["adaptive", "fixed", "none"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--mode", choices=["sampled", "greedy"], default="sampled")
    parser.add_argument(
        "flags", nargs="*", help="further flags of trainers.g2rpoa, after --, the same for all"
    )
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Path]] = {kind: [] for kind in options.kinds}
    for seed in options.seeds:  # seed by seed: whatever ends early leaves whole pairs
        for kind in options.kinds:
            found[kind].append(train(kind, seed, options.out, options.flags))
    for mode in ("sampled", "greedy"):
        print(*table(found, mode), sep="\n")
    folders = [folder for own in found.values() for folder in own]
    names = [kind for kind, own in found.items() for _ in own]
    title = "MathReasoning-v0, kinds of guidance"
    for path in write_comparison(folders, options.out / "comparison.svg", title=title, names=names):
        print(path)
    if "adaptive" in found and "none" in found:
        after = {
            kind: [ends(folder, options.mode)[1] for folder in found[kind]]
            for kind in ("adaptive", "none")
        }
        return 0 if verdict(after["adaptive"], after["none"]) else 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
