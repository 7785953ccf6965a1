"""Task progress in ALFWorld, for step-level credit that is shared across tasks.

Two presets. ``paper`` follows the published one (BLPO): a tracker that looks at the actions alone.
``compact`` reads what the game answers, and says in eight parts what a person would want to know:
whether the object was found, what is in the hand, whether it was treated, how many are in place,
where one stands, the lamp, and how much was searched since the last pick-up.

Actions are sorted by what they do and by what they do it to: the object, the destination, the tool
and the lamp that the task is about, or something else. Nothing hidden is read: the task line, the
commands and the answers are all.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

from agentgym.info import Info
from agentgym.progress import INADMISSIBLE, MALFORMED, context_key
from envs.alfworld.expert import CLOSED, INSIDE, LISTED, Request, kind_of, read_request
from envs.alfworld.simulator import NOTHING
from envs.alfworld.world import TASK_PREFIX

__all__ = ["Command", "CompactProgress", "PaperProgress", "read_command"]

_TOOLS = {
    "heat": frozenset(["microwave"]),
    "cool": frozenset(["fridge"]),
    "clean": frozenset(["sinkbasin", "sink", "bathtubbasin"]),
    "": frozenset[str](),
}
_LAMPS = frozenset(["desklamp", "floorlamp"])
_COMMANDS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<verb>go) to (?P<place>.+)",
        r"(?P<verb>open|close) (?P<place>.+)",
        r"(?P<verb>take) (?P<thing>.+) from (?P<place>.+)",
        r"(?P<verb>move) (?P<thing>.+) to (?P<place>.+)",
        r"(?P<verb>put) (?P<thing>.+) (?:in/on|into|onto|in|on) (?P<place>.+)",
        r"(?P<verb>heat|cool|clean) (?P<thing>.+) with (?P<place>.+)",
        r"(?P<verb>use|toggle|examine) (?P<thing>.+)",
        r"(?P<verb>look|inventory)",
    )
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command taken apart.

    Attributes:
        verb: What is done; ``put`` counts as ``move``, ``toggle`` as ``use``.
        thing: The object, or empty.
        place: The receptacle, or empty.
    """

    verb: str
    thing: str = ""
    place: str = ""


def read_command(text: str) -> Command | None:
    """A command in either style; None for any other text (``help`` and ``slice`` among it)."""
    plain = " ".join(text.lower().split())
    for pattern in _COMMANDS:
        found = pattern.fullmatch(plain)
        if found:
            parts = found.groupdict("")
            verb = {"put": "move", "toggle": "use"}.get(parts["verb"], parts["verb"])
            return Command(verb, parts.get("thing", ""), parts.get("place", ""))
    return None


class _Progress(ABC):
    """What both presets share: the task, kinds of action, contexts.

    Args:
        env_id: The environment.
        max_steps: Not used.
    """

    def __init__(self, env_id: str, max_steps: int | None = None) -> None:
        self.env_id = env_id

    def reset(self, observation: str, info: Info) -> None:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        line = observation.rpartition(TASK_PREFIX)[2] if TASK_PREFIX in observation else ""
        self.request, self.family = Request(thing=""), "other"
        for text in (line, info.get("goal", "")):
            try:
                self.request = read_request(text)
            except ValueError:
                continue
            self.family = _family(self.request)
            break
        self.tools = _TOOLS[self.request.verb]
        self.holding = ""
        self.here = ""
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Forget the last episode."""

    @property
    @abstractmethod
    def untreated(self) -> bool:
        """Whether the object still has to be treated."""

    @abstractmethod
    def lit(self, place: str) -> bool:
        """Whether a lamp of the task is known to stand at a receptacle."""

    def is_goal(self, thing: str) -> bool:
        """Whether an object is of the kind that the task is about."""
        return bool(thing) and kind_of(thing) == self.request.thing

    def place_kind(self, place: str) -> str:
        """``dest``, ``tool``, ``light`` or ``other``.

        Where one receptacle is both, it is the tool until the object has been treated.
        """
        kind = kind_of(place)
        is_target = bool(self.request.target) and kind == self.request.target
        if kind in self.tools and (self.untreated or not is_target):
            return "tool"
        if is_target:
            return "dest"
        return "light" if self.lit(place) else "other"

    def abstract(self, action: str, format_ok: bool, admissible: bool) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        if not format_ok:
            return MALFORMED
        if not admissible:
            return INADMISSIBLE
        command = read_command(action)
        if command is None:
            return "other"
        verb, goal = command.verb, self.is_goal(command.thing)
        where = self.place_kind(command.place) if command.place else "other"
        if verb == "go":
            return f"goto:{where}"
        if verb == "open":
            return f"open:{where if where != 'light' else 'other'}"
        if verb == "take":
            if not goal:
                return "take:other"
            return "take:goal_from_dest" if where == "dest" else "take:goal"
        if verb == "move":
            spot = where if where in ("dest", "tool") else "other"
            return f"place:goal@{spot}" if goal else "place:other"
        if verb in ("heat", "cool", "clean"):
            right = goal and verb == self.request.verb and kind_of(command.place) in self.tools
            return "transform:goal_right_tool" if right else "transform:wrong"
        if verb == "use":
            if kind_of(command.thing) not in _LAMPS:
                return "use:other"
            return "use:light_holding_goal" if self.is_goal(self.holding) else "use:light"
        if verb == "examine":
            return "examine:goal" if goal else "examine:other"
        return verb  # close, look, inventory

    def context(self, observation: str) -> str:
        """The family and the observation."""
        return context_key("alfworld", self.family, observation)


def _family(request: Request) -> str:
    if request.lamp:
        return "light"
    return "two" if request.number > 1 else request.verb or "place"


# From the answers --------------------------------------------------------------------------------

_SAID = re.compile(
    r"You (?:(?P<arrive>arrive at) (?P<spot>[^.]+)\."
    r"|(?P<open>open|close) the (?P<door>[^.]+)\."
    r"|(?P<take>pick up) the (?P<taken>[^.]+) from the (?P<source>[^.]+)\."
    r"|(?P<move>move|put) the (?P<moved>[^.]+?) (?:to|in/on) the (?P<target>[^.]+)\."
    r"|(?P<treat>heat|cool|clean) the (?P<treated>[^.]+) using the (?P<tool>[^.]+)\."
    r"|turn (?P<switch>on|off) the (?P<lamp>[^.]+)\."
    r"|are (?P<carry>carrying|not carrying)(?:: an? (?P<carried>[^.]+))?)"
)
_UNDOES = {"heat": "cool", "cool": "heat"}


class CompactProgress(_Progress):
    """The state by what the game has said; see the module."""

    def _begin(self) -> None:
        self._found = False
        self._contents: dict[str, list[str]] = {}
        self._closed: set[str] = set()
        self._visited: set[str] = set()
        self._treated: dict[str, set[str]] = {}
        self._on: set[str] = set()

    @property
    def untreated(self) -> bool:
        """See :class:`_Progress`."""
        return self._attribute() == "needed"

    def lit(self, place: str) -> bool:
        """See :class:`_Progress`."""
        lamp = self.request.lamp
        return bool(lamp) and any(kind_of(thing) == lamp for thing in self._contents.get(place, ()))

    def state(self) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        held = "goal" if self.is_goal(self.holding) else "other" if self.holding else "none"
        where = self.place_kind(self.here) if self.here else "start"
        if where in ("dest", "tool") and self.here in self._closed:
            where += "+closed"
        return (
            f"alf {self.family} found={int(self._found)} held={held} attr={self._attribute()} "
            f"placed={self._placed()} at={where} lamp={self._lamp()} explored={self._explored()}"
        )

    def _attribute(self) -> str:
        """Whether the object was treated: the one in the hand, or else any."""
        verb = self.request.verb
        if not verb:
            return "n/a"
        done = [thing for thing, what in self._treated.items() if verb in what]
        if self.is_goal(self.holding):
            return "done" if self.holding in done else "needed"
        return "done" if any(map(self.is_goal, done)) else "needed"

    def _placed(self) -> int:
        target = self.request.target
        there = {
            thing
            for place, things in self._contents.items()
            if target and kind_of(place) == target
            for thing in things
            if self.is_goal(thing)
        }
        return min(len(there), 2)

    def _lamp(self) -> str:
        lamp = self.request.lamp
        if not lamp:
            return "n/a"
        if any(kind_of(thing) == lamp for thing in self._on):
            return "on"
        return "seen" if any(map(self.lit, self._contents)) else "unseen"

    def _explored(self) -> str:
        count = len(self._visited)
        return "0" if not count else "1-3" if count < 4 else "4-7" if count < 8 else "8+"

    def update(
        self, action: str, admissible: bool, observation: str, reward: float, info: Info
    ) -> None:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        if not admissible or observation.startswith(NOTHING):
            return
        said = _SAID.match(observation)
        if said is not None:
            self._hear(said, read_command(action))
        for found in CLOSED.finditer(observation):
            self._closed.add(found[1])
        for found in INSIDE.finditer(observation):
            place = found["opened"] or found["on"]
            self._contents[place] = LISTED.findall(found["list"])
            self._closed.discard(place)
            self._found |= any(map(self.is_goal, self._contents[place]))

    def _hear(self, said: re.Match[str], command: Command | None) -> None:
        if said["arrive"]:
            # Older games tell a number of the location; the command names the receptacle.
            going = command is not None and command.verb == "go"
            self.here = command.place if command is not None and going else said["spot"]
            self._visited.add(self.here)
        elif said["open"]:
            (self._closed.discard if said["open"] == "open" else self._closed.add)(said["door"])
        elif said["take"]:
            self._pick_up(said["taken"])
            self._visited = set()
            own = self._contents.get(said["source"])
            if own is not None and said["taken"] in own:
                own.remove(said["taken"])
        elif said["move"]:
            self.holding = ""
            self._contents.setdefault(said["target"], []).append(said["moved"])
        elif said["treat"]:
            effects = self._treated.setdefault(said["treated"], set())
            effects.discard(_UNDOES.get(said["treat"], ""))
            effects.add(said["treat"])
        elif said["switch"]:
            (self._on.add if said["switch"] == "on" else self._on.discard)(said["lamp"])
        elif said["carry"] == "carrying" and said["carried"]:
            self._pick_up(said["carried"])
        else:
            self.holding = ""

    def _pick_up(self, thing: str) -> None:
        self.holding = thing
        self._found |= self.is_goal(thing)

    def shareable(self, state: str, abstract_action: str) -> bool:
        """Whatever was well-formed and accepted."""
        return abstract_action not in (MALFORMED, INADMISSIBLE)


# From the actions --------------------------------------------------------------------------------


class PaperProgress(_Progress):
    """The state by the accepted actions alone, as published; everything can be shared.

    Each part of the goal (treating, placing, placing two, looking under a lamp) tells where the
    object is, whether it is held, whether the tool or the destination has been reached, whether
    its own and the other part are done, and a milestone from 0 up. The published tracker does not
    know the command that turns a lamp on; this one does.
    """

    def _begin(self) -> None:
        self._where: dict[str, str] = {}  # objects of the goal's kind that were put down
        self._opened: set[str] = set()
        self._reached: set[str] = set()
        self._was_treated = False
        self._lamp_place = ""
        self._lamp_on = False

    @property
    def untreated(self) -> bool:
        """See :class:`_Progress`."""
        return bool(self.request.verb) and not self._was_treated

    def lit(self, place: str) -> bool:
        """See :class:`_Progress`."""
        return bool(place) and place == self._lamp_place

    def update(
        self, action: str, admissible: bool, observation: str, reward: float, info: Info
    ) -> None:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        command = read_command(action) if admissible else None
        if command is None:
            return
        verb, thing, place = command.verb, command.thing, command.place
        if verb == "go":
            self.here = place
            self._reached.add(kind_of(place))
        elif verb == "open":
            self._opened.add(place)
        elif verb == "close":
            self._opened.discard(place)
        elif verb == "take":
            self.holding = thing
            self._where.pop(thing, None)
        elif verb == "move":
            self.holding = ""
            if self.is_goal(thing):
                self._where[thing] = self.place_kind(place)
        elif verb == "use" and kind_of(thing) in _LAMPS:
            self._lamp_on, self._lamp_place = True, self.here
        elif verb and verb == self.request.verb and self.is_goal(thing):
            self._was_treated = True

    def state(self) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        held = self.is_goal(self.holding)
        spots = set(self._where.values())
        laid = next((spot for spot in ("dest", "tool", "other") if spot in spots), "unknown")
        where = "held" if held else laid
        near = bool(self.request.target) and kind_of(self.here) == self.request.target
        head = f"alf {self.family} object={where}"
        if self.family == "light":
            at_lamp = bool(self._lamp_place) and self.here == self._lamp_place
            known = bool(self._lamp_place)
            stage = 2 + at_lamp if held and known else int(held or known)
            if stage == 3 and self._lamp_on:
                stage = 4
            return f"{head} at_lamp={int(at_lamp)} on={int(self._lamp_on)} stage={stage}"
        count = min(sum(spot == "dest" for spot in self._where.values()), 2)
        if self.family == "two":
            stage = 4 if count > 1 else 2 + held if count else int(held)
            return f"{head} placed={count} near={int(near)} stage={stage}"
        reached = self.request.target in self._reached
        placed = count > 0 and not self.untreated
        stage = 3 if placed else 2 if held and reached else int(held)
        place = f"place(near={int(near)} done={int(placed)} stage={stage})"
        if not self.request.verb:
            return f"{head} {place}"
        at_tool = kind_of(self.here) in self.tools
        known = at_tool or any(kind_of(opened) in self.tools for opened in self._opened)
        there = (held and at_tool) or where == "tool"
        stage = 4 if self._was_treated else 3 if there else 2 if held and known else int(held)
        treat = f"{self.request.verb}(tool={int(known)} there={int(there)} stage={stage})"
        return f"{head} {treat} {place}"

    def shareable(self, state: str, abstract_action: str) -> bool:
        """Everything, as published."""
        return True
