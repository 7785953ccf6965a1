"""``python -m agentgym eval``: what is played, written, kept and taken up again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import toy_text
from chat_server import Answer, ChatServer

import agentgym
from agentgym.cli import policies
from agentgym.cli.evaluate import EvalConfig, evaluate, main
from agentgym.evaluation import EpisodeResult
from agentgym.policy import Completion, FinishReason, Request

agentgym.register(toy_text.SPEC)


def failing_metrics(results: list[EpisodeResult]) -> dict[str, float]:
    """An environment's own measure, for the hook."""
    return {"mean_locked": sum(len(item.details["locked"]) for item in results) / len(results)}


MEASURED = dataclasses.replace(
    toy_text.SPEC, id="ToyDoorsMeasured-v0", metrics="test_evaluate_metrics:measure"
)


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def doors(number: int, body: dict[str, Any]) -> Answer:
    """A model that tries the doors one after another."""
    said = sum(message["role"] == "assistant" for message in body["messages"])
    return Answer(f"<think>hm</think><action>open {said + 1}</action>", prompt_tokens=10)


def run(server: ChatServer, out: Path, **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "env": "ToyDoors-v0",
        "policy": "openai",
        "model": "m",
        "base_url": server.url,
        "out": out,
        "slots": 2,
    }
    return evaluate(EvalConfig(**(settings | changes)), say=lambda text: None)


# The command line -------------------------------------------------------------------------------


def test_the_command_writes_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "result.json"
    with ChatServer(doors) as server:
        words = ["--env", "ToyDoors-v0", "--policy", "openai", "--base-url", server.url]
        words += ["--model", "m", "--out", str(out), "--env-arg", "doors=3"]
        assert main(words) == 0
        sent = len(server.seen)
    result = read(out)
    assert result["complete"] is True
    assert result["split"] == "test"
    assert result["env_args"] == {"doors": 3}
    numbers = result["summary"]["all"]
    assert (numbers["episodes"], numbers["tasks"], numbers["lost"]) == (5, 5, 0)
    assert numbers["success"]["mean"] == 1.0
    assert 0.5 < numbers["success"]["interval"][0] < 0.6
    assert numbers["turns"]["mean"] == sent / 5
    assert numbers["prompt_tokens"]["total"] == 10 * sent
    assert numbers["action_tokens"]["total"] == 2 * sent
    assert list(result["summary"]["by_type"]) == ["doors"]
    assert [row["group_id"] for row in result["episodes"]] == [f"e{n}" for n in range(5)]
    shown = capsys.readouterr().out
    assert "5/5 played, 5 solved" in shown
    assert "100.0%" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "Nowhere-v0"], "unknown environment"),
        (["--env", "ToyDoors-v0", "--policy", "oracle", "--split", "x"], "x"),
        (["--env", "ToyDoors-v0", "--policy", "oracle", "--episodes", "0"], "at least 1"),
        (["--env", "ToyDoors-v0", "--policy", "oracle", "--env-arg", "doors"], "KEY=VALUE"),
        (["--env", "ToyDoors-v0", "--policy", "oracle", "--env-arg", "gates=1"], "gates"),
        (["--env", "ToyDoors-v0", "--policy", "openai"], "--model"),
        (["--env", "ToyDoors-v0", "--policy", "openai", "--model", "m"], "--base-url"),
    ],
)
def test_what_cannot_work_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--out", str(tmp_path / "r.json")]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_is_no_result_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--env", "ToyDoors-v0", "--policy", "random", "--out", str(tmp_path)]
    assert main(words) == 2
    assert "is a folder; name a file" in capsys.readouterr().err
    assert not tmp_path.with_name(f"{tmp_path.name}.episodes.jsonl").exists(), "nothing is played"


def test_names_with_dots_have_episodes_of_their_own(tmp_path: Path) -> None:
    for name in ("model-2.5", "model-2.7"):
        evaluate(
            EvalConfig(env="ToyDoors-v0", policy="random", out=tmp_path / name, episodes=1),
            say=lambda text: None,
        )
        assert read(tmp_path / name)["episodes_file"] == f"{name}.episodes.jsonl"
        assert len(lines(tmp_path / f"{name}.episodes.jsonl")) == 2


def test_no_key_is_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-hush-0123")
    with ChatServer(doors) as server:
        run(server, tmp_path / "r.json", key_variable="SOME_KEY", episodes=1)
        assert server.seen[0].headers["Authorization"] == "Bearer sk-hush-0123"
    with pytest.raises(ValueError, match="holds a user or a password"):
        evaluate(
            EvalConfig(
                env="ToyDoors-v0", policy="openai", model="m", out=tmp_path / "s.json",
                base_url="http://me:hush@127.0.0.1/v1",
            )
        )  # fmt: skip
    assert read(tmp_path / "s.json")["server"] == "http://127.0.0.1/v1"
    for path in tmp_path.iterdir():
        assert "hush" not in path.read_text("utf-8")


# Scripts ----------------------------------------------------------------------------------------


def test_the_oracle_and_chance_need_no_model(tmp_path: Path) -> None:
    found = {}
    for name in ("oracle", "random"):
        config = EvalConfig(
            env="ToyDoors-v0", policy=name, out=tmp_path / f"{name}.json",  # type: ignore[arg-type]
            env_arg=("doors=9", "max_steps=3"),
        )  # fmt: skip
        found[name] = evaluate(config, say=lambda text: None)["summary"]["all"]
    assert found["oracle"]["success"]["mean"] == 1.0
    assert found["oracle"]["turns"]["mean"] == 1.0
    assert found["random"]["success"]["mean"] < 1.0
    assert found["random"]["stop_reasons"]["max_turns"] >= 1
    again = evaluate(
        EvalConfig(env="ToyDoors-v0", policy="random", out=tmp_path / "again.json",
                   env_arg=("doors=9", "max_steps=3")),
        say=lambda text: None,
    )  # fmt: skip
    assert again["summary"]["all"] == found["random"]


def test_an_environment_without_an_oracle_says_so(tmp_path: Path) -> None:
    plain = dataclasses.replace(toy_text.SPEC, id="ToyPlain-v0", oracle=None)
    agentgym.register(plain)
    with pytest.raises(ValueError, match="ToyPlain-v0 has no oracle"):
        evaluate(EvalConfig(env="ToyPlain-v0", policy="oracle", out=tmp_path / "r.json"))


# Going on ---------------------------------------------------------------------------------------


def test_a_stopped_evaluation_goes_on(tmp_path: Path) -> None:
    """The same numbers as in one go, and no finished episode is played twice."""

    def breaking(after: int) -> Callable[[int, dict[str, Any]], Answer]:
        return lambda number, body: (
            doors(number, body) if number < after else Answer(status=404, error={"message": "gone"})
        )

    with ChatServer(doors) as server:
        whole = run(server, tmp_path / "whole.json")
        needed = len(server.seen)
    out = tmp_path / "parts.json"
    with ChatServer(breaking(needed // 2)) as server:
        with pytest.raises(agentgym.policy.PolicyError, match="404"):
            run(server, out, slots=1)
        first = len(server.seen) - 1
    part = read(out)
    assert part["complete"] is False
    assert 0 < part["summary"]["all"]["episodes"] < 5
    journal = out.with_suffix(".episodes.jsonl")
    # A kill in the middle of a line: it is dropped, and its episode played again.
    journal.write_bytes(journal.read_bytes()[:-40])
    with ChatServer(doors) as server:
        result = run(server, out)
        second = len(server.seen)
    assert result["complete"] is True
    assert result["summary"] == whole["summary"]
    assert first + second >= needed
    with ChatServer(doors) as server:
        again = run(server, out, slots=7, retries=1)
        assert not server.seen, "all is played: nothing is asked for"
    assert again["summary"] == whole["summary"]


def test_other_settings_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    with ChatServer(doors) as server:
        run(server, out, episodes=2)
        with pytest.raises(ValueError, match=r"temperature: 0\.0, now 0\.5"):
            run(server, out, temperature=0.5)
        more = run(server, out, episodes=4)
        assert more["summary"]["all"]["episodes"] == 4
        fresh = run(server, out, temperature=0.5, episodes=1, restart=True)
        assert fresh["summary"]["all"]["episodes"] == 1
    out.with_suffix(".episodes.jsonl").write_text("nonsense\n")
    with ChatServer(doors) as server, pytest.raises(ValueError, match="no list of episodes"):
        run(server, out)


def test_another_number_of_tasks_keeps_no_row_of_another_task(tmp_path: Path) -> None:
    """The drawn order depends on the number: what is summed up is what a fresh run plays."""
    with ChatServer(doors) as server:
        fresh = {count: run(server, tmp_path / f"{count}.json", episodes=count) for count in (2, 4)}
        out = tmp_path / "grown.json"
        for count in (2, 4, 2):
            found = run(server, out, episodes=count)
            assert found["complete"] is True
            assert [row["task_id"] for row in found["episodes"]] == [
                row["task_id"] for row in fresh[count]["episodes"]
            ]
            assert found["summary"] == fresh[count]["summary"]


def test_episodes_lost_to_faults_are_played_again(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    state = {"broken": True}

    def answer(number: int, body: dict[str, Any]) -> Answer:
        asked = str(body["messages"])
        if state["broken"] and "test-3" in asked:
            return Answer(status=500, error={"message": "down"})
        return doors(number, body)

    with ChatServer(answer) as server:
        first = run(server, out, retries=0)
        state["broken"] = False
        (lost,) = [row for row in first["episodes"] if row["stop_reason"] == "cancelled"]
        assert "answers 500" in lost["error"]
        assert first["complete"] is False
        assert first["summary"]["all"]["lost"] == 1
        second = run(server, out, retries=0)
    assert second["complete"] is True
    assert second["summary"]["all"]["lost"] == 0


# What is kept -----------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["numbers", "text", "tokens"])
def test_how_much_of_an_episode_is_kept(keep: str, tmp_path: Path) -> None:
    with ChatServer(doors) as server:
        run(server, tmp_path / "r.json", keep=keep, episodes=1)
    _, row = lines(tmp_path / "r.episodes.jsonl")
    assert row["success"] is True
    assert ("steps" in row) == (keep != "numbers")
    if keep == "numbers":
        return
    step = row["steps"][0]
    assert step["action"] == "open 1"
    assert step["text"] == "<think>hm</think><action>open 1</action>"
    assert ("action_ids" in step) == (keep == "tokens")
    if keep == "tokens":
        assert len(step["action_ids"]) == len(step["logprobs"]) == len(step["versions"])
        assert step["trainable"] == [False] * len(step["action_ids"])
    assert "steps" not in read(tmp_path / "r.json")["episodes"][0]


def test_an_environment_may_add_measures_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    import types

    module = types.ModuleType("test_evaluate_metrics")
    module.measure = failing_metrics  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "test_evaluate_metrics", module)
    agentgym.register(MEASURED)
    with ChatServer(doors) as server:
        result = run(server, tmp_path / "r.json", env="ToyDoorsMeasured-v0")
    expected = sum(row["turns"] - 1 for row in result["episodes"]) / 5
    assert result["metrics"] == {"mean_locked": expected}


# Counting tokens --------------------------------------------------------------------------------


def test_the_meter_counts_by_episode() -> None:
    import asyncio

    import numpy as np

    class Fixed:
        version, max_context = 4, 99

        def __init__(self) -> None:
            self.calls: list[str] = []

        async def generate(self, request: Request) -> Completion:
            n = len(request.token_ids)
            details = {"usage": {"prompt_tokens": 50, "completion_tokens": 3}} if n > 5 else {}
            if n == 7:
                details["error"] = "it broke"  # type: ignore[assignment]
            return Completion(
                (1, 2), np.zeros(2, np.float32), np.zeros(2, np.int32), FinishReason.STOP,
                details=details,
            )  # fmt: skip

        def release(self, session: str) -> None:
            self.calls.append(session)

        async def load_weights(self, state: Any, version: int) -> None:
            self.calls.append(f"load {version}")

        async def aclose(self) -> None:
            self.calls.append("close")

    async def use() -> None:
        fixed = Fixed()
        meter = policies.Meter(fixed)
        for session, n in (("a/0#1", 3), ("a/0#1", 6), ("a/1#2", 4), ("b/c/0#3", 7)):
            await meter.generate(Request(list(range(n)), agentgym.policy.Sampling(), (), session))
        assert meter.take("a", 0) == (53, 5, None)
        assert meter.take("a", 0) == (0, 0, None)
        assert meter.take("a", 1) == (4, 2, None)
        assert meter.take("b/c", 0) == (50, 3, "it broke")
        meter.release("a/0#1")
        await meter.load_weights({}, 5)
        await meter.aclose()
        assert fixed.calls == ["a/0#1", "load 5", "close"]
        assert (meter.version, meter.max_context) == (4, 99)

    asyncio.run(use())


def test_unknown_policies_are_named() -> None:
    with pytest.raises(ValueError, match="unknown policy 'x'; known: openai, torch, vllm, oracle"):
        policies.open_policy("x", {})
    with pytest.raises(ValueError, match="unknown script"):
        policies.actor("x", toy_text.SPEC)
