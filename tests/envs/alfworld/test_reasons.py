"""Every refusal has its reason, and what is accepted is never explained away."""

from __future__ import annotations

import typing

import pytest
from alfworld_room import room

from envs.alfworld.reasons import Reason, explain
from envs.alfworld.simulator import Sim

AT_COUNTER = "go to countertop 1"
CASES = [
    ("", "jump", "unknown_command"),
    ("", "", "unknown_command"),
    ("", "look around", "unknown_command"),
    ("", "go desk 1", "unknown_command"),
    ("", "go to", "unknown_command"),
    ("", "take", "unknown_command"),
    ("", "take mug 1", "unknown_command"),
    ("", "move mug 1", "unknown_command"),
    ("", "put mug 1 in/on desk 1", "unknown_command"),
    ("", "heat mug 1", "unknown_command"),
    ("", "slice apple 1", "unknown_command"),
    ("", "open", "unknown_command"),
    ("", "use", "unknown_command"),
    ("", "examine", "unknown_command"),
    ("", "LOOK", "unknown_command"),
    ("", "go to desk 9", "unknown_receptacle"),
    ("", "open desk 9", "unknown_receptacle"),
    ("", "take mug 1 from desk 9", "unknown_receptacle"),
    ("", "heat mug 1 with oven 1", "unknown_receptacle"),
    ("", "take mug 9 from desk 1", "unknown_object"),
    ("", "move mug 9 to desk 1", "unknown_object"),
    ("", "cool mug 9 with fridge 1", "unknown_object"),
    ("", "slice mug 9 with knife 1", "unknown_object"),
    ("", "slice apple 1 with knife 9", "unknown_object"),
    ("", "use mug 9", "unknown_object"),
    ("", "examine mug 9", "unknown_object"),
    (AT_COUNTER, AT_COUNTER, "already_here"),
    (AT_COUNTER, "go to cabinet 1", "already_here"),
    ("", "open fridge 1", "not_here"),
    ("", "close fridge 1", "not_here"),
    ("", "take egg 1 from fridge 1", "not_here"),
    ("", "move egg 1 to fridge 1", "not_here"),
    ("", "heat egg 1 with microwave 1", "not_here"),
    ("", "use desklamp 1", "not_here"),
    ("", "examine desk 1", "not_here"),
    (f"{AT_COUNTER}; take knife 1 from countertop 1", "slice apple 1 with knife 1", "not_here"),
    (AT_COUNTER, "open countertop 1", "not_openable"),
    (AT_COUNTER, "close countertop 1", "not_openable"),
    (f"{AT_COUNTER}; open cabinet 1", "open cabinet 1", "already_open"),
    (AT_COUNTER, "close cabinet 1", "already_closed"),
    ("go to fridge 1", "take egg 1 from fridge 1", "closed"),
    (f"{AT_COUNTER}; take mug 2 from countertop 1", "move mug 2 to cabinet 1", "closed"),
    (f"{AT_COUNTER}; take mug 2 from countertop 1", "take spoon 1 from countertop 1", "hands_full"),
    (AT_COUNTER, "move spoon 1 to countertop 1", "not_holding"),
    (AT_COUNTER, "examine spoon 1", "not_holding"),
    ("go to microwave 1", "heat egg 1 with microwave 1", "not_holding"),
    ("go to fridge 1", "slice egg 1 with knife 1", "not_holding"),
    (AT_COUNTER, "take egg 1 from countertop 1", "not_in_receptacle"),
    ("go to desk 1", "take desklamp 1 from desk 1", "not_pickupable"),
    (f"{AT_COUNTER}; take spoon 1 from countertop 1; go to desk 1", "move spoon 1 to desk 1",
     "does_not_fit"),
    (f"{AT_COUNTER}; take knife 1 from countertop 1; go to microwave 1",
     "heat knife 1 with microwave 1", "wrong_object"),
    (f"{AT_COUNTER}; take knife 1 from countertop 1", "slice mug 2 with knife 1", "wrong_object"),
    (AT_COUNTER, "use mug 2", "wrong_object"),
    (f"{AT_COUNTER}; take mug 2 from countertop 1", "heat mug 2 with countertop 1",
     "wrong_receptacle"),
    (f"{AT_COUNTER}; take spoon 1 from countertop 1", "slice apple 1 with spoon 1", "not_a_knife"),
]  # fmt: skip


@pytest.mark.parametrize(("commands", "refused", "reason"), CASES)
def test_reasons(commands, refused, reason):
    sim = Sim(room())
    for command in filter(None, commands.split("; ")):
        sim.step(command)
        assert sim.accepted, command
    sim.step(refused)
    assert not sim.accepted
    assert explain(sim, sim.command) == reason


def test_every_reason_has_a_case():
    assert {reason for _, _, reason in CASES} == set(typing.get_args(Reason))


def test_the_other_wording_is_unknown_unless_read_leniently():
    sim = Sim(room(), "put")
    sim.step("move mug 1 to desk 1")
    assert explain(sim, sim.command) == "unknown_command"
    sim.step("put mug 1 in/on desk 1")
    assert explain(sim, sim.command) == "not_here"
    sim = Sim(room(), strict=False)
    sim.step("Put Mug 1 on Desk 1")
    assert explain(sim, sim.command) == "not_here"
