"""``python -m agentgym``: the table of commands, and what is lazy about it."""

from __future__ import annotations

import pytest
from processes import run_ok, run_python

import agentgym.cli
from agentgym.cli import COMMANDS, main


def test_without_a_command_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "eval" in capsys.readouterr().err
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evil"]) == 2
    assert "there is no command 'evil'" in capsys.readouterr().err


def test_a_command_is_a_row_of_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(agentgym.cli.COMMANDS, "say", ("builtins:print", "say it"))
    assert main(["say", "--loud"]) is None  # what the command returned
    assert capsys.readouterr().out == "['--loud']\n"
    monkeypatch.setitem(agentgym.cli.COMMANDS, "gone", ("agentgym.cli.gone_missing:main", "no"))
    assert main(["gone"]) == 2
    assert "gone_missing" in capsys.readouterr().err


def test_the_package_imports_no_library_of_its_own() -> None:
    code = (
        "import sys, agentgym.cli\n"
        "agentgym.cli.main(['--help'])\n"
        "print(sorted({'tyro', 'rich', 'torch'} & set(sys.modules)))"
    )
    assert run_ok(code).endswith("[]")


def test_it_runs_as_a_module() -> None:
    done = run_python("import runpy, sys; sys.argv = ['agentgym', '--help']\n"
                      "runpy.run_module('agentgym', run_name='__main__')")  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith("usage: python -m agentgym")
