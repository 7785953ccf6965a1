"""Runs inside the sandbox: builds, and speaks with console programs; tells what they printed.

Every step's result is a value of its own; what is right is decided outside.
"""

from __future__ import annotations

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


def visit(argv: list[str], acts: list[Any], seconds: float) -> Any:
    """Find the way through a program whose menus and prompts have no fixed form.

    Args:
        argv: The program.
        acts: ``choose WORDS OTHERS`` (type what the menu has for an entry with one of the words; if
            there is none, for one of the others, and look again), ``form ANSWERS`` (answer prompts
            by the words in them, in the order of the answers, until one asks for something else),
            ``pick MARK WORD ANSWERS`` (as ``form``, where ``MARK`` stands for the first number in
            the last line that holds the word) or ``say TEXT``.
        seconds: Deadline of each wait.

    Returns:
        What was heard before each act and after the last, and the exit status.
    """
    process = start(argv)
    parts, recent, heard = [], "", ""
    try:
        for name, *rest in acts:
            heard = listen(process, time.monotonic() + seconds, quiet=0.4)
            parts.append(heard)
            recent = (recent + heard)[-6000:]
            if name == "say":
                say(process, rest[0])
            elif name == "choose":
                chosen = option(recent, rest[0])
                if chosen is None and option(recent, rest[1]) is not None:
                    say(process, str(option(recent, rest[1])))
                    heard = listen(process, time.monotonic() + seconds, quiet=0.4)
                    parts[-1] += heard
                    recent = (recent + heard)[-6000:]
                    chosen = option(recent, rest[0])
                say(process, chosen or "?")
            else:
                answers = dict(rest[-1])
                if name == "pick":
                    lines = [line for line in recent.splitlines() if rest[1] in line]
                    number = re.search(r"\d+", lines[-1].replace(rest[1], " ")) if lines else None
                    answers = {
                        word: answer.replace(rest[0], number[0] if number else "?")
                        for word, answer in answers.items()
                    }
                while answers:
                    asked = [line for line in heard.splitlines() if line.strip()][-1:]
                    word = next((w for w in answers if asked and w in asked[0].lower()), None)
                    if word is None:
                        break
                    say(process, answers.pop(word))
                    if not answers:
                        break
                    heard = listen(process, time.monotonic() + seconds, quiet=0.4)
                    parts[-1] += heard
                    recent = (recent + heard)[-6000:]
        with contextlib.suppress(OSError):
            process.stdin.close()
        parts.append(listen(process, time.monotonic() + seconds))
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(5)
        return {"parts": parts, "code": code}
    finally:
        end(process)


def say(process: Any, text: str) -> None:
    """Type a line."""
    with contextlib.suppress(OSError):
        process.stdin.write(f"{text}\n".encode())
        process.stdin.flush()


def several(programs: list[Any], seconds: float) -> Any:
    """Run programs on whole inputs at the same time."""
    started = [start(argv) for argv, _ in programs]
    made = []
    for process, (_, text) in zip(started, programs, strict=True):
        with contextlib.suppress(OSError):
            process.stdin.write(text.encode())
            process.stdin.close()
    until = time.monotonic() + seconds
    for process in started:
        out = listen(process, until)
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(max(0.1, until - time.monotonic()))
        made.append([code, out])
        end(process)
    return made


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
    "several": several,
    "files": files,
    "write": write,
    "swap": swap,
}


if __name__ == "__main__":
    report([_STEPS[name](*arguments) for name, *arguments in PAYLOAD])
