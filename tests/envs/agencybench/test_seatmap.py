"""frontend/seatmap: the oracle, doing nothing, cheating, and faults that are found."""

from __future__ import annotations

import json

import pytest
from agency_world import score, solution, world_of

from agentgym.sandbox import shared_sandbox
from envs.agencybench.scenario import State

ID = "frontend/seatmap"
TASKS = range(4)


@pytest.fixture(scope="module")
def sandbox():
    return shared_sandbox()


def page(*replaced):
    text = solution(ID, world_of(ID), 0)["index.html"].decode()
    for old, new in replaced:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return {"index.html": text}


def scored(sandbox, task, files, seed=0):
    browser = frozenset({"browser"})
    return score(ID, world_of(ID, seed), task, files, seed=seed, sandbox=sandbox, abilities=browser)


def values(sandbox, task, files):
    return {result.id: result.value for result in scored(sandbox, task, files).results}


def test_without_a_browser_nothing_is_scored():
    made = score(ID, world_of(ID), 0, page())
    assert made.score is None
    assert {result.state for result in made.results} == {State.SKIPPED}


@pytest.mark.browser
@pytest.mark.parametrize("task", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_oracle_is_right(sandbox, task):
    made = scored(sandbox, task, page())
    assert made.score == 1.0, made.as_json()


@pytest.mark.browser
def test_doing_nothing_is_worth_nothing(sandbox):
    for task in TASKS:
        made = scored(sandbox, task, {})
        assert (made.score, made.error) == (0.0, False)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 3))
def test_other_seeds_and_the_same_score_thrice(sandbox, seed):
    for task in TASKS:
        made = {json.dumps(scored(sandbox, task, page(), seed).as_json()) for _ in range(3)}
        assert len(made) == 1
        assert json.loads(made.pop())["score"] == 1.0


SHELL = "<!doctype html><div id=stage>Stage</div><p>Total: <span id=total>0</span></p>"
HARD_CODED = SHELL + "".join(
    f"<button data-seat={row}{n} aria-pressed=false"
    + (" aria-disabled=true" if (ord(row) + n) % 3 == 0 else "")
    + f">{row}{n}</button>"
    for row in "ABCDEFGH"
    for n in range(1, 13)
)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("html", [SHELL, HARD_CODED], ids=["shell", "hard-coded"])
def test_cheats(sandbox, html):
    assert max(scored(sandbox, task, {"index.html": html}).score for task in TASKS) <= 0.3


@pytest.mark.browser
@pytest.mark.slow
def test_faults_are_found(sandbox):
    made = values(sandbox, 1, page(("chosen.size < most", "chosen.size < 99")))
    assert made == {"choose": 0.0, "limits": 0.0, "total": 0.0, "keyboard": 1.0}
    made = values(sandbox, 2, page(("&& !taken.has(n)", "")))
    assert made == {"reload": 1.0, "broken": 1.0, "cannot": 0.0}
    pale = page(
        (
            "background: #ffffff; color: #1a1a1a; }\n#stage",
            "background: #ffffff; color: #999999; }\n#stage",
        )
    )
    made = values(sandbox, 3, pale)
    assert made == {"narrow": 1.0, "contrast": 0.0, "focus": 1.0, "clean": 1.0}
