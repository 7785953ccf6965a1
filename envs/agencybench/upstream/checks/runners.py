"""Code/9: limits and containers of agents (task 1), and the pages' interface (task 5).

What the agent itself does (tasks 2 to 4) needs a model, and is judged.
"""

from __future__ import annotations

from typing import Any

from envs.agencybench.assessment import Assessment, Unmet
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding
from envs.agencybench.upstream.checks.judged import text_checks
from envs.agencybench.upstream.checks.services import (
    defined,
    documents,
    judge_check,
    play,
    scene,
    value,
)
from envs.agencybench.upstream.checks.sessions import variables
from envs.agencybench.upstream.sections import Sections

__all__ = ["checks"]

_MANAGER = "app/sandbox/docker_manager.py"
_PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    _MANAGER: {
        "create_container": ("image", "env"),
        "cleanup": ("container_id",),
        "clone_repo": ("container_id", "repository_full"),
    },
}


def _session(name: str, repository: str, number: int, status: str) -> dict[str, Any]:
    return {
        "session_id": name, "repository": repository, "issue_number": number, "status": status,
        "ago": {"created_at": 60, "updated_at": 30, "started_at": 60},
    }  # fmt: skip


def _first(assessment: Assessment) -> list[list[Any]]:
    def make() -> list[Any]:
        env, dice = variables(assessment), assessment.dice("first")
        drawn = dice.between(1000, 9999)

        def insert(number: int, status: str) -> list[Any]:
            one = _session(f"s{drawn}-{number}", f"harbour/pilot{drawn}", number, status)
            return ["insert", "agent_sessions", [one]]

        def call(module: str, name: str, *arguments: Any) -> list[Any]:
            return ["call", f"app.{module}", [name], list(arguments), {}]

        ask = call("limits.concurrency", "can_start_new_agent")
        limits = [
            call("limits.concurrency", "get_max_concurrent"),
            *(insert(n, status) for n, status in enumerate(("completed", "failed", "completed"))),
            ask, insert(4, "running"), ask, insert(5, "running"), ask,
        ]  # fmt: skip
        manager = "sandbox.docker_manager"
        boxes = [
            call(manager, "create_container", f"python:3.{drawn}-slim", {"BUOY": str(drawn)}),
            call(manager, "clone_repo", {"from": 0}, f"harbour/pilot{drawn}"),
            ["containers"],
            call(manager, "cleanup", {"from": 0}),
            ["containers"],
        ]
        return [scene(limits, env), scene(boxes, env)]

    return play(assessment, "first", make)


def _limits(assessment: Assessment) -> Finding:
    # The files at the start have a limiter; it is worth something with what is to be limited.
    made = value(_first(assessment)[1], 0, "create_container")
    need(isinstance(made, str) and bool(made), "create_container returns no id")
    answers = _first(assessment)[0]
    need(value(answers, 0, "get_max_concurrent") == 2, "get_max_concurrent is not 2")
    for number, free in ((4, True), (6, True), (8, False)):
        given = value(answers, number, "can_start_new_agent")
        running = (number - 4) // 2
        need(given is free, f"can_start_new_agent is {given!r} while {running} run")
    return Finding(1.0)


def _containers(assessment: Assessment) -> Finding:
    drawn = assessment.dice("first").between(1000, 9999)
    answers = _first(assessment)[1]
    made, place = value(answers, 0, "create_container"), value(answers, 1, "clone_repo")
    boxes = value(answers, 2, "containers")
    need(isinstance(made, str) and bool(made), "create_container returns no id")
    box = next((one for one in boxes if one["id"].startswith(made)), None)
    if box is None:
        raise Unmet("create_container returns the id of no container")
    need(box["image"] == f"python:3.{drawn}-slim", "the container is of another image")
    env = box["env"]
    lines = [f"{k}={v}" for k, v in env.items()] if isinstance(env, dict) else list(env or [])
    need(f"BUOY={drawn}" in lines, "the container lacks the variables that are given")
    need(box["status"] == "running", "the container does not run")
    ran = [line for line in box["ran"] if "clone" in line and f"harbour/pilot{drawn}" in line]
    need(bool(ran), "the repository is not cloned in the container")
    need(str(place).startswith("/workspace"), "clone_repo returns no folder in /workspace")
    need(any("user.email" in line for line in box["ran"]), "Git's user.email is not set")
    value(answers, 3, "cleanup")
    after = value(answers, 4, "containers")
    need(all(one["removed"] for one in after if one["id"] == box["id"]), "cleanup removes nothing")
    return Finding(1.0)


def _fifth(assessment: Assessment) -> list[Any]:
    def make() -> list[Any]:
        drawn = assessment.dice("fifth").between(1000, 9999)
        a, b = f"harbour/pilot{drawn}", f"harbour/tide{drawn}"
        sessions = [
            _session(f"s{drawn}a", a, 1, "running"), _session(f"s{drawn}b", a, 2, "completed"),
            _session(f"s{drawn}c", b, 3, "completed"),
        ]  # fmt: skip
        logs = [
            {"session_id": f"s{drawn}{one}", "level": "info", "message": f"{one} drifts {drawn}",
             "source": "mate", "ago": {"timestamp": 20}}
            for one in "ab"
        ]  # fmt: skip

        def get(path: str) -> list[Any]:
            return ["request", "GET", f"/api/sessions{path}", {}, ""]

        cancel: list[Any] = ["request", "POST", f"/api/sessions/s{drawn}a/cancel", {}, ""]
        steps: list[list[Any]] = [
            ["start"], ["insert", "agent_sessions", sessions], ["insert", "agent_logs", logs],
            get(""), get("?status=completed"), get(f"?repository={b}"), get(f"/s{drawn}b"),
            get(f"/none{drawn}"), get(f"/s{drawn}a/logs"), cancel, ["dump"],
        ]  # fmt: skip
        return [scene(steps, variables(assessment))]

    return play(assessment, "fifth", make)[0]


def _told(assessment: Assessment, number: int, what: str, letters: str) -> None:
    """An answer is of these sessions, and of no others."""
    drawn = assessment.dice("fifth").between(1000, 9999)
    made = value(_fifth(assessment), number, what)
    need(made["status"] == 200 and made["json"] is not None, f"{what} returns {made['status']}")
    named = "".join(one for one in "abc" if f"s{drawn}{one}" in repr(made["json"]))
    need(named == letters, f"{what} tells of {len(named)} sessions, not of {len(letters)}")


def _listed(assessment: Assessment) -> Finding:
    value(_fifth(assessment), 0, "the service does not start")
    _told(assessment, 3, "/api/sessions", "abc")
    _told(assessment, 4, "/api/sessions by status", "bc")
    _told(assessment, 5, "/api/sessions by repository", "c")
    return Finding(1.0)


def _detail(assessment: Assessment) -> Finding:
    _listed(assessment)
    _told(assessment, 6, "a session", "b")
    need(value(_fifth(assessment), 7, "no session")["status"] == 404, "no session is not 404")
    return Finding(1.0)


def _logs(assessment: Assessment) -> Finding:
    drawn = assessment.dice("fifth").between(1000, 9999)
    made = value(_fifth(assessment), 8, "logs")
    text = repr(made["json"])
    need(made["status"] == 200 and f"a drifts {drawn}" in text, "a session's logs are missing")
    need(f"b drifts {drawn}" not in text, "another session's logs are among them")
    return Finding(1.0)


def _cancel(assessment: Assessment) -> Finding:
    drawn, answers = assessment.dice("fifth").between(1000, 9999), _fifth(assessment)
    status = value(answers, 9, "cancel")["status"]
    need(200 <= status < 300, f"cancel returns {status}")
    held = documents(value(answers, 10, "state"), "agent_sessions")
    states = {one.get("session_id"): one.get("status") for one in held}
    need(states.get(f"s{drawn}a") not in (None, "running"), "a session that is cancelled runs on")
    need(states.get(f"s{drawn}b") == "completed", "another session's status changes")
    return Finding(1.0)


def checks(number: int, sections: Sections) -> tuple[Check, ...]:
    """The checks of task ``number``, from 1."""
    if number == 1:
        told = "the functions that are asked for"
        parts = defined(_PARTS)
        return (
            Check("parts", 0.1, told, parts, kind="file"),
            Check("limits", 0.3, "two agents run at once, and no more", _limits),
            Check("containers", 0.3, "containers are made and removed", _containers),
            judge_check(sections, 0.3),
        )
    if number == 5:
        return (
            Check("list", 0.2, "sessions are listed and filtered", _listed, kind="http"),
            Check("detail", 0.15, "one session, or 404", _detail, kind="http"),
            Check("logs", 0.15, "a session's logs", _logs, kind="http"),
            Check("cancel", 0.1, "a running session is cancelled", _cancel, kind="http"),
            judge_check(sections, 0.4),
        )
    return text_checks(sections)
