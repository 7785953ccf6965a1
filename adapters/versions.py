"""Which versions of other libraries the adapters were tested with."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from agentgym.registry import missing_extra

__all__ = ["require"]


def require(package: str, floor: str, ceiling: str, extra: str | None) -> None:
    """Refuse a library that is missing, or of a version that the adapter was not tested with.

    Args:
        package: Name it is installed under.
        floor: Oldest version, for instance ``"2.8"``.
        ceiling: First version that is too new.
        extra: Extra of this suite that installs the right one; None where it is to be installed by
            its own instructions.

    Raises:
        ImportError: In both cases; the message names the range and what to install.
    """
    try:
        found = version(package)
    except PackageNotFoundError:
        if extra is not None:
            raise missing_extra(package, extra) from None
        raise ImportError(
            f"{package!r} is not installed; this adapter is for >={floor},<{ceiling}; see its "
            "own instructions"
        ) from None
    if not _numbers(floor) <= _numbers(found) < _numbers(ceiling):
        help_ = f"; pip install 'agentgym-suite[{extra}]' brings one of those" if extra else ""
        raise ImportError(
            f"{package} {found} is installed, but this adapter was tested with "
            f">={floor},<{ceiling}{help_}"
        )


def _numbers(release: str) -> tuple[int, ...]:
    """The numbers that a version begins with: ``2.9.2rc1`` is (2, 9, 2), and 3.0 is (3,)."""
    found = re.match(r"\d+(\.\d+)*", release)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
