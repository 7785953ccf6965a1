"""The command line: ``python -m agentgym COMMAND ...``.

A command is a row of the table below: its name, its entry point ``main(argv) -> exit status`` as a
dotted string that is imported when the command is called, and one line of help.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from agentgym.registry import load

__all__ = ["COMMANDS", "main"]

COMMANDS: dict[str, tuple[str, str]] = {
    "eval": ("agentgym.cli.evaluate:main", "play a split with a policy and write a result file"),
    "serve": ("agentgym.cli.serve:main", "offer an environment to other programs"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The words; by default those of this process.

    Returns:
        Exit status; 2 where there is no such command.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(usage(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    name, *rest = words
    if name not in COMMANDS:
        print(f"error: there is no command {name!r}\n{usage()}", file=sys.stderr)
        return 2
    try:
        status: int = load(COMMANDS[name][0], "cli")(rest)
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return status


def usage() -> str:
    """What there is to call."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {about}" for name, (_, about) in COMMANDS.items())
    return (
        f"usage: python -m agentgym COMMAND [--help]\n\n{rows}\n\n"
        "Training has commands of its own, for instance python -m trainers.li2sao."
    )
