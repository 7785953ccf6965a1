"""The command line: ``python -m units EXPRESSION [--to UNIT] [--json]``."""

from __future__ import annotations

import argparse
import json
import sys

from . import DimensionError, ExpressionError, __version__, calculate, convert


def main(arguments: list[str] | None = None) -> int:
    """Print the value; 0 if there is one, 2 for a bad expression, 3 for kinds that differ."""
    parser = argparse.ArgumentParser(prog="units")
    parser.add_argument("expression")
    parser.add_argument("--to", metavar="UNIT")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--version", action="version", version=__version__)
    given = parser.parse_args(arguments)
    try:
        value = convert(given.expression, given.to) if given.to else calculate(given.expression)
    except ExpressionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3 if isinstance(error, DimensionError) else 2
    if given.json:
        print(json.dumps({"expression": given.expression, "unit": given.to, "value": value}))
    else:
        print(f"{value} {given.to}" if given.to else value)
    return 0


if __name__ == "__main__":
    sys.exit(main())
