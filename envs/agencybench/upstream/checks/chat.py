"""Backend/1: a console chat in C++, built and spoken with.

The weights are the benchmark's. Names, messages and the bot's replies are drawn anew, programs are
really killed, and the queue's test must fail on a queue that is broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym.dice import Dice
from agentgym.sandbox import Limits
from envs.agencybench.assessment import Assessment, Unmet, inside
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding

__all__ = ["checks"]

_APP = "./bin/chat_app"
_LINE = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2} \| [^|]+ \| .*")
_Steps = list[list[Any]]
_Judge = Callable[[Any, Mapping[str, str]], None]


def _json(text: Any, what: str) -> Any:
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        raise Unmet(f"{what} is not valid JSON: {str(text)[:60]!r}") from None


def _names(dice: Dice) -> dict[str, str]:
    """Names and words of an assessment."""
    letters = "abcdefghijkmnpqrstuvwxyz"

    def word(size: int) -> str:
        return "".join(dice.pick(letters) for _ in range(size))

    names = {name: word(6) for name in ("alice", "bob", "m", "r", "tag")}
    return {**names, "user": f"user_{word(4)}", "pw": f"S3cr{word(4)}!", "boss": word(5).title()}


def _session(names: Mapping[str, str], *lines: str, new: bool = False) -> str:
    head = [] if not new else ["1", names["user"], names["pw"], names["pw"]]
    text = "\n".join([*head, "2", names["user"], names["pw"], *lines, "Q", "3"])
    return text + "\n"


def _built(results: Sequence[Any]) -> None:
    code, out = results[0]
    need(code == 0, f"make fails: {out[-200:]}")


def _selftest(results: Sequence[Any], place: int, keys: Sequence[str]) -> Any:
    _built(results)
    code, out = results[place]
    need(code == 0, f"the self-test ends with {code}")
    value = _json(out.strip().splitlines()[-1] if out.strip() else "", "the self-test's output")
    need(isinstance(value, dict), "the self-test prints no object")
    absent = [key for key in keys if key not in value]
    need(not absent, f"the self-test lacks {', '.join(absent)}")
    return value


# Task 1 -----------------------------------------------------------------------------------------


def _first(n: Mapping[str, str]) -> _Steps:
    user, pw = n["user"], n["pw"]
    turns = [
        ["Action: ", "9\n"], ["Action: ", "1\n"], ["Username: ", f"{n['bob']}\n"],
        ["Password: ", f"{pw}\n"], ["Password: ", f"{pw}\n"], ["Action: ", "3\n"],
    ]  # fmt: skip
    return [
        ["run", ["make", "task1"], "", 90], ["run", [_APP, "--version"], "", 5],
        ["run", [_APP], f"1\n{user}\n{pw}\n{pw}\n3\n", 10],
        ["run", [_APP], f"2\n{user}\n{pw}\n3\n", 10],
        ["files", "data"], ["files", "logs"],
        ["run", [_APP], f"2\n{user}\nwrong{pw}\n3\n", 10],
        ["talk", [_APP], turns, 4],
    ]  # fmt: skip


def _version(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    need(results[1] == [0, results[1][1]] and results[1][1].strip() == "1.0.0", "another version")


def _persists(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    users = _json(results[4].get("data/users.json", ""), "data/users.json")
    need(isinstance(users, list), "data/users.json holds no list")
    own = [u for u in users if isinstance(u, dict) and u.get("username") == n["user"]]
    need(len(own) == 1, "the user is not registered once")
    digest = str(own[0].get("hash"))
    need(re.fullmatch(r"[0-9a-fA-F]{64}", digest) is not None, "hash is no SHA-256")
    need(bool(own[0].get("salt")) and n["pw"] not in json.dumps(users), "there is no salt")
    need(f"Welcome {n['user']}" in results[3][1], "no login after a restart")
    need("Welcome" not in results[6][1], "a wrong password logs in")
    state = _json(results[5].get("logs/session_state.json", ""), "logs/session_state.json")
    need(isinstance(state, dict) and state.get("last_user") == n["user"], "last_user is another")


def _menu(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    told = results[7]
    text = "".join(told["parts"])
    need(len(told["came"]) == 6 and all(told["came"]), "a prompt does not come")
    for wanted in ("=== Chat App v1.0.0 ===", "[1] Register", "[2] Login", "[3] Exit"):
        need(wanted in text, f"the menu lacks {wanted!r}")
    need("Invalid choice" in text, "an invalid choice is not told")


# Task 2 -----------------------------------------------------------------------------------------


def _second(n: Mapping[str, str]) -> _Steps:
    made = _session(n, "A", n["alice"], "A", n["bob"], "R", n["bob"], "L", new=True)
    return [
        ["run", ["make", "task2"], "", 90], ["run", [_APP], made, 10],
        ["run", [_APP], _session(n, "L", "C", n["alice"], "/back"), 10],
        ["run", [_APP, "--selftest", "friend-menu"], "", 10], ["files", "data"],
    ]  # fmt: skip


def _friends(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    name = f"data/friends_{n['user']}.json"
    value = _json(results[4].get(name, ""), name)
    need(isinstance(value, list), f"{name} holds no list")
    users = [entry.get("user") if isinstance(entry, dict) else None for entry in value]
    need(users == [n["alice"]], f"friends are {users}")
    need(value[0].get("status") in ("online", "offline"), "there is no status")


def _listed(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    shown = rf"(?m)^.*\s+-\s+{n['alice']}\s+\[(online|offline)\]"
    need(re.search(shown, results[2][1]) is not None, "friends are not listed as required")
    need(n["bob"] not in results[2][1], "a friend that was removed is listed")


def _entered(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    need(f"--- Chat with {n['alice']} ---" in results[2][1], "the chat has no header")


# Task 3 -----------------------------------------------------------------------------------------

_COUNT = 12


def _third(n: Mapping[str, str]) -> _Steps:
    replies = [f"{n['r']}{place}" for place in range(3)]
    sent = [["", f"{n['m']}{place:02d}\n"] for place in range(_COUNT)]
    enter = [["", f"{text}\n"] for text in ("2", n["user"], n["pw"], "C", n["alice"])]
    pages = [["", "/history 1\n"], ["", "/history 2\n"], ["", "/exit\n"], ["", "Q\n3\n"]]
    return [
        ["run", ["make", "task3"], "", 90],
        ["write", "data/scripts/bot_replies.json", json.dumps(replies)],
        ["run", [_APP], _session(n, "A", n["alice"], new=True), 10],
        ["talk", [_APP], [*enter, *sent, *pages], 2.0],
        ["files", "data/history"],
        ["run", [_APP, "--selftest", "chat-loop"], "", 10],
    ]  # fmt: skip


def _log(results: Any, place: int, n: Mapping[str, str]) -> list[str]:
    name = f"data/history/{n['user']}/{n['alice']}.log"
    text = results[place].get(name)
    need(text is not None, f"there is no {name}")
    return [line for line in text.splitlines() if line.strip()]


def _chat(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    parts = results[3]["parts"]
    need(len(parts) > 5 + _COUNT, "the program ends early")
    for place in range(3):
        # What is printed after a message is heard before the next one is sent.
        heard = parts[6 + place]
        reply = f"{n['r']}{place}"
        need(f"[Bot] {reply}" in heard, f"message {place + 1} is not answered with {reply!r}")
        need(">" in parts[5 + place], "there is no prompt")
    need(f"[Bot] {n['r']}0" in parts[6 + 3], "replies do not start again")


def _pages(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    texts = [line.split(" | ", 2)[-1] for line in _log(results, 4, n)]
    need(len(texts) == 2 * _COUNT, f"the history has {len(texts)} lines, not {2 * _COUNT}")
    parts = results[3]["parts"]
    need(len(parts) > 7 + _COUNT, "the program ends early")
    mine = [f"{n['m']}{place:02d}" for place in range(_COUNT)]
    for page in (1, 2):
        shown = parts[5 + _COUNT + page]
        due = texts[-10 * page : len(texts) - 10 * (page - 1)]
        for message in mine:
            wanted = message in due
            need((message in shown) == wanted, f"page {page} is not right about {message!r}")


def _stored(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    lines = _log(results, 4, n)
    bad = [line for line in lines if not _LINE.fullmatch(line)]
    need(bool(lines) and not bad, f"lines are not in the form: {bad[:1]}")


# Task 4 -----------------------------------------------------------------------------------------


def _fourth(n: Mapping[str, str]) -> _Steps:
    said = [f"say hello {n['m']}", f"a SHELL {n['r']}", f"nothing {n['tag']}"]
    first = _session(
        n, "A", n["alice"], "A", n["bob"], f"set-alias {n['bob']} {n['boss']}", "C", n["alice"],
        *said, "/exit", new=True,
    )  # fmt: skip
    return [
        ["run", ["make", "task4"], "", 90],
        ["write", "data/scripts/bot_replies.json", '["ok"]'],
        ["run", [_APP], first, 10],
        ["run", [_APP], _session(n, "L"), 10],
        ["run", [_APP], _session(n, "/search HEL"), 10],
        ["run", [_APP, "--selftest", "alias-search"], "", 10],
        ["files", "data"],
    ]  # fmt: skip


def _alias(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    shown = re.search(rf"{n['boss']}\s+\[(online|offline)\]", results[3][1])
    need(shown is not None, "the alias is not listed after a restart")
    name = f"data/aliases_{n['user']}.json"
    value = _json(results[6].get(name, ""), name)
    need(value == {n["bob"]: n["boss"]}, f"{name} holds another map")


def _hits(results: Any, n: Mapping[str, str]) -> list[str]:
    _built(results)
    lines = results[4][1].splitlines()
    hits = [line for line in lines if re.search(rf"\[{n['alice']}\].*\|", line)]
    found = [line for line in hits if n["m"] in line or n["r"] in line]
    need(len(found) == 2, f"{len(found)} of 2 messages are found")
    need(not any(n["tag"] in line for line in hits), "a message is found that does not match")
    return found


def _found(results: Any, n: Mapping[str, str]) -> None:
    _hits(results, n)


def _marked(results: Any, n: Mapping[str, str]) -> None:
    for line in _hits(results, n):
        need("[[hel]]" in line.casefold(), f"the match is not marked: {line[:80]!r}")


# Task 5 -----------------------------------------------------------------------------------------


def _fifth(n: Mapping[str, str], sources: Sequence[str] = ()) -> _Steps:
    enter = [["", f"{text}\n"] for text in ("2", n["user"], n["pw"], "C", n["alice"])]
    return [
        ["run", ["make", "task5"], "", 90],
        ["run", [_APP], _session(n, "A", n["alice"], "A", n["bob"], new=True), 10],
        ["talk", [_APP], [*enter, [20.5, "/exit\n"], ["", "Q\n3\n"]], 1.0],
        [
            "talk", [_APP],
            [*enter, *[["", f"{n['m']}{k}\n"] for k in range(4)], [0.3, f"{n['tag']}\n"]],
            1.0, True,
        ],
        ["files", "data/history"],
        ["run", [_APP], _session(n, "L"), 10],
        ["run", [_APP, "--selftest", "concurrency"], "", 15],
        ["run", ["make", "test_queue"], "", 90],
        ["swap", list(sources), ".front()", ".back()"],
        ["run", ["make", "-B", "test_queue"], "", 90],
    ]  # fmt: skip


def _processed(results: Any, n: Mapping[str, str]) -> None:
    value = _selftest(results, 6, ["processed"])
    need(isinstance(value["processed"], int) and value["processed"] > 0, "nothing is processed")


def _automatic(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    text = "".join(results[2]["parts"])
    for friend in (n["alice"], n["bob"]):
        count = len(re.findall(rf"\[{friend}\] \S", text))
        need(count >= 2, f"{count} messages of a friend come within 20 seconds")


def _queue(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    need(results[7][0] == 0, f"make test_queue fails: {results[7][1][-120:]}")
    need(results[8] == 0 or results[9][0] != 0, "its test passes on a queue that is none")
    need(results[8] > 0, "there is no ThreadSafeQueue with a front()")


def _survives(results: Any, n: Mapping[str, str]) -> None:
    _built(results)
    lines = _log(results, 4, n)
    bad = [line for line in lines if not _LINE.fullmatch(line)]
    need(bool(lines) and not bad, f"lines are not whole: {bad[:1]}")
    text = "\n".join(lines)
    need(all(f"{n['m']}{k}" in text for k in range(4)), "messages are lost")
    need("Welcome" in results[5][1], "it does not start again")
    mine = [line for line in lines if n["m"] in line]
    need(len(set(mine)) == len(mine), "lines stand twice")


def _test(place: int, *keys: str) -> _Judge:
    def judge(results: Any, n: Mapping[str, str]) -> None:
        _selftest(results, place, keys)

    return judge


_TASKS: dict[int, tuple[Any, dict[str, tuple[float, str, _Judge]]]] = {
    1: (_first, {
        "build": (0.3, "it is built and tells its version", _version),
        "persistence": (0.5, "users are registered, hashed, and there after a restart", _persists),
        "menu": (0.2, "menu and prompts read as required", _menu),
    }),
    2: (_second, {
        "build": (0.25, "it is built and tests itself", _test(3, "user", "friends")),
        "friends": (0.35, "friends outlive a restart", _friends),
        "status": (0.2, "friends are listed with their status", _listed),
        "chat": (0.2, "a chat is entered", _entered),
    }),
    3: (_third, {
        "build": (0.2, "it is built and tests itself", _test(5, "messages")),
        "flow": (0.35, "messages are answered in turn", _chat),
        "pages": (0.25, "the history comes in pages of ten", _pages),
        "format": (0.2, "the history is stored in the form asked for", _stored),
    }),
    4: (_fourth, {
        "build": (0.2, "it is built and tests itself", _test(5, "aliases", "searchResults")),
        "alias": (0.35, "aliases outlive a restart", _alias),
        "search": (0.35, "all hits are found", _found),
        "marks": (0.1, "matches are marked", _marked),
    }),
    5: (_fifth, {
        "build": (0.2, "it is built and tests itself", _processed),
        "threads": (0.35, "messages come by themselves", _automatic),
        "queue": (0.25, "the queue is tested, by a test that finds faults", _queue),
        "crash": (0.2, "a kill leaves whole lines", _survives),
    }),
}  # fmt: skip


def checks(number: int) -> tuple[Check, ...]:
    """The checks of task ``number``, from 1."""
    steps, points = _TASKS[number]

    def results(assessment: Assessment) -> tuple[Any, Mapping[str, str]]:
        names = _names(assessment.dice("chat"))
        need("Makefile" in assessment.files, "there is no Makefile")
        more: tuple[Any, ...] = ()
        if number == 5:
            more = ([
                path
                for path, text in assessment.files.items()
                if path.endswith((".cpp", ".hpp", ".h"))
                and re.search(rb"class\s+ThreadSafeQueue|struct\s+ThreadSafeQueue", text)
            ],)  # fmt: skip
        played = steps(names, *more)
        limits = Limits(processes=128, memory=2 << 30, address_space=0)
        told = assessment.once(
            "chat",
            lambda: assessment.probe(
                inside("inside/places", "inside/console"), played, seconds=420, limits=limits
            ),
        )
        return told, names

    def check(name: str, weight: float, required: str, judge: _Judge) -> Check:
        def run(assessment: Assessment) -> Finding:
            judge(*results(assessment))
            return Finding(1.0)

        return Check(name, weight, required, run, kind="stdin_session")

    return tuple(check(name, *point) for name, point in points.items())
