"""What a policy reads in ALFWorld: advice for a language model, bare texts for a tiny one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agentgym.info import Info
from agentgym.prompts import EnvPrompt
from envs.alfworld.rooms import ROOMS
from envs.alfworld.simulator import BANNER
from envs.alfworld.world import TASK_PREFIX

__all__ = ["AlfWorldPrompt", "vocabulary", "without_banner"]

_WORLD = """\
You are in a household room that is described in words, with one task to carry out. Each turn you \
read what happened and answer with one command:
- go to RECEPTACLE: walk there and see what is on it, or in it if it is open.
- open RECEPTACLE, close RECEPTACLE: at the place where you stand.
- take OBJECT from RECEPTACLE, move OBJECT to RECEPTACLE: you can carry one object.
- clean OBJECT with RECEPTACLE, heat OBJECT with RECEPTACLE, cool OBJECT with RECEPTACLE: with a \
sink basin, a microwave, a fridge, while you carry the object.
- use OBJECT: switch on a lamp that is where you stand.
- slice OBJECT with OBJECT, examine RECEPTACLE, examine OBJECT, look, inventory.
Names carry a number, as in "mug 2" or "drawer 1". Where things are you have to find out. Some \
receptacles stand at the same place: what is at hand can be used without walking there. A command \
that does not fit the situation is answered "Nothing happens." and still takes a turn."""

_FORM = """\
First reason inside <think> </think>. Then write exactly one command inside <action> </action>."""

_HELP = "help"


class AlfWorldPrompt(EnvPrompt):
    """Prompts for ALFWorld.

    ``tags``: the world is explained once, and observations come with the admissible commands, all
    but ``help``. In windowed mode, with two observation/action pairs, this is the setting of
    GiGPO's published runs (Feng et al., "Group-in-Group Policy Optimization for LLM Agent
    Training", 2025), in other words. ``bare``: the game's own text and nothing else, without the
    banner.
    """

    def system(self, info: Info) -> str | None:
        """The world and the form of an answer; nothing in the bare form."""
        return None if self.action_format == "bare" else f"{_WORLD}\n\n{_FORM}"

    def first(self, observation: str, info: Info) -> str:
        """The room and the task."""
        return self._with_actions(without_banner(observation), info)

    def next(self, observation: str, info: Info) -> str:
        """The answer to a command."""
        return self._with_actions(observation, info)

    def windowed(self, history: Sequence[tuple[str, str]], observation: str, info: Info) -> str:
        """One decision: the task, the last turns, what is seen now."""
        task = f"{TASK_PREFIX}{info['goal']}"
        seen = [(_without_task(text), command) for text, command in history]
        now = _without_task(observation)
        if self.action_format == "bare":
            return "\n".join([task, *(f"{text}\n> {command}" for text, command in seen), now])
        turn = info["turn"]
        lines = [task]
        if seen:
            lines.append(f"You have taken {turn} steps. The last {len(seen)} of them:")
            for number, (text, command) in enumerate(seen, turn - len(seen) + 1):
                lines.append(f"[Observation {number}: '{text}', Action {number}: '{command}']")
        lines.append(f"You are at step {turn + 1}. What you see now: {now}")
        return self._with_actions("\n".join(lines), info)

    def _with_actions(self, text: str, info: Info) -> str:
        actions = info["admissible_actions"]
        if self.action_format == "bare" or not self.list_admissible or not actions:
            return text
        listed = "\n".join(f"'{action}'" for action in actions if action != _HELP)
        return f"{text}\nAdmissible actions:\n{listed}"


def without_banner(observation: str) -> str:
    """An observation without the first one's banner, one line a paragraph."""
    return observation.removeprefix(BANNER).strip().replace("\n\n", "\n")


def _without_task(observation: str) -> str:
    return without_banner(observation).partition(f"\n{TASK_PREFIX}")[0]


# Vocabulary --------------------------------------------------------------------------------------

_SAID = (
    "You are in the middle of a room. Looking quickly around you, you see a",
    "You are in the middle of a room. Looking quickly around you, you see nothing.",
    TASK_PREFIX.strip(),
    "Nothing happens.",
    ", a",
    ", and a",
    "You arrive at",
    ". On the",
    ". The",
    "On the",
    "The",
    ", you see a",
    ", you see nothing.",
    "is closed.",
    "is open. In it, you see a",
    "is open. In it, you see nothing.",
    "You open the",
    "You close the",
    "You pick up the",
    "from the",
    "You move the",
    "to the",
    "You put the",
    "in/on the",
    "You clean the",
    "You heat the",
    "You cool the",
    "using the",
    "You turn on the",
    "You sliced the",
    "with the",
    "You are facing the",
    ", and",
    ". Next to it, you see nothing.",
    ". Next to it, you see a",
    "You are carrying: a",
    "You are not carrying anything.",
    "There's nothing special about",
    "This is a normal",
    ". In it, you see nothing.",
    "This is a",
    "hot",
    "clean",
    "cold",
    "sliced",
    ".",
    ",",
)
_TASKS = (
    "put a", "put some", "put two", "put a clean", "put a hot", "put a cool", "in", "on",
    "look at", "under the", "examine the", "clean some", "heat some", "cool some",
    "and put it in", "find two", "and put them in",
)  # fmt: skip
_COMMANDS = (
    "go to", "open", "close", "take", "from", "move", "to", "put", "in/on", "clean", "heat",
    "cool", "with", "use", "slice", "examine", "look", "inventory", "help",
)  # fmt: skip
# Highest number in a name. Official games have up to 27 cabinets and drawers.
_MOST = {"small": 3, "full": 3, "data": 4}
_MOST_OFFICIAL = {"Cabinet": 27, "Drawer": 27, "Shelf": 14}


def vocabulary(**env_args: Any) -> list[str]:
    """Phrases that should be single tokens of a tokenizer made for this environment.

    Every name that embedded rooms can hold, such as ``mug 1``, is one phrase, and so are the kinds
    and what the game says around them.

    Args:
        **env_args: Arguments of ``gym.make``; ``data`` and ``difficulty`` matter.

    Returns:
        Distinct phrases.
    """
    size = "data" if env_args.get("data") is not None else env_args.get("difficulty", "full")
    if size not in _MOST:
        raise ValueError(f"difficulty must be 'small' or 'full', got {size!r}")
    names: list[str] = []
    for kind, most in _kinds(size):
        names.append(kind)
        names += [f"{kind} {number}" for number in range(1, most + 1)]
    return list(dict.fromkeys([*_SAID, *_TASKS, *_COMMANDS, *names]))


def _kinds(size: str) -> Iterator[tuple[str, int]]:
    """Kinds of thing and receptacle, and the highest number of each."""
    most: dict[str, int] = {"DeskLamp": 1}
    for room in ROOMS.values():
        for item in room.furniture:
            high = item.high
            if size == "small":
                high = min(high, 2)
            elif size == "data":
                high = max(high, _MOST_OFFICIAL.get(item.kind, 6))
            most[item.kind] = max(high, most.get(item.kind, 0))
        for thing in room.things:
            most[thing] = max(_MOST[size], most.get(thing, 0))
    for kind in sorted(most):
        yield kind.lower(), most[kind]
