"""The oracle: knows where everything is, and finds the shortest way to the goal in closed form.

It plans from any state an episode can be in. A plan has at most three legs an object (fetch it,
treat it, put it down), so all choices of object, source and target are compared by their number of
commands; no search is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import permutations

from envs.alfworld.commands import putting
from envs.alfworld.goals import LampGoal, PairGoal, PlaceGoal
from envs.alfworld.simulator import Sim
from envs.alfworld.world import members

__all__ = ["plan"]

_VERBS = {"clean": "clean", "hot": "heat", "cool": "cool"}
# Objects that a pair is chosen from, those nearest at hand first.
_CANDIDATES = 6


def plan(sim: Sim) -> tuple[str, ...]:
    """The commands that win from the state of ``sim``, in its own style.

    Nothing of ``sim`` changes. Goals of another form than the six official ones have no closed
    form: for them there is the game's own walkthrough, at the start of an episode only.

    Returns:
        Commands in order; none if the game is won, or cannot be won from here.
    """
    if sim.won:
        return ()
    goal, world = sim.world.goal, sim.world
    if not isinstance(goal, PlaceGoal | PairGoal | LampGoal):
        return world.walkthrough if sim.moves == 0 else ()
    route = _Route(sim, sim.location, sim.opened, sim.holding)
    # Whatever the hand holds may be of use; if not, it is put down first.
    starts = [route]
    if sim.holding >= 0:
        starts += route.emptied()
    best: _Route | None = None
    for start in starts:
        for way in _ways(sim, goal, start):
            if best is None or len(way.commands) < len(best.commands):
                best = way
    return () if best is None else best.commands


def _ways(sim: Sim, goal: PlaceGoal | PairGoal | LampGoal, start: _Route) -> Iterator[_Route]:
    if isinstance(goal, PlaceGoal):
        return _placing(sim, goal, start)
    if isinstance(goal, PairGoal):
        return _pairing(sim, goal, start)
    return _looking(sim, goal, start)


@dataclass(frozen=True, slots=True)
class _Route:
    """Commands from a state, and what they lead to."""

    sim: Sim
    location: int
    opened: int
    holding: int
    commands: tuple[str, ...] = ()
    moved: dict[int, int] = field(default_factory=dict)

    def to(self, receptacle: int, *, inside: bool) -> _Route | None:
        """Stand at a receptacle, open if things are to go in or out."""
        world = self.sim.world
        place = world.places[receptacle]
        if place < 0:
            return None
        commands, opened, name = self.commands, self.opened, world.receptacles[receptacle]
        if place != self.location:
            commands = (*commands, f"go to {name}")
        if inside and world.openable >> receptacle & 1 and not opened >> receptacle & 1:
            commands, opened = (*commands, f"open {name}"), opened | 1 << receptacle
        return replace(self, location=place, commands=commands, opened=opened)

    def fetch(self, thing: int, source: int) -> _Route | None:
        """Take ``thing`` from ``source``."""
        there = self.to(source, inside=True)
        if there is None:
            return None
        world = self.sim.world
        command = f"take {world.objects[thing]} from {world.receptacles[source]}"
        return replace(there, holding=thing, commands=(*there.commands, command))

    def put(self, target: int) -> _Route | None:
        """Put down what is held."""
        world, thing = self.sim.world, self.holding
        if not world.accepts[target] >> thing & 1:
            return None
        there = self.to(target, inside=True)
        if there is None:
            return None
        command = putting(self.sim.style, world.objects[thing], world.receptacles[target])
        moved = {**there.moved, thing: target}
        return replace(there, holding=-1, commands=(*there.commands, command), moved=moved)

    def treat(self, treatment: str) -> Iterator[_Route]:
        """Clean, heat or cool what is held."""
        world, thing = self.sim.world, self.holding
        means = {"clean": world.washing, "hot": world.heating, "cool": world.cooling}[treatment]
        for receptacle in members(means):
            there = self.to(receptacle, inside=False)
            if there is not None:
                verb, name = _VERBS[treatment], world.receptacles[receptacle]
                command = f"{verb} {world.objects[thing]} with {name}"
                yield replace(there, commands=(*there.commands, command))

    def emptied(self) -> list[_Route]:
        """What is held is put down, in each place that is worth considering."""
        ways = [self.put(target) for target in _distinct(self.sim, range(len(self.sim.contents)))]
        return [way for way in ways if way is not None]


def _distinct(sim: Sim, receptacles: tuple[int, ...] | range) -> list[int]:
    """One receptacle of each sort: same type, shut or not, holding the same, in the same place.

    Places that nothing wanted lies in are all alike.
    """
    world, goal = sim.world, sim.world.goal
    wanted = goal.objects if isinstance(goal, PlaceGoal | PairGoal | LampGoal) else 0
    marked = {sim.location}
    for receptacle, things in enumerate(sim.contents):
        if any(wanted >> thing & 1 for thing in things):
            marked.add(world.places[receptacle])
    if isinstance(goal, LampGoal):
        lit = set(goal.lamps)
        marked |= {world.places[r] for r, things in enumerate(sim.contents) if lit & {*things}}
    means = world.washing | world.heating | world.cooling
    marked |= {world.places[receptacle] for receptacle in members(means)}
    found: dict[tuple[object, ...], int] = {}
    for receptacle in receptacles:
        place = world.places[receptacle]
        shut = world.openable & ~sim.opened
        inside = tuple(thing for thing in sim.contents[receptacle] if wanted >> thing & 1)
        key = (
            world.receptacle_types[receptacle],
            shut >> receptacle & 1,
            inside,
            place if place in marked else place >= 0,
        )
        found.setdefault(key, receptacle)
    return list(found.values())


def _sources(sim: Sim, thing: int) -> list[int]:
    return [receptacle for receptacle, things in enumerate(sim.contents) if thing in things]


def _held(sim: Sim, start: _Route, wanted: int) -> Iterator[_Route]:
    """Every way to hold one of the objects ``wanted``."""
    if start.holding >= 0:
        if wanted >> start.holding & 1:
            yield start
        return
    for thing in members(wanted & sim.world.pickupable):
        sources = [start.moved[thing]] if thing in start.moved else _sources(sim, thing)
        for source in sources:
            way = start.fetch(thing, source)
            if way is not None:
                yield way


def _placing(sim: Sim, goal: PlaceGoal, start: _Route) -> Iterator[_Route]:
    treated = -1 if goal.treatment is None else getattr(sim, goal.treatment)
    targets = _distinct(sim, goal.receptacles)
    for way in _held(sim, start, goal.objects):
        thing = way.holding
        ready: list[_Route] | Iterator[_Route] = [way]
        if goal.treatment is not None and not treated >> thing & 1:
            ready = way.treat(goal.treatment)
        # An object that is in two receptacles stays in the other one.
        taken_from = way.commands[-1].partition(" from ")[2] if way.commands else ""
        stays = any(
            thing in sim.contents[target] and sim.world.receptacles[target] != taken_from
            for target in goal.receptacles
        )
        for there in ready:
            if stays:
                yield there
                continue
            for target in targets:
                end = there.put(target)
                if end is not None:
                    yield end


def _pairing(sim: Sim, goal: PairGoal, start: _Route) -> Iterator[_Route]:
    for target in _distinct(sim, goal.receptacles):
        inside = [thing for thing in sim.contents[target] if goal.objects >> thing & 1]
        if start.moved.get(sim.holding) == target and goal.objects >> sim.holding & 1:
            inside.append(sim.holding)
        missing = 2 - len(set(inside))
        if missing <= 0:
            yield start
            continue
        free = [thing for thing in members(goal.objects) if thing not in inside]
        if start.holding >= 0:
            if start.holding not in free:
                continue
            free.remove(start.holding)
            first = start.put(target)
            if first is not None:
                yield from _bring(sim, first, target, free, missing - 1)
        else:
            yield from _bring(sim, start, target, free, missing)


def _bring(sim: Sim, start: _Route, target: int, free: list[int], missing: int) -> Iterator[_Route]:
    """Bring ``missing`` of the objects ``free`` to ``target``, one after the other."""
    for chosen in permutations(free[:_CANDIDATES], missing):
        ways: list[_Route] = [start]
        for thing in chosen:
            fetched = [end for way in ways for end in _held(sim, way, 1 << thing)]
            ways = [end for way in fetched if (end := way.put(target)) is not None]
        yield from ways


def _looking(sim: Sim, goal: LampGoal, start: _Route) -> Iterator[_Route]:
    stands = [(lamp, place) for lamp in goal.lamps for place in _sources(sim, lamp)]
    for way in _held(sim, start, goal.objects):
        for lamp, place in stands:
            there = way.to(place, inside=False)
            if there is None:
                continue
            if not sim.toggled >> lamp & 1:
                command = f"use {sim.world.objects[lamp]}"
                there = replace(there, commands=(*there.commands, command))
            yield there
