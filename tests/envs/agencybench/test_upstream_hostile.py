"""Whatever a workspace holds, checks by rule give a value and a reason, and never an error."""

from __future__ import annotations

import json

import pytest

from agentgym.sandbox import Snapshot, shared_sandbox
from envs.agencybench.assessment import Assessment, inside
from envs.agencybench.assessor import assess
from envs.agencybench.scenario import Check, Finding, State, Task, World
from envs.agencybench.upstream.checks.forms import guarded
from envs.agencybench.upstream.checks.table import checks_for
from envs.agencybench.upstream.policies import SCENARIOS
from envs.agencybench.upstream.sections import Sections

QUESTION = "How should agents plan, and how should dialogue systems and world models evolve?"
SECTIONS = Sections(f'Guiding question:\n\n{QUESTION}\n"id": 46', "", "", "")
#: Files that the tasks name.
NAMES = (
    *(f"subtask{n}.md" for n in range(1, 5)), "summary.json", "subtask_summary.json",
    "subtask1_findings.md", "subtask1_answer.txt", "subtask2_analysis.md", "subtask2_evidence.csv",
    "subtask3_memo.md", "subtask3_sources.txt", "subtask4_summary.md", "subtask4_metrics.json",
    "subtask5_summary.csv", "subtask5_overview.md", "workspace/web_info.json",
    "workspace/ResearchSystem_ChatVsAgent.json", "data/context_brief.md",
    *(f"data/search_data_{n}.json" for n in (1, 2, 3)), "data/validation_report.md",
    "datascripts/fetch_script.py", "README_conscious.md", "outputs/main.py", "outputs/summary.json",
    *(f"outputs/{family}/1/result.json"
      for family in ("graph_connectivity", "graph_maxflow", "math_convexity", "geometry")),
    "contrib/qdrant_agent.py", "setup.py", ".github/workflows/contrib-tests.yml",
    "equation.py", "workspace/equation.py", "workspace/subtask1_result.json",
    *(f"docs/subtask{n}_rationale.md" for n in range(1, 6)),
    *(f"logs/subtask{n}_evaluate.txt" for n in range(1, 6)),
    "subtask1_generator.py", "domain/events.schema.json",
    *(f"app/{name}.py" for name in (
        "main", "settings", "db/mongo", "webhooks/github", "sessions/service", "github/cli",
        "logs/db_logger", "sandbox/docker_manager", "limits/concurrency")),
)  # fmt: skip
GOLD = {
    "names": ["t", "A"], "train": [[1.0, 0.0, 1.0], [2.0, 1.0, 1.0]], "test": [[1.0, 0.0, 1.0]],
    "ood": [[1.0, 0.0, 1.0]], "graph_connectivity": {"1": {"label": False}},
    "graph_maxflow": {"1": {"label": 3}}, "math_convexity": {"1": {"label": "convex"}},
    "geometry": {"1": {"answer": "A"}},
}  # fmt: skip
ENTRY = {
    "title": "T", "source_type": "paper", "publisher": "P", "published_at": "2024-01-01",
    "url": "http://[x", "summary": "One of them says it so at some length. Two of them do not agree"
    " at all with that.", "key_points": ["a"], "notes_for_report": "n", "id": 46,
    "question": QUESTION, "response": f"x [{'9' * 5000}]\n\nReferences\n[1] y",
}  # fmt: skip
#: Members of what the tasks ask for.
MEMBERS = (
    "company", "submitted_player", "subtasks", "subtask1", "subtask2", "subtask3", "subtask4",
    "verification_notes", "task_results", "total_problems", "answer", "task_type", "confidence",
    "solution_steps", "reasoning", "problem_id", "completed_problems", "average_confidence",
    "mode", "total_llm_calls", "loss", "equation", "comment", "type", "properties", "required",
    "enum", "items",
)  # fmt: skip
VALUES = (None, True, 5, -1.5, 10**400, "x", [], ["x"], {}, {"a": 1}, [[]], [{}])
HOSTILE = {
    "nothing": b"",
    "no text": b"\xff\xfe\x00\xd8",
    "a mark of order": b"\xef\xbb\xbf{}",
    "zeros": b"\0" * 100,
    "half a value": b'{"a": [1, ',
    "nested lists": b"[" * 100_000,
    "nested in bounds": b"[" * 900 + b"]" * 900,
    "nested objects": b'{"a":' * 900 + b"1" + b"}" * 900,
    "nested calls": b"-" * 100_000 + b"1",
    "nested sums": b"1" + b"+1" * 100_000,
    "no number": b"NaN",
    "no finite number": b"[-Infinity, Infinity, 1e999]",
    "a number of many digits": b"9" * 5000,
    "lone surrogates": b'["\\ud800", {"company": "\\udfff"}]',
    "ends of lines": b'"a",\r\n"b\r"\r\r\n',
    "an open quote": b'company,primary_source\n"' + b"x" * 200_000,
    "lists of lists": json.dumps([[[]] * 6] * 6).encode(),
    "a text": b'"text"',
    "a sentence": b"A sentence and nothing else.\n",
    "sources amiss": json.dumps([ENTRY] * 6).encode(),
    "a report amiss": json.dumps([ENTRY]).encode(),
    **{
        f"members that are {value!r:.20}": json.dumps(dict.fromkeys(MEMBERS, value)).encode()
        for value in VALUES
    },
}  # fmt: skip
RUN_NOTHING = {"Backend/scenario1", "Backend/scenario2", "MCP/scenario1"}


class NoSandbox:
    """Programs end at once and tell nothing, as one does that was killed."""

    def run(self, code, **more):
        from agentgym.sandbox import Result, Status

        return Result(status=Status.TIMEOUT, message="ended for the test")


def scored(name, number, files, folders=(), skipped=None):
    task = Task("t", "q", "", "", checks_for(name, number, SECTIONS))
    samples = {f"data/test_data_{n}.json": b'{"b": 1}' for n in (1, 2, 3)}
    world = World(samples, GOLD)
    snapshot = Snapshot(files, tuple(folders), skipped=skipped or {})
    return assess(task, Assessment(snapshot, world, NoSandbox(), "k"))


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - RUN_NOTHING))
def test_hostile_files(name):
    for kind, content in HOSTILE.items():
        files = dict.fromkeys(NAMES, content)
        for number in range(1, SCENARIOS[name].tasks + 1):
            made = scored(name, number, files)
            told = (kind, number, made.as_json())
            assert not made.error, told
            assert made.score is None or made.score <= 0.3, told
            assert all(r.observed for r in made.results if r.state is State.FAIL), told
            json.dumps(made.as_json()).encode()


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - RUN_NOTHING))
def test_what_stands_in_the_place_of_files(name):
    """A folder, a link, a pipe: none of them is a file to a check."""
    folders, skipped = tuple(NAMES), dict.fromkeys(NAMES, "a pipe")
    for number in range(1, SCENARIOS[name].tasks + 1):
        for files in ({}, {f"{path}/x": b"x" for path in NAMES}):
            made = scored(name, number, files, folders, skipped)
            assert not made.error, made.as_json()
            assert made.score is None or made.score <= 0.05, made.as_json()


@pytest.mark.parametrize("fault", [TypeError, KeyError, OverflowError, AttributeError, ValueError])
def test_only_a_judge_may_break_a_check(fault):
    def run(assessment):
        raise fault("x")

    def state(check):
        task = Task("t", "q", "", "", (guarded(check),))
        return assess(task, Assessment(Snapshot({}), World({}), None, "k")).results[0].state

    assert state(Check("a", 1.0, "r", run)) is State.FAIL
    assert state(Check("a", 1.0, "r", run, kind="judge")) is State.ERROR
    assert state(Check("a", 1.0, "r", lambda _: Finding(1.0))) is State.PASS


# What programs of the judge meet in the sandbox --------------------------------------------------

#: A program that leaves what cannot be read where the judge looks, and says its version.
SPITE = {
    "Makefile": "task1 task2 task3 task4 task5 test_queue:\n"
    "\tmkdir -p bin && cp app.sh bin/chat_app && chmod +x bin/chat_app\n",
    "app.sh": "#!/bin/sh\nmkdir -p data logs\necho x > data/users.json; echo x > logs/gen.log\n"
    "chmod 000 data/users.json logs/gen.log; mkfifo data/pipe; ln -s /etc/passwd data/link\n"
    "echo 1.0.0\n",
    "subtask1_generator.py": "import os\nos.system('sh app.sh')\n",
    "domain/schema.json": "{}",
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"data": "a file"},
        {"logs": "a file"},
        {"data/scripts": "a file"},
        {"data/scripts/bot_replies.json/x": "a folder", "data/b.jsonl/x": "a folder"},
        {"src/queue.hpp": b"// \xe9\nclass ThreadSafeQueue { int front() { return q.front(); } };"},
    ],
)
@pytest.mark.parametrize(
    ("name", "number"),
    [("Backend/scenario1", 1), ("Backend/scenario1", 3), ("Backend/scenario3", 1)],
)
def test_what_stands_in_the_way_of_the_judge(name, number, more):
    content = {
        path: text if isinstance(text, bytes) else text.encode()
        for path, text in {**SPITE, **more}.items()
    }
    task = Task("t", "q", "", "", checks_for(name, number, SECTIONS))
    made = assess(task, Assessment(Snapshot(content), World({}), shared_sandbox(), "k"))
    assert not made.error, made.as_json()
    assert made.score <= 0.3, made.as_json()


def test_steps_of_a_service_in_a_workspace_of_folders():
    """Where the judge puts its files stand folders, and an answer is nested as deeply as it can."""
    nested = "[" * 940 + "]" * 940
    program = f"for line in __import__('sys').stdin: print('{nested}', flush=True)"
    scene = {
        "steps": [["start"]], "env": {}, "path": "/tmp/tools", "read": ["/box/.calls", "/box/x"],
        "files": {".env": ["A=b\n", 0o600], "/tmp/tools/gh": ["", 0o755], "/box/.calls": ["c", 0]},
    }  # fmt: skip
    payload = {"program": program, "scenes": [scene], "seconds": 20, "start": 20}
    content = {".env/x": b"", ".calls/y/z": b"", "x/y": b""}
    looked = Assessment(Snapshot(content), World({}), shared_sandbox(), "k")

    def run(assessment):
        assessment.probe(inside("inside/places", "inside/scenes"), payload)
        return Finding(1.0)

    task = Task("t", "q", "", "", (guarded(Check("a", 1.0, "r", run)),))
    assert not assess(task, looked).error
    scene["steps"] = []
    assert looked.probe(inside("inside/places", "inside/scenes"), payload) == [[]]
    scene["files"]["/box/.calls"][1] = 0o644
    told = looked.probe(inside("inside/places", "inside/scenes"), payload)
    assert told == [[{"value": "c"}]]


def test_faults_are_put_into_sources_that_are_no_text():
    steps = [
        ["swap", ["a.hpp", "none.hpp"], ".front()", ".back()"],
        ["run", ["cat", "a.hpp"], "", 9],
    ]
    content = {"a.hpp": b"// \xe9\r\nq.front(); r.front();"}
    looked = Assessment(Snapshot(content), World({}), shared_sandbox(), "k")
    told = looked.probe(inside("inside/places", "inside/console"), steps)
    assert told == [2, [0, "// \ufffd\r\nq.back(); r.back();"]]
