"""Games and frontends of a clone: pages that do what is asked, nothing, or that pretend."""

from __future__ import annotations

import base64

import page_frontends
import page_kit
import page_more
import pytest

from agentgym.sandbox import Snapshot, shared_sandbox
from envs.agencybench.assessment import Assessment, Unmet
from envs.agencybench.assessor import assess
from envs.agencybench.judges import Judge
from envs.agencybench.scenario import State, Task, World
from envs.agencybench.upstream.checks.pages.stages import reads, records, spread
from envs.agencybench.upstream.checks.table import checks_for
from envs.agencybench.upstream.sections import Sections

PAGES = {**page_kit.PAGES, **page_more.PAGES, **page_frontends.PAGES}
NAMES = sorted(PAGES)
SECTIONS = Sections("q", "d", "r", "rubric")
SLOW = pytest.mark.slow

#: Elements that stand where they must, behind an interface that answers and does nothing.
STILL = """
addEventListener('DOMContentLoaded', () => {
  const keep = K.names.init, told = Object.keys(app).filter(k => k.startsWith('describe'));
  for (const k of Object.keys(app)) if (k !== keep && !told.includes(k)) app[k] = () => ({});
  for (const kind of ['click', 'keydown', 'input'])
    addEventListener(kind, e => e.stopImmediatePropagation(), true);
});
"""
#: A description of what is not there.
TOLD = """
addEventListener('DOMContentLoaded', () => {
  const name = Object.keys(app).find(k => k.startsWith('describe'));
  const told = JSON.parse(JSON.stringify(app[name]()));
  app[name] = () => told;
  document.body.style.zoom = 0.5;
});
"""


#: What it is asked of sizes and times is answered as is wanted.
DECEIT = """
(() => {
  const real = Element.prototype.getBoundingClientRect;
  Element.prototype.getBoundingClientRect = function () {
    const r = real.call(this);
    return { x: 2 * r.x, y: 2 * r.y, left: 2 * r.x, top: 2 * r.y, width: 2 * r.width,
             height: 2 * r.height };
  };
  const pick = document.querySelectorAll.bind(document);
  document.querySelectorAll = s => { const found = pick(s); return found.length ? found : [1]; };
  addEventListener('DOMContentLoaded', () => { document.body.style.zoom = 0.5; });
})();
"""


def sampled(always=()):
    """Every task of every scenario; CI has time for one of each scenario, and a few at once."""
    made = []
    for place, name in enumerate(NAMES):
        for number in range(1, 6):
            marks = [pytest.mark.browser]
            if (name, number) not in always:
                marks.append(pytest.mark.slow)
                if number != place % 5 + 1:
                    marks.append(pytest.mark.marathon)
            made.append(pytest.param(name, number, marks=marks))
    return made


def scored(name, number, files, **more):
    task = Task(f"subtask{number}", "q", "", "", checks_for(name, number, SECTIONS))
    content = {path: text.encode() for path, text in files.items()}
    more = {"abilities": frozenset({"browser"}), **more}
    sandbox = shared_sandbox()
    return assess(task, Assessment(Snapshot(content), World({}), sandbox, "k", **more))


def with_script(name, script):
    files = PAGES[name]()
    return {**files, "app.js": files["app.js"] + script}


@pytest.mark.parametrize(
    ("name", "number"), sampled({("Game/scenario4", 2), ("Frontend/scenario2", 3)})
)
def test_a_page_that_does_what_is_asked(name, number):
    made = scored(name, number, PAGES[name]())
    assert made.score == 1.0, [r for r in made.as_json()["checks"] if r["value"] != 1.0]
    share = 0.85 if name.startswith("Game") else 0.8
    assert made.coverage == pytest.approx(share, abs=1e-5)
    assert {r.id for r in made.results if r.state is State.SKIPPED} == {"vision"}


@pytest.mark.parametrize(("name", "number"), sampled({("Game/scenario4", 1)}))
def test_a_page_that_pretends(name, number):
    """For the first task a description of what is not there, later one that only looks right."""
    made = scored(name, number, with_script(name, TOLD if number == 1 else STILL))
    assert not made.error, made.as_json()
    assert made.score is not None
    assert made.score <= 0.3, made.as_json()


@pytest.mark.browser
@pytest.mark.parametrize("name", ["Game/scenario4", pytest.param("Game/scenario5", marks=SLOW)])
def test_a_page_that_deceives_who_measures_it(name):
    made = scored(name, 1, with_script(name, DECEIT))
    assert not made.error, made.as_json()
    assert made.score is not None
    assert made.score <= 0.3, made.as_json()


@pytest.mark.browser
@pytest.mark.slow
def test_a_page_that_forges_the_clock_of_a_replay():
    files = PAGES["Game/scenario4"]()
    hasty = """
(() => {
  const wait = window.setTimeout.bind(window), now = performance.now.bind(performance);
  window.setTimeout = (f, ms, ...more) => wait(f, Math.min(ms, 5), ...more);
  performance.now = () => 80 * now();
  const real = window.MutationObserver;
  window.MutationObserver = function (f) { return new real((...a) => wait(() => f(...a), 0)); };
})();
"""
    made = scored("Game/scenario4", 3, {**files, "app.js": hasty + files["app.js"]})
    assert next(r for r in made.results if r.id == "replay").value == 0.0, made.as_json()


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_workspace_is_worth_nothing(name):
    for number in range(1, 6):
        made = scored(name, number, {})
        assert (made.score, made.error) == (0.0, False)
        assert scored(name, number, PAGES[name](), abilities=frozenset()).score is None


def test_the_weights_of_a_task_are_one():
    for name in NAMES:
        for number in range(1, 6):
            total = sum(check.weight for check in checks_for(name, number, SECTIONS))
            assert total == pytest.approx(1.0, abs=1e-4)


@pytest.mark.browser
@pytest.mark.slow
def test_a_vision_judge_takes_the_rest():
    png = base64.b64decode("iVBORw0KGgo=")
    judge = Judge(
        vision=lambda messages: '{"score": 5, "confidence": 1, "comment": ""}',
        screens=lambda assessment: [png],
    )
    abilities = frozenset({"browser", "vision"})
    made = scored("Game/scenario4", 1, PAGES["Game/scenario4"](), abilities=abilities, judge=judge)
    assert made.coverage == 1.0
    assert made.score == pytest.approx(0.85 + 0.15 * 0.5)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number", "old", "new", "failing"),
    [
        ("Game/scenario1", 1, '"w": 640', '"w": 600', {"geometry", "bootstrap"}),
        ("Game/scenario4", 2, "animation:pulse 1s infinite", "", {"ring"}),
        ("Game/scenario4", 3, '"pace": 320', '"pace": 120', {"replay"}),
        ("Game/scenario4", 3, "(S.busy || S.over) return", "(S.busy) return", {"end", "replay"}),
        ("Game/scenario4", 4, '"storage": "tictactoe-state"', '"storage": "other"', {"save"}),
        ("Game/scenario4", 5, "1000 + S.n", "2000 - Math.random()", {"stability"}),
        # What the task plays, by heart.
        (
            "Game/scenario9", 2, "|| m.cell[3] === cell[3] || box(m.cell) === box(cell)", "",
            {"rules"},
        ),
        (
            "Game/scenario2", 2, "score += 2 * v[n]; n += 1;",
            "score += 2 * v[n]; n += 1; v[n + 1] = 0;", {"rule"},
        ),
        (
            "Game/scenario4", 3, "  winner() {\n",
            "  winner() { return S.h.length >= 5 ? MARKS[0] : null;\n", {"other"},
        ),
    ],
)  # fmt: skip
def test_a_fault_is_found_where_it_is(name, number, old, new, failing):
    files = PAGES[name]()
    assert sum(old in text for text in files.values()) >= 1
    files = {path: text.replace(old, new) for path, text in files.items()}
    made = scored(name, number, files)
    found = {r.id for r in made.results if r.value == 0.0}
    assert failing <= found <= failing | {"regression"}, made.as_json()


def test_a_page_that_tells_something_else_is_no_error_of_the_assessor(monkeypatch):
    """Else it could choose which of its checks count."""
    from envs.agencybench.browser import Answer
    from envs.agencybench.upstream.checks.pages import scenes

    for value in (None, {}, [], "x", 3, [[]], {"x": {}}):
        monkeypatch.setattr(
            scenes, "browse", lambda assessment, steps, v=value: [Answer(v)] * len(steps)
        )
        for name in NAMES:
            for number in range(1, 6):
                made = scored(name, number, {"index.html": ""})
                assert not made.error, made.as_json()
                assert made.score <= 0.3, (name, number, value, made.as_json())


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("Game/")])
def test_a_log_need_not_tell_of_replays_where_the_task_leaves_it_open(name):
    from envs.agencybench.upstream.checks.pages import played

    point = next(point for point in played(name)[2].points if point.name == "log")
    if name == "Game/scenario2":
        return  # its log is looked at by rules of its own
    words = ["H8", "H9", "I8", "I9", "J8", "J9", "K8", "K9", "L8", "A1", "B1", "A2", "B2", "A3"]
    words += ["C3", "C4", "D3", "D4", "E3", "E4", "F3", "F4", "G3", "L2", "L3", "L4", "L5", "L1"]
    words += ["near", "far"] * 3 + [f"R1C{n}" for n in range(1, 10)] + ["undo", "redo"]
    log = "\n".join([*words, "replay_start", "replay_end"])
    asked = name in ("Game/scenario3", "Game/scenario8")
    if asked:
        with pytest.raises(Unmet, match="nothing of the replay"):
            point.judge({"log": log, "log2": log})
    else:
        point.judge({"log": log, "log2": log})
    point.judge({"log": log, "log2": f"{log}\nreplay"})


# Judging ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "count", "right"),
    [
        ([0, 320, 640, 960], 4, True),
        ([0, 5, 330, 640, 650, 970], 4, True),
        ([0, 100, 200, 300], 4, False),
        ([0, 1, 2, 950], 4, False),
        ([], 2, False),
        ([10], 2, False),
    ],
)
def test_the_pace_of_changes(times, count, right):
    if right:
        spread(times, count, 300, "it")
    else:
        with pytest.raises(Unmet):
            spread(times, count, 300, "it")


def test_texts_and_records():
    reads(" Flying…  now", "flying... NOW", "it")
    with pytest.raises(Unmet, match="required"):
        reads("X to move now", "X to move", "it")
    reads("X to move now", "X to move", "it", whole=False)
    records([{"coord": "B2", "by": "X"}], [("b2", "x")], "it")
    with pytest.raises(Unmet, match="does not name 'X'"):
        records([{"extra": "B2"}], [("B2", "X")], "it")
    with pytest.raises(Unmet, match="entries"):
        records([], [("B2",)], "it")
