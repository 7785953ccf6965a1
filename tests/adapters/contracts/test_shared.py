"""What adapters share."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
from adapter_battery import ENV_ID, LEDGER, SPEC, BatteryDoors
from templates import char_tokenizer

import adapters.versions
import agentgym
from adapters.hashed_text import HashedTextEnv
from adapters.lockstep import play
from adapters.sequences import episode_tokens
from adapters.single import Answer, EpisodePlayer
from adapters.task_rows import read_prompt, task_rows
from adapters.versions import require
from agentgym.guarded import env_maker
from agentgym.policy import FinishReason
from agentgym.prompts import make_renderer
from agentgym.registry import load
from agentgym.timed import CheckedMaker
from agentgym.trajectory import EpisodeSpec, Trajectory, Turn

agentgym.register(SPEC)


@pytest.mark.parametrize(
    ("found", "fits"),
    [("1.16.0", True), ("1.16.3.post1", True), ("1.16", True), ("1.17.0rc1", False), ("2", False),
     ("1.9", False)],
)  # fmt: skip
def test_versions_outside_the_tested_range_are_refused(found, fits, monkeypatch):
    monkeypatch.setattr(adapters.versions, "version", lambda name: found)
    if fits:
        require("trl", "1.16", "1.17", "trl")
        return
    with pytest.raises(ImportError, match=rf"trl {found} .* >=1\.16,<1\.17; .*suite\[trl\]"):
        require("trl", "1.16", "1.17", "trl")


def test_a_library_that_is_missing_is_named_with_its_extra():
    with pytest.raises(ImportError, match=r"'no-such-thing' is not installed.*suite\[trl\]"):
        require("no-such-thing", "1", "2", "trl")
    with pytest.raises(ImportError, match="its own instructions"):
        require("no-such-thing", "1", "2", None)


def test_rows_name_tasks_and_seeds_and_come_again():
    rows = task_rows(ENV_ID, 5, split="test", seed=3)
    assert rows == task_rows(ENV_ID, 5, split="test", seed=3)
    assert rows != task_rows(ENV_ID, 5, split="test", seed=4)
    assert [row["seed"] for row in rows] == [3, 4, 5, 6, 7]
    for row in rows:
        assert row["task_id"].startswith("test-")
        assert json.loads(row["prompt"]) == {"task_id": row["task_id"], "seed": row["seed"]}


def lockstep(actions, rows, **options):
    tokenizer, batches = char_tokenizer("compact"), []

    def generate(prompts):
        batches.append(len(prompts))
        done = [ids.count(tokenizer.stop_id) for ids in prompts]
        return [[*tokenizer.encode(actions[n]), tokenizer.stop_id] for n in done], options.get(
            "logprobs"
        )

    renderer = make_renderer("conversation", tokenizer, load(SPEC.prompt)("bare"))
    found, known = play(
        rows, env_maker(ENV_ID), renderer, generate, stop_token_ids=[tokenizer.stop_id],
        turn_tokens=20, episode_tokens=options.get("episode_tokens"),
    )  # fmt: skip
    return found, known, batches


def test_all_episodes_that_run_are_answered_at_once():
    rows = [{"task_id": f"train-{n}", "seed": n} for n in range(5)]
    found, known, batches = lockstep(("open 1", "open 2", "open 3", "open 4"), rows)
    assert [item.stop_reason for item in found] == ["solved"] * 5
    lengths = [len(item.turns) for item in found]
    assert batches == [sum(length > n for length in lengths) for n in range(max(lengths))]
    assert known is False
    assert [item.task_id for item in found] == [row["task_id"] for row in rows]


def test_an_error_of_the_generation_ends_the_collection():
    def fail(prompts):
        raise MemoryError("no room")

    tokenizer = char_tokenizer("compact")
    renderer = make_renderer("conversation", tokenizer, load(SPEC.prompt)("bare"))
    rows = [{"task_id": "train-0", "seed": 0}] * 3
    with pytest.raises(MemoryError, match="no room"):
        play(
            rows, env_maker(ENV_ID), renderer, fail, stop_token_ids=[1], turn_tokens=4,
            episode_tokens=None,
        )  # fmt: skip


def turn(context, action, extends):
    count = len(action)
    return Turn(
        np.array(context, np.int32), extends, np.array(action, np.int32),
        np.full(count, -0.5, np.float32), np.full(count, 7, np.int32), np.ones(count, bool),
        FinishReason.STOP,
    )  # fmt: skip


def test_an_episode_becomes_one_sequence():
    episode = Trajectory(
        EpisodeSpec("t", "train", 0, "g"), [turn([1, 2], [3], False), turn([4], [5, 6], True)]
    )
    tokens = episode_tokens(episode, 99)
    assert tokens.prompt_ids == [1, 2]
    assert tokens.response_ids == [3, 4, 5, 6]
    assert tokens.response_mask == [1, 0, 1, 1]
    assert tokens.logprobs == [-0.5, 0.0, -0.5, -0.5]
    assert tokens.versions == [7, -1, 7, 7]
    empty = episode_tokens(Trajectory(EpisodeSpec("t", "train", 0, "g")), 99)
    assert (empty.prompt_ids, empty.response_ids, empty.response_mask) == ([99], [99], [0])
    episode.turns[1].extends = False
    with pytest.raises(ValueError, match=r"turn 1 .* 'conversation'"):
        episode_tokens(episode, 99)


def test_wrong_arguments_are_told_before_episodes_are_lost_to_them():
    for _ in range(2):
        with pytest.raises(TypeError, match="'nope'"):
            EpisodePlayer(ENV_ID, char_tokenizer("compact"), turn_tokens=8, max_tokens=99, nope=1)
    EpisodePlayer(ENV_ID, char_tokenizer("compact"), turn_tokens=8, max_tokens=99, deadline=5.0)
    with pytest.raises(KeyError, match="unknown environment 'Nowhere-v0'"):
        CheckedMaker("Nowhere-v0")


@pytest.mark.parametrize(
    ("row", "kind"), [({"task_id": "x"}, KeyError), ({"split": "x", "seed": 1}, ValueError)]
)
def test_a_task_that_there_is_not_is_told_and_not_played(row, kind):
    player = EpisodePlayer(ENV_ID, char_tokenizer("compact"), turn_tokens=8, max_tokens=99)
    with pytest.raises(kind, match=r"unknown .* 'x'"):
        asyncio.run(player.play(row, None))


def test_one_that_fails_while_closing_can_be_made(monkeypatch):
    def fail(_env):
        raise OSError("close is broken")

    monkeypatch.setattr(BatteryDoors, "close", fail)
    CheckedMaker(ENV_ID, doors=3)().unwrapped.reset(seed=1)
    assert len(task_rows(ENV_ID, 2)) == 2


def test_a_prompt_names_its_row():
    for row in task_rows(ENV_ID, 3):
        assert read_prompt(row["prompt"]) == {name: row[name] for name in ("task_id", "seed")}


@pytest.mark.parametrize(
    "prompt", ["Buy a shirt.", "[]", "{}", '{"task_id": "a"}', [{"role": "user", "content": "x"}]]
)
def test_other_prompts_are_refused(prompt):
    with pytest.raises(ValueError, match=r"must be one of task_rows\(\), got "):
        read_prompt(prompt)


@pytest.mark.parametrize("numbers", [{"size": 0}, {"max_actions": 0}])
def test_vectors_and_lists_have_a_length(numbers):
    with pytest.raises(ValueError, match="must be at least one"):
        HashedTextEnv(CheckedMaker(ENV_ID), **numbers)


def test_a_row_without_a_seed_is_played_with_seed_0():
    player = EpisodePlayer(
        ENV_ID, char_tokenizer("compact"), turn_tokens=8, max_tokens=9999, action_format="bare"
    )

    async def ask(prompt, most):
        return Answer([], [], stopped=False, aborted=True)

    firsts = []
    for row in ({"task_id": "train-0"}, {"task_id": "train-0", "seed": None}, {"seed": 0}):
        LEDGER.__init__()
        asyncio.run(player.play({"task_id": "train-0", **row}, ask))
        firsts.append(LEDGER.resets)
    assert firsts == [{("train-0", 0): 1}] * 3
