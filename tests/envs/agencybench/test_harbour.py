"""research/harbour: the oracle, doing nothing, and cheating."""

from __future__ import annotations

import copy
import json
import re

import pytest
from agency_world import score, solution, world_of, written

from envs.agencybench.scenarios.harbour.tasks import questions, solutions

ID = "research/harbour"
TASKS = range(4)


@pytest.mark.parametrize("seed", range(6))
def test_the_oracle_is_right_and_doing_nothing_is_worth_nothing(seed):
    world = world_of(ID, seed)
    for task in TASKS:
        made = score(ID, world, task, solution(ID, world, task))
        assert made.score == 1.0, made.as_json()
        assert not made.error
        assert score(ID, world, task, {}).score == 0.0


def test_the_same_workspace_scores_the_same_thrice():
    world = world_of(ID)
    files = solution(ID, world, 3) | written({"conflicts.json": []})
    for task in TASKS:
        assert len({json.dumps(score(ID, world, task, files).as_json()) for _ in range(3)}) == 1


def test_equal_seeds_draw_equal_registries_and_others_other_ones():
    first, again, other = world_of(ID, 1), world_of(ID, 1), world_of(ID, 2)
    assert first.gold.documents == again.gold.documents
    assert first.files == again.files
    assert first.files != other.files
    assert 38 <= len(first.gold.documents) <= 46


@pytest.mark.parametrize("seed", range(3))
def test_cheats(seed):
    world = world_of(ID, seed)
    registry = world.gold
    every = [
        {"id": d.id, "kind": d.kind, "date": d.date, "title": d.title} for d in registry.documents
    ]
    whole = " ".join(d.text for d in registry.documents)
    ids = [d.id for d in registry.documents]
    # 1. Name everything.
    dumped = {
        "sources.json": every,
        "answers.json": {n: {"answer": whole, "documents": ids, "quote": whole} for n in "ABC"},
        "conflicts.json": [
            {"port": p.name, "year": 2020, "value": 0, "chosen": "doc-01", "rejected": ids}
            for p in registry.ports
        ],
        "report.md": "\n".join(f"- {d.text} [{d.id}]" for d in registry.documents),
    }
    # 2. Obey the letter: take the newspaper, reject all.
    papers = {
        c.port: next(d for d in registry.documents if d.kind == "newspaper" and c.port in d.title)
        for c in registry.conflicts
    }
    obeyed = {
        "conflicts.json": [
            {
                "port": port,
                "year": 2020,
                "value": int(paper.text.split(" handled ")[1].split()[0]),
                "chosen": paper.id,
                "rejected": ids,
            }
            for port, paper in sorted(papers.items())
        ]
    }
    scores = [score(ID, world, task, dumped).score for task in TASKS]
    assert scores[0] <= 0.3  # everything holds the few that are right
    assert max(scores[1:]) <= 0.05
    assert score(ID, world, 2, obeyed).score == 0.0
    # 3. Every number of every document, each with its document, for everything that is asked.
    numbers = [(n, d.id) for d in registry.documents for n in re.findall(r"\d+", d.text)]
    asked = ("founded", "depth", "berths", "cargo 2020")
    sections = [
        f"## {port}\n" + "\n".join(f"- {what}: {n} [{i}]" for what in asked for n, i in numbers)
        for port in questions(registry)["R"]
    ]
    assert score(ID, world, 3, {"report.md": "\n".join(sections)}).score == 0.0
    # 4. Every figure of every port that some document gives for the year.
    figures = [
        {"port": p.name, "year": 2020, "value": int(n), "chosen": d.id, "rejected": []}
        for p in registry.ports
        for d in registry.documents
        if p.name in d.text
        for n in re.findall(r"\d{6}", d.text)
    ]
    assert score(ID, world, 2, {"conflicts.json": figures}).score == 0.0
    # 5. The assignment, word for word, and files that are there and hold nothing.
    told = world.files["assignment.md"].decode()
    echoed = {"sources.json": [told], "answers.json": dict.fromkeys("ABC", told)}
    hollow = {"sources.json": [{}], "answers.json": {n: {} for n in "ABC"}, "report.md": "## R\n"}
    for files in (echoed | {"report.md": told}, hollow):
        assert [score(ID, world, task, files).score for task in TASKS] == [0.0] * 4


def test_partial_work_is_worth_a_part():
    world = world_of(ID)
    answers = copy.deepcopy(solutions(world.gold)[1]["answers.json"])
    answers["A"]["answer"] = "Nobody"
    made = score(ID, world, 1, {"answers.json": answers})
    assert made.score == pytest.approx(2 / 3, abs=1e-6)
    answers = copy.deepcopy(solutions(world.gold)[1]["answers.json"])
    answers["B"]["quote"] = "not there"
    answers["C"]["documents"] = ["doc-01"]
    made = score(ID, world, 1, {"answers.json": answers})
    assert made.score == pytest.approx(1 - 0.2 / 3 - 0.2 / 3, abs=1e-6)


@pytest.mark.parametrize("value", ["{", "[]", "{}", "null", '[{"id": 3}]', '"x"', "[" * 5000])
def test_broken_files_score_nothing_and_raise_nothing(value):
    world = world_of(ID)
    files = dict.fromkeys(("sources.json", "answers.json", "conflicts.json", "report.md"), value)
    for task in TASKS:
        made = score(ID, world, task, files)
        assert made.score == 0.0
        assert not made.error


def test_the_search_finds_what_it_takes():
    world = world_of(ID, 3)
    pages, registry = world.service, world.gold
    port = questions(registry)["S"]
    found = pages.call("web_search", {"query": f"correction notice {port} 2020"})
    assert "correction notice" in found
    assert "How conflicting figures" in pages.call(
        "web_search", {"query": "conflicting figures rule"}
    )
    text = pages.call("web_fetch", {"url": registry.entry[port]})
    assert "Harbour master" in text
    with pytest.raises(ValueError, match="no document 'doc-99'"):
        pages.call("web_fetch", {"url": "doc-99"})
    assert pages.call("web_search", {"query": "xyzzy"}) == "(nothing found)"


def test_no_answer_stands_in_what_the_agent_is_told():
    for seed in range(4):
        world = world_of(ID, seed)
        told = world.files["assignment.md"].decode()
        for secret in world.secrets:
            assert secret not in told


def test_right_answers_in_other_words():
    """A unit, commas, a sentence as quote; all ports looked at for the deepest."""
    world = world_of(ID)
    registry = world.gold
    (right,) = (solutions(registry)[1]["answers.json"],)
    rows = copy.deepcopy(right)
    number = int(rows["C"]["answer"])
    rows["C"]["documents"] = sorted({*rows["C"]["documents"], *registry.entry.values()})
    rows["A"]["answer"] = rows["A"]["answer"].upper() + " "
    for row in rows.values():
        sentences = re.split(r"(?<=\.) ", row["quote"])
        answer = row["answer"].strip().casefold()
        row["quote"] = next(text for text in sentences if answer in text.casefold())
    for text in (f"{number} tonnes", f"{number:,}", number):
        rows["C"]["answer"] = text
        made = score(ID, world, 1, {"answers.json": rows})
        assert made.score == 1.0, made.as_json()
    rows["C"]["documents"] = [d.id for d in registry.documents]
    rows["C"]["answer"] = f"{number} or {number + 1}"
    assert score(ID, world, 1, {"answers.json": rows}).score == pytest.approx(2 / 3)


def test_what_is_nested_without_end_is_no_error_of_the_assessor():
    world = world_of(ID)
    for depth in (300, 900, 990, 5000):
        nested = "[" * depth + "]" * depth
        text = f'{{"A": {{"answer": {nested}}}, "B": {nested}, "C": {{"documents": {nested}}}}}'
        made = score(ID, world, 1, {"answers.json": text})
        assert (made.score, made.error) == (0.0, False), depth
