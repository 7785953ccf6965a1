"""mcp/issuedesk as a scenario."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentgym.dice import Dice
from envs.agencybench.assessment import Assessment, Unmet
from envs.agencybench.scenario import Check, Finding, Scenario, Task, World
from envs.agencybench.scenarios.issuedesk.desk import Desk
from envs.agencybench.scenarios.issuedesk.world import BRANCH, PATH, Plan, Tools, draw

__all__ = ["scenario"]

#: Calls that are plenty for all tasks.
MOST_CALLS = 120

_BRIEF = f"""\
The server `issuedesk` holds issues, branches with files, and pull requests of a project. \
`mcp_list_tools` lists its tools, `mcp_call` calls one. Change only what a task asks for: every \
change is logged, and deleting undoes none. Stay below {MOST_CALLS} calls of the server."""

_QUERIES = (
    (
        "Triage the inbox: every open issue without labels, by the rules in `docs/triage.md` on "
        "branch `main`.",
        "- labels and assignee of each such issue",
        "- labels, all of them right and no others: 0.5\n- assignee: 0.3\n"
        "- nothing else was changed: 0.2",
    ),
    (
        f"The newest issue tracks the issue forms. Create the branch `{BRANCH}` from `main`, "
        f"and on "
        "it the file that the issue asks for.",
        f"- branch `{BRANCH}`\n- `{PATH}` on it",
        "- the branch, with the files of `main` as they are: 0.2\n- the front matter, between two "
        "lines `---`, to the letter: 0.4\n- the headings, in order: 0.2\n"
        "- nothing else was changed: 0.2",
    ),
    (
        "On the tracking issue replace the label `triage` by `in-progress`, and comment with the "
        f"whole raw content of `{PATH}` as it stands on the branch, between two lines of three "
        "back-ticks.",
        "- labels of the tracking issue\n- one comment",
        "- labels: 0.2\n- the quoted content, to the letter, with the front matter that the issue "
        "asks for: 0.6\n- nothing else was changed: 0.2",
    ),
    (
        f"Open a pull request of `{BRANCH}` into `main`, as `docs/pull_requests.md` says.",
        "- one pull request",
        "- head and base: 0.2\n- title: 0.2\n- link to the issue: 0.2\n- checklist: 0.2\n"
        "- nothing else was changed: 0.2",
    ),
)

_Run = Callable[[Assessment], Finding]


def _desk(assessment: Assessment) -> tuple[Desk, Plan]:
    service = assessment.world.service
    assert isinstance(service, Tools)
    return service.desk, assessment.world.gold


def _share(good: int, total: int, told: str = "are not right") -> Finding:
    return Finding(good / total, f"{total - good} of {total} {told}" if good < total else "")


def _labels(assessment: Assessment) -> Finding:
    desk, plan = _desk(assessment)
    right = [desk.issues[n]["labels"] == list(labels) for n, (labels, _) in plan.triage.items()]
    return _share(sum(right), len(right))


def _assignees(assessment: Assessment) -> Finding:
    desk, plan = _desk(assessment)
    right = [desk.issues[n]["assignee"] == who for n, (_, who) in plan.triage.items()]
    return _share(sum(right), len(right))


def _file(desk: Desk) -> str:
    if BRANCH not in desk.branches:
        raise Unmet(f"there is no branch {BRANCH}")
    if PATH not in desk.branches[BRANCH]:
        raise Unmet(f"there is no {PATH} on {BRANCH}")
    return desk.branches[BRANCH][PATH]


def _branch(assessment: Assessment) -> Finding:
    desk, _ = _desk(assessment)
    if BRANCH not in desk.branches:
        raise Unmet(f"there is no branch {BRANCH}")
    main = desk.branches.get("main", {})
    if any(desk.branches[BRANCH].get(path) != text for path, text in main.items()):
        raise Unmet("files of main differ on the branch")
    return Finding(1.0)


def _front(assessment: Assessment) -> Finding:
    desk, plan = _desk(assessment)
    lines = _file(desk).split("\n")
    due = ["---", *plan.front, "---"]
    if lines[: len(due)] != due:
        raise Unmet("the front matter differs from what the issue asks for")
    return Finding(1.0)


def _headings(assessment: Assessment) -> Finding:
    desk, plan = _desk(assessment)
    found = [line.strip() for line in _file(desk).split("\n") if line.startswith("#")]
    if found != list(plan.headings):
        raise Unmet("the headings are not those asked for, in order")
    return Finding(1.0)


def _tracked(assessment: Assessment) -> Finding:
    desk, plan = _desk(assessment)
    labels = desk.issues[plan.tracking]["labels"]
    if labels != list(plan.labels):
        raise Unmet(f"the tracking issue has the labels {labels}")
    return Finding(1.0)


def _quoted(assessment: Assessment) -> Finding:
    desk, plan = _desk(assessment)
    text = _file(desk)
    _front(assessment)  # or an empty file would be the easiest to quote
    comments = desk.issues[plan.tracking]["comments"]
    if not comments:
        raise Unmet("the tracking issue has no comment")
    # The end of the last line is the file's own, or that before the back-ticks.
    fenced = {f"```\n{text}\n```", f"```\n{text}```" if text.endswith("\n") else ""} - {""}
    if len(comments) > 1 or not any(quote in comments[0] for quote in fenced):
        raise Unmet("the comment does not quote the file to the letter, once")
    return Finding(1.0)


def _pull(part: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        desk, plan = _desk(assessment)
        if len(desk.pulls) != 1:
            raise Unmet(f"there are {len(desk.pulls)} pull requests")
        pull = desk.pulls[0]
        if (pull["head"], pull["base"]) != (BRANCH, "main"):
            raise Unmet("head or base is another branch")
        lines = [line.strip() for line in pull["body"].split("\n") if line.strip()]
        if part == "title" and pull["title"] != plan.title:
            raise Unmet("the title is not as the rules say")
        if part == "link" and (not lines or lines[0] != f"Closes #{plan.tracking}"):
            raise Unmet("the body does not start with the link")
        if part == "checklist":
            ticked = [line for line in lines if line.startswith("- [")]
            if ticked != [f"- [x] {point}" for point in plan.points]:
                raise Unmet("the checklist is not as the rules say")
        return Finding(1.0)

    return run


def _allowed(plan: Plan, tool: str, given: dict[str, Any], task: int) -> bool:
    """Whether a change is one that the tasks up to ``task`` ask for."""
    number = given.get("number")
    if tool in ("set_labels", "set_assignee") and number in plan.triage:
        return True
    if task >= 1 and tool == "create_branch":
        return given == {"name": BRANCH, "source": "main"}
    if task >= 1 and tool == "write_file":
        return (given["branch"], given["path"]) == (BRANCH, PATH)
    if task >= 2 and tool in ("set_labels", "add_comment"):
        return bool(number == plan.tracking)
    return task >= 3 and tool == "create_pull_request"


def _audit(task: int, others: tuple[tuple[float, _Run], ...]) -> _Run:
    def run(assessment: Assessment) -> Finding:
        desk, plan = _desk(assessment)
        strays = [tool for tool, given in desk.changes if not _allowed(plan, tool, given, task)]
        if strays:
            raise Unmet(f"changes that nobody asked for: {', '.join(sorted(set(strays)))}")
        if desk.calls > MOST_CALLS:
            raise Unmet(f"{desk.calls} calls of the server")
        # To change nothing at all is not worth anything.
        earned = 0.0
        for weight, other in others:
            try:
                earned += weight * (other(assessment).value or 0.0)
            except Unmet:
                continue
        return Finding(min(1.0, earned / sum(weight for weight, _ in others)))

    return run


_PARTS: tuple[dict[str, tuple[float, str, _Run]], ...] = (
    {
        "labels": (0.5, "labels by the rules", _labels),
        "assignees": (0.3, "assignees by the rules", _assignees),
    },
    {
        "branch": (0.2, "the branch, with the files of main", _branch),
        "front_matter": (0.4, "the front matter to the letter", _front),
        "headings": (0.2, "the headings in order", _headings),
    },
    {
        "labels": (0.2, "in-progress in place of triage", _tracked),
        "quote": (0.6, "one comment that quotes the file", _quoted),
    },
    {
        "branches": (0.2, "one pull request of the branch into main", _pull("branches")),
        "title": (0.2, "title by the rules", _pull("title")),
        "link": (0.2, "link to the tracking issue", _pull("link")),
        "checklist": (0.2, "checklist by the rules", _pull("checklist")),
    },
)


def _checks(task: int) -> tuple[Check, ...]:
    parts = _PARTS[task]
    others = tuple((weight, run) for weight, _, run in parts.values())
    made = [
        Check(name, w, required, run, kind="mcp_state")
        for name, (w, required, run) in parts.items()
    ]
    audit = Check("audit", 0.2, "nothing else was changed", _audit(task, others), kind="mcp_state")
    return (*made, audit)


def _build(dice: Dice) -> World:
    desk, plan = draw(dice)
    return World({}, plan, Tools(desk))


def _solve(world: World, task: int) -> list[tuple[str, dict[str, Any]]]:
    plan: Plan = world.gold

    def call(tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
        return "mcp_call", {"server": "issuedesk", "tool": tool, "arguments": arguments}

    if task == 0:
        calls = [("mcp_list_tools", {}), call("read_file", branch="main", path="docs/triage.md")]
        for number, (labels, who) in plan.triage.items():
            calls.append(call("set_labels", number=number, labels=list(labels)))
            calls.append(call("set_assignee", number=number, assignee=who))
        return calls
    if task == 1:
        return [
            call("get_issue", number=plan.tracking),
            call("create_branch", name=BRANCH, source="main"),
            call("write_file", branch=BRANCH, path=PATH, content=plan.file),
        ]
    if task == 2:
        quote = f"The form:\n\n```\n{plan.file}```\n"
        return [
            call("set_labels", number=plan.tracking, labels=list(plan.labels)),
            call("add_comment", number=plan.tracking, body=quote),
        ]
    body = "\n".join([f"Closes #{plan.tracking}", "", *(f"- [x] {p}" for p in plan.points)])
    return [
        call("read_file", branch="main", path="docs/pull_requests.md"),
        call("create_pull_request", title=plan.title, body=body, head=BRANCH, base="main"),
    ]


def scenario() -> Scenario:
    """The scenario, ready to be played."""
    tasks = tuple(
        Task(f"subtask{number + 1}", query, deliverables, rubric, _checks(number))
        for number, (query, deliverables, rubric) in enumerate(_QUERIES)
    )
    return Scenario("mcp/issuedesk", "MCP", _BRIEF, tasks, _build, oracle=_solve)
