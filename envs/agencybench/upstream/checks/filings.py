"""Research/scenario3: companies found from clues; each point counts the same.

As in the benchmark, but that a company in the last table may be written in full: the benchmark's
script wants the cell ``unitedhealth`` and turns ``UnitedHealth Group`` down.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from envs.agencybench.assessment import Assessment, Unmet
from envs.agencybench.scenario import Check, Finding

__all__ = ["checks"]

_Run = Callable[[Assessment], Finding]
_COMPANIES = ("unitedhealth", "broadcom", "citigroup", "xpeng")
_COLUMNS = (
    "company", "core_business", "2023_revenue_approx", "key_executive", "key_milestone_or_fact",
    "primary_source",
)  # fmt: skip
_KEYS = ("company", "strategic_partner", "investment_amount", "founder_prior_startup")

#: Task to file to point to the words of which one must stand there; ``a&b`` needs both.
_POINTS: dict[int, dict[str, dict[str, tuple[str, ...]]]] = {
    1: {
        "subtask1_answer.txt": {"answer": (), "answer_company": ("unitedhealth",)},
        "subtask1_findings.md": {
            "findings": (),
            "subsidiary": ("optum",),
            "rival": ("disney",),
            "executive": ("witty",),
            "former_post": ("glaxosmithkline", "gsk"),
        },
    },
    2: {
        "subtask2_analysis.md": {
            "analysis": (),
            "company": ("broadcom",),
            "compared": ("salesforce",),
            "locations": ("san jose&singapore", "california&singapore"),
            "executive": ("hock tan",),
        },
        "subtask2_evidence.csv": {"evidence": (), "evidence_company": ("broadcom",)},
    },
    3: {
        "subtask3_memo.md": {
            "memo": (),
            "company": ("citigroup",),
            "compared": ("goldman",),
            "executive": ("jane fraser",),
            "education": ("harvard",),
        },
        "subtask3_sources.txt": {"sources": (), "addresses": ("http",)},
    },
    4: {
        "subtask4_summary.md": {
            "summary": (),
            "company": ("xpeng",),
            "partner": ("volkswagen", "vw"),
            "start_up": ("ucweb",),
            "investment": ("700",),
        },
    },
}


def _holds(path: str, words: tuple[str, ...]) -> _Run:
    def run(assessment: Assessment) -> Finding:
        text = assessment.text(path).lower()
        if not text.strip():
            raise Unmet(f"{path} is empty")
        if words and not any(all(w in text for w in word.split("&")) for word in words):
            raise Unmet(f"{path} does not say it")
        return Finding(1.0)

    return run


def _metrics(point: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        value = assessment.json("subtask4_metrics.json")
        if not isinstance(value, dict) or not value:
            raise Unmet("subtask4_metrics.json holds no object")
        if point == "keys" and not set(_KEYS) <= set(value):
            raise Unmet(f"keys are missing: {sorted(set(_KEYS) - set(value))}")
        if point == "company" and "xpeng" not in str(value.get("company", "")).lower():
            raise Unmet("it names another company")
        return Finding(1.0)

    return run


def _table(point: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        reader = csv.DictReader(io.StringIO(assessment.text("subtask5_summary.csv"), newline=""))
        try:
            rows, columns = list(reader), list(reader.fieldnames or [])
        except csv.Error as error:
            raise Unmet(f"subtask5_summary.csv is no table: {error}") from None
        if not columns:
            raise Unmet("subtask5_summary.csv has no head")
        if point == "columns" and not set(_COLUMNS) <= set(columns):
            raise Unmet(f"columns are missing: {sorted(set(_COLUMNS) - set(columns))}")
        if point == "companies":
            named = [str(row.get("company") or "").lower() for row in rows]
            if not all(any(name in cell for cell in named) for name in _COMPANIES):
                raise Unmet("a company is missing")
        if point == "filled" and not (
            rows and all(str(row.get("primary_source") or "").strip() for row in rows)
        ):
            raise Unmet("a primary_source is empty")
        return Finding(1.0)

    return run


def _overview(assessment: Assessment) -> Finding:
    text = assessment.text("subtask5_overview.md").lower()
    if not all(name in text for name in _COMPANIES):
        raise Unmet("a company is missing")
    return Finding(1.0)


def checks(number: int) -> tuple[Check, ...]:
    """The checks of task ``number``, from 1; none of them says an answer."""

    def check(name: str, run: _Run) -> Check:
        return Check(name, 1.0, name.replace("_", " "), run, kind="file")

    if number == 5:
        points: dict[str, _Run] = {
            "table": _table("table"),
            "table_columns": _table("columns"),
            "table_companies": _table("companies"),
            "table_sources": _table("filled"),
            "overview": _holds("subtask5_overview.md", ()),
            "overview_companies": _overview,
        }
    else:
        points = {
            name: _holds(path, words)
            for path, found in _POINTS[number].items()
            for name, words in found.items()
        }
        if number == 4:
            points |= {f"metrics_{point}": _metrics(point) for point in ("file", "keys", "company")}
    return tuple(check(name, run) for name, run in points.items())
