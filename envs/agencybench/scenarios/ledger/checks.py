"""What backend/ledger's service is asked, and what its answers must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentgym.dice import Dice
from envs.agencybench.assessment import Assessment, Unmet, inside
from envs.agencybench.scenario import Finding

__all__ = ["PARTS", "part"]

_Run = Callable[[Assessment], Finding]
_Transcript = list[Any]


def _play(assessment: Assessment, steps: list[Any]) -> _Transcript:
    if "server.py" not in assessment.files:
        raise Unmet("there is no server.py")
    made = assessment.probe(inside("scenarios/ledger/harness"), steps, seconds=120)
    if not isinstance(made, list) or len(made) != len(steps):
        raise Unmet("the service ended the program that speaks with it")
    for (name, *_), answer in zip(steps, made, strict=True):
        if name == "start" and answer != "up":
            raise Unmet("the service does not listen within 15 seconds")
    return made


def _ask(method: str, path: str, body: Any = None, save: str = "") -> list[Any]:
    return ["ask", method, path, body, save]


def _status(answer: Any) -> Any:
    known = isinstance(answer, list) and answer and type(answer[0]) is int
    return answer[0] if known else None


def _value(answer: Any) -> Any:
    return answer[1] if isinstance(answer, list) and len(answer) == 2 else None


def _field(answer: Any, name: str) -> Any:
    """A field of an answer that should be an object."""
    value = _value(answer)
    return value.get(name) if isinstance(value, dict) else None


def _ids(answers: _Transcript) -> list[str]:
    return [str(_field(answer, "id")) for answer in answers]


def _told(pairs: list[tuple[str, bool]]) -> Finding:
    amiss = [name for name, right in pairs if not right]
    value = 1 - len(amiss) / len(pairs)
    return Finding(value, f"not as asked for: {', '.join(amiss[:4])}" if amiss else "")


def _names(dice: Dice, count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyzé"
    made: list[str] = []
    while len(made) < count:
        name = "".join(dice.pick(letters) for _ in range(7))
        if name not in made:
            made.append(name)
    return made


def _opened(answers: _Transcript, names: list[str], opening: list[int]) -> bool:
    """Whether accounts were opened as asked for, with ids of their own."""
    values = [_value(answer) for answer in answers]
    if not all(
        _status(a) == 201 and isinstance(v, dict) for a, v in zip(answers, values, strict=True)
    ):
        return False
    if len({str(value.get("id")) for value in values}) < len(names):
        return False
    return [(v.get("name"), v.get("balance")) for v in values] == list(
        zip(names, opening, strict=True)
    )


def _open_steps(names: list[str], opening: list[int]) -> list[Any]:
    return [
        _ask("POST", "/accounts", {"name": name, "opening": amount}, f"a{place}")
        for place, (name, amount) in enumerate(zip(names, opening, strict=True))
    ]


# Task 1 -----------------------------------------------------------------------------------------


def _accounts(assessment: Assessment) -> dict[str, Any]:
    dice = assessment.dice("accounts")
    names = _names(dice, 4)
    opening = [dice.between(0, 10**6) for _ in names]
    bad: list[tuple[str, list[Any], int]] = [
        ("no JSON", _ask("POST", "/accounts", {"raw": "{"}), 400),
        ("a list", _ask("POST", "/accounts", [1]), 400),
        ("no name", _ask("POST", "/accounts", {"opening": 3}), 400),
        ("a name that is no text", _ask("POST", "/accounts", {"name": 5, "opening": 1}), 400),
        ("less than nothing", _ask("POST", "/accounts", {"name": "x", "opening": -1}), 400),
        ("half a coin", _ask("POST", "/accounts", {"name": "y", "opening": 1.5}), 400),
        ("a name that is taken", _ask("POST", "/accounts", {"name": names[0], "opening": 1}), 409),
        ("an unknown account", _ask("GET", f"/accounts/{_names(dice, 1)[0]}"[:12]), 404),
        ("an unknown path", _ask("GET", "/nothing"), 404),
    ]
    steps = [
        ["start"],
        _ask("GET", "/health"),
        *_open_steps(names, opening),
        *(step for _, step, _ in bad),
        _ask("GET", "/accounts"),
        _ask("GET", "/accounts/$a2$"),
    ]
    made = _play(assessment, steps)
    answers, errors = made[2:6], made[6 : 6 + len(bad)]
    due = [_value(answer) for answer in answers]
    listed, read = made[-2] == [200, due], made[-1] == [200, due[2]]
    # An account that nobody finds again was not opened.
    right = _opened(answers, names, opening) and (listed or read)
    return {
        "health": [("GET /health", made[1] == [200, {"status": "ok"}])],
        "open": [("POST /accounts", right)],
        "read": [
            ("GET /accounts", right and listed),
            ("GET /accounts/<id>", right and read),
        ],
        "errors": [
            (name, right and _refused(answer, status))
            for (name, _, status), answer in zip(bad, errors, strict=True)
        ],
    }


def _refused(answer: Any, status: int) -> bool:
    value = _value(answer)
    return (
        _status(answer) == status
        and isinstance(value, dict)
        and isinstance(value.get("error"), str)
    )


def part(label: str, work: Callable[[Assessment], dict[str, Any]], name: str) -> _Run:
    """One check out of a play that several share.

    Args:
        label: Names the play.
        work: Plays.
        name: The check's name in what the play gives.
    """

    def run(assessment: Assessment) -> Finding:
        return _told(assessment.once(label, lambda: work(assessment))[name])

    return run


# Task 2 -----------------------------------------------------------------------------------------


def _transfers(assessment: Assessment) -> dict[str, Any]:
    dice = assessment.dice("transfers")
    names = _names(dice, 3)
    opening = [dice.between(5000, 9000) for _ in names]
    amounts = [dice.between(1, 900) for _ in range(3)]

    def move(source: str, target: str, amount: Any, key: Any) -> list[Any]:
        body = {"from": source, "to": target, "amount": amount, "key": key}
        return _ask("POST", "/transfers", body)

    keys = _names(dice, 9)
    good = [
        move("$a0", "$a1", amounts[0], keys[0]),
        move("$a1", "$a2", amounts[1], keys[1]),
        move("$a2", "$a0", amounts[2], keys[2]),
    ]
    bad: list[tuple[str, list[Any], int]] = [
        ("too much", move("$a0", "$a1", 10**7, keys[3]), 422),
        ("an unknown account", move("$a0", "zz-unknown", 1, keys[4]), 404),
        ("nothing", move("$a0", "$a1", 0, keys[5]), 400),
        ("less than nothing", move("$a0", "$a1", -5, keys[6]), 400),
        ("half a coin", move("$a0", "$a1", 0.5, keys[7]), 400),
        ("to the same account", move("$a0", "$a0", 1, keys[8]), 400),
        ("no key", move("$a0", "$a1", 1, None), 400),
    ]
    balances = [_ask("GET", f"/accounts/$a{n}$") for n in range(3)]
    steps = [
        ["start"],
        *_open_steps(names, opening),
        *good,
        *balances,
        *good,
        move("$a0", "$a1", amounts[0] + 1, keys[0]),
        *balances,
        *(step for _, step, _ in bad),
        *balances,
    ]
    made = _play(assessment, steps)
    ids = [_field(answer, "id") for answer in made[1:4]]
    due = list(opening)
    for source, target, amount in ((0, 1, amounts[0]), (1, 2, amounts[1]), (2, 0, amounts[2])):
        due[source], due[target] = due[source] - amount, due[target] + amount

    def held(at: int) -> bool:
        return [_field(answer, "balance") for answer in made[at : at + 3]] == due

    moved = [_value(answer) for answer in made[4:7]]
    routes = ((0, 1), (1, 2), (2, 0))
    shaped = all(
        _status(answer) == 201
        and isinstance(value, dict)
        and [value.get(n) for n in ("from", "to", "amount", "key")]
        == [ids[routes[n][0]], ids[routes[n][1]], amounts[n], keys[n]]
        for n, (answer, value) in enumerate(zip(made[4:7], moved, strict=True))
    )
    works = shaped and held(7)
    again = [works and made[10 + n] == [200, moved[n]] for n in range(3)]
    return {
        "moved": [("the transfers", shaped), ("the balances after them", works)],
        "once": [
            *((f"repeating transfer {n + 1}", right) for n, right in enumerate(again)),
            ("another amount under a used key", works and _refused(made[13], 409)),
            ("the balances after repeating", works and all(again) and held(14)),
        ],
        "refused": [
            *(
                (name, works and _refused(answer, status))
                for (name, _, status), answer in zip(bad, made[17:24], strict=True)
            ),
            ("the balances after refusals", works and held(24)),
        ],
    }


# Tasks 3 and 4 ----------------------------------------------------------------------------------


def _random_moves(dice: Dice, clients: int, each: int, most: int) -> list[list[Any]]:
    made = []
    for client in range(clients):
        requests = []
        for number in range(each):
            source, target = dice.draw(range(4), 2)
            body = {
                "from": f"$a{source}",
                "to": f"$a{target}",
                "amount": dice.between(1, most),
                "key": f"k{client}-{number}-{dice.between(0, 10**6)}",
            }
            requests.append(["POST", "/transfers", body])
        made.append(requests)
    return made


def _listed(answer: Any) -> dict[str, int]:
    """Balances in the answer to ``GET /accounts``."""
    value = _value(answer)
    if _status(answer) != 200 or not isinstance(value, list):
        return {}
    if not all(isinstance(row, dict) and type(row.get("balance")) is int for row in value):
        return {}
    return {str(row["id"]): row["balance"] for row in value if "id" in row}


def _durable(assessment: Assessment) -> dict[str, Any]:
    dice = assessment.dice("durable")
    names = _names(dice, 4)
    opening = [dice.between(20_000, 90_000) for _ in names]
    (first,) = _random_moves(dice, 1, 6, 500)
    load = _random_moves(dice, 4, 60, 300)
    steps = [
        ["start"],
        *_open_steps(names, opening),  # 0 to 4
        ["crowd", [first]],
        _ask("GET", "/accounts"),  # 5, 6
        ["kill"],
        ["start"],
        _ask("GET", "/accounts"),  # 7 to 9
        ["crowd", [first]],
        _ask("GET", "/accounts"),  # 10, 11
        ["crowd", load, dice.between(20, 120)],
        ["start"],  # 12, 13
        _ask("GET", "/accounts"),
        ["crowd", load],
        _ask("GET", "/accounts"),
        ["journal"],  # 14 to 17
        ["kill"],
        ["append", '{"kind": "transf'],
        ["start"],
        _ask("GET", "/accounts"),  # 18 to 21
        _ask("POST", "/accounts", {"name": "after", "opening": 7}),
        ["kill"],
        ["start"],
        _ask("GET", "/accounts"),  # 22 to 25
        ["kill"],
        ["move"],
        ["start"],
        _ask("GET", "/accounts"),  # 26 to 29
    ]
    made = _play(assessment, steps)
    ids = _ids(made[1:5])
    due = dict(zip(ids, opening, strict=True))
    accepted = _apply(due, ids, first, made[5][0])
    works = len(due) == 4 and accepted and _listed(made[6]) == due
    # What is kept elsewhere than in the folder is not kept for it.
    apart = made[29] == [200, []]
    kept = works and apart and _listed(made[9]) == due
    whole_lines, objects = made[17]
    again = [_status(answer) for answer in made[10][0]]
    once = kept and set(again) == {200} and _listed(made[11]) == due
    # What was answered took place; of what was cut off each transfer did or did not. Asking again
    # with the same keys does what is missing, once.
    after = _listed(made[14])
    whole = sum(after.values()) == sum(opening) and min(after.values(), default=-1) >= 0
    statuses = [s for client in made[15] for s in map(_status, client)]
    total, answered = dict(due), 0
    for client, cut, repeated in zip(load, made[12], made[15], strict=True):
        for request, early, late in zip(client, cut, repeated, strict=True):
            if _status(early) == 201:
                answered += 1
                whole = whole and _status(late) == 200
            if _status(late) in (200, 201):
                _move(total, ids, request)
    load_kept = apart and whole and answered > 0 and set(statuses) <= {200, 201, 422}
    load_kept = load_kept and _listed(made[16]) == total
    torn = load_kept and _listed(made[21]) == total
    added = _listed(made[25])
    fresh = torn and _status(made[22]) == 201 and sum(added.values()) == sum(total.values()) + 7
    return {
        "kept": [
            ("balances after a kill, and none with another DATA", kept),
            ("$DATA/journal.jsonl, one JSON object a line", kept and 0 < objects == whole_lines),
        ],
        "keys": [("repeating after a kill", once)],
        "load": [("transfers under load through a kill", load_kept)],
        "torn": [("balances after a torn line", torn), ("what is written after it", fresh)],
    }


def _move(balances: dict[str, int], ids: list[str], request: Any) -> None:
    body = request[2]
    balances[ids[int(body["from"][2:])]] -= body["amount"]
    balances[ids[int(body["to"][2:])]] += body["amount"]


def _apply(balances: dict[str, int], ids: list[str], requests: Any, answers: Any) -> bool:
    """Let what was answered with 201 take effect; whether anything was."""
    moved = False
    for request, answer in zip(requests, answers, strict=True):
        if _status(answer) == 201:
            _move(balances, ids, request)
            moved = True
    return moved


def _crowded(assessment: Assessment) -> dict[str, Any]:
    dice = assessment.dice("crowd")
    names = _names(dice, 4)
    opening = [dice.between(300, 900) for _ in names]
    load = _random_moves(dice, 8, 50, 250)
    steps = [
        ["start"],
        *_open_steps(names, opening),
        ["crowd", load],
        _ask("GET", "/accounts"),
        _ask("GET", "/audit"),
    ]
    made = _play(assessment, steps)
    ids = _ids(made[1:5])
    balances = _listed(made[6])
    due = dict(zip(ids, opening, strict=True))
    accepted: dict[str, tuple[str, str, int]] = {}
    statuses = set()
    for client, answers in zip(load, made[5], strict=True):
        for request, answer in zip(client, answers, strict=True):
            statuses.add(_status(answer))
            if _status(answer) == 201:
                body = request[2]
                source, target = (ids[int(body[end][2:])] for end in ("from", "to"))
                accepted[body["key"]] = (source, target, body["amount"])
                _move(due, ids, request)
    works = len(accepted) >= 50 and statuses <= {201, 422} and len(due) == 4
    sound = works and sum(balances.values()) == sum(opening)
    sound = sound and min(balances.values(), default=-1) >= 0
    # So are the books of a service that moves nothing.
    sound = sound and balances != dict(zip(ids, opening, strict=True))
    audit = _value(made[7])
    return {
        "sound": [("the sum of the balances, or an overdraft", sound)],
        "answered": [("balances against what was answered", sound and balances == due)],
        "audit": [
            (
                "GET /audit",
                sound and _replays(audit, dict(zip(ids, opening, strict=True)), accepted, balances),
            )
        ],
    }


def _replays(
    audit: Any,
    held: dict[str, int],
    accepted: dict[str, tuple[str, str, int]],
    balances: dict[str, int],
) -> bool:
    if not isinstance(audit, dict) or audit.get("balances") != balances:
        return False
    transfers = audit.get("transfers")
    if not isinstance(transfers, list) or len(transfers) != len(accepted):
        return False
    for entry in transfers:
        if not isinstance(entry, dict):
            return False
        due = accepted.get(str(entry.get("key")))
        if due is None or (entry.get("from"), entry.get("to"), entry.get("amount")) != due:
            return False
        source, target, amount = due
        held[source] -= amount
        held[target] += amount
        if held[source] < 0:
            return False
    return held == balances


# All --------------------------------------------------------------------------------------------

PARTS: tuple[
    tuple[str, Callable[[Assessment], dict[str, Any]], dict[str, tuple[float, str]]], ...
] = (
    (
        "accounts",
        _accounts,
        {
            "health": (0.2, "GET /health answers"),
            "open": (0.3, "accounts are opened"),
            "read": (0.2, "accounts are listed and read"),
            "errors": (0.3, "errors have their status and a text"),
        },
    ),
    (
        "transfers",
        _transfers,
        {
            "moved": (0.3, "money is moved"),
            "once": (0.4, "a key works once"),
            "refused": (0.3, "refusals have their status and move nothing"),
        },
    ),
    (
        "durable",
        _durable,
        {
            "kept": (0.4, "what was answered survives a kill"),
            "keys": (0.2, "keys survive a kill"),
            "load": (0.2, "a kill under load leaves whole transfers"),
            "torn": (0.2, "a torn last line is dropped"),
        },
    ),
    (
        "crowd",
        _crowded,
        {
            "sound": (0.3, "no money is made or lost, no account overdrawn"),
            "answered": (0.4, "what was answered is what took place"),
            "audit": (0.3, "the audit replays"),
        },
    ),
)
