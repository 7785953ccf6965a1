"""The oracle wins every game, from any state, as quickly as the games' own walkthroughs."""

from __future__ import annotations

import random

import gymnasium as gym
import pytest

import agentgym  # noqa: F401
from envs.alfworld.generator import generated_games
from envs.alfworld.oracle import plan
from envs.alfworld.simulator import Sim


def follow(sim, commands):
    for command in commands:
        assert not sim.won
        assert sim.is_admissible(command), (command, commands)
        sim.step(command)
    return sim.won


def wander(sim, rng, steps):
    for _ in range(steps):
        if sim.won:
            return
        sim.step(rng.choice(sim.admissible()))


@pytest.mark.parametrize("difficulty", ["small", "full"])
def test_wins_from_any_state_of_generated_games(difficulty):
    games = generated_games(difficulty, 300, 0)
    rng = random.Random(0)
    for task_id in games.tasks.ids("train")[:60]:
        sim = Sim(games.world(task_id))
        wander(sim, rng, rng.randrange(30))
        before = sim.clone_state()
        commands = plan(sim)
        assert sim.clone_state() == before
        assert follow(sim, commands), task_id
        assert plan(sim) == ()


@pytest.mark.parametrize("style", ["move", "put"])
def test_speaks_the_style_of_the_episode(style):
    games = generated_games("small", 300, 0)
    for task_id in games.tasks.ids("valid_seen")[:12]:
        sim = Sim(games.world(task_id), style)
        assert follow(sim, plan(sim))


@pytest.mark.parametrize("strict", [True, False])
def test_reference_in_info(strict):
    env = gym.make("AlfWorld-v0", difficulty="small", expert=True, strict=strict)
    for seed in range(6):
        _, info = env.reset(seed=seed)
        left = len(info["reference"])
        terminated = False
        while not terminated:
            _, _, terminated, truncated, info = env.step(info["reference"][0])
            assert not truncated
            assert len(info["reference"]) == left - 1
            left -= 1
        assert info["success"]
        assert info["reference"] == ()


def test_the_original_engine_has_no_oracle():
    with pytest.raises(ValueError, match="expert=True plans on the native engine's state"):
        gym.make("AlfWorld-v0", engine="textworld", expert=True)


def test_detours_are_answered_with_a_way_back():
    env = gym.make("AlfWorld-v0", difficulty="small", expert=True, max_steps=50)
    _, info = env.reset(seed=1)
    rng = random.Random(4)
    for _ in range(8):
        _, _, over, _, info = env.step(rng.choice(info["admissible_actions"]))
        if over:
            break
    while info["stop_reason"] is None:
        _, _, _, _, info = env.step(info["reference"][0])
    assert info["success"]


def play_official(games, ids):
    """Number of games won, and of those in which the plan is longer than the walkthrough."""
    won = longer = 0
    for task_id in ids:
        sim = Sim(games.world(task_id))
        commands = plan(sim)
        assert len(commands) <= 50
        won += follow(sim, commands)
        longer += len(commands) > len(sim.world.walkthrough)
    return won, longer


@pytest.mark.data
def test_wins_a_sample_of_official_games(games):
    ids = [*games.tasks.ids("train")[::20], *games.tasks.ids("valid_seen")[::3]]
    assert len(ids) >= 100
    assert play_official(games, ids) == (len(ids), 0)


@pytest.mark.data
@pytest.mark.slow
def test_wins_every_official_game(games):
    ids = [task_id for split in games.tasks.splits for task_id in games.tasks.ids(split)]
    assert len(ids) == 1340
    assert play_official(games, ids) == (1340, 0)


@pytest.mark.data
@pytest.mark.slow
def test_wins_official_games_from_any_state(games):
    rng = random.Random(0)
    lost = []
    for task_id in games.tasks.ids("train")[::6]:
        sim = Sim(games.world(task_id))
        wander(sim, rng, rng.randrange(40))
        # What nothing in the room can hold may have been picked up: a dead end.
        if not follow(sim, plan(sim)):
            held = sim.holding
            assert held >= 0
            assert not any(mask >> held & 1 for mask in sim.world.accepts)
            lost.append(task_id)
    assert len(lost) < 20
