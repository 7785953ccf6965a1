"""Embedded games: made on the spot, the same on every machine, in the releases' own format.

A *room* is furniture: receptacles, where they stand, whether they open, where a lamp is. A *game*
is a room with things in it and a task. Rooms 1 to 80 of each kind are for training and for
``valid_seen`` and ``valid_train``; rooms 81 to 100 are for ``valid_unseen`` alone. As in the
released games some receptacles share a location and some drawers, cabinets and safes do not open.

Game ``i`` of a split and a seed is the same whatever the number of games. That it can be won is
proved by its walkthrough, which the oracle finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

from agentgym.dice import Dice
from agentgym.tasks import TaskSet
from envs.alfworld.game_text import domain, grammar, problem
from envs.alfworld.oracle import plan
from envs.alfworld.rooms import (
    ALWAYS_OPENABLE,
    CAN_CONTAIN,
    DESTINATIONS,
    FLAGS,
    MEANS,
    OFTEN_OPENABLE,
    ROOMS,
    TASK_TYPES,
    RoomKind,
)
from envs.alfworld.simulator import Sim
from envs.alfworld.world import TASK_PREFIX, World

__all__ = [
    "DEFAULT_CATALOGUE",
    "MAX_GAMES",
    "Difficulty",
    "Game",
    "GeneratedGames",
    "Layout",
    "builtin_size",
    "generated_games",
]

Difficulty = Literal["small", "full"]

#: Games of the training split, and seed 0.
DEFAULT_CATALOGUE = "builtin:3200"
MAX_GAMES = 100_000

_VALID_GAMES = 200
# Worlds that stay in memory, at some 20 kB each: all of the default catalogue.
_KEPT = 4096
_SEEN, _UNSEEN = range(80), range(80, 100)  # rooms of each kind
# The last one is what evaluations play unless told otherwise.
_EVALUATED = ("valid_train", "valid_seen", "valid_unseen")
_LOOK = "look_at_obj_in_light"
_LAMP = "DeskLamp"
#: Task type to the kinds of room it is set in, with weights.
_SETTINGS: dict[str, dict[RoomKind, int]] = {
    "pick_and_place_simple": {"kitchen": 1, "living": 1, "bedroom": 1, "bathroom": 1},
    _LOOK: {"living": 1, "bedroom": 2},
    "pick_clean_then_place_in_recep": {"kitchen": 2, "bathroom": 1},
    "pick_heat_then_place_in_recep": {"kitchen": 1},
    "pick_cool_then_place_in_recep": {"kitchen": 1},
    "pick_two_obj_and_place": {"kitchen": 1, "living": 1, "bedroom": 1, "bathroom": 1},
}
# Kinds of receptacle that stand at one location with the one before, and how often.
_NEIGHBOURS = {"StoveBurner": 0.9, "Cabinet": 0.3, "Drawer": 0.35, "Shelf": 0.2}
_ON_COUNTERS = ("CoffeeMachine", "Toaster")
_ON_COUNTER_SHARE = 0.5
# Small rooms: how often furniture that is not needed is there, and is there twice.
_SMALL_SHARE, _SMALL_TWICE = 0.45, 0.3
# Kinds of thing in a room, on average, and how often there is one of a kind, or two, ...
_KINDS = {"small": 8, "full": 20}
_COUNTS = {"small": (0.7, 0.3), "full": (0.55, 0.3, 0.15)}
_THIRD_OF_A_PAIR = 0.3
_CAN = {kind: frozenset(things) for kind, things in CAN_CONTAIN.items()}
_FLAGGED = {flag: frozenset(kinds) for flag, kinds in FLAGS.items()}
_SCENERY = _FLAGGED["scenery"]
_STATES = tuple(flag for flag in FLAGS if flag != "scenery")
_GOALS = {
    "pick_and_place_simple": ("put a {o} in {r}", "put some {o} on {r}"),
    _LOOK: ("look at {o} under the {r}", "examine the {o} with the {r}"),
    "pick_clean_then_place_in_recep": (
        "put a clean {o} in {r}", "clean some {o} and put it in {r}"
    ),
    "pick_heat_then_place_in_recep": ("put a hot {o} in {r}", "heat some {o} and put it in {r}"),
    "pick_cool_then_place_in_recep": ("put a cool {o} in {r}", "cool some {o} and put it in {r}"),
    "pick_two_obj_and_place": ("put two {o} in {r}", "find two {o} and put them in {r}"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """A receptacle.

    Attributes:
        name: Identifier.
        kind: Its kind, as identifiers write it.
        place: Number of its location, from 1; 0 is where the agent starts.
        opens: Whether it opens and closes.
    """

    name: str
    kind: str
    place: int
    opens: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """A room without its things.

    Attributes:
        number: Number of the room, as folders name it.
        kind: Kitchen, living, bedroom or bathroom.
        pieces: Its receptacles by kind.
        lamp: What a desk lamp stands on, or None.
    """

    number: int
    kind: RoomKind
    pieces: Mapping[str, tuple[Piece, ...]]
    lamp: Piece | None

    def sources(self, thing: str, but: str = "") -> dict[str, int]:
        """Kinds of receptacle that things of a kind lie in here, with weights."""
        if thing not in _SCENERY and not any(thing in _CAN.get(k, ()) for k in self.pieces):
            return {}  # once picked up it could never be put down
        weights = ROOMS[self.kind].things[thing]
        return {k: weight for k, weight in weights.items() if k in self.pieces and k != but}

    def tasks(self, task_type: str) -> dict[str, tuple[str, ...]]:
        """Kind of thing to the destinations that a task of a type can name here."""
        found: dict[str, tuple[str, ...]] = {}
        flag = MEANS[task_type][0] if task_type in MEANS else None
        for thing in ROOMS[self.kind].things:
            if thing in _SCENERY or (flag is not None and thing not in _FLAGGED[flag]):
                continue
            targets: tuple[str, ...]
            if task_type == _LOOK:
                targets = (_LAMP,) if self.sources(thing) else ()
            else:
                targets = tuple(
                    kind
                    for kind in DESTINATIONS[task_type]
                    if kind in self.pieces
                    and thing in _CAN.get(kind, ())
                    and self.sources(thing, but=kind)
                )
            if targets:
                found[thing] = targets
        return found


@dataclass(frozen=True, slots=True)
class Game:
    """A game before its things are put in place.

    Attributes:
        task_id: ``<split>/<task folder>/<trial folder>``.
        task_type: One of ALFWorld's six.
        layout: The room.
        thing: Kind of thing the task is about.
        target: Kind of receptacle (or lamp) it names.
    """

    task_id: str
    task_type: str
    layout: Layout
    thing: str
    target: str


class GeneratedGames:
    """The embedded games of one difficulty and seed.

    Args:
        difficulty: ``small`` (8 or 9 receptacles in a room) or ``full`` (about 22).
        games: Number of games of the training split; the others have 200 each.
        seed: Another seed gives other rooms and games.
    """

    def __init__(self, difficulty: Difficulty = "full", games: int = 3200, seed: int = 0) -> None:
        if difficulty not in _KINDS:
            raise ValueError(f"difficulty must be 'small' or 'full', got {difficulty!r}")
        if not 1 <= games <= MAX_GAMES:
            raise ValueError(f"games must be between 1 and {MAX_GAMES:,}, got {games!r}")
        if seed < 0:
            raise ValueError(f"seed must be >= 0, got {seed!r}")
        self.difficulty, self.games, self.seed = difficulty, games, seed
        sizes = {"train": games} | dict.fromkeys(_EVALUATED, _VALID_GAMES)
        self.tasks = TaskSet(
            {split: partial(self._list, split, size) for split, size in sizes.items()},
            train_split="train",
            eval_splits=_EVALUATED,
        )
        self._sizes = sizes
        self._layout = lru_cache(maxsize=None)(self._lay_out)
        self._choices = lru_cache(maxsize=None)(self._choose)
        self._rooms = lru_cache(maxsize=None)(self._fitting)
        self.world = lru_cache(maxsize=_KEPT)(self._make)

    def check(self, split: str | None) -> None:
        """Verify that there is such a split.

        Raises:
            ValueError: If there is not.
        """
        if split is not None and split not in self._sizes:
            raise ValueError(f"split must be one of {tuple(self._sizes)}, got {split!r}")

    def game(self, task_id: str) -> dict[str, Any]:
        """The content of a ``game.tw-pddl`` file.

        Raises:
            KeyError: If there is no such game.
        """
        text, task = self._problem(task_id)
        return {
            "pddl_domain": domain(),
            "grammar": grammar(task),
            "pddl_problem": text,
            "solvable": True,
            "walkthrough": list(self.world(task_id).walkthrough),
        }

    def layout(self, kind: RoomKind, place: int) -> Layout:
        """A room.

        Args:
            kind: Kind of room.
            place: 0 to 79 for the rooms of training, 80 to 99 for unseen ones.
        """
        return self._layout(kind, place)

    # Tasks ------------------------------------------------------------------------------------

    def _list(self, split: str, size: int) -> tuple[str, ...]:
        return tuple(self._draft(split, index)[0].task_id for index in range(size))

    def _dice(self, *key: object) -> Dice:
        words = " ".join(map(str, key))
        return Dice(f"alfworld {self.difficulty} {self.seed} {words}")

    def _draft(self, split: str, index: int) -> tuple[Game, Dice]:
        """A game's task, and the dice that go on to fill its room."""
        block, turn = divmod(index, len(TASK_TYPES))
        task_type = self._dice("types", split, block).draw(TASK_TYPES, len(TASK_TYPES))[turn]
        dice = self._dice("game", split, index)
        settings = _SETTINGS[task_type]
        kind = dice.weighted(tuple(settings), tuple(settings.values()))
        layout = dice.pick(self._rooms(kind, split == "valid_unseen", task_type))
        choices = self._choices(layout.number, kind, task_type)
        thing, targets = dice.pick(choices)
        target = dice.pick(targets)
        folder = f"{task_type}-{thing}-None-{target}-{layout.number}"
        task_id = f"{split}/{folder}/trial_{index:05d}"
        return Game(task_id, task_type, layout, thing, target), dice

    def _find(self, task_id: str) -> tuple[Game, Dice]:
        split, _, rest = task_id.partition("/")
        number = rest.rpartition("/trial_")[2]
        if split in self._sizes and number.isascii() and number.isdigit():
            index = int(number)
            if index < self._sizes[split]:
                game, dice = self._draft(split, index)
                if game.task_id == task_id:
                    return game, dice
        raise KeyError(f"there is no embedded game {task_id!r}")

    def _fitting(self, kind: RoomKind, unseen: bool, task_type: str) -> tuple[Layout, ...]:
        """The rooms of a kind that a task of a type can be set in."""
        rooms = [self.layout(kind, place) for place in (_UNSEEN if unseen else _SEEN)]
        return tuple(
            room
            for room in rooms
            if (room.lamp is not None or task_type != _LOOK) and room.tasks(task_type)
        )

    def _choose(
        self, number: int, kind: RoomKind, task_type: str
    ) -> tuple[tuple[str, tuple[str, ...]], ...]:
        layout = self.layout(kind, number - ROOMS[kind].first)
        return tuple(layout.tasks(task_type).items())

    # Rooms ------------------------------------------------------------------------------------

    def _lay_out(self, kind: RoomKind, place: int) -> Layout:
        room, dice = ROOMS[kind], self._dice("room", kind, place)
        small = self.difficulty == "small"
        counts: dict[str, int] = {}
        for item in room.furniture:
            needed = small and item.kind in room.needed
            there = dice.random() < (_SMALL_SHARE if small else item.share)
            if needed:
                counts[item.kind] = 1
            elif there and small:
                counts[item.kind] = 1 + (item.high > 1 and dice.random() < _SMALL_TWICE)
            elif there:
                # Low numbers are commoner than high ones.
                span = item.high - item.low
                counts[item.kind] = item.low + int(dice.random() * dice.random() * (span + 1))
        for kind_needed in room.needed:
            counts.setdefault(kind_needed, 1)
        rows: list[tuple[str, int]] = []
        last, counter = 0, 0
        for name in sorted(counts):
            for number in range(counts[name]):
                joins = last if number and dice.random() < _NEIGHBOURS.get(name, 0.0) else 0
                if name in _ON_COUNTERS and dice.random() < _ON_COUNTER_SHARE:
                    joins = counter
                place_of = joins or 1 + max((spot for _, spot in rows), default=0)
                rows.append((name, place_of))
                last = place_of
                if name == "CounterTop":
                    counter = place_of
        return self._furnish(room.first + place, kind, rows, dice)

    def _furnish(
        self, number: int, kind: RoomKind, rows: list[tuple[str, int]], dice: Dice
    ) -> Layout:
        # Places are numbered at random, so that names of locations say nothing.
        spots = max(spot for _, spot in rows)
        renumbered = (0, *dice.draw(range(1, spots + 1), spots))
        pieces: dict[str, list[Piece]] = {}
        for name, spot in rows:
            several = pieces.setdefault(name, [])
            opens = name in ALWAYS_OPENABLE or dice.random() < OFTEN_OPENABLE.get(name, 0.0)
            identifier = f"{name}_bar_{len(several) + 1:02d}"
            if name.endswith("Basin"):
                identifier = f"{name.removesuffix('Basin')}_bar_{len(several) + 1:02d}_bar_{name}"
            several.append(Piece(identifier, name, renumbered[spot], opens))
        fixed = {name: tuple(several) for name, several in pieces.items()}
        lamp = None
        stands = [piece for name in ROOMS[kind].stands for piece in fixed.get(name, ())]
        if dice.random() < ROOMS[kind].lamp and stands:
            lamp = dice.pick(stands)
        return Layout(number, kind, fixed, lamp)

    # Games ------------------------------------------------------------------------------------

    def _make(self, task_id: str) -> World:
        """The world of a game, read from the same problem text that its file holds."""
        text, task = self._problem(task_id)
        world = World.from_problem(text, task)
        return replace(world, walkthrough=plan(Sim(world)))

    def _problem(self, task_id: str) -> tuple[str, str]:
        """The planning problem of a game and the line that states its task."""
        game, dice = self._find(task_id)
        layout = game.layout
        things = self._things(game, dice)
        pieces = [piece for several in layout.pieces.values() for piece in several]
        kinds = {"agent1": "agent"}
        kinds |= {f"loc_bar_{piece.place:02d}": "location" for piece in pieces}
        kinds["loc_bar_00"] = "location"
        facts = ["atLocation agent1 loc_bar_00"]
        for piece in pieces:
            kinds[piece.name] = "receptacle"
            kinds[f"{piece.kind}Type"] = "rtype"
            facts.append(f"receptacleType {piece.name} {piece.kind}Type")
            facts.append(f"receptacleAtLocation {piece.name} loc_bar_{piece.place:02d}")
            if piece.opens:
                facts.append(f"openable {piece.name}")
        present = dict.fromkeys(kind for _, kind, _ in things)
        for container in layout.pieces:
            held = _CAN.get(container, ())
            facts += [f"canContain {container}Type {kind}Type" for kind in present if kind in held]
        for name, kind, piece in things:
            kinds[name] = "object"
            kinds[f"{kind}Type"] = "otype"
            facts.append(f"objectType {name} {kind}Type")
            facts.append(f"inReceptacle {name} {piece.name}")
            facts.append(f"objectAtLocation {name} loc_bar_{piece.place:02d}")
            facts += [f"{flag} {name}" for flag in _STATES if kind in _FLAGGED[flag]]
            if kind not in _SCENERY:
                facts.append(f"pickupable {name}")
        wording = dice.pick(_GOALS[game.task_type])
        said = wording.format(o=game.thing.lower(), r=game.target.lower())
        formula = _formula(game)
        name = "plan_" + task_id.rpartition("/")[2]
        return problem(name, kinds, facts, formula), f"{TASK_PREFIX}{said}."

    def _things(self, game: Game, dice: Dice) -> list[tuple[str, str, Piece]]:
        """Identifier, kind and receptacle of everything in the room."""
        layout, counts = game.layout, _COUNTS[self.difficulty]
        found: list[tuple[str, str, Piece]] = []

        def add(kind: str, number: int, but: str = "") -> None:
            weights = layout.sources(kind, but)
            for place in range(number if weights else 0):
                where = dice.weighted(tuple(weights), tuple(weights.values()))
                piece = dice.pick(layout.pieces[where])
                found.append((f"{kind}_bar_{place + 1:02d}", kind, piece))

        pair = game.task_type == "pick_two_obj_and_place"
        number = 1 + dice.weighted(range(len(counts)), counts)
        if pair:
            number = 2 + (dice.random() < _THIRD_OF_A_PAIR)
        # What the task is about does not lie where it has to go, so that no game starts won.
        add(game.thing, number, but=game.target)
        others = [kind for kind in ROOMS[layout.kind].things if kind != game.thing]
        share = min(0.8, _KINDS[self.difficulty] / len(others))
        for kind in others:
            if dice.random() < share:
                add(kind, 1 + dice.weighted(range(len(counts)), counts))
        if layout.lamp is not None:
            found.append((f"{_LAMP}_bar_01", _LAMP, layout.lamp))
        return found


def _formula(game: Game) -> str:
    thing, target = f"{game.thing}Type", f"{game.target}Type"
    if game.task_type == _LOOK:
        return (
            "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
            f"(objectType ?ot {target}) (toggleable ?ot) (isToggled ?ot) "
            "(receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) "
            f"(exists (?o - object ?a - agent) (and (objectType ?o {thing}) (holds ?a ?o))))"
        )
    if game.task_type == "pick_two_obj_and_place":
        typed = "(objectType ?{o} {thing}) (receptacleType ?r {target}) (inReceptacle ?{o} ?r)"
        first = typed.format(o="o1", thing=thing, target=target)
        second = typed.format(o="o2", thing=thing, target=target)
        return (
            f"(and (exists (?r - receptacle) (exists (?o1 - object) (and {first} "
            f"(exists (?o2 - object) (and (not (= ?o1 ?o2)) {second}))))))"
        )
    treated = ""
    if game.task_type in MEANS:
        flag, state, _, _ = MEANS[game.task_type]
        treated = f"({flag} ?o) ({state} ?o) "
    return (
        f"(and (exists (?r - receptacle) (exists (?o - object) (and {treated}"
        f"(inReceptacle ?o ?r) (objectType ?o {thing}) (receptacleType ?r {target})))))"
    )


def builtin_size(catalogue: str) -> tuple[int, int]:
    """Number of training games and seed of ``builtin:N`` or ``builtin:N:SEED``.

    Raises:
        ValueError: If it is neither.
    """
    word, *numbers = str(catalogue).split(":")
    plain = all(number.isascii() and number.isdigit() for number in numbers)
    if word != "builtin" or not 1 <= len(numbers) <= 2 or not plain:
        raise ValueError(f"catalogue must be 'builtin:N' or 'builtin:N:SEED', got {catalogue!r}")
    return int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else 0


@lru_cache(maxsize=8)
def generated_games(difficulty: Difficulty, games: int, seed: int) -> GeneratedGames:
    """The embedded games of a difficulty and seed, shared by all who ask."""
    return GeneratedGames(difficulty, games, seed)
