"""The exploring expert: plays by what the text has shown, and by what rooms are usually like.

It is the teacher of demonstrations. The oracle knows where things are, so its episodes would teach
a policy that sees only the text to guess; the expert has to search, and its searching can be
imitated. It reads the first observation and the answers to its commands, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from envs.alfworld.commands import putting
from envs.alfworld.generator import DEFAULT_CATALOGUE, builtin_size
from envs.alfworld.rooms import ROOMS
from envs.alfworld.rules import CommandStyle
from envs.alfworld.simulator import NOTHING
from envs.alfworld.world import TASK_PREFIX

__all__ = [
    "CLOSED",
    "INSIDE",
    "LISTED",
    "Explorer",
    "Request",
    "demonstrate",
    "kind_of",
    "practice_games",
    "read_request",
]

# What noise 1 does: share of searches that go anywhere, and of steps that are random.
_ANYWHERE, _ASTRAY = 0.4, 0.15
# Games of a set to practise in: listing thousands takes longer than playing some.
_PRACTICE = 500
# How much likelier a search goes where things of the kind are usually found.
_PLAUSIBLE = 4.0


class _Random(Protocol):
    def random(self) -> float:
        """A number in [0, 1)."""
        ...


# The task ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """What a task line asks for.

    Attributes:
        thing: Kind of object.
        target: Kind of receptacle it is to be in; empty for looking at it.
        verb: ``clean``, ``heat``, ``cool`` or empty.
        lamp: Kind of lamp to look at it under, or empty.
        number: How many objects.
    """

    thing: str
    target: str = ""
    verb: str = ""
    lamp: str = ""
    number: int = 1


_PHRASES = tuple(
    re.compile(phrase)
    for phrase in (
        r"(?P<two>put|find) two (?P<thing>\w+) (?:and put them )?in (?P<target>\w+)",
        r"(?:look at|examine) (?:the |a )?(?P<thing>\w+) (?:under|with) the (?P<lamp>\w+)",
        r"put a (?P<verb>clean|hot|cool) (?P<thing>\w+) in (?P<target>\w+)",
        r"(?P<verb>clean|heat|cool) some (?P<thing>\w+) and put it in (?P<target>\w+)",
        r"put (?:a|some) (?P<thing>\w+) (?:in|on) (?P<target>\w+)",
    )
)
_WITH = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}


def read_request(goal: str) -> Request:
    """What a task line asks for, in any of the twelve wordings.

    Args:
        goal: The task, without the words that introduce it.

    Raises:
        ValueError: If it is none of those.
    """
    for phrase in _PHRASES:
        found = phrase.fullmatch(goal.strip().removesuffix("."))
        if found:
            parts = found.groupdict("")
            verb = "heat" if parts.get("verb") == "hot" else parts.get("verb", "")
            return Request(
                parts["thing"],
                parts.get("target", ""),
                verb,
                parts.get("lamp", ""),
                2 if "two" in parts else 1,
            )
    raise ValueError(f"the task {goal!r} is in none of ALFWorld's wordings")


def _usual_places() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {"desklamp": set()}
    for room in ROOMS.values():
        for thing, kinds in room.things.items():
            found.setdefault(thing.lower(), set()).update(kind.lower() for kind in kinds)
        found["desklamp"].update(kind.lower() for kind in room.stands)
    return {thing: frozenset(kinds) for thing, kinds in found.items()}


_USUAL = _usual_places()


# The expert --------------------------------------------------------------------------------------

#: A thing in a list, a closed receptacle, and what is in or on one, as the game says it.
LISTED = re.compile(r"\ban? ([a-z]+ \d+)")
CLOSED = re.compile(r"\bThe ([a-z]+ \d+) is closed\.")
INSIDE = re.compile(
    r"\b(?:The (?P<opened>[a-z]+ \d+) is open\. In it|On the (?P<on>[a-z]+ \d+)), "
    r"you see (?P<list>[^.]*)\."
)


class Explorer:
    """One episode of the expert.

    Call :meth:`act` for a command and :meth:`hear` with the answer, in turns.

    Args:
        intro: The first observation.
        rng: Source of randomness (NumPy's or the standard library's).
        noise: Between 0 and 1; see :func:`demonstrate`.
        style: How an object is put down.

    Raises:
        ValueError: If the task is in none of ALFWorld's wordings.
    """

    def __init__(
        self, intro: str, rng: _Random, noise: float = 0.0, style: CommandStyle = "move"
    ) -> None:
        room, _, goal = intro.rpartition(TASK_PREFIX)
        self.request = read_request(goal)
        self.receptacles = LISTED.findall(room)
        self.holding = ""
        self._rng, self._noise, self._style = rng, noise, style
        self._here = ""
        self._contents: dict[str, list[str]] = {}  # what was seen where
        self._closed: set[str] = set()
        self._opens: set[str] = set()
        self._useless: set[str] = set()  # receptacles that refuse what should work
        self._treated: set[str] = set()
        self._refusals: dict[str, int] = {}

    # Choosing -----------------------------------------------------------------------------------

    def act(self) -> str:
        """The next command."""
        if self._noise and self._rng.random() < _ASTRAY * self._noise:
            return self._pick(self._idle_commands())
        request = self.request
        if self.holding and kind_of(self.holding) == request.thing:
            if request.lamp:
                return self._look_under(request.lamp)
            if request.verb and self.holding not in self._treated:
                return self._treat(request.verb)
            return self._deliver()
        return self._search(request.thing)

    def _search(self, kind: str) -> str:
        """Take a thing of a kind, or go on looking for one."""
        goal = self._goal_place() if self.request.number > 1 else ""
        for place in self._nearest_first():
            if place == goal:
                continue
            for thing in self._contents.get(place, ()):
                if kind_of(thing) == kind:
                    return self._reach(place) or f"take {thing} from {place}"
        return self._explore(kind)

    def _explore(self, kind: str) -> str:
        here = self._here
        if here in self._closed and here not in self._contents:
            return f"open {here}"
        unknown = [
            place
            for place in self.receptacles
            if place not in self._contents and place not in self._useless
        ]
        if not unknown:
            # Everything was seen; something was overlooked or has moved. Start over.
            self._contents.clear()
            self._useless.clear()
            return "look"
        usual = _USUAL.get(kind, frozenset())
        anywhere = self._noise > 0 and self._rng.random() < _ANYWHERE * self._noise
        weights = [
            1.0 if anywhere or kind_of(place) not in usual else _PLAUSIBLE for place in unknown
        ]
        place = self._pick(unknown, weights)
        return self._reach(place) or f"examine {place}"

    def _look_under(self, lamp: str) -> str:
        for place in self._nearest_first():
            for thing in self._contents.get(place, ()):
                if kind_of(thing) == lamp:
                    return self._reach(place, inside=False) or f"use {thing}"
        return self._explore(lamp)

    def _treat(self, verb: str) -> str:
        means = [place for place in self._nearest_first() if kind_of(place) == _WITH[verb]]
        if not means:
            return self._explore(self.request.thing)
        return self._reach(means[0], inside=False) or f"{verb} {self.holding} with {means[0]}"

    def _deliver(self) -> str:
        place = self._goal_place()
        if not place:
            return self._explore(self.request.thing)
        return self._reach(place) or putting(self._style, self.holding, place)

    def _goal_place(self) -> str:
        """Where to put things: where one is already, else where that is known to be easy."""
        places = [place for place in self.receptacles if kind_of(place) == self.request.target]

        def merit(place: str) -> tuple[bool, int, bool, bool]:
            inside = self._contents.get(place, ())
            there = sum(kind_of(thing) == self.request.thing for thing in inside)
            return place not in self._useless, there, place == self._here, place in self._contents

        return max(places, key=merit, default="")

    def _nearest_first(self) -> list[str]:
        return sorted(self.receptacles, key=lambda place: place != self._here)

    def _reach(self, place: str, *, inside: bool = True) -> str:
        """What is still to do before something can be done at a place; empty if nothing."""
        if self._here != place:
            return f"go to {place}"
        if not inside:
            return ""
        if place in self._closed:
            return f"open {place}"
        return "" if place in self._contents else f"examine {place}"

    def _idle_commands(self) -> list[str]:
        here = self._here
        found = ["look", "inventory"]
        elsewhere = [place for place in self.receptacles if place != here]
        if elsewhere:
            found += [f"go to {self._pick(elsewhere)}" for _ in range(2)]
        if here:
            found.append(f"examine {here}")
            if here in self._opens:
                found.append(f"{'open' if here in self._closed else 'close'} {here}")
        return found

    def _pick(self, values: Sequence[str], weights: Sequence[float] | None = None) -> str:
        weights = [1.0] * len(values) if weights is None else weights
        left = self._rng.random() * sum(weights)
        for value, weight in zip(values, weights, strict=True):
            left -= weight
            if left < 0:
                return value
        return values[-1]

    # Reading --------------------------------------------------------------------------------------

    def hear(self, command: str, said: str) -> None:
        """Take in the answer to a command."""
        verb, _, rest = command.partition(" ")
        if said == NOTHING:
            self._refused(command, verb, rest)
            return
        for found in CLOSED.finditer(said):
            self._closed.add(found[1])
            self._opens.add(found[1])
        for found in INSIDE.finditer(said):
            place = found["opened"] or found["on"]
            self._contents[place] = LISTED.findall(found["list"])
            self._closed.discard(place)
            if found["opened"]:
                self._opens.add(place)
        if verb == "go":
            self._here = rest.removeprefix("to ")
        elif verb == "close":
            self._closed.add(rest)
        elif verb == "take":
            thing, _, place = rest.partition(" from ")
            self.holding = thing
            self._contents[place] = [x for x in self._contents.get(place, ()) if x != thing]
        elif verb in ("move", "put"):
            self._contents.setdefault(self._here, []).append(self.holding)
            self.holding = ""
        elif verb in _WITH:
            self._treated.add(self.holding)

    def _refused(self, command: str, verb: str, rest: str) -> None:
        times = self._refusals[command] = self._refusals.get(command, 0) + 1
        if verb == "go":
            # One cannot go to a neighbour at the same location, but it can be used at once.
            self._here = rest.removeprefix("to ")
            return
        if times > 1 and self._here:
            self._useless.add(self._here)
            self._contents.setdefault(self._here, [])
        self._here = ""


def kind_of(name: str) -> str:
    """Kind of a thing: its name without the number."""
    return name.partition(" ")[0]


def demonstrate(env: Any, rng: _Random, noise: float = 0.0) -> Iterator[str]:
    """Play like someone who does not know the room; yields one action for each state of ``env``.

    The caller applies each action to ``env`` before it asks for the next one. The next receptacle
    to look into is drawn at random; kinds where the thing is usually found are four times as
    likely. What ``noise`` z adds: with probability 0.4 z a search goes anywhere, and with
    probability 0.15 z a step is random (look, inventory, go, open, close or examine).

    Args:
        env: An AlfWorld environment after ``reset``, wrapped or not.
        rng: Source of randomness (NumPy's or the standard library's).
        noise: Between 0 and 1.

    Raises:
        ValueError: If ``noise`` is out of range, or the task is in none of ALFWorld's wordings.
    """
    if not 0.0 <= noise <= 1.0:
        raise ValueError(f"noise must be between 0 and 1, got {noise!r}")
    inner = env.unwrapped
    return _playing(inner, Explorer(inner.observation, rng, noise, inner.command_style))


def _playing(env: Any, explorer: Explorer) -> Iterator[str]:
    while True:
        command = explorer.act()
        yield command
        explorer.hear(command, env.observation)


def practice_games(number: int = 20, **env_args: Any) -> list[dict[str, Any]]:
    """Arguments that make other rooms and games of the same kind, to demonstrate in.

    A small model that sees only the rooms of one seed may learn them by heart; and the games that
    are trained and tested in stay unseen.

    Args:
        number: How many sets of games.
        **env_args: Arguments of the environment that is trained in. Loaded data has no others: its
            own arguments come back alone.

    Raises:
        ValueError: If ``number`` is not positive.
    """
    if number < 1:
        raise ValueError(f"number must be >= 1, got {number!r}")
    if env_args.get("data") is not None:
        return [dict(env_args)]
    games, seed = builtin_size(env_args.get("catalogue") or DEFAULT_CATALOGUE)
    return [
        {**env_args, "catalogue": f"builtin:{min(games, _PRACTICE)}:{seed + other}"}
        for other in range(1, number + 1)
    ]
