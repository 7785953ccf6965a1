"""Progress abstractions: how the collector runs them, and the one that every environment has."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import toy_text
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import ScriptedPolicy, episodes, in_turn
from templates import char_tokenizer
from toy_text import ToyDoors

from agentgym.collector import Collector, CollectorConfig
from agentgym.info import StopReason
from agentgym.progress import (
    GenericProgress,
    canonical_text,
    content_words,
    context_key,
    make_progress,
)
from agentgym.prompts import EnvPrompt, make_renderer

TOKENIZER = char_tokenizer("compact")


def generic(env_id="ToyDoors-v0", max_steps=6):
    return GenericProgress(env_id, max_steps)


def play(make, *, answer=in_turn, mode="conversation", env=ToyDoors, count=2):
    renderer = make_renderer(mode, TOKENIZER, EnvPrompt("bare"))
    policy = ScriptedPolicy(TOKENIZER, answer)
    made = Collector(env, renderer, policy, CollectorConfig(), make_progress=make)
    played = asyncio.run(made.collect(episodes(count)))
    made.close()
    return played


# The collector -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["conversation", "windowed"])
def test_every_turn_is_annotated(mode):
    for trajectory in play(generic, mode=mode):
        watch = generic()
        env = ToyDoors()
        spec = trajectory.spec
        observation, info = env.reset(seed=spec.seed, options={"task_id": spec.task_id})
        watch.reset(observation, info)
        for turn in trajectory.turns:
            assert turn.state == watch.state()
            assert turn.context_key == watch.context(observation)
            observation, reward, *_, info = env.step(turn.action)
            kind = watch.abstract(turn.action, turn.format_ok, turn.action_valid)
            assert turn.abstract_action == kind
            assert turn.shareable is watch.shareable(turn.state, kind)
            watch.update(turn.action, turn.action_valid, observation, reward, info)


def test_without_an_abstraction_turns_stay_bare():
    for trajectory in play(None):
        for turn in trajectory.turns:
            assert (turn.state, turn.abstract_action, turn.shareable) == ("", "", False)


@pytest.mark.parametrize("method", ["reset", "state", "abstract", "update", "context", "shareable"])
def test_an_abstraction_that_fails_costs_its_own_episode(method):
    class Broken(GenericProgress):
        made = 0

        def __init__(self, *args):
            super().__init__(*args)
            Broken.made += 1
            if Broken.made == 1:
                setattr(self, method, self.fail)

        def fail(self, *args):
            raise KeyError("odd page")

    lost, whole = play(lambda: Broken("x", 6))
    assert lost.stop_reason is StopReason.INFRA_ERROR
    assert lost.error == "the progress abstraction failed: KeyError('odd page')"
    assert not lost.usable
    assert whole.usable


# Presets -----------------------------------------------------------------------------------------


def test_presets_are_found_by_name():
    entry = replace(
        toy_text.SPEC, abstractions={"own": "agentgym.progress:GenericProgress", "b": "toy_text:X"}
    )
    assert isinstance(make_progress(entry, "own", 4)(), GenericProgress)
    assert make_progress(entry, "own", 4)().max_steps == 4
    # Usual names stand for what there is.
    assert isinstance(make_progress(entry, "paper")(), GenericProgress)
    assert isinstance(make_progress(toy_text.SPEC, "compact")(), GenericProgress)
    assert isinstance(make_progress(entry, "generic")(), GenericProgress)
    with pytest.raises(
        ValueError, match="ToyDoors-v0 has no progress abstraction 'x'; it has own, b"
    ):
        make_progress(entry, "x")


# Any environment ---------------------------------------------------------------------------------


def told(made, *steps):
    """(action, observation, info) one after another: (state without its head, kind) of each."""
    found = []
    for action, observation, info in steps:
        valid = info.get("action_valid", True)
        state = made.state().split("gains=")[1]
        found.append((f"gains={state}", made.abstract(action, True, valid)))
        made.update(action, valid, observation, info.get("reward", 0.0), info)
    return found


START = {"task_id": "t1", "task_type": "doors", "goal": "Open the red door with the small key."}


def test_states_and_kinds_of_the_generic_abstraction():
    made = generic(max_steps=9)
    made.reset(
        "You see doors.", START | {"admissible_actions": ("open <door>", "look", "take key")}
    )
    assert made.state().startswith("ToyDoors-v0 doors gains=0 ")
    assert told(
        made,
        ("look", "You see doors.", {}),
        ("Look", "You see doors.", {}),
        ("take  KEY", "You have it.", {"score": 0.5}),
        ("open window", "It is open.", {"reward": 1.0}),
        ("dance", "Odd.", {"action_valid": False}),
        ("sing a song", "Odd.", {}),
        ("open red door", "Done.", {"admissible_actions": ("sing <song>",)}),
        ("sing loudly", "Done.", {}),
    ) == [
        ("gains=0 new=all idle=0 phase=early", "look:none"),
        ("gains=0 new=most idle=1 phase=early", "look:repeat"),
        ("gains=0 new=few idle=2+ phase=early", "take:goal"),
        ("gains=1 new=most idle=0 phase=middle", "open:nongoal"),
        ("gains=2 new=most idle=0 phase=middle", "inadmissible"),
        ("gains=2 new=most idle=1 phase=middle", "other:nongoal"),
        ("gains=2 new=most idle=0 phase=late", "open:goal"),
        ("gains=2 new=most idle=0 phase=late", "sing:nongoal"),
    ]


def test_without_listed_actions_any_word_is_a_verb():
    made = generic(max_steps=None)
    made.reset("Say something.", {"goal": ""})
    assert "phase" not in made.state()
    for action, kind in (
        ("search[red door]", "search:nongoal"),
        ("42", "other:none"),
        ('{"name": "read_file", "path": "notes"}', "read_file:nongoal"),
        ('{"tool": 3}', "other:nongoal"),
        ('{"broken', "other:nongoal"),
        ("<calculator>2*3</calculator>", "calculator:nongoal"),
        ("", "other:none"),
        ("鍵を開ける", "other:nongoal"),
    ):
        assert made.abstract(action, True, True) == kind, action
    assert made.abstract("look", False, True) == "malformed"


def test_a_refused_action_changes_idleness_and_phase_alone():
    made = generic(max_steps=30)
    made.reset("x", START)
    before = made.state()
    made.update("dance", False, "Odd.", 0.0, {"score": 0.9})
    assert made.state() == before.replace("idle=0", "idle=1")


def test_contexts_are_of_task_and_observation():
    one, other = generic(), generic()
    one.reset("x", START)
    other.reset("y", START)
    assert one.context("a") == other.context("a") != one.context("b")
    other.reset("x", START | {"task_id": "t2"})
    assert one.context("a") != other.context("a")
    assert context_key("ab", "c") != context_key("a", "bc")


def test_what_is_left_of_a_text():
    assert canonical_text("  Ｏpen\n the  DOOR ") == "open the door"
    assert content_words("Find me the 2 red-hot pots, x and y!") == {"red-hot", "pots"}


@given(
    st.lists(
        st.tuples(
            st.text(max_size=12), st.booleans(), st.sampled_from("xyz"), st.sampled_from([0.0, 1.0])
        ),
        min_size=2,
        max_size=8,
    ),
    st.integers(1, 7),
)
@settings(max_examples=60, derandomize=True, deadline=None, database=None)
def test_the_state_depends_on_the_past_alone(steps, cut):
    def states(taken):
        made = generic()
        made.reset("x", START)
        found = [made.state()]
        for action, valid, observation, reward in taken:
            assert made.abstract(action, True, valid)
            made.update(action, valid, observation, reward, {})
            found.append(made.state())
        return found

    cut = min(cut, len(steps))
    other = [*steps[:cut], *[("else", True, "w", 1.0)] * 3]
    assert states(steps)[: cut + 1] == states(other)[: cut + 1]
