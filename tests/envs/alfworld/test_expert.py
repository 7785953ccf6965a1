"""The exploring expert: how often it wins, how long it takes, and that it only reads."""

from __future__ import annotations

import random

import gymnasium as gym
import numpy as np
import pytest

import agentgym
from agentgym.registry import load
from envs.alfworld.expert import Explorer, Request, demonstrate, practice_games, read_request
from envs.alfworld.generator import generated_games
from envs.alfworld.simulator import Sim


def play(sim, explorer, limit):
    """Number of commands to the win, or None; and how many were not admissible."""
    refused = 0
    for turn in range(1, limit + 1):
        command = explorer.act()
        explorer.hear(command, sim.step(command))
        refused += not sim.accepted
        if sim.won:
            return turn, refused
    return None, refused


def rates(worlds, noise, limit, style="move"):
    """Share of games won, mean length of those, and share of commands refused."""
    lengths, refused, commands = [], 0, 0
    for number, world in enumerate(worlds):
        sim = Sim(world, style)
        explorer = Explorer(sim.intro, random.Random(number), noise, style)
        turns, bad = play(sim, explorer, limit)
        refused += bad
        commands += turns or limit
        if turns:
            lengths.append(turns)
    return len(lengths) / len(worlds), sum(lengths) / len(lengths), refused / commands


@pytest.mark.parametrize(
    ("difficulty", "noise", "limit", "success", "longest"),
    [
        ("small", 0.0, 20, 0.98, 10.0),
        ("small", 0.7, 20, 0.96, 11.5),
        ("small", 1.0, 20, 0.90, 12.5),
        ("full", 0.0, 50, 0.97, 16.0),
        ("full", 0.7, 50, 0.93, 20.0),
    ],
)
def test_success_and_length(difficulty, noise, limit, success, longest):
    games = generated_games(difficulty, 300, 0)
    worlds = [games.world(task_id) for task_id in games.tasks.ids("valid_unseen")]
    won, length, refused = rates(worlds, noise, limit)
    assert won >= success
    assert length <= longest
    assert refused < 0.03


def test_it_is_slower_than_the_oracle_for_it_has_to_search():
    games = generated_games("small", 300, 0)
    worlds = [games.world(task_id) for task_id in games.tasks.ids("train")[:120]]
    _, length, _ = rates(worlds, 0.0, 20)
    known = sum(len(world.walkthrough) for world in worlds) / len(worlds)
    assert length > known + 1.5


def test_it_uses_what_the_text_has_shown_alone():
    """Equal texts lead to equal commands, whatever the rooms hold unseen."""

    class Silent:
        """An environment that offers nothing but its observation."""

        command_style = "move"

        def __init__(self, sim):
            self.sim, self.observation = sim, sim.intro

        @property
        def unwrapped(self):
            return self

        def say(self, command):
            self.observation = self.sim.step(command)

    games = generated_games("small", 300, 0)
    for number, task_id in enumerate(games.tasks.ids("train")[:12]):
        heard = []
        env = Silent(Sim(games.world(task_id)))
        for command in demonstrate(env, np.random.default_rng(number), 0.5):
            env.say(command)
            heard.append((command, env.observation))
            if env.sim.won or len(heard) == 20:
                break
        told = Explorer(Sim(games.world(task_id)).intro, np.random.default_rng(number), 0.5)
        for command, said in heard:
            assert told.act() == command
            told.hear(command, said)


def test_it_finds_its_way_to_a_neighbour():
    """A receptacle at the same location cannot be gone to, but used."""
    games = generated_games("small", 300, 0)
    for task_id in games.tasks.ids("train"):
        world = games.world(task_id)
        shared = next((there for there in world.at if len(there) > 1), None)
        if shared is None:
            continue
        sim = Sim(world)
        explorer = Explorer(sim.intro, random.Random(0))
        first, second = (world.receptacles[number] for number in shared[:2])
        explorer.hear(f"go to {first}", sim.step(f"go to {first}"))
        explorer.hear(f"go to {second}", sim.step(f"go to {second}"))
        assert not sim.accepted
        turns, refused = play(sim, explorer, 30)
        assert turns is not None
        assert refused <= 2
        break
    else:
        pytest.fail("no room with neighbours")


@pytest.mark.parametrize(
    ("goal", "request_"),
    [
        ("put a mug in desk.", Request("mug", "desk")),
        ("put some mug on desk.", Request("mug", "desk")),
        ("look at book under the desklamp.", Request("book", lamp="desklamp")),
        ("examine the book with the desklamp.", Request("book", lamp="desklamp")),
        ("put a clean mug in desk.", Request("mug", "desk", "clean")),
        ("clean some mug and put it in desk.", Request("mug", "desk", "clean")),
        ("put a hot mug in desk.", Request("mug", "desk", "heat")),
        ("heat some mug and put it in desk.", Request("mug", "desk", "heat")),
        ("put a cool mug in desk.", Request("mug", "desk", "cool")),
        ("cool some mug and put it in desk.", Request("mug", "desk", "cool")),
        ("put two mug in desk.", Request("mug", "desk", number=2)),
        ("find two mug and put them in desk.", Request("mug", "desk", number=2)),
    ],
)
def test_reads_the_twelve_wordings(goal, request_):
    assert read_request(goal) == request_


def test_another_wording_is_refused():
    with pytest.raises(ValueError, match="in none of ALFWorld's wordings"):
        read_request("tidy up.")


def test_noise_must_be_a_share():
    env = gym.make("AlfWorld-v0", difficulty="small")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"noise must be between 0 and 1, got 1\.5"):
        demonstrate(env, random.Random(0), 1.5)


def test_same_draws_same_episode():
    episodes = []
    for _ in range(2):
        env = gym.make("AlfWorld-v0", difficulty="small")
        env.reset(seed=5)
        commands = []
        for command in demonstrate(env, np.random.default_rng(1), 0.7):
            commands.append(command)
            if any(env.step(command)[2:4]):
                break
        episodes.append(commands)
    assert episodes[0] == episodes[1]


def test_registered_and_playing_the_other_style():
    assert load(agentgym.spec("AlfWorld-v0").oracle) is demonstrate
    games = generated_games("small", 300, 0)
    worlds = [games.world(task_id) for task_id in games.tasks.ids("valid_seen")[:60]]
    assert rates(worlds, 0.0, 20, "put")[0] > 0.95


def test_practice_games_are_other_games():
    made = practice_games(3, difficulty="small")
    assert [args["catalogue"] for args in made] == [f"builtin:500:{seed}" for seed in (1, 2, 3)]
    assert all(args["difficulty"] == "small" for args in made)
    assert practice_games(1, catalogue="builtin:10:4") == [{"catalogue": "builtin:10:5"}]
    assert practice_games(5, data="x", split="train") == [{"data": "x", "split": "train"}]
    with pytest.raises(ValueError, match="number must be >= 1, got 0"):
        practice_games(0)


@pytest.mark.data
def test_official_games(games):
    worlds = [games.world(task_id) for task_id in games.tasks.ids("valid_seen")[::2]]
    won, length, refused = rates(worlds, 0.0, 50)
    assert won >= 0.8
    assert length < 30
    assert refused < 0.1
