"""The unchanging part of a game, parsed once and shared by all its episodes.

Things are numbered in the order of their identifiers, which is the order in which the original
lists them. Sets of objects or receptacles are bit masks over those numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from sys import intern
from typing import Any

from envs.alfworld.goals import FormulaGoal, LampGoal, Names, PairGoal, PlaceGoal, read_goal
from envs.alfworld.pddl import Facts, GameError, read_facts, read_objects, read_tree, sections
from envs.alfworld.rules import RELEASED, DomainRules, domain_rules, wording

__all__ = ["TASK_PREFIX", "SimState", "World", "join", "listing", "members", "read_game"]

_KEYS = ("pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough")
_OBJECT_FLAGS = (
    "pickupable", "cleanable", "heatable", "coolable", "toggleable", "sliceable",
    "isreceptacleobject", "isclean", "ishot", "iscool", "istoggled", "ison", "issliced",
)  # fmt: skip
_ARITIES = dict.fromkeys((*_OBJECT_FLAGS, "openable", "opened"), 1) | dict.fromkeys(
    ("atlocation", "receptacleatlocation", "objectatlocation", "inreceptacle", "holds",
     "inreceptacleobject", "receptacletype", "objecttype", "cancontain"), 2
)  # fmt: skip
_NUMBERED = ("object", "receptacle", "location")
#: What introduces the task.
TASK_PREFIX = "Your task is to: "


@dataclass(frozen=True, slots=True)
class SimState:
    """Everything that actions change; plain values that can be compared, hashed and pickled.

    Attributes:
        location: Where the agent is.
        facing: Receptacle it last went to, or -1.
        holding: Object in its hand, or -1.
        contents: For each receptacle the objects in it, ascending. An object may be in several.
        spots: For each object the mask of locations it counts as being at.
        taken: (object, receptacle) pairs: taken from there and not put back.
        opened: Mask of receptacles.
        clean: Mask of objects.
        hot: Mask of objects.
        cool: Mask of objects.
        sliced: Mask of objects.
        toggled: Mask of objects that were ever turned on.
        lit: Mask of objects that are on.
        moves: Commands accepted so far.
    """

    location: int
    facing: int
    holding: int
    contents: tuple[tuple[int, ...], ...]
    spots: tuple[int, ...]
    taken: frozenset[tuple[int, int]]
    opened: int
    clean: int
    hot: int
    cool: int
    sliced: int
    toggled: int
    lit: int
    moves: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """One game's world.

    Attributes:
        task: The line that states the task.
        goal: What wins.
        walkthrough: The game file's own solution, in its own wording.
        objects: Names of objects ("mug 1").
        object_types: Their types ("mug").
        object_numbers: Name to number.
        receptacles: Names of receptacles.
        receptacle_types: Their types.
        receptacle_numbers: Name to number.
        places: For each receptacle its location, or -1.
        locations: Names of locations ("loc 3").
        at: For each location the receptacles there.
        openable: Mask of receptacles that open and close.
        accepts: For each receptacle the mask of objects that may be put there.
        washing: Mask of receptacles to clean with.
        heating: Mask of receptacles to heat with.
        cooling: Mask of receptacles to cool with.
        pickupable: Mask of objects.
        cleanable: Mask of objects.
        heatable: Mask of objects.
        coolable: Mask of objects.
        toggleable: Objects that can be turned on.
        sliceable: Objects that can be sliced.
        knives: Mask of objects that slice.
        vessels: Mask of objects that things can be in.
        inside: Vessel to the objects in it, which never change.
        start: State at the start.
    """

    task: str
    goal: PlaceGoal | PairGoal | LampGoal | FormulaGoal
    walkthrough: tuple[str, ...]
    objects: tuple[str, ...]
    object_types: tuple[str, ...]
    object_numbers: Mapping[str, int]
    receptacles: tuple[str, ...]
    receptacle_types: tuple[str, ...]
    receptacle_numbers: Mapping[str, int]
    places: tuple[int, ...]
    locations: tuple[str, ...]
    at: tuple[tuple[int, ...], ...]
    openable: int
    accepts: tuple[int, ...]
    washing: int
    heating: int
    cooling: int
    pickupable: int
    cleanable: int
    heatable: int
    coolable: int
    toggleable: tuple[int, ...]
    sliceable: tuple[int, ...]
    knives: int
    vessels: int
    inside: Mapping[int, tuple[int, ...]]
    start: SimState
    _views: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def goal_text(self) -> str:
        """The task without the words that introduce it."""
        return self.task.removeprefix(TASK_PREFIX)

    @classmethod
    def from_game(cls, game: Mapping[str, Any]) -> World:
        """The world of a game file's content.

        Args:
            game: Keys ``pddl_domain``, ``grammar``, ``pddl_problem``, ``walkthrough``.

        Raises:
            GameError: If the game is not one that the native engine plays.
        """
        for key in _KEYS:
            if key not in game and key != "solvable":
                raise GameError(f"it has no {key!r}; a game has the keys {', '.join(_KEYS)}")
        for key in _KEYS[:3]:
            if not isinstance(game[key], str):
                raise GameError(f"its {key!r} must be text, got {type(game[key]).__name__}")
        steps = game["walkthrough"] or ()
        if isinstance(steps, str) or not all(isinstance(step, str) for step in steps):
            raise GameError("its 'walkthrough' must be a list of commands")
        rules = domain_rules(game["pddl_domain"])
        said = wording(game["grammar"])
        return cls.from_problem(game["pddl_problem"], said.task, steps, rules)

    @classmethod
    def from_problem(
        cls,
        problem: str,
        task: str,
        walkthrough: Iterable[str] = (),
        rules: DomainRules = RELEASED,
    ) -> World:
        """The world of a planning problem in ALFWorld's domain.

        Args:
            problem: PDDL text.
            task: The line that states the task ("Your task is to: ...").
            walkthrough: A solution.
            rules: Where the domain differs from that of the released games.

        Raises:
            GameError: If the problem is malformed.
        """
        return _Builder(problem, rules).build(task, tuple(map(intern, walkthrough)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> World:
        """The world of a ``game.tw-pddl`` file.

        Raises:
            GameError: If it is absent, damaged, or not a game that the native engine plays.
        """
        game = read_game(path)
        try:
            return cls.from_game(game)
        except GameError as error:
            raise GameError(f"{os.fspath(path)} cannot be played natively: {error}") from None


def read_game(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of a ``game.tw-pddl`` file.

    Raises:
        GameError: If it is absent or damaged.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise GameError(
            f"the game file {os.fspath(path)} cannot be read: {error.strerror or error}"
        ) from None
    try:
        game = json.loads(raw)
    except ValueError as error:
        if not raw.strip(b"\0 \n\t"):
            what = "is empty"
        elif raw.startswith(b"version https://git-lfs"):
            what = "is a pointer of Git LFS in place of the file; fetch it with 'git lfs pull'"
        elif raw.lstrip()[:1] == b"{" and raw.rstrip()[-1:] != b"}":
            what = f"is cut short after {len(raw):,} bytes ({error})"
        else:
            what = f"is not JSON ({error})"
        raise GameError(
            f"the game file {os.fspath(path)} {what}; get the data again (alfworld-download)"
        ) from None
    if not isinstance(game, dict):
        raise GameError(
            f"the game file {os.fspath(path)} holds a JSON {type(game).__name__}; "
            f"a game is an object with the keys {', '.join(_KEYS)}"
        )
    return game


def listing(names: Iterable[str]) -> str:
    """Things in a sentence: ``a mug 2, a mug 1, and a pen 1``; ``nothing`` for none."""
    items = [f"a {name}" for name in names]
    return join(items) if items else "nothing"


def join(items: list[str]) -> str:
    """Items with commas and, before the last, ``, and``; two items have that comma, too."""
    if len(items) == 1:
        return items[0]
    return f"{', '.join(items[:-1])}, and {items[-1]}"


def members(mask: int) -> Iterable[int]:
    """The numbers in a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class _Builder:
    """Turns a problem's text into a world."""

    def __init__(self, problem: str, rules: DomainRules) -> None:
        parts = sections(problem)
        for name in ("objects", "init", "goal"):
            if name not in parts:
                raise GameError(f"its pddl_problem has no section (:{name} ...)")
        self.kinds = read_objects(parts["objects"])
        self.facts: Facts = read_facts(parts["init"])
        self.formula = read_tree(parts["goal"])
        self.rules = rules
        # "cancontain", a quarter of all facts, names types alone.
        facts = [rows for name, rows in self.facts.items() if name != "cancontain"]
        named = set(chain.from_iterable(chain.from_iterable(facts)))
        named.difference_update([rows[0][0] for rows in facts])  # the predicates' own tokens
        if not named <= self.kinds.keys():
            stranger = min(named - self.kinds.keys())
            raise GameError(f"its facts name {stranger!r}, which :objects does not declare")
        # Only what a fact mentions exists in the game: the rest is not even numbered.
        of_kind: dict[str, list[str]] = {kind: [] for kind in _NUMBERED}
        counted = []
        for name in sorted(named):
            members_of_kind = of_kind.get(self.kinds[name])
            if members_of_kind is not None:
                members_of_kind.append(name)
                counted.append(name)
        self.titles = _titles(counted)
        agents = [name for name in named if self.kinds[name] == "agent"]
        if len(agents) != 1:
            raise GameError(f"it must have one agent, not {len(agents)}")
        self.names = Names(
            **{f"{kind}s": _numbered(names) for kind, names in of_kind.items()}, agent=agents[0]
        )

    def build(self, task: str, walkthrough: tuple[str, ...]) -> World:
        try:
            return self._build(task, walkthrough)
        except GameError:
            raise
        except ValueError:  # a fact has too many arguments or too few
            self._count_arguments()
            raise

    def _count_arguments(self) -> None:
        """Say which facts have a wrong number of arguments."""
        for predicate, arity in _ARITIES.items():
            rows = self.facts.get(predicate, ())
            wrong = sorted(" ".join(row) for row in rows if len(row) != arity + 1)
            if wrong:
                raise GameError(
                    f"its facts use {predicate!r} with another number of arguments than {arity}: "
                    f"{'; '.join(wrong)[:120]}"
                )

    def _build(self, task: str, walkthrough: tuple[str, ...]) -> World:
        names, titles = self.names, self.titles
        objects = tuple(titles[name] for name in names.objects)
        receptacles = tuple(titles[name] for name in names.receptacles)
        objects_of = self._by_type("objecttype", names.objects)
        receptacles_of = self._by_type("receptacletype", names.receptacles)
        places = self._places()
        at: list[list[int]] = [[] for _ in names.locations]
        for receptacle, place in enumerate(places):
            if place >= 0:
                at[place].append(receptacle)
        # Read before the goal is: it takes the facts to be well-formed.
        flags = {name: self._mask(name, names.objects) for name in _OBJECT_FLAGS}
        start = self._start(flags)
        inside: dict[int, list[int]] = {}
        for inner, outer in self._pairs("inreceptacleobject", names.objects, names.objects):
            inside.setdefault(outer, []).append(inner)

        washing = 0
        for kind in self.rules.washing:
            washing |= receptacles_of.get(kind, 0)
        return World(
            task=task,
            goal=read_goal(self.formula, self.kinds, self.facts, names),
            walkthrough=walkthrough,
            objects=objects,
            object_types=_labels(objects_of, len(objects)),
            object_numbers={name: i for i, name in enumerate(objects)},
            receptacles=receptacles,
            receptacle_types=_labels(receptacles_of, len(receptacles)),
            receptacle_numbers={name: i for i, name in enumerate(receptacles)},
            places=places,
            locations=tuple(titles[name] for name in names.locations),
            at=tuple(map(tuple, at)),
            openable=self._mask("openable", names.receptacles),
            accepts=self._accepts(receptacles_of, objects_of, len(receptacles)),
            washing=washing,
            heating=receptacles_of.get("microwavetype", 0),
            cooling=receptacles_of.get("fridgetype", 0),
            pickupable=flags["pickupable"],
            cleanable=flags["cleanable"],
            heatable=flags["heatable"],
            coolable=flags["coolable"],
            toggleable=tuple(members(flags["toggleable"])),
            sliceable=tuple(members(flags["sliceable"])),
            knives=objects_of.get("knifetype", 0) | objects_of.get("butterknifetype", 0),
            vessels=flags["isreceptacleobject"],
            inside={outer: tuple(sorted(inner)) for outer, inner in inside.items()},
            start=start,
        )

    def _accepts(
        self, receptacles_of: Mapping[str, int], objects_of: Mapping[str, int], count: int
    ) -> tuple[int, ...]:
        """For each receptacle the mask of objects that its type can contain."""
        accepted: dict[str, int] = {}
        for _, container, kind in self.facts.get("cancontain", ()):
            if kind in objects_of:
                accepted[container] = accepted.get(container, 0) | objects_of[kind]
        accepts = [0] * count
        for container, things in accepted.items():
            for receptacle in members(receptacles_of.get(container, 0)):
                accepts[receptacle] |= things
        return tuple(accepts)

    def _start(self, flags: Mapping[str, int]) -> SimState:
        names = self.names
        here = self._pairs("atlocation", {names.agent: 0}, names.locations)
        if len(here) != 1:
            raise GameError(f"its agent must be at one location, not at {len(here)}")
        held = self._pairs("holds", {names.agent: 0}, names.objects)
        if len(held) > 1 or bool(held) != bool(self.facts.get("holdsany")):
            raise GameError(
                f"its agent holds {len(held)} objects at the start; the native engine plays one "
                "or none, stated by both 'holds' and 'holdsAny'"
            )
        contents: list[list[int]] = [[] for _ in names.receptacles]
        for thing, receptacle in self._pairs("inreceptacle", names.objects, names.receptacles):
            contents[receptacle].append(thing)
        spots = [0] * len(names.objects)
        for thing, place in self._pairs("objectatlocation", names.objects, names.locations):
            spots[thing] |= 1 << place
        return SimState(
            location=here.pop()[1],
            facing=-1,
            holding=held.pop()[1] if held else -1,
            contents=tuple(tuple(sorted(things)) for things in contents),
            spots=tuple(spots),
            taken=frozenset(),
            opened=self._mask("opened", names.receptacles),
            clean=flags["isclean"],
            hot=flags["ishot"],
            cool=flags["iscool"],
            sliced=flags["issliced"],
            toggled=flags["istoggled"],
            lit=flags["ison"],
        )

    def _places(self) -> tuple[int, ...]:
        places = [-1] * len(self.names.receptacles)
        for receptacle, place in self._pairs(
            "receptacleatlocation", self.names.receptacles, self.names.locations
        ):
            if places[receptacle] >= 0:
                name = self.titles[list(self.names.receptacles)[receptacle]]
                raise GameError(f"its {name} stands at two locations")
            places[receptacle] = place
        return tuple(places)

    # A fact about things of the wrong kind is no error: to planners it is one that nothing uses.

    def _by_type(self, predicate: str, numbers: Mapping[str, int]) -> dict[str, int]:
        """Type constant to the mask of things that have it."""
        masks: dict[str, int] = {}
        for _, name, kind in self.facts.get(predicate, ()):
            if name in numbers:
                masks[kind] = masks.get(kind, 0) | 1 << numbers[name]
        return masks

    def _pairs(
        self, predicate: str, first: Mapping[str, int], second: Mapping[str, int]
    ) -> set[tuple[int, int]]:
        rows = self.facts.get(predicate, ())
        return {(first[a], second[b]) for _, a, b in rows if a in first and b in second}

    def _mask(self, predicate: str, numbers: Mapping[str, int]) -> int:
        mask = 0
        for _, name in self.facts.get(predicate, ()):
            if name in numbers:
                mask |= 1 << numbers[name]
        return mask


def _labels(masks: Mapping[str, int], count: int) -> tuple[str, ...]:
    """Type of each thing without ``type``; the first one of several, an empty text for none."""
    labels = [""] * count
    for kind in sorted(masks, reverse=True):
        for number in members(masks[kind]):
            labels[number] = intern(kind.removesuffix("type"))
    return tuple(labels)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _titles(identifiers: list[str]) -> dict[str, str]:
    """Identifier to the name that players see.

    As in the original: things are counted by the part before the first ``_bar_`` (with ``basin``
    for the basins of sinks and baths), and numbered downwards in the order of identifiers.
    """
    counts: dict[str, int] = {}
    titles = {}
    for name in reversed(identifiers):
        head, bar, _ = name.partition("_bar_")
        if bar:
            if "basin" in name:
                head += "basin"
            count = counts[head] = counts.get(head, 0) + 1
            titles[name] = intern(f"{head} {count}")
        else:
            titles[name] = f"{name} "
    return titles
