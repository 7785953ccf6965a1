"""How code/units is solved: the tool calls, task by task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any

from envs.agencybench.scenario import World
from envs.agencybench.scenarios.units.checks import sources
from envs.agencybench.scenarios.units.draws import PLAIN
from envs.agencybench.scenarios.units.faults import SEEDED, replaced

__all__ = ["solve"]

_Calls = list[tuple[str, dict[str, Any]]]

_TESTS = '''\
"""What README.md promises, by example."""

import unittest

import units


class Expressions(unittest.TestCase):
    def test_values(self):
        for text, value in {
            "5e-2": "1/20",
            "2.5e-1 + .5": "3/4",
            "2^3^2": "512",
            "2^-1": "1/2",
            "-2^2": "-4",
            "(-2)^2": "4",
            "9 - 3 - 2": "4",
            "16 / 4 / 2": "2",
            "6 m / 2 s": "3 m s^-1",
            "6 m^2 / 2 m^2": "3",
            "(3 m)^2": "9 m^2",
            "3 m^2": "3 m^2",
            "2 kg * 3 m / 1 s^2": "6 kg m s^-2",
            "1 km + 1 m": "1001 m",
        }.items():
            with self.subTest(text):
                self.assertEqual(units.calculate(text), value)

    def test_positions(self):
        for text, position in {"1 +": 3, "1 2": 2, "(1": 0, "1 $": 2, "3 / 0": 2, "1)": 1}.items():
            with self.subTest(text), self.assertRaises(units.ExpressionError) as caught:
                units.calculate(text)
            self.assertEqual(caught.exception.position, position)

    def test_kinds(self):
        for text in ("1 m + 1 s", "1 m - 1", "2^(1 m)"):
            with self.subTest(text), self.assertRaises(units.DimensionError):
                units.calculate(text)

    def test_conversion(self):
        self.assertEqual(units.convert("36 km / 1 h", "m / s"), "10")
        self.assertEqual(units.convert("1 cm", "m"), "1/100")
        with self.assertRaises(units.DimensionError):
            units.convert("1 m", "s")


if __name__ == "__main__":
    unittest.main()
'''

_CHANGES = """\
# Changelog

## [0.2.0] - 2024-06-01

### Added

- Units in expressions, and `convert`.
- A command line, `python -m units`.
- Tests.

### Fixed

- Literals with an exponent or a leading point.
- The grouping of `^`, signs, `-` and `/`.
- `find_factor` on conversions that form a cycle.

"""

#: Faults that are left after each task.
_LEFT = (
    ("no units", "search without memory", "version"),
    ("search without memory", "version"),
    ("version",),
    ("version",),
    (),
)


def solve(world: World, task: int) -> _Calls:
    """Tool calls that solve task ``task``, once the tasks before it are solved."""
    calls: _Calls = []
    before = _LEFT[task - 1] if task else tuple(SEEDED)
    assert len(SEEDED) == len(PLAIN) + 3
    # Fault by fault: whoever stops half-way has mended some of them.
    for mended in [name for name in before if name not in _LEFT[task]]:
        left = [name for name in before if name != mended]
        calls += _edits(_state(before), _state(left))
        before = tuple(left)
    if task == 3:
        calls.append(("write_file", {"path": "tests/test_units.py", "content": _TESTS}))
        command = "python3 -m unittest discover -s tests"
        calls.append(("run_shell_command", {"command": command}))
    if task == 4:
        main = sources()["__main__.py"]
        calls.append(("write_file", {"path": "units/__main__.py", "content": main}))
        old = world.files["CHANGELOG.md"].decode()
        text = _CHANGES + old.removeprefix("# Changelog\n\n")
        calls.append(("write_file", {"path": "CHANGELOG.md", "content": text}))
    return calls


def _state(faults: Iterable[str]) -> dict[str, str]:
    made = replaced(sources(), [SEEDED[name] for name in faults])
    made.pop("__main__.py")
    return made


def _edits(before: Mapping[str, str], after: Mapping[str, str]) -> _Calls:
    """Replacements that turn some files into others, each of as few lines as name one place."""
    calls: _Calls = []
    for name, now in before.items():
        old, new = now.splitlines(keepends=True), after[name].splitlines(keepends=True)
        changes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        # From the end, so that what stands above a place is still as it was.
        for kind, start, end, first, last in reversed(changes):
            if kind == "equal":
                continue
            head = start
            while head > 0 and (head == end or now.count("".join(old[head:end])) != 1):
                head -= 1
            gone = "".join(old[head:end])
            come = "".join([*old[head:start], *new[first:last]])
            gone, come = _bare(gone, come, now)
            calls.append(("replace", {"path": f"units/{name}", "old": gone, "new": come}))
            now = now.replace(gone, come)
        assert now == after[name]
    return calls


def _bare(gone: str, come: str, text: str) -> tuple[str, str]:
    """Without the indentation of both and the end of line, where one place is still meant."""
    blanks = min(len(part) - len(part.lstrip(" ")) for part in (gone, come))
    if gone.endswith("\n") and come.endswith("\n"):
        shorter = gone[blanks:-1], come[blanks:-1]
        if text.count(shorter[0]) == 1:
            return shorter
    return gone, come
