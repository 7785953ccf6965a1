"""From a row of a published file to a task: which column holds what.

Known forms: GSM8K (``question``, and ``answer`` ending in ``#### 72``), MATH (``problem``,
``solution`` with a box), MATH-500 (also ``answer``, ``unique_id``), AIME (``problem`` or
``Question``, ``answer``), DAPO (``prompt`` as messages, ``reward_model.ground_truth``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envs.math_reasoning.grading.extraction import extract
from envs.math_reasoning.grading.policies import Policies

__all__ = ["ColumnError", "MathTask", "task_from", "without_annotations"]

#: What a column map may name.
ROLES = ("question", "answer", "reference", "id", "type", "level")

_QUESTION = ("question", "problem", "prompt", "input", "query", "instruction")
_ANSWER = ("answer", "final_answer", "expected_answer", "gold", "target", "output", "solution")
_REFERENCE = ("reference", "solution", "rationale", "cot", "generations", "generation", "answer")
_ID = ("unique_id", "id", "uid", "index", "problem_id")
_TYPE = ("subject", "type", "category", "data_source")
_LEVEL = ("level", "difficulty")
_ANNOTATION = re.compile(r"<<[^<>\n]{0,200}>>")
_MARKER = "####"
_BOXES = Policies(unboxed_ok=False, answer_tag=False)


class ColumnError(ValueError):
    """A row that holds no task; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class MathTask:
    """A question with its gold answer.

    Attributes:
        id: Stable id.
        question: The text.
        answer: The gold answer.
        reference: Reasoning steps that lead to it, in order; may be empty.
        type: Kind of task, for statistics.
        level: How hard it is, where the data say.
    """

    id: str
    question: str
    answer: str
    reference: tuple[str, ...] = ()
    type: str = "default"
    level: float | None = None


def without_annotations(text: str) -> str:
    """GSM8K's solution without its calculator annotations ``<<48/2=24>>``."""
    return _ANNOTATION.sub("", text)


def task_from(row: Mapping[str, Any], default_id: str, columns: Mapping[str, str]) -> MathTask:
    """The task of a row.

    Args:
        row: The row.
        default_id: Id where it has none.
        columns: Role (one of :data:`ROLES`) to column name, for columns that are not found by
            their usual names. A dot leads into a nested column.

    Raises:
        ColumnError: If there is no question or no answer; the message names the row's columns.
    """
    if not isinstance(row, Mapping):
        raise ColumnError(f"expected a mapping of columns, got {type(row).__name__}: {row!r:.100}")
    names = {str(name).lower(): name for name in row}
    question = _text(_found(row, names, columns, "question", _QUESTION))
    if not question:
        raise ColumnError(_missing("question", row))
    raw = _answer(row, names, columns)
    if raw is None:
        raise ColumnError(_missing("answer", row))
    answer, tail_of = raw
    reference = _reference(row, names, columns, tail_of)
    found_id = _text(_found(row, names, columns, "id", _ID))
    kind = _text(_found(row, names, columns, "type", _TYPE))
    level = _level(_text(_found(row, names, columns, "level", _LEVEL)))
    return MathTask(found_id or default_id, question, answer, reference, kind or "default", level)


def _level(text: str) -> float | None:
    """The number in ``Level 3``."""
    found = re.search(r"\d+(?:\.\d+)?", text)
    return None if found is None else float(found[0])


def _found(
    row: Mapping[str, Any],
    names: Mapping[str, str],
    columns: Mapping[str, str],
    role: str,
    usual: tuple[str, ...],
) -> Any:
    if role in columns:
        value: Any = row
        for part in columns[role].split("."):  # reward_model.ground_truth
            if not isinstance(value, Mapping) or part not in value:
                raise ColumnError(
                    f"the column map names {columns[role]!r} for {role}, and the row has "
                    f"{sorted(map(str, row))}"
                )
            value = value[part]
        return value
    for name in usual:
        if name in names and row[names[name]] not in (None, ""):
            return row[names[name]]
    return None


def _text(value: Any) -> str:
    """A text, a number, the user's last message, or the first of several texts."""
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return ""  # how tables tell an empty cell
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (int, float)):
        whole = isinstance(value, float) and value.is_integer()
        return str(int(value) if whole else value)
    if isinstance(value, Mapping):
        return _text(value.get("content"))
    if isinstance(value, (list, tuple)) or hasattr(value, "tolist"):
        items = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(items, list | tuple):
            return _text(items)
        users = [m for m in items if isinstance(m, Mapping) and m.get("role") == "user"]
        if users:
            return _text(users[-1])
        return _text(items[0]) if items else ""
    return ""


def _answer(
    row: Mapping[str, Any], names: Mapping[str, str], columns: Mapping[str, str]
) -> tuple[str, str] | None:
    """The gold answer, and the solution that it is the end of (or nothing)."""
    if "answer" not in columns and "reward_model" in names:
        model = row[names["reward_model"]]
        truth = _text(model.get("ground_truth")) if isinstance(model, Mapping) else ""
        if truth:
            return truth, ""
    value = _text(_found(row, names, columns, "answer", _ANSWER))
    if not value:
        return None
    if _MARKER in value:  # GSM8K
        solution, _, gold = value.rpartition(_MARKER)
        return gold.strip(), solution
    boxed = extract(value, _BOXES) if "boxed" in value or "fbox" in value else None
    if boxed is not None and boxed != value and len(value) > len(boxed) + 12:
        return boxed, value
    return value, ""


def _reference(
    row: Mapping[str, Any], names: Mapping[str, str], columns: Mapping[str, str], tail_of: str
) -> tuple[str, ...]:
    if tail_of and "reference" not in columns:
        text = tail_of
    else:
        text = _text(_found(row, names, columns, "reference", _REFERENCE[:-1]))
    lines = (line.strip() for line in without_annotations(text).splitlines())
    return tuple(line for line in lines if line)


def _missing(role: str, row: Mapping[str, Any]) -> str:
    return (
        f"no {role} in a row with the columns {sorted(map(str, row))}; name it with "
        f"columns={{'{role}': ...}}"
    )
