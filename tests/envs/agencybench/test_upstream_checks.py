"""The checks of a clone's tasks that need no judge, on workspaces written for them."""

from __future__ import annotations

import json

import pytest

from agentgym.sandbox import Snapshot
from envs.agencybench.assessment import Assessment
from envs.agencybench.assessor import assess
from envs.agencybench.scenario import State, Task, World
from envs.agencybench.upstream.checks import checks_for
from envs.agencybench.upstream.checks.desktop import _FOLDERS, _PLACES, _ROOT
from envs.agencybench.upstream.sections import Sections

NOTHING = Sections("q", "d", "r", "rubric")


def verdict(name, number, files, folders=(), gold=None, **more):
    task = Task(f"subtask{number}", "q", "", "", checks_for(name, number, NOTHING))
    content = {
        path: text.encode() if isinstance(text, str) else text for path, text in files.items()
    }
    assessment = Assessment(Snapshot(content, tuple(folders)), World({}, gold), None, "k", **more)
    return assess(task, assessment)


# MCP/scenario2 ----------------------------------------------------------------------------------

DESKTOP = {
    f"desktop/{source}": f"content of {source}"
    for places in _PLACES.values()
    for names in places.values()
    for source in names.values()
} | {"desktop/miscellaneous/notes.txt": "notes"}
SHELL = [f"{_ROOT}/{name}" for name in _FOLDERS]


def moved(*numbers):
    files = dict(DESKTOP)
    for number in numbers:
        for folder, names in _PLACES[number].items():
            for name, source in names.items():
                files[f"{_ROOT}/{folder}/{name}"] = files.pop(f"desktop/{source}")
    return files


def desktop(number, files, folders=SHELL):
    gold = {path: text.encode() for path, text in DESKTOP.items()}
    return verdict("MCP/scenario2", number, files, folders, gold)


def test_the_hierarchy_counts_as_a_whole():
    assert desktop(1, DESKTOP).score == 1.0
    assert desktop(1, DESKTOP, SHELL[1:]).score == 0.0
    assert desktop(1, moved(2, 3, 4), ()).score == 1.0


@pytest.mark.parametrize("number", [2, 3, 4])
def test_files_that_are_moved(number):
    assert desktop(number, moved(number)).score == 1.0
    nothing = desktop(number, DESKTOP)
    assert nothing.score == 0.0
    assert all(result.state is State.FAIL for result in nothing.results)


def test_files_that_are_misplaced_changed_or_doubled():
    swapped = moved(2)
    old = f"{_ROOT}/dev_bundle/source/settings.py"
    swapped[f"{_ROOT}/dev_bundle/tests/settings.py"] = swapped.pop(old)
    assert desktop(2, swapped).score == 0.0
    changed = moved(2) | {old: "other"}
    assert desktop(2, changed).score == 0.0
    doubled = moved(2) | {"desktop_2/settings.py": "again"}
    assert desktop(2, doubled).score == 0.8
    assert desktop(2, moved(2) | DESKTOP).score == 0.8


@pytest.mark.parametrize("number", [2, 3, 4, 5])
def test_empty_files_of_the_right_names_are_not_those_that_were_moved(number):
    names = {path: "" for path in moved(2, 3, 4) if not path.startswith("desktop/")}
    assert desktop(number, names).score == 0.0
    assert desktop(number, DESKTOP | names).score == 0.0


def test_a_clone_that_lacks_a_file_does_not_fail_who_moves_the_others():
    made = verdict("MCP/scenario2", 2, moved(2), SHELL, {})
    assert (made.score, {r.state for r in made.results}) == (None, {State.SKIPPED})


def test_removal_alone_is_worth_nothing():
    done = {path: text for path, text in moved(2, 3, 4).items() if not path.startswith("desktop/")}
    assert desktop(5, done).score == 1.0
    assert desktop(5, moved(2, 3, 4)).score == 0.0
    assert desktop(5, {}).score == 0.0


# Research/scenario2 and 3 -----------------------------------------------------------------------

GEORGE = (
    "Paul George: All-Star and All-Defensive First Team in 2018–19; the trade brought Shai "
    "Gilgeous-Alexander, All-Rookie; compare Alexander the Great."
)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (GEORGE, 1.0),
        (GEORGE.replace("the Great", ""), 0.8),
        ("Paul George.", 0.5),
        ("Somebody else, Shai.", 0.0),
        ("", 0.0),
    ],
)
def test_a_ladder(text, score):
    assert verdict("Research/scenario2", 1, {"subtask1.md": text}).score == score


def test_a_ladder_with_core_facts():
    text = "Kevin Durant, rookie of the year, four scoring titles, MVP 2014, finals MVP"
    assert verdict("Research/scenario2", 3, {"answers/subtask3.md": text}).score == 0.8
    assert (
        verdict("Research/scenario2", 3, {"subtask3.md": text + ", Russell, All-Star"}).score == 1
    )
    assert verdict("Research/scenario2", 3, {"subtask3.md": "Kevin Durant"}).score == 0.5


def test_the_summary_of_players():
    names = ["Paul George", "James Harden", "Kevin Durant", "Klay Thompson"]
    rows = [{"submitted_player": n, "matches_criteria": True, "conditions": ["a"]} for n in names]

    def score(value):
        return verdict("Research/scenario2", 5, {"subtask_summary.json": json.dumps(value)}).score

    assert score(rows) == 1.0
    assert score({"subtasks": rows}) == 1.0
    assert score({"subtasks": {f"subtask{n}": row for n, row in enumerate(rows)}}) == 1.0
    assert score([{**row, "submitted_player": row["submitted_player"][-6:]} for row in rows]) == 0.0
    assert score([{**row, "submitted_player": " ".join(names)} for row in rows]) == 0.0
    assert score([*rows, {**rows[0], "submitted_player": "LeBron James"}]) == 0.0
    assert score([{**row, "matches_criteria": "yes"} for row in rows]) == 0.8
    assert score([{**row, "conditions": []} for row in rows]) == 0.8
    assert score([{**row, "conditions": "a"} for row in rows]) == 0.5
    assert score(rows[:3]) == 0.0
    assert score("x") == 0.0
    # The task names the file summary.json; the benchmark's script looks for another one.
    keyed = {f"subtask{n}": row for n, row in enumerate(rows, 1)} | {"date": "2025-09-30"}
    files = {"summary.json": json.dumps(keyed)}
    assert verdict("Research/scenario2", 5, files).score == 1.0


def test_a_list_of_players_identifies_none():
    text = "Paul George, James Harden, Kevin Durant, Klay Thompson; " + GEORGE
    for number in range(1, 5):
        assert verdict("Research/scenario2", number, {f"subtask{number}.md": text}).score == 0.0
    text = "Kevin Durant: rookie of the year; four scoring titles; MVP in 2013\u201314; finals MVP"
    text += "; an All-Star came. He played with Russell Westbrook."
    assert verdict("Research/scenario2", 3, {"subtask3.md": text}).score == 0.8


def test_a_company_may_be_written_in_full():
    """The benchmark's script turns this table down."""
    names = ["UnitedHealth Group", "Broadcom Inc.", "Citigroup", "XPeng"]
    head = "company,core_business,2023_revenue_approx,key_executive,key_milestone_or_fact"
    head += ",primary_source"
    table = "\n".join([head, *(f"{name},a,b,c,d,https://x" for name in names)])
    made = verdict(
        "Research/scenario3", 5, {"subtask5_summary.csv": table, "subtask5_overview.md": str(names)}
    )
    assert made.score == 1.0
    made = verdict("Research/scenario3", 5, {"subtask5_summary.csv": "\ufeff" + table})
    assert made.score == pytest.approx(4 / 6)
    empty = table.replace(",https://x", ",")
    assert verdict("Research/scenario3", 5, {"subtask5_summary.csv": empty}).score == 0.5
    for other in (
        table.replace("Citi", "X"), f"{table}\nNio,a,b,c,d,https://x", f"{head}\n{names},a,b,c,d,e",
        head, f"{head}\n,,,,,https://x",
    ):  # fmt: skip
        assert verdict("Research/scenario3", 5, {"subtask5_summary.csv": other}).score == 0.0


FINDINGS = (
    "UnitedHealth Group is in the top ten of the Fortune 500. Optum alone took 226 billion, more "
    "than The Walt Disney Company. Sir Andrew Witty, earlier at GlaxoSmithKline, is its CEO."
)


def test_findings_on_a_company():
    files = {"subtask1_answer.txt": "UnitedHealth Group\n", "subtask1_findings.md": FINDINGS}
    assert verdict("Research/scenario3", 1, files).score == 1.0
    partial = files | {"subtask1_findings.md": FINDINGS.replace("Optum", "It")}
    assert verdict("Research/scenario3", 1, partial).score == pytest.approx(6 / 7)
    del files["subtask1_answer.txt"]
    assert verdict("Research/scenario3", 1, files).score == pytest.approx(5 / 7)


NAMES = (
    *("UnitedHealth", "Broadcom", "Citigroup", "XPeng", "Apple", "Amazon", "Disney", "Salesforce"),
    *("Goldman", "Volkswagen", "Tesla", "Nio", "Nvidia", "Walmart", "CVS", "Pfizer", "Chevron"),
    *("Intel", "Oracle", "Visa", "Toyota"),
)


@pytest.mark.parametrize("text", ["x", "Apple Inc.", "http://a.b " + ", ".join(NAMES)])
def test_files_that_are_there_and_lists_of_companies(text):
    """The rubric gives another company nothing; the benchmark's script counts that files exist."""
    keys = ("company", "strategic_partner", "investment_amount", "founder_prior_startup")
    files = {
        "subtask1_answer.txt": text, "subtask1_findings.md": text, "subtask2_analysis.md": text,
        "subtask2_evidence.csv": f"metric,value,source\n{text}", "subtask3_memo.md": text,
        "subtask3_sources.txt": f"{text} http://a.b", "subtask4_summary.md": text,
        "subtask4_metrics.json": json.dumps(dict.fromkeys(keys, "")),
        "subtask5_summary.csv": f"company,primary_source\n{text},x", "subtask5_overview.md": text,
    }  # fmt: skip
    for number in range(1, 6):
        made = verdict("Research/scenario3", number, files)
        assert made.score <= 0.05, made.as_json()


def test_an_empty_workspace_earns_nothing_anywhere():
    for number in range(1, 6):
        for name in ("Research/scenario2", "Research/scenario3", "MCP/scenario2"):
            assert verdict(name, number, {}, gold={}).score == 0.0
    assert verdict("Research/scenario3", 4, {"subtask4_summary.md": " "}).score == 0.0


# Tasks for judges -------------------------------------------------------------------------------


def test_without_a_judge_there_is_no_score_rather_than_zero():
    made = verdict("Game/scenario1", 1, {"index.html": "<p>"})
    assert made.score is None
    assert (made.score_strict, made.coverage, made.error) == (0.0, 0.0, False)
    assert {result.state for result in made.results} == {State.SKIPPED}


def test_a_judge_that_fails_is_an_error_and_no_score():
    class Broken:
        def text(self, task, rubric, work):
            raise RuntimeError("the endpoint is away")

    made = verdict(
        "Code/scenario5", 1, {"a.py": "x"}, abilities=frozenset({"judge"}), judge=Broken()
    )
    assert (made.score, made.error) == (None, True)
    assert "the endpoint is away" in made.results[0].observed
