"""frontend/seatmap: the oracle, doing nothing, cheating, and faults that are found."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
from agency_pages import DECEIVING, SEATS, greedy
from agency_world import score, solution, world_of

import agentgym  # noqa: F401 - registers the environments
from agentgym.sandbox import shared_sandbox
from envs.agencybench.browser import read_png
from envs.agencybench.oracle import demonstrate
from envs.agencybench.scenario import State

ID = "frontend/seatmap"
TASKS = range(4)


@pytest.fixture(scope="module")
def sandbox():
    """What drives the browser is imported once, and not for every look."""
    return shared_sandbox(preload=("selenium.webdriver.chrome.webdriver",))


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
def test_the_oracle_is_right(sandbox):
    made = scored(sandbox, 0, page())
    assert made.score == 1.0, made.as_json()


@pytest.mark.browser
def test_doing_nothing_is_worth_nothing(sandbox):
    for task in TASKS:
        made = scored(sandbox, task, {})
        assert (made.score, made.error) == (0.0, False)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("task", [0, 2, 3])  # an episode of another seed is below
def test_another_seed_and_the_same_score_thrice(sandbox, task):
    """Where pixels, a reload or another width have a part in it."""
    made = {json.dumps(scored(sandbox, task, page(), 1).as_json()) for _ in range(3)}
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


# Every seat at once taken and chosen, and all the words of the rubric.
ALL_AT_ONCE = SHELL + "".join(
    f"<button data-seat={row}{n} aria-pressed=true aria-disabled=true "
    f"style='width:30px;height:30px'>{row}{n}</button>" + ("<br>" if n == 12 else "")
    for row in "ABCDEFGH"
    for n in range(1, 13)
)
STUFFED = ALL_AT_ONCE + "<div id=legend>" + "".join(
    f"<span data-kind={kind}><i>#</i>{kind}</span>" for kind in ("free", "taken", "selected")
)  # fmt: skip


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize(
    ("html", "tasks"), [(HARD_CODED, (0, 3)), (STUFFED, TASKS)], ids=["hard-coded", "stuffed"]
)
def test_cheats(sandbox, html, tasks):
    """The other tasks of the first are those that need a script."""
    scores = [scored(sandbox, task, {"index.html": html}).score for task in tasks]
    assert max(scores) <= 0.3, scores


@pytest.mark.browser
@pytest.mark.slow
def test_a_page_without_seats_is_worth_nothing(sandbox):
    assert scored(sandbox, 0, {"index.html": SHELL}).score == 0.0


@pytest.mark.browser
@pytest.mark.slow
def test_an_episode_by_the_oracle(sandbox):
    """All tasks through the environment, with the pictures that checks look at."""
    kept = {}
    env = gym.make("AgencyBench-v0", scenario=ID, artefacts=kept.__setitem__)
    env.reset(seed=4)
    for action in demonstrate(env, np.random.default_rng(0)):
        *_, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    env.close()
    assert (info["success"], info["score"], info["stop_reason"]) == (True, 1.0, "solved")
    assert info["details"]["coverage"] == 1.0
    assert {name.rpartition("/")[2] for name in kept} == {"map.png", "narrow.png"}
    assert all(read_png(shot).height == 720 for shot in kept.values())


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


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_right_page_of_another_make(sandbox, task):
    made = scored(sandbox, task, {"index.html": SEATS})
    assert made.score == 1.0, made.as_json()


FETCH = "await (await fetch('seats.json')).json()"
# Names of rows on one side, which shift the seats; and what the file says, told a moment later.
BESIDE = (
    ("repeat(12, var(--seat)); gap", "18px repeat(12, var(--seat)); gap"),
    (
        "    for (let c = 1; c <= 12; c++) {",
        "    for (let c = (map.append(Object.assign(document.createElement('b'),"
        " {textContent: row})), 1); c <= 12; c++) {",
    ),
    ("of map.children)", "of map.querySelectorAll('[data-seat]'))"),
)
LATER = (
    (FETCH, "{ taken: [], prices: {} }"),
    (
        "  draw();\n})();",
        f"  Object.assign(plan, {FETCH});\n  await new Promise(f => setTimeout(f, 200));\n"
        "  for (const name of plan.taken) {\n    taken.add(name);\n    chosen.delete(name);\n"
        "    seat(name).setAttribute('aria-disabled', 'true');\n  }\n  draw();\n})();",
    ),
)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize(
    ("replaced", "task"), [(BESIDE, 0), (LATER, 0), (LATER, 2)], ids=["beside", "later", "kept"]
)
def test_right_pages_with_names_of_rows_or_that_read_the_file_late(sandbox, replaced, task):
    made = scored(sandbox, task, page(*replaced))
    assert made.score == 1.0, made.as_json()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("task", [0, 1, 3])
def test_a_page_that_knows_the_file_of_the_workspace_alone(sandbox, task):
    visible = world_of(ID).files["seats.json"].decode()
    made = scored(sandbox, task, page((FETCH, visible)))
    assert made.score <= 0.3, made.as_json()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("task", [0, 3])
def test_a_page_does_not_deceive_who_measures_it(sandbox, task):
    made = scored(sandbox, task, {"index.html": DECEIVING})
    assert (made.score, made.error) == (0.0, False), made.as_json()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["noise", "gone", "prompts"])
def test_a_page_that_spoils_the_look_is_no_error_of_the_assessor(sandbox, kind):
    made = scored(sandbox, 0, {"index.html": greedy(kind)})
    assert (made.score, made.error) == (0.0, False), made.as_json()
