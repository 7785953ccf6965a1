"""Services for tests of backend/ledger: right ones that are made otherwise, and cheats."""

from __future__ import annotations

__all__ = ["ASYNCIO", "DAEMON", "FORGETFUL_FOLDER", "SQLITE", "odd"]

# By streams of asyncio, state by replaying, ids that are uuids, and other headers than usual.
ASYNCIO = """
import asyncio, json, os, uuid

DATA = os.environ["DATA"]
os.makedirs(DATA, exist_ok=True)
os.chdir(DATA)
accounts, order, keys, moves = {}, [], {}, []

def apply(e):
    if e["t"] == "open":
        accounts[e["id"]] = {"id": e["id"], "name": e["name"], "balance": e["opening"]}
        order.append(e["id"])
    else:
        accounts[e["from"]]["balance"] -= e["amount"]
        accounts[e["to"]]["balance"] += e["amount"]
        made = {k: e[k] for k in ("id", "from", "to", "amount", "key")}
        keys[e["key"]] = made
        moves.append(made)

def load():
    try:
        raw = open("journal.jsonl", "rb").read()
    except FileNotFoundError:
        raw = b""
    whole = raw[: raw.rfind(b"\\n") + 1]
    if whole != raw:
        with open("journal.tmp", "wb") as f:
            f.write(whole); f.flush(); os.fsync(f.fileno())
        os.replace("journal.tmp", "journal.jsonl")
    for line in whole.splitlines():
        apply(json.loads(line))
    return open("journal.jsonl", "ab", buffering=0)

log = load()

def commit(e):
    log.write(json.dumps(e, separators=(",", ":")).encode() + b"\\n")
    os.fsync(log.fileno())
    apply(e)

class No(Exception):
    pass

def integer(v, least):
    return isinstance(v, int) and not isinstance(v, bool) and v >= least

def act(method, path, body):
    if method == "GET":
        if path == "/health": return 200, {"status": "ok"}
        if path == "/accounts": return 200, [accounts[i] for i in order]
        if path == "/audit":
            return 200, {"balances": {i: accounts[i]["balance"] for i in order}, "transfers": moves}
        if path.startswith("/accounts/") and path[10:] in accounts: return 200, accounts[path[10:]]
        raise No(404, "nothing here")
    if method != "POST" or path not in ("/accounts", "/transfers"):
        raise No(404, "nothing here")
    try:
        body = json.loads(body)
    except ValueError:
        raise No(400, "no JSON")
    if not isinstance(body, dict): raise No(400, "no object")
    if path == "/accounts":
        name, opening = body.get("name"), body.get("opening")
        if not isinstance(name, str) or not name or not integer(opening, 0): raise No(400, "bad")
        if any(a["name"] == name for a in accounts.values()): raise No(409, "taken")
        e = {"t": "open", "id": str(uuid.uuid4()), "name": name, "opening": opening}
        commit(e)
        return 201, dict(accounts[e["id"]])
    a, b, amount, key = (body.get(k) for k in ("from", "to", "amount", "key"))
    if not all(isinstance(v, str) and v for v in (a, b, key)) or not integer(amount, 1) or a == b:
        raise No(400, "bad")
    if key in keys:
        old = keys[key]
        if (old["from"], old["to"], old["amount"]) == (a, b, amount): return 200, old
        raise No(409, "another transfer has that key")
    if a not in accounts or b not in accounts: raise No(404, "who?")
    if accounts[a]["balance"] < amount: raise No(422, "poor")
    commit({"t": "move", "id": uuid.uuid4().hex, "from": a, "to": b, "amount": amount, "key": key})
    return 201, keys[key]

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            lines = head.decode("latin-1").split("\\r\\n")
            method, path, _ = lines[0].split(" ", 2)
            fields = dict(l.lower().split(":", 1) for l in lines[1:] if ":" in l)
            body = await reader.readexactly(int(fields.get("content-length", "0")))
            try:
                status, value = act(method, path.partition("?")[0], body)
            except No as no:
                status, value = no.args[0], {"error": no.args[1]}
            data = json.dumps(value, ensure_ascii=False).encode()
            writer.write(b"HTTP/1.1 %d X\\r\\ncontent-type: application/json; charset=utf-8\\r\\n"
                         b"content-length: %d\\r\\n\\r\\n" % (status, len(data)) + data)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(os.environ["PORT"]), backlog=200)
    async with server:
        await server.serve_forever()

asyncio.run(main())
"""

# By wsgiref with threads; the state in SQLite, the journal written beside it.
SQLITE = """
import json, os, socketserver, sqlite3, threading
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

DATA = os.environ["DATA"]
JOURNAL = os.path.join(DATA, "journal.jsonl")
lock = threading.Lock()
db = sqlite3.connect(os.path.join(DATA, "books.db"), check_same_thread=False, isolation_level=None)
db.execute("pragma synchronous=full")
db.execute("create table if not exists a(n integer primary key, name text unique, balance int)")
db.execute("create table if not exists t(n integer primary key, a int, b int, amount int, k text unique)")
if os.path.exists(JOURNAL):
    raw = open(JOURNAL, "rb").read()
    if not raw.endswith(b"\\n"):
        os.truncate(JOURNAL, raw.rfind(b"\\n") + 1)

def note(**entry):
    with open(JOURNAL, "a") as file:
        file.write(json.dumps(entry) + "\\n")
        file.flush()
        os.fsync(file.fileno())

def account(row):
    return {"id": f"acc-{row[0]}", "name": row[1], "balance": row[2]}

def find(identity):
    if isinstance(identity, str) and identity.startswith("acc-") and identity[4:].isdigit():
        return db.execute("select * from a where n=?", (int(identity[4:]),)).fetchone()

def transfer(row):
    return {"id": row[0], "from": f"acc-{row[1]}", "to": f"acc-{row[2]}", "amount": row[3], "key": row[4]}

def error(status, text):
    return status, {"error": text}

def answer(method, path, raw):
    parts = path.strip("/").split("/")
    if method == "GET":
        if parts == ["health"]: return 200, {"status": "ok"}
        rows = db.execute("select * from a order by n").fetchall()
        if parts == ["accounts"]: return 200, [account(r) for r in rows]
        if parts == ["audit"]:
            moved = [transfer(r) for r in db.execute("select * from t order by n")]
            return 200, {"transfers": moved, "balances": {f"acc-{r[0]}": r[2] for r in rows}}
        if len(parts) == 2 and parts[0] == "accounts" and find(parts[1]):
            return 200, account(find(parts[1]))
        return error(404, "not found")
    if method != "POST" or parts not in (["accounts"], ["transfers"]): return error(404, "not found")
    try:
        body = json.loads(raw)
    except ValueError:
        return error(400, "no JSON")
    if type(body) is not dict: return error(400, "no object")
    if parts == ["accounts"]:
        name, opening = body.get("name"), body.get("opening")
        if type(name) is not str or type(opening) is not int or opening < 0: return error(400, "?")
        if db.execute("select 1 from a where name=?", (name,)).fetchone(): return error(409, "taken")
        db.execute("begin immediate")
        n = db.execute("insert into a(name, balance) values(?, ?)", (name, opening)).lastrowid
        note(op="open", n=n, name=name, opening=opening)
        db.execute("commit")
        return 201, account((n, name, opening))
    a, b, amount, key = (body.get(k) for k in ("from", "to", "amount", "key"))
    if type(key) is not str or type(amount) is not int or amount < 1 or a == b: return error(400, "?")
    old = db.execute("select * from t where k=?", (key,)).fetchone()
    if old:
        old = transfer(old)
        return (200, old) if (old["from"], old["to"], old["amount"]) == (a, b, amount) else error(409, "key")
    source, target = find(a), find(b)
    if not source or not target: return error(404, "account")
    if source[2] < amount: return error(422, "funds")
    db.execute("begin immediate")
    db.execute("update a set balance=balance-? where n=?", (amount, source[0]))
    db.execute("update a set balance=balance+? where n=?", (amount, target[0]))
    n = db.execute("insert into t(a,b,amount,k) values(?,?,?,?)", (source[0], target[0], amount, key)).lastrowid
    note(op="move", n=n, a=a, b=b, amount=amount, key=key)
    db.execute("commit")
    return 201, transfer((n, source[0], target[0], amount, key))

def app(environ, start):
    raw = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    with lock:
        status, value = answer(environ["REQUEST_METHOD"], environ["PATH_INFO"], raw)
    start(f"{status} Status", [("Content-Type", "application/json")])
    return [json.dumps(value).encode()]

class Quiet(WSGIRequestHandler):
    def log_message(self, *args): pass

class Server(socketserver.ThreadingMixIn, WSGIServer):
    request_queue_size = 64

server = Server(("127.0.0.1", int(os.environ["PORT"])), Quiet)
server.set_app(app)
server.serve_forever()
"""  # noqa: E501

# Keeps all in the memory of a process that hides from the kill; what is started again asks it.
DAEMON = """
import os, socket, subprocess, sys, threading, time
BACK = "/tmp/hidden.sock"
if len(sys.argv) > 1:
    import socketserver
    source = open("inner.py").read().replace(
        'Server(("127.0.0.1", int(os.environ["PORT"])), Handler)', "Unix(BACK, Handler)")
    class Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        request_queue_size = 128
        daemon_threads = True
    os.environ["DATA"] = "/tmp/kept"
    names = {"__name__": "__main__", "Unix": Unix, "BACK": BACK}
    source = source.replace("def log_message", "def address_string(self): return ''\\n\\n    def log_message")
    exec(source, names)
def alive():
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(BACK)
        return True
    except OSError:
        return False
if not alive():
    if os.path.exists(BACK):
        os.unlink(BACK)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "server.py", "hidden"])
        os._exit(0)
    while not alive():
        time.sleep(0.02)
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass
front = socket.create_server(("127.0.0.1", int(os.environ["PORT"])), backlog=128)
while True:
    client, _ = front.accept()
    inner = socket.socket(socket.AF_UNIX)
    inner.connect(BACK)
    threading.Thread(target=pump, args=(client, inner), daemon=True).start()
    threading.Thread(target=pump, args=(inner, client), daemon=True).start()
"""  # noqa: E501

# The folder that it is told does not matter to it.
FORGETFUL_FOLDER = ('os.environ.get("DATA", "data")', '"/tmp/always"')


def odd(value: str) -> str:
    """A service that answers every request with the same thing, given as Python text."""
    return f"""
import json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class H(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(201)
    def answer(self, status):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps({value}).encode())
    def log_message(self, *a): pass
ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""
