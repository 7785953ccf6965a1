"""What the agent reads in code/units, and the files that are not code."""

from __future__ import annotations

BRIEF = """\
The folder holds a Python package `units`, for exact arithmetic with units. It uses the standard \
library alone, and so must what you add. `README.md` says how it must behave; `units/table.json` \
holds the units and must stay as it is. Hidden checks call the package with inputs of their own."""

README = """\
# units

Exact arithmetic with units. All numbers are fractions; nothing is ever rounded.

## Expressions

    calculate("1.5e3 + 2")   -> "1502"
    calculate("3 {a} / 2")   -> text as described below
    convert("3 {a}", "{a}")  -> "3"

* Numbers: `12`, `1.5`, `.5`, `3.`, each with an optional exponent: `1e3`, `2.5E-2`.
* `+ -` bind least, then `* /`, then signs, then `^`. `+ - * /` group from the left, `^` from the
  right: `2^3^2` is 2^9. A sign binds less than `^`: `-2^2` is -4. `2^-1` is 1/2.
* Parentheses. Blanks may stand anywhere between tokens.
* A number written directly before a unit is a product that binds more than `*` and `/`:
  `6 m / 2 s` is 3 m/s, `3 m^2` is three square metres. Only a literal number does that, and
  before one unit only.
* Exponents are whole numbers from -64 to 64 without a unit; exponents of literals (`1e9`) too.
* Signs and parentheses nested up to 40 deep must work; deeper ones may be refused.
* Units stand in `table.json`: name to `[factor, {{base unit: power}}]`.

The result is the value as a fraction in lowest terms (`7/2`, `-3`), then, each after one blank, the
base units in alphabetical order with their powers: `7/2 m s^-2`. A power of 1 is not written, a
unit with power 0 is left out.

## Errors

`ExpressionError` (a `ValueError`) for text that is no expression, an unknown unit, or a division
by zero. Its `position` is the index, from 0, of the character where the offending token starts, or
the length of the text where something is missing at the end. For an operation that cannot be done
(division by zero, an exponent out of range) it is the position of the operator, for a literal out
of range that of the literal, for a parenthesis that stays open that of the parenthesis.

`DimensionError` (an `ExpressionError`) where quantities of different kinds are added or subtracted
(position of the operator), converted into each other, or where an exponent carries a unit.

## Conversion by neighbours

`find_factor(source, target, neighbours)` says how many `target` one `source` is, where the units
are known only through `neighbours(unit)`, a costly call that returns for a unit the units it
converts to directly, each with how many of them one of it is. `NoRoute` (a `LookupError`) if no
chain of conversions leads there.
"""

CHANGELOG = """\
# Changelog

## [0.1.0] - 2024-03-01

### Added

- Arithmetic with plain numbers.
"""

QUERIES = (
    (
        "Plain arithmetic is wrong in several ways: literals with an exponent or a leading point, "
        "the grouping of `^`, of signs, of `-` and `/`, and the errors. Find the faults and mend "
        "them, so that `units.calculate` does what `README.md` says for expressions without units.",
        "- the mended package `units/`",
        "- Six groups of hidden expressions, one for each kind of fault. A group counts if every "
        "one of its expressions is right, errors with their positions included.",
    ),
    (
        "Add units. `units.calculate` accepts the units of `units/table.json` as described in "
        "`README.md`; `units.convert(text, unit)` tells a value in another unit, as a fraction. "
        "Kinds that do not fit raise `DimensionError`.",
        "- `units.calculate` with units\n- `units.convert`\n- `units.DimensionError`",
        "- products, quotients and powers of units: 0.3\n- kinds that do not fit are refused: 0.2\n"
        "- conversions are exact: 0.3\n- converting there and back changes nothing: 0.2",
    ),
    (
        "`units.find_factor` runs for ever where conversions form a cycle, and it asks for the "
        "neighbours of a unit again and again. Rewrite it: `neighbours` is a costly call. Ask for "
        "no unit twice, and for no unit that is farther from the source than the target is.",
        "- `units.find_factor` as in `README.md`",
        "- the factor is right, or `NoRoute` is raised, on graphs with cycles: 0.4\n"
        "- and no unit is asked for twice: 0.3\n"
        "- and no unit is asked for that is farther than the target: 0.3",
    ),
    (
        "Write the tests that were missing: `tests/test_*.py`, run by `python -m unittest`. They "
        "are run against a correct implementation of `README.md` and against twelve faulty ones. "
        "They must pass on the correct one, whatever its code looks like, and fail on the others.",
        "- `tests/test_*.py`, standard library only",
        "- Share of the twelve faulty implementations on which a test fails; 0 if a test fails on "
        "a correct one.",
    ),
    (
        "Release 0.2.0. Add a command line, `python -m units EXPRESSION [--to UNIT] [--json]`: it "
        "prints the value (with `--to`: the number and the unit, separated by a blank), or with "
        '`--json` one object `{"expression", "unit", "value"}` (`unit` is null without `--to`). '
        "Exit code 0; 2 for an `ExpressionError`, 3 for a `DimensionError`, each with one line "
        "`error: …` on stderr and nothing on stdout. `--version` prints the version. Set "
        "`units.__version__` and describe the release in `CHANGELOG.md`. The public names of the "
        "package and their parameters stay as they are.",
        "- `units/__main__.py`\n- `units.__version__`\n- `CHANGELOG.md`, newest release on top, "
        "headed `## [0.2.0] - YYYY-MM-DD`, with sections `### Added` and `### Fixed` that hold at "
        "least two points each; older entries stay",
        "- output and exit codes of the command line: 0.5\n- JSON output: 0.2\n- changelog: 0.15\n"
        "- version, in the package and by `--version`, with public names and parameters "
        "unchanged: 0.15",
    ),
)
