"""MCP/1: an issue, a branch, a file, labels with a comment, a pull request.

Each task is worth what the benchmark's predicate says, and that nothing else was changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from envs.agencybench.assessment import Assessment, Unmet
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding
from envs.agencybench.upstream.tracker import Tracker

__all__ = ["checks"]

_BRANCH = "config/issue-templates"
_PATH = ".github/ISSUE_TEMPLATE/bug_report.md"
_FRONT = (
    "name: Bug Report",
    "about: Create a report to help us improve",
    "title: '[BUG] '",
    "labels: bug",
    "assignees: ''",
)
_TITLE = ("setup standard bug report template", "process improvement")
#: Tools that each task may use to change something, on what it is about.
_ALLOWED = {
    1: {"create_issue"},
    2: {"create_branch"},
    3: {"write_file"},
    4: {"set_labels", "add_comment"},
    5: {"create_pull_request", "label_pull_request"},
}


def _desk(assessment: Assessment) -> Tracker:
    service: Any = assessment.world.service
    desk = service.desk
    assert isinstance(desk, Tracker)
    return desk


def _headings(text: str, *wanted: str) -> None:
    lines = [line.strip() for line in text.splitlines()]
    absent = [heading for heading in wanted if heading not in lines]
    need(not absent, f"headings are missing: {', '.join(absent)}")
    for heading in wanted:
        under: list[str] = []
        for line in lines[lines.index(heading) + 1 :]:
            if re.match(r"##?\s", line):
                break
            under += [line] if line and not line.startswith("#") else []
        need(bool(under), f"nothing under {heading}")


def _tracking(assessment: Assessment) -> tuple[int, dict[str, Any]]:
    for number, issue in _desk(assessment).issues.items():
        if all(part in issue["title"].casefold() for part in _TITLE):
            return number, issue
    raise Unmet("there is no tracking issue with this title")


def _opened(assessment: Assessment) -> None:
    desk = _desk(assessment)
    number, issue = _tracking(assessment)
    body = issue["body"]
    _headings(body, "## Context", "## Goals", "## Expected Outcome")
    for word in ("issue template", "standardization", "bug tracking"):
        need(word in body.casefold(), f"the body does not mention {word!r}")
    first = next(
        (given for tool, given in desk.changes if tool == "create_issue" and given["body"] == body),
        None,
    )
    # What later tasks do to the labels must not fail this one.
    labels = set(first["labels"]) if first else set(issue["labels"])
    need({"triage", "meta"} <= labels, f"issue {number} has not the labels asked for")


def _branched(assessment: Assessment) -> None:
    desk = _desk(assessment)
    need(_BRANCH in desk.branches, f"there is no branch {_BRANCH}")
    files, main = desk.branches[_BRANCH], desk.branches["main"]
    need(all(files.get(path) == text for path, text in main.items()), "it does not start at main")


def _template(assessment: Assessment) -> str:
    files = _desk(assessment).branches.get(_BRANCH, {})
    need(_PATH in files, f"{_PATH} is not on {_BRANCH}")
    return files[_PATH]


def _filed(assessment: Assessment) -> None:
    text = _template(assessment)
    lines = text.splitlines()
    need(bool(lines) and lines[0].strip() == "---", "it has no front matter")
    end = next((n for n, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    need(end is not None, "the front matter does not end")
    front = [line.rstrip() for line in lines[1:end] if line.strip()]
    need(tuple(front) == _FRONT, "the front matter is not the one asked for")
    body = "\n".join(lines[(end or 0) + 1 :])
    headings = (
        "## Describe the Bug", "## Reproduction Steps", "## Expected Behavior", "## Environment",
    )  # fmt: skip
    absent = [heading for heading in headings if heading not in body]
    need(not absent, f"headings are missing: {', '.join(absent)}")
    low = body.casefold()
    told = "search" in low and re.search(r"(existing|similar|duplicate)\w*\W+\w*\W*issue", low)
    need(bool(told), "there is no reminder to search for existing issues")


def _updated(assessment: Assessment) -> None:
    _, issue = _tracking(assessment)
    labels = set(issue["labels"])
    need({"in-progress", "meta"} <= labels and "triage" not in labels, f"labels are {labels}")
    raw = _template(assessment).strip()
    for comment in issue["comments"]:
        for block in re.findall(r"(`{3,}|~{3,})[^\n]*\n(.*?)\n\1", comment, re.DOTALL):
            if block[1].strip() == raw:
                return
    raise Unmet("no comment holds the file's raw markdown in a fenced block")


def _pulled(assessment: Assessment) -> None:
    number, _ = _tracking(assessment)
    pulls = [
        pull
        for pull in _desk(assessment).pulls
        if pull["head"] == _BRANCH and pull["base"] == "main"
    ]
    need(bool(pulls), f"there is no pull request from {_BRANCH} to main")
    pull = pulls[-1]
    for part in ("add structured bug report template", "configuration"):
        need(part in pull["title"].casefold(), f"the title lacks {part!r}")
    body = pull["body"]
    _headings(body, "## Description", "## Verification")
    told = re.search(rf"(?i)\bresolves #{number}\b", body)
    need(told is not None, "it does not resolve the issue")
    verification = body.split("## Verification", 1)[1].casefold()
    need("raw markdown" in verification and "comment" in verification, "the verification is amiss")
    labels = set(pull.get("labels", ()))
    need({"configuration", "dependencies"} <= labels, f"labels are {sorted(labels)}")


_PREDICATES: dict[int, tuple[str, Callable[[Assessment], None]]] = {
    1: ("the tracking issue is as asked for", _opened),
    2: ("the branch is there and starts at main", _branched),
    3: ("the template is as asked for", _filed),
    4: ("labels and comment of the issue are as asked for", _updated),
    5: ("the pull request is as asked for", _pulled),
}


def checks(number: int) -> tuple[Check, ...]:
    """The checks of task ``number``, from 1."""
    required, predicate = _PREDICATES[number]

    def run(assessment: Assessment) -> Finding:
        predicate(assessment)
        return Finding(1.0)

    def tidy(assessment: Assessment) -> Finding:
        predicate(assessment)
        allowed = set().union(*(_ALLOWED[n] for n in range(1, number + 1)))
        tracking, _ = _tracking(assessment) if number != 2 else (None, None)
        for tool, given in _desk(assessment).changes:
            need(tool in allowed, f"{tool} was not asked for")
            elsewhere = tool in ("set_labels", "add_comment") and given["number"] != tracking
            elsewhere |= tool == "write_file" and (given["branch"], given["path"]) != (
                _BRANCH,
                _PATH,
            )
            elsewhere |= tool == "create_branch" and given["name"] != _BRANCH
            need(not elsewhere, f"{tool} was used on something else")
        return Finding(1.0)

    return (
        Check("predicate", 0.9, required, run, kind="mcp_state"),
        Check("tidy", 0.1, "nothing else is changed", tidy, kind="mcp_state"),
    )
