"""The rules that keep the four rooms clean, read from the source itself."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agentgym", "envs", "adapters", "trainers")
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
ADAPTER_EXAMPLES = sorted((ROOT / "examples" / "adapters").glob("*.py"))
CORE = {"numpy", "gymnasium"}
#: Modules that are for one library, and what they import of it.
ADAPTERS = {
    "adapters/areal.py": {"areal", "torch"},
    "adapters/gem.py": {"gem"},
    "adapters/openenv.py": {"openenv", "pydantic"},
    "adapters/tinker.py": {"tinker", "tinker_cookbook", "chz"},
    "adapters/verifiers.py": {"verifiers", "openai", "pydantic"},
    "adapters/sb3.py": {"stable_baselines3", "sb3_contrib", "torch"},
    "adapters/skyrl_gym.py": {"skyrl_gym"},
    "adapters/torchrl.py": {"tensordict", "torch", "torchrl"},
    "adapters/verl.py": {"verl"},
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path, *, everywhere: bool) -> set[str]:
    """Dotted names that a file imports, at module level or everywhere in it."""
    tree = ast.parse(path.read_text("utf-8"))
    names: set[str] = set()
    for node in _nodes(tree, everywhere):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = name_of(path).split("/")[: -node.level] if node.level else []
            names.add(".".join([*package, node.module or ""]).strip("."))
    return names


def _nodes(tree: ast.AST, everywhere: bool):
    for node in ast.iter_child_nodes(tree):
        yield node
        inner = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if (everywhere or not inner) and not typing_only:
            yield from _nodes(node, everywhere)


def tops(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_room_imports_only_what_it_may(path):
    room = name_of(path).partition("/")[0]
    forbidden = {
        "agentgym": {"envs", "adapters", "trainers"},
        "envs": {"adapters", "trainers"},
        "adapters": {"envs", "trainers"},
        "trainers": {"envs"},
    }[room]
    assert not tops(imports(path, everywhere=True)) & forbidden


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_third_party_imports_stand_where_they_are_needed(path):
    name = name_of(path)
    allowed = CORE | set(ROOMS) | sys.stdlib_module_names | ADAPTERS.get(name, set())
    if name.startswith(("adapters/policies/", "trainers/")):
        allowed |= {"torch", "transformers", "tokenizers", "safetensors"}
    if name.startswith("trainers/advantages/"):
        allowed -= {"torch", "transformers", "tokenizers", "safetensors"}
    if name == "adapters/policies/vllm_worker.py":
        allowed |= {"vllm"}  # vLLM itself imports it, in its workers
    if name.startswith("agentgym/cli/"):
        allowed |= {"tyro", "rich"}
    assert tops(imports(path, everywhere=False)) <= allowed


@pytest.mark.parametrize("path", sorted((ROOT / "adapters").glob("*.py")), ids=name_of)
def test_an_adapter_is_short(path):
    assert len(path.read_text("utf-8").splitlines()) <= 150


def user_lines(source: str) -> tuple[int, int]:
    """How much code a user has to write: logical and physical lines.

    Not counted: blank lines, comments, docstrings and imports. A logical line is Python's own: a
    simple statement, or the head of a compound one, over however many physical lines it is spread.
    """
    ignored: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        told = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if told or isinstance(node, (ast.Import, ast.ImportFrom)):
            ignored |= set(range(node.lineno, node.end_lineno + 1))
    logical, physical = 0, set[int]()
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in silent or token.start[0] in ignored:
            continue
        assert token.string != ";", "a line holds one statement"
        logical += token.type == tokenize.NEWLINE
        physical |= set(range(token.start[0], token.end[0] + 1))
    return logical, len(physical)


def test_user_lines_are_counted():
    assert user_lines('"""Doc\n\nstring."""\nimport a\nfrom b import (\n    c,\n)\n# why\n') == (
        0,
        0,
    )
    assert user_lines("x = a(\n    1,  # one\n)\nfor y in x:\n\n    c(y)  # yes\n") == (3, 5)
    assert user_lines('def f():\n    """Doc."""\n    return """two\nlines"""\n') == (2, 3)
    with pytest.raises(AssertionError, match="one statement"):
        user_lines("a = 1; b = 2")


@pytest.mark.parametrize("path", ADAPTER_EXAMPLES, ids=name_of)
def test_an_example_of_an_adapter_is_short(path):
    logical, physical = user_lines(path.read_text("utf-8"))
    assert 0 < logical <= 10
    assert physical <= 20  # nor is it long by long statements


def test_every_adapter_of_an_installable_library_has_an_example():
    """The others are written against libraries that do not go together with this suite."""
    text = (ROOT / "docs" / "adapters.md").read_text("utf-8").partition("Three more")[0]
    libraries = set(re.findall(r"^\| `adapters\.(\w+)`", text, re.MULTILINE))
    shown = {
        name.removeprefix("adapters.")
        for path in ADAPTER_EXAMPLES
        for name in imports(path, everywhere=True)
    }
    assert len(libraries) == 9
    assert libraries <= shown


def test_the_documentation_says_of_every_library_what_is_lost():
    text = (ROOT / "docs" / "adapters.md").read_text("utf-8")
    libraries = set(re.findall(r"^\| `adapters\.(\w+)`", text, re.MULTILINE))
    table = text.partition("## What arrives, and what is lost")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:1] == "|"]
    assert {len(row) for row in rows[2:]} == {6}
    assert {re.split(r"[, ]", row[0])[0].replace("-", "_") for row in rows[2:]} == libraries


def test_trainers_name_no_environment():
    """They ask the registry; an id may stand only as the default of ``--env``."""
    entry_points = re.compile(r"(?<![.\w])envs\.[a-z]")
    for path in FILES:
        if name_of(path).startswith(("trainers/", "adapters/")):
            assert not entry_points.search(path.read_text("utf-8")), name_of(path)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_file_grows_beyond_what_one_can_read(path):
    # A table of characters or names is data and may be longer.
    lines = path.read_text("utf-8").splitlines()
    assert len(lines) <= 550, f"{len(lines)} lines"
    assert path.stem not in ("utils", "helpers", "common", "misc")


def test_every_package_is_found_and_typed():
    folders = {path.parent for path in FILES}
    for folder in folders:
        assert (folder / "__init__.py").is_file(), folder
    for room in ROOMS:
        assert (ROOT / room / "py.typed").is_file()


def test_tests_have_no_packages():
    """A ``tests/envs`` package would hide ``envs``."""
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_the_core_needs_two_libraries():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {re.split(r"[<>=!~\[ ]", item)[0] for item in project["dependencies"]}
    assert needed == CORE


def test_every_extra_that_an_error_names_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    asked = re.compile(r"missing_extra\([^)]*?,\s*\"([a-z0-9-]+)\"\s*\)")
    plain = re.compile(r"agentgym-suite\[([a-z0-9,-]+)\]")
    named = set()
    for path in FILES:
        text = path.read_text("utf-8")
        named |= set(asked.findall(text))
        named |= {part for group in plain.findall(text) for part in group.split(",")}
    assert named
    assert named <= extras
