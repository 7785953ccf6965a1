"""Foreign packages that carry the suite's common names: the error has to say so."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from processes import last_error, run_ok, run_python

import agentgym
from agentgym.registry import load
from agentgym.rooms import ROOMS, check_room

HOME = Path(agentgym.__file__).resolve().parent.parent
MAKE = "import gymnasium as gym; gym.make('agentgym:WebShop-v0'); print('made')"


def assert_names_both(error: str, room: str, found: Path) -> None:
    assert error.startswith("ImportError: ")
    assert str(found.resolve()) in error
    assert str(HOME / room) in error
    assert repr(room) in error


def load_code(room: str) -> str:
    target = {"envs": "envs.webshop.env:WebShopEnv", "adapters": "adapters.policies:x"}.get(
        room, f"{room}.anything:x"
    )
    return f"from agentgym.registry import load; load({target!r})"


@pytest.mark.parametrize("room", ROOMS)
def test_a_foreign_package_first_on_the_path(tmp_path, room):
    (tmp_path / room).mkdir()
    (tmp_path / room / "__init__.py").write_text("")
    error = last_error(load_code(room), path=(tmp_path,))
    assert_names_both(error, room, tmp_path / room)


@pytest.mark.parametrize("room", ROOMS)
def test_a_foreign_module_file(tmp_path, room):
    (tmp_path / f"{room}.py").write_text("")
    error = last_error(load_code(room), path=(tmp_path,))
    assert_names_both(error, room, tmp_path / f"{room}.py")


@pytest.mark.parametrize("room", ["envs", "adapters"])
def test_trainers_do_not_mix_with_a_foreign_package(tmp_path, room):
    (tmp_path / room).mkdir()
    (tmp_path / room / "__init__.py").write_text("")
    error = last_error("import trainers.advantages", path=(tmp_path,))
    assert_names_both(error, room, tmp_path / room)


def test_the_folder_one_stands_in_comes_first(tmp_path):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").write_text("")
    error = last_error(MAKE, cwd=tmp_path)
    assert_names_both(error, "envs", tmp_path / "envs")


def test_a_foreign_package_that_is_already_imported(tmp_path):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").write_text("")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import envs; sys.path.pop(0); {MAKE}"
    )
    error = last_error(code)
    assert_names_both(error, "envs", tmp_path / "envs")


def test_a_folder_without_init_either_does_no_harm_or_is_named(tmp_path):
    """A namespace package yields to a regular one on the path, but not to an editable install."""
    (tmp_path / "envs").mkdir()
    done = run_python(MAKE, path=(tmp_path,))
    if done.stdout.strip() != "made":
        assert_names_both(done.stderr.strip().splitlines()[-1], "envs", tmp_path / "envs")


def test_a_namespace_package_that_is_already_imported(tmp_path):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "theirs.py").write_text("")
    code = (
        "import sys, importlib.machinery, importlib.util\n"
        f"spec = importlib.machinery.PathFinder.find_spec('envs', [{str(tmp_path)!r}])\n"
        "sys.modules['envs'] = importlib.util.module_from_spec(spec)\n"
        f"import envs.theirs\n{MAKE}"
    )
    error = last_error(code)
    assert_names_both(error, "envs", tmp_path / "envs")


def test_importing_agentgym_itself_minds_nobody(tmp_path):
    for room in ROOMS:
        (tmp_path / f"{room}.py").write_text("")
    code = "import agentgym; print(*agentgym.registered())"
    assert "WebShop-v0" in run_ok(code, path=(tmp_path,)).split()


def test_a_package_made_by_hand_is_named(monkeypatch, tmp_path):
    module = types.ModuleType("envs")
    module.__spec__ = None
    module.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "envs", module)
    with pytest.raises(ImportError, match="hides agentgym's own"):
        check_room("envs.webshop.env")


def test_the_suites_own_rooms_and_other_names_pass():
    for room in ROOMS:
        check_room(f"{room}.anything")
    check_room("envsomething.else")
    check_room("gymnasium")
    assert load("agentgym.tasks:TaskSet") is agentgym.TaskSet
    with pytest.raises(ValueError, match="not of the form"):
        load("agentgym.tasks")
