"""The six forms of official goals, and goals of any form."""

from __future__ import annotations

import random

import pytest
from alfworld_room import GOALS, SOLUTIONS, problem, room

from envs.alfworld import goals
from envs.alfworld.goals import FormulaGoal, LampGoal, PairGoal, PlaceGoal
from envs.alfworld.simulator import Sim

CLASSES = {"pick_two_obj_and_place": PairGoal, "look_at_obj_in_light": LampGoal}


@pytest.mark.parametrize("kind", GOALS)
def test_forms_are_recognised(kind):
    goal = room(kind).goal
    assert isinstance(goal, CLASSES.get(kind, PlaceGoal))
    assert goal.task_type == kind
    if isinstance(goal, PlaceGoal):
        assert goal.treatment == {"clean": "clean", "heat": "hot", "cool": "cool"}.get(
            kind.split("_")[1]
        )


def test_what_is_sought_is_named():
    assert (room("pick_two_obj_and_place").goal.object_type,
            room("pick_two_obj_and_place").goal.receptacle_type) == ("mug", "desk")  # fmt: skip
    lamp = room("look_at_obj_in_light").goal
    assert (lamp.object_type, lamp.lamp_type) == ("mug", "desklamp")


@pytest.mark.parametrize("kind", GOALS)
def test_solutions_win_with_the_last_step_alone(kind):
    sim = Sim(room(kind))
    for command in SOLUTIONS[kind]:
        assert not sim.won
        assert command in sim.admissible()
        sim.step(command)
    assert sim.won


@pytest.mark.parametrize("kind", GOALS)
def test_forms_agree_with_the_formula(kind, monkeypatch):
    """Random play, wins and the way back from them included."""
    quick = room(kind)
    monkeypatch.setattr(goals, "_shaped", lambda *_: None)
    slow = room(kind)
    assert isinstance(slow.goal, FormulaGoal)
    sims = Sim(quick), Sim(slow)
    rng = random.Random(kind)
    wins = 0
    for lap in range(30):
        for sim in sims:
            sim.reset()
        commands = list(SOLUTIONS[kind]) if lap % 3 == 0 else []
        for _ in range(40):
            command = commands.pop(0) if commands else rng.choice(sims[0].admissible())
            assert sims[0].step(command) == sims[1].step(command)
            assert sims[0].won == sims[1].won, (lap, command)
            wins += sims[0].won
    assert wins > 10


def formula(text, **changes):
    goal = room(text, **changes).goal
    assert isinstance(goal, FormulaGoal)
    assert goal.task_type == "other"
    return goal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(and)", True),
        ("(atLocation agent1 loc_bar_0)", True),
        ("(exists (?l - location) (atLocation agent1 ?l))", True),
        ("(not (atLocation agent1 loc_bar_0))", False),
        ("(opened Fridge_bar_1)", False),
        ("(inReceptacle Mug_bar_1 CoffeeMachine_bar_1)", True),
        ("(objectAtLocation Apple_bar_2 loc_bar_5)", True),
        ("(objectAtLocation Apple_bar_2 loc_bar_1)", False),
        ("(or (opened Fridge_bar_1) (sliceable Egg_bar_1))", True),
        ("(imply (opened Fridge_bar_1) (sliceable Mug_bar_1))", True),
        ("(forall (?o - object) (imply (sliceable ?o) (pickupable ?o)))", True),
        ("(forall (?o - object) (pickupable ?o))", False),
        ("(exists (?a ?b - object) (and (not (= ?a ?b)) (objectType ?a MugType) "
         "(objectType ?b MugType)))", True),
        ("(exists (?a ?b - object) (and (not (= ?a ?b)) (objectType ?a EggType) "
         "(objectType ?b EggType)))", False),
        ("(exists (?o - object) (holds agent1 ?o))", False),
        ("(holdsAny agent1)", False),
        ("(isHot Nothing_bar_1)", False),
    ],
)  # fmt: skip
def test_formulas(text, expected):
    goal = formula(text)
    assert goal.holds(Sim(room())) is expected


def test_formulas_follow_the_state():
    sim = Sim(room("(and (opened Cabinet_bar_1) (exists (?o - object) (and (holds agent1 ?o) "
                   "(isSliced Apple_bar_2) (isOn DeskLamp_bar_1))))"))  # fmt: skip
    for command in (
        "go to countertop 1", "open cabinet 1", "take knife 1 from countertop 1", "go to drawer 1",
        "slice apple 1 with knife 1", "go to desk 1",
    ):  # fmt: skip
        sim.step(command)
        assert sim.accepted, command
        assert not sim.won
    wins = []
    for _ in range(3):  # the lamp goes on, off and on
        sim.step("use desklamp 1")
        wins.append(sim.won)
    assert wins == [True, False, True]


@pytest.mark.parametrize(
    "text",
    [
        GOALS["pick_and_place_simple"].replace("SpoonType", "?o"),
        GOALS["pick_clean_then_place_in_recep"].replace("(cleanable ?o)", ""),
        GOALS["pick_clean_then_place_in_recep"].replace("isClean", "isHot"),
        GOALS["pick_two_obj_and_place"].replace("(not (= ?o1 ?o2))", ""),
        GOALS["look_at_obj_in_light"].replace("(toggleable ?ot)", ""),
        GOALS["look_at_obj_in_light"].replace("(and (exists", "(or (exists", 1),
    ],
)
def test_goals_that_only_look_alike_stay_formulas(text):
    formula(text)


def test_variables_of_one_name_in_nested_scopes():
    inner = "(exists (?o - object) (objectType ?o EggType))"
    text = f"(exists (?o - object) (and (objectType ?o MugType) {inner}))"
    assert formula(text).holds(Sim(room()))


def test_conditions_may_stand_in_any_order():
    text = GOALS["pick_heat_then_place_in_recep"]
    for literal in ("(isHot ?o)", "(objectType ?o EggType)"):
        assert literal in text
    swapped = text.replace("(isHot ?o) (inReceptacle ?o ?r)", "(inReceptacle ?o ?r) (isHot ?o)")
    assert room(swapped).goal == room("pick_heat_then_place_in_recep").goal
    assert problem(swapped) != problem("pick_heat_then_place_in_recep")
