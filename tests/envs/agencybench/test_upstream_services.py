"""Code/8 and 9: a service that does what is asked, none, and ones that only look like it."""

from __future__ import annotations

import pytest

from agentgym.sandbox import Snapshot, shared_sandbox
from envs.agencybench.assessment import Assessment
from envs.agencybench.assessor import assess
from envs.agencybench.scenario import State, Task, World
from envs.agencybench.upstream.checks.table import checks_for
from envs.agencybench.upstream.sections import Sections

MAIN = """from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from app.db.mongo import get_db, init_indexes
from app.webhooks.github import router


@asynccontextmanager
async def lifespan(app):
    init_indexes()
    yield


app = FastAPI(title="agents", lifespan=lifespan)
app.include_router(router)


@app.get("/health")
def health():
    try:
        get_db().command("ping")
    except Exception as error:
        return JSONResponse({"status": "error", "detail": str(error)}, status_code=503)
    return {"status": "ok"}
"""
MONGO = """from pymongo import ASCENDING, MongoClient

from app.settings import require_env

_client = None


def get_database_name() -> str:
    return require_env("MONGODB_URL").rsplit("/", 1)[-1] or "agents"


def get_db():
    global _client
    if _client is None:
        _client = MongoClient(require_env("MONGODB_URL"), maxPoolSize=20)
    return _client[get_database_name()]


def init_indexes() -> None:
    db = get_db()
    sessions, logs = db["agent_sessions"], db["agent_logs"]
    sessions.create_index("session_id", unique=True)
    sessions.create_index([("repository", ASCENDING), ("issue_number", ASCENDING)], unique=True)
    sessions.create_index("status")
    logs.create_index("session_id")
    logs.create_index("timestamp")
"""
SETTINGS = """import os

from dotenv import load_dotenv

load_dotenv()


def get_env(key: str) -> str:
    return os.environ.get(key, "")


def require_env(key: str) -> str:
    value = get_env(key)
    if not value:
        raise RuntimeError(f"{key} is not set")
    return value
"""
HOOK = """import hashlib
import hmac
import json

from fastapi import APIRouter, BackgroundTasks, HTTPException, Request

from app.logs.db_logger import write_log
from app.logs.models import AgentLog
from app.sessions.service import add_comment, create_or_get_session, update_issue_info
from app.settings import require_env

router = APIRouter(prefix="/webhooks")


def note(session_id, message):
    write_log(AgentLog(session_id=session_id, level="info", message=message, source="webhook"))


def process(event, payload):
    if event not in ("issues", "issue_comment") or "repository" not in payload:
        return
    issue = payload["issue"]
    session = create_or_get_session(payload["repository"]["full_name"], issue["number"])
    note(session, f"{event}.{payload['action']}")
    if event == "issues" and payload["action"] == "assigned":
        update_issue_info(session, issue["title"], issue["body"])
    if event == "issue_comment" and "@test-bot" in payload["comment"]["body"]:
        add_comment(session, payload["comment"]["body"])


@router.post("/github")
async def receive(request: Request, tasks: BackgroundTasks):
    body = await request.body()
    right = hmac.new(require_env("WEBHOOK_SECRET").encode(), body, hashlib.sha256).hexdigest()
    given = request.headers.get("X-Hub-Signature-256", "")
    if not hmac.compare_digest("sha256=" + right, given):
        raise HTTPException(401, "wrong signature")
    try:
        payload = json.loads(body)
    except ValueError as error:
        raise HTTPException(400, f"no JSON: {error}")
    event = request.headers.get("X-GitHub-Event", "")
    if event == "ping":
        note("", "ping")
        return {"message": "pong"}
    tasks.add_task(process, event, payload)
    return {"queued": True}
"""
SERVICE = """import uuid
from datetime import datetime, timezone

from app.db.mongo import get_db


def _change(session_id, **fields):
    fields["updated_at"] = datetime.now(timezone.utc)
    get_db()["agent_sessions"].update_one({"session_id": session_id}, {"$set": fields})


def create_or_get_session(repository: str, issue_number: int) -> str:
    now = datetime.now(timezone.utc)
    key = {"repository": repository, "issue_number": issue_number}
    new = {"session_id": uuid.uuid4().hex, "status": "running", "created_at": now}
    new["updated_at"] = now
    sessions = get_db()["agent_sessions"]
    sessions.update_one(key, {"$setOnInsert": new}, upsert=True)
    return sessions.find_one(key)["session_id"]


def update_session_status(session_id: str, status: str) -> None:
    _change(session_id, status=status)


def update_issue_info(session_id: str, issue_title: str, issue_body: str) -> None:
    _change(session_id, issue_title=issue_title, issue_body=issue_body)


def add_comment(session_id, body):
    sessions = get_db()["agent_sessions"]
    sessions.update_one({"session_id": session_id}, {"$push": {"comments": body}})
"""
CLI = """import os
import subprocess


def _gh(*arguments):
    token = os.environ["GITHUB_TOKEN"]
    done = subprocess.run(
        ["gh", *arguments], capture_output=True, text=True, env={**os.environ, "GH_TOKEN": token}
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def clone_repository(repository, target_dir=None):
    target = target_dir or repository.split("/")[-1]
    _gh("repo", "clone", repository, target)
    return target


def create_branch(repository, branch_name, base="main"):
    sha = _gh("api", f"repos/{repository}/git/ref/heads/{base}", "--jq", ".object.sha")
    ref = f"ref=refs/heads/{branch_name}"
    _gh("api", f"repos/{repository}/git/refs", "-f", ref, "-f", f"sha={sha}")


def create_pr(repository, title, body, head, base="main"):
    where = ["--repo", repository, "--head", head, "--base", base]
    _gh("pr", "create", *where, "--title", title, "--body", body)


def comment_issue(repository, issue_number, body):
    _gh("issue", "comment", str(issue_number), "--repo", repository, "--body", body)
"""
MODELS = """from dataclasses import dataclass, field
from datetime import datetime, timezone


@dataclass
class AgentLog:
    session_id: str
    level: str
    message: str
    source: str
    timestamp: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
"""
LOGGER = """from dataclasses import asdict

from app.db.mongo import get_db


def write_log(entry) -> None:
    get_db()["agent_logs"].insert_one(asdict(entry))


def get_logs(session_id):
    found = get_db()["agent_logs"].find({"session_id": session_id}, {"_id": 0})
    return list(found.sort("timestamp", 1))
"""
WHOLE = {
    "app/__init__.py": "",
    "app/main.py": MAIN,
    "app/settings.py": SETTINGS,
    "app/db/mongo.py": MONGO,
    "app/webhooks/github.py": HOOK,
    "app/sessions/service.py": SERVICE,
    "app/github/cli.py": CLI,
    "app/logs/models.py": MODELS,
    "app/logs/db_logger.py": LOGGER,
}
LIMITS = """from app.db.mongo import get_db


def get_max_concurrent() -> int:
    return 2


def can_start_new_agent() -> bool:
    active = get_db()["agent_sessions"].count_documents({"status": {"$in": ["running"]}})
    return active < get_max_concurrent()
"""
MANAGER = """import docker


def _box(container_id):
    return docker.from_env().containers.get(container_id)


def create_container(image, env=None):
    box = docker.from_env().containers.run(image, "sleep 1d", environment=env, detach=True)
    return box.id


def clone_repo(container_id, repository_full):
    box, target = _box(container_id), "/workspace/repo"
    code, output = box.exec_run(f"git clone https://github.com/{repository_full} {target}")
    if code:
        raise RuntimeError(output)
    box.exec_run(["git", "config", "--global", "user.email", "agent@harbour.test"])
    return target


def cleanup(container_id):
    box = _box(container_id)
    box.stop()
    box.remove(force=True)
"""
MONITOR = """from fastapi import APIRouter, HTTPException

from app.db.mongo import get_db
from app.logs.db_logger import get_logs
from app.sessions.service import update_session_status

router = APIRouter(prefix="/api/sessions")


@router.get("")
def sessions(status: str = "", repository: str = ""):
    named = {"status": status, "repository": repository}
    wanted = {key: text for key, text in named.items() if text}
    return list(get_db()["agent_sessions"].find(wanted, {"_id": 0}))


@router.get("/{session_id}")
def session(session_id: str):
    found = get_db()["agent_sessions"].find_one({"session_id": session_id}, {"_id": 0})
    if found is None:
        raise HTTPException(404, "no such session")
    return found


@router.get("/{session_id}/logs")
def logs(session_id: str):
    return get_logs(session_id)


@router.post("/{session_id}/cancel")
def cancel(session_id: str):
    update_session_status(session_id, "cancelled")
    return {"status": "cancelled"}
"""
NINTH = {
    **WHOLE,
    "app/main.py": MAIN + "\n\nfrom app.http.monitor import router as monitor\n\n"
    "app.include_router(monitor)\n",
    "app/http/monitor.py": MONITOR,
    "app/limits/concurrency.py": LIMITS,
    "app/sandbox/docker_manager.py": MANAGER,
}
#: They say yes to everything.
NINTH_STUBS = {
    **NINTH,
    "app/http/monitor.py": MONITOR.replace("find(wanted", "find({}")
    .replace("get_logs(session_id)", "{'logs': []}")
    .replace('    update_session_status(session_id, "cancelled")\n', ""),
    "app/limits/concurrency.py": LIMITS.replace("active < get", "2 <= get"),
    "app/sandbox/docker_manager.py": MANAGER.replace("run(image", "run('alpine'"),
}
STUBS = {
    **WHOLE,
    "app/main.py": "from fastapi import FastAPI\n\napp = FastAPI()\n\n"
    "@app.get('/health')\ndef health():\n    return {'status': 'ok'}\n\n"
    "@app.post('/webhooks/github')\ndef hook():\n    return {'status': 'ok'}\n",
    "app/settings.py": "def get_env(key):\n    print(key)\n\n"
    "def require_env(key):\n    print(key)\n",
    "app/db/mongo.py": "def get_db():\n    return dict(a=1)\n\ndef get_database_name():\n"
    "    return str(1)\n\ndef init_indexes():\n    print(1)\n",
    "app/sessions/service.py": "def create_or_get_session(repository, issue_number):\n"
    "    return repository + str(issue_number)\n\n"
    "def update_session_status(session_id, status):\n    print(status)\n\n"
    "def update_issue_info(session_id, issue_title, issue_body):\n    print(issue_title)\n",
    "app/github/cli.py": CLI.replace("subprocess.run(", "print("),
    "app/logs/db_logger.py": "def write_log(entry):\n    print(entry)\n",
}


def scored(name, number, files):
    task = Task("t", "q", "", "", checks_for(name, number, Sections("q", "", "", "free")))
    content = {path: text.encode() for path, text in files.items()}
    return assess(task, Assessment(Snapshot(content), World({}), shared_sandbox(), "k"))


@pytest.mark.fastapi
@pytest.mark.parametrize("number", range(1, 6))
def test_a_service(number):
    made = scored("Code/scenario8", number, WHOLE)
    assert made.score == 1.0, made.as_json()
    assert made.coverage == pytest.approx(0.8)


@pytest.mark.parametrize("number", range(1, 6))
def test_an_empty_workspace(number):
    made = scored("Code/scenario8", number, {})
    assert made.score <= 0.05
    assert not made.error, made.as_json()


@pytest.mark.fastapi
@pytest.mark.parametrize("number", range(1, 6))
def test_a_service_that_only_looks_like_it(number):
    made = scored("Code/scenario8", number, STUBS)
    assert made.score <= 0.3, made.as_json()
    assert not made.error, made.as_json()


def test_what_the_syntax_tree_tells_without_fastapi():
    """Signatures, and functions that are stubs, are seen where nothing can be run."""
    for number in (1, 2, 3, 4, 5):
        assert scored("Code/scenario8", number, WHOLE).results[0].value == 1.0
    stub = SETTINGS.replace("    value = get_env(key)\n", "    return ''\n").partition("    if not")
    made = scored("Code/scenario8", 1, {**WHOLE, "app/settings.py": stub[0]})
    assert made.results[0].value == 0.75
    assert "require_env does nothing" in made.results[0].observed
    other = SERVICE.replace("issue_title: str, issue_body", "body: str, title")
    made = scored("Code/scenario8", 4, {**WHOLE, "app/sessions/service.py": other})
    assert made.results[0].value == pytest.approx(2 / 3)
    made = scored("Code/scenario8", 5, {**WHOLE, "app/github/cli.py": "def"})
    assert made.results[0].value == 0.2


FAULTS = {
    "a compiled secret": (3, "signature", "app/webhooks/github.py",
        ('require_env("WEBHOOK_SECRET")', '"secret"')),
    "signatures by their length": (3, "signature", "app/webhooks/github.py",
        ('if not hmac.compare_digest("sha256=" + right, given)', "if len(given) != 71")),
    "a health that sees nothing": (1, "health", "app/main.py",
        ('get_db().command("ping")', "pass")),
    "a client for each use": (1, "pool", "app/db/mongo.py", ("if _client is None", "if True")),
    "an index that is not unique": (2, "indexes", "app/db/mongo.py",
        ('"session_id", unique=True', '"session_id"')),
    "no indexes at the start": (2, "startup", "app/main.py", ("    init_indexes()\n", "")),
    "a session for each call": (4, "sessions", "app/sessions/service.py",
        ('key, {"$setOnInsert"', 'new, {"$setOnInsert"')),
    "comments to nobody": (4, "comments", "app/webhooks/github.py", ("@test-bot", "@else")),
    "a failure that is swallowed": (5, "cli", "app/github/cli.py",
        ("raise RuntimeError(done.stderr)", "return ''")),
    "another session's logs": (5, "retrieved", "app/logs/db_logger.py",
        ('find({"session_id": session_id}', "find({}")),
}  # fmt: skip


@pytest.mark.fastapi
@pytest.mark.parametrize(("number", "coverage"), [(1, 0.7), (5, 0.6)])
def test_runners_of_agents(number, coverage):
    made = scored("Code/scenario9", number, NINTH)
    assert made.score == 1.0, made.as_json()
    assert made.coverage == pytest.approx(coverage)
    stubs = scored("Code/scenario9", number, NINTH_STUBS)
    assert stubs.score <= 0.3, stubs.as_json()
    assert not stubs.error, stubs.as_json()
    assert scored("Code/scenario9", number, {}).score == 0.0


@pytest.mark.fastapi
def test_a_limiter_that_is_there_at_the_start_is_worth_nothing_alone():
    start = {path: text for path, text in NINTH.items() if "sandbox" not in path}
    assert "app/limits/concurrency.py" in start
    assert len(start) < len(NINTH)
    assert scored("Code/scenario9", 1, start).score == 0.0


@pytest.mark.fastapi
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault):
    number, check, path, (old, new) = FAULTS[fault]
    assert old in WHOLE[path]
    made = scored("Code/scenario8", number, {**WHOLE, path: WHOLE[path].replace(old, new)})
    assert next(r for r in made.results if r.id == check).value < 1.0, made.as_json()


@pytest.mark.fastapi
def test_a_service_that_ends_its_process_or_answers_for_it_is_no_error():
    for main in (
        "import os\nos._exit(0)\n",
        "import os\nfor n in range(3, 9):\n"
        "    try:\n        os.write(n, b'{\"value\": {}}\\n' * 9)\n"
        "    except OSError:\n        pass\n",
    ):
        for number in (1, 3):
            made = scored("Code/scenario8", number, {**WHOLE, "app/main.py": main})
            assert not made.error, made.as_json()
            assert all(r.state is not State.ERROR for r in made.results)
