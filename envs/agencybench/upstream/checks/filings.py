"""Research/scenario3: companies found from clues; each point counts the same.

As in the benchmark, with two differences. A company in the last table may be written in full: the
benchmark's script wants the cell ``unitedhealth`` and turns ``UnitedHealth Group`` down. And, as
its rubric says, what stands in the files counts only where they are about the right company: files
that are merely there, and lists of many companies, are worth nothing.
"""

from __future__ import annotations

import csv
import io
import re
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
#: Others that a list of large companies would name.
_OTHERS = (
    "abbott", "adobe", "alibaba", "alphabet", "amazon", "amgen", "apple", "at&t",
    "bank of america", "berkshire", "boeing", "byd", "caterpillar", "chevron", "cigna", "cisco",
    "coca-cola", "comcast", "costco", "cvs", "disney", "eli lilly", "exxon", "ford",
    "general motors", "goldman", "home depot", "ibm", "intel", "johnson & johnson", "jpmorgan",
    "kroger", "li auto", "lockheed", "mastercard", "mcdonald", "mckesson", "merck", "meta",
    "microsoft", "morgan stanley", "netflix", "nike", "nio", "nvidia", "oracle", "pepsi", "pfizer",
    "qualcomm", "salesforce", "starbucks", "tesla", "texas instruments", "toyota",
    "verizon", "visa", "volkswagen", "walmart", "wells fargo", "xiaomi",
)  # fmt: skip
#: Most companies of all these that a report on one, or on four, speaks of.
_MOST = 16
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


def _lower(assessment: Assessment, path: str) -> str:
    """A file's text in small letters.

    Raises:
        Unmet: If it is empty, or lists companies rather than to speak of one.
    """
    text = assessment.text(path).lower()
    if not text.strip():
        raise Unmet(f"{path} is empty")
    words = set(re.findall(r"[a-z&]+", text))
    named = sum(n in (text if " " in n or "-" in n else words) for n in (*_COMPANIES, *_OTHERS))
    if named > _MOST:
        raise Unmet(f"{path} names {named} companies")
    return text


def _named(assessment: Assessment, path: str, company: str) -> bool:
    try:
        return company in _lower(assessment, path)
    except Unmet:
        return False


def _holds(number: int, path: str, words: tuple[str, ...]) -> _Run:
    company, files = _COMPANIES[number - 1], tuple(_POINTS[number])

    def run(assessment: Assessment) -> Finding:
        text = _lower(assessment, path)
        if path.endswith("answer.txt") and len(text.split()) > 12:
            raise Unmet(f"{path} holds more than a company's name")
        if not any(_named(assessment, name, company) for name in files):
            raise Unmet("it is about another company")
        if words and not any(all(w in text for w in word.split("&")) for word in words):
            raise Unmet(f"{path} does not say it")
        return Finding(1.0)

    return run


def _metrics(point: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        value = assessment.json("subtask4_metrics.json")
        if not isinstance(value, dict) or not value:
            raise Unmet("subtask4_metrics.json holds no object")
        right = "xpeng" in str(value.get("company", "")).lower()
        if not right and not _named(assessment, "subtask4_summary.md", "xpeng"):
            raise Unmet("it is about another company")
        if point == "keys" and not set(_KEYS) <= set(value):
            raise Unmet(f"keys are missing: {sorted(set(_KEYS) - set(value))}")
        if point == "company" and not right:
            raise Unmet("it names another company")
        return Finding(1.0)

    return run


def _table(point: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        # Spreadsheets put a mark of the byte order first.
        text = assessment.text("subtask5_summary.csv").removeprefix("\ufeff")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        try:
            rows, columns = list(reader), list(reader.fieldnames or [])
        except csv.Error as error:
            raise Unmet(f"subtask5_summary.csv is no table: {error}") from None
        if not columns:
            raise Unmet("subtask5_summary.csv has no head")
        cells = [str(row.get("company") or "").lower() for row in rows]
        found = [[name for name in _COMPANIES if name in cell] for cell in cells]
        if [name for name in _COMPANIES if [name] not in found]:
            raise Unmet("a company has no row of its own")
        if not all(found):
            raise Unmet("a row is of another company")
        if point == "columns" and not set(_COLUMNS) <= set(columns):
            raise Unmet(f"columns are missing: {sorted(set(_COLUMNS) - set(columns))}")
        if point == "filled" and not (
            all(str(row.get("primary_source") or "").strip() for row in rows)
        ):
            raise Unmet("a primary_source is empty")
        return Finding(1.0)

    return run


def _overview(assessment: Assessment) -> Finding:
    text = _lower(assessment, "subtask5_overview.md")
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
            "overview": _overview,
            "overview_companies": _overview,
        }
    else:
        points = {
            name: _holds(number, path, words)
            for path, found in _POINTS[number].items()
            for name, words in found.items()
        }
        if number == 4:
            points |= {f"metrics_{point}": _metrics(point) for point in ("file", "keys", "company")}
    return tuple(check(name, run) for name, run in points.items())
