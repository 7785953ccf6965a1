"""How code/units is solved: the tool calls, task by task."""

from __future__ import annotations

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
    """Tool calls that solve task ``task``."""
    assert len(SEEDED) == len(PLAIN) + 3
    after = _state([*_LEFT[task]])
    calls: _Calls = [("read_file", {"path": "README.md"})] if task == 0 else []
    for name, text in after.items():
        calls.append(("write_file", {"path": f"units/{name}", "content": text}))
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


def _state(faults: list[str]) -> dict[str, str]:
    made = replaced(sources(), [SEEDED[name] for name in faults])
    made.pop("__main__.py")
    return made
