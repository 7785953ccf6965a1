"""Research/1, 4 and 5: what rules see of searches and reports.

Whether a source is there and says what is told of it needs the web and a judge. Rules look at the
form that is asked for, and whether it is filled with something of its own about the question.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from envs.agencybench.assessment import Assessment, Unmet
from envs.agencybench.browser import need
from envs.agencybench.scenario import Check, Finding
from envs.agencybench.upstream.checks.forms import parsed
from envs.agencybench.upstream.checks.judged import text_check
from envs.agencybench.upstream.sections import Sections

__all__ = ["dataset_checks", "report_checks"]

_SOURCES = ("workspace/web_info.json", "web_info.json")
_REPORTS = ("workspace/ResearchSystem_ChatVsAgent.json", "ResearchSystem_ChatVsAgent.json")
_TEXTS = ("title", "publisher", "summary", "notes_for_report")
#: Words of questions that say nothing of what they are about.
_STOP = {
    "about", "academic", "also", "approach", "approached", "been", "being", "each", "from", "have",
    "focusing", "including", "into", "outline", "please", "referencing", "relevant", "should",
    "that", "their", "them", "there", "these", "this", "those", "through", "what", "when", "which",
    "with", "would", "your",
}  # fmt: skip


def _at(assessment: Assessment, paths: Sequence[str]) -> str:
    return next((path for path in paths if path in assessment.files), paths[0])


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]{2,}", text.casefold())


def _topic(question: str) -> set[str]:
    return {word for word in _words(question) if len(word) > 3 and word not in _STOP}


def _about(text: str, question: str, least: int) -> bool:
    """Whether a text uses words of the question; endings are free."""
    stems = {word[:5] for word in _topic(question)}
    return len(stems & {word[:5] for word in _words(text)}) >= least


def _alike(one: str, other: str) -> bool:
    first, second = set(_words(one)), set(_words(other))
    return len(first & second) > 0.8 * max(1, len(first | second))


def _question(sections: Sections) -> str:
    found = re.search(r'"question":\s*"([^"]+)"', sections.query)
    if found:
        return found[1]
    found = re.search(r"(?:guiding question|once more):\s*\n+(.+)", sections.query)
    return found[1].strip() if found else sections.query


# Research/4 and 5 -------------------------------------------------------------------------------


def _entries(assessment: Assessment) -> list[dict[str, Any]]:
    path = _at(assessment, _SOURCES)
    value = assessment.json(path)
    need(isinstance(value, list), f"{path} holds no array")
    need(5 <= len(value) <= 10, f"{path} holds {len(value)} sources, not 5 to 10")
    need(all(isinstance(entry, dict) for entry in value), "an entry is no object")
    made: list[dict[str, Any]] = value
    return made


def _amiss(entry: dict[str, Any]) -> str | None:
    for key in _TEXTS:
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            return f"{key} is empty"
    if entry.get("source_type") not in ("paper", "blog", "report", "other"):
        return f"source_type is {entry.get('source_type')!r}"
    if not re.fullmatch(r"(?:19|20)\d\d-[01]\d-[0-3]\d", str(entry.get("published_at"))):
        return f"published_at is {entry.get('published_at')!r}"
    address = urlsplit(str(entry.get("url")))
    if address.scheme not in ("http", "https") or "." not in address.netloc:
        return f"url is {entry.get('url')!r}"
    sentences = re.findall(r"[.!?。](?:\s|$)", entry["summary"])
    if not 2 <= len(sentences) <= 6 or len(entry["summary"]) < 80:
        return "the summary has not 2 to 4 sentences"
    points = entry.get("key_points")
    if not isinstance(points, list) or not points or not all(isinstance(p, str) for p in points):
        return "key_points is no list of texts"
    return None


def _sources(assessment: Assessment) -> Finding:
    entries = _entries(assessment)
    faults = [fault for entry in entries if (fault := _amiss(entry)) is not None]
    if faults:
        raise Unmet(f"{len(faults)} sources are amiss, one of them: {faults[0]}"[:200])
    for key in ("url", "title"):
        need(len({entry[key] for entry in entries}) == len(entries), f"a {key} stands twice")
    for place, entry in enumerate(entries):
        copies = [other for other in entries[:place] if _alike(entry["summary"], other["summary"])]
        need(not copies, "two summaries are the same")
    return Finding(1.0)


def _variety(question: str) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        _sources(assessment)
        entries = _entries(assessment)
        kinds = {entry["source_type"] for entry in entries}
        need(len(kinds) >= 2, "all sources are of one type")
        hosts = {urlsplit(entry["url"]).netloc for entry in entries}
        need(len(hosts) >= 3, "all sources are of the same places")
        off = [e for e in entries if not _about(e["summary"] + e["title"], question, 2)]
        need(not off, f"{len(off)} summaries have nothing to do with the question")
        return Finding(1.0)

    return run


def _response(assessment: Assessment, sections: Sections) -> str:
    path = _at(assessment, _REPORTS)
    value = assessment.json(path)
    need(isinstance(value, list) and len(value) == 1, f"{path} holds no array of one report")
    entry = value[0]
    need(isinstance(entry, dict), "the report is no object")
    wanted = re.search(r'"id":\s*(\d+)', sections.query)
    if wanted:
        need(entry.get("id") == int(wanted[1]), f"id is not {wanted[1]}")
    need(entry.get("question") == _question(sections), "question is not the one asked")
    need(isinstance(entry.get("response"), str), "response is no text")
    return str(entry["response"])


def _split(text: str) -> tuple[str, str]:
    """The report before its last heading References, which may be numbered, and after it."""
    heads = list(re.finditer(r"(?im)^[\W\d]*(?:[ivx]+\W+)?references\b.{0,20}$", text))
    if not heads:
        raise Unmet("there is no section References")
    return text[: heads[-1].start()], text[heads[-1].end() :]


def _cited(text: str) -> set[int]:
    """Numbers in brackets: ``[1]``, ``[2, 3]`` and ``[4]-[6]`` or ``[4-6]``."""
    made: set[int] = set()
    joined = re.sub(r"(\d)\]\s*[-\u2013]\s*\[(\d)", r"\1-\2", text)
    # An interval such as [0, 1] cites nothing.
    for inside in re.findall(r"\[([1-9][\d\s,\u2013-]{0,60})\]", joined):
        for part in inside.split(","):
            ends = [int(end) for end in re.findall(r"\d{1,4}", part)]
            made |= set(range(ends[0], min(ends[-1], ends[0] + 50) + 1)) if ends else set()
    return made


def _report(sections: Sections) -> Callable[[Assessment], Finding]:
    question = _question(sections)

    def run(assessment: Assessment) -> Finding:
        body, _ = _split(_response(assessment, sections))
        plain = " ".join(body.split())
        need(" ".join(question.split()) in plain, "the question is not restated verbatim")
        count = len(plain.replace(question, "").split())
        need(250 <= count <= 1100, f"the report has {count} words")
        parts = [part for part in re.split(r"\n\s*\n", body) if len(part.split()) >= 25]
        own = [part for part in parts if question not in part]
        need(len(own) >= 4, "it is not in parts")
        for place, part in enumerate(own):
            need(not any(_alike(part, other) for other in own[:place]), "parts are the same")
        low = body.casefold()
        need("method" in low or "assumption" in low, "neither method nor assumptions are told")
        need("future" in low or "implication" in low, "implications are not told")
        need(_about(body.replace(question, ""), question, 5), "it is not about the question")
        cited = sum(bool(_cited(part)) for part in own)
        need(cited >= 0.6 * len(own), f"{cited} of {len(own)} parts cite something")
        return Finding(1.0)

    return run


def _citations(sections: Sections) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        body, listed = _split(_response(assessment, sections))
        cited = _cited(body)
        lines = dict(re.findall(r"(?m)^\W*?\[(\d{1,4})\]\s*(\S.{20,})$", listed))
        known = {int(n) for n in lines}
        need(len(cited) >= 4, f"{len(cited)} sources are cited")
        need(cited <= known, f"not among the references: {sorted(cited - known)}")
        need(len(set(lines.values())) == len(lines), "a reference stands twice")
        try:
            entries = _entries(assessment)
        except Unmet:
            entries = []
        texts = listed.casefold()
        found = sum(
            str(e.get("title", "-")).casefold() in texts
            or str(e.get("url", "-")).casefold() in texts
            for e in entries
        )
        need(found >= 3, f"{found} of the sources that were gathered are referenced")
        return Finding(1.0)

    return run


def report_checks(number: int, sections: Sections) -> tuple[Check, ...]:
    """The checks of a task of Research/4 and 5."""
    if number == 1:
        return (
            Check("sources", 0.3, "five to ten whole sources", _sources, kind="file"),
            Check(
                "variety", 0.2, "sources of several kinds, about the question",
                _variety(_question(sections)), kind="file",
            ),
            text_check(sections, 0.5),
        )  # fmt: skip
    return (
        Check("report", 0.25, "a report in the form asked for", _report(sections), kind="file"),
        Check(
            "citations", 0.25, "every citation has its reference", _citations(sections),
            kind="citation",
        ),
        text_check(sections, 0.5, "recall", "a judge finds the points that matter"),
    )  # fmt: skip


# Research/1 -------------------------------------------------------------------------------------


def _named(assessment: Assessment, name: str) -> str:
    """A path that ends in a name; the tasks write ``data`` and a name with no stroke between."""
    bare = name.rsplit("/", 1)[-1]
    for path in (name, name.replace("/", ""), bare, f"data{bare}"):
        if path in assessment.files:
            return path
    raise Unmet(f"{name} is missing")


def _brief(assessment: Assessment) -> Finding:
    text = assessment.text(_named(assessment, "data/context_brief.md"))
    parts = re.split(r"(?m)^#+\s*(.+)$", text)
    found = {parts[n].casefold(): parts[n + 1] for n in range(1, len(parts) - 1, 2)}
    for wanted in ("environment", "mandatory files", "dataset requirements", "execution plan"):
        body = next((body for head, body in found.items() if wanted in head), None)
        need(body is not None, f"there is no section {wanted!r}")
        need(len(_words(body or "")) >= 15, f"the section {wanted!r} says nothing")
    absent = [n for n in (1, 2, 3) if f"test_data_{n}.json" not in text]
    need(not absent, f"files are not named: {absent}")
    need(re.search(r"(?m)^\s*(?:\d+[.)]|[-*])\s", text) is not None, "there are no steps")
    return Finding(1.0)


def _keys(value: Any) -> set[str]:
    entry = value[0] if isinstance(value, list) and value else value
    return set(entry) if isinstance(entry, dict) else set()


def _described(number: int) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        name = f"search_data_{number}.json"
        value = assessment.json(_named(assessment, f"data/{name}"))
        sample = assessment.world.files.get(f"data/test_data_{number}.json")
        made = _keys(value)
        need(bool(made), f"{name} holds no object")
        if sample is not None:
            wanted = _keys(json.loads(sample))
            need(wanted <= made, f"{name} lacks {sorted(wanted - made)}")
            need(value != json.loads(sample), f"{name} is the sample")
        entry = value[0] if isinstance(value, list) else value
        empty = [key for key, member in entry.items() if member in ("", None, [], {})]
        need(not empty, f"{name}: empty are {empty}")
        return Finding(1.0)

    return run


def _fetched(word: str) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        scripts = [p for p in assessment.files if p.endswith(".py") and "script" in p]
        scripts = [p for p in scripts if word in p.casefold()] or scripts
        need(bool(scripts), "there is no script that fetches")
        text, tree = assessment.text(scripts[0]), parsed(assessment, scripts[0])
        calls = sum(isinstance(node, ast.Call) for node in ast.walk(tree))
        need(calls >= 3, f"{scripts[0]} does nothing")
        need("readme" in text.casefold() and "random" in text, "it takes no README or no sample")
        fixed = re.search(r"['\"](?:/home/|/Users/|[A-Z]:\\\\)", text)
        need(fixed is None, f"{scripts[0]} names a folder of one machine")
        readme = [p for p in assessment.files if "readme" in p.casefold() and word in p.casefold()]
        readme = readme or [p for p in assessment.files if "readme" in p.casefold()]
        filled = [p for p in readme if len(assessment.files[p]) >= 200]
        need(bool(filled), "there is no README of the data set")
        return Finding(1.0)

    return run


def _validated(assessment: Assessment) -> Finding:
    text = assessment.text(_named(assessment, "data/validation_report.md"))
    absent = [n for n in (1, 2, 3) if f"search_data_{n}.json" not in text]
    need(not absent, f"the report does not name search_data of {absent}")
    need("python" in text and "readme" in text.casefold(), "no command or no README is named")
    need(len(_words(text)) >= 80, "the report says nothing")
    for number in (1, 2, 3):
        _described(number)(assessment)
    return Finding(1.0)


def dataset_checks(number: int, sections: Sections) -> tuple[Check, ...]:
    """The checks of a task of Research/1."""
    judge = text_check(sections, 0.6)
    if number == 1:
        return (Check("brief", 0.4, "sections, files and steps", _brief, kind="file"), judge)
    if number == 5:
        return (Check("validation", 0.4, "a report on valid files", _validated, kind="file"), judge)
    word = {2: "conscious", 3: "trans", 4: "danish"}[number]
    return (
        Check("script", 0.2, "a script and what it fetched", _fetched(word), kind="file"),
        Check(
            "metadata", 0.2, "metadata by the sample's schema", _described(number - 1), kind="file"
        ),
        judge,
    )  # fmt: skip
