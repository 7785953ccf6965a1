"""The official games: a folder of ``game.tw-pddl`` files in the layout of ALFWorld's release."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from agentgym.tasks import TaskSet
from envs.alfworld.pddl import GameError
from envs.alfworld.world import World, read_game

__all__ = ["FOLDER", "GAME_FILE", "SPLITS", "Dataset", "DatasetError", "open_dataset"]

#: Name of the release's folder.
FOLDER = "json_2.1.1"
GAME_FILE = "game.tw-pddl"
#: The splits of the release and how many games it has in each.
SPLITS = {"train": 3553, "valid_seen": 140, "valid_unseen": 134, "valid_train": 200}

_HINT = (
    f"data= takes the folder that alfworld-download fills (the one that holds {FOLDER!r}) or "
    f"{FOLDER!r} itself"
)
# Task folders that the original passes over, too.
_SKIPPED = ("movable", "Sliced")
# A game's end holds its mark of being solvable and its walkthrough.
_TAIL_BYTES = 2048
_MARK = re.compile(rb'"solvable"\s*:\s*(true|false)')


class DatasetError(ValueError):
    """A data folder that cannot be used; the message names it and what would be right."""


class Dataset:
    """The games of one folder.

    A game's id is ``<split>/<task folder>/<trial folder>``. Splits are listed, in sorted order,
    when first asked for; games are parsed when first played and kept, at some 20 kB each, or 50
    when played much. As in the original, trials without a game file are passed over, and so are
    games that are not marked ``"solvable": true`` and tasks with ``movable`` or ``Sliced`` in
    their name.

    Args:
        root: A folder that holds the split folders.

    Raises:
        DatasetError: If it holds none.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        present = [name for name in SPLITS if (self.root / name).is_dir()]
        if not present:
            raise DatasetError(
                f"{self.root} holds none of the folders {', '.join(SPLITS)}; {_HINT}"
            )
        self._worlds: dict[str, World] = {}
        # The training split is there even if empty: drawing from it then says so.
        splits: dict[str, Any] = {"train": ()}
        splits |= {name: partial(self._list, name) for name in present}
        # Evaluations play the last one unless told otherwise.
        order = ("valid_train", "valid_seen", "valid_unseen")
        evaluated = [name for name in order if name in present]
        self.tasks = TaskSet(splits, train_split="train", eval_splits=evaluated)

    def check(self, split: str | None) -> None:
        """Verify that there is something to play: in ``split``, or with None in any split.

        Raises:
            DatasetError: If there is not.
        """
        if split is None:
            if not any(self.tasks.ids(name) for name in self.tasks.splits):
                raise DatasetError(f"no folder in {self.root} holds a game; {_HINT}")
        elif split not in self.tasks.splits or not self.tasks.ids(split):
            there = {name: len(self.tasks.ids(name)) for name in self.tasks.splits}
            held = ", ".join(f"{name} ({count})" for name, count in there.items() if count)
            raise DatasetError(
                f"{self.root} has no games of split {split!r}; it has {held or 'none at all'}"
            )

    def path(self, task_id: str) -> Path:
        """The game file of a task."""
        return self.root / task_id / GAME_FILE

    def world(self, task_id: str) -> World:
        """The parsed game of a task, shared by all who ask.

        Raises:
            GameError: If its file is damaged or is not a game that the native engine plays.
        """
        world = self._worlds.get(task_id)
        if world is None:
            # Two threads may both parse it; both get the one that was stored first.
            world = self._worlds.setdefault(task_id, World.load(self.path(task_id)))
        return world

    def game(self, task_id: str) -> Mapping[str, Any]:
        """The content of a task's game file.

        Raises:
            GameError: If it is damaged.
        """
        return read_game(self.path(task_id))

    def _list(self, split: str) -> tuple[str, ...]:
        """Ids of a split, sorted.

        Raises:
            DatasetError: If a game file is damaged, or there are trial folders but no game.
        """
        games: list[str] = []
        damaged: list[str] = []
        trials = unsolvable = 0
        for task in _folders(self.root / split):
            if any(word in task for word in _SKIPPED):
                continue
            for trial in _folders(self.root / split / task):
                if any(word in trial for word in _SKIPPED):
                    continue
                trials += 1
                task_id = f"{split}/{task}/{trial}"
                try:
                    solvable = _is_solvable(self.path(task_id))
                except (FileNotFoundError, NotADirectoryError):
                    continue  # the release has more trials than games
                except GameError as error:
                    damaged.append(str(error))
                    continue
                if solvable:
                    games.append(task_id)
                else:
                    unsolvable += 1
        if damaged:
            raise DatasetError(
                f"{len(damaged)} of {len(damaged) + len(games) + unsolvable} game files of split "
                f"{split!r} in {self.root} are damaged; the first: {damaged[0]}"
            )
        if trials and not games:
            if unsolvable:
                why = f"{unsolvable} games, none of which is marked as solvable"
            else:
                why = (
                    f"{trials} trial folders but not one {GAME_FILE}: of the release's archives "
                    "the one with the text games (*_tw-pddl) was not unpacked; get the rest of "
                    "the data (alfworld-download)"
                )
            raise DatasetError(f"split {split!r} in {self.root} has {why}")
        return tuple(sorted(games))


def _is_solvable(path: Path) -> bool:
    """Whether a game file says that its game can be won; most are judged by their last bytes.

    Raises:
        FileNotFoundError: If there is no such file.
        NotADirectoryError: If its folder is a file.
        GameError: If the file is damaged or cannot be read.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError:
        tail = b""
    mark = _MARK.search(tail) if tail.rstrip().endswith(b"}") else None
    return mark[1] == b"true" if mark else bool(read_game(path).get("solvable"))


def _folders(path: Path) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def locate(data: str | os.PathLike[str]) -> Path:
    """The folder that holds the splits; ``~`` and ``$VARIABLES`` are expanded.

    Raises:
        DatasetError: If there is none.
    """
    given = os.fsdecode(data)
    path = Path(expanded := os.path.expanduser(os.path.expandvars(given)))
    if not expanded.strip():
        raise DatasetError(f"data={given!r} is an empty text; {_HINT}")
    if "$" in expanded and not path.exists():
        raise DatasetError(f"data={given!r} names an environment variable that is not set; {_HINT}")
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise DatasetError(f"the data folder {path} {what}; {_HINT}")
    below = path / FOLDER
    if below.is_dir():
        path = below
    if not any((path / name).is_dir() for name in SPLITS):
        archives = sorted(entry.name for entry in path.iterdir() if entry.suffix in (".zip", ".xz"))
        left = f" It holds {', '.join(archives[:3])}, not unpacked." if archives else ""
        raise DatasetError(f"{path} holds none of the folders {', '.join(SPLITS)}; {_HINT}.{left}")
    return path.resolve()


_lock = threading.Lock()
_open: weakref.WeakValueDictionary[Path, Dataset] = weakref.WeakValueDictionary()


def open_dataset(data: str | os.PathLike[str]) -> Dataset:
    """The games of a folder: the data set that is open already, or a new one.

    A data set stays open, with the worlds it has parsed, as long as something refers to it.

    Args:
        data: The folder above ``json_2.1.1``, or that folder itself.

    Raises:
        DatasetError: If it cannot be used.
    """
    root = locate(data)
    with _lock:
        dataset = _open.get(root)
        if dataset is None:
            dataset = _open[root] = Dataset(root)
    return dataset
