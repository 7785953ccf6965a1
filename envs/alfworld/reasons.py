"""Why a command was not admissible."""

from __future__ import annotations

from typing import Literal

from envs.alfworld.simulator import Sim

__all__ = ["Reason", "explain"]

Reason = Literal[
    "unknown_command",
    "unknown_object",
    "unknown_receptacle",
    "already_here",
    "not_here",
    "not_openable",
    "already_open",
    "already_closed",
    "closed",
    "hands_full",
    "not_holding",
    "not_in_receptacle",
    "not_pickupable",
    "does_not_fit",
    "wrong_object",
    "wrong_receptacle",
    "not_a_knife",
]


def explain(sim: Sim, command: str) -> Reason:
    """Why ``command`` is not admissible in the state of ``sim``.

    The first obstacle is named, in the order: the form of the command, the names in it, where
    they are, what state they are in, what they can be used for.

    Args:
        sim: An episode in which the command was refused.
        command: The command as the episode read it.
    """
    verb, _, rest = command.partition(" ")
    if verb == "go":
        return _going(sim, rest[3:]) if rest.startswith("to ") else "unknown_command"
    if verb in ("open", "close"):
        return _door(sim, verb, rest)
    if verb == "take":
        return _taking(sim, *_split(rest, " from "))
    if verb == sim.style:
        return _putting(sim, *_split(rest, " to " if verb == "move" else " in/on "))
    if verb in ("clean", "heat", "cool"):
        return _treating(sim, verb, *_split(rest, " with "))
    if verb == "slice":
        return _slicing(sim, *_split(rest, " with "))
    if verb == "use":
        return _using(sim, rest)
    if verb == "examine":
        return _examining(sim, rest)
    return "unknown_command"


def _split(rest: str, between: str) -> tuple[str, str]:
    first, _, second = rest.partition(between)
    return first, second


def _place(sim: Sim, name: str) -> Reason | None:
    """What is wrong with a receptacle that has to be here."""
    number = sim.world.receptacle_numbers.get(name)
    if number is None:
        return "unknown_command" if not name else "unknown_receptacle"
    return None if sim.world.places[number] == sim.location else "not_here"


def _is_closed(sim: Sim, name: str) -> bool:
    bit = 1 << sim.world.receptacle_numbers[name]
    return bool(sim.world.openable & bit and not sim.opened & bit)


def _going(sim: Sim, name: str) -> Reason:
    return _place(sim, name) or "already_here"


def _door(sim: Sim, verb: str, name: str) -> Reason:
    problem = _place(sim, name)
    if problem is not None:
        return problem
    if not sim.world.openable >> sim.world.receptacle_numbers[name] & 1:
        return "not_openable"
    return "already_open" if verb == "open" else "already_closed"


def _taking(sim: Sim, name: str, source: str) -> Reason:
    thing = sim.world.object_numbers.get(name)
    if not source:
        return "unknown_command"
    if thing is None:
        return "unknown_object"
    problem = _place(sim, source)
    if problem is not None:
        return problem
    if sim.holding >= 0:
        return "hands_full"
    if _is_closed(sim, source):
        return "closed"
    if thing not in sim.contents[sim.world.receptacle_numbers[source]]:
        return "not_in_receptacle"
    return "not_pickupable"


def _putting(sim: Sim, name: str, target: str) -> Reason:
    thing = sim.world.object_numbers.get(name)
    if not target:
        return "unknown_command"
    if thing is None:
        return "unknown_object"
    problem = _place(sim, target)
    if problem is not None:
        return problem
    if sim.holding != thing:
        return "not_holding"
    return "closed" if _is_closed(sim, target) else "does_not_fit"


def _treating(sim: Sim, verb: str, name: str, means: str) -> Reason:
    world = sim.world
    thing = world.object_numbers.get(name)
    if not means:
        return "unknown_command"
    if thing is None:
        return "unknown_object"
    problem = _place(sim, means)
    if problem is not None:
        return problem
    if sim.holding != thing:
        return "not_holding"
    able = {"clean": world.cleanable, "heat": world.heatable, "cool": world.coolable}[verb]
    return "wrong_receptacle" if able >> thing & 1 else "wrong_object"


def _slicing(sim: Sim, name: str, knife: str) -> Reason:
    world = sim.world
    food, tool = world.object_numbers.get(name), world.object_numbers.get(knife)
    if not knife:
        return "unknown_command"
    if food is None or tool is None:
        return "unknown_object"
    if not world.knives >> tool & 1:
        return "not_a_knife"
    if sim.holding != tool:
        return "not_holding"
    return "not_here" if food in world.sliceable else "wrong_object"


def _using(sim: Sim, name: str) -> Reason:
    thing = sim.world.object_numbers.get(name)
    if thing is None:
        return "unknown_object" if name else "unknown_command"
    return "not_here" if thing in sim.world.toggleable else "wrong_object"


def _examining(sim: Sim, name: str) -> Reason:
    """Objects can be examined in the hand only."""
    if name in sim.world.receptacle_numbers:
        return "not_here"
    if name in sim.world.object_numbers:
        return "not_holding"
    return "unknown_object" if name else "unknown_command"
