"""Which commands are admissible, in the order in which the original lists them: sorted.

Commands of one verb stand together, so lists are made verb by verb and only short runs are
sorted. What depends on the place alone is worked out once (:class:`View`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envs.alfworld.rules import CommandStyle
from envs.alfworld.world import World

if TYPE_CHECKING:
    from envs.alfworld.simulator import Sim

__all__ = ["View", "free_commands", "holding_commands", "putting"]

_ALWAYS = {"move": ("help", "inventory", "look"), "put": ("inventory", "look")}


class View:
    """What is said about one world in one style, worked out once and shared by its episodes.

    Args:
        world: The world.

    Attributes:
        going: For each receptacle the command that goes there, or an empty text.
        elsewhere: For each location the commands that go elsewhere, filled when first needed, as
            are the others.
        examining: For each location the commands that examine what stands there.
        facing: For each location the words for standing there.
        free: For each location the admissible commands with empty hands, while all there is as at
            the start.
        sees: For each receptacle what is seen in it, while it is as at the start.
        intro: The first observation.
        start_won: Whether the game starts won.
    """

    __slots__ = (
        "elsewhere", "examining", "facing", "free", "going", "intro", "sees", "start_won"
    )  # fmt: skip

    def __init__(self, world: World) -> None:
        self.going = [
            f"go to {name}" if place >= 0 else ""
            for name, place in zip(world.receptacles, world.places, strict=True)
        ]
        self.elsewhere: list[tuple[str, ...] | None] = [None] * len(world.at)
        self.examining: list[tuple[str, ...] | None] = [None] * len(world.at)
        self.facing: list[str | None] = [None] * len(world.at)
        self.free: list[tuple[str, ...] | None] = [None] * len(world.at)
        self.sees: list[str | None] = [None] * len(world.receptacles)
        self.intro: str | None = None
        self.start_won: bool | None = None


def putting(style: CommandStyle, thing: str, place: str) -> str:
    """The command that puts ``thing`` down."""
    return f"put {thing} in/on {place}" if style == "put" else f"move {thing} to {place}"


def free_commands(sim: Sim) -> tuple[str, ...]:
    """Admissible commands with empty hands."""
    world, here = sim.world, sim.world.at[sim.location]
    closing, opening = _doors(sim, here)
    taking: list[str] = []
    names, closed = world.objects, world.openable & ~sim.opened
    for receptacle in here:
        if closed >> receptacle & 1:
            continue
        source = world.receptacles[receptacle]
        taking += [
            f"take {names[thing]} from {source}"
            for thing in sim.contents[receptacle]
            if world.pickupable >> thing & 1
        ]
    taking.sort()
    return (
        *closing, *_examining(sim, here), *_leaving(sim), *_ALWAYS[sim.style], *opening, *taking,
        *_using(sim, here),
    )  # fmt: skip


def holding_commands(sim: Sim) -> tuple[str, ...]:
    """Admissible commands with an object in the hand."""
    world, here, thing = sim.world, sim.world.at[sim.location], sim.holding
    name, names = world.objects[thing], world.receptacles
    closing, opening = _doors(sim, here)
    cleaning, cooling, heating, moving, slicing = [], [], [], [], []
    closed = world.openable & ~sim.opened
    for receptacle in here:
        if world.washing >> receptacle & 1 and world.cleanable >> thing & 1:
            cleaning.append(f"clean {name} with {names[receptacle]}")
        if world.cooling >> receptacle & 1 and world.coolable >> thing & 1:
            cooling.append(f"cool {name} with {names[receptacle]}")
        if world.heating >> receptacle & 1 and world.heatable >> thing & 1:
            heating.append(f"heat {name} with {names[receptacle]}")
        if world.accepts[receptacle] >> thing & 1 and not closed >> receptacle & 1:
            moving.append(putting(sim.style, name, names[receptacle]))
    if world.knives >> thing & 1:
        slicing = [
            f"slice {world.objects[food]} with {name}"
            for food in world.sliceable
            if sim.spots[food] >> sim.location & 1
        ]
    for several in (cleaning, cooling, heating, moving, slicing):
        if len(several) > 1:
            several.sort()
    # "move" sorts before "open", "put" after it.
    ending = (*moving, *opening) if sim.style == "move" else (*opening, *moving)
    examining = sorted((*_examining(sim, here), f"examine {name}"))
    return (
        *cleaning, *closing, *cooling, *examining, *_leaving(sim), *heating, *_ALWAYS[sim.style],
        *ending, *slicing, *_using(sim, here),
    )  # fmt: skip


def _doors(sim: Sim, here: tuple[int, ...]) -> tuple[list[str], list[str]]:
    closing, opening = [], []
    names, openable, opened = sim.world.receptacles, sim.world.openable, sim.opened
    for receptacle in here:
        if openable >> receptacle & 1:
            if opened >> receptacle & 1:
                closing.append(f"close {names[receptacle]}")
            else:
                opening.append(f"open {names[receptacle]}")
    if len(closing) > 1:
        closing.sort()
    if len(opening) > 1:
        opening.sort()
    return closing, opening


def _examining(sim: Sim, here: tuple[int, ...]) -> tuple[str, ...]:
    known = sim.view.examining[sim.location]
    if known is None:
        names = sim.world.receptacles
        known = tuple(sorted(f"examine {names[receptacle]}" for receptacle in here))
        sim.view.examining[sim.location] = known
    return known


def _leaving(sim: Sim) -> tuple[str, ...]:
    view, places = sim.view, sim.world.places
    if not sim.strict:
        return tuple(
            sorted(
                going
                for receptacle, going in enumerate(view.going)
                if going and receptacle != sim.facing
            )
        )
    known = view.elsewhere[sim.location]
    if known is None:
        known = tuple(
            sorted(
                going
                for going, place in zip(view.going, places, strict=True)
                if going and place != sim.location
            )
        )
        view.elsewhere[sim.location] = known
    return known


def _using(sim: Sim, here: tuple[int, ...]) -> list[str]:
    lamps = sim.world.toggleable
    if not lamps:
        return []
    contents, names = sim.contents, sim.world.objects
    return sorted(
        f"use {names[lamp]}"
        for lamp in lamps
        if any(lamp in contents[receptacle] for receptacle in here)
    )
