"""Embedded games: what they are like, that they repeat, and that both engines win them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter

import gymnasium as gym
import pytest

import agentgym  # noqa: F401
from envs.alfworld.dataset import SPLITS
from envs.alfworld.game_text import domain, grammar
from envs.alfworld.generator import GeneratedGames, builtin_size, generated_games
from envs.alfworld.rooms import ROOMS, TASK_TYPES
from envs.alfworld.rules import RELEASED, domain_rules, restyle, wording
from envs.alfworld.simulator import Sim
from envs.alfworld.textworld_backend import TextWorldSim
from envs.alfworld.world import World

SIZES = ("small", "full")
EVALUATED = ("valid_train", "valid_seen", "valid_unseen")


@pytest.fixture(scope="module", params=SIZES)
def source(request):
    return generated_games(request.param, 300, 0)


def room_of(task_id):
    return int(task_id.split("/")[1].rsplit("-", 1)[1])


def some(source, number=48):
    return [*source.tasks.ids("train")[:number], *source.tasks.ids("valid_unseen")[:number]]


def test_splits_have_the_names_of_the_releases(source):
    assert set(source.tasks.splits) == set(SPLITS)
    assert source.tasks.train_split == "train"
    assert source.tasks.eval_splits == EVALUATED
    assert [len(source.tasks.ids(split)) for split in ("train", *EVALUATED)] == [300, 200, 200, 200]


def test_unseen_rooms_occur_in_no_other_split(source):
    rooms = {split: set(map(room_of, source.tasks.ids(split))) for split in source.tasks.splits}
    seen = rooms["train"] | rooms["valid_seen"] | rooms["valid_train"]
    assert not rooms["valid_unseen"] & seen
    kinds = {number // 100 for number in rooms["valid_unseen"]}
    assert len(kinds) >= 4  # all four kinds of room
    for number in seen:
        assert any(0 <= number - room.first < 80 for room in ROOMS.values())


def test_task_types_are_balanced(source):
    for split in source.tasks.splits:
        kinds = Counter(task_id.split("/")[1].split("-")[0] for task_id in source.tasks.ids(split))
        assert set(kinds) == set(TASK_TYPES)
        assert max(kinds.values()) - min(kinds.values()) <= 1


def test_walkthroughs_win_within_the_limit_and_no_game_starts_won(source):
    limit = 20 if source.difficulty == "small" else 50
    for task_id in some(source):
        world = source.world(task_id)
        sim = Sim(world)
        assert not sim.won
        assert 0 < len(world.walkthrough) <= limit
        for command in world.walkthrough:
            assert not sim.won
            assert command in sim.admissible()
            sim.step(command)
        assert sim.won, task_id
        assert world.goal.task_type == task_id.split("/")[1].split("-")[0]


def test_world_and_file_are_the_same_game(source):
    for task_id in some(source, 6):
        game = source.game(task_id)
        assert set(game) == {"pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough"}
        assert game["solvable"] is True
        read = World.from_game(json.loads(json.dumps(game)))
        world = source.world(task_id)
        assert read.walkthrough == world.walkthrough
        sims = Sim(read), Sim(world)
        assert sims[0].intro == sims[1].intro
        for command in read.walkthrough:
            assert sims[0].step(command) == sims[1].step(command)
            assert sims[0].admissible() == sims[1].admissible()


def test_games_play_from_a_folder(tmp_path):
    source = generated_games("full", 12, 0)
    for task_id in source.tasks.ids("train"):
        folder = tmp_path / "json_2.1.1" / task_id
        folder.mkdir(parents=True)
        (folder / "game.tw-pddl").write_text(json.dumps(source.game(task_id)))
    loaded = gym.make("AlfWorld-v0", data=tmp_path)
    embedded = gym.make("AlfWorld-v0")
    for task_id in source.tasks.ids("train"):
        options = {"task_id": task_id}
        first, second = loaded.reset(options=options), embedded.reset(options=options)
        assert first == second


def test_rooms_are_as_the_official_ones(source):
    shared = plain = 0
    receptacles = []
    for task_id in source.tasks.ids("train")[:120]:
        world = source.world(task_id)
        receptacles.append(len(world.receptacles))
        shared += any(len(there) > 1 for there in world.at)
        plain += any(
            kind in ("drawer", "cabinet") and not world.openable >> number & 1
            for number, kind in enumerate(world.receptacle_types)
        )
        assert world.at[world.start.location] == ()
    mean = sum(receptacles) / len(receptacles)
    assert 7.5 < mean < 10.5 if source.difficulty == "small" else 16 < mean < 26
    assert shared > 10
    assert plain > 5


def test_texts_are_what_both_engines_take_for_released_ones():
    assert domain_rules(domain()) == RELEASED
    task = 'Your task is to: say "no" \\ twice.'
    assert wording(grammar(task)).task == task
    assert wording(grammar(task)).style == "move"
    game = {"pddl_domain": domain(), "grammar": grammar(task)}
    assert wording(restyle(game, "put")["grammar"]).style == "put"


def test_a_game_depends_on_its_index_and_the_seed_alone():
    few, many = GeneratedGames("small", 10), GeneratedGames("small", 30)
    assert few.tasks.ids("train") == many.tasks.ids("train")[:10]
    assert few.tasks.ids("valid_seen") == many.tasks.ids("valid_seen")
    task_id = few.tasks.ids("train")[7]
    assert few.game(task_id) == many.game(task_id)
    other = GeneratedGames("small", 10, seed=1)
    assert other.tasks.ids("train") != few.tasks.ids("train")


def test_games_are_the_same_in_another_process():
    code = (
        "import hashlib, json\n"
        "from envs.alfworld.generator import generated_games\n"
        "games = generated_games('small', 8, 0)\n"
        "text = json.dumps([games.game(i) for i in games.tasks.ids('train')])\n"
        "print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_games_are_made_safely_by_several_threads():
    games = GeneratedGames("small", 40)
    ids = games.tasks.ids("train")
    seen: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: seen.append([Sim(games.world(i)).intro for i in ids]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert all(texts == seen[0] for texts in seen)


@pytest.mark.parametrize("catalogue", ["builtin", "builtin:x", "builtin:1:2:3", "rooms:3", ""])
def test_a_wrong_catalogue_is_named(catalogue):
    with pytest.raises(ValueError, match="catalogue must be"):
        builtin_size(catalogue)
    with pytest.raises(ValueError, match="catalogue must be"):
        gym.make("AlfWorld-v0", catalogue=catalogue)


def test_wrong_arguments_are_named(tmp_path):
    with pytest.raises(ValueError, match="games must be between 1"):
        GeneratedGames("small", 0)
    with pytest.raises(ValueError, match="seed must be >= 0, got -1"):
        GeneratedGames("small", 10, -1)
    with pytest.raises(ValueError, match="difficulty must be"):
        GeneratedGames("medium")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="split must be one of"):
        gym.make("AlfWorld-v0", split="test")
    with pytest.raises(ValueError, match="not both"):
        gym.make("AlfWorld-v0", data=tmp_path, catalogue="builtin:3")


@pytest.mark.parametrize(
    "task_id",
    [
        "train/x/trial_00001",
        "train/pick_and_place_simple-Mug-None-Desk-301/trial_99999",
        "dev/pick_and_place_simple-Mug-None-Desk-301/trial_00001",
        "train",
    ],
)
def test_an_unknown_game_is_refused(task_id):
    with pytest.raises(KeyError, match="no embedded game"):
        generated_games("small", 30, 0).world(task_id)


def test_the_default_environment_plays_at_once():
    env = gym.make("AlfWorld-v0")
    observation, info = env.reset(seed=3)
    assert observation.startswith("-= Welcome to TextWorld, ALFRED! =-")
    assert info["split"] == "train"
    assert info["details"]["max_steps"] == 50
    assert observation.endswith(f"Your task is to: {info['goal']}")
    again, same = gym.make("AlfWorld-v0").reset(seed=3)
    assert (again, same) == (observation, info)
    small = gym.make("AlfWorld-v0", difficulty="small", split="valid_unseen")
    assert small.reset(seed=3)[1]["split"] == "valid_unseen"
    assert small.unwrapped.max_steps == 20


@pytest.mark.textworld
@pytest.mark.parametrize("difficulty", SIZES)
@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_the_original_plays_and_wins_generated_games(difficulty, task_type):
    games = generated_games(difficulty, 300, 0)
    ids = [
        next(i for i in games.tasks.ids(split) if f"/{task_type}-" in i)
        for split in ("train", "valid_unseen")
    ]
    original = TextWorldSim()
    try:
        for task_id in ids:
            game = games.game(task_id)
            sim = Sim(games.world(task_id))
            assert original.reset(game) == sim.intro
            for command in ("look", "fly", "inventory", "help", *game["walkthrough"], "look"):
                assert original.step(command) == sim.step(command)
                assert original.admissible() == sim.admissible()
                assert original.won == sim.won
            assert original.won
    finally:
        original.close()
