"""A ledger over HTTP: transfers happen once, and what was answered is on disk."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Refused(Exception):
    """A request that is turned down, with the status to answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Ledger:
    """Accounts and transfers; the journal is the truth, and the rest follows from it."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self.lock = threading.Lock()
        self.accounts: dict[str, dict[str, Any]] = {}
        self.transfers: list[dict[str, Any]] = []
        self.keys: dict[str, dict[str, Any]] = {}
        path = os.path.join(folder, "journal.jsonl")
        good = 0
        if os.path.exists(path):
            with open(path, "rb") as file:
                for line in file:
                    try:
                        entry = json.loads(line) if line.endswith(b"\n") else None
                    except ValueError:
                        entry = None
                    if entry is None:
                        break  # torn by a crash: nobody was told of it
                    self.apply(entry)
                    good += len(line)
        self.journal = open(path, "ab")  # noqa: SIM115 - open as long as the service runs
        self.journal.truncate(good)

    def apply(self, entry: dict[str, Any]) -> None:
        """Let an entry of the journal take effect."""
        if entry["kind"] == "account":
            account = {name: entry[name] for name in ("id", "name", "balance")}
            self.accounts[account["id"]] = account
            return
        self.accounts[entry["from"]]["balance"] -= entry["amount"]
        self.accounts[entry["to"]]["balance"] += entry["amount"]
        transfer = {name: entry[name] for name in ("id", "from", "to", "amount", "key")}
        self.transfers.append(transfer)
        self.keys[entry["key"]] = transfer

    def write(self, entry: dict[str, Any]) -> None:
        """Put an entry on disk; only then it takes effect."""
        self.journal.write(json.dumps(entry).encode() + b"\n")
        self.journal.flush()
        os.fsync(self.journal.fileno())
        self.apply(entry)

    def open_account(self, body: dict[str, Any]) -> tuple[int, Any]:
        """Open an account."""
        name, opening = body.get("name"), body.get("opening", 0)
        if not isinstance(name, str) or not name or type(opening) is not int or opening < 0:
            raise Refused(400, "name must be a text and opening an integer >= 0")
        if any(account["name"] == name for account in self.accounts.values()):
            raise Refused(409, "the name is taken")
        identity = f"a{len(self.accounts) + 1}"
        self.write({"kind": "account", "id": identity, "name": name, "balance": opening})
        return 201, self.accounts[identity]

    def transfer(self, body: dict[str, Any]) -> tuple[int, Any]:
        """Move money once."""
        source, target, amount, key = (body.get(n) for n in ("from", "to", "amount", "key"))
        if not isinstance(key, str) or not key or type(amount) is not int or amount <= 0:
            raise Refused(400, "key must be a text and amount an integer > 0")
        if not isinstance(source, str) or not isinstance(target, str) or source == target:
            raise Refused(400, "from and to must be two accounts")
        known = self.keys.get(key)
        if known is not None:
            if (known["from"], known["to"], known["amount"]) != (source, target, amount):
                raise Refused(409, "the key was used for another transfer")
            return 200, known
        if source not in self.accounts or target not in self.accounts:
            raise Refused(404, "no such account")
        if self.accounts[source]["balance"] < amount:
            raise Refused(422, "not enough money")
        entry = {"kind": "transfer", "id": f"t{len(self.transfers) + 1}", "from": source}
        self.write({**entry, "to": target, "amount": amount, "key": key})
        return 201, self.keys[key]


class Handler(BaseHTTPRequestHandler):
    """Requests to calls of the ledger."""

    ledger: Ledger

    def do_GET(self) -> None:
        """Answer what asks."""
        ledger = self.ledger
        with ledger.lock:
            parts = self.path.strip("/").split("/")
            if parts == ["health"]:
                self.reply(200, {"status": "ok"})
            elif parts == ["accounts"]:
                self.reply(200, list(ledger.accounts.values()))
            elif len(parts) == 2 and parts[0] == "accounts" and parts[1] in ledger.accounts:
                self.reply(200, ledger.accounts[parts[1]])
            elif parts == ["audit"]:
                balances = {name: a["balance"] for name, a in ledger.accounts.items()}
                self.reply(200, {"transfers": ledger.transfers, "balances": balances})
            else:
                self.reply(404, {"error": "not found"})

    def do_POST(self) -> None:
        """Do what changes something."""
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        acts = {"/accounts": self.ledger.open_account, "/transfers": self.ledger.transfer}
        if self.path not in acts:
            self.reply(404, {"error": "not found"})
            return
        try:
            body = json.loads(data)
            if not isinstance(body, dict):
                raise Refused(400, "the body must be an object")
            with self.ledger.lock:
                status, answer = acts[self.path](body)
        except Refused as refused:
            self.reply(refused.status, {"error": str(refused)})
        except ValueError:
            self.reply(400, {"error": "the body is no JSON"})
        else:
            self.reply(status, answer)

    def reply(self, status: int, value: Any) -> None:
        """Answer with JSON."""
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """A server with room for a crowd."""

    request_queue_size = 128
    daemon_threads = True


if __name__ == "__main__":
    Handler.ledger = Ledger(os.environ.get("DATA", "data"))
    Server(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
