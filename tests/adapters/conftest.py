"""Each folder here is for one library; it is left out where that library is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

#: Folder to the module that its tests need.
LIBRARIES = {
    "gem": "gem",
    "openenv": "openenv",
    "sb3": "sb3_contrib",
    "skyrl_gym": "skyrl_gym",
    "tinker": "tinker_cookbook",
    "torchrl": "torchrl",
    "trl": "trl",
    "verl": "verl",
    "verifiers": "verifiers",
}


def missing() -> dict[str, str]:
    """Folders whose library is not installed."""
    return {
        folder: library
        for folder, library in LIBRARIES.items()
        if importlib.util.find_spec(library) is None
    }


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not even import the tests of a library that is not there."""
    return True if collection_path.parent.name in missing() else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say so."""
    for folder, library in missing().items():
        terminalreporter.write_line(f"tests/adapters/{folder} left out: no {library} installed")
