"""Step the native ALFWorld engine and the original side by side and compare every answer.

    python -m benchmarks.parity_alfworld --data DIR --steps N --seed S [--split NAME] [--style put]

``DIR`` holds official games. Each game drawn is played for some dozen steps in both engines, with
its walkthrough, admissible commands, errands that treat, slice and examine things, near misses and
junk; observation, ordered list of admissible commands, whether the command was accepted and whether
the game is won are compared after every command, past the win too. Beside that, the walkthrough of
every game there is must win natively.
Needs the extra ``alfworld`` and Python 3.11 or 3.12. Exits with 0 if nothing differs, with 1 if
anything does, with 2 if the data or the original engine cannot be used.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from envs.alfworld.commands import putting
from envs.alfworld.dataset import Dataset, DatasetError, open_dataset
from envs.alfworld.pddl import GameError
from envs.alfworld.rules import CommandStyle
from envs.alfworld.simulator import Sim
from envs.alfworld.textworld_backend import TextWorldSim
from envs.alfworld.world import World, members

_SHOWN = 20
_STEPS_A_GAME = 40
# Random play that chose among all commands alike would mostly walk about.
_WEIGHTS = {"go": 4.0, "take": 4.0, "move": 3.0, "put": 3.0, "help": 0.2, "inventory": 0.5}
_JUNK = (
    "", " ", "look around", "LOOK", "Help", "xyzzy", "go", "go to", "go to ", "take", "open",
    "examine", "use", "inventory 1", "look\t", "\nlook\n", "take from", "move to", "go to moon 1",
    "Nothing happens.", "put down", "clean with", "heat", "slice with", "ouvrir le réfrigérateur",
    "看看", "\u2003look", "\x00", "<action>look</action>", "look; inventory", "a" * 300,
    "goal", "quit", "restart", "undo", "wait", "score", "i", "l", "x me", "tw-print", "# look",
    "{r.name}", "[look]", "look\r\n", "\xa0inventory\xa0", "look\u200b", "look\x1c", "lo\tok",
    "help me", "inventory inventory", "go to middle", "take all", "examine", "examine a mug 1",
    "\ud800", "go to " + "cabinet 1 " * 20_000,
)  # fmt: skip
_VERBS = ("go to", "open", "close", "take", "move", "put", "clean", "heat", "cool", "use",
          "slice", "examine")  # fmt: skip


@dataclass
class Tally:
    """What was compared, and what differed."""

    games: int = 0
    steps: int = 0
    won: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    mismatches: int = 0
    shown: list[str] = field(default_factory=list)

    def differ(self, text: str) -> None:
        """Count and keep one difference."""
        self.mismatches += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(text)


def near_miss(rng: random.Random, world: World, admissible: Sequence[str]) -> str:
    """A command that is almost admissible (and now and then is)."""
    command = rng.choice(admissible)
    thing, place = rng.choice(world.objects), rng.choice(world.receptacles)
    other = rng.choice(world.receptacles)
    changes = (
        lambda: command.upper(),
        lambda: command.title(),
        lambda: f"  {command} ",
        lambda: command.replace(" ", "  ", 1),
        lambda: command.rstrip("0123456789") + str(rng.randrange(12)),
        lambda: command[: rng.randrange(1, len(command) + 1)],
        lambda: f"{command} now",
        lambda: f"{command}.",
        lambda: f"{rng.choice(_VERBS)} {place}",
        lambda: f"{rng.choice(_VERBS)} {thing}",
        lambda: f"take {thing} from {place}",
        lambda: f"move {thing} to {place}",
        lambda: f"put {thing} in/on {place}",
        lambda: f"{rng.choice(('clean', 'heat', 'cool'))} {thing} with {place}",
        lambda: f"slice {thing} with {rng.choice(world.objects)}",
        lambda: f"go to {other}",
    )
    return rng.choice(changes)()


def weighted(rng: random.Random, admissible: Sequence[str]) -> str:
    """An admissible command: first the verb, then one of its commands."""
    by_verb: dict[str, list[str]] = {}
    for command in admissible:
        by_verb.setdefault(command.partition(" ")[0], []).append(command)
    verbs = list(by_verb)
    verb = rng.choices(verbs, [_WEIGHTS.get(verb, 1.0) for verb in verbs])[0]
    return rng.choice(by_verb[verb])


def errand(rng: random.Random, sim: Sim) -> list[str]:
    """Some commands for what random play seldom comes to: things treated, sliced, and examined."""
    world, holding = sim.world, sim.holding
    lying = {thing: place for place, things in enumerate(sim.contents) for thing in things}

    def reach(place: int) -> list[str]:
        name, shut = world.receptacles[place], world.openable & ~sim.opened
        return [f"go to {name}"] + [f"open {name}"] * (shut >> place & 1)

    if holding < 0:
        lamps = [lamp for lamp in world.toggleable if lamp in lying]
        if lamps and rng.random() < 0.2:
            lamp = rng.choice(lamps)
            return [*reach(lying[lamp]), f"use {world.objects[lamp]}", "look"]
        masks = (world.knives, world.heatable, world.vessels, world.pickupable)
        if sim.sliced and rng.random() < 0.8:
            masks = (sim.sliced,)
        choices = [[thing for thing in lying if mask >> thing & 1] for mask in masks]
        things = rng.choice([some for some in choices if some] or [[]])
        if not things:
            return ["look"]
        thing = rng.choice(things)
        name, place = world.objects[thing], world.receptacles[lying[thing]]
        return [*reach(lying[thing]), f"take {name} from {place}", f"examine {name}", "look"]
    name, said = world.objects[holding], []
    means = [
        (verb, place)
        for verb, able, places in (
            ("clean", world.cleanable, world.washing),
            ("heat", world.heatable, world.heating),
            ("cool", world.coolable, world.cooling),
        )
        for place in members(places)
        if able >> holding & 1
    ]
    for verb, place in rng.sample(means, rng.randrange(len(means) + 1)):
        said += [
            f"go to {world.receptacles[place]}",
            f"{verb} {name} with {world.receptacles[place]}",
            f"examine {name}",
        ]
    food = [thing for thing in world.sliceable if thing in lying]
    if world.knives >> holding & 1 and food:
        thing = rng.choice(food)
        said += [*reach(lying[thing]), f"slice {world.objects[thing]} with {name}"]
    homes = [place for place, accepted in enumerate(world.accepts) if accepted >> holding & 1]
    beside = [place for place in homes if world.places[place] == sim.location]
    if len(beside) > 1 and rng.random() < 0.7:  # from one neighbour to the other
        for place in rng.sample(beside, 2):
            at = world.receptacles[place]
            shut = (world.openable & ~sim.opened) >> place & 1
            said += [f"open {at}"] * shut + [putting(sim.style, name, at), "look"]
            said += [f"take {name} from {at}", "look"]
        return said
    if homes and rng.random() < (1.0 if sim.sliced else 0.7):
        place = rng.choice(homes)
        said += [*reach(place), putting(sim.style, name, world.receptacles[place]), "look"]
    return said


def commands(rng: random.Random, sim: Sim, original: TextWorldSim) -> Iterator[tuple[str, str]]:
    """Endless (kind, command) pairs for one game; half of the games begin by their solution.

    ``sim`` is stepped along, so that errands set out from where the game is.
    """
    world, style = sim.world, sim.style
    solution = list(world.walkthrough) if rng.random() < 0.5 else []
    runs_errands, pending = rng.random() < 0.6, []
    while True:
        draw = rng.random()
        admissible = original.admissible()
        if draw < 0.12:
            yield "near miss", near_miss(rng, world, admissible)
        elif draw < 0.16:
            yield "junk", rng.choice(_JUNK)
        elif solution and draw < 0.75:
            yield "walkthrough", _styled(solution.pop(0), style)
        elif runs_errands and draw < 0.85:
            pending = pending or errand(rng, sim) or ["look"]
            yield "errand", pending.pop(0)
        elif draw < 0.4:
            yield "random", rng.choice(admissible)
        else:
            yield "random", weighted(rng, admissible)


def _styled(command: str, style: CommandStyle) -> str:
    if style == "put" and command.startswith("move "):
        thing, _, place = command.removeprefix("move ").partition(" to ")
        return f"put {thing} in/on {place}"
    return command


def play(
    dataset: Dataset, task_id: str, original: TextWorldSim, steps: int, seed: str, tally: Tally
) -> None:
    """Compare one game over so many steps."""
    rng = random.Random(f"{seed}/{task_id}")
    style = original.style
    sim = Sim(dataset.world(task_id), style)
    tally.games += 1
    said: list[str] = []
    try:
        expected, got = original.reset(dataset.game(task_id)), sim.reset()
        if not _same(task_id, said, expected, got, original, sim, tally):
            return
        source = commands(rng, sim, original)
        for _ in range(steps):
            kind, command = next(source)
            said.append(command)
            expected, got = original.step(command), sim.step(command)
            tally.steps += 1
            tally.kinds[kind] += 1
            if not _same(task_id, said, expected, got, original, sim, tally):
                return  # what follows would only repeat it
        tally.won += sim.won
    except RuntimeError as error:
        tally.differ(f"{task_id}: the original failed after {said}: {str(error).splitlines()[-1]}")


def _same(
    task_id: str,
    said: Sequence[str],
    expected: str,
    got: str,
    original: TextWorldSim,
    sim: Sim,
    tally: Tally,
) -> bool:
    pairs = (
        ("observation", expected, got),
        ("admissible", list(original.admissible()), list(sim.admissible())),
        ("accepted", original.accepted, sim.accepted),
        ("won", original.won, sim.won),
        ("moves", original.moves, sim.moves),
    )
    for name, theirs, ours in pairs:
        if theirs != ours:
            where = f"{task_id}: {name} after {said[-8:]}"
            tally.differ(f"{where}\n    original {theirs!r}\n    native   {ours!r}")
            return False
    return True


def walkthroughs(dataset: Dataset, split: str | None, tally: Tally) -> int:
    """Play every game's own solution natively; returns how many there are."""
    count = 0
    for name in dataset.tasks.splits if split is None else (split,):
        for task_id in dataset.tasks.ids(name):
            sim = Sim(dataset.world(task_id))
            count += 1
            for command in sim.world.walkthrough:
                if sim.won or not sim.is_admissible(command):
                    tally.differ(f"{task_id}: {command!r} of the walkthrough is out of place")
                    break
                sim.step(command)
            else:
                if not sim.won:
                    tally.differ(f"{task_id}: the walkthrough does not win")
    return count


def compare(
    dataset: Dataset,
    steps: int,
    seed: int,
    split: str | None = None,
    style: CommandStyle = "move",
    steps_a_game: int = _STEPS_A_GAME,
) -> Tally:
    """Compare both engines over at least ``steps`` steps of games drawn at random."""
    rng = random.Random(seed)
    splits = dataset.tasks.splits if split is None else (split,)
    ids = [task_id for name in splits for task_id in dataset.tasks.ids(name)]
    if not ids:
        raise DatasetError(f"{dataset.root} has no games to compare")
    tally = Tally()
    original = TextWorldSim(style)
    order: list[str] = []
    lap = 0
    try:
        while tally.steps < steps and tally.mismatches < _SHOWN:
            if not order:
                order, lap = rng.sample(ids, len(ids)), lap + 1
            length = min(steps_a_game, steps - tally.steps)
            play(dataset, order.pop(), original, length, f"{seed}/{lap}", tally)
            if tally.games % 10 == 0:  # the original is slow; one wants to see that it goes on
                print(
                    f"{tally.games} games, {tally.steps:,} steps, {tally.mismatches} mismatches",
                    file=sys.stderr,
                )
    finally:
        original.close()
    return tally


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parity_alfworld")
    parser.add_argument("--data", required=True, help="folder of official games")
    parser.add_argument("--steps", type=int, default=1000, help="steps to compare")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", help="compare games of this split only")
    parser.add_argument("--style", choices=("move", "put"), default="move")
    parser.add_argument("--steps-a-game", type=int, default=_STEPS_A_GAME)
    options = parser.parse_args(argv)
    try:
        dataset = open_dataset(options.data)
        dataset.check(options.split)
        tally = compare(
            dataset,
            options.steps,
            options.seed,
            options.split,
            options.style,
            options.steps_a_game,
        )
        solved = walkthroughs(dataset, options.split, tally)
    except (DatasetError, GameError, ImportError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in tally.kinds.most_common())
    print(f"games: {tally.games:,} ({tally.won:,} ended won)")
    print(f"steps: {tally.steps:,} ({kinds})")
    print(f"walkthroughs: {solved:,}")
    print(f"mismatches: {tally.mismatches}")
    for text in tally.shown:
        print(f"  {text}")
    return 1 if tally.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
