"""The original engine, in a worker process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from agentgym.registry import missing_extra
from envs.alfworld.rules import CommandStyle, restyle

__all__ = ["TextWorldSim"]

_WORKER = Path(__file__).with_name("textworld_worker.py")
# The planner library gives no memory back: about one megabyte a game.
_GAMES_PER_WORKER = 200
# Seconds that a worker has to end by itself.
_PATIENCE = 5.0


class TextWorldSim:
    """One episode at a time in the original engine, with the interface of the native one.

    The worker process starts with the first game and is replaced after some hundred games. A
    fresh game takes one to three seconds of the processor, a step about 55 milliseconds.

    Attributes:
        won: Whether the goal holds now.
        accepted: Whether the last command was admissible.
        command: The last command, without blanks around.
        moves: Commands accepted so far.

    Args:
        style: How an object is put down; a game file with the other wording is reworded.

    Raises:
        ImportError: If TextWorld or ALFWorld is not installed.
        RuntimeError: If this Python is one that TextWorld does not run on.
    """

    def __init__(self, style: CommandStyle = "move") -> None:
        if sys.version_info >= (3, 13):
            raise RuntimeError(
                "engine='textworld' needs Python 3.11 or 3.12: TextWorld 1.7 fails at reset on "
                f"Python {sys.version_info[0]}.{sys.version_info[1]}; engine='native' runs here"
            )
        self.style = style
        self.won = False
        self.accepted = True
        self.command = ""
        self.moves = 0
        self._games = 0
        self._admissible: tuple[str, ...] = ()
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None
        self._start()

    def reset(self, game: Mapping[str, Any]) -> str:
        """Start a game, given the content of its file; returns the first observation.

        Raises:
            GameError: If the game cannot be put into the style asked for.
            RuntimeError: If the engine fails on it; the message holds the engine's own.
        """
        content = restyle(game, self.style)
        if self._process is None or self._games >= _GAMES_PER_WORKER:
            self.close()
            self._start()
        self._games += 1
        self.command, self.accepted, self.moves = "", True, 0
        return self._ask({"game": content})

    def step(self, command: str) -> str:
        """Carry out a command; returns what is said."""
        self.command = command.strip()
        self.accepted = self.command in self._admissible
        self.moves += self.accepted
        return self._ask({"command": command})

    def admissible(self) -> tuple[str, ...]:
        """Every admissible command, in order."""
        return self._admissible

    def is_admissible(self, text: str) -> bool:
        """Whether :meth:`step` would accept ``text`` now."""
        return text.strip() in self._admissible

    @property
    def pid(self) -> int | None:
        """Process id of the worker, or None where none is running."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the worker process."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.close()
                process.wait(timeout=_PATIENCE)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
            process.stdout.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.close()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        # -P: the worker's own folder must not come first on the path, it holds modules of
        # common names.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
        )
        self._games = 0
        answer = self._read()
        if "missing" in answer:
            self.close()
            raise missing_extra(answer["missing"], "alfworld")

    def _ask(self, request: dict[str, Any]) -> str:
        process = self._process
        if process is None:
            raise RuntimeError("the engine is closed; call reset() with a game")
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError:
            raise self._died() from None
        answer = self._read()
        self._admissible, self.won = tuple(answer["admissible"]), answer["won"]
        said: str = answer["observation"]
        return said

    def _read(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._died()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            self.close()
            raise RuntimeError(f"TextWorld failed:\n{answer['error']}")
        return answer

    def _died(self) -> RuntimeError:
        assert self._process is not None
        assert self._errors is not None
        try:
            code = self._process.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            self._process.kill()
            code = self._process.wait()
        self._errors.seek(0)
        tail = "".join(self._errors.readlines()[-8:])
        self.close()
        return RuntimeError(f"TextWorld's process ended with exit status {code}\n{tail}".rstrip())
