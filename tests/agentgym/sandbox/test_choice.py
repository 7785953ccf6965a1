"""Which backend is taken: by trying, never a weaker one in silence, with the level measured."""

from __future__ import annotations

import json
import shutil

import pytest
from sandbox_backends import ISOLATING

from agentgym.sandbox import (
    Level,
    Limits,
    SandboxError,
    SandboxUnavailable,
    open_sandbox,
    probe,
    sandbox,
    shared_sandbox,
)

some = pytest.mark.skipif(not ISOLATING, reason="nothing that isolates works on this machine")


@some
@pytest.mark.parametrize("name", ISOLATING)
def test_the_description(name):
    with open_sandbox(name) as opened:
        told = opened.describe()
    assert (told["backend"], told["level"], told["missing"]) == (name, "full", [])
    assert set(told["isolation"]) == {
        "users", "processes", "network", "ipc", "mounts", "private_root", "no_capabilities",
        "no_new_privileges", "call_filter", "limits_bind",
    }  # fmt: skip
    assert json.loads(json.dumps(told)) == told


@some
def test_auto_takes_the_first_that_works():
    with open_sandbox() as opened:
        assert opened.backend == ISOLATING[0]
        assert opened.level is Level.FULL


def test_local_is_what_it_is_asked_for():
    with open_sandbox("local") as opened:
        assert (opened.backend, opened.level) == ("local", Level.NONE)
        assert "network" in opened.describe()["missing"]


def _refuse(*names):
    real = sandbox._make

    def make(name, settings):
        if name in names:
            raise SandboxError(f"{name} is refused")
        return real(name, settings)

    return make


def test_nothing_falls_down_to_local(monkeypatch):
    monkeypatch.setattr(sandbox, "_make", _refuse("namespaces", "bwrap", "docker"))
    with pytest.raises(SandboxUnavailable) as caught:
        open_sandbox()
    said = str(caught.value)
    assert all(f"{name} is refused" in said for name in ("namespaces", "bwrap", "docker"))
    assert "backend='local'" in said
    with pytest.raises(SandboxUnavailable):
        open_sandbox(minimum=Level.PARTIAL)
    with open_sandbox(minimum=Level.NONE) as opened:  # agreed to in so many words
        assert opened.backend == "local"


@some
def test_a_weaker_one_is_passed_over(monkeypatch):
    real = probe.measure

    def measure(backend):
        level, isolation, missing = real(backend)
        return (Level.PARTIAL, isolation, ["call_filter"]) if backend.name == ISOLATING[0] else (
            level, isolation, missing)  # fmt: skip

    monkeypatch.setattr(sandbox, "measure", measure)
    with pytest.raises(SandboxUnavailable, match="reaches PARTIAL, not FULL; missing: call_filter"):
        open_sandbox(ISOLATING[0])
    with open_sandbox(ISOLATING[0], minimum=Level.PARTIAL) as opened:
        assert opened.describe()["missing"] == ["call_filter"]


def test_a_program_that_is_there_and_does_not_work_is_found_out(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(fake))
    with pytest.raises(SandboxUnavailable, match="bwrap: bwrap does not start"):
        open_sandbox("bwrap")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SandboxUnavailable, match="bwrap is not installed"):
        open_sandbox("bwrap")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "podman"}, "podman"),
        ({"workers": 0}, "workers"),
        ({"preload": "sympy"}, "preload"),
        ({"mounts": {"/usr/..": "/usr"}}, "mounts"),
        ({"mounts": {"/box": "/usr"}}, "mounts"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(SandboxError, match=message):
        open_sandbox(**arguments)


@some
def test_preloaded_modules_are_there_and_a_missing_one_is_named():
    with open_sandbox("namespaces", preload=("fractions",)) as opened:
        code = "import sys; print('fractions' in sys.modules)"
        assert opened.run(code).stdout == "True\n"
    with pytest.raises(SandboxUnavailable, match="no_such_module"):
        open_sandbox("namespaces", preload=("no_such_module",))


def test_packages_are_shown_or_not():
    code = "import importlib.util as u; print(u.find_spec('pytest') is not None)"
    for packages in (True, False):
        with open_sandbox(ISOLATING[0] if ISOLATING else "local", packages=packages) as opened:
            assert opened.run(code).stdout == f"{packages}\n"


def test_shared_ones_are_shared():
    first, again = shared_sandbox("local"), shared_sandbox("local")
    other = shared_sandbox("local", limits=Limits(seconds=3.0))
    assert first is again
    assert first is not other
    first.close()
    assert shared_sandbox("local") is not first
    shared_sandbox("local").close()
    other.close()
