"""The Docker backend against a fake engine, at the HTTP boundary of Docker's own client."""

from __future__ import annotations

import json
import os
import tempfile

import pytest
from fake_docker import FakeEngine, interpreter
from sandbox_backends import ISOLATING

from agentgym.sandbox import Level, Limits, SandboxError, SandboxUnavailable, open_sandbox

pytest.importorskip("docker.errors", reason="the package docker is not installed")
RUNS = "bwrap" in ISOLATING and interpreter() is not None
runs = pytest.mark.skipif(not RUNS, reason="the fake engine needs a bubblewrap that works")


@pytest.fixture
def engine(monkeypatch):
    fake = FakeEngine(images=("python:3.11-slim", "mine"))
    monkeypatch.setenv("DOCKER_HOST", fake.address)
    yield fake
    fake.stop()


def test_without_an_engine_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    with pytest.raises(SandboxUnavailable, match="docker: no engine answers"):
        open_sandbox("docker")


def test_without_the_image_it_says_so(engine, monkeypatch):
    monkeypatch.setenv("AGENTGYM_DOCKER_IMAGE", "other")
    with pytest.raises(SandboxUnavailable, match="No such image: other"):
        open_sandbox("docker")
    assert engine.created == {}


@runs
def test_what_a_container_may_do(engine):
    with open_sandbox("docker", minimum=Level.PARTIAL, limits=Limits(disk=1 << 22)) as sandbox:
        assert sandbox.backend == "docker"
        with sandbox.session(mounts={"/corpus": "/usr/share"}) as session:
            assert session.run("true").ok
        configs = list(engine.created.values())
    for config in configs:
        host = config["HostConfig"]
        assert host["NetworkMode"] == "none"
        assert host["ReadonlyRootfs"] is True
        assert host["CapDrop"] == ["ALL"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["AutoRemove"] is True
        assert host["PidsLimit"] > 0
        assert host["Memory"] == host["MemorySwap"] > 0
        assert "size=4194304" in host["Tmpfs"]["/tmp"]
        assert config["User"].split(":")[0] not in ("", "0", "root")
        assert config["Labels"] == {"agentgym.sandbox": str(os.getpid())}
        assert not any("SECRET" in entry or "TOKEN" in entry for entry in config["Env"])
        assert [bind for bind in host["Binds"] if bind.endswith(":rw")] in (
            [],
            [f"{session._workspace.folder}:/box:rw"],
        )
    assert "/usr/share:/corpus:ro" in configs[-1]["HostConfig"]["Binds"]
    assert "/box" in configs[0]["HostConfig"]["Tmpfs"]  # a one-shot has no folder outside
    assert sorted(engine.removed) == sorted(engine.created)
    assert json.dumps(sandbox.describe())


@runs
def test_commands(engine):
    with open_sandbox("docker", minimum=Level.PARTIAL) as sandbox:
        result = sandbox.run("import sys; print(sys.stdin.read(), open('a').read())", stdin="in",
                             files={"a": "file"})  # fmt: skip
        assert (result.stdout, result.status) == ("in file\n", "ok")
        slow = sandbox.run("while True: pass", limits=Limits(seconds=1.0))
        assert (slow.status, slow.deadline) == ("timeout", "command")
        assert sandbox.run("import os; os.write(3, b'told')", report=True).report == b"told"
        with sandbox.session(files={"x": "1"}) as session:
            assert session.run("cat x; echo 2 > y").stdout == "1"
            assert session.read("y") == b"2\n"
            for name in list(engine.running):
                engine.remove(name)
            again = session.run("cat y")
            assert (again.stdout, again.restarted) == ("2\n", True)


@runs
def test_the_level_is_measured(engine, monkeypatch):
    with open_sandbox("docker") as sandbox:
        assert sandbox.level is Level.FULL
    # Containers that see the caller's files are not private, whatever the engine was told.
    engine.leak = tempfile.mkdtemp(dir=engine.folder)
    os.chmod(engine.leak, 0o755)
    monkeypatch.setattr(tempfile, "tempdir", engine.leak)
    with pytest.raises(SandboxUnavailable, match="reaches NONE, not FULL; missing: private_root"):
        open_sandbox("docker")
    assert sorted(engine.removed) == sorted(engine.created)


def test_a_closed_one_refuses(engine):
    from agentgym.sandbox.backend import Settings
    from agentgym.sandbox.docker import DockerBackend

    backend = DockerBackend(Settings())
    backend.close()
    with pytest.raises(SandboxError, match="closed"):
        backend.open("/tmp", {})
