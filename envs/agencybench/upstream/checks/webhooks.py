"""Code/8: a FastAPI service that takes GitHub's webhooks and keeps sessions in MongoDB."""

from __future__ import annotations

import ast
import json
from typing import Any

from envs.agencybench.assessment import Assessment
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding
from envs.agencybench.upstream.checks.forms import parsed
from envs.agencybench.upstream.checks.services import (
    answered,
    defined,
    judge_check,
    play,
    scene,
    value,
)
from envs.agencybench.upstream.checks.sessions import LATER, signature, signed, variables
from envs.agencybench.upstream.sections import Sections

__all__ = ["checks"]

_GH = "app/github/cli.py"
_HOOK = "app/webhooks/github.py"
_MONGO = "app/db/mongo.py"
_SERVICE = "app/sessions/service.py"
_PARTS: dict[int, dict[str, dict[str, tuple[str, ...]]]] = {
    1: {
        _MONGO: {"get_db": (), "get_database_name": ()},
        "app/settings.py": {"get_env": ("key",), "require_env": ("key",)},
    },
    2: {_MONGO: {"get_db": (), "init_indexes": ()}},
    4: {
        _SERVICE: {
            "create_or_get_session": ("repository", "issue_number"),
            "update_session_status": ("session_id", "status"),
            "update_issue_info": ("session_id", "issue_title", "issue_body"),
        }
    },
    5: {
        _GH: {
            "clone_repository": ("repository", "target_dir"),
            "create_branch": ("repository", "branch_name", "base"),
            "create_pr": ("repository", "title", "body", "head", "base"),
            "comment_issue|post_comment": ("repository", "issue_number", "body"),
        },
        "app/logs/db_logger.py": {"write_log": ("entry",)},
    },
}
#: Collection, fields and whether they are unique together.
_INDEXES = (
    ("agent_sessions", ("session_id",), True),
    ("agent_sessions", ("repository", "issue_number"), True),
    ("agent_sessions", ("status",), False),
    ("agent_logs", ("session_id",), False),
    ("agent_logs", ("timestamp",), False),
)
# Task 1


def _first(assessment: Assessment) -> list[list[Any]]:
    def make() -> list[Any]:
        env = variables(assessment)
        word = assessment.dice("first").between(1000, 9999)
        shown = {key: text for key, text in env.items() if key != "LLM_API_KEY"}
        lines = f"LLM_API_KEY={env['LLM_API_KEY']}\nHARBOUR_{word}=buoy-{word}\n"
        settings = [
            ["call", "app.settings", ["get_env"], ["GITHUB_TOKEN"], {}],
            ["call", "app.settings", ["get_env"], ["LLM_API_KEY"], {}],
            ["call", "app.settings", ["get_env"], [f"HARBOUR_{word}"], {}],
            ["call", "app.settings", ["require_env"], ["WEBHOOK_SECRET"], {}],
            ["call", "app.settings", ["require_env"], [f"ABSENT_{word}"], {}],
        ]
        health: list[Any] = ["request", "GET", "/health", {}, ""]
        steps: list[list[Any]] = [
            ["start"], health, ["dump"], health, ["server", False], health, ["server", True],
            health, ["call", "app.db.mongo", ["get_db"], [], {}],
            ["call", "app.db.mongo", ["get_database_name"], [], {}], ["dump"],
        ]  # fmt: skip
        return [scene(settings, shown, dotenv=lines), scene(steps, env)]

    return play(assessment, "first", make)


def _settings(assessment: Assessment) -> Finding:
    answers = _first(assessment)[0]
    env, word = variables(assessment), assessment.dice("first").between(1000, 9999)
    wanted = (env["GITHUB_TOKEN"], env["LLM_API_KEY"], f"buoy-{word}", env["WEBHOOK_SECRET"])
    for number, text in enumerate(wanted):
        given = value(answers, number, "a variable that is set")
        need(given == text, f"a variable that is set (number {number + 1}) is not what is returned")
    absent = answered(answers, 4, "require_env of a variable that is not set")
    need("raised" in absent, "require_env of a variable that is not set raises nothing")
    return Finding(1.0)


def _healthy(answers: list[Any], number: int) -> bool:
    made = value(answers, number, "/health")
    body = made["json"]
    return made["status"] == 200 and isinstance(body, dict) and body.get("status") == "ok"


def _health(assessment: Assessment) -> Finding:
    answers = _first(assessment)[1]
    value(answers, 0, "the service does not start")
    need(_healthy(answers, 1), "/health with a database does not return 200 and status ok")
    made = value(answers, 5, "/health without a database")
    if made["status"] < 500 or (
        isinstance(made["json"], dict) and made["json"].get("status") == "ok"
    ):
        return Finding(0.2, f"/health without a database returns {made['status']}")
    need(_healthy(answers, 7), "/health is not ok once the database is back")
    return Finding(1.0)


def _pool(assessment: Assessment) -> Finding:
    need(_health(assessment).value == 1.0, "/health does not look at the database")
    answers = _first(assessment)[1]
    database, name = value(answers, 8, "get_db"), value(answers, 9, "get_database_name")
    need(database == {"database": name} and bool(name), "get_db is not the database of that name")
    before, after = value(answers, 2, "state")["clients"], value(answers, 10, "state")["clients"]
    need(1 <= before == after <= 2, f"each use makes a client: {before}, and then {after}")
    return Finding(1.0)


# Task 2


def _second(assessment: Assessment) -> list[list[Any]]:
    def make() -> list[Any]:
        init = ["call", "app.db.mongo", ["init_indexes"], [], {}]
        env = variables(assessment)
        return [
            scene([init, ["dump"], init, init, ["dump"]], env),
            scene([["start"], ["dump"]], env),
        ]

    return play(assessment, "second", make)


def _indexes(dump: Any) -> list[tuple[str, tuple[str, ...], bool]]:
    made = []
    for held in dump["databases"].values():
        for collection, content in held.items():
            for index in content["indexes"].values():
                keys = tuple(key for key, _ in index["keys"])
                made.append((collection, keys, bool(index["unique"])))
    return sorted(made)


def _made(assessment: Assessment) -> Finding:
    answers = _second(assessment)[0]
    value(answers, 0, "init_indexes")
    there = _indexes(value(answers, 1, "state"))
    lacks = [index for index in _INDEXES if index not in there]
    told = "; ".join(f"{c}: no index on {', '.join(k)}, unique {u}" for c, k, u in lacks)
    return Finding(round(1 - len(lacks) / len(_INDEXES), 6), told)


def _again(assessment: Assessment) -> Finding:
    need(_made(assessment).value == 1.0, "not all indexes are made")
    answers = _second(assessment)[0]
    for number in (2, 3):
        value(answers, number, "init_indexes, again")
    first, last = value(answers, 1, "state"), value(answers, 4, "state")
    need(_indexes(first) == _indexes(last), "init_indexes, again, makes others")
    return Finding(1.0)


def _startup(assessment: Assessment) -> Finding:
    answers = _second(assessment)[1]
    value(answers, 0, "the service does not start")
    there = _indexes(value(answers, 1, "state"))
    need(all(index in there for index in _INDEXES), "not all indexes are there after the start")
    return Finding(1.0)


# Task 3


def _third(assessment: Assessment) -> tuple[list[list[Any]], int]:
    """Answers, and the number of forged requests."""
    env = variables(assessment)
    secret, dice = env["WEBHOOK_SECRET"], assessment.dice("third")
    body = json.dumps({"zen": f"calm {dice.between(1, 10**6)}", "hook_id": 5, "é": "ü"})
    other = json.dumps({"zen": "storm", "hook_id": 6})
    right = signature(secret, body)
    forged = (
        "", "sha256=", signature(secret + "x", body), signature(secret, other),
        signature(secret, body, "sha1"), right[:-2],
        right[:-1] + ("0" if right[-1] != "0" else "1"),
        signature("", body), "sha256=" + "0" * 64,
    )  # fmt: skip
    broken = ('{"zen": ', "zen=1")

    def make() -> list[Any]:
        steps = [["start"], signed(secret, "ping", body), signed(secret, "ping", other)]
        steps += [signed(secret, "ping", body, one) for one in forged]
        steps += [signed(secret, "issues", one) for one in broken]
        steps += [signed(secret, "star", body), signed(secret, "push", body)]
        return [scene(steps, env)]

    return play(assessment, "third", make), len(forged)


def _verified(assessment: Assessment) -> Finding:
    (answers,), count = _third(assessment)
    value(answers, 0, "the service does not start")
    for number in (1, 2):
        status = value(answers, number, "a signed ping")["status"]
        need(status == 200, f"a signed ping returns {status}")
    refused = sum(
        value(answers, 3 + number, "a forged ping")["status"] == 401 for number in range(count)
    )
    # Who lets one forgery through lets all through; only the ones without a signature are easy.
    share = 1.0 if refused == count else 0.4 * refused / count
    return Finding(round(share, 6), f"{refused} of {count} forged requests return 401")


def _malformed(assessment: Assessment) -> Finding:
    need(_verified(assessment).value == 1.0, "signatures are not verified")
    (answers,), count = _third(assessment)
    for number in (3 + count, 4 + count):
        made = value(answers, number, "a body that is no JSON")
        need(made["status"] == 400, f"a body that is no JSON returns {made['status']}")
        need(bool(made["json"]), "a body that is no JSON is answered without a message")
    return Finding(1.0)


def _others(assessment: Assessment) -> Finding:
    need(_verified(assessment).value == 1.0, "signatures are not verified")
    (answers,), count = _third(assessment)
    for number in (5 + count, 6 + count):
        status = value(answers, number, "another event")["status"]
        need(200 <= status < 300, f"another event returns {status}")
    return Finding(1.0)


def _router(assessment: Assessment) -> Finding:
    for node in ast.walk(parsed(assessment, _HOOK)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "APIRouter":
            for keyword in node.keywords:
                if keyword.arg == "prefix":
                    need(ast.unparse(keyword.value) == "'/webhooks'", "the prefix is another one")
                    return Finding(1.0)
    need(False, f"{_HOOK} makes no APIRouter with the prefix /webhooks")
    return Finding(0.0)


def checks(number: int, sections: Sections) -> tuple[Check, ...]:
    """The checks of task ``number``, from 1."""
    parts = _router if number == 3 else defined(_PARTS[number])
    said = f"{_HOOK} makes the router" if number == 3 else "the functions that are asked for"
    rules: dict[int, list[tuple[str, float, str, Any]]] = {
        1: [
            ("settings", 0.25, "variables of the environment and of .env", _settings),
            ("health", 0.35, "/health says whether there is a database", _health),
            ("pool", 0.1, "one client, and its database", _pool),
        ],
        2: [
            ("indexes", 0.45, "init_indexes makes the five indexes", _made),
            ("again", 0.1, "init_indexes may be called again", _again),
            ("startup", 0.15, "the service makes them when it starts", _startup),
        ],
        3: [
            ("signature", 0.45, "signed requests, and those alone, are taken", _verified),
            ("malformed", 0.2, "a signed body that is no JSON returns 400", _malformed),
            ("events", 0.05, "other events are taken", _others),
        ],
        **LATER,
    }
    made = [Check("parts", 0.1, said, parts, kind="file")]
    made += [
        Check(name, weight, told, run, kind="http") for name, weight, told, run in rules[number]
    ]
    return (*made, judge_check(sections))
