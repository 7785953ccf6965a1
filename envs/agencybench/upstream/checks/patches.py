"""Code/2 and 3: what rules see of a patch; whether it does the same as the original is judged."""

from __future__ import annotations

import ast

from envs.agencybench.assessment import Assessment, Unmet
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding
from envs.agencybench.upstream.checks.forms import parsed
from envs.agencybench.upstream.checks.judged import text_check
from envs.agencybench.upstream.sections import Sections

__all__ = ["checks"]

_PARENT = "RetrieveUserProxyAgent"


def _name(node: ast.expr) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def _agent(assessment: Assessment) -> Finding:
    for path in sorted(assessment.files):
        if "contrib/" not in path or not path.endswith(".py") or "test" in path:
            continue
        if b"qdrant" not in assessment.files[path].lower():
            continue
        tree = parsed(assessment, path)
        imports = {
            getattr(node, "module", None) or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and _PARENT in map(_name, node.bases):
                need(any("qdrant_client" in str(n) for n in imports), "qdrant_client is not used")
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
                sizes = {m.name: sum(isinstance(n, ast.stmt) for n in ast.walk(m)) for m in methods}
                need("retrieve_docs" in sizes, "the agent does not override retrieve_docs")
                need(sum(sizes.values()) >= 12, "the agent's methods do nothing")
                return Finding(1.0)
    raise Unmet(f"no class beside the retrieving agents extends {_PARENT} for Qdrant")


def _parses(assessment: Assessment) -> Finding:
    _agent(assessment)
    for path in sorted(assessment.files):
        before = assessment.world.files.get(path)
        if path.endswith(".py") and assessment.files[path] != before:
            parsed(assessment, path)
    return Finding(1.0)


def _mentions(assessment: Assessment, ends: tuple[str, ...], folder: str = "") -> Finding:
    found = [
        path
        for path, content in assessment.files.items()
        if path.startswith(folder) and path.endswith(ends) and b"qdrant" in content.lower()
    ]
    need(bool(found), f"no {' or '.join(ends)} in {folder or 'the root'} names Qdrant")
    return Finding(1.0)


def checks(number: int, sections: Sections) -> tuple[Check, ...]:
    """The checks of the one task of either scenario."""
    packages = ("setup.py", "pyproject.toml")
    return (
        Check("agent", 0.15, "an agent for Qdrant", _agent, kind="file"),
        Check("syntax", 0.1, "all that was changed is Python", _parses, kind="file"),
        Check(
            "packages", 0.05, "packages that it needs",
            lambda assessment: _mentions(assessment, packages), kind="file",
        ),
        Check(
            "workflow", 0.05, "its tests are run",
            lambda assessment: _mentions(assessment, (".yml", ".yaml"), ".github/workflows/"),
            kind="file",
        ),
        text_check(sections, 0.65, "equivalence", "a judge finds the patch to do what is asked"),
    )  # fmt: skip
