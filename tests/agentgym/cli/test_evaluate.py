"""``python -m agentgym eval``: what is played, written, kept and taken up again."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_text
from chat_server import Answer, ChatServer
from evaluating import doors, lines, read, run

import agentgym
from agentgym.cli import policies
from agentgym.cli.evaluate import EvalConfig, evaluate, main
from agentgym.cli.result_file import result_of, row_of
from agentgym.evaluation import EpisodeResult
from agentgym.info import StopReason
from agentgym.policy import Completion, FinishReason, Request
from agentgym.trajectory import EpisodeSpec, Trajectory

agentgym.register(toy_text.SPEC)


def mean_locked(results: list[EpisodeResult]) -> dict[str, float]:
    """An environment's own measures."""
    locked = sum(len(item.details["locked"]) for item in results) / len(results)
    return {"mean_locked": locked, "none": float("nan")}


MEASURED = dataclasses.replace(
    toy_text.SPEC, id="ToyDoorsMeasured-v0", metrics="test_evaluate_metrics:measure"
)


# The command line -------------------------------------------------------------------------------


def test_the_command_writes_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "result.json"
    with ChatServer(doors) as server:
        words = ["--env", "ToyDoors-v0", "--policy", "openai", "--base-url", server.url]
        words += ["--model", "m", "--env-arg", "doors=3", "--out", str(out)]
        words += ["--env-arg", "max_steps=9"]  # flags that come again add to what they say
        assert main(words) == 0
        sent = len(server.seen)
    result = read(out)
    assert result["complete"] is True
    assert result["split"] == "test"
    assert result["env_args"] == {"doors": 3, "max_steps": 9}
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


class Telling(toy_text.ToyDoors):
    """Doors that tell what JSON has no words for."""

    def _details(self) -> dict[str, Any]:
        odd = {"loss": float("nan"), "best": np.float32("inf"), (1, 2): {3}, "kind": object()}
        return super()._details() | odd | {"self": odd, "count": np.int64(4)}


class Broken(toy_text.ToyDoors):
    """Doors whose second task breaks them."""

    def step(self, action: str) -> Any:
        observation, reward, *rest = super().step(action)
        if self.task_id == "test-1":
            reward = float("nan")
        if self.task_id == "test-2":
            raise OSError("the hinge")
        return observation, reward, *rest


def failing_oracle(env: Any, rng: Any, noise: float) -> Any:
    """Knows no way in one task."""
    if env.unwrapped.task_id == "test-3":
        raise LookupError("no way")
    yield from env.unwrapped.reference()


@pytest.fixture
def odd_doors(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("test_evaluate_doors")
    module.Telling, module.Broken = Telling, Broken  # type: ignore[attr-defined]
    module.demonstrate = failing_oracle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "test_evaluate_doors", module)
    entry = toy_text.SPEC
    telling = dataclasses.replace(
        entry, id="ToyTelling-v0", env="test_evaluate_doors:Telling",
        diagnostics={"loss": "loss", "count": "count"},
    )  # fmt: skip
    broken = dataclasses.replace(
        entry, id="ToyBroken-v0", env="test_evaluate_doors:Broken",
        oracle="test_evaluate_doors:demonstrate",
    )  # fmt: skip
    agentgym.register(telling)
    agentgym.register(broken)


@pytest.mark.parametrize("policy", ["openai", "oracle"])
@pytest.mark.usefixtures("odd_doors")
def test_whatever_an_environment_tells_costs_no_episode(policy: str, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    changes: dict[str, Any] = {"env": "ToyTelling-v0", "policy": policy, "episodes": 2}
    if policy == "oracle":
        changes |= {"model": "tiny", "base_url": None}
    with ChatServer(doors) as server:
        result = run(server, out, **changes)
        assert run(server, out, **changes)["summary"] == result["summary"], "read as written"
    assert result["complete"] is True
    _, *rows = lines(tmp_path / "r.episodes.jsonl")
    assert len(rows) == 2
    for row in rows:
        details = row["details"]
        assert (details["loss"], details["best"], details["(1, 2)"]) == ("NaN", "Infinity", [3])
        assert (details["count"], details["self"]["loss"]) == (4, "NaN")
    numbers = result["summary"]["all"]
    assert numbers["count"]["mean"] == 4.0
    assert numbers["loss"]["mean"] is None
    strict(out)


def strict(path: Path) -> None:
    """Read it as those do that know no NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    json.loads(path.read_text("utf-8"), parse_constant=refuse)


@pytest.mark.usefixtures("odd_doors")
def test_faults_cost_a_script_their_own_episode_alone(tmp_path: Path) -> None:
    config = EvalConfig(env="ToyBroken-v0", policy="oracle", out=tmp_path / "r.json")
    result = evaluate(config, say=lambda text: None)
    errors = {row["task_id"]: row["error"] for row in result["episodes"]}
    assert "not a finite number" in errors.pop("test-1")
    assert errors.pop("test-2") == "OSError: the hinge"
    assert errors.pop("test-3") == "LookupError: no way"
    assert set(errors.values()) == {None}
    numbers = result["summary"]["all"]
    assert (numbers["episodes"], numbers["lost"]) == (2, 3)
    assert numbers["stop_reasons"] == {"infra_error": 3, "solved": 2}
    assert result["complete"] is False


def test_a_return_beyond_all_numbers_is_null(tmp_path: Path) -> None:
    spec = EpisodeSpec("t", "test", 1, "e0", 0)
    trajectory = Trajectory(spec=spec, task_id="t", task_type="x", stop_reason=StopReason.SOLVED)
    row = row_of(
        trajectory,
        dataclasses.replace(EpisodeResult.of(trajectory, 0, 0), reward=float("inf")),
        {},
        "numbers",
    )
    assert row["reward"] is None
    rows = [json.loads(json.dumps(row, allow_nan=False))]
    result = result_of({"env": "ToyDoors-v0"}, toy_text.SPEC, None, 1, rows)
    assert result["summary"]["all"]["reward"]["mean"] is None
    assert result["episodes"][0]["reward"] is None
    json.dumps(result, allow_nan=False)


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


def test_more_episodes_keep_those_that_were_played(tmp_path: Path) -> None:
    """What is summed up is what a fresh run plays, and nothing is played twice."""
    out = tmp_path / "grown.json"
    fresh = {}
    for count in (2, 4):
        with ChatServer(doors) as server:
            fresh[count] = run(server, tmp_path / f"{count}.json", episodes=count)
            needed = len(server.seen)
    with ChatServer(doors) as server:
        for count in (2, 4, 2):
            found = run(server, out, episodes=count)
            assert found["complete"] is True
            assert [row["task_id"] for row in found["episodes"]] == [
                row["task_id"] for row in fresh[count]["episodes"]
            ]
            assert found["summary"] == fresh[count]["summary"]
        assert len(server.seen) == needed
    assert len(lines(out.with_suffix(".episodes.jsonl"))) == 1 + 4


def test_rows_of_other_tasks_stand_for_nothing(tmp_path: Path) -> None:
    """Data of the same name may list other tasks the next time."""
    out = tmp_path / "r.json"
    with ChatServer(doors) as server:
        whole = run(server, out, episodes=2)
        journal = out.with_suffix(".episodes.jsonl")
        first, row, other = lines(journal)
        row["task_id"] = "gone"
        journal.write_text("".join(json.dumps(item) + "\n" for item in (first, row, other)))
        before = len(server.seen)
        again = run(server, out, episodes=2)
        assert before < len(server.seen) < 2 * before
    assert again["summary"] == whole["summary"]


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


def test_lost_episodes_are_told_by_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    down = Answer(status=500, error={"message": "down"})
    with ChatServer(lambda number, body: down) as server:
        words = ["--env", "ToyDoors-v0", "--policy", "openai", "--model", "m", "--base-url"]
        words += [server.url, "--episodes", "2", "--retries", "0", "--out", str(tmp_path / "r")]
        assert main(words) == 1
    told = capsys.readouterr().err
    assert "error: 2 of 2 episodes were lost to faults, the last one to: " in told
    assert "answers 500" in told
    assert read(tmp_path / "r")["complete"] is False


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


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module that measures the environment of :data:`MEASURED`."""
    module = types.ModuleType("test_evaluate_metrics")
    module.measure = mean_locked  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "test_evaluate_metrics", module)
    agentgym.register(MEASURED)
    return module


@pytest.mark.usefixtures("measured")
def test_an_environment_may_add_measures_of_its_own(tmp_path: Path) -> None:
    with ChatServer(doors) as server:
        result = run(server, tmp_path / "r.json", env="ToyDoorsMeasured-v0")
    expected = sum(row["turns"] - 1 for row in result["episodes"]) / 5
    assert result["metrics"] == {"mean_locked": expected, "none": "NaN"}
    strict(tmp_path / "r.json")


def test_measures_that_fail_cost_nothing_else(tmp_path: Path, measured: types.ModuleType) -> None:
    def failing(results: list[EpisodeResult]) -> dict[str, float]:
        raise ZeroDivisionError("no doors")

    measured.measure = failing  # type: ignore[attr-defined]
    with ChatServer(doors) as server, pytest.warns(UserWarning, match="measures of ToyDoorsMeas"):
        result = run(server, tmp_path / "r.json", env="ToyDoorsMeasured-v0")
    assert (result["metrics"], result["metrics_error"]) == (None, "ZeroDivisionError: no doors")
    assert (result["complete"], len(result["episodes"])) == (True, 5)


def test_odd_ends_of_answers_are_told(tmp_path: Path) -> None:
    """Cut off by a filter, an answer is no whole one."""

    def answer(number: int, body: dict[str, Any]) -> Answer:
        made = doors(number, body)
        if len(body["messages"]) == 2:
            made.finish = "content_filter"
        return made

    with ChatServer(answer) as server:
        result = run(server, tmp_path / "r.json")
    assert [row["odd_ends"] for row in result["episodes"]] == [{"content_filter": 1}] * 5
    assert [row["format_errors"] for row in result["episodes"]] == [1] * 5


# Counting tokens --------------------------------------------------------------------------------


def test_the_meter_counts_by_episode() -> None:
    class Fixed:
        version, max_context = 4, 99

        def __init__(self) -> None:
            self.calls: list[str] = []

        async def generate(self, request: Request) -> Completion:
            n = len(request.token_ids)
            details: dict[str, Any] = {}
            if n > 5:
                details["usage"] = {"prompt_tokens": 50, "completion_tokens": 3}
            if n == 7:
                details |= {"error": "it broke", "finish_reason": "weary"}
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
        assert meter.take("a", 0) == policies.Used(53, 5)
        assert meter.take("a", 0) == policies.Used()
        assert meter.take("a", 1) == policies.Used(4, 2)
        assert meter.take("b/c", 0) == policies.Used(50, 3, "it broke", Counter(weary=1))
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
