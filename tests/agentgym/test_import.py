"""What ``import agentgym`` costs."""

from __future__ import annotations

import ast
import sys
from importlib import metadata
from pathlib import Path

import pytest
from processes import run_ok

import agentgym

PACKAGE = Path(agentgym.__file__).parent
HEAVY = {
    "torch", "transformers", "tokenizers", "vllm", "openai", "spacy", "textworld", "selenium",
    "playwright", "tyro", "rich", "jinja2", "pandas", "scipy", "matplotlib", "envs", "adapters",
    "trainers",
}  # fmt: skip
ALLOWED = {"agentgym", "gymnasium", "numpy"}

CODE = """
import sys, time
began = time.perf_counter()
import agentgym
print(time.perf_counter() - began)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_importing_loads_nothing_heavy(capsys):
    times = []
    for _ in range(3):
        out = run_ok(CODE).splitlines()
        times.append(float(out[0]))
        assert not HEAVY & set(out[1].split())
    with capsys.disabled():
        print(f"\nimport agentgym: {min(times):.3f} s (best of {len(times)})")
    # What is promised is 0.5 s; the test allows for a machine that is twenty times slower.
    assert min(times) < 10


@pytest.mark.parametrize(
    "module", sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
)
def test_each_module_imports_alone(module):
    code = f"import sys; import agentgym.{module}; print(*sys.modules)"
    assert not HEAVY & {name.partition(".")[0] for name in run_ok(code).split()}


def module_level_imports(tree: ast.Module) -> set[str]:
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.name)
def test_the_contract_imports_its_two_requirements_alone(path):
    imported = module_level_imports(ast.parse(path.read_text("utf-8")))
    assert imported <= ALLOWED | sys.stdlib_module_names


def test_version_is_that_of_the_distribution():
    assert agentgym.__version__ == metadata.version("agentgym-suite")


def test_public_names_exist_and_are_documented():
    for name in agentgym.__all__:
        assert getattr(agentgym, name).__doc__, name
