from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("torch")

import toy_names

import agentgym
from adapters.policies.tokenization import build_tokenizer
from agentgym.packing import pack
from agentgym.prompts import ConversationRenderer
from trainers.demonstrations import (
    demonstrated_texts,
    record,
    to_trajectory,
)

MAKE = partial(gym.make, "ToyNames-v0")


def recorded(episodes: int = 20, **options):
    settings = {"noise": 0.0, "seed": 0} | options
    return record(toy_names.SPEC, MAKE, episodes=episodes, **settings)


def test_an_oracle_without_noise_solves_every_task() -> None:
    episodes = recorded(45)
    assert all(episode.success and episode.score == 1.0 for episode in episodes)
    assert all(len(e.observations) == len(e.infos) == len(e.actions) == 2 for e in episodes)
    # 40 tasks: all once before any comes again.
    tasks = [episode.infos[0]["task_id"] for episode in episodes]
    assert len(set(tasks[:40])) == 40
    assert {task.partition("-")[0] for task in tasks} == {"train"}


def test_noise_costs_success_and_the_seed_decides_all() -> None:
    noisy = recorded(60, noise=0.8)
    assert 0.2 < np.mean([episode.success for episode in noisy]) < 0.8
    assert [e.actions for e in recorded(60, noise=0.8)] == [e.actions for e in noisy]
    assert [e.actions for e in recorded(60, noise=0.8, seed=1)] != [e.actions for e in noisy]
    # Episode i depends on (seed, i) alone.
    late = recorded(20, noise=0.8, first=40)
    assert [e.actions for e in late] == [e.actions for e in noisy[40:]]


def test_slips_are_inadmissible_shown_and_not_taught() -> None:
    episodes = recorded(80, slips=0.3)
    slipped = [e for e in episodes if not all(e.taught)]
    assert len(slipped) > 20
    for episode in slipped:
        answered = [info["action_valid"] for info in episode.infos[1:]]
        assert answered == episode.taught[:-1]
        assert [a for a, t in zip(episode.actions, episode.taught, strict=True) if t][-1] == "leave"
    assert np.mean([episode.success for episode in episodes]) > 0.9


def test_trajectories_hold_the_actions_as_the_model_would_write_them() -> None:
    episodes = recorded(10, slips=0.5)
    prompt = toy_names.ToyPrompt("bare")
    tokenizer = build_tokenizer(toy_names.vocabulary(), demonstrated_texts(episodes, prompt))
    renderer = ConversationRenderer(tokenizer, prompt)
    stop = tokenizer.eos_token_id
    for episode in episodes:
        trajectory = to_trajectory(episode, renderer, stop)
        for turn, action in zip(trajectory.turns, episode.actions, strict=True):
            assert turn.action_ids[-1] == stop
            assert tokenizer.decode(turn.action_ids[:-1].tolist()) == action
        (row,) = pack([trajectory])
        taught = [bool(row.loss_mask[start]) for _, start, _ in row.spans]
        assert taught == episode.taught
        assert tokenizer.decode(row.token_ids.tolist()).startswith(
            f"<|user|>{episode.infos[0]['goal']}: {episode.observations[0]}<|act|>"
        )


def test_tagged_actions_parse_back() -> None:
    prompt = toy_names.ToyPrompt("tags")
    parsed = prompt.parse(prompt.written("take[k1]"))
    assert (parsed.action, parsed.format_ok) == ("take[k1]", True)
    assert toy_names.ToyPrompt("bare").written("take[k1]") == "take[k1]"


def test_what_cannot_be_recorded_is_refused() -> None:
    mute = agentgym.EnvSpec(id="Mute-v0", env="toy_names:ToyNames", prompt="toy_names:ToyPrompt")
    with pytest.raises(ValueError, match="Mute-v0 has no oracle"):
        record(mute, MAKE, episodes=1, noise=0.0, seed=0)
    with pytest.raises(ValueError, match="episodes must be >= 1, got 0"):
        recorded(0)
    with pytest.raises(ValueError, match=r"noise must lie in \[0, 1\], got 1.5"):
        recorded(1, noise=1.5)
    with pytest.raises(ValueError, match=r"slips must lie in \[0, 1\], got -1"):
        recorded(1, slips=-1)
