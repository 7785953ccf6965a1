"""Game/2 (2048)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from envs.agencybench.browser import need
from envs.agencybench.upstream.checks.pages.diagnostics import Diagnosed, diagnosed
from envs.agencybench.upstream.checks.pages.judging import reads, spread, watch
from envs.agencybench.upstream.checks.pages.layout import (
    Layout,
    Spot,
    box,
    first_task,
    holds,
    layout_scene,
    near,
)
from envs.agencybench.upstream.checks.pages.scenes import (
    PageTask,
    Point,
    Seen,
    Step,
    act,
    click,
    number,
    pause,
    press,
    see,
    until,
)
from envs.agencybench.upstream.checks.pages.stages import Saved, saved

__all__ = ["TASKS"]

_BOARD = "game.debugState().board"


def _more(facts: Mapping[str, Any]) -> None:
    size = facts["told"].get("gridSize")
    need(isinstance(size, dict), "gridSize is not described")
    for side in ("width", "height"):
        near(number(size.get(side), f"gridSize.{side}"), 480, 4, f"gridSize.{side}")
    one, other = (box(facts["boxes"][f".score-card.{name}"], name) for name in ("current", "best"))
    need(abs(one[1] - other[1]) <= 46, "the score cards are not side by side")
    row = sorted(place for name, *place in facts["cells"] if str(name).startswith("r1"))
    for left, right in pairwise(row):
        near(right[0] - left[0] - left[2], 16, 1, "gap between cells")


def _set(*rows: str) -> Step:
    filled = [*rows, *(["0,0,0,0"] * (4 - len(rows)))]
    return act(f"game.setGridState([{','.join(f'[{row}]' for row in filled)}])")


def _spawn(*places: tuple[int, int, int]) -> Step:
    made = ",".join(f"{{value:{value},row:{row},col:{column}}}" for value, row, column in places)
    return act(f"game.setSpawnQueue([{made}])")


def _row(board: Any) -> Any:
    need(isinstance(board, list) and bool(board), "the board is no matrix")
    return board[0]


def _second(layout: Layout) -> PageTask:
    play = [
        _set("2,2,0,0"), _spawn((2, 3, 3)), see("p0", "game.debugState().score"),
        act(
            "window.__flash=0,new MutationObserver(()=>{if(document.querySelector('.merge-flash'))"
            "window.__flash=1}).observe(document.body,{subtree:true,attributes:true,childList:true})"
        ),
        press("ARROW_RIGHT"), pause(0.3), see("p1", "game.debugState().score"), see("b", _BOARD),
        see("events", "game.debugState().events"), see("bar", "text('#status-bar')"),
        see("flash", "window.__flash"),
        see("cells", "['r1c4','r4c4'].map(c=>text(`.cell[data-cell=\"${c}\"]`))"),
        _set("0,0,0,8"), _spawn((2, 0, 0)), click(".move-btn:last-of-type"), pause(0.2),
        see("buttons", "all('.move-btn').length"), see("b2", _BOARD),
    ]  # fmt: skip

    # Boards that the task does not name: each tile merges once, the foremost first.
    rule = [
        _set("2,2,2,2", "4,0,4,8", "0,2,0,2", "16,16,8,8"), _spawn((2, 3, 3)),
        see("p0", "game.debugState().score"), press("ARROW_LEFT"), pause(0.3), see("left", _BOARD),
        see("p1", "game.debugState().score"),
        _set("2,0,2,4", "2,8,4,4", "4,0,2,4", "0,8,4,0"), _spawn((2, 3, 3)),
        press("ARROW_UP"), pause(0.3), see("up", _BOARD), see("p2", "game.debugState().score"),
    ]  # fmt: skip
    left = [[4, 4, 0, 0], [8, 8, 0, 0], [4, 0, 0, 0], [32, 16, 0, 2]]
    up = [[4, 16, 2, 8], [4, 0, 4, 4], [0, 0, 2, 0], [0, 0, 4, 2]]

    def ruled(seen: Seen) -> None:
        need(seen["left"] == left, f"a move to the left gives {seen['left']}"[:160])
        need(seen["up"] == up, f"a move up gives {seen['up']}"[:160])
        need(seen.number("p1") - seen.number("p0") == 68, "the score does not rise by what merges")

    def turn(seen: Seen) -> None:
        need(_row(seen["b"]) == [0, 0, 0, 4], f"row 1 is {_row(seen['b'])}")
        need(seen.number("p1") - seen.number("p0") == 4, "the score does not rise by 4")
        need(seen["cells"][0] == "4", "the cell r1c4 does not show 4")

    def spawned(seen: Seen) -> None:
        need(seen["b"][3][3] == 2, "the queued tile is not at r4c4")
        need(seen["cells"][1] == "2", "the cell r4c4 does not show 2")
        want = {"type": "spawn", "row": 3, "col": 3}
        found = [e for e in seen["events"] if isinstance(e, dict) and want.items() <= e.items()]
        need(bool(found), "the events lack the spawn")

    def controls(seen: Seen) -> None:
        reads(seen["bar"], "Moved right", "#status-bar")
        need(seen["buttons"] == 4, f"there are {seen['buttons']} .move-btn")
        need(seen["b"] != seen["b2"], "the buttons do not move tiles")

    return PageTask(
        {"play": play, "rule": rule, "layout": layout_scene(layout)},
        (
            Point("turn", 0.15, "tiles slide and merge, and the score rises", "play", turn),
            Point("rule", 0.15, "other boards move by the same rule", "rule", ruled),
            Point("spawn", 0.2, "queued tiles come", "play", spawned),
            Point("status", 0.2, "the status line and the buttons", "play", controls),
            Point("flash", 0.15, "a merged tile flashes", "play",
                  lambda seen: need(seen["flash"] == 1, "nothing has .merge-flash")),
            holds(layout),
        ),
    )  # fmt: skip


def _third(layout: Layout) -> PageTask:
    peak = [
        _set("1024,1024,0,0"), act("game.applyScript(['left'])"), pause(0.5),
        see("told", "game.checkMilestone()"), see("banner", "text('#milestone-banner')"),
        see("b", _BOARD), press("ARROW_RIGHT"), pause(0.2), see("after", _BOARD),
        see("log", "game.exportLog()"),
        see("buttons", "all('#controls button[data-action]').map(e=>e.dataset.action)"),
        click('#controls button[data-action="undo"]'), pause(0.2), see("back", _BOARD),
        click('#controls button[data-action="redo"]'), pause(0.2), see("again", _BOARD),
    ]  # fmt: skip
    replayed = [
        _set("2,2,0,0"), _spawn((2, 3, 0), (2, 3, 1), (2, 3, 2), (2, 3, 3)),
        act("game.applyScript(['right','left','right','left'])"), pause(1.6), see("end", _BOARD),
        watch("#grid"), act("game.beginReplay()"), pause(0.05), see("on", "game.isReplaying"),
        press("ARROW_UP"), until("!game.isReplaying", 8), see("off", "game.isReplaying"),
        pause(0.3), see("times", "window.__w.t.slice(0,4000)"), see("last", _BOARD),
    ]  # fmt: skip

    def milestone(seen: Seen) -> None:
        need(seen["told"] == 2048, f"the milestone is {seen['told']!r}")
        reads(seen["banner"], "2048 unlocked!", "#milestone-banner", whole=False)
        need(2048 in _row(seen["b"]), "row 1 does not hold 2048")
        need(seen["after"] == seen["b"], "arrows still move tiles")

    def history(seen: Seen) -> None:
        need(seen["buttons"] == ["undo", "redo", "replay"], f"the toolbar holds {seen['buttons']}")
        need(_row(seen["back"]) == [1024, 1024, 0, 0], f"undo gives {_row(seen['back'])}")
        need(2048 in _row(seen["again"]), f"redo gives {_row(seen['again'])}")

    def replay(seen: Seen) -> None:
        need(seen["on"] is True, "isReplaying is not true during the replay")
        need(not seen["off"], "the replay does not end")
        spread(seen["times"], 4, 250, "the replay")
        need(seen["last"] == seen["end"], "the replay ends with another board")

    def log(seen: Seen) -> None:
        text = str(seen["log"]).casefold()
        need("left" in text, "the log lacks the move")
        need("milestone" in text, "the log lacks the milestone")
        need(2048 in _row(seen["b"]), "nothing was played")

    return PageTask(
        {"peak": peak, "replay": replayed, "layout": layout_scene(layout)},
        (
            Point("milestone", 0.3, "2048 is told and blocks moves", "peak", milestone),
            Point("history", 0.2, "undo and redo", "peak", history),
            Point("replay", 0.25, "the replay has its pace", "replay", replay),
            Point("log", 0.1, "the log tells of moves and milestones", "peak", log),
            holds(layout),
        ),
    )


def _game() -> tuple[PageTask, ...]:
    layout = Layout(
        "#grid", (480, 480), 4, (8, None), "game.initializeGrid()", "game.describeLayout()",
        ".cell", keys=tuple(f"r{row}c{column}" for row in range(1, 5) for column in range(1, 5)),
        spots=(Spot("startButton", "#new-game", 84, 120),),
        there=("#grid", "#scoreboard", "#new-game", "#tagline", ".score-card.current",
               ".score-card.best"),
        labels=(("#tagline", "Play 2048 in the browser"),), more=_more,
    )  # fmt: skip
    peak = [_set("1024,1024,0,0"), act("game.applyScript(['left'])"), pause(0.5)]

    def bare(board: Any) -> bool:
        tiles = [value for row in board for value in row if value] if board else []
        return len(tiles) <= 2

    return (
        first_task(layout),
        _second(layout),
        _third(layout),
        saved(layout, Saved(
            [_set("2,4,8,16", "4,8,16,32"), _spawn((2, 0, 0)), press("ARROW_DOWN")],
            ("#save-run", "#load-run", "#reset-board"), "2048-state",
            ("board", "score", "best", "log"), ("board",), _BOARD, "game.serializeState()",
            "game.applyState", "game.resetGame()", None,
            [*peak, act("game.checkMilestone()")], "game.getStats()",
            {"gamesPlayed": 1, "bestTile": 1},
            (("#stats .games-played", "gamesPlayed"), ("#stats .best-tile", "bestTile"),
             ("#stats .total-score", "totalScore")), empty=bare, free=("totalScore",),
        )),
        diagnosed(layout, Diagnosed(
            "#toggle-diagnostics", "#diagnostics",
            ("depth", "elapsedMs", "maxTile", "branching", "topLines"), "topLines",
            "hard_cases.json", ("id", "label", "moves", "spawns", "targetTile"), "moves",
            ("#milestone-banner", "targetTile"), _BOARD, "game.exportLog()", space="game",
            counts=False,
            names=("loadScenario", "playScenario", "summarizeScenario", "estimateLoad"),
        )),
    )  # fmt: skip


#: Scenario to its tasks.
TASKS: dict[str, Callable[[], tuple[PageTask, ...]]] = {"Game/scenario2": _game}
