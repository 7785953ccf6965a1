"""backend/ledger: the oracle, doing nothing, and services that only seem to keep books."""

from __future__ import annotations

import json

import pytest
from agency_world import score, solution, world_of

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
