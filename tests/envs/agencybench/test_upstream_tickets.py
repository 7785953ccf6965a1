"""MCP/1 on the tracker that stands in for GitHub."""

from __future__ import annotations

import pytest

from agentgym.sandbox import Snapshot
from envs.agencybench.assessment import Assessment
from envs.agencybench.assessor import assess
from envs.agencybench.scenario import Task, World
from envs.agencybench.upstream.checks.table import checks_for
from envs.agencybench.upstream.sections import Sections
from envs.agencybench.upstream.tracker import tracker

BRANCH, PATH = "config/issue-templates", ".github/ISSUE_TEMPLATE/bug_report.md"
TEMPLATE = """---
name: Bug Report
about: Create a report to help us improve
title: '[BUG] '
labels: bug
assignees: ''
---

Please search for existing issues first.

## Describe the Bug

## Reproduction Steps

## Expected Behavior

## Environment
"""
ISSUE = {
    "title": "Setup standard bug report template for process improvement",
    "body": "## Context\nissue template\n\n## Goals\nstandardization\n\n## Expected Outcome\n"
    "bug tracking\n",
    "labels": ["triage", "meta"],
}
PULL = {
    "title": "Add structured bug report template (configuration)",
    "body": "## Description\nFields.\n\nResolves #2\n\n## Verification\n"
    "The raw markdown is in the comments of the issue.\n",
    "head": BRANCH,
    "base": "main",
}
STEPS = [
    [("create_issue", ISSUE)],
    [("create_branch", {"name": BRANCH, "source": "main"})],
    [("write_file", {"branch": BRANCH, "path": PATH, "content": TEMPLATE})],
    [
        ("set_labels", {"number": 2, "labels": ["in-progress", "meta"]}),
        ("add_comment", {"number": 2, "body": f"````markdown\n{TEMPLATE}````"}),
    ],
    [
        ("create_pull_request", PULL),
        ("label_pull_request", {"number": 1, "labels": ["configuration", "dependencies"]}),
    ],
]


def played(*calls):
    service = tracker()
    for tool, arguments in calls:
        service.call("mcp_call", {"server": "tracker", "tool": tool, "arguments": arguments})
    return service


def scored(number, service):
    task = Task(
        "t", "q", "", "", checks_for("MCP/scenario1", number, Sections("q", "", "", "free"))
    )
    return assess(task, Assessment(Snapshot({}), World({}, service=service), None, "k"))


def test_all_five_tasks():
    done = []
    for number, steps in enumerate(STEPS, 1):
        done += steps
        made = scored(number, played(*done))
        assert (made.score, made.coverage) == (1.0, 1.0), made.as_json()
    whole = played(*done)
    assert [scored(n, whole).results[0].value for n in (1, 2, 3, 4, 5)] == [1.0] * 5


def test_sections_may_have_headings_of_their_own():
    body = ISSUE["body"].replace("## Goals\n", "## Goals\n\n### First\n\n")
    assert scored(1, played(("create_issue", {**ISSUE, "body": body}))).score == 1.0
    body = ISSUE["body"].replace(
        "## Goals\nstandardization\n", "standardization\n## Goals\n### First\n"
    )
    assert scored(1, played(("create_issue", {**ISSUE, "body": body}))).score == 0.0
    done = [call for steps in STEPS[:4] for call in steps]
    pull = {
        **PULL,
        "body": PULL["body"].replace("Resolves", "resolves").replace("Fields.", "### A\nB"),
    }
    assert scored(5, played(*done, ("create_pull_request", pull), STEPS[4][1])).score == 1.0


def test_nothing_done_is_worth_nothing():
    assert [scored(n, played()).score for n in range(1, 6)] == [0.0] * 5


@pytest.mark.parametrize(
    ("number", "calls"),
    [
        (1, [("create_issue", {**ISSUE, "labels": ["meta"]})]),
        (1, [("create_issue", {**ISSUE, "body": "issue template standardization bug tracking"})]),
        (1, [("create_issue", {**ISSUE, "title": "process improvement"})]),
        (2, [("create_branch", {"name": "config/issue-template", "source": "main"})]),
        (3, [*STEPS[1], ("write_file", {"branch": BRANCH, "path": PATH, "content": TEMPLATE[4:]})]),
        (3, [("write_file", {"branch": "main", "path": PATH, "content": TEMPLATE})]),
        (4, [*STEPS[0], *STEPS[1], *STEPS[2], STEPS[3][0]]),
        (
            4,
            [
                *STEPS[0],
                *STEPS[1],
                *STEPS[2],
                STEPS[3][0],
                ("add_comment", {"number": 2, "body": f"````\n{TEMPLATE[:-5]}````"}),
            ],
        ),
        (5, [*STEPS[0], *STEPS[1], *STEPS[2], STEPS[4][0]]),
    ],
)
def test_what_only_looks_done(number, calls):
    assert scored(number, played(*calls)).score == 0.0


def test_what_was_not_asked_for():
    more = [("close_issue", {"number": 1})]
    assert scored(2, played(*STEPS[1], *more)).score == pytest.approx(0.9)
    other = [("set_labels", {"number": 1, "labels": ["meta"]})]
    calls = [call for steps in STEPS[:4] for call in steps]
    assert scored(4, played(*calls, *other)).score == pytest.approx(0.9)


def test_the_tracker_answers_bad_calls():
    service = tracker()
    listed = service.call("mcp_list_tools", {})["tracker"]
    assert {"create_issue", "list_issues", "label_pull_request"} <= {t["name"] for t in listed}
    for tool, arguments, match in (
        ("create_issue", {"title": "a"}, "takes title, body, labels"),
        ("create_issue", {"title": "a", "body": "b", "labels": ["x"]}, "unknown labels"),
        ("create_issue", {"title": "a", "body": "b", "labels": "x"}, "must be of type array"),
        ("create_issue", {"title": " ", "body": "b", "labels": []}, "cannot be opened"),
        ("label_pull_request", {"number": 1, "labels": []}, "no pull request 1"),
        ("fly", {}, "unknown tool"),
    ):
        with pytest.raises(ValueError, match=match):
            service.call("mcp_call", {"server": "tracker", "tool": tool, "arguments": arguments})
    with pytest.raises(ValueError, match="no server 'github'"):
        service.call("mcp_call", {"server": "github", "tool": "list_issues"})
    with pytest.raises(ValueError, match="must be an object"):
        service.call("mcp_call", {"server": "tracker", "tool": "x", "arguments": [1]})


def test_the_state_is_saved_and_put_back():
    service = played(*STEPS[0])
    state = service.save()
    service.call(
        "mcp_call", {"server": "tracker", "tool": "close_issue", "arguments": {"number": 2}}
    )
    service.restore(state)
    assert service.desk.issues[2]["state"] == "open"
    assert scored(1, service).score == 1.0
