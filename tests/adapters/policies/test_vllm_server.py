"""The OpenAI policy and ``python -m agentgym eval`` against vLLM's own server on CPU."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import VLLM_ENVIRON

from agentgym.statistics import mean_interval, wilson_interval

pytestmark = pytest.mark.vllm

# Nothing is bound to cores, and nothing is compiled.
SERVER = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TORCH_COMPILE_DISABLE": "1",
}
EPISODES = 24
WORLD = ("difficulty=small", "max_steps=9")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any, Path]]:
    """Address of a server of the tiny model of AlfWorld-v0, the model, and its folder."""
    from adapters.policies.models import resolve_model

    folder = tmp_path_factory.mktemp("served")
    lm = resolve_model("tiny", "AlfWorld-v0", {"difficulty": "small"})
    lm.save(folder / "model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = open(folder / "log", "w")  # noqa: SIM115 - it outlives this function's body
    server = subprocess.Popen(
        [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model",
            str(folder / "model"), "--served-model-name", "tiny-alfworld", "--host", "127.0.0.1",
            "--port", str(port), "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "16",
            "--logprobs-mode", "processed_logprobs", "--distributed-executor-backend",
            "vllm.v1.executor.uniproc_executor.UniProcExecutor",
        ],
        env=VLLM_ENVIRON | SERVER, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
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


def evaluation(out: Path, *words: str, world: tuple[str, ...] = WORLD) -> dict[str, Any]:
    """The result file of the command, as a user calls it."""
    command = [
        sys.executable, "-m", "agentgym", "eval", "--env", "AlfWorld-v0", "--env-arg", *world,
        "--episodes", str(EPISODES), "--max-action-tokens", "16", "--action-format", "bare",
        "--out", str(out), *words,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=out.parent, env=VLLM_ENVIRON, capture_output=True, text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return result


def test_an_evaluation_of_alfworld_through_its_server(
    served: tuple[str, Any, Path], tmp_path: Path
) -> None:
    url, _, folder = served
    out = tmp_path / "result.json"
    through = ("--policy", "openai", "--base-url", url, "--model", "tiny-alfworld")
    result = evaluation(out, *through)
    assert (result["env"], result["policy"], result["server"]) == ("AlfWorld-v0", "openai", url)
    assert result["complete"] is True
    rows = result["episodes"]
    summary = result["summary"]
    numbers = summary["all"]
    assert (numbers["episodes"], numbers["lost"], numbers["tasks"]) == (EPISODES, 0, EPISODES)
    # What is summed up is what was played.
    won = [row["success"] for row in rows]
    assert numbers["success"]["mean"] == sum(won) / EPISODES
    assert numbers["success"]["interval"] == list(wilson_interval(sum(won) / EPISODES, EPISODES))
    for quantity in ("score", "turns", "prompt_tokens", "action_tokens"):
        values = [float(row[quantity]) for row in rows]
        mean, low, high = mean_interval(values)
        assert numbers[quantity]["mean"] == pytest.approx(mean)
        assert numbers[quantity]["interval"] == pytest.approx([low, high])
        assert not quantity.endswith("tokens") or numbers[quantity]["total"] == sum(values)
    assert 0 < sum(won) < EPISODES, "a tiny model solves some of the small games"
    assert all(row["turns"] == 9 for row in rows if not row["success"])
    assert all(1 <= row["turns"] <= 9 and row["action_tokens"] > row["turns"] for row in rows)
    assert all(row["prompt_tokens"] > row["action_tokens"] for row in rows)
    # By type of task, of which there are six.
    by_type = Counter(row["task_type"] for row in rows)
    assert len(by_type) >= 4
    assert {name: part["episodes"] for name, part in summary["by_type"].items()} == by_type
    for name, part in summary["by_type"].items():
        own = [row["success"] for row in rows if row["task_type"] == name]
        assert part["success"]["mean"] == sum(own) / len(own)
        assert part["success"]["interval"] == list(wilson_interval(sum(own) / len(own), len(own)))
    # The same model in this process begins every episode with the same words. (What follows may
    # differ: the server's text has a blank in front, and the next prompt is made of text.)
    evaluation(tmp_path / "local.json", "--policy", "torch", "--model", str(folder))
    assert first_words(out) == first_words(tmp_path / "local.json")
    # All is played: the same command asks the server for nothing.
    again = evaluation(out, *through[:3], "http://127.0.0.1:9/v1", *through[4:])
    assert again["summary"] == summary


def first_words(out: Path) -> dict[str, str]:
    """What was said first in each episode."""
    _, *rows = out.with_suffix(".episodes.jsonl").read_text("utf-8").splitlines()
    assert len(rows) == EPISODES
    return {row["group_id"]: row["steps"][0]["text"].strip() for row in map(json.loads, rows)}


@pytest.mark.data
def test_official_games_through_its_server(
    served: tuple[str, Any, Path], tmp_path: Path, data_dir: Path
) -> None:
    """Their words are other ones than the tiny model knows: what counts is that they are played."""
    import tarfile

    url, _, _ = served
    with tarfile.open(data_dir / "alfworld" / "official_games_1340.tar.xz") as archive:
        archive.extractall(tmp_path / "games", filter="data")
    result = evaluation(
        tmp_path / "result.json", "--policy", "openai", "--base-url", url, "--model",
        "tiny-alfworld", world=(f"data={tmp_path / 'games'}", "max_steps=3"),
    )  # fmt: skip
    numbers = result["summary"]["all"]
    assert result["complete"] is True
    assert (numbers["episodes"], numbers["tasks"]) == (EPISODES, EPISODES)
    assert all(row["turns"] == 3 for row in result["episodes"] if not row["success"])
    assert sum(part["episodes"] for part in result["summary"]["by_type"].values()) == EPISODES
    assert numbers["prompt_tokens"]["total"] > numbers["action_tokens"]["total"] > 0
    low, high = numbers["success"]["interval"]
    assert 0 <= low <= numbers["success"]["mean"] <= high < 0.5
    assert math.isfinite(numbers["score"]["mean"])


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_its_token_ids_and_logprobs_are_exact(
    served: tuple[str, Any, Path], temperature: float
) -> None:
    import torch

    from adapters.policies.openai_policy import open_policy
    from agentgym.policy import Request, Sampling

    url, lm, folder = served
    policy, tokenizer = open_policy(
        model="tiny-alfworld", base_url=url, api="tokens", tokenizer=str(folder),
        exact_logprobs=True,
    )  # fmt: skip
    prompt = tokenizer.encode("You are in the middle of a room.", add_special_tokens=False)

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
