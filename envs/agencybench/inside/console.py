"""Runs inside the sandbox: builds, and speaks with console programs; tells what they printed.

Every step's result is a value of its own; what is right is decided outside.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from envs.agencybench.inside.places import put, read
from envs.agencybench.inside.prelude import PAYLOAD, report

_MOST = 200_000
_MARK = r"(?i)(?:\bid\b|#)\W*(\d+)"


def start(argv: list[str]) -> Any:
    """Start a program in a group of its own."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def end(process: Any) -> None:
    """Kill a program and what it started."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def listen(process: Any, until: float, stop: str = "", quiet: float = 0.0) -> str:
    """What it prints until a text comes, it is quiet for some time, or the time is over."""
    made = b""
    descriptor = process.stdout.fileno()
    while len(made) < _MOST:
        left = until - time.monotonic()
        wait = min(left, quiet) if quiet and made else left
        if left <= 0 or not select.select([descriptor], [], [], max(0.0, wait))[0]:
            break
        piece = os.read(descriptor, 65536)
        if not piece:
            break
        made += piece
        if stop and stop.encode() in made:
            break
    return made.decode("utf-8", "replace")


def run(argv: list[str], text: str, seconds: float) -> Any:
    """Run a program on a whole input: exit status (None after the deadline) and output."""
    try:
        process = start(argv)
    except OSError as error:
        return [None, f"{type(error).__name__}"]
    try:
        out, _ = process.communicate(text.encode(), timeout=seconds)
        return [process.returncode, out[:_MOST].decode("utf-8", "replace")]
    except subprocess.TimeoutExpired:
        end(process)
        out = process.stdout.read(_MOST) if process.stdout else b""
        return [None, out.decode("utf-8", "replace")]
    finally:
        end(process)


def talk(argv: list[str], turns: list[Any], seconds: float, kill: bool = False) -> Any:
    """Speak with a program.

    Args:
        argv: The program.
        turns: What is waited for (a text; or a number of seconds that pass; or nothing, for a
            pause of the program), and what is said then.
        seconds: Deadline of each wait.
        kill: Kill it after the last turn, rather than let it end.

    Returns:
        What it printed before each turn and after the last one, whether each text that was waited
        for came, and the exit status.
    """
    try:
        process = start(argv)
    except OSError as error:
        return {"parts": [type(error).__name__], "came": [], "code": None}
    parts, came = [], []
    try:
        for wanted, said in turns:
            now = time.monotonic()
            if isinstance(wanted, str) and wanted:
                heard = listen(process, now + seconds, stop=wanted)
                came.append(wanted in heard)
            elif wanted:
                heard = listen(process, now + wanted)
            else:
                heard = listen(process, now + seconds, quiet=0.25)
            parts.append(heard)
            try:
                process.stdin.write(said.encode())
                process.stdin.flush()
            except OSError:
                break
        if kill:
            time.sleep(0.1)
            end(process)
        with contextlib.suppress(OSError):
            process.stdin.close()
        parts.append(listen(process, time.monotonic() + seconds))
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(2)
        return {"parts": parts, "came": came, "code": code}
    finally:
        end(process)


def option(text: str, words: list[str]) -> str | None:
    """What to type for the entry of a menu that holds one of the words; the last one shown."""
    for line in reversed(text.splitlines()):
        found = re.match(r"\W*(\w{1,2})\W+\s*(.+)", line)
        if found and any(word in found[2].lower() for word in words):
            return found[1]
    return None


def marked(text: str, word: str) -> str | None:
    """The number of the entry of a list that holds a word: in its line, or in those around it."""
    lines = text.splitlines()
    place = next((n for n in reversed(range(len(lines))) if word in lines[n]), None)
    if place is None:
        return None
    own = lines[place].replace(word, " ")
    around = [*lines[max(0, place - 3) : place][::-1], *lines[place + 1 : place + 3]]
    for line, pattern in [(own, _MARK), *((line, _MARK) for line in around), (own, r"(\d+)")]:
        found = re.search(pattern, line)
        if found:
            return found[1]
    return None


class Visit:
    """The way through a program whose menus and prompts have no fixed form.

    Args:
        argv: The program.
        seconds: Deadline of each wait.
    """

    def __init__(self, argv: list[str], seconds: float) -> None:
        self.process, self.seconds = start(argv), seconds
        self.parts: list[str] = []
        self.recent = self.ahead = ""

    def hear(self) -> str:
        """What it prints until it is quiet."""
        heard = listen(self.process, time.monotonic() + self.seconds, quiet=0.4)
        self.recent = (self.recent + heard)[-6000:]
        return heard

    def act(self, name: str, *rest: Any) -> None:
        """Do one act of those that :func:`visit` names."""
        heard, self.ahead = self.ahead or self.hear(), ""
        self.parts.append(heard)
        if name == "say":
            say(self.process, rest[0])
        elif name == "choose":
            self.choose(heard, *rest)
        else:
            answers = dict(rest[-1])
            if name == "pick":
                number = marked(self.recent, rest[1]) or "?"
                answers = {word: text.replace(rest[0], number) for word, text in answers.items()}
            self.answer(heard, answers)

    def choose(self, heard: str, words: list[str], others: list[str]) -> None:
        """Type what the menu has for an entry, of the latest menu first."""
        chosen, entry = option(heard, words), option(heard, others)
        if chosen is None and entry is None:
            chosen, entry = option(self.recent, words), option(self.recent, others)
        if chosen is None and entry is not None:
            say(self.process, entry)
            heard = self.hear()
            chosen = option(heard, words)
            if chosen is None:
                # The other entry was what was wanted: what it printed comes after this act.
                self.ahead = heard
                return
            self.parts[-1] += heard
        say(self.process, chosen or "?")

    def answer(self, heard: str, answers: dict[str, str]) -> None:
        """Answer prompts by the words in them, until one asks for something else."""
        after, self.parts[-1] = self.parts[-1], ""
        while answers:
            asked = [line for line in heard.splitlines() if line.strip()][-1:]
            word = next((w for w in answers if asked and w in asked[0].lower()), None)
            if word is None:
                # What came after the last answer is for the next act.
                self.ahead = after
                break
            self.parts[-1] += after
            say(self.process, answers.pop(word))
            if not answers:
                break
            heard = after = self.hear()

    def leave(self) -> Any:
        """End the input, and tell what was heard in all."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.parts.append(self.ahead + listen(self.process, time.monotonic() + self.seconds))
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(5)
        return {"parts": self.parts, "code": code}


def visit(argv: list[str], acts: list[Any], seconds: float) -> Any:
    """Find the way through a program whose menus and prompts have no fixed form.

    Args:
        argv: The program.
        acts: ``choose WORDS OTHERS`` (type what the menu has for an entry with one of the words; if
            there is none, for one of the others, and look again), ``form ANSWERS`` (answer prompts
            by the words in them, in the order of the answers, until one asks for something else),
            ``pick MARK WORD ANSWERS`` (as ``form``, where ``MARK`` stands for the number of the
            last entry of a list that holds the word) or ``say TEXT``.
        seconds: Deadline of each wait.

    Returns:
        What was heard before each act and after the last, and the exit status.
    """
    made = Visit(argv, seconds)
    try:
        for name, *rest in acts:
            made.act(name, *rest)
        return made.leave()
    finally:
        end(made.process)


def together(visits: list[Any]) -> Any:
    """Several visits at the same time."""
    with concurrent.futures.ThreadPoolExecutor(len(visits)) as pool:
        return list(pool.map(lambda arguments: visit(*arguments), visits))


def say(process: Any, text: str) -> None:
    """Type a line."""
    with contextlib.suppress(OSError):
        process.stdin.write(f"{text}\n".encode())
        process.stdin.flush()


def files(folder: str) -> Any:
    """Texts of the plain files of a folder, by path; of very many some."""
    made: dict[str, str] = {}
    for root, _, names in os.walk(folder):
        for name in sorted(names)[:200]:
            path = os.path.join(root, name)
            text = read(path, _MOST) if len(made) < 2000 else None
            if text is not None:
                made[path] = text
    return made


def write(path: str, text: str) -> Any:
    """Write a file."""
    return put(path, text)


def swap(paths: list[str], old: str, new: str) -> Any:
    """Replace a text in files; how often it stood there."""
    count = 0
    for path in paths:
        # Bytes that are no text stay as they are.
        with contextlib.suppress(OSError), open(path, "r+b") as file:
            held = file.read()
            count += held.count(old.encode())
            file.seek(0)
            file.write(held.replace(old.encode(), new.encode()))
            file.truncate()
    return count


_STEPS: dict[str, Callable[..., Any]] = {
    "run": run,
    "talk": talk,
    "visit": visit,
    "together": together,
    "files": files,
    "write": write,
    "swap": swap,
}


if __name__ == "__main__":
    report([_STEPS[name](*arguments) for name, *arguments in PAYLOAD])
