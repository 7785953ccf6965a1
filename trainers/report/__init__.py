"""Reports: one HTML file a run, and pictures that compare runs.

``python -m trainers.report RUN_DIR`` writes ``RUN_DIR/report.html``; with several run directories
it draws their curves in one picture.
"""

from __future__ import annotations

import os
from pathlib import Path

from agentgym.files import write_atomically
from trainers.report.comparison import write_comparison
from trainers.report.data import load_run
from trainers.report.page import render_run

__all__ = ["write_comparison", "write_report"]


def write_report(
    run_dir: str | os.PathLike[str], out: str | os.PathLike[str] | None = None
) -> Path:
    """Write a run's report: one self-contained HTML file.

    It works at any moment of a run, also while it goes on or after it was killed.

    Args:
        run_dir: The run directory.
        out: File to write; by default ``report.html`` in the run directory.

    Returns:
        The file written.

    Raises:
        RunDirError: There is no run in the folder.
    """
    target = Path(run_dir) / "report.html" if out is None else Path(out)
    return write_atomically(target, render_run(load_run(run_dir)))
