"""From a task of ``description.json`` to its sections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = ["SectionError", "Sections", "split_task"]

# "Query:" in most scenarios, "Query" alone on its line in two; some set it in bold.
_HEADING = re.compile(
    r"^[ \t]*(?:\*\*)?(Query|Deliverables?|Rubrics?|Acceptance Criteria)(?:\*\*)?"
    r"(?::(?:\*\*)?|[ \t]*$)[ \t]*",
    re.MULTILINE,
)


class SectionError(ValueError):
    """A task has none of the forms that tasks have."""


@dataclass(frozen=True, slots=True)
class Sections:
    """A task, taken apart.

    Attributes:
        query: What is asked.
        deliverables: What must be handed in; may be empty.
        rubric: How it is scored; may be empty. ``Acceptance Criteria`` count as one.
        form: ``rubric``, ``criteria``, ``query``, ``free`` or ``object``.
    """

    query: str
    deliverables: str
    rubric: str
    form: str


def _lines(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(f"- {item.strip()}" for item in value)
    raise SectionError(f"a section must be text or a list of texts, got {type(value).__name__}")


def split_task(task: Any) -> Sections:
    """Take a task apart.

    Raises:
        SectionError: If it is neither text nor an object with a ``query``.
    """
    if isinstance(task, dict):
        if not isinstance(task.get("query"), str):
            raise SectionError(f"a task as an object needs a text 'query', got {sorted(task)}")
        parts = [_lines(task.get(name, "")) for name in ("deliverables", "rubric")]
        return Sections(task["query"].strip(), parts[0], parts[1], "object")
    if not isinstance(task, str):
        raise SectionError(f"a task must be text or an object, got {type(task).__name__}")
    # One scenario's texts were escaped twice.
    text = task if "\n" in task else task.replace("\\n", "\n")
    marks = list(_HEADING.finditer(text))
    if not marks:
        return Sections(text.strip(), "", "", "free")
    found: dict[str, str] = {}
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        body = text[mark.end() : None if after is None else after.start()].strip()
        name = mark[1].lower()
        kind = "query" if name == "query" else "deliverables" if name[0] == "d" else "rubric"
        found[kind] = f"{found[kind]}\n{body}" if kind in found else body
        if name == "acceptance criteria":
            found["form"] = "criteria"
    query = found.get("query", "")
    before = text[: marks[0].start()].strip()
    form = found.get("form") or ("rubric" if "rubric" in found else "query")
    return Sections(
        f"{before}\n\n{query}".strip(), found.get("deliverables", ""), found.get("rubric", ""), form
    )
