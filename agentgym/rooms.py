"""Guard against foreign packages that carry the suite's top-level names.

``envs``, ``adapters`` and ``trainers`` are common names. When another package of that name comes
first on the path, imports would fail in puzzling ways; the guard says what happened instead.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

ROOMS = ("envs", "adapters", "trainers")

_HOME = Path(__file__).resolve().parent.parent


def check_room(module_name: str) -> None:
    """Verify that ``module_name``'s top-level package is the suite's own.

    Names outside the suite pass.

    Raises:
        ImportError: If another package of that name comes first; the message names both places.
    """
    top = module_name.partition(".")[0]
    if top not in ROOMS:
        return
    expected = _HOME / top
    found = _location(top)
    if found is not None and found != expected:
        raise ImportError(
            f"the package {top!r} found first on the path is {found}, which hides agentgym's own "
            f"{expected}; run from another folder, rename the other package, or put {_HOME} "
            "first on PYTHONPATH"
        )


def _location(top: str) -> Path | None:
    """Folder (or file) of the package that ``import top`` would give, or None if there is none."""
    loaded = sys.modules.get(top)
    folders: Iterable[str] | None
    if loaded is not None:  # its __spec__ may be missing: modules can be made by hand
        folders, file = getattr(loaded, "__path__", None), getattr(loaded, "__file__", None)
    else:
        spec = importlib.util.find_spec(top)
        if spec is None:
            return None
        folders, file = spec.submodule_search_locations, spec.origin
    first = next(iter(folders or ()), file)
    return Path(first).resolve() if first else None
