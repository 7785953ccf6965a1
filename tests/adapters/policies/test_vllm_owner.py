"""A real engine whose owner is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm

pytest.importorskip("torch", reason="deselected anyway")

import toy_rounds  # noqa: E402


def runs(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from adapters.policies.causal_lm import CausalLM
from adapters.policies.vllm_policy import VllmPolicy

async def main():
    lm = CausalLM.load(sys.argv[1], device="cpu")
    policy = VllmPolicy.around(lm, max_context=64, model=sys.argv[1])
    await policy.start()
    Path(sys.argv[2]).write_text(" ".join(map(str, policy.pids)))
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_engines_end_with_the_process_that_they_work_for(tmp_path: Path) -> None:
    folder = str(toy_rounds.build_model().save(tmp_path / "model"))
    (tmp_path / "killed.py").write_text(_KILLED)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "killed.py"), folder, str(tmp_path / "pids")],
        cwd=Path(__file__).parents[3], capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    (pid,) = map(int, (tmp_path / "pids").read_text().split())
    for _ in range(1200):
        if not runs(pid):
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the engine lives on without anybody to work for")
