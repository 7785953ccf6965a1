"""game/lightgrid and the browser: the oracle, doing nothing, cheating, and pages that hang."""

from __future__ import annotations

import itertools
import json
import struct
import zlib

import pytest
from agency_pages import LIGHTS, MOUTH_ONLY, greedy
from agency_world import score, solution, world_of

from agentgym.dice import Dice
from agentgym.sandbox import Snapshot, shared_sandbox
from envs.agencybench.assessment import Assessment
from envs.agencybench.browser import browse, browser_missing, read_png, screens
from envs.agencybench.scenario import State, World
from envs.agencybench.scenarios.lightgrid import puzzle

ID = "game/lightgrid"
TASKS = range(5)
BROWSER = frozenset({"browser"})


@pytest.fixture(scope="module")
def sandbox():
    """What drives the browser is imported once, and not for every look."""
    return shared_sandbox(preload=("selenium.webdriver.chrome.webdriver",))


def page(**replaced):
    text = solution(ID, world_of(ID), 0)["index.html"].decode()
    for old, new in replaced.pop("replace", ()):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return {"index.html": text}


def scored(sandbox, task, files, seed=0):
    world = world_of(ID, seed)
    return score(ID, world, task, files, seed=seed, sandbox=sandbox, abilities=BROWSER)


# The puzzle -------------------------------------------------------------------------------------


def test_solutions_solve_and_are_all_there_are():
    dice = Dice(1)
    for _ in range(20):
        moves = dice.between(0, (1 << 25) - 1)
        state = 0
        for cell in range(25):
            if moves >> cell & 1:
                state ^= puzzle.effect(cell)
        found = puzzle.solutions(state)
        assert moves in found
        assert len(set(found)) == 4
        for other in found:
            left = state
            for cell in range(25):
                if other >> cell & 1:
                    left ^= puzzle.effect(cell)
            assert left == 0
        assert min(m.bit_count() for m in found) == puzzle.minimal(state)[0].bit_count()


def test_a_quarter_of_all_states_can_be_solved():
    assert not puzzle.solutions(1)
    solvable = sum(bool(puzzle.solutions(Dice(n).between(0, (1 << 25) - 1))) for n in range(400))
    assert 60 <= solvable <= 140


def test_states_as_rows():
    state = Dice(3).between(0, (1 << 25) - 1)
    assert puzzle.as_bits(puzzle.as_rows(state)) == state
    for bad in ([[0] * 5] * 4, [[0] * 4] * 5, [[2] * 5] * 5):
        with pytest.raises(ValueError, match="5 rows"):
            puzzle.as_bits(bad)


# Pictures ---------------------------------------------------------------------------------------


def png(rows, filters, alpha=False):
    """A PNG with the given filter for each row."""
    step = 4 if alpha else 3
    width = len(rows[0]) // step
    data, before = b"", bytes(len(rows[0]))
    for kind, row in zip(filters, rows, strict=True):
        line = bytearray()
        for n, value in enumerate(row):
            left = row[n - step] if n >= step else 0
            up, corner = before[n], before[n - step] if n >= step else 0
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda c: abs(guess - c))
            line.append((value - (0, left, up, (left + up) // 2, paeth)[kind]) & 255)
        data += bytes([kind]) + bytes(line)
        before = row

    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    head = struct.pack(">IIBBBBB", width, len(rows), 8, 6 if alpha else 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.parametrize("alpha", [False, True])
def test_pictures_are_read_whatever_their_filters(alpha):
    dice = Dice(5)
    step = 4 if alpha else 3
    rows = [bytes(dice.between(0, 255) for _ in range(7 * step)) for _ in range(5)]
    for filters in itertools.permutations(range(5), 5):
        picture = read_png(png(rows, filters, alpha))
    assert (picture.width, picture.height) == (7, 5)
    assert picture.at(2, 3) == tuple(rows[3][2 * step : 2 * step + 3])
    assert picture.at(99, -4) == tuple(rows[0][6 * step : 6 * step + 3])
    with pytest.raises(ValueError, match="no PNG"):
        read_png(b"GIF89a")


# The browser ------------------------------------------------------------------------------------


def look(sandbox, files, steps, **more):
    content = {name: text.encode() for name, text in files.items()}
    return browse(Assessment(Snapshot(content), World({}), sandbox, "k"), steps, **more)


@pytest.mark.browser
def test_a_page_is_looked_at(sandbox):
    assert browser_missing() is None
    html = (
        "<title>T</title><body style='margin:0;background:#336699'><script>"
        "document.title += Math.random(); console.error('x'); alert(1); throw new Error('boom')"
        "</script><img src='http://example.com/a.png'>"
    )
    steps = [
        ["open", "index.html"], ["js", "return document.title"], ["reload"],
        ["js", "return document.title"], ["screenshot"], ["console"], ["click", "#absent"],
        ["viewport", 375, 600], ["js", "return [innerWidth, innerHeight]"], ["nonsense"],
    ]  # fmt: skip
    made = look(sandbox, {"index.html": html}, steps)
    assert made[1].value == made[3].value != "T"  # seeded, also after a reload
    import base64

    picture = read_png(base64.b64decode(made[4].value))
    assert (picture.width, picture.height) == (1280, 720)
    assert picture.at(640, 700) == (0x33, 0x66, 0x99)
    log = "\n".join(made[5].value)
    assert "boom" in log
    assert "example.com" in log  # there is no network
    assert "NoSuchElement" in made[6].error
    assert made[8].value == [375, 600]
    assert "unknown step" in made[9].error


@pytest.mark.browser
@pytest.mark.slow
def test_a_page_that_hangs_is_ended_from_outside(sandbox):
    html = "<p>here</p><script>setTimeout(() => { while (true) {} }, 1500)</script>"
    steps = [
        ["open", "index.html"],
        ["js", "return 1"],
        ["wait", 2],
        ["js", "return 2"],
        ["reload"],
    ]
    made = look(sandbox, {"index.html": html}, steps)
    assert made[1].value == 1
    assert made[3].value is None
    assert made[3].error
    assert made[4].error


@pytest.mark.browser
def test_screenshots_for_a_judge_are_kept(sandbox):
    kept = {}
    assessment = Assessment(
        Snapshot({"index.html": b"<h1>Hello</h1>"}),
        World({}),
        sandbox,
        "key",
        keep=kept.__setitem__,
    )
    shots = screens(assessment)
    assert [read_png(shot).width for shot in shots] == [1280, 375]
    assert set(kept) == {"key/screen0.png", "key/screen1.png"}


# The scenario -----------------------------------------------------------------------------------


def test_without_a_browser_nothing_is_scored():
    made = score(ID, world_of(ID), 0, page())
    assert made.score is None
    assert {result.state for result in made.results} == {State.SKIPPED}


@pytest.mark.browser
def test_the_oracle_is_right(sandbox):
    made = scored(sandbox, 0, page())
    assert made.score == 1.0, made.as_json()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize(("task", "times"), [(0, 3), (1, 1), (2, 1), (3, 3), (4, 3)])
def test_another_seed_and_the_same_score_thrice(sandbox, task, times):
    """Thrice where pixels, the clock or a reload have a part in it."""
    made = {json.dumps(scored(sandbox, task, page(), 1).as_json()) for _ in range(times)}
    assert len(made) == 1
    assert json.loads(made.pop())["score"] == 1.0


@pytest.mark.browser
def test_doing_nothing_is_worth_nothing(sandbox):
    for task in TASKS:
        made = scored(sandbox, task, {})
        assert (made.score, made.error) == (0.0, False)


STATIC = "<!doctype html><p id=moves>0</p><div id=banner>Solved</div>" + "".join(
    f"<button data-cell='{r},{c}' aria-pressed=false style='width:50px;height:50px'></button>"
    for r in range(5)
    for c in range(5)
)
# As it is to look once the check has lit a corner.
LIT = "<body style='width: 280px'>" + STATIC.replace(
    "aria-pressed=false style='", "aria-pressed=true style='background: gold; ", 1
)
PRETENDS = (
    STATIC
    + """<script>
const zero = () => Array.from({length: 5}, () => [0, 0, 0, 0, 0]);
const known = {size: 5, state: zero, exportLog: () => '[]', hint: () => ({row: 0, col: 0}),
  moves: () => 0, load: () => false};
window.game = new Proxy(known, {get: (o, k) => k in o ? o[k] : () => null});
</script>"""
)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize(
    ("html", "tasks"),
    [(STATIC, (0, 2)), (LIT, (0, 2)), (PRETENDS, TASKS)],
    ids=["static", "lit", "pretends"],
)
def test_cheats(sandbox, html, tasks):
    """Without an interface there is nothing that the other tasks could score."""
    scores = [scored(sandbox, task, {"index.html": html}).score for task in tasks]
    assert max(scores) <= 0.3
    assert sum(scores) / 5 <= 0.15


@pytest.mark.browser
@pytest.mark.slow
def test_faults_are_found(sandbox):
    fast = page(replace=[("setTimeout(go, 180)", "setTimeout(go, 60)")])
    values = {r.id: r.value for r in scored(sandbox, 3, fast).results}
    assert values == {"undo": 1.0, "buttons": 1.0, "replay": 0.0}
    greedy = page(replace=[("moves.length < best.length", "moves.length > best.length")])
    values = {r.id: r.value for r in scored(sandbox, 4, greedy).results}
    assert values == {"hints": 0.0, "saved": 1.0, "broken": 1.0, "log": 1.0}
    unblocked = page(replace=[("    if (won) return;\n", "")])
    values = {r.id: r.value for r in scored(sandbox, 2, unblocked).results}
    assert values == {"scramble": 1.0, "banner": 1.0, "blocked": 0.0}


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_right_page_of_another_make(sandbox, task):
    made = scored(sandbox, task, {"index.html": LIGHTS})
    assert made.score == 1.0, made.as_json()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("task", [3, 4])
def test_a_right_page_that_draws_with_the_next_frame(sandbox, task):
    text = LIGHTS.replace(
        "function render() {",
        "let due = 0;\nfunction render() { due ||= requestAnimationFrame(draw); }\n"
        "function draw() {\n  due = 0;",
    )
    assert text != LIGHTS
    made = scored(sandbox, task, {"index.html": text})
    assert made.score == 1.0, made.as_json()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("task", [0, 1, 2, 4])
def test_rules_without_a_board_are_worth_nothing(sandbox, task):
    made = scored(sandbox, task, {"index.html": MOUTH_ONLY})
    assert (made.score, made.error) == (0.0, False), made.as_json()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["elements", "text", "cycle", "memory"])
def test_a_page_that_spoils_the_look_is_no_error_of_the_assessor(sandbox, kind):
    made = scored(sandbox, 0, {"index.html": greedy(kind)})
    assert (made.score, made.error) == (0.0, False), made.as_json()


@pytest.mark.browser
@pytest.mark.slow
def test_a_replay_by_another_clock_is_measured_by_a_right_one(sandbox):
    fast = page(
        replace=[
            ("<script>\n(() => {", "<script>\nlet t = 0; Date.now = () => t += 200;"
             " Performance.prototype.now = Date.now;\n(() => {"),
            ("setTimeout(go, 180)", "setTimeout(go, 30)"),
        ]
    )  # fmt: skip
    found = {r.id: r.value for r in scored(sandbox, 3, fast).results}
    assert found == {"undo": 1.0, "buttons": 1.0, "replay": 0.0}
