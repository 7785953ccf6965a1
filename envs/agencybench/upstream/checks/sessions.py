"""Code/8, tasks 4 and 5: sessions of issues, GitHub's command line, and logs."""

from __future__ import annotations

import ast
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from envs.agencybench.assessment import Assessment
from envs.agencybench.browser import need
from envs.agencybench.scenario import Finding
from envs.agencybench.upstream.checks.forms import parsed
from envs.agencybench.upstream.checks.services import (
    answered,
    documents,
    play,
    scene,
    value,
)

__all__ = ["LATER", "signature", "signed", "variables"]

_HOOK = "app/webhooks/github.py"
_ROUTE = "/webhooks/github"
_FIELDS = ("session_id", "repository", "issue_number", "status", "created_at", "updated_at")
#: Stands in for ``gh`` and ``git``: notes what it is called with, and fails where it is told to.
_TOOL = """#!/bin/sh
{ printf '%s' "${0##*/}"; for part in "$@"; do printf '\\037%s' "$part"; done
  printf '\\037TOKEN=%s%s\\036' "$GH_TOKEN" "$GITHUB_TOKEN"; } >> /box/.calls
if [ -e /box/.broken ]; then echo "HTTP 404: Not Found" >&2; exit 1; fi
last=; for part in "$@"; do case "$part" in -*) ;; *) last=$part;; esac; done
case "$*" in
  *clone*) case "$last" in *:*|"") last=${last##*/};; esac; mkdir -p "${last%.git}/.git" ;;
  *--jq*|*" -q "*|rev-parse*) echo 1f0c4a9d2b7e5f8a3c6d1e0b9a8f7c6d5e4b3a21 ;;
  *api*) echo '{"object": {"sha": "1f0c4a9d2b7e5f8a3c6d1e0b9a8f7c6d5e4b3a21"}, "id": 1}' ;;
  *"pr create"*) echo "https://github.com/harbour/pilot/pull/7" ;;
esac
"""


def variables(assessment: Assessment) -> dict[str, str]:
    """The service's environment, with a secret and a database of its own."""
    dice = assessment.dice("environment")
    drawn = f"{dice.between(10**8, 10**9 - 1)}"
    return {
        "GITHUB_TOKEN": f"token-{drawn}",
        "LLM_API_KEY": f"key-{drawn}",
        "LLM_BASE_URL": "http://127.0.0.1:9/v1",
        "MONGODB_URL": f"mongodb://127.0.0.1:27017/agents_{drawn}",
        "WEBHOOK_SECRET": f"secret-{drawn}",
    }


def signed(secret: str, event: str, body: str, signature: str | None = None) -> list[Any]:
    """A step: a request as GitHub sends it; ``signature`` stands in for the right one."""
    right = "sha256=" + hmac.new(secret.encode(), body.encode(), hashlib.sha256).hexdigest()
    headers = {
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": "d",
        "Content-Type": "application/json",
    }
    if signature != "":
        headers["X-Hub-Signature-256"] = right if signature is None else signature
    return ["request", "POST", _ROUTE, headers, body]


def signature(secret: str, body: str, kind: str = "sha256") -> str:
    """What the header of a signed body holds."""
    return f"{kind}=" + hmac.new(secret.encode(), body.encode(), kind).hexdigest()


# Task 4


def _facts(assessment: Assessment) -> dict[str, Any]:
    dice = assessment.dice("fourth")
    number = dice.between(100, 900)
    return {
        "repository": f"harbour-{number}/pilot", "other": f"harbour-{number}/tide",
        "issue": number, "title": f"Buoy {dice.between(1000, 9999)} drifts",
        "body": f"Since {dice.between(1000, 9999)} it drifts.\nPlease anchor it.",
        "second": f"Lamp {dice.between(1000, 9999)}",
        "text": f"It hangs {dice.between(1000, 9999)}",
        "comment": f"@test-bot look at {dice.between(10**5, 10**6)}",
        "late": f"and @test-bot at {dice.between(10**5, 10**6)}",
    }  # fmt: skip


def _issue(facts: Mapping[str, Any], number: int, action: str, comment: str = "") -> str:
    issue = {"number": number, "title": facts["title"], "body": facts["body"]}
    owner, _, name = facts["repository"].partition("/")
    event: dict[str, Any] = {
        "action": action, "issue": {**issue, "assignee": {"login": "test-bot"}, "state": "open"},
        "repository": {"full_name": facts["repository"], "name": name, "owner": {"login": owner}},
        "assignee": {"login": "test-bot"}, "sender": {"login": "mate"},
    }  # fmt: skip
    if comment:
        event["comment"] = {"id": number, "body": comment, "user": {"login": "mate"}}
    return json.dumps(event)


def _fourth(assessment: Assessment) -> list[list[Any]]:
    def make() -> list[Any]:
        facts, env = _facts(assessment), variables(assessment)
        secret, issue = env["WEBHOOK_SECRET"], facts["issue"]

        def call(name: str, *arguments: Any) -> list[Any]:
            return ["call", "app.sessions.service", [name], list(arguments), {}]

        crud = [
            call("create_or_get_session", facts["repository"], issue),
            call("create_or_get_session", facts["repository"], issue),
            call("create_or_get_session", facts["repository"], issue + 1),
            call("create_or_get_session", facts["other"], issue),
            ["dump"],
            call("update_issue_info", {"from": 0}, facts["second"], facts["text"]),
            call("update_session_status", {"from": 2}, "suspended"),
            ["dump"],
        ]
        assigned = _issue(facts, issue, "assigned")
        hook = [
            ["start"],
            signed(secret, "issues", assigned, "sha256=" + "0" * 64), ["dump"],
            signed(secret, "issues", assigned), signed(secret, "issues", assigned), ["dump"],
            signed(secret, "issue_comment", _issue(facts, issue, "created", facts["comment"])),
            signed(secret, "issue_comment", _issue(facts, issue + 7, "created", facts["late"])),
            ["dump"],
        ]  # fmt: skip
        return [scene(crud, env), scene(hook, env)]

    return play(assessment, "fourth", make)


def _of(dump: Any, repository: str, number: int) -> dict[str, Any]:
    """The one session of an issue."""
    sessions = documents(dump, "agent_sessions")
    found = [
        s for s in sessions if (s.get("repository"), s.get("issue_number")) == (repository, number)
    ]
    need(len(found) == 1, f"an issue has {len(found)} sessions")
    return found[0]


def _sessions(assessment: Assessment) -> Finding:
    facts, answers = _facts(assessment), _fourth(assessment)[0]
    made = [value(answers, n, "create_or_get_session") for n in range(4)]
    need(all(isinstance(one, str) and one for one in made), "a session_id is no text")
    need(made[0] == made[1], "an issue's second session is another one")
    need(len(set(made)) == 3, "different issues have the same session")
    fresh = _of(value(answers, 4, "state"), facts["repository"], facts["issue"])
    absent = [name for name in _FIELDS if fresh.get(name) is None]
    need(not absent, f"a session lacks {', '.join(absent)}")
    need(fresh["session_id"] == made[0], "the session's session_id is not the one returned")
    value(answers, 5, "update_issue_info")
    value(answers, 6, "update_session_status")
    dump = value(answers, 7, "state")
    text = json.dumps(_of(dump, facts["repository"], facts["issue"]))
    need(facts["second"] in text and facts["text"] in text, "title and body are not stored")
    changed = [s.get("status") for s in documents(dump, "agent_sessions")]
    need(changed.count("suspended") == 1, "update_session_status does not change one session")
    need(
        _of(dump, facts["repository"], facts["issue"] + 1)["status"] == "suspended",
        "update_session_status changes another session",
    )
    return Finding(1.0)


def _assigned(assessment: Assessment) -> Finding:
    facts, answers = _facts(assessment), _fourth(assessment)[1]
    value(answers, 0, "the service does not start")
    need(value(answers, 1, "a forged event")["status"] == 401, "a forged event is not refused")
    before = documents(value(answers, 2, "state"), "agent_sessions")
    need(not before, "a forged event makes a session")
    for number in (3, 4):
        status = value(answers, number, "issues.assigned")["status"]
        need(status == 200, f"issues.assigned returns {status}")
    text = json.dumps(_of(value(answers, 5, "state"), facts["repository"], facts["issue"]))
    need(json.dumps(facts["title"])[1:-1] in text, "the issue's title is not in its session")
    need(json.dumps(facts["body"])[1:-1] in text, "the issue's body is not in its session")
    return Finding(1.0)


def _comments(assessment: Assessment) -> Finding:
    need(_assigned(assessment).value == 1.0, "issues.assigned makes no session")
    facts, answers = _facts(assessment), _fourth(assessment)[1]
    for number in (6, 7):
        status = value(answers, number, "issue_comment.created")["status"]
        need(status == 200, f"issue_comment.created returns {status}")
    dump = value(answers, 8, "state")
    for number, words in ((facts["issue"], facts["comment"]), (facts["issue"] + 7, facts["late"])):
        text = json.dumps(_of(dump, facts["repository"], number))
        need(
            words in text, "a comment that mentions @test-bot is not stored in its issue's session"
        )
    return Finding(1.0)


def _background(assessment: Assessment) -> Finding:
    need(_assigned(assessment).value == 1.0, "issues.assigned makes no session")
    text = ast.unparse(parsed(assessment, _HOOK))
    need("BackgroundTasks" in text and ".add_task(" in text, "BackgroundTasks are not used")
    return Finding(1.0)


# Task 5


def _fifth(assessment: Assessment) -> list[list[Any]]:
    def make() -> list[Any]:
        facts, env = _facts(assessment), variables(assessment)
        repository, issue = facts["repository"], facts["issue"]

        def call(*names: str, arguments: list[Any]) -> list[Any]:
            return ["call", "app.github.cli", list(names), arguments, {}]

        clone = call("clone_repository", arguments=[repository, f"/tmp/clone{issue}"])
        branch = f"fix/{issue}"
        comment = [repository, issue, facts["text"]]
        steps = [
            clone,
            call("create_branch", arguments=[repository, branch, "main"]),
            call("create_pr", arguments=[repository, facts["title"], facts["body"], branch]),
            call("comment_issue", "post_comment", arguments=comment),
        ]
        tools = {f"/tmp/tools/{name}": (_TOOL, 0o755) for name in ("gh", "git")}
        more: dict[str, Any] = {"path": "/tmp/tools", "read": ["/box/.calls"]}
        logs = [
            ["log", {"session_id": s, "level": level, "message": text, "source": "harbour"}]
            for s, level, text in _entries(facts)
        ]
        ping = signed(env["WEBHOOK_SECRET"], "ping", json.dumps({"zen": "calm", "hook_id": 5}))
        assigned = signed(env["WEBHOOK_SECRET"], "issues", _issue(facts, issue, "assigned"))
        return [
            scene(steps, env, files={**tools, "/box/.calls": ("", 0o644)}, **more),
            scene([clone], env, files={**tools, "/box/.broken": ("", 0o644)}, **more),
            scene([*logs, ["dump"], ["logs_of", f"s{issue}"]], env),
            scene([["start"], ["dump"], ping, assigned, ["dump"]], env),
        ]

    return play(assessment, "fifth", make)


def _entries(facts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    issue = facts["issue"]
    texts = (facts["title"], facts["second"], facts["comment"], facts["late"], facts["text"])
    levels = ("info", "debug", "error", "warning", "info")
    sessions = (*[f"s{issue}"] * 4, f"t{issue}")
    return list(zip(sessions, levels, texts, strict=True))


def _calls(answers: list[Any], number: int) -> list[list[str]]:
    text = value(answers, number, "no gh or git was called")
    return [call.split("\x1f") for call in text.split("\x1e") if call]


def _cli(assessment: Assessment) -> Finding:
    facts, told = _facts(assessment), _fifth(assessment)
    answers = told[0]
    place = value(answers, 0, "clone_repository")
    for number, name in enumerate(("create_branch", "create_pr", "comment_issue"), 1):
        value(answers, number, name)
    calls = _calls(answers, 4)
    token = variables(assessment)["GITHUB_TOKEN"]
    need(any(call[0] == "gh" for call in calls), "gh is not called")
    need(all(token in call[-1] for call in calls if call[0] == "gh"), "gh is called with no token")
    lines = [" ".join(call[:-1]) for call in calls]
    branch, target = f"fix/{facts['issue']}", f"/tmp/clone{facts['issue']}"
    need(place == target, f"clone_repository returns {place!r}, not the folder"[:200])
    wanted = {
        "clone_repository": ("clone", facts["repository"], target),
        "create_branch": (branch,),
        "create_pr": ("pr", "create", facts["title"], facts["body"], branch, "main"),
        "comment_issue": ("comment", str(facts["issue"]), facts["text"], facts["repository"]),
    }
    done = [n for n, parts in wanted.items() if any(all(p in li for p in parts) for li in lines)]
    failed = answered(told[1], 0, "clone_repository that fails")
    share = len(done) / len(wanted)
    if "raised" not in failed:
        return Finding(round(share / 2, 6), "clone_repository raises nothing when gh fails")
    lacks = [name for name in wanted if name not in done]
    return Finding(round(share, 6), f"no right call by {', '.join(lacks)}" if lacks else "")


def _log(assessment: Assessment) -> Finding:
    facts, answers = _facts(assessment), _fifth(assessment)[2]
    entries = _entries(facts)
    for number in range(len(entries)):
        value(answers, number, "write_log")
    held = documents(value(answers, len(entries), "state"), "agent_logs")
    there = [(one.get("session_id"), one.get("level"), one.get("message")) for one in held]
    need(
        sorted(map(str, there)) == sorted(map(str, entries)),
        "agent_logs does not hold what was written",
    )
    for one in held:
        need(
            one.get("source") == "harbour" and bool(one.get("timestamp")),
            "source or time is missing",
        )
    return Finding(1.0)


def _retrieved(assessment: Assessment) -> Finding:
    need(_log(assessment).value == 1.0, "agent_logs does not hold what was written")
    facts, answers = _facts(assessment), _fifth(assessment)[2]
    entries = _entries(facts)
    text = json.dumps(value(answers, len(entries) + 1, "logs of a session"))
    need(all(one[2] in text for one in entries[:4]), "logs of a session are missing")
    need(entries[4][2] not in text, "another session's logs are among them")
    return Finding(1.0)


def _hook_logs(assessment: Assessment) -> Finding:
    need(_log(assessment).value == 1.0, "agent_logs does not hold what was written")
    answers = _fifth(assessment)[3]
    value(answers, 0, "the service does not start")
    before = len(documents(value(answers, 1, "state"), "agent_logs"))
    for number, name in ((2, "ping"), (3, "issues.assigned")):
        status = value(answers, number, name)["status"]
        need(status == 200, f"{name} returns {status}")
    dump = value(answers, 4, "state")
    logs = documents(dump, "agent_logs")
    need(len(logs) > before, "webhooks leave no entry in agent_logs")
    facts = _facts(assessment)
    session = _of(dump, facts["repository"], facts["issue"]).get("session_id")
    need(any(one.get("session_id") == session for one in logs), "no entry names the session")
    return Finding(1.0)


#: Checks of tasks 4 and 5: name, weight, what is required, and how it is looked at.
LATER: dict[int, list[tuple[str, float, str, Any]]] = {
    4: [
        ("sessions", 0.25, "sessions are made, found and changed", _sessions),
        ("assigned", 0.25, "issues.assigned makes a session with the issue", _assigned),
        ("comments", 0.15, "comments that mention the agent are kept", _comments),
        ("background", 0.05, "events are worked on in the background", _background),
    ],
    5: [
        ("cli", 0.3, "gh is called with what is asked, and its failure is told", _cli),
        ("log", 0.25, "write_log keeps entries", _log),
        ("retrieved", 0.05, "a session's entries are read", _retrieved),
        ("hook-logs", 0.1, "webhooks leave entries", _hook_logs),
    ],
}
