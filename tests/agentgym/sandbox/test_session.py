"""Workspaces: commands that share a folder, background, budgets, files, snapshots."""

from __future__ import annotations

import asyncio
import os
import pickle
import time

import pytest
from sandbox_backends import ALL, ISOLATING

from agentgym.sandbox import Limits, SandboxError, Snapshot, Status, WorkspaceError, open_sandbox


@pytest.fixture(scope="module", params=ALL)
def sandbox(request):
    with open_sandbox(request.param, limits=Limits(seconds=60.0)) as opened:
        yield opened


@pytest.fixture
def session(sandbox):
    with sandbox.session(files={"a.txt": "alpha", "sub/b.bin": b"\0\xff"}) as opened:
        yield opened


# Commands ---------------------------------------------------------------------------------------


def test_files_last_over_commands(session):
    assert session.run("cat a.txt; pwd > where; wc -c < sub/b.bin").stdout.split() == ["alpha2"]
    assert session.run(["cat", "a.txt"], cwd="sub/..").stdout == "alpha"
    assert session.run("ls", cwd="sub").stdout == "b.bin\n"
    assert session.run("cat", stdin="typed").stdout == "typed"
    assert session.run("echo $X", env={"X": "y z"}).stdout == "y z\n"
    assert session.read("a.txt") == b"alpha"


def test_a_server_in_the_background_is_there_for_the_next_command(session):
    code = (
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\n"
        "open('port.tmp', 'w').write(str(s.getsockname()[1]))\n"
        "import os; os.rename('port.tmp', 'port')\n"
        "while True:\n c, _ = s.accept(); c.sendall(b'served'); c.close()"
    )
    started = session.run(["python3", "-c", code], background=True)
    assert (started.running, started.job) == (True, 1)
    ask = (
        "import os, socket, time\nwhile not os.path.exists('port'): time.sleep(0.01)\n"
        "print(socket.create_connection(('127.0.0.1', int(open('port').read()))).recv(9))"
    )
    assert session.run(["python3", "-c", ask]).stdout == "b'served'\n"
    slow = session.run("sleep 600", limits=Limits(seconds=0.3))
    assert (slow.status, slow.deadline) == (Status.TIMEOUT, "command")
    assert session.output(started.job).running  # a deadline of another command is not its own
    assert session.run(["python3", "-c", ask]).stdout == "b'served'\n"


def test_output_of_the_background(session):
    job = session.run("echo begun; echo err >&2; touch done; exit 5", background=True).job
    session.run("while ! test -e done; do sleep 0.01; done; sleep 0.1")
    for _ in range(600):
        result = session.output(job)
        if not result.running:
            break
        time.sleep(0.05)
    assert (result.stdout, result.stderr, result.exit_code) == ("begun\n", "err\n", 5)
    with pytest.raises(SandboxError, match="no background command 99"):
        session.output(99)


def test_what_is_left_over_is_counted(session):
    assert session.run("sleep 600 & echo started").left_over == 1
    assert session.run("true").left_over == 0


def test_the_episode_has_a_budget(sandbox):
    with sandbox.session(episode_seconds=1.5) as session:
        assert session.run("true").status is Status.OK
        over = session.run("sleep 600")
        assert (over.status, over.deadline) == (Status.TIMEOUT, "episode")
        assert "episode deadline" in over.message
        after = session.run("echo never > file")
        assert (after.status, after.deadline, session.seconds_left) == ("timeout", "episode", 0.0)
        assert session.stat("file") is None
        # The files are still to be had.
        session.write("late", "x")
        assert session.read("late") == b"x"


@pytest.mark.parametrize("seconds", [1e7, 1e12])
def test_a_deadline_may_be_far_away(sandbox, seconds):
    limits = Limits(seconds=seconds)
    assert sandbox.run("print(1)", limits=limits).stdout == "1\n"
    with sandbox.session(limits=limits, episode_seconds=seconds) as session:
        assert session.run("echo 1").stdout == "1\n"


def test_the_nearer_deadline_is_named(sandbox):
    with sandbox.session(episode_seconds=600.0) as session:
        result = session.run("sleep 600", limits=Limits(seconds=0.3))
        assert result.deadline == "command"


def test_a_killed_sandbox_is_healed_and_the_files_are_kept(session):
    session.run("echo 1 > kept; sleep 600 &")
    session._engine.handle.kill()
    again = session.run("cat kept; cat a.txt")
    assert (again.stdout, again.restarted, again.status) == ("1\nalpha", True, Status.OK)
    assert session.run("true").restarted is False


def test_asyncio(session):
    async def play():
        return await asyncio.gather(*(session.arun(f"echo {i}") for i in range(3)))

    assert [result.stdout for result in asyncio.run(play())] == ["0\n", "1\n", "2\n"]


def test_closing_ends_everything(sandbox):
    session = sandbox.session(files={"x": "1"})
    session.run("sleep 600", background=True)
    folder = session._workspace.folder
    session.close()
    session.close()
    with pytest.raises(SandboxError, match="closed"):
        session.run("true")
    assert not os.path.exists(os.path.dirname(folder))


def test_wrong_arguments(session, sandbox):
    with pytest.raises(WorkspaceError, match="outside"):
        session.run("true", cwd="..")
    with pytest.raises(SandboxError, match="mounts"):
        sandbox.session(mounts={"relative": "/usr"})
    with pytest.raises(SandboxError, match="does not exist"):
        sandbox.session(mounts={"/corpus": "/no/such/place"})
    with pytest.raises(SandboxError, match="/proc"):
        sandbox.session(mounts={"/proc/x": "/usr"})
    with pytest.raises(SandboxError, match="episode_seconds"):
        sandbox.session(episode_seconds=0)
    nowhere = session.run("true", cwd="no/such")
    assert nowhere.status is Status.ERROR
    assert "No such file" in nowhere.stderr


@pytest.mark.parametrize("name", ISOLATING)
def test_mounts_are_read_only(name, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "page").write_text("text")
    with (
        open_sandbox(name, mounts={"/corpus": str(tmp_path / "corpus")}) as sandbox,
        sandbox.session(mounts={"/page": str(tmp_path / "corpus" / "page")}) as session,
    ):
        result = session.run("cat /corpus/page /page; echo x > /corpus/new || echo x > /page")
        assert result.stdout == "texttext"
        assert result.status is Status.ERROR
        assert sandbox.run("print(open('/corpus/page').read())").stdout == "text\n"
    assert (tmp_path / "corpus" / "page").read_text() == "text"


# Files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("..", "outside"), ("sub/../../x", "outside"), ("/etc/passwd", "outside"),
        ("/boxer/x", "outside"), ("a\0b", "not a path"), ("x" * 300, "too long"),
        ("missing", "No such file"), ("a.txt/b", "no folder"), ("sub", "folder"), (".", "folder"),
    ],
)  # fmt: skip
def test_paths_that_cannot_be_read(session, path, message):
    with pytest.raises(WorkspaceError, match=message):
        session.read(path)


def test_reading_and_writing(session):
    session.write("/box/new/deep/file", "ä")
    assert session.read("new/deep/file") == "ä".encode()
    assert session.read("new/./deep/../deep/file", limit=1) == b"\xc3"
    session.run("chmod 750 a.txt; echo more >> new/deep/file")
    session.write("a.txt", "beta")
    assert session.run("cat a.txt; stat -c %a a.txt").stdout == "beta750\n"
    with pytest.raises(WorkspaceError, match="folder"):
        session.write("sub", "x")
    with pytest.raises(WorkspaceError, match="may hold"):
        session.write("x", bytes(300 << 20))
    session.remove("new")
    with pytest.raises(WorkspaceError, match="No such file"):
        session.remove("new")
    with pytest.raises(WorkspaceError, match="itself"):
        session.remove(".")


def test_listing(session):
    session.run("ln -s a.txt link; mkfifo pipe; mkdir -p empty; chmod 755 a.txt")
    assert [(e.path, e.kind, e.size) for e in session.list()] == [
        ("a.txt", "file", 5), ("empty", "folder", 0), ("link", "link", 0), ("pipe", "other", 0),
        ("sub", "folder", 0),
    ]  # fmt: skip
    assert [e.path for e in session.list(recursive=True)][-1] == "sub/b.bin"
    assert [e.path for e in session.list("sub")] == ["sub/b.bin"]
    assert len(session.list(recursive=True, most=2)) == 2
    assert session.stat("a.txt").mode == 0o755
    assert session.stat("missing") is None
    with pytest.raises(WorkspaceError):
        session.list("link")
    size, count = session.usage()
    assert (size >= 0, count) == (True, 6)


def test_snapshots(sandbox, session):
    session.run("chmod +x a.txt; mkdir -p empty/inner; ln -s a.txt link; sleep 600 &")
    taken = session.snapshot()
    assert dict(taken.files) == {"a.txt": b"alpha", "sub/b.bin": b"\0\xff"}
    assert taken.folders == ("empty", "empty/inner", "sub")
    assert taken.executable == {"a.txt"}
    assert taken.skipped == {"link": "a link, which is not followed"}
    assert pickle.loads(pickle.dumps(taken)).digest() == taken.digest()
    with sandbox.session(files=taken) as copy:
        assert copy.snapshot().digest() == taken.digest()
        assert copy.run("./a.txt 2>/dev/null || cat a.txt; echo changed > a.txt").ok
        assert copy.snapshot().digest() != taken.digest()
        copy.restore(taken)
        assert copy.snapshot().digest() == taken.digest()
    assert session.read("a.txt") == b"alpha"
    with pytest.raises(WorkspaceError, match="more than 3 bytes"):
        session.snapshot(max_bytes=3)
    with pytest.raises(WorkspaceError, match="more than 2 files"):
        session.snapshot(max_files=2)


def test_digests_tell_contents_apart():
    one, other = Snapshot({"a": b"bc"}), Snapshot({"ab": b"c"})
    assert one.digest() != other.digest()
    assert one.digest() != Snapshot({"a": b"bc"}, executable=frozenset({"a"})).digest()
    assert one.digest() == Snapshot({"a": b"bc"}).digest()


def test_a_full_workspace_can_be_cleaned_up(sandbox):
    limits = Limits(seconds=60.0, disk=4 << 20)
    with sandbox.session(limits=limits) as session:
        full = session.run("for i in 1 2 3 4 5 6; do head -c 3M /dev/zero > f$i; done; sleep 600")
        assert full.status is Status.DISK
        assert "workspace" in full.message
        assert session.run("sleep 0.5; rm f*; ls").ok
        assert session.list() == []


# Each of these goes wrong only when no command runs.
_LATER = "while ! test -e go; do sleep 0.02; done"


def _idle_until(condition):
    for _ in range(1200):
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("background", [False, True])
def test_the_disk_is_looked_after_between_commands(sandbox, background):
    fill = f"{_LATER}; for i in $(seq 400); do head -c 1M /dev/zero > f$i; sleep 0.02; done"
    command = fill if background else f"({fill}) > /dev/null 2>&1 &"
    with sandbox.session(limits=Limits(seconds=60.0, disk=16 << 20)) as session:
        job = session.run(command, background=background).job
        session.write("go", "")
        assert _idle_until(lambda: session.usage()[0] > 16 << 20)
        if background:
            assert _idle_until(lambda: not session.output(job).running)
            assert session.output(job).status is Status.DISK
        else:
            time.sleep(1.0)
            after = session.run("rm f*; echo next")
            assert (after.status, after.stdout) == ("ok", "next\n")
            assert "filled the workspace and was killed" in after.message
        assert session.usage()[0] < 100 << 20
        assert session.run("sleep 0.3; echo next").stdout == "next\n"


def test_memory_is_looked_after_between_commands(sandbox):
    code = (
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0: break\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
        "x = bytearray(60 << 20); open(f'done{os.getpid()}', 'w').close(); time.sleep(600)"
    )
    limits = Limits(seconds=60.0, memory=128 << 20, address_space=0)
    with sandbox.session(files={"x.py": code}, limits=limits) as session:
        started = session.run("python3 x.py > /dev/null 2>&1 &")
        assert started.left_over >= 1
        session.write("go", "")
        time.sleep(2.0)
        after = session.run("sleep 0.3; echo next")
        assert (after.status, after.stdout) == ("ok", "next\n")
        assert "held too much memory and was killed" in after.message
        again = session.run("sleep 0.3; echo next")
        assert (again.stdout, again.message) == ("next\n", "ended with exit code 0")


def test_one_who_fills_the_disk_again_and_again_is_found(sandbox):
    fill = "while :; do head -c 1M /dev/zero >> f$((i=i+1)); sleep 0.02; done > /dev/null 2>&1 &"
    with sandbox.session(limits=Limits(seconds=60.0, disk=8 << 20)) as session:
        session.run(fill)
        seen = [session.run("sleep 0.5").status for _ in range(12)]
        assert seen[-1] is Status.OK
        size = session.usage()[0]
        assert session.run("sleep 0.5").ok
        assert session.usage()[0] == size


def test_who_did_not_fill_the_disk_lives_on(sandbox):
    fill = "for i in 1 2 3 4 5 6; do head -c 3M /dev/zero > f$i; done; sleep 600"
    with sandbox.session(limits=Limits(seconds=60.0, disk=8 << 20)) as session:
        assert session.run("sleep 601 > /dev/null 2>&1 &").left_over == 1
        for _ in range(3):
            full = session.run(fill)
            assert (full.status, "earlier commands" in full.message) == (Status.DISK, False)
            assert session.run("rm f*; sleep 0.5").ok
        assert "earlier commands" not in session.run("true").message


def test_what_lies_deep_is_counted(sandbox):
    deep = "i=0; while [ $i -lt 150 ]; do mkdir d && cd d || exit; i=$((i+1)); done"
    with sandbox.session(limits=Limits(seconds=60.0, disk=8 << 20)) as session:
        assert session.run(f"{deep}; sleep 600").status is Status.DISK
        again = "i=0; while [ $i -lt 150 ]; do cd d; i=$((i+1)); done"
        full = session.run(f"{again}; head -c 7M /dev/zero > a; sleep 1; head -c 7M /dev/zero > b; "
                           "sleep 600")  # fmt: skip
        assert full.status is Status.DISK


def test_a_report_that_never_ends_is_cut(sandbox):
    with sandbox.session() as session:
        result = session.run("(yes >&3) > /dev/null 2>&1 & sleep 0.5", report=True)
        assert result.ok
        assert 0 < len(result.report) <= 1 << 20
        assert session.run("echo next").stdout == "next\n"


def test_an_unreadable_workspace_can_be_used(sandbox):
    with sandbox.session(files={"a": "1"}) as session:
        assert session.run('chmod 000 "$PWD"').ok
        assert session.run("cat a").stdout == "1"
        assert session.run('chmod 000 "$PWD"').ok
        assert session.snapshot().files == {"a": b"1"}


def test_hostile_trees_are_removed(sandbox):
    with sandbox.session() as session:
        session.run("mkdir -p u/v; touch u/v/w; chmod 000 u/v u")
        deep = "while [ $i -lt 150 ]; do mkdir d && cd d || exit; i=$((i+1)); done; touch x"
        nested = session.run(f"i=0; {deep}; sleep 600")
        assert nested.status is Status.DISK  # it cannot be looked after
        snapshot = session.snapshot()
        assert any("deeper" in reason for reason in snapshot.skipped.values())
        assert session.usage()[1] > 1 << 40
        session.remove("d")
        session.remove("u")
        assert session.list() == []
