"""Task progress in ALFWorld: states by the text, kinds of action by the table, nothing hidden."""

from __future__ import annotations

import random

import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.registry import load, spec
from envs.alfworld.expert import demonstrate
from envs.alfworld.progress import Command, CompactProgress, PaperProgress, read_command

INTRO = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly "
    "around you, you see a desk 1, a desk 2, a fridge 1, a drawer 1, and a sofa 1.\n\n"
    "Your task is to: {}."
)
PRESETS = {"paper": PaperProgress, "compact": CompactProgress}


def begun(kind, task):
    made = kind("AlfWorld-v0")
    made.reset(INTRO.format(task), {"goal": f"{task}.", "task_type": "?"})
    return made


def follow(made, *steps):
    """Do (command, answer) one after another; the kinds of action, and the states before them."""
    kinds, states = [], []
    for command, answer in steps:
        states.append(made.state())
        kinds.append(made.abstract(command, True, True))
        made.update(command, True, answer, 0.0, {})
    return kinds, states


def test_the_registry_knows_the_presets():
    entry = spec("AlfWorld-v0")
    assert {name: load(point) for name, point in entry.abstractions.items()} == PRESETS


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("go to desk 1", Command("go", "", "desk 1")),
        ("Close  Fridge 1", Command("close", "", "fridge 1")),
        ("take mug 1 from desk 2", Command("take", "mug 1", "desk 2")),
        ("move mug 1 to desk 2", Command("move", "mug 1", "desk 2")),
        ("put mug 1 in/on desk 2", Command("move", "mug 1", "desk 2")),
        ("put mug 1 into desk 2", Command("move", "mug 1", "desk 2")),
        ("cool mug 1 with fridge 1", Command("cool", "mug 1", "fridge 1")),
        ("use desklamp 1", Command("use", "desklamp 1")),
        ("examine desk 1", Command("examine", "desk 1")),
        ("inventory", Command("inventory")),
        ("help", None),
        ("slice apple 1 with knife 1", None),
        ("go to", None),
        ("", None),
    ],
)
def test_commands_are_taken_apart(text, command):
    assert read_command(text) == command


# One story a family ------------------------------------------------------------------------------

COOL = (
    ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a mug 1, and a pen 1."),
    ("take pen 1 from desk 1", "You pick up the pen 1 from the desk 1."),
    ("inventory", "You are carrying: a pen 1."),
    ("move pen 1 to desk 1", "You move the pen 1 to the desk 1."),
    ("take mug 1 from desk 1", "You pick up the mug 1 from the desk 1."),
    ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
    ("cool mug 1 with fridge 1", "You cool the mug 1 using the fridge 1."),
    ("open fridge 1", "You open the fridge 1. The fridge 1 is open. In it, you see a egg 1."),
    ("go to desk 2", "You arrive at desk 2. On the desk 2, you see nothing."),
    ("move mug 1 to desk 2", "You move the mug 1 to the desk 2."),
    ("take mug 1 from desk 2", "You pick up the mug 1 from the desk 2."),
    ("heat mug 1 with microwave 1", "You heat the mug 1 using the microwave 1."),
    ("look", "You are facing the desk 2. Next to it, you see nothing."),
)


def test_cooling_compact():
    kinds, states = follow(begun(CompactProgress, "cool some mug and put it in desk"), *COOL)
    assert kinds == [
        "goto:dest", "take:other", "inventory", "place:other", "take:goal_from_dest", "goto:tool",
        "transform:goal_right_tool", "open:tool", "goto:dest", "place:goal@dest",
        "take:goal_from_dest", "transform:wrong", "look",
    ]  # fmt: skip
    assert states == [
        f"alf cool {rest}"
        for rest in (
            "found=0 held=none attr=needed placed=0 at=start lamp=n/a explored=0",
            "found=1 held=none attr=needed placed=1 at=dest lamp=n/a explored=1-3",
            "found=1 held=other attr=needed placed=1 at=dest lamp=n/a explored=0",
            "found=1 held=other attr=needed placed=1 at=dest lamp=n/a explored=0",
            "found=1 held=none attr=needed placed=1 at=dest lamp=n/a explored=0",
            "found=1 held=goal attr=needed placed=0 at=dest lamp=n/a explored=0",
            "found=1 held=goal attr=needed placed=0 at=tool+closed lamp=n/a explored=1-3",
            "found=1 held=goal attr=done placed=0 at=tool+closed lamp=n/a explored=1-3",
            "found=1 held=goal attr=done placed=0 at=tool lamp=n/a explored=1-3",
            "found=1 held=goal attr=done placed=0 at=dest lamp=n/a explored=1-3",
            "found=1 held=none attr=done placed=1 at=dest lamp=n/a explored=1-3",
            "found=1 held=goal attr=done placed=0 at=dest lamp=n/a explored=0",
            "found=1 held=goal attr=needed placed=0 at=dest lamp=n/a explored=0",
        )
    ]


def test_cooling_paper():
    kinds, states = follow(begun(PaperProgress, "put a cool mug in desk"), *COOL[:-2])
    assert kinds[:4] == ["goto:dest", "take:other", "inventory", "place:other"]
    assert kinds[4:8] == [
        "take:goal_from_dest",
        "goto:tool",
        "transform:goal_right_tool",
        "open:tool",
    ]
    assert states == [
        f"alf cool object={rest}"
        for rest in (
            "unknown cool(tool=0 there=0 stage=0) place(near=0 done=0 stage=0)",
            *["unknown cool(tool=0 there=0 stage=0) place(near=1 done=0 stage=0)"] * 4,
            "held cool(tool=0 there=0 stage=1) place(near=1 done=0 stage=2)",
            "held cool(tool=1 there=1 stage=3) place(near=0 done=0 stage=2)",
            "held cool(tool=1 there=1 stage=4) place(near=0 done=0 stage=2)",
            "held cool(tool=1 there=1 stage=4) place(near=0 done=0 stage=2)",
            "held cool(tool=1 there=0 stage=4) place(near=1 done=0 stage=2)",
            "dest cool(tool=1 there=0 stage=4) place(near=1 done=1 stage=3)",
        )
    ]


LIGHT = (
    ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a desklamp 1."),
    ("use desklamp 1", "You turn on the desklamp 1."),
    ("go to sofa 1", "You arrive at sofa 1. On the sofa 1, you see a book 2."),
    ("take book 2 from sofa 1", "You pick up the book 2 from the sofa 1."),
    ("examine book 2", "There's nothing special about book 2."),
    ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a desklamp 1."),
    ("use desklamp 1", "You turn on the desklamp 1."),
)


def test_looking_under_a_lamp():
    kinds, states = follow(begun(CompactProgress, "examine the book with the desklamp"), *LIGHT)
    assert kinds == [
        "goto:other", "use:light", "goto:other", "take:goal", "examine:goal", "goto:light",
        "use:light_holding_goal",
    ]  # fmt: skip
    assert [state.split("at=")[1] for state in states] == [
        "start lamp=unseen explored=0",
        "light lamp=seen explored=1-3",
        "light lamp=on explored=1-3",
        "other lamp=on explored=1-3",
        "other lamp=on explored=0",
        "other lamp=on explored=0",
        "light lamp=on explored=1-3",
    ]
    kinds, states = follow(begun(PaperProgress, "look at book under the desklamp"), *LIGHT)
    assert kinds[-2:] == ["goto:light", "use:light_holding_goal"]
    assert [state.removeprefix("alf light object=") for state in states] == [
        "unknown at_lamp=0 on=0 stage=0",
        "unknown at_lamp=0 on=0 stage=0",
        "unknown at_lamp=1 on=1 stage=1",
        "unknown at_lamp=0 on=1 stage=1",
        "held at_lamp=0 on=1 stage=2",
        "held at_lamp=0 on=1 stage=2",
        "held at_lamp=1 on=1 stage=4",
    ]


TWO = (
    ("take pen 1 from sofa 1", "You pick up the pen 1 from the sofa 1."),
    ("put pen 1 in/on drawer 1", "You put the pen 1 in/on the drawer 1."),
    ("take pen 2 from desk 1", "You pick up the pen 2 from the desk 1."),
    ("put pen 2 in/on drawer 1", "You put the pen 2 in/on the drawer 1."),
    ("go to sofa 1", "You arrive at loc 3. On the sofa 1, you see nothing."),
)


def test_two_of_a_kind_in_the_older_wording():
    kinds, states = follow(begun(CompactProgress, "find two pen and put them in drawer"), *TWO)
    assert kinds == ["take:goal", "place:goal@dest", "take:goal", "place:goal@dest", "goto:other"]
    assert [state.split()[5] for state in states] == [f"placed={n}" for n in (0, 0, 1, 1, 2)]
    made = begun(PaperProgress, "put two pen in drawer")
    _, states = follow(made, *TWO)
    assert [state.split()[-1] for state in states] == [f"stage={n}" for n in (0, 1, 2, 3, 4)]
    compact = begun(CompactProgress, "put two pen in drawer")
    follow(compact, *TWO)
    assert compact.here == "sofa 1"


def test_one_receptacle_can_be_tool_and_destination():
    made = begun(CompactProgress, "put a cool mug in fridge")
    steps = [
        ("take mug 1 from desk 1", "You pick up the mug 1 from the desk 1."),
        ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
        ("cool mug 1 with fridge 1", "You cool the mug 1 using the fridge 1."),
        ("open fridge 1", "You open the fridge 1. The fridge 1 is open. In it, you see nothing."),
        ("move mug 1 to fridge 1", "You move the mug 1 to the fridge 1."),
    ]
    kinds, _ = follow(made, *steps)
    assert kinds == [
        "take:goal", "goto:tool", "transform:goal_right_tool", "open:dest", "place:goal@dest"
    ]  # fmt: skip


@pytest.mark.parametrize("kind", PRESETS.values())
def test_a_task_in_no_known_wording_has_states_too(kind):
    made = begun(kind, "tidy up")
    assert made.state().startswith("alf other ")
    assert made.abstract("go to desk 1", True, True) == "goto:other"
    assert made.abstract("cool mug 1 with fridge 1", True, True) == "transform:wrong"


@pytest.mark.parametrize("kind", PRESETS.values())
def test_what_was_refused_is_called_so(kind):
    made = begun(kind, "put a mug in desk")
    assert made.abstract("go to desk 1", False, True) == "malformed"
    assert made.abstract("go to desk 9", True, False) == "inadmissible"
    assert made.abstract("help", True, True) == "other"
    shared = [made.shareable("z", b) for b in ("malformed", "inadmissible", "look")]
    assert shared == ([True] * 3 if kind is PaperProgress else [False, False, True])


@pytest.mark.parametrize("kind", PRESETS.values())
def test_contexts_are_of_the_family_and_the_text(kind):
    one, other = begun(kind, "put a mug in desk"), begun(kind, "put some pen on sofa")
    assert one.context("x") == other.context("x") == begun(kind, "put a mug in desk").context("x")
    assert one.context("x") != one.context("y")
    assert one.context("x") != begun(kind, "cool some mug and put it in desk").context("x")


# Played ------------------------------------------------------------------------------------------


def play(env, made, choose, limit=20):
    """An episode: (state before, kind, action, admissible, state after) of each step."""
    observation, info = env.unwrapped.observation, env.unwrapped._info(env.unwrapped._last, None)
    made.reset(observation, info)
    told = []
    for _ in range(limit):
        action = choose()
        if action is None:
            break
        before = made.state()
        observation, reward, terminated, truncated, info = env.step(action)
        valid = info["action_valid"]
        kind = made.abstract(action, True, valid)
        made.update(action, valid, observation, reward, info)
        told.append((before, kind, action, valid, made.state()))
        if terminated or truncated:
            break
    return told


def expected(action, goal, treated):
    """The table, from the name of the task folder."""
    family, thing, _, target = goal[:4]
    verb = next((v for v in ("clean", "heat", "cool") if v in family), "")
    tools = {
        "clean": ("sinkbasin", "sink", "bathtubbasin"),
        "heat": ("microwave",),
        "cool": ("fridge",),
        "": (),
    }[verb]
    words = action.split()

    def place(name):
        if name in tools and (not treated or name != target):
            return "tool"
        return "dest" if name == target else "other"

    if words[0] == "go":
        return f"goto:{place(words[2])}"
    if words[0] == "open":
        return f"open:{place(words[1])}"
    if words[0] == "take":
        assert words[1] == thing
        return "take:goal_from_dest" if place(words[4]) == "dest" else "take:goal"
    if words[0] == "move":
        return f"place:goal@{place(words[4])}"
    if words[0] == "use":
        return "use:light_holding_goal"
    assert words[0] == verb
    return "transform:goal_right_tool"


@pytest.mark.parametrize("kind", PRESETS.values())
def test_every_action_of_the_oracle_is_of_the_kind_the_table_says(kind):
    env = gym.make("AlfWorld-v0", difficulty="small", catalogue="builtin:60", expert=True)
    families = set()
    for task_id in env.unwrapped.tasks.ids("train"):
        _, info = env.reset(seed=0, options={"task_id": task_id})
        goal = [part.lower() for part in task_id.split("/")[1].split("-")]
        families.add(goal[0])
        replay = iter(info["reference"])
        treated = False
        told = play(env, kind("x"), lambda replay=replay: next(replay, None))
        for _, found, action, valid, _ in told:
            assert valid
            if goal[0] == "look_at_obj_in_light" and found.startswith("goto"):
                assert found in ("goto:other", "goto:light")
            else:
                assert found == expected(action, goal, treated), (task_id, action)
            treated |= action.split()[0] in ("clean", "heat", "cool")
        if kind is CompactProgress and goal[0].startswith("pick"):
            number = 2 if "two" in goal[0] else 1
            assert f"placed={number}" in told[-1][-1]
    assert len(families) == 6


@pytest.mark.parametrize("kind", PRESETS.values())
def test_states_depend_on_the_past_alone_and_refused_actions_change_none(kind):
    env = gym.make("AlfWorld-v0", difficulty="small", catalogue="builtin:40")
    ids = env.unwrapped.tasks.ids("train")
    for number in range(12):
        rng = random.Random(number)
        env.reset(seed=0, options={"task_id": ids[number]})
        expert = demonstrate(env, random.Random(number), 0.5)

        def choose(rng=rng, expert=expert):
            wrong = ["open sofa 99", "take mug 9 from desk 9", "dance", "heat egg 1 with desk 1"]
            return rng.choice(wrong) if rng.random() < 0.3 else next(expert)

        told = play(env, kind("x"), choose)
        for before, found, _, valid, after in told:
            assert valid or (before == after and found == "inadmissible")
        # The same beginning and another end: the same states up to there.
        cut = len(told) // 2
        env.reset(seed=0, options={"task_id": ids[number]})
        replayed = iter([*(step[2] for step in told[:cut]), "look", "inventory"])
        again = play(env, kind("x"), lambda replayed=replayed: next(replayed, None))
        assert [step[0] for step in again[:cut]] == [step[0] for step in told[:cut]]


hostile = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        ["Nothing happens.", "You pick up the  from the .", "You are carrying: a .", ""]
    ),
    st.text(alphabet="You arrive at the.,:0123 pickuplseamoven", max_size=80),
)


@pytest.mark.parametrize("kind", PRESETS.values())
@given(st.lists(st.tuples(hostile, hostile), max_size=5))
@settings(max_examples=30, derandomize=True, deadline=None, database=None)
def test_no_text_breaks_it(kind, steps):
    made = begun(kind, "put a clean mug in desk")
    for action, observation in steps:
        assert made.state()
        assert made.abstract(action, True, True)
        made.update(action, True, observation, 0.0, {})


@pytest.mark.data
def test_every_official_task_line_is_read(data_dir, tmp_path):
    import json
    import re
    import tarfile

    families = {
        "pick_and_place_simple": "place",
        "look_at_obj_in_light": "light",
        "pick_clean_then_place_in_recep": "clean",
        "pick_heat_then_place_in_recep": "heat",
        "pick_cool_then_place_in_recep": "cool",
        "pick_two_obj_and_place": "two",
    }
    read = 0
    with tarfile.open(data_dir / "alfworld" / "official_games_1340.tar.xz") as archive:
        for member in archive:
            if not member.name.endswith(".tw-pddl") or read >= 150:
                continue
            file = archive.extractfile(member)
            line = re.search(r"Your task is to: ([^\"]+)\.", json.load(file)["grammar"])[1]
            folder = next(part for part in member.name.split("/") if part.count("-") >= 4)
            family, thing, _, target, _ = folder.split("-", 4)
            made = begun(CompactProgress, line)
            assert made.family == families[family], line
            assert made.request.thing == thing.lower()
            assert target.lower() in (made.request.target, made.request.lamp)
            read += 1
    assert read == 150
