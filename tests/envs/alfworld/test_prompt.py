"""What policies read: the published windowed form, conversations, and the bare form."""

from __future__ import annotations

import random

import gymnasium as gym
import pytest

import agentgym
from agentgym.registry import load
from envs.alfworld.expert import demonstrate
from envs.alfworld.generator import generated_games
from envs.alfworld.prompt import AlfWorldPrompt, vocabulary, without_banner
from envs.alfworld.simulator import BANNER


def episode(seed=0, difficulty="small", noise=0.5):
    """Observations, infos and actions of an episode."""
    env = gym.make("AlfWorld-v0", difficulty=difficulty)
    steps = [(*env.reset(seed=seed), "")]
    for action in demonstrate(env, random.Random(seed), noise):
        observation, _, over, truncated, info = env.step(action)
        steps.append((observation, info, action))
        if over or truncated:
            break
    return steps


def test_registered():
    entry = agentgym.spec("AlfWorld-v0")
    assert load(entry.prompt) is AlfWorldPrompt
    assert load(entry.vocabulary) is vocabulary
    assert entry.tiny == {"difficulty": "small"}


def test_conversation_with_tags():
    prompt = AlfWorldPrompt()
    (first, info, _), (second, later, _) = episode()[:2]
    system = prompt.system(info)
    for needed in ("<think>", "<action>", "take OBJECT from RECEPTACLE", "Nothing happens."):
        assert needed in system
    text = prompt.first(first, info)
    assert BANNER not in text
    assert f"Your task is to: {info['goal']}" in text
    actions = text.split("Admissible actions:\n")[1].splitlines()
    assert actions == [f"'{action}'" for action in info["admissible_actions"] if action != "help"]
    assert prompt.next(second, later).startswith(second)
    assert "Admissible actions:" not in AlfWorldPrompt(list_admissible=False).first(first, info)


def test_windowed_with_tags_is_the_published_setting():
    prompt = AlfWorldPrompt()
    steps = episode(3)
    observation, info, _ = steps[4]
    history = [(steps[turn][0], steps[turn + 1][2]) for turn in (2, 3)]
    lines = prompt.windowed(history, observation, info).splitlines()
    assert lines[0] == f"Your task is to: {info['goal']}"
    assert lines[1] == "You have taken 4 steps. The last 2 of them:"
    assert lines[2] == f"[Observation 3: '{steps[2][0]}', Action 3: '{steps[3][2]}']"
    assert lines[3] == f"[Observation 4: '{steps[3][0]}', Action 4: '{steps[4][2]}']"
    assert lines[4] == f"You are at step 5. What you see now: {observation}"
    assert lines[5] == "Admissible actions:"
    assert "'help'" not in lines
    assert lines[6:] == [f"'{a}'" for a in info["admissible_actions"] if a != "help"]


def test_the_first_windowed_prompt_states_the_task_once():
    prompt = AlfWorldPrompt()
    observation, info, _ = episode(1)[0]
    text = prompt.windowed([], observation, info)
    assert text.count("Your task is to:") == 1
    assert "You have taken" not in text
    assert "You are in the middle of a room." in text
    assert BANNER not in text
    again = prompt.windowed([(observation, "look")], "You see.", info | {"turn": 1})
    assert again.count("Your task is to:") == 1


def test_bare_is_the_games_own_text():
    prompt = AlfWorldPrompt(action_format="bare")
    (first, info, _), (second, later, action) = episode()[:2]
    assert prompt.system(info) is None
    room, task = prompt.first(first, info).split("\n")
    assert room.startswith("You are in the middle of a room.")
    assert task == f"Your task is to: {info['goal']}"
    assert prompt.next(second, later) == second
    assert prompt.windowed([(first, action)], second, later) == "\n".join(
        [task, room, f"> {action}", second]
    )
    assert prompt.parse("go to desk 1").format_ok


def test_without_banner():
    assert without_banner(f"{BANNER}\n\nA room.\n\nA task.") == "A room.\nA task."
    assert without_banner("You see.") == "You see."


@pytest.mark.parametrize("difficulty", ["small", "full"])
def test_every_name_is_in_the_vocabulary(difficulty):
    phrases = set(vocabulary(difficulty=difficulty))
    games = generated_games(difficulty, 300, 0)
    for split in ("train", "valid_unseen"):
        for task_id in games.tasks.ids(split)[:150]:
            world = games.world(task_id)
            assert phrases.issuperset(world.objects)
            assert phrases.issuperset(world.receptacles)
            assert phrases.issuperset((*world.object_types, *world.receptacle_types))


@pytest.mark.data
def test_the_vocabulary_for_loaded_data_has_most_names(games):
    phrases = set(vocabulary(data="x"))
    missing = total = 0
    for task_id in games.tasks.ids("valid_seen"):
        world = games.world(task_id)
        named = [
            world.objects[thing]
            for things in world.start.contents
            for thing in things
            if world.pickupable >> thing & 1
        ]
        names = [*world.receptacles, *named]
        total += len(names)
        missing += sum(name not in phrases for name in names)
    assert missing / total < 0.03


def test_sizes_of_the_vocabulary():
    small, full = vocabulary(difficulty="small"), vocabulary()
    assert len(small) == len(set(small)) < 500
    assert len(full) == len(set(full)) < 600
    with pytest.raises(ValueError, match="difficulty must be"):
        vocabulary(difficulty="huge")


@pytest.mark.torch
def test_names_are_single_tokens_and_texts_survive():
    from adapters.policies.tokenization import build_tokenizer

    tokenizer = build_tokenizer(vocabulary(difficulty="small"))
    prompt = AlfWorldPrompt(action_format="bare")
    tokens = turns = 0
    for seed in range(12):
        show = prompt.first
        for observation, info, action in episode(seed):
            for text in (show(observation, info), action):
                ids = tokenizer.encode(text, add_special_tokens=False)
                assert tokenizer.decode(ids) == text
                tokens += len(ids)
            if action.startswith("go to "):
                assert len(tokenizer.encode(action, add_special_tokens=False)) == 2
            if action.startswith("take "):
                assert len(tokenizer.encode(action, add_special_tokens=False)) == 4
            show = prompt.next
            turns += 1
    assert tokens / 12 < 250
    assert tokens / turns < 30
