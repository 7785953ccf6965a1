"""Each attack is contained, and the next command works; against every backend that works here."""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import socket
import sys

import pytest
from sandbox_attacks import ATTACKS
from sandbox_backends import ISOLATING

from agentgym.sandbox import Limits, WorkspaceError, open_sandbox
from agentgym.sandbox.inside import seccomp

LIMITS = Limits(seconds=20.0, memory=256 << 20, disk=32 << 20, processes=48, files=3000)


@pytest.fixture(scope="module", params=ISOLATING)
def sandbox(request):
    with open_sandbox(request.param, limits=LIMITS) as opened:
        yield opened


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """What an attacker would like to have."""
    secret = secrets.token_hex(16)
    file = tmp_path_factory.mktemp("outside") / "secret"
    file.write_text(secret)
    os.environ["AGENTGYM_SECRET"] = secret
    listener, hidden = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    abstract = f"agentgym-{secret[:8]}"
    hidden.bind(f"\0{abstract}")
    hidden.listen()
    with listener, hidden:
        yield {
            "secret": secret,
            "secret_file": file,
            "port": listener.getsockname()[1],
            "abstract": abstract,
            "pid": os.getpid(),
            "source": os.path.abspath(__file__),
            "prefix": sys.base_prefix,
        }
    assert file.read_text() == secret
    del os.environ["AGENTGYM_SECRET"]


@pytest.fixture(scope="module")
def arena(sandbox):
    """One workspace for all attacks: what one leaves behind, the next command has to bear."""
    with sandbox.session() as session:
        yield session


@pytest.fixture(autouse=True)
def clean(arena):
    yield
    for entry in arena.list():
        arena.remove(entry.path)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_an_attack_is_contained(arena, outside, attack):
    result = arena.run(attack.argv(outside), limits=LIMITS.but(**attack.limits))
    assert re.fullmatch(attack.status, result.status), result
    assert re.fullmatch(attack.said, result.stdout.strip("\n")), result
    assert outside["secret"] not in result.stdout + result.stderr
    if attack.deadline is not None:
        assert result.deadline == attack.deadline
    after = arena.run(["/bin/echo", "next"])
    assert (after.status, after.stdout, after.restarted) == ("ok", "next\n", False)


def test_there_are_enough_attacks():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60


@pytest.mark.skipif(not seccomp.supported(), reason="no numbers of system calls for this machine")
def test_every_call_of_the_table_is_refused(sandbox):
    code = """
import ctypes, errno, json, sys
libc = ctypes.CDLL(None, use_errno=True)
out = {}
for name, number in json.loads(sys.argv[1]).items():
    result = libc.syscall(number, -1, -1, -1, -1, -1, -1)
    out[name] = errno.errorcode.get(ctypes.get_errno()) if result < 0 else "ALLOWED"
print(json.dumps(out))
"""
    numbers = seccomp.numbers(os.uname().machine)
    result = sandbox.run(code, args=[json.dumps(numbers)])
    assert set(json.loads(result.stdout).values()) == {"EPERM"}, result
    assert len(numbers) >= 50


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 is a matter of x86_64")
def test_the_other_numbers_of_the_same_calls_are_refused(sandbox):
    code = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(0x40000000 + 101, 0, 0, 0, 0), errno.errorcode[ctypes.get_errno()])
"""
    assert sandbox.run(code).stdout == "-1 ENOSYS\n"


def test_links_are_not_followed_from_outside(arena, outside):
    target = str(outside["secret_file"])
    arena.run(f"ln -s {target} file; ln -s / root; mkfifo pipe; mkdir in; ln -s .. in/out")
    for path in ("file", f"root{target}", "pipe", "in/out/file", "root", "../secret", target):
        with pytest.raises(WorkspaceError, match=r"link|pipe|outside|folder"):
            arena.read(path)
    arena.write("file", "mine")  # replaces the link, and not what it points to
    assert (arena.read("file"), arena.stat("file").kind) == (b"mine", "file")
    assert outside["secret_file"].read_text() == outside["secret"]
    with pytest.raises(WorkspaceError, match="link"):
        arena.write("root/tmp/evil", "x")
    arena.remove("root")
    snapshot = arena.snapshot()
    assert set(snapshot.files) == {"file"}
    assert set(snapshot.skipped) == {"pipe", "in/out"}


def test_the_background_dies_with_the_session(sandbox):
    with sandbox.session() as session:
        result = session.run(
            "(setsid sh -c 'while :; do date +%N >> beat; sleep 0.05; done' &) ; :"
        )
        assert result.left_over >= 1
        assert session.run("while ! test -s beat; do sleep 0.05; done; cat beat").stdout.strip()
        session.kill()
        before = session.read("beat")
        other = sandbox.run("import time; time.sleep(0.5)")
        assert other.ok
        assert session.read("beat") == before
        assert session.run("ps -e 2>/dev/null | grep -c date || ls /proc | grep -c '^[0-9]'").ok


def test_nothing_is_handed_on_between_one_shots(sandbox):
    plant = """
import os, pathlib
for folder in ("/box", "/tmp", "/dev/shm"):
    for name in ("conftest.py", "sitecustomize.py", "results.json"):
        pathlib.Path(folder, name).write_text("evil")
if os.fork() == 0:
    os.setsid()
    import time
    time.sleep(60)
"""
    assert sandbox.run(plant).ok
    look = "import os; print([os.listdir(f) for f in ('/box', '/tmp', '/dev/shm')], len([p for p in os.listdir('/proc') if p.isdigit()]))"  # noqa: E501
    assert sandbox.run(look).stdout == "[[], [], []] 2\n"


def test_what_another_wrote_is_not_in_memory(sandbox):
    """A fork has the memory of its parent: nothing of an earlier command may be in that."""
    mark = secrets.token_hex(12)
    assert sandbox.run(f"x = '{mark}'", files={"f": mark}, stdin=mark).ok
    code = """
import re, sys
half = sys.argv[1][::-1]
found = 0
for line in open("/proc/self/maps"):
    where, kind = line.split()[:2]
    if "r" not in kind or "[v" in line:
        continue
    low, high = (int(part, 16) for part in where.split("-"))
    with open("/proc/self/mem", "rb") as memory:
        memory.seek(low)
        try:
            found += memory.read(high - low).count(half.encode())
        except OSError:
            continue
print(found)
"""
    # It is given backwards, so that the search does not find itself.
    assert int(sandbox.run(code, args=[mark[::-1]]).stdout) <= 3


def test_what_the_kernel_counts_for_the_caller_is_left_to_it(sandbox):
    """Watches and timers of a user inside count for the one outside who made the namespace."""
    flood = """
import ctypes, time
libc, rt = ctypes.CDLL(None), ctypes.CDLL("librt.so.1")
watches = timers = 0
while watches < 10**4 and libc.inotify_init() >= 0:
    watches += 1
while timers < 10**5 and rt.timer_create(0, None, ctypes.byref(ctypes.c_void_p())) == 0:
    timers += 1
open("held.tmp", "w").write(f"{watches} {timers}")
import os; os.rename("held.tmp", "held"); time.sleep(600)
"""
    libc, rt = ctypes.CDLL(None), ctypes.CDLL("librt.so.1")
    with sandbox.session(files={"flood.py": flood}) as session:
        session.run("python3 -S flood.py", background=True)
        assert session.run("while ! test -e held; do sleep 0.02; done").ok
        watches, timers = map(int, session.read("held").split())
        assert timers <= 1024
        timer = ctypes.c_void_p()
        assert rt.timer_create(0, None, ctypes.byref(timer)) == 0
        rt.timer_delete(timer)
        if sandbox.backend == "namespaces" or os.geteuid() == 0:
            fd = libc.inotify_init()
            assert fd >= 0
            os.close(fd)
        if sandbox.backend == "namespaces":
            assert watches <= 16
            code = "import ctypes; print(ctypes.CDLL(None).inotify_init() >= 0)"
            assert sandbox.run(code).stdout == "True\n"
