"""Two evaluations never write one file, and a dead one holds nobody back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import toy_text
from chat_server import Answer, ChatServer
from evaluating import doors, lines, run

import agentgym
from agentgym.cli.evaluate import EvalConfig, evaluate, main
from agentgym.run_lock import RunLocked

agentgym.register(toy_text.SPEC)

SUPPORT = Path(toy_text.__file__).parent


@contextmanager
def evaluating(server: ChatServer, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An evaluation in another process."""
    code = (
        "import sys, agentgym, toy_text\nfrom agentgym.cli.evaluate import main\n"
        "agentgym.register(toy_text.SPEC)\nsys.exit(main(sys.argv[1:]))"
    )
    words = ["--env", "ToyDoors-v0", "--policy", "openai", "--model", "m", "--slots", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words, "--base-url", server.url, "--out", str(out)],
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_living_evaluation_is_left_alone_and_a_killed_one_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.json"
    journal = tmp_path / "r.episodes.jsonl"

    def stuck(number: int, body: dict[str, Any]) -> Answer:
        """Hangs once an episode is written."""
        answer = doors(number, body)
        if journal.exists() and len(journal.read_bytes().splitlines()) > 1:
            answer.hang = 600
        return answer

    with ChatServer(stuck) as server, evaluating(server, out) as process:
        while not journal.exists() or len(lines(journal)) < 2:
            assert process.poll() is None
            time.sleep(0.01)
        before = journal.read_bytes()
        with ChatServer(doors) as other:
            for restart in (False, True):
                with pytest.raises(RunLocked, match=f"in use by process {process.pid}"):
                    run(other, out, restart=restart)
            words = ["--env", "ToyDoors-v0", "--policy", "random", "--out", str(out)]
            assert main(words) == 2
            told = capsys.readouterr().err
            assert "wait for it to end, or choose another --out" in told
            with pytest.raises(RunLocked):
                run(other, tmp_path / "r")  # has the same file of episodes
            assert not other.seen
        assert journal.read_bytes() == before
        process.send_signal(signal.SIGKILL)
        process.wait()
    with ChatServer(doors) as server:
        result = run(server, out)
    assert result["complete"] is True
    assert lines(journal)[: len(before.splitlines())] == lines(journal)[:2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.episodes.jsonl", "r.json"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own answer to SIGINT, which programs in the background are started without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_script_hears_ctrl_c(tmp_path: Path) -> None:
    def say(text: str) -> None:
        if text.startswith("1/"):
            os.kill(os.getpid(), signal.SIGINT)

    config = EvalConfig(env="ToyDoors-v0", policy="oracle", out=tmp_path / "r.json")
    with pytest.raises(KeyboardInterrupt):
        evaluate(config, say)
    assert len(lines(tmp_path / "r.episodes.jsonl")) == 1 + 1
    result = evaluate(config, lambda text: None)
    assert (result["complete"], len(result["episodes"])) == (True, 5)


def test_without_a_name_every_evaluation_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        evaluate(EvalConfig(env="ToyDoors-v0", policy="random", episodes=1), lambda text: None)
    assert len(list((tmp_path / "runs").glob("eval-ToyDoors-v0-random-*.json"))) == 3
