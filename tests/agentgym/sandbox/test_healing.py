"""What is killed comes back, what is left behind is nothing, and forks of the caller are safe."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from processes import run_ok
from sandbox_backends import ALL, ISOLATING

from agentgym.sandbox import SandboxError, Status, open_sandbox

warm = pytest.mark.skipif("namespaces" not in ISOLATING, reason="namespaces do not work here")


def _children() -> set[int]:
    """Every process below this one."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path("/proc", name, "stat").read_text()
            except OSError:
                continue
            parents[int(name)] = int(text.rpartition(")")[2].split()[1])
    below, found = {os.getpid()}, True
    while found:
        found = {pid for pid, parent in parents.items() if parent in below} - below
        below |= found
    return below - {os.getpid()}


def _runs(mark: str) -> bool:
    """Whether there is a process, anywhere, with this in its command line."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in line.read_bytes():
                return True
        except OSError:
            continue
    return False


def _until(condition):
    """Wait for what other processes do, as long as a loaded machine may take."""
    for _ in range(1200):
        if condition():
            return True
        time.sleep(0.05)
    return False


@warm
@pytest.mark.parametrize("times", [1, 3])
def test_a_killed_fork_server_is_healed(times):
    with open_sandbox("namespaces") as sandbox, sandbox.session() as session:
        session.run("echo 1 > x")
        for _ in range(times):
            (pid,) = sandbox._backend.processes
            os.kill(pid, signal.SIGKILL)
            assert sandbox.run("print(1)").stdout == "1\n"
        assert session.run("cat x").stdout == "1\n"


@warm
def test_a_killed_warm_sandbox_is_healed():
    with open_sandbox("namespaces") as sandbox:
        for _ in range(2):
            sandbox._backend._warm.kill()
            assert sandbox.run("print(2)").stdout == "2\n"


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_left_behind(name, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    mark = f"{os.getpid()}{ALL.index(name)}"
    before, fds = _children(), set(os.listdir("/proc/self/fd"))
    sandbox = open_sandbox(name)
    for _ in range(3):
        sandbox.run("import os, time\nif os.fork() == 0: os.setsid(); time.sleep(600)")
        session = sandbox.session(files={"x": "1"})
        session.run(f"(setsid sleep 600.{mark} &); sleep 600.{mark} &", background=True)
        session.run("mkdir -p a/b; chmod 000 a; ln -s / l", report=True)
    open_fds = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        sandbox.run("1", report=True)
    assert len(os.listdir("/proc/self/fd")) <= open_fds + 3  # a spare one may be there or not
    sandbox.close()
    sandbox.close()
    with pytest.raises(SandboxError, match="closed"):
        sandbox.run("1")
    with pytest.raises(SandboxError, match="closed"):
        sandbox.session()
    assert os.listdir(tmp_path) == []
    assert set(os.listdir("/proc/self/fd")) <= fds | {str(max(map(int, fds)) + 1)}
    assert _until(lambda: _children() <= before), _children() - before
    assert _until(lambda: not _runs(f"600.{mark}"))


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_left_of_what_nobody_closed(name, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    mark = f"{os.getpid()}{ALL.index(name)}"
    before, fds = _children(), len(os.listdir("/proc/self/fd"))
    sandbox = open_sandbox(name)
    session = sandbox.session(files={"x": "1"})
    session.run(f"sleep 601.{mark} &")
    assert _runs(f"601.{mark}")
    del session
    gc.collect()
    assert os.listdir(tmp_path) == []
    assert _until(lambda: not _runs(f"601.{mark}"))
    assert sandbox.session().run("echo next").stdout == "next\n"
    del sandbox
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == fds
    assert _until(lambda: _children() <= before), _children() - before


def test_nothing_is_left_at_the_end_of_a_caller_who_closes_nothing(tmp_path):
    code = f"""
import os
from agentgym.sandbox import open_sandbox
sandbox = open_sandbox({ALL[0]!r})
session = sandbox.session(files={{"x": "1"}})
session.run("sleep 600 &")
if os.fork() == 0:
    raise SystemExit  # the child's end is not the parent's
os.wait()
print(session.run("cat x").stdout)
"""
    assert run_ok(code, TMPDIR=str(tmp_path)) == "1"
    assert os.listdir(tmp_path) == []


def test_folders_of_a_killed_caller_are_swept(monkeypatch, tmp_path):
    code = f"""
import os, signal
from agentgym.sandbox import open_sandbox
session = open_sandbox({ALL[0]!r}).session(files={{"x": "1"}})
session.run("mkdir -p a/b; ln -s / l; chmod 000 a")
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env=os.environ | {"TMPDIR": str(tmp_path)})  # fmt: skip
    assert done.stdout == "ready\n", done.stderr
    (left,) = tmp_path.iterdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    with open_sandbox(ALL[0]) as sandbox, sandbox.session(files={"x": "2"}) as session:
        assert left.exists()  # so young a folder may be about to be used
        for folder in tmp_path.iterdir():
            os.utime(folder, (0, 0))
        with open_sandbox(ALL[0]):
            assert _until(lambda: not left.exists() or open_sandbox(ALL[0]).close())
        assert session.run("cat x").stdout == "2"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ALL)
def test_all_of_it_dies_with_a_killed_caller(name, tmp_path):
    marker = f"agentgym-{os.getpid()}-{name}"
    code = f"""
import os, signal
from agentgym.sandbox import open_sandbox
sandbox = open_sandbox({name!r})
session = sandbox.session()
session.run(["sh", "-c", "exec -a {marker} sleep 600 || sleep 600", "{marker}"], background=True)
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env=os.environ | {"TMPDIR": str(tmp_path)})  # fmt: skip
    assert (done.stdout, done.returncode) == ("ready\n", -signal.SIGKILL), done.stderr

    assert _until(lambda: not _runs(marker))


def test_a_forked_child_starts_anew():
    name = ALL[0]
    code = f"""
import os
from agentgym.sandbox import SandboxError, shared_sandbox
parent = shared_sandbox({name!r})
session = parent.session(files={{"x": "1"}})
print(parent.run("print('parent')").stdout, end="", flush=True)
pid = os.fork()
if pid == 0:
    try:
        parent.run("1")
    except SandboxError as error:
        print(error, flush=True)
    print(shared_sandbox({name!r}).run("print('child')").stdout, end="", flush=True)
    shared_sandbox({name!r}).close()
    os._exit(0)
os.waitpid(pid, 0)
print(parent.run("print('parent again')").stdout, session.read("x").decode(), sep="")
"""
    assert run_ok(code).splitlines() == [
        "parent", "the sandbox is closed", "child", "parent again", "1"
    ]  # fmt: skip


@warm
def test_a_thread_that_ends_takes_nothing_with_it():
    """A parent-death signal would be sent when the thread that started a process ends."""
    with open_sandbox("namespaces") as sandbox:
        held = []
        thread = threading.Thread(target=lambda: held.append(sandbox.session()))
        thread.start()
        thread.join()
        starter = threading.Thread(target=lambda: held[0].run("echo 1 > x"))
        starter.start()
        starter.join()
        assert held[0].alive
        result = held[0].run("cat x")
        assert (result.stdout, result.restarted, result.status) == ("1\n", False, Status.OK)


def test_importing_costs_little():
    code = (
        "import sys, agentgym.sandbox; "
        "print(sorted({'ctypes', 'docker', 'asyncio.tasks', 'http'} & set(sys.modules)))"
    )
    assert "docker" not in run_ok(code)
