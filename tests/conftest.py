"""Fixtures shared by all tests, and the rule for tests that need the recorded data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_DATA_VARIABLE = "AGENTGYM_TEST_DATA"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked ``data`` where the variable is unset, and say how many."""
    if os.environ.get(_DATA_VARIABLE):
        return
    needing = [item for item in items if item.get_closest_marker("data")]
    if needing:
        items[:] = [item for item in items if not item.get_closest_marker("data")]
        config.hook.pytest_deselected(items=needing)
        print(f"\n{len(needing)} tests deselected: {_DATA_VARIABLE} is not set")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of recordings; a set variable that points nowhere is a failure."""
    path = Path(os.environ[_DATA_VARIABLE])
    if not path.is_dir():
        pytest.fail(f"{_DATA_VARIABLE}={path} is not a folder")
    return path.resolve()
