"""backend/ledger as a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentgym.dice import Dice
from envs.agencybench.scenario import Check, Scenario, Task, World
from envs.agencybench.scenarios.ledger.checks import PARTS, part

__all__ = ["scenario"]

_BRIEF = """\
Build a ledger as a service in `server.py`, with Python's standard library alone. It is started by \
`python3 server.py` with the variables `PORT` (it listens on 127.0.0.1 at this port) and `DATA` (a \
folder for its files), and speaks JSON over HTTP. Amounts are integers. Every error is answered \
with an object `{"error": <text>}`. Hidden checks use names and amounts of their own."""

_QUERIES = (
    (
        'Accounts. `GET /health` answers 200 `{"status": "ok"}`. `POST /accounts` with `{"name": '
        'text, "opening": integer >= 0}` answers 201 `{"id": text, "name", "balance"}`. '
        "`GET /accounts` lists all in the order in which they were opened, `GET /accounts/<id>` "
        "one. "
        "400 for a body that is no JSON object or does not fit, 409 for a name that is taken, "
        "404 for "
        "an unknown account or path.",
        "- health: 0.2\n- opening accounts: 0.3\n- listing and reading: 0.2\n- errors: 0.3",
    ),
    (
        'Transfers. `POST /transfers` with `{"from": id, "to": id, "amount": integer > 0, "key": '
        'text}` moves money and answers 201 with `{"id", "from", "to", "amount", "key"}`. The '
        "same key again with the same values answers 200 with the same transfer and moves nothing; "
        "with other values 409. 422 if the money does not suffice, 404 for an unknown account, "
        "400 for "
        "a body that does not fit or a transfer to the same account.",
        "- money is moved: 0.3\n- a key works once: 0.4\n- refusals, which move nothing: 0.3",
    ),
    (
        "Durability. The service is killed (SIGKILL) at any time and started again with the same "
        "`DATA`. Whatever was answered is still there, keys included; a transfer took place as "
        "a whole "
        "or not at all. The journal is `$DATA/journal.jsonl`, one JSON object a line; a torn "
        "last line "
        "is dropped at the start.",
        "- what was answered is still there: 0.4\n- keys still work once: 0.2\n- a kill under load "
        "leaves whole transfers: 0.2\n- a torn last line is dropped: 0.2",
    ),
    (
        'Crowds. Many clients at once. `GET /audit` answers `{"transfers": [all, in the order in '
        'which they took place], "balances": {id: balance}}`. Played one after the other from the '
        "opening balances, the transfers never overdraw an account and give the balances.",
        "- no money is made or lost, none overdrawn: 0.3\n- what was answered is what took "
        "place: 0.4\n"
        "- the audit replays: 0.3",
    ),
)


def _build(dice: Dice) -> World:
    return World({"README.md": f"# Ledger {dice.between(100, 999)}\n\nSee the task.\n".encode()})


def _solve(world: World, task: int) -> list[tuple[str, dict[str, Any]]]:
    text = Path(__file__).with_name("solution.py").read_text("utf-8")
    return [("write_file", {"path": "server.py", "content": text})]


def scenario() -> Scenario:
    """The scenario, ready to be played."""
    tasks = tuple(
        Task(
            f"subtask{number}",
            query,
            "- `server.py`",
            rubric,
            tuple(
                Check(name, weight, required, part(label, work, name), kind="http")
                for name, (weight, required) in parts.items()
            ),
        )
        for number, ((query, rubric), (label, work, parts)) in enumerate(
            zip(_QUERIES, PARTS, strict=True), 1
        )
    )
    return Scenario("backend/ledger", "Backend", _BRIEF, tasks, _build, oracle=_solve)
