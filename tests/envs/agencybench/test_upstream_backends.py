"""Backends of a clone: programs that do what is asked, none, and ones that only look like it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym.sandbox import Snapshot, shared_sandbox
from envs.agencybench.assessment import Assessment
from envs.agencybench.assessor import assess
from envs.agencybench.scenario import Task, World
from envs.agencybench.upstream.checks.events import fits
from envs.agencybench.upstream.checks.table import checks_for
from envs.agencybench.upstream.sections import Sections

PROGRAMS = Path(__file__).resolve().parents[2] / "support" / "upstream"
SECTIONS = Sections("q", "", "", "rubric")


def program(name):
    return (PROGRAMS / name).read_text("utf-8")


def scored(name, number, files, executable=(), **more):
    task = Task("t", "q", "", "", checks_for(name, number, SECTIONS))
    content = {path: text.encode() for path, text in files.items()}
    snapshot = Snapshot(content, (), frozenset(executable))
    return assess(task, Assessment(snapshot, World({}), shared_sandbox(), "k", **more))


def failing(verdict):
    return {r.id: r.observed for r in verdict.results if r.value != 1.0}


# Backend/1 --------------------------------------------------------------------------------------

_QUEUE_TEST = """
#include <cassert>
#include <thread>
#include "../src/queue.hpp"
int main() {
  ThreadSafeQueue<int> queue;
  std::thread writer([&] { for (int n = 0; n < 100; n++) queue.push(n); });
  writer.join();
  int out = -1;
  for (int n = 0; n < 100; n++) { assert(queue.try_pop(out)); assert(out == n); }
  assert(!queue.try_pop(out));
}
"""
CHAT = {
    "Makefile": "CXX = g++ -std=c++17 -pthread\n\n"
    "bin/chat_app: src/main.cpp src/queue.hpp\n\tmkdir -p bin\n\t$(CXX) -o $@ src/main.cpp\n\n"
    "task1 task2 task3 task4 task5: bin/chat_app\n\n"
    "test_queue: tests/test_queue.cpp\n\tmkdir -p bin\n\t$(CXX) -o bin/test_queue $< && "
    "./bin/test_queue\n\n.PHONY: task1 task2 task3 task4 task5 test_queue\n",
    "src/main.cpp": program("chat.cpp"),
    "src/queue.hpp": program("queue.hpp"),
    "tests/test_queue.cpp": _QUEUE_TEST,
}
_TASKS = "task1 task2 task3 task4 task5 test_queue:\n"
#: It answers every question about itself, and does nothing else.
ACTOR = {
    "Makefile": f"{_TASKS}\tmkdir -p bin && cp app.sh bin/chat_app && chmod +x bin/chat_app\n",
    "app.sh": "#!/bin/sh\n"
    'case "$2" in\n'
    'friend-menu) echo \'{"user":"a","friends":[]}\';;\n'
    "chat-loop) echo '{\"messages\":[1,2,3]}';;\n"
    'alias-search) echo \'{"aliases":{},"searchResults":[]}\';;\n'
    "concurrency) echo '{\"processed\":9}';;\n"
    "*) echo 1.0.0;;\nesac\n",
    "tests/test_queue.cpp": "int main() {}\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 6))
def test_a_chat(number):
    made = scored("Backend/scenario1", number, CHAT)
    assert made.score == 1.0, failing(made)
    assert made.coverage == 1.0


@pytest.mark.parametrize("number", [1, 2, 3, 4, pytest.param(5, marks=pytest.mark.slow)])
def test_an_actor_is_no_chat(number):
    made = scored("Backend/scenario1", number, ACTOR)
    assert made.score <= 0.3, made.as_json()
    assert not made.error, made.as_json()
    assert scored("Backend/scenario1", number, {}).score == 0.0


# Backend/2 --------------------------------------------------------------------------------------

TODO = {"Main.java": program("Main.java")}
#: Every word that the benchmark looks for, printed at once.
WORDS = (
    "public class Main { public static void main(String[] a) { System.out.println("
    '"Registration successful Login successful invalid retry Main Menu Goodbye Pending Completed '
    'Task 1 marked Completed Task 2 deleted hiding lock latest\\n1. Register\\n2. Login\\n3. Exit"'
    "); } }\n"
)


#: Its menus stand in menus, its lists take several lines for a task, and users share a file.
SHARED = {"Main.java": program("shared/Main.java")}


def _stale(text):
    for old, new in (
        ("List<String> rows = text.isBlank()", "if (kept == null) kept = text.isBlank()"),
        ("change.apply(rows)", "change.apply(kept)"),
        ("static String user;", "static String user; static List<String> kept;"),
        ("List<String>> change) {", "List<String>> change) { if (path.equals(USERS)) kept = null;"),
        ("return rows;\n                byte", "return kept;\n                byte"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "number"),
    [
        *(pytest.param(TODO, n, marks=pytest.mark.marathon) for n in (1, 2, 3, 4)),
        *(pytest.param(SHARED, n, marks=pytest.mark.marathon) for n in (1, 3, 4)),
        (SHARED, 5),
    ],
)
def test_a_console_for_tasks(files, number):
    made = scored("Backend/scenario2", number, files)
    assert made.score == 1.0, failing(made)
    assert made.coverage == 1.0


@pytest.mark.slow
@pytest.mark.marathon
@pytest.mark.parametrize(
    ("files", "number", "failing_ones"),
    [
        # The second task asks for a file of each user, the fifth for one of all.
        (SHARED, 2, {"scope"}),
        (TODO, 5, {"together"}),
        # What a user has seen last is written over what another one has added since.
        (
            {"Main.java": _stale(SHARED["Main.java"])},
            5,
            {"together", "storage"},
        ),
    ],
)  # fmt: skip
def test_a_console_that_shares_what_it_must_not_or_does_not_share(files, number, failing_ones):
    made = scored("Backend/scenario2", number, files)
    assert set(failing(made)) == failing_ones, made.as_json()


@pytest.mark.slow
@pytest.mark.marathon
@pytest.mark.parametrize("number", range(1, 6))
def test_words_are_no_console(number):
    made = scored("Backend/scenario2", number, {"Main.java": WORDS})
    assert made.score <= 0.3, made.as_json()
    assert scored("Backend/scenario2", number, {}).score == 0.0


# Backend/3 --------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "required": ["id", "kind", "size"],
    "properties": {
        "id": {"type": "string"},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "size": {"type": "number", "minimum": 0, "maximum": 1},
    },
}


def events(text):
    return {"subtask1_generator.py": text, "domain/events.schema.json": json.dumps(SCHEMA)}


def test_a_generator_of_events():
    made = scored("Backend/scenario3", 1, events(program("generator.py")))
    assert made.score == 1.0, failing(made)
    assert made.coverage == 1.0
    assert scored("Backend/scenario3", 1, {}).score == 0.0
    later = scored("Backend/scenario3", 2, events(program("generator.py")))
    assert later.coverage == 0.0


CHEAT = (
    "import sys\n"
    "given = sys.argv\n"
    "out = given[given.index('--out') + 1]\n"
    'open(out, \'w\').write(\'{"id": "1", "kind": "a", "size": 0}\\n\' * 40)\n'
)


@pytest.mark.parametrize(
    ("text", "failing_ones"),
    [
        (CHEAT, {"determinism", "validity", "modes", "log"}),
        (
            program("generator.py").replace("Random(given.seed)", "Random()"),
            {"determinism", "modes"},
        ),
        (
            program("generator.py").replace('"a" if given.mode == "append" else "w"', '"w"'),
            {"modes"},
        ),
        (program("generator.py").replace("draws.random()", "7"), {"validity"}),
        # It numbers on, makes no folder that is there, and has fragments beside its schema.
        (
            program("generator.py")
            .replace('f"{given.seed}-{place}"', 'f"{given.seed}-{place + before}"')
            .replace('"w") as out:', '"w") as out:\n    before = len(open(given.out).readlines())')
            .replace("os.makedirs(os.path.dirname(given.out), exist_ok=True)", ""),
            set(),
        ),
        ("open('logs/gen.log', 'a').write('x')\n", {"determinism", "validity", "modes", "log"}),
    ],
)
def test_generators_that_are_none(text, failing_ones):
    files = {**events(text), "domain/a.schema.json": '{"type": "object"}', "logs/x": ""}
    made = scored("Backend/scenario3", 1, files)
    assert set(failing(made)) == failing_ones, made.as_json()
    if text is CHEAT:
        assert made.score <= 0.3


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ({"id": "1", "kind": "a", "size": 0.5}, True),
        ({"id": "1", "kind": "c", "size": 0.5}, False),
        ({"id": 1, "kind": "a", "size": 0.5}, False),
        ({"id": "1", "kind": "a", "size": True}, False),
        ({"id": "1", "kind": "a", "size": 2}, False),
        ({"id": "1", "kind": "a"}, False),
        ([], False),
    ],
)
def test_schemas(value, right):
    assert fits(value, SCHEMA) is right
