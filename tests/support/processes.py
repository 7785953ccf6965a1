"""Python code in a process of its own, for tests of what an import does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent

#: For processes that start vLLM's engines.
VLLM_ENVIRON = os.environ | {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def run_python(
    code: str, *, path: tuple[str | Path, ...] = (), cwd: str | Path = SUPPORT, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run ``code`` with ``path`` first on the path; it sees the helpers beside this file."""
    folders = [*map(str, path), str(SUPPORT)]
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)} | environ,
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )


def run_ok(code: str, **kwargs: object) -> str:
    """What ``code`` printed; its errors are this test's failure."""
    done = run_python(code, **kwargs)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def last_error(code: str, **kwargs: object) -> str:
    """The last line of the errors of ``code``, which has to fail."""
    done = run_python(code, **kwargs)  # type: ignore[arg-type]
    assert done.returncode != 0, f"it printed {done.stdout!r} and ended well"
    return done.stderr.strip().splitlines()[-1]
