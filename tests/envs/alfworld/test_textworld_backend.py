"""The original engine in its process: what it is asked, what it answers, and how it ends."""

from __future__ import annotations

import os
import sys

import gymnasium as gym
import pytest
from alfworld_room import problem

from envs.alfworld import textworld_backend
from envs.alfworld.simulator import NOTHING, Sim
from envs.alfworld.textworld_backend import TextWorldSim

#: A worker that answers as the real one does, with nothing behind it.
STUB = """
import json, os, sys
answer = lambda content: print(json.dumps(content), flush=True)
answer({START})
for line in sys.stdin:
    request = json.loads(line)
    command = request.get("command", "")
    if command == "die":
        print("the reason", file=sys.stderr)
        os._exit(7)
    if command == "hang up":
        os.close(1)
        continue
    if command == "fail":
        answer({"error": "Traceback\\nKeyError: 'x'"})
        continue
    seen = f"{os.getpid()} {command}" if command else request["game"]["name"]
    answer({"observation": seen, "admissible": ["look", "win"], "won": command == "win"})
"""
GAME = {"pddl_domain": "", "grammar": '"task": [{"rhs": "x"}]', "pddl_problem": "", "name": "g"}


@pytest.fixture
def stub(tmp_path, monkeypatch):
    def use(start='{"ready": True}'):
        worker = tmp_path / "worker.py"
        worker.write_text(STUB.replace("{START}", start))
        monkeypatch.setattr(textworld_backend, "_WORKER", worker)
        monkeypatch.setattr(sys, "version_info", (3, 12, 0))

    return use


def test_conversation_with_a_worker(stub):
    stub()
    engine = TextWorldSim()
    assert engine.reset(GAME) == "g"
    assert engine.admissible() == ("look", "win")
    assert engine.is_admissible(" look\n")
    assert not engine.is_admissible("Look")
    assert engine.step(" look ") == f"{engine.pid}  look "
    assert (engine.accepted, engine.command, engine.moves, engine.won) == (True, "look", 1, False)
    assert engine.step("é\ud800\n") == f"{engine.pid} é\ud800\n"
    assert (engine.accepted, engine.moves) == (False, 1)
    engine.step("win")
    assert engine.won
    process = engine._process
    engine.close()
    assert process.poll() is not None
    assert engine.pid is None
    assert engine.reset(GAME) == "g"
    engine.close()


def test_the_worker_is_replaced_after_some_games(stub, monkeypatch):
    stub()
    monkeypatch.setattr(textworld_backend, "_GAMES_PER_WORKER", 2)
    engine = TextWorldSim()
    pids = []
    for _ in range(5):
        engine.reset(GAME)
        pids.append(engine.pid)
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    engine.close()


def test_failures_of_the_engine_are_told(stub, monkeypatch):
    stub()
    engine = TextWorldSim()
    engine.reset(GAME)
    with pytest.raises(RuntimeError, match="TextWorld failed:\nTraceback\nKeyError: 'x'"):
        engine.step("fail")
    with pytest.raises(RuntimeError, match="the engine is closed"):
        engine.step("look")
    engine.reset(GAME)
    with pytest.raises(RuntimeError, match="ended with exit status 7\nthe reason"):
        engine.step("die")
    engine.reset(GAME)
    monkeypatch.setattr(textworld_backend, "_PATIENCE", 0.1)
    with pytest.raises(RuntimeError, match="ended with exit status -9"):
        engine.step("hang up")
    assert engine.pid is None


def test_a_missing_package_names_the_extra(stub):
    stub('{"missing": "textworld"}')
    with pytest.raises(ImportError, match=r"'textworld' is not .*agentgym-suite\[alfworld\]"):
        TextWorldSim()
    stub('{"error": "OSError: libdownward.so"}')
    with pytest.raises(RuntimeError, match=r"libdownward\.so"):
        TextWorldSim()


def test_a_python_it_does_not_run_on(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 13, 1))
    with pytest.raises(RuntimeError, match=r"needs Python 3\.11 or 3\.12.*on Python 3\.13"):
        TextWorldSim()


@pytest.mark.textworld
def test_what_the_engine_cannot_load_is_told():
    engine = TextWorldSim()
    game = {"pddl_domain": "(define", "grammar": GAME["grammar"], "pddl_problem": problem()}
    with pytest.raises(RuntimeError, match="TextWorld failed"):
        engine.reset(game)
    assert engine.pid is None


@pytest.mark.textworld
@pytest.mark.data
def test_environment_with_the_original_engine(official, capfd):
    home = os.environ.get("ALFWORLD_DATA")
    arguments = list(sys.argv)
    env = gym.make("AlfWorld-v0", data=official, split="valid_seen", engine="textworld").unwrapped
    native = gym.make("AlfWorld-v0", data=official, split="valid_seen").unwrapped
    observation, info = env.reset(seed=2)
    assert (observation, info["details"].pop("engine")) == (native.reset(seed=2)[0], "textworld")
    expected = native._info(native._last, None)
    expected["details"].pop("engine")
    assert info == expected
    solution = native.sim.world.walkthrough
    for command in ["dance", *solution]:
        result, expected = env.step(command), native.step(command)
        assert result[:4] == expected[:4]
        details = result[4].pop("details"), expected[4].pop("details")
        assert result[4] == expected[4]
        assert details[0]["reason"] == ("not_admissible" if command == "dance" else None)
        assert details[0]["moves"] == details[1]["moves"]
    assert result[2] is True
    with pytest.raises(RuntimeError, match="no native state"):
        env.clone_state()
    pid = env._original.pid
    env.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    # Nothing of what TextWorld does to its process happens to this one.
    assert sys.argv == arguments
    assert os.environ.get("ALFWORLD_DATA") == home
    assert capfd.readouterr().out == ""
    assert "textworld" not in sys.modules


@pytest.mark.textworld
@pytest.mark.data
def test_both_engines_in_the_older_wording(games):
    task_id = games.tasks.ids("valid_seen")[5]
    engine, sim = TextWorldSim("put"), Sim(games.world(task_id), "put")
    assert engine.reset(games.game(task_id)) == sim.reset()
    told = set()
    for command in sim.world.walkthrough:
        if command.startswith("move "):
            command = command.replace("move ", "put ").replace(" to ", " in/on ")
        for text in (command, "help"):
            said = engine.step(text)
            assert said == sim.step(text)
            assert engine.admissible() == sim.admissible()
            told.add(said.split(" ", 3)[2] if said != NOTHING else said)
    assert sim.won
    assert engine.won
    assert {"at", NOTHING} <= told
    engine.close()
