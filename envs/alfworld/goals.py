"""When a game is won.

Official goals have six shapes, which are recognised and checked by set operations on the state.
Any other goal is evaluated as the formula it is, by search over the objects of its variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from envs.alfworld.pddl import Facts, GameError, Tree

if TYPE_CHECKING:
    from envs.alfworld.simulator import Sim

__all__ = [
    "FormulaGoal",
    "Goal",
    "LampGoal",
    "Names",
    "PairGoal",
    "PlaceGoal",
    "TaskType",
    "read_goal",
]

TaskType = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
    "other",
]
Treatment = Literal["clean", "hot", "cool"]


class Goal(Protocol):
    """What wins a game.

    Attributes:
        task_type: Name that ALFWorld gives to goals of this shape, or ``other``.
        on_the_way: Going somewhere can win, so it is checked then, too.
    """

    task_type: TaskType
    on_the_way: bool

    def holds(self, sim: Sim) -> bool:
        """Whether the state of ``sim`` wins."""
        ...


@dataclass(frozen=True, slots=True)
class Names:
    """The things of a world by identifier, numbered as the world numbers them."""

    objects: Mapping[str, int]
    receptacles: Mapping[str, int]
    locations: Mapping[str, int]
    agent: str


@dataclass(frozen=True, slots=True)
class PlaceGoal:
    """An object of one type, treated if so asked, is in a receptacle of one type.

    Attributes:
        objects: Mask of the objects that count.
        receptacles: The receptacles that count.
        object_type: Their type, without ``type``.
        receptacle_type: Likewise.
        treatment: What must have been done to the object.
    """

    objects: int
    receptacles: tuple[int, ...]
    object_type: str
    receptacle_type: str
    treatment: Treatment | None
    task_type: TaskType
    on_the_way: bool = False

    def holds(self, sim: Sim) -> bool:
        """Whether the state of ``sim`` wins."""
        wanted = self.objects
        if self.treatment is not None:
            wanted &= getattr(sim, self.treatment)
        if wanted:
            contents = sim.contents
            for receptacle in self.receptacles:
                for thing in contents[receptacle]:
                    if wanted >> thing & 1:
                        return True
        return False


@dataclass(frozen=True, slots=True)
class PairGoal:
    """Two objects of one type are in the same receptacle of one type."""

    objects: int
    receptacles: tuple[int, ...]
    object_type: str
    receptacle_type: str
    task_type: TaskType = "pick_two_obj_and_place"
    on_the_way: bool = False

    def holds(self, sim: Sim) -> bool:
        """Whether the state of ``sim`` wins."""
        wanted, contents = self.objects, sim.contents
        for receptacle in self.receptacles:
            if sum(wanted >> thing & 1 for thing in contents[receptacle]) > 1:
                return True
        return False


@dataclass(frozen=True, slots=True)
class LampGoal:
    """The agent holds an object of one type where a lamp of one type is and was turned on."""

    objects: int
    lamps: tuple[int, ...]
    object_type: str
    lamp_type: str
    task_type: TaskType = "look_at_obj_in_light"
    on_the_way: bool = True

    def holds(self, sim: Sim) -> bool:
        """Whether the state of ``sim`` wins."""
        if sim.holding < 0 or not self.objects >> sim.holding & 1:
            return False
        contents, here = sim.contents, sim.world.at[sim.location]
        for lamp in self.lamps:
            if sim.toggled >> lamp & 1 and any(lamp in contents[place] for place in here):
                return True
        return False


class FormulaGoal:
    """Any goal, as a formula.

    Args:
        formula: The goal.
        kinds: Every declared name and its type.
        facts: Facts of the start, of which those count that no action changes.
        names: The things of the world.

    Raises:
        GameError: If the formula uses what is not kept track of.
    """

    task_type: TaskType = "other"
    on_the_way = True

    def __init__(self, formula: Tree, kinds: Mapping[str, str], facts: Facts, names: Names) -> None:
        self._formula = formula
        self._facts = {
            name: frozenset(tuple(row[1:]) for row in facts.get(name, ()))
            for name in _predicates(formula)
        }
        self._names = names
        self._members: dict[str, tuple[str, ...]] = {}
        for name, kind in kinds.items():
            self._members[kind] = (*self._members.get(kind, ()), name)
        for name in self._facts:
            if name in _UNTRACKED:
                raise GameError(
                    f"its goal uses the predicate {name!r}, which the native engine does not keep "
                    "track of; engine='textworld' does"
                )

    def holds(self, sim: Sim) -> bool:
        """Whether the state of ``sim`` wins."""
        return self._true(self._formula, {}, sim)

    def _true(self, formula: Tree, bound: Mapping[str, str], sim: Sim) -> bool:
        if isinstance(formula, str) or not formula:
            if not formula:
                return True
            raise GameError(f"its goal holds {formula!r} where a condition is expected")
        head, *rest = formula
        if head == "and":
            return all(self._true(part, bound, sim) for part in rest)
        if head == "or":
            return any(self._true(part, bound, sim) for part in rest)
        if head == "not":
            return not self._true(rest[0], bound, sim)
        if head == "imply":
            return not self._true(rest[0], bound, sim) or self._true(rest[1], bound, sim)
        if head == "exists":
            return any(self._assignments(_typed(rest[0]), _conjuncts(rest[1]), bound, sim))
        if head == "forall":
            body: list[Tree] = [["not", rest[1]]]
            return not any(self._assignments(_typed(rest[0]), body, bound, sim))
        arguments = [bound.get(str(name), str(name)) for name in rest]
        if head == "=":
            return arguments[0] == arguments[1]
        return self._fact(str(head), tuple(arguments), sim)

    def _assignments(
        self,
        variables: Sequence[tuple[str, str]],
        conditions: Sequence[Tree],
        bound: Mapping[str, str],
        sim: Sim,
    ) -> Iterator[bool]:
        """One True for each assignment that meets all conditions.

        A condition is tried as soon as its variables have values, which keeps the search small.
        """
        open_names = {name for name, _ in variables}
        ready = [part for part in conditions if not _symbols(part) & open_names]
        if not all(self._true(part, bound, sim) for part in ready):
            return
        if not variables:
            yield True
            return
        waiting = [part for part in conditions if part not in ready]
        (name, kind), *others = variables
        for member in self._members.get(kind, ()):
            yield from self._assignments(others, waiting, {**bound, name: member}, sim)

    def _fact(self, predicate: str, arguments: tuple[str, ...], sim: Sim) -> bool:
        names = self._names
        last = arguments[-1] if arguments else ""
        if predicate in _OBJECT_STATES:
            state: int = getattr(sim, _OBJECT_STATES[predicate])
            return bool(state >> names.objects[last] & 1) if last in names.objects else False
        if predicate == "opened":
            return last in names.receptacles and bool(sim.opened >> names.receptacles[last] & 1)
        if predicate == "inreceptacle":
            place, thing = names.receptacles.get(last), names.objects.get(arguments[0])
            return place is not None and thing in sim.contents[place]
        if predicate == "atlocation":
            return names.locations.get(last) == sim.location
        if predicate == "objectatlocation":
            thing, spot = names.objects.get(arguments[0]), names.locations.get(last)
            return thing is not None and spot is not None and bool(sim.spots[thing] >> spot & 1)
        if predicate == "holds":
            return sim.holding >= 0 and names.objects.get(last) == sim.holding
        if predicate == "holdsany":
            return sim.holding >= 0
        return arguments in self._facts[predicate]


_OBJECT_STATES = {
    "isclean": "clean",
    "ishot": "hot",
    "iscool": "cool",
    "istoggled": "toggled",
    "ison": "lit",
    "issliced": "sliced",
}
_UNTRACKED = frozenset(("checked",))
_WORDS = frozenset(("and", "or", "not", "imply", "exists", "forall", "="))


def read_goal(
    tree: Tree, kinds: Mapping[str, str], facts: Facts, names: Names
) -> PlaceGoal | PairGoal | LampGoal | FormulaGoal:
    """The goal of a formula: one of the six shapes, or the formula itself.

    Raises:
        GameError: If the formula cannot be evaluated.
    """
    return _shaped(tree, facts, names) or FormulaGoal(tree, kinds, facts, names)


def _shaped(tree: Tree, facts: Facts, names: Names) -> PlaceGoal | PairGoal | LampGoal | None:
    parts = [_flatten(part) for part in _conjuncts(tree)]
    if not parts or None in parts:
        return None
    sought = [part for part in parts if part is not None]
    if len(sought) == 1:
        return _placing(*sought[0], facts, names)
    if len(sought) == 2:
        return _looking(*sought[0], sought[1], facts, names) or _looking(
            *sought[1], sought[0], facts, names
        )
    return None


_Literals = frozenset[tuple[str, ...]]
_Part = tuple[dict[str, str], _Literals]
_TREATMENTS: dict[_Literals, tuple[Treatment | None, TaskType]] = {
    frozenset(): (None, "pick_and_place_simple"),
    frozenset({("cleanable", "o"), ("isclean", "o")}): (
        "clean",
        "pick_clean_then_place_in_recep",
    ),
    frozenset({("heatable", "o"), ("ishot", "o")}): ("hot", "pick_heat_then_place_in_recep"),
    frozenset({("coolable", "o"), ("iscool", "o")}): ("cool", "pick_cool_then_place_in_recep"),
}
_CAN = {"clean": "cleanable", "hot": "heatable", "cool": "coolable"}


def _placing(
    variables: dict[str, str], literals: _Literals, facts: Facts, names: Names
) -> PlaceGoal | PairGoal | None:
    places = [name for name, kind in variables.items() if kind == "receptacle"]
    things = [name for name, kind in variables.items() if kind == "object"]
    if len(places) != 1 or len(things) not in (1, 2) or len(variables) != len(things) + 1:
        return None
    what, where = _type_in(literals, "objecttype"), _type_in(literals, "receptacletype")
    if what is None or where is None:
        return None
    expected = {("receptacletype", places[0], where)}
    for thing in things:
        expected |= {("objecttype", thing, what), ("inreceptacle", thing, places[0])}
    if not expected <= literals:
        return None
    rest = literals - expected
    objects = _mask(facts, "objecttype", what, names.objects)
    receptacles = _of_type(facts, "receptacletype", where, names.receptacles)
    labels = (what.removesuffix("type"), where.removesuffix("type"))
    if len(things) == 2:
        apart = {frozenset((("!=", *things),)), frozenset((("!=", *reversed(things)),))}
        return PairGoal(objects, receptacles, *labels) if rest in apart else None
    renamed = frozenset(tuple("o" if a == things[0] else a for a in fact) for fact in rest)
    if renamed not in _TREATMENTS:
        return None
    treatment, task_type = _TREATMENTS[renamed]
    if treatment is not None:
        objects &= sum(1 << thing for thing in _able(facts, _CAN[treatment], names))
    return PlaceGoal(objects, receptacles, *labels, treatment, task_type)


def _looking(
    variables: dict[str, str], literals: _Literals, other: _Part, facts: Facts, names: Names
) -> LampGoal | None:
    """The goal of a lamp part and, in ``other``, a holding part."""
    by_kind = {kind: name for name, kind in variables.items()}
    if sorted(variables.values()) != ["agent", "location", "object", "receptacle"]:
        return None
    if sorted(other[0].values()) != ["agent", "object"]:
        return None
    lamp_type, what = _type_in(literals, "objecttype"), _type_in(other[1], "objecttype")
    if lamp_type is None or what is None:
        return None
    bulb, place = by_kind["object"], by_kind["receptacle"]
    agent, spot = by_kind["agent"], by_kind["location"]
    held = {kind: name for name, kind in other[0].items()}
    if other[1] != {
        ("objecttype", held["object"], what),
        ("holds", held["agent"], held["object"]),
    } or literals != {
        ("objecttype", bulb, lamp_type),
        ("toggleable", bulb),
        ("istoggled", bulb),
        ("receptacleatlocation", place, spot),
        ("atlocation", agent, spot),
        ("inreceptacle", bulb, place),
    }:
        return None
    able = _able(facts, "toggleable", names)
    lamps = _of_type(facts, "objecttype", lamp_type, names.objects)
    lamps = tuple(lamp for lamp in lamps if lamp in able)
    objects = _mask(facts, "objecttype", what, names.objects)
    return LampGoal(objects, lamps, what.removesuffix("type"), lamp_type.removesuffix("type"))


def _type_in(literals: _Literals, predicate: str) -> str | None:
    """The one type that literals of ``predicate`` name."""
    types = {fact[-1] for fact in literals if fact[0] == predicate}
    only = types.pop() if len(types) == 1 else "?"
    return None if only.startswith("?") else only


def _of_type(
    facts: Facts, predicate: str, kind: str, numbers: Mapping[str, int]
) -> tuple[int, ...]:
    rows = facts.get(predicate, ())
    return tuple(sorted({numbers[name] for _, name, k in rows if k == kind and name in numbers}))


def _able(facts: Facts, predicate: str, names: Names) -> set[int]:
    """The objects that a predicate holds for."""
    rows = facts.get(predicate, ())
    return {names.objects[name] for _, name in rows if name in names.objects}


def _mask(facts: Facts, predicate: str, kind: str, numbers: Mapping[str, int]) -> int:
    return sum(1 << number for number in _of_type(facts, predicate, kind, numbers))


def _flatten(tree: Tree) -> _Part | None:
    """Variables and literals of a conjunction under ``exists`` alone; None for anything else."""
    variables: dict[str, str] = {}
    literals: set[tuple[str, ...]] = set()
    pending = [tree]
    while pending:
        part = pending.pop()
        if isinstance(part, str) or not part:
            return None
        head, *rest = part
        if head == "exists":
            for name, kind in _typed(rest[0]):
                if name in variables:
                    return None
                variables[name] = kind
            pending += _conjuncts(rest[1])
        elif head == "and":
            pending += rest
        elif head == "not" and isinstance(rest[0], list) and rest[0][:1] == ["="]:
            literals.add(("!=", *map(str, rest[0][1:])))
        elif head in _WORDS:
            return None
        else:
            literals.add(tuple(map(str, part)))
    return variables, frozenset(literals)


def _conjuncts(tree: Tree) -> list[Tree]:
    if isinstance(tree, list) and tree[:1] == ["and"]:
        return [part for inner in tree[1:] for part in _conjuncts(inner)]
    return [tree]


def _typed(tree: Tree) -> list[tuple[str, str]]:
    """Variables and their types."""
    found: list[tuple[str, str]] = []
    pending: list[str] = []
    words = iter([] if isinstance(tree, str) else tree)
    for word in words:
        if word == "-":
            kind = next(words, None)
            found += [(name, str(kind)) for name in pending]
            pending = []
        else:
            pending.append(str(word))
    if pending:
        raise GameError(f"variable {pending[0]!r} in its goal has no type")
    return found


def _symbols(tree: Tree) -> set[str]:
    if isinstance(tree, str):
        return {tree}
    return set().union(*map(_symbols, tree))


def _predicates(tree: Tree) -> set[str]:
    if isinstance(tree, str) or not tree:
        return set()
    head, *rest = tree
    if head in ("exists", "forall"):
        return _predicates(rest[1])
    if head in _WORDS - {"="}:
        return set().union(*map(_predicates, rest))
    return {str(head)} - {"="}
