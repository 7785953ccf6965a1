"""Backend/2: a console for tasks in Java, compiled and spoken with.

The benchmark looks for words in the output and the data. Here sessions are played through whatever
menus the program has, with names drawn anew, and lists, files and restarts must agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym.dice import Dice
from agentgym.sandbox import Limits
from envs.agencybench.assessment import Assessment, inside
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding

__all__ = ["checks"]

_JAVA = ["java", "-Xmx256m", "-cp", "bin", "Main"]
_SECONDS = 20.0
_TASKS = ["view task", "manage task", "my task", "tasks"]
_Judge = Callable[[Any, Mapping[str, str]], None]


def _names(dice: Dice) -> dict[str, str]:
    def word(size: int) -> str:
        return "".join(dice.pick("abcdefghijkmnpqrstuvwxyz") for _ in range(size))

    words = {name: word(7) for name in ("one", "two", "first", "second", "tag", "other")}
    return {**words, "user": f"u{word(5)}", "peer": f"p{word(5)}", "pw": f"Pw{word(5)}7"}


def _register(user: str, pw: str) -> list[list[Any]]:
    form = {"confirm": pw, "repeat": pw, "again": pw, "user": user, "password": pw}
    return [["choose", ["register"], []], ["form", form]]


def _login(user: str, pw: str) -> list[list[Any]]:
    return [["choose", ["login", "log in"], []], ["form", {"user": user, "password": pw}]]


def _leave() -> list[list[Any]]:
    return [["choose", ["back", "logout", "log out", "exit"], []]] * 2 + [
        ["choose", ["exit", "quit"], []]
    ]


def _add(title: str, text: str, **more: str) -> list[list[Any]]:
    form = {
        "title": title, "name": title, "desc": text, "priority": more.get("priority", "Low"),
        "deadline": more.get("deadline", "2030-01-01"), "due": more.get("deadline", "2030-01-01"),
        "date": more.get("deadline", "2030-01-01"), "tag": more.get("tags", "none"),
    }  # fmt: skip
    return [["choose", ["add", "create", "new task"], _TASKS], ["form", form]]


def _list() -> list[list[Any]]:
    return [["choose", ["list", "show task", "view all", "display"], _TASKS]]


def _visit(*acts: Sequence[list[Any]]) -> list[Any]:
    return ["visit", _JAVA, [act for part in acts for act in part], _SECONDS]


def _start() -> list[list[Any]]:
    return [["run", ["sh", "-c", "mkdir -p bin && javac -d bin *.java"], "", 180]]


def _text(told: Any) -> str:
    return "".join(told["parts"])


def _built(results: Sequence[Any]) -> None:
    code, out = results[0]
    need(code == 0, f"javac fails: {out[-200:]}")


def _after(told: Any, act: int, count: int = 1) -> str:
    """What was printed after an act."""
    return "".join(told["parts"][act + 1 : act + 1 + count])


def _row(text: str, title: str) -> str:
    """What a list says of a task: its line, and the lines up to the next task."""
    place = text.find(title)
    need(place >= 0, f"the list does not show {title!r}")
    begin = text.rfind("\n", 0, place) + 1
    return text[begin : place + 400]


# Task 1 -----------------------------------------------------------------------------------------


def _first(n: Mapping[str, str]) -> list[Any]:
    wrong = _login(n["user"], "no")
    return [
        *_start(),
        _visit(_register(n["user"], n["pw"]), _leave()[-1:]),
        ["files", "data"],
        _visit(_login(n["user"], n["pw"]), _leave()),
        _visit(wrong, _leave()[-1:]),
        _visit(_register(n["user"], n["pw"])),
        ["run", _JAVA, "", 20],
    ]  # fmt: skip


def _unsaid(told: Any, words: str) -> None:
    """What comes of something must not be printed before it is done."""
    need(words not in told["parts"][0].lower(), f"{words!r} is printed before anything is done")


def _again(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    _unsaid(results[1], "registration successful")
    _unsaid(results[3], "login successful")
    need("registration successful" in _text(results[1]).lower(), "no registration is told")
    need("login successful" in _text(results[3]).lower(), "no login after a restart")


def _refused(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    text = _text(results[4]).lower()
    need("login successful" not in text, "a wrong password logs in")
    need("invalid" in text or "wrong password" in text, "the refusal is not told")
    need("exception" not in text, "it crashes")
    twice = _text(results[5]).lower()
    need("registration successful" not in twice, "a name is registered twice")


def _kept(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    held = [path for path, text in results[2].items() if n["user"] in text]
    need(bool(held), "no file of data holds the user")
    need("login successful" in _text(results[3]).lower(), "no login after a restart")


def _menu(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    text = _text(results[3])
    _unsaid(results[3], "main menu")
    _unsaid(results[3], "goodbye")
    need("main menu" in text.lower(), "there is no main menu")
    need("goodbye" in text.lower() and results[3]["code"] == 0, "it does not end with Goodbye")
    code, out = results[6]
    need(code is not None and "Exception" not in out, "the end of the input crashes it")


# Task 2 -----------------------------------------------------------------------------------------


def _second(n: Mapping[str, str]) -> list[Any]:
    act = [
        *_register(n["user"], n["pw"]), *_login(n["user"], n["pw"]),
        *_add(n["one"], n["first"]), *_add(n["two"], n["second"]), *_list(),
        ["choose", ["complete", "mark"], _TASKS], ["pick", "#", n["one"], {"id": "#"}], *_list(),
        ["choose", ["delete", "remove"], _TASKS],
        ["pick", "#", n["two"], {"id": "#", "sure": "y", "confirm": "y"}], *_list(), *_leave(),
    ]  # fmt: skip
    return [
        *_start(), _visit(act),
        _visit(_login(n["user"], n["pw"]), _list(), _leave()),
        _visit(_register(n["peer"], n["pw"]), _login(n["peer"], n["pw"]),
               _add(n["other"], n["tag"]), _list(), _leave()),
        ["files", "data"],
    ]  # fmt: skip


#: Acts of the first visit of task 2 after which a list is printed.
_LISTS = (8, 11, 14)


def _created(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    text = _after(results[1], _LISTS[0])
    for title, words in ((n["one"], n["first"]), (n["two"], n["second"])):
        row = _row(text, title)
        need(words in row and "pending" in row.lower(), "a task lacks description or status")
        need(re.search(r"\d", row) is not None, "a task has no ID")


def _completed(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    row = _row(_after(results[1], _LISTS[1]), n["one"])
    need("completed" in row.lower().split(n["two"])[0], "the list does not show the new status")
    need(re.search(r"(?i)marked\s+(as\s+)?completed", _text(results[1])) is not None, "not told")


def _deleted(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    text = _after(results[1], _LISTS[2])
    _row(text, n["one"])
    need(n["two"] not in text, "a task that was deleted is listed")
    need("deleted" in _text(results[1]).lower(), "it is not told")


def _reloaded(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    text = _text(results[2])
    row = _row(text, n["one"])
    need("completed" in row.lower() and n["two"] not in text, "another list after a restart")


def _scoped(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    text = _text(results[3])
    need(n["other"] in text and n["one"] not in text, "a user sees another one's tasks")
    own = {path for path, held in results[4].items() if n["one"] in held}
    theirs = {path for path, held in results[4].items() if n["other"] in held}
    need(bool(own) and bool(theirs) and not own & theirs, "users share a file")


# Task 3 -----------------------------------------------------------------------------------------


def _third(n: Mapping[str, str]) -> list[Any]:
    act = [
        *_register(n["user"], n["pw"]), *_login(n["user"], n["pw"]),
        *_add(n["one"], n["first"], priority="High", deadline="2031-05-02", tags=f"{n['tag']},x"),
        *_add(n["two"], n["second"], priority="Low", deadline="2030-02-01", tags="home"),
        *_list(), ["say", "/filter priority=high"], ["say", f"/filter tag={n['tag']}"],
        ["say", "/sort deadline"], *_leave(),
    ]  # fmt: skip
    return [*_start(), _visit(act), _visit(_login(n["user"], n["pw"]), _list(), _leave())]


def _attributes(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    row = _row(_after(results[1], 8), n["one"])
    for word in ("high", "2031-05-02", n["tag"]):
        need(word in row.lower(), f"the list does not show {word!r}")


def _filtered(act: int) -> _Judge:
    def judge(results: Any, n: Mapping[str, str]) -> None:
        _built(results)
        text = _after(results[1], act)
        need(n["one"] in text and n["two"] not in text, "the filter lets others pass")

    return judge


def _sorted(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    text = _after(results[1], 11)
    need(n["one"] in text and n["two"] in text, "the sorted list lacks a task")
    need(text.index(n["two"]) < text.index(n["one"]), "later deadlines come first")


def _legacy(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    text = _text(results[2])
    row = _row(text, n["one"])
    need("high" in row.lower() and "2031-05-02" in row, "attributes are lost by a restart")
    need("Exception" not in text, "it crashes")


# Task 4 -----------------------------------------------------------------------------------------


def _fourth(n: Mapping[str, str]) -> list[Any]:
    part, inner = n["one"][1:5].upper(), n["second"][1:5]
    act = [
        *_register(n["user"], n["pw"]), *_login(n["user"], n["pw"]),
        *_add(n["one"], n["first"]), *_add(n["two"], n["second"]), *_list(),
        ["say", f"/search {part}"], ["say", f"/search {inner}"],
        ["choose", ["complete", "mark"], _TASKS], ["pick", "#", n["one"], {"id": "#"}], *_list(),
        ["pick", "#", n["one"], {"": "/archive #"}], *_list(), ["say", f"/search {part}"],
        ["pick", "#", n["one"], {"": "/unarchive #"}], *_list(), *_leave(),
    ]  # fmt: skip
    return [*_start(), _visit(act)]


def _found(act: int, wanted: str, other: str) -> _Judge:
    def judge(results: Any, n: Mapping[str, str]) -> None:
        _built(results)
        text = _after(results[1], act)
        need(n[wanted] in text and n[other] not in text, "the search finds something else")

    return judge


def _archived(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    need("hiding" in _after(results[1], 14).lower(), "no message holds 'hiding'")
    text = _after(results[1], 14)
    listed = _after(results[1], 15)
    need(n["two"] in listed and n["one"] not in listed, "an archived task is still listed")
    need("Exception" not in text, "it crashes")


def _restored(results: Any, n: Mapping[str, str]) -> None:
    _archived(results, n)
    need(n["one"] in _after(results[1], 18), "the task does not come back")


# Task 5 -----------------------------------------------------------------------------------------


#: Tasks that each of two users adds while the other does.
_EACH = 5
_BOTH = (("one", "user"), ("other", "peer"))


def _titles(n: Mapping[str, str], name: str) -> list[str]:
    return [f"{n[name]}{letter}" for letter in "abcdefgh"[:_EACH]]


def _fifth(n: Mapping[str, str]) -> list[Any]:
    def beside(name: str, user: str) -> list[Any]:
        # With a user named, a program may ask who it is, or not.
        adds = [act for title in _titles(n, name) for act in _add(title, n["first"])]
        acts = [*_login(n[user], n["pw"]), *adds, ["say", "/refresh"], *_list(), *_leave()]
        return [[*_JAVA, "--user", n[user]], acts, _SECONDS]

    return [
        *_start(),
        *(_visit(_register(n[user], n["pw"]), _leave()[-1:]) for _, user in _BOTH),
        ["together", [beside(name, user) for name, user in _BOTH]],
        ["files", "data"],
        *(_visit(_login(n[user], n["pw"]), _list(), _leave()) for _, user in _BOTH),
    ]


def _both(results: Any, n: Mapping[str, str]) -> list[str]:
    """What two users heard who added tasks at the same time."""
    _built(results)
    texts = [_text(told) for told in results[3]]
    for text, (name, _) in zip(texts, _BOTH, strict=True):
        listed = text[max(0, text.lower().rfind("latest")) :]
        lost = [title for title in _titles(n, name) if title not in listed]
        need(not lost, f"{len(lost)} of {_EACH} tasks that were added are not listed")
    return texts


def _shared(results: Any, n: Mapping[str, str]) -> None:
    _both(results, n)
    wanted = [title for name, _ in _BOTH for title in _titles(n, name)]
    held = [text for text in results[4].values() if all(title in text for title in wanted)]
    need(bool(held), "no file of data holds the tasks of both users")


def _whole(results: Any, n: Mapping[str, str]) -> None:
    _both(results, n)
    for told, (name, _) in zip(results[5:7], _BOTH, strict=True):
        lost = [title for title in _titles(n, name) if title not in _text(told)]
        need(not lost, f"{len(lost)} of {_EACH} tasks are lost after a restart")
        need("Exception" not in _text(told), "it crashes")


def _refreshed(results: Any, n: Mapping[str, str]) -> None:
    need(all("latest" in text.lower() for text in _both(results, n)), "/refresh prints no 'latest'")


def _locked(results: Any, n: Mapping[str, str]) -> None:
    for text in _both(results, n):
        told = "lock" in text.lower() or "synchronized" in text.lower()
        need(told, "locking is not logged")


def _responsive(results: Any, n: Mapping[str, str]) -> None:
    _both(results, n)
    need(all(told["code"] == 0 for told in results[3]), "it does not end when it is asked to")


_POINTS: dict[int, tuple[Any, dict[str, tuple[str, _Judge]]]] = {
    1: (_first, {
        "login": ("a new user logs in after a restart", _again),
        "refusal": ("a wrong password and a taken name are refused", _refused),
        "storage": ("users outlive the program", _kept),
        "menu": ("a main menu, and an end without a crash", _menu),
    }),
    2: (_second, {
        "create": ("tasks are listed with what they hold", _created),
        "complete": ("a task is completed, and listed so", _completed),
        "delete": ("a deleted task is gone", _deleted),
        "restart": ("tasks outlive a restart", _reloaded),
        "scope": ("users have tasks of their own", _scoped),
    }),
    3: (_third, {
        "attributes": ("tasks have priority, deadline and tags", _attributes),
        "priority": ("tasks are filtered by priority", _filtered(9)),
        "tag": ("tasks are filtered by tag", _filtered(10)),
        "sort": ("tasks are sorted by deadline", _sorted),
        "restart": ("attributes outlive a restart", _legacy),
    }),
    4: (_fourth, {
        "search": ("a part of a title is found, whatever its case", _found(9, "one", "two")),
        "archive": ("an archived task is hidden", _archived),
        "searchable": ("an archived task is found", _found(16, "one", "two")),
        "unarchive": ("a task comes back", _restored),
        "descriptions": ("descriptions are searched", _found(10, "two", "one")),
    }),
    5: (_fifth, {
        "together": ("two users add tasks at the same time, to one store", _shared),
        "storage": ("what they add is whole, and there after a restart", _whole),
        "refresh": ("/refresh loads the latest data", _refreshed),
        "locks": ("locking is logged", _locked),
        "responsive": ("the program goes on, and ends as it is asked to", _responsive),
    }),
}  # fmt: skip


def checks(number: int) -> tuple[Check, ...]:
    """The checks of task ``number``, from 1."""
    steps, points = _POINTS[number]

    def results(assessment: Assessment) -> tuple[Any, Mapping[str, str]]:
        names = _names(assessment.dice("todo"))
        need(any(path.endswith(".java") for path in assessment.files), "there is no Java source")
        limits = Limits(processes=256, memory=3 << 30, address_space=0)
        program = inside("inside/places", "inside/console")
        told = assessment.once(
            "todo",
            lambda: assessment.probe(program, steps(names), seconds=500, limits=limits),
        )
        return told, names

    def check(name: str, required: str, judge: _Judge) -> Check:
        def run(assessment: Assessment) -> Finding:
            judge(*results(assessment))
            return Finding(1.0)

        return Check(name, 1.0, required, run, kind="stdin_session")

    return tuple(check(name, *point) for name, point in points.items())
