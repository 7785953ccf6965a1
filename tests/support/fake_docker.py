"""An engine that speaks enough of Docker's HTTP interface, and runs containers by bubblewrap.

What is tested with it is what the client sends and how it takes the answers. It says nothing about
how well a real engine isolates.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socketserver
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

__all__ = ["FakeEngine", "interpreter"]

_USER = 61234


def interpreter() -> str | None:
    """An interpreter that another user may run, too; containers here have the machine's files."""
    drop: dict[str, Any] = {"user": _USER, "group": _USER, "extra_groups": []}
    for candidate in ("/usr/local/bin/python3", "/usr/bin/python3"):
        check = [candidate, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            done = subprocess.run(check, cwd="/", **(drop if os.geteuid() == 0 else {}))
        except OSError:
            continue
        if done.returncode == 0:
            return candidate
    return None


class FakeEngine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """The engine; its address is ``address``, what it was asked to create is in ``created``.

    Args:
        images: The images that it has.
        leak: Folder of this machine that every container sees, though nobody asked for it.
    """

    daemon_threads = True

    def __init__(self, images: tuple[str, ...], leak: str | None = None) -> None:
        self.leak = leak
        self.folder = tempfile.mkdtemp(prefix="engine-")
        os.chmod(self.folder, 0o755)
        super().__init__(os.path.join(self.folder, "docker.sock"), _Handler)
        self.address = f"unix://{self.folder}/docker.sock"
        self.images = images
        self.created: dict[str, dict[str, Any]] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.removed: list[str] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def start(self, name: str) -> None:
        config = self.created[name]
        host = config["HostConfig"]
        line = ["bwrap", "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
        for top in ("/bin", "/sbin", "/lib", "/lib64"):
            if os.path.islink(top):
                line += ["--symlink", os.readlink(top), top]
            elif os.path.isdir(top):
                line += ["--ro-bind", top, top]
        for target, options in host["Tmpfs"].items():
            size = re.search(r"size=(\d+)", options)
            line += ["--perms", "1777", "--size", size[1] if size else "1048576"]
            line += ["--tmpfs", target]
        for bind in host["Binds"]:
            source, target, mode = bind.split(":")
            if mode == "ro" and os.path.isfile(os.path.join(source, "fork_server.py")):
                source = shutil.copytree(source, os.path.join(self.folder, name))
            else:
                os.chmod(os.path.dirname(source), 0o711 | os.stat(os.path.dirname(source)).st_mode)
            line += ["--bind" if mode == "rw" else "--ro-bind", source, target]
        if self.leak is not None:
            line += ["--ro-bind", self.leak, self.leak]
        line += ["--unshare-all", "--unshare-user", "--as-pid-1", "--clearenv"]
        for entry in config["Env"]:
            line += ["--setenv", *entry.split("=", 1)]
        python = interpreter()
        assert python is not None
        line += ["--chdir", config["WorkingDir"], "--", python, *config["Cmd"][1:]]
        drop: dict[str, Any] = {"user": _USER, "group": _USER, "extra_groups": []}
        self.running[name] = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            **(drop if os.geteuid() == 0 else {}),
        )

    def remove(self, name: str) -> None:
        process = self.running.pop(name, None)
        if process is not None:
            # The container's first process is bubblewrap's child; bubblewrap ends after it.
            subprocess.run(["pkill", "-9", "-P", str(process.pid)], check=False)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20.0)
            process.kill()
            process.wait()
        self.removed.append(name)

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        for name in list(self.running):
            self.remove(name)
        shutil.rmtree(self.folder, ignore_errors=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeEngine

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        return

    def _reply(self, status: int, data: Any = None) -> None:
        body = b"" if data is None else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _path(self) -> list[str]:
        path = self.path.partition("?")[0].strip("/").split("/")
        return path[1:] if path[0].startswith("v1.") else path

    def do_GET(self) -> None:
        path = self._path()
        if path == ["_ping"]:
            self._reply(200, "OK")
        elif path == ["version"]:
            self._reply(200, {"ApiVersion": "1.44", "MinAPIVersion": "1.24", "Version": "fake"})
        elif path[0] == "containers" and path[2] == "json" and path[1] in self.server.created:
            self._reply(
                200, {"Id": path[1], "Name": path[1], "State": {}, "Config": {"Tty": False}}
            )
        elif path[0] == "containers" and path[2] == "logs":
            self._reply(200, "")
        else:
            self._reply(404, {"message": f"no such thing: {self.path}"})

    def do_POST(self) -> None:
        path = self._path()
        size = int(self.headers.get("Content-Length") or 0)
        data = json.loads(self.rfile.read(size) or b"{}")
        if path == ["containers", "create"]:
            if data["Image"] not in self.server.images:
                self._reply(404, {"message": f"No such image: {data['Image']}"})
                return
            name = f"c{len(self.server.created)}"
            self.server.created[name] = data
            self._reply(201, {"Id": name, "Warnings": []})
        elif path[0] == "containers" and path[2] == "start":
            self.server.start(path[1])
            self._reply(204)
        else:
            self._reply(404, {"message": f"no such thing: {self.path}"})

    def do_DELETE(self) -> None:
        path = self._path()
        self.server.remove(path[1])
        self._reply(204)
