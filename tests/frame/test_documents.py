"""What README and the pages under docs/ show is true: code blocks run, names exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest
from processes import run_ok

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"^<!-- not run: [^\n]+ -->\n+```python\n.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def blocks(path: Path, language: str) -> list[str]:
    return [code for kind, code in _FENCE.findall(path.read_text("utf-8")) if kind == language]


def commands(path: Path) -> list[list[str]]:
    """Words of every ``python -m`` in the page's shell blocks and inline code."""
    text = path.read_text("utf-8")
    shells = [code for kind, code in _FENCE.findall(text) if kind in ("console", "sh", "bash")]
    inline = re.findall(r"`([^`\n]+)`", _FENCE.sub("", text))
    lines = "\n".join([*shells, *inline]).replace("\\\n", " ")
    found = re.findall(r"python3? -m ([^\n&|;]+)", lines)
    return [shlex.split(line, comments=True) for line in found]


def test_there_is_something_to_read():
    assert "README.md" in NAMES
    assert any(blocks(path, "python") for path in DOCUMENTS)
    assert any(commands(path) for path in DOCUMENTS)
    assert EXAMPLES


def runnable(path):
    """A document's Python blocks, one after the other.

    But those under a comment that says why they are not run, such as original data they need.
    """
    text = _NOT_RUN.sub("", path.read_text("utf-8"))
    return "\n\n".join(code for kind, code in _FENCE.findall(text) if kind == "python")


def with_marks(path, name):
    """Blocks that import the rooms built on torch need it."""
    needs = re.search(r"^\s*(from|import) (trainers|adapters)\b", runnable(path), re.MULTILINE)
    return pytest.param(path, id=name, marks=[pytest.mark.torch] if needs else [])


@pytest.mark.parametrize(
    "path", [with_marks(path, name) for path, name in zip(DOCUMENTS, NAMES, strict=True)]
)
def test_python_blocks_run(path, tmp_path):
    run_ok(runnable(path), path=(ROOT,), cwd=tmp_path)


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_links_lead_somewhere(path):
    for target in _LINK.findall(path.read_text("utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_modules_that_are_run_exist(path):
    for module, *_ in commands(path):
        if module.partition(".")[0] in ("venv", "pip", "pytest", "tox", "build"):
            continue
        file = ROOT / (module.replace(".", "/") + ".py")
        package = ROOT / module.replace(".", "/") / "__main__.py"
        assert file.is_file() or package.is_file() or importlib.util.find_spec(module), module


@pytest.mark.torch
@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_flags_that_are_shown_exist(path, tmp_path):
    for module, *words in commands(path):
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        if not module.startswith(("trainers.", "agentgym.", "benchmarks.")) or not flags:
            continue
        code = (
            "import runpy, sys\n"
            f"sys.path.append({str(ROOT)!r})\n"
            f"sys.argv = [{module!r}, '--help']\n"
            f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        )
        shown = run_ok(code, cwd=tmp_path, COLUMNS="200")
        for flag in flags:
            assert re.search(rf"{flag}\b", shown), f"{module} has no {flag}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(path, tmp_path):
    code = f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')"
    out = run_ok(code, path=(path.parent,), cwd=tmp_path)
    if path.name == "play_with_collector.py":
        assert "number-10 x2: 50 25 12 6 9 10 -> solved" in out
        assert out.endswith("10 rows, 152 sampled tokens of 1090")


def test_the_example_of_a_third_party_is_a_proper_environment(tmp_path):
    code = """
import warnings
import gymnasium as gym, numpy as np
from gymnasium.utils.env_checker import check_env

env = gym.make("guess_number:GuessNumber-v0")
warnings.simplefilter("error")
check_env(env.unwrapped)
from agentgym.registry import load, spec
demonstrate = load(spec("GuessNumber-v0").oracle)
for seed in range(20):
    env.reset(seed=seed, options={"split": "test"})
    for action in demonstrate(env, np.random.default_rng(seed), 0.0):
        *_, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    assert info["success"] and info["score"] == 1.0
env.reset(seed=0)
*_, info = env.step("five")
assert not info["action_valid"]
"""
    run_ok(code, path=(ROOT / "examples",), cwd=tmp_path)


def test_python_that_runs_the_tests_is_supported():
    assert sys.version_info >= (3, 11)
