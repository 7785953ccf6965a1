"""backend/ledger: the oracle, doing nothing, and services that only seem to keep books."""

from __future__ import annotations

import json

import pytest
from agency_world import score, solution, world_of
from ledger_services import ASYNCIO, DAEMON, FORGETFUL_FOLDER, SQLITE, odd

from agentgym.sandbox import shared_sandbox

ID = "backend/ledger"
TASKS = range(4)


@pytest.fixture(scope="module")
def sandbox():
    return shared_sandbox()


def server(**changes):
    text = solution(ID, world_of(ID), 0)["server.py"].decode()
    for old, new in changes.pop("replace", ()):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return {"server.py": text}


@pytest.mark.parametrize("task", TASKS)
def test_the_oracle_is_right_and_doing_nothing_is_worth_nothing(sandbox, task):
    world = world_of(ID)
    made = score(ID, world, task, server(), sandbox=sandbox)
    assert made.score == 1.0, made.as_json()
    idle = score(ID, world, task, {}, sandbox=sandbox)
    assert (idle.score, idle.error) == (0.0, False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_other_seeds(sandbox, seed):
    for task in TASKS:
        made = score(ID, world_of(ID, seed), task, server(), seed=seed, sandbox=sandbox)
        assert made.score == 1.0, made.as_json()


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_same_workspace_scores_the_same_thrice(sandbox, task):
    made = {
        json.dumps(score(ID, world_of(ID), task, server(), sandbox=sandbox).as_json())
        for _ in range(3)
    }
    assert len(made) == 1


STATIC = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
class H(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200)
    def do_POST(self):
        self.answer(201)
    def answer(self, status):
        body = b'{"status": "ok", "id": "a1", "name": "x", "balance": 0, "error": "", "transfers": [], "balances": {}}'
        self.send_response(status); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
HTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""  # noqa: E501
# Says yes to everything with what it was sent, and keeps nothing.
ECHO = """
import itertools, json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
count = itertools.count()
class H(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, {"status": "ok"} if self.path == "/health" else [])
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(201, {**body, "id": f"x{next(count)}", "balance": body.get("opening")})
    def answer(self, status, value):
        self.send_response(status); self.end_headers(); self.wfile.write(json.dumps(value).encode())
    def log_message(self, *a): pass
ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""
DIES = "raise SystemExit(1)\n"


def test_cheats(sandbox):
    world = world_of(ID)
    for text in (STATIC, ECHO, DIES):
        for task in TASKS:
            made = score(ID, world, task, {"server.py": text}, sandbox=sandbox)
            assert made.score <= 0.3
            assert not made.error
    # Accounts stand; transfers are answered as if they took place.
    still = [(f'        self.accounts[entry["{end}"]]["balance"] {sign}= entry["amount"]\n', "")
             for end, sign in (("from", "-"), ("to", "+"))]  # fmt: skip
    scores = [score(ID, world, t, server(replace=still), sandbox=sandbox).score for t in (1, 2, 3)]
    assert scores == [pytest.approx(0.15), 0.0, 0.0]


def test_books_that_are_not_kept_are_found_out(sandbox):
    world = world_of(ID)
    # In memory alone.
    volatile = server(
        replace=[("        self.journal.flush()\n        os.fsync(self.journal.fileno())\n", "")]
    )
    volatile["server.py"] = volatile["server.py"].replace(
        '        self.journal.write(json.dumps(entry).encode() + b"\\n")\n', ""
    )
    assert score(ID, world, 1, volatile, sandbox=sandbox).score == 1.0
    assert score(ID, world, 2, volatile, sandbox=sandbox).score == 0.0
    # Keys are not looked up.
    twice = server(replace=[("known = self.keys.get(key)", "known = None")])
    values = {r.id: r.value for r in score(ID, world, 1, twice, sandbox=sandbox).results}
    assert values["moved"] == 1.0
    assert values["once"] <= 0.2
    # A torn line is not dropped.
    torn = server(replace=[("        self.journal.truncate(good)\n", "")])
    values = {r.id: r.value for r in score(ID, world, 2, torn, sandbox=sandbox).results}
    assert (values["kept"], values["torn"]) == (1.0, 0.5)


# Other ways ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [ASYNCIO, SQLITE], ids=["asyncio", "sqlite"])
def test_right_services_of_another_make(sandbox, text):
    world = world_of(ID)
    # Of the agent's own trials.
    left = {"data/journal.jsonl": '{"t": "open", "id": "x", "name": "old", "opening": 5}\n{"t'}
    for task in TASKS:
        made = score(ID, world, task, {"server.py": text, **left}, sandbox=sandbox)
        assert made.score == 1.0, made.as_json()


def test_data_of_the_agents_own_trials_does_no_harm(sandbox):
    text = json.dumps({"kind": "account", "id": "a1", "name": "mine", "balance": 1}) + "\n"
    files = server() | {"data/journal.jsonl": text}
    made = score(ID, world_of(ID), 0, files, sandbox=sandbox)
    assert made.score == 1.0, made.as_json()


def test_a_hidden_process_does_not_survive_the_kill(sandbox):
    """Durability is not had by hiding from the kill."""
    world = world_of(ID)
    inner = server()["server.py"].replace(
        '        self.journal.write(json.dumps(entry).encode() + b"\\n")\n', ""
    )
    files = {"server.py": DAEMON, "inner.py": inner}
    assert score(ID, world, 1, files, sandbox=sandbox).score == 1.0
    made = score(ID, world, 2, files, sandbox=sandbox)
    assert (made.score, made.error) == (0.0, False), made.as_json()


def test_what_lies_elsewhere_is_not_kept_for_the_folder(sandbox):
    made = score(ID, world_of(ID), 2, server(replace=[FORGETFUL_FOLDER]), sandbox=sandbox)
    assert (made.score, made.error) == (0.0, False)


ODD = ['[1, "x", {}]', '"text"', '{"id": [1], "balance": "5"}', '{"id": "\\ud800/../" * 9}',
       '[{"id": "a", "balance": None}, 5]', "None", '{"transfers": [{"key": []}], "balances": []}',
       '{"id": {"a": 1}, "balance": 1e400, "name": None}']  # fmt: skip


@pytest.mark.parametrize("value", ODD)
def test_odd_answers_are_no_errors_of_the_assessor(sandbox, value):
    for task in TASKS:
        made = score(ID, world_of(ID), task, {"server.py": odd(value)}, sandbox=sandbox)
        assert (made.error, made.score) == (False, 0.0), made.as_json()


def test_a_service_that_takes_all_processes_is_no_error_of_the_assessor(sandbox):
    text = ODD_FORKS + server()["server.py"]
    for task in (0, 2):
        made = score(ID, world_of(ID), task, {"server.py": text}, sandbox=sandbox)
        assert (made.error, made.score < 0.3) == (False, True), made.as_json()


ODD_FORKS = """
import os, threading, time
for _ in range(400):
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
    except OSError:
        break
"""
