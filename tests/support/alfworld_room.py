"""A small room in ALFWorld's domain, written for tests, and a source of such games.

Locations and what stands there (``*`` opens): 0 nothing, the start; 1 countertop 1 and *cabinet
1; 2 *fridge 1; 3 *microwave 1; 4 sinkbasin 1; 5 *drawer 1; 6 desk 1; 7 coffeemachine 1; 8 drawer 2,
which does not open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentgym.tasks import TaskSet
from envs.alfworld.world import World

#: Receptacle: location and whether it opens. Names follow from the identifiers, downwards.
PLACES = {
    "CounterTop_bar_1": (1, False),
    "Cabinet_bar_1": (1, True),
    "Fridge_bar_1": (2, True),
    "Microwave_bar_1": (3, True),
    "Sink_bar_1_bar_SinkBasin": (4, False),
    "Drawer_bar_2": (5, True),
    "Desk_bar_1": (6, False),
    "CoffeeMachine_bar_1": (7, False),
    "Drawer_bar_1": (8, False),
}
#: Object: its receptacles and its objectAtLocation (None for the first receptacle's).
THINGS: dict[str, tuple[tuple[str, ...], int | None]] = {
    "Mug_bar_1": (("CounterTop_bar_1", "CoffeeMachine_bar_1"), None),
    "Mug_bar_2": (("Cabinet_bar_1",), None),
    "Apple_bar_1": (("Fridge_bar_1",), None),
    "Apple_bar_2": (("CounterTop_bar_1",), 5),
    "Egg_bar_1": (("Fridge_bar_1",), None),
    "Knife_bar_1": (("CounterTop_bar_1",), None),
    "Plate_bar_1": (("CounterTop_bar_1",), None),
    "Spoon_bar_1": (("CounterTop_bar_1",), None),
    "DeskLamp_bar_1": (("Desk_bar_1",), None),
    "FloorLamp_bar_1": ((), 6),
}
FLAGS = {
    "pickupable": ("Mug", "Apple", "Egg", "Knife", "Plate", "Spoon"),
    "cleanable": ("Mug", "Apple", "Plate", "Spoon", "Knife"),
    "heatable": ("Mug", "Apple", "Egg"),
    "coolable": ("Mug", "Apple", "Egg"),
    "sliceable": ("Apple", "Egg"),
    "toggleable": ("DeskLamp", "FloorLamp"),
    "isReceptacleObject": ("Mug", "Plate"),
}
CONTAINS = {
    "CounterTop": ("Mug", "Apple", "Egg", "Knife", "Plate", "Spoon"),
    "Cabinet": ("Mug", "Plate"),
    "Fridge": ("Mug", "Apple", "Egg", "Plate"),
    "Microwave": ("Mug", "Apple", "Egg"),
    "SinkBasin": ("Mug", "Apple", "Knife", "Plate", "Spoon"),
    "Drawer": ("Knife", "Spoon"),
    "Desk": ("Mug",),
    "CoffeeMachine": ("Mug",),
}


def _one(thing: str, place: str, *more: str) -> str:
    extra = "".join(f" ({fact})" for fact in more)
    return (
        f"(and (exists (?r - receptacle) (exists (?o - object) (and{extra} "
        f"(inReceptacle ?o ?r) (objectType ?o {thing}Type) (receptacleType ?r {place}Type)))))"
    )


#: The six forms of official goals, by task type.
GOALS = {
    "pick_and_place_simple": _one("Spoon", "Drawer"),
    "pick_clean_then_place_in_recep": _one("Apple", "Fridge", "cleanable ?o", "isClean ?o"),
    "pick_heat_then_place_in_recep": _one("Egg", "CounterTop", "heatable ?o", "isHot ?o"),
    "pick_cool_then_place_in_recep": _one("Apple", "Microwave", "coolable ?o", "isCool ?o"),
    "pick_two_obj_and_place": (
        "(and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 MugType) "
        "(receptacleType ?r DeskType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and "
        "(not (= ?o1 ?o2)) (objectType ?o2 MugType) (receptacleType ?r DeskType) "
        "(inReceptacle ?o2 ?r)))))))"
    ),
    "look_at_obj_in_light": (
        "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
        "(objectType ?ot DeskLampType) (toggleable ?ot) (isToggled ?ot) "
        "(receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) "
        "(exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o))))"
    ),
}
#: A solution of each.
SOLUTIONS = {
    "pick_and_place_simple": (
        "go to countertop 1", "take spoon 1 from countertop 1", "go to drawer 1", "open drawer 1",
        "move spoon 1 to drawer 1",
    ),
    "pick_clean_then_place_in_recep": (
        "go to fridge 1", "open fridge 1", "take apple 2 from fridge 1", "go to sinkbasin 1",
        "clean apple 2 with sinkbasin 1", "go to fridge 1", "move apple 2 to fridge 1",
    ),
    "pick_heat_then_place_in_recep": (
        "go to fridge 1", "open fridge 1", "take egg 1 from fridge 1", "go to microwave 1",
        "heat egg 1 with microwave 1", "go to cabinet 1", "move egg 1 to countertop 1",
    ),
    "pick_cool_then_place_in_recep": (
        "go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1",
        "cool apple 1 with fridge 1", "go to microwave 1", "open microwave 1",
        "move apple 1 to microwave 1",
    ),
    "pick_two_obj_and_place": (
        "go to countertop 1", "open cabinet 1", "take mug 1 from cabinet 1", "go to desk 1",
        "move mug 1 to desk 1", "go to coffeemachine 1", "take mug 2 from coffeemachine 1",
        "go to desk 1", "move mug 2 to desk 1",
    ),
    "look_at_obj_in_light": (
        "go to desk 1", "use desklamp 1", "go to coffeemachine 1",
        "take mug 2 from coffeemachine 1", "go to desk 1",
    ),
}  # fmt: skip


def _type(identifier: str) -> str:
    return identifier.rpartition("_bar_")[2] if "Sink" in identifier else identifier.split("_")[0]


def problem(
    goal: str = GOALS["pick_and_place_simple"],
    add: Iterable[str] = (),
    leave_out: Iterable[str] = (),
    objects: str = "",
) -> str:
    """The room as PDDL.

    Args:
        goal: The goal, or a task type of ``GOALS``.
        add: Facts beyond the usual ones, without parentheses.
        leave_out: Facts that are missing.
        objects: More lines for ``:objects``.
    """
    facts = ["atLocation agent1 loc_bar_0", "inReceptacleObject Spoon_bar_1 Plate_bar_1"]
    for name, (place, opens) in PLACES.items():
        facts += [f"receptacleAtLocation {name} loc_bar_{place}"]
        facts += [f"receptacleType {name} {_type(name)}Type"]
        facts += [f"openable {name}"] * opens
    for name, (where, spot) in THINGS.items():
        facts += [f"inReceptacle {name} {place}" for place in where]
        spot = PLACES[where[0]][0] if spot is None else spot
        facts += [f"objectAtLocation {name} loc_bar_{spot}", f"objectType {name} {_type(name)}Type"]
        facts += [f"{flag} {name}" for flag, kinds in FLAGS.items() if _type(name) in kinds]
    for place, kinds in CONTAINS.items():
        facts += [f"canContain {place}Type {kind}Type" for kind in kinds]
    facts = [fact for fact in facts if fact not in set(leave_out)] + list(add)
    stated = "\n".join(f"        ({fact})" for fact in facts)
    declared = "\n".join(
        [
            "agent1 - agent",
            *(f"        {name} - object" for name in THINGS),
            *(f"        {name} - receptacle" for name in PLACES),
            *(f"        loc_bar_{number} - location" for number in range(9)),
            *(f"        {kind}Type - rtype" for kind in CONTAINS),
            *(f"        {kind}Type - otype" for kind in {_type(name): None for name in THINGS}),
            objects,
        ]
    )
    return (
        f"(define (problem room)\n(:domain alfred)\n(:objects\n{declared}\n)\n(:init\n{stated}\n)\n"
        f"(:goal\n    {GOALS.get(goal, goal)}\n)\n)\n"
    )


def room(goal: str = "pick_and_place_simple", **changes: Any) -> World:
    """The room as a world; see :func:`problem`."""
    return World.from_problem(
        problem(goal, **changes), f"Your task is to: do {goal[:9]}.", SOLUTIONS.get(goal, ())
    )


class RoomSource:
    """Games in the room, one for each task type, in two splits."""

    root = "rooms"

    def __init__(self) -> None:
        names = ("train", "valid_seen")
        self.tasks = TaskSet(
            {name: [f"{name}/{kind}-room/t1" for kind in GOALS] for name in names},
            train_split="train",
            eval_splits=["valid_seen"],
        )
        self._worlds = {kind: room(kind) for kind in GOALS}

    def check(self, split: str | None) -> None:
        """Every split there is has games."""
        if split is not None and split not in self.tasks.splits:
            raise ValueError(f"no games of split {split!r}")

    def world(self, task_id: str) -> World:
        """The world of a task."""
        self.tasks.split_of(task_id)
        return self._worlds[task_id.split("/")[1].removesuffix("-room")]

    def game(self, task_id: str) -> Mapping[str, Any]:
        """Enough to find the world again."""
        return {"task_id": task_id}
