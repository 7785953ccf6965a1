"""Command line of the reports."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from trainers.report import write_comparison, write_report
from trainers.run_dir import RunDirError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report of one run, or the comparison of several; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.report",
        description="One run directory: write its report.html. Several: draw their curves in one "
        "picture (an .svg and an .html file); runs of one name are seeds of one curve.",
    )
    parser.add_argument("run_dir", nargs="+", type=Path, help="run directory")
    parser.add_argument(
        "--out",
        type=Path,
        help="file to write (default: report.html in the run directory, or comparison.html beside "
        "the first one)",
    )
    parser.add_argument("--title", help="heading of a comparison (default: the environment)")
    parser.add_argument("--split", help="evaluation split that a comparison shows")
    parser.add_argument("--mode", default="sampled", help="evaluation mode (default: sampled)")
    options = parser.parse_args(argv)
    runs: list[Path] = options.run_dir
    try:
        if len(runs) == 1:
            written = [write_report(runs[0], options.out)]
        else:
            written = write_comparison(
                runs,
                options.out or runs[0].parent / "comparison.html",
                title=options.title,
                split=options.split,
                mode=options.mode,
            )
    except (RunDirError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
