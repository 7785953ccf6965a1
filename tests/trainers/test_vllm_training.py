"""Training through vLLM's engine, and its own server behind the OpenAI policy."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).resolve().parents[2]
ENVIRON = os.environ | {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
# Nothing is bound to cores, and nothing is compiled.
SERVER = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TORCH_COMPILE_DISABLE": "1",
}


def python(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=ENVIRON | environ, capture_output=True, text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_two_steps_of_li2sao_and_a_resume(tmp_path: Path) -> None:
    from trainers.run_dir import read_metrics, read_status

    folder = tmp_path / "run"
    small = ["--trajectories", "16", "--eval-episodes", "4"]
    first = python(
        "-m", "trainers.li2sao", "--env", "AlfWorld-v0", "--policy", "vllm", "--model", "tiny",
        "--steps", "2", "--run-dir", str(folder), "--slots", "16", *small, cwd=tmp_path,
    )  # fmt: skip
    assert first.returncode == 0, first.stderr[-3000:]
    assert read_status(folder)["state"] == "finished"
    second = python("-m", "trainers.li2sao", "--resume", str(folder), "--steps", "3", cwd=tmp_path)
    assert second.returncode == 0, second.stderr[-3000:]
    rows = read_metrics(folder)
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    for row in rows[1:]:
        assert row["weight_version"] == row["step"]
        # The engine computes with the learner's new weights what the learner does.
        assert float(row["parity_max"]) < 1e-4
        assert float(row["logp_diff_max"]) < 1e-4
        assert row["batch_trajectories"] == 16


# vLLM's own server ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any, Path]]:
    """Address of a server of a random tiny model, the model, and its folder."""
    import toy_rounds

    from adapters.policies.tiny import TinyConfig, build_tiny

    folder = tmp_path_factory.mktemp("served")
    tokenizer = toy_rounds.build_model().tokenizer
    lm = build_tiny(tokenizer, TinyConfig(max_positions=512))
    lm.save(folder / "model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = open(folder / "log", "w")  # noqa: SIM115 - it outlives this function's body
    server = subprocess.Popen(
        [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model",
            str(folder / "model"), "--served-model-name", "toy", "--host", "127.0.0.1", "--port",
            str(port), "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "16",
            "--logprobs-mode", "processed_logprobs", "--distributed-executor-backend",
            "vllm.v1.executor.uniproc_executor.UniProcExecutor",
        ],
        env=ENVIRON | SERVER, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(3000):
            if server.poll() is not None:
                pytest.fail((folder / "log").read_text()[-3000:])
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        yield f"{address}/v1", lm, folder / "model"
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)  # whatever is left of it
        server.wait()
        log.close()


def test_an_evaluation_through_its_server(served: tuple[str, Any, Path], tmp_path: Path) -> None:
    url, _, _ = served
    out = tmp_path / "result.json"
    done = python(
        "-m", "agentgym", "eval", "--env", "toy_rounds:ToyRounds-v0", "--policy", "openai",
        "--base-url", url, "--model", "toy", "--out", str(out), "--temperature", "1.0",
        "--max-action-tokens", "8", "--action-format", "bare",
        cwd=tmp_path, PYTHONPATH=str(ROOT / "tests/support"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(out.read_text())
    numbers = result["summary"]["all"]
    assert result["complete"] is True
    assert (numbers["episodes"], numbers["lost"]) == (6, 0)
    assert numbers["prompt_tokens"]["total"] > numbers["action_tokens"]["total"] > 0
    low, high = numbers["success"]["interval"]
    assert 0 <= low <= numbers["success"]["mean"] <= high <= 1
    assert set(result["summary"]["by_type"]) == {"parity 0", "parity 1"}


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_its_token_ids_and_logprobs_are_exact(
    served: tuple[str, Any, Path], temperature: float
) -> None:
    import asyncio

    import torch

    from adapters.policies.openai_policy import open_policy
    from agentgym.policy import Request, Sampling

    url, lm, folder = served
    policy, tokenizer = open_policy(
        model="toy", base_url=url, api="tokens", tokenizer=str(folder), exact_logprobs=True
    )
    prompt = tokenizer.encode("round a of train", add_special_tokens=False)

    async def ask() -> list[Any]:
        sampling = Sampling(temperature, 12, lm.stop_token_ids())
        requests = [Request(prompt, sampling, (3, key)) for key in (0, 1, 2, 0)]
        try:
            return list(await asyncio.gather(*map(policy.generate, requests)))
        finally:
            await policy.aclose()

    answers = asyncio.run(ask())
    assert answers[0].token_ids == answers[3].token_ids
    for answer in answers:
        assert answer.trainable.all()
        ids = torch.tensor([[*prompt, *answer.token_ids]])
        mask = torch.zeros_like(ids, dtype=torch.bool)
        mask[:, len(prompt) :] = True
        with torch.no_grad():
            own = lm.token_logprobs(ids, mask, temperature=temperature).logprobs[mask]
        np.testing.assert_allclose(answer.logprobs, own.numpy(), atol=1e-4)
