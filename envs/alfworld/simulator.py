"""The native engine: the state of one episode, what commands do to it, and what is said.

It answers letter for letter as the original does (ALFWorld's game files played by TextWorld),
oddities included; the class docstring of :class:`~envs.alfworld.env.AlfWorldEnv` lists those.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from envs.alfworld.commands import View, free_commands, holding_commands, putting
from envs.alfworld.rules import HELP, CommandStyle
from envs.alfworld.world import SimState, World, join, listing

__all__ = ["BANNER", "NOTHING", "Sim"]

#: What any command that is not admissible is answered.
NOTHING = "Nothing happens."

#: What the first observation begins with.
BANNER = "-= Welcome to TextWorld, ALFRED! =-"
_MIDDLE = "You are in the middle of a room. Looking quickly around you, you see "


class Sim:
    """One episode in a world.

    Attributes:
        world: The world, shared and never changed.
        view: What is said about it, shared by the episodes in this style.
        style: ``move`` or ``put``.
        strict: False for the lenient reading.
        won: Whether the goal holds now.
        accepted: Whether the last command was admissible (True after a reset).
        command: The last command, as it was read.

    The fields of :class:`~envs.alfworld.world.SimState` are attributes, too (``taken`` and the
    sequences in mutable form).

    Args:
        world: What to play.
        style: How an object is put down; ``put`` has the wording of ALFWorld 0.3.
        strict: With False, case and blanks do not count, both wordings of putting down are
            understood, and one can go to another receptacle of the same location.
    """

    __slots__ = (
        "_held_lists", "_lists", "_sees", "accepted", "clean", "command", "contents",
        "cool", "facing", "holding", "hot", "lit", "location", "moves", "opened", "sliced",
        "spots", "strict", "style", "taken", "toggled", "view", "won", "world",
    )  # fmt: skip

    def __init__(self, world: World, style: CommandStyle = "move", strict: bool = True) -> None:
        self.world, self.style, self.strict = world, style, strict
        key = (style, strict)
        view = world._views.get(key)
        if view is None:
            view = world._views.setdefault(key, View(world))
        self.view: View = view
        self.reset()

    # Episodes ---------------------------------------------------------------------------------

    def reset(self) -> str:
        """Start over; returns the first observation."""
        view = self.view
        self._set(self.world.start)
        self._lists, self._sees = view.free.copy(), view.sees.copy()
        self.command, self.accepted = "", True
        if view.start_won is None:
            view.start_won = self.world.goal.holds(self)
        self.won = view.start_won
        return self.intro

    @property
    def intro(self) -> str:
        """The first observation."""
        view = self.view
        if view.intro is None:
            view.intro = f"{BANNER}\n\n{self._first_look()}\n\n{self.world.task}"
        return view.intro

    def clone_state(self) -> SimState:
        """The state now, for :meth:`restore_state` of this or another episode in this world."""
        return SimState(
            self.location, self.facing, self.holding, tuple(self.contents), tuple(self.spots),
            frozenset(self.taken), self.opened, self.clean, self.hot, self.cool, self.sliced,
            self.toggled, self.lit, self.moves,
        )  # fmt: skip

    def restore_state(self, state: SimState) -> None:
        """Go on from ``state``.

        Raises:
            ValueError: If it is a state of another world.
        """
        world, view = self.world, self.view
        if len(state.contents) != len(world.receptacles) or len(state.spots) != len(world.objects):
            raise ValueError(
                f"the state is of a world with {len(state.spots)} objects in "
                f"{len(state.contents)} receptacles; this one has {len(world.objects)} in "
                f"{len(world.receptacles)}"
            )
        self._set(state)
        start = world.start
        changed = state.opened ^ start.opened
        self._lists, self._sees = view.free.copy(), view.sees.copy()
        for receptacle, (now, then) in enumerate(zip(state.contents, start.contents, strict=True)):
            if now != then or changed >> receptacle & 1:
                self._sees[receptacle] = None
                self._lists[world.places[receptacle]] = None
        self.command, self.accepted = "", True
        self.won = world.goal.holds(self)

    def _set(self, state: SimState) -> None:
        self.location, self.facing, self.holding = state.location, state.facing, state.holding
        self.contents, self.spots = list(state.contents), list(state.spots)
        self.taken = set(state.taken)
        self.opened, self.clean, self.hot = state.opened, state.clean, state.hot
        self.cool, self.sliced, self.toggled = state.cool, state.sliced, state.toggled
        self.lit, self.moves = state.lit, state.moves
        # By the receptacle gone to last, while the hand holds the same and no door moves.
        self._held_lists: dict[int, tuple[str, ...]] = {}

    def step(self, command: str) -> str:
        """Carry out a command; returns what is said.

        Any text is accepted: what is not admissible changes nothing.
        """
        command = command.strip() if self.strict else self.reading(command)
        self.command = command
        verb, _, rest = command.partition(" ")
        act = _VERBS.get(verb)
        said = act(self, rest) if act is not None else None
        if said is None:
            self.accepted = False
            return NOTHING
        self.accepted = True
        self.moves += 1
        return said

    def reading(self, command: str) -> str:
        """The command that a text stands for."""
        if self.strict:
            return command.strip()
        command = " ".join(command.split()).lower()
        verb, _, rest = command.partition(" ")
        if verb in ("move", "put"):
            for between in (" in/on ", " into ", " onto ", " to ", " in ", " on "):
                thing, found, place = rest.partition(between)
                if found:
                    return putting(self.style, thing, place)
        return command

    # What commands do: each returns what is said, or None if it is not admissible -------------

    def _go(self, rest: str) -> str | None:
        if rest[:3] != "to ":
            return None
        world = self.world
        receptacle = world.receptacle_numbers.get(rest[3:], -1)
        if receptacle < 0:
            return None
        place = world.places[receptacle]
        if place == self.location:
            # The planner behind the original drops actions that change no fact, so a neighbour
            # cannot be gone to.
            if self.strict or receptacle == self.facing:
                return None
        elif place < 0:
            return None
        self.location, self.facing = place, receptacle
        if world.goal.on_the_way:
            self.won = world.goal.holds(self)
        spot = rest[3:] if self.style == "move" else world.locations[place]
        return f"You arrive at {spot}. {self._see(receptacle)}"

    def _open(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle < 0:
            return None
        bit = 1 << receptacle
        if not self.world.openable & bit or self.opened & bit:
            return None
        self.opened |= bit
        self._touch(receptacle)
        return f"You open the {rest}. {self._see(receptacle)}"

    def _close(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle < 0:
            return None
        bit = 1 << receptacle
        if not self.world.openable & bit or not self.opened & bit:
            return None
        self.opened ^= bit
        self._touch(receptacle)
        return f"You close the {rest}."

    def _take(self, rest: str) -> str | None:
        if self.holding >= 0:
            return None
        name, _, source = rest.partition(" from ")
        receptacle = self._here(source)
        if receptacle < 0 or not self._accessible(receptacle):
            return None
        world = self.world
        thing = world.object_numbers.get(name, -1)
        inside = self.contents[receptacle]
        if thing not in inside or not world.pickupable >> thing & 1:
            return None
        self.contents[receptacle] = tuple([other for other in inside if other != thing])
        self.spots[thing] &= ~(1 << self.location)
        self.taken.add((thing, receptacle))
        self.holding = thing
        self._touch(receptacle)
        self.won = world.goal.holds(self)
        return f"You pick up the {name} from the {source}."

    def _move(self, rest: str) -> str | None:
        if self.style != "move":
            return None
        name, _, target = rest.partition(" to ")
        return self._put_down(name, target, f"You move the {name} to the {target}.")

    def _put(self, rest: str) -> str | None:
        if self.style != "put":
            return None
        name, _, target = rest.partition(" in/on ")
        return self._put_down(name, target, f"You put the {name} in/on the {target}.")

    def _put_down(self, name: str, target: str, said: str) -> str | None:
        receptacle = self._here(target)
        if receptacle < 0 or not self._accessible(receptacle):
            return None
        world = self.world
        thing = self._held(name)
        if thing < 0 or not world.accepts[receptacle] >> thing & 1:
            return None
        if thing not in self.contents[receptacle]:
            inside = list(self.contents[receptacle])
            insort(inside, thing)
            self.contents[receptacle] = tuple(inside)
        self.spots[thing] |= 1 << self.location
        self.taken.discard((thing, receptacle))
        self.holding = -1
        self._touch(receptacle)
        self.won = world.goal.holds(self)
        return said

    def _clean(self, rest: str) -> str | None:
        thing, said = self._treat(rest, "clean", self.world.cleanable, self.world.washing)
        if thing >= 0:
            self.clean |= 1 << thing
            self.won = self.world.goal.holds(self)
        return said

    def _heat(self, rest: str) -> str | None:
        thing, said = self._treat(rest, "heat", self.world.heatable, self.world.heating)
        if thing >= 0:
            self.hot |= 1 << thing
            self.cool &= ~(1 << thing)
            self.won = self.world.goal.holds(self)
        return said

    def _cool(self, rest: str) -> str | None:
        thing, said = self._treat(rest, "cool", self.world.coolable, self.world.cooling)
        if thing >= 0:
            self.cool |= 1 << thing
            self.hot &= ~(1 << thing)
            self.won = self.world.goal.holds(self)
        return said

    def _treat(self, rest: str, verb: str, able: int, means: int) -> tuple[int, str | None]:
        """The object treated and what is said; the receptacle need not be open."""
        name, _, with_what = rest.partition(" with ")
        thing, receptacle = self._held(name), self._here(with_what)
        if thing < 0 or receptacle < 0 or not able >> thing & 1 or not means >> receptacle & 1:
            return -1, None
        return thing, f"You {verb} the {name} using the {with_what}."

    def _use(self, rest: str) -> str | None:
        thing = self.world.object_numbers.get(rest, -1)
        if thing not in self.world.toggleable:
            return None
        contents = self.contents
        for receptacle in self.world.at[self.location]:
            if thing in contents[receptacle]:
                self.toggled |= 1 << thing
                self.lit ^= 1 << thing
                self.won = self.world.goal.holds(self)
                return f"You turn on the {rest}."
        return None

    def _slice(self, rest: str) -> str | None:
        name, _, with_what = rest.partition(" with ")
        world = self.world
        knife, thing = self._held(with_what), world.object_numbers.get(name, -1)
        if knife < 0 or not world.knives >> knife & 1 or thing not in world.sliceable:
            return None
        if not self.spots[thing] >> self.location & 1:
            return None
        self.sliced |= 1 << thing
        self.won = world.goal.holds(self)
        return f"You sliced the {name} with the {with_what}."

    def _examine(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle >= 0:
            return self._see(receptacle)
        thing = self._held(rest)
        return None if thing < 0 else self._describe(thing)

    def _look(self, rest: str) -> str | None:
        if rest:
            return None
        here = self.world.at[self.location]
        if not here:
            return f"{_MIDDLE}nothing."
        return f"{self._facing(here)}{listing(self._beside(here)) if self.taken else 'nothing'}."

    def _inventory(self, rest: str) -> str | None:
        if rest:
            return None
        if self.holding < 0:
            return "You are not carrying anything."
        return f"You are carrying: a {self.world.objects[self.holding]}."

    def _help(self, rest: str) -> str | None:
        return HELP if not rest and self.style == "move" else None

    # What is there ----------------------------------------------------------------------------

    def _here(self, name: str) -> int:
        """Number of a receptacle at this location, or -1."""
        receptacle = self.world.receptacle_numbers.get(name, -1)
        if receptacle >= 0 and self.world.places[receptacle] == self.location:
            return receptacle
        return -1

    def _held(self, name: str) -> int:
        """Number of an object in the hand, or -1."""
        holding = self.holding
        return holding if holding >= 0 and self.world.objects[holding] == name else -1

    def _accessible(self, receptacle: int) -> bool:
        return not (self.world.openable & ~self.opened) >> receptacle & 1

    def _touch(self, receptacle: int) -> None:
        """Forget what was worked out about a receptacle that changed, and its location."""
        self._sees[receptacle] = None
        self._lists[self.location] = None
        self._held_lists.clear()

    # What is said -----------------------------------------------------------------------------

    def _first_look(self) -> str:
        here = self.world.at[self.world.start.location]
        if here:
            return f"{self._facing(here)}nothing."
        names = [
            name
            for name, place in zip(self.world.receptacles, self.world.places, strict=True)
            if place >= 0
        ]
        return f"{_MIDDLE}{listing(names)}."

    def _facing(self, here: tuple[int, ...]) -> str:
        place = self.world.places[here[0]]
        facing = self.view.facing[place]
        if facing is None:
            names = join([self.world.receptacles[receptacle] for receptacle in here])
            facing = f"You are facing the {names}. Next to it, you see "
            self.view.facing[place] = facing
        return facing

    def _beside(self, here: tuple[int, ...]) -> list[str]:
        """Objects that were taken from receptacles here and yet count as being here."""
        return [
            self.world.objects[thing]
            for thing, receptacle in sorted(self.taken)
            if receptacle in here and self.spots[thing] >> self.location & 1
        ]

    def _see(self, receptacle: int) -> str:
        seen = self._sees[receptacle]
        if seen is None:
            shared = self.view.sees if self._is_as_at_start(receptacle) else self._sees
            seen = shared[receptacle]
            if seen is None:
                seen = shared[receptacle] = self._inspect(receptacle)
            self._sees[receptacle] = seen
        return seen

    def _inspect(self, receptacle: int) -> str:
        world = self.world
        name = world.receptacles[receptacle]
        if world.openable >> receptacle & 1:
            if not self.opened >> receptacle & 1:
                return f"The {name} is closed."
            where = f"The {name} is open. In it"
        else:
            where = f"On the {name}"
        names = world.objects
        return f"{where}, you see {listing([names[thing] for thing in self.contents[receptacle]])}."

    def _describe(self, thing: int) -> str:
        world = self.world
        name, bit = world.objects[thing], 1 << thing
        if world.vessels & bit:
            inside = listing(world.objects[inner] for inner in world.inside.get(thing, ()))
            return f"This is a normal {name}. In it, you see {inside}."
        clean, hot, cool = self.clean & bit, self.hot & bit, self.cool & bit
        warmth = "hot" if hot else "cool" if cool else ""
        if self.sliced & bit and (clean or warmth):
            if clean and warmth:
                return f"This is a {warmth} and clean sliced {name}."
            return f"This is a {warmth or 'clean'} sliced {name}."
        if clean and warmth:
            return f"This is a {warmth} and clean {name}."
        if hot or clean or cool:
            return f"This is a {'hot' if hot else 'clean' if clean else 'cold'} {name}."
        if thing in world.toggleable and self.toggled & bit:
            return f"This {name} is on."
        if self.sliced & bit and thing in world.sliceable:
            return f"This is a sliced {name}."
        return f"There's nothing special about {name}."

    # What can be done -------------------------------------------------------------------------

    def admissible(self) -> tuple[str, ...]:
        """Every admissible command, in the original's order; the tuples are shared."""
        if self.holding >= 0:
            held = self._held_lists.get(self.facing)
            if held is None:
                held = self._held_lists[self.facing] = holding_commands(self)
            return held
        if not self.strict:
            return free_commands(self)
        listed = self._lists[self.location]
        if listed is None:
            shared = self.view.free if self._as_at_start() else self._lists
            listed = shared[self.location]
            if listed is None:
                listed = shared[self.location] = free_commands(self)
            self._lists[self.location] = listed
        return listed

    def is_admissible(self, text: str) -> bool:
        """Whether :meth:`step` would accept ``text`` now."""
        return self.reading(text) in self.admissible()

    def _as_at_start(self) -> bool:
        """Nothing here is opened, closed, taken or put down."""
        return all(map(self._is_as_at_start, self.world.at[self.location]))

    def _is_as_at_start(self, receptacle: int) -> bool:
        start = self.world.start
        return (
            self.contents[receptacle] == start.contents[receptacle]
            and not (self.opened ^ start.opened) >> receptacle & 1
        )


_VERBS: dict[str, Callable[[Sim, str], str | None]] = {
    "go": Sim._go,
    "open": Sim._open,
    "close": Sim._close,
    "take": Sim._take,
    "move": Sim._move,
    "put": Sim._put,
    "clean": Sim._clean,
    "heat": Sim._heat,
    "cool": Sim._cool,
    "use": Sim._use,
    "slice": Sim._slice,
    "examine": Sim._examine,
    "look": Sim._look,
    "inventory": Sim._inventory,
    "help": Sim._help,
}
