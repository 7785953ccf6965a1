"""Credit is assigned without torch."""

import subprocess
import sys


def test_importing_advantages_imports_no_torch() -> None:
    code = (
        "import sys, trainers.advantages, trainers.staleness\n"
        "loaded = [m for m in ('torch', 'transformers', 'vllm') if m in sys.modules]\n"
        "print(','.join(loaded))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
