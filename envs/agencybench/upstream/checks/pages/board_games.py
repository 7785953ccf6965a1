"""Game/1 (Gomoku), 4 (noughts and crosses), 5 (minesweeper) and 9 (sudoku)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from envs.agencybench.browser import need
from envs.agencybench.upstream.checks.pages.diagnostics import Diagnosed, diagnosed
from envs.agencybench.upstream.checks.pages.judging import Ring, reads, records
from envs.agencybench.upstream.checks.pages.layout import Layout, Spot, first_task
from envs.agencybench.upstream.checks.pages.scenes import (
    PageTask,
    Point,
    Seen,
    Step,
    act,
    pause,
    press,
    see,
    tap,
)
from envs.agencybench.upstream.checks.pages.stages import Ended, Saved, Turns, ended, saved, turns

__all__ = ["TASKS"]


def _grid(columns: str, rows: int) -> tuple[str, ...]:
    return tuple(f"{column}{row}" for column in columns for row in range(1, rows + 1))


def _says(wanted: str) -> Callable[[Any], None]:
    def judge(verdict: Any) -> None:
        need(str(verdict).casefold() == wanted.casefold(), f"the page says {verdict!r}"[:80])

    return judge


def _stones(
    *,
    columns: str,
    rows: int,
    size: int,
    gap: int,
    label: str,
    marks: tuple[str, str],
    ring: tuple[str, str],
    win: tuple[str, ...],
    other: tuple[str, ...],
    free: str,
    storage: str,
    keys: tuple[str, str],
) -> tuple[PageTask, ...]:
    layout = Layout(
        "#board", (size, size), 4, (6, 6), "app.initializeBoard()", "app.describeLayout()",
        ".intersection", keys=_grid(columns, rows),
        spots=(Spot("startButton", "#start-btn", 96, 96),), below=("#legend", gap, 6),
        there=("#board", "#legend", "#start-btn"), labels=(("#start-btn", label),),
    )  # fmt: skip

    def at(*names: str) -> list[Step]:
        return [tap(f"app.describeLayout().cells[{name!r}]") for name in names]

    history = "app.debugState().moves"
    first, second = ring
    both = (marks[0], marks[1])
    winner, winning = marks[0], [(place, both[n % 2]) for n, place in enumerate(win)]
    said, banner = "app.checkWinner()", "text('#winner-banner')"
    elsewhere = [
        *at(*other[:-1]), pause(0.2), see("early", said), see("silent", banner),
        *at(other[-1]), pause(0.2), see("late", said), see("banner", banner),
    ]  # fmt: skip

    def detected(seen: Seen) -> None:
        # Else what the task plays could be known by heart.
        early, told = str(seen["early"]).casefold(), str(seen["silent"] or "").casefold()
        names = [mark.casefold() for mark in marks]
        need(early not in names and "wins" not in told, f"somebody wins too early: {early}"[:80])
        _says(marks[1])(seen["late"])
        reads(seen["banner"], f"{marks[1]} wins!", "#winner-banner", whole=False)

    third = ended(layout, Ended(
        at(*win), said, _says(winner), ("#winner-banner", f"{winner} wins!"), at(free), history,
        len(win), "app.exportLog()", win, entries=winning, weights=(0.2, 0.3, 0.25, 0.15),
    ))  # fmt: skip
    third = replace(
        third,
        scenes={**third.scenes, "elsewhere": elsewhere},
        points=(
            *third.points,
            Point(
                "other", 0.1, "other lines win as well, and none too early", "elsewhere", detected
            ),
        ),
    )
    return (
        first_task(layout),
        turns(layout, Turns(
            at(first), at(second), at(second), history,
            [(first, marks[0]), (second, marks[1])], "#status-bar",
            (f"{marks[0]} to move", f"{marks[1]} to move", f"{marks[0]} to move"),
            Ring("#last-move-indicator", f'[data-cell="{second}"]', 26, 3),
        )),
        third,
        saved(layout, Saved(
            at(*win[:3]), ("#save-game", "#load-game", "#reset-match"), storage, ("moves",),
            ("moves",), history, "app.serializeState()", "app.applyState", "app.resetMatch()",
            "#last-move-indicator", [*at(*win), act("app.checkWinner()")], "app.getScoreboard()",
            {keys[0]: 1},
            (*((f"#scoreboard .{key}-wins", key) for key in keys),
             ("#scoreboard .draws", "draws")),
        )),
        diagnosed(layout, Diagnosed(
            "#toggle-diagnostics", "#diagnostics", ("depth", "elapsedMs", "nodes", "topLines"),
            "topLines", "hard_cases.json", ("id", "label", "moves", "winner"), "moves",
            ("#winner-banner", "winner"), history, "app.exportLog()", at(free),
        )),
    )  # fmt: skip


def _mines() -> tuple[PageTask, ...]:
    layout = Layout(
        "#field", (540, 540), 4, (6, 6), "app.initializeField()", "app.describeField()",
        ".cell", keys=_grid("ABCDEFGHIJKL", 12),
        spots=(Spot("hud.startButton", "#start-btn", 96, 96, 8),), below=("#legend", 72, 6),
        there=("#field", "#legend", "#hud", "#start-btn", "#mine-count", "#timer", ".level-pill"),
        labels=(("#start-btn", "New Sweep"),),
    )  # fmt: skip

    def at(*names: str) -> list[Step]:
        return [tap(f"app.describeField().cells[{name!r}]") for name in names]

    history = "app.debugField().reveals"
    clear = ("C3", "C4", "D3", "D4", "E3", "E4", "F3", "F4", "G3")
    return (
        first_task(layout),
        turns(layout, Turns(
            at("C3"), at("D3"), at("D3"), history, [("C3", "clear"), ("D3", "warn")],
            "#status-bar",
            ("Cells cleared: 0 | Flags: 0", "Cells cleared: 1 | Flags: 0", "="),
            Ring("#last-reveal-indicator", '[data-cell="D3"]', 24, 3),
        )),
        ended(layout, Ended(
            at(*clear), "app.checkStatus()", _says("cleared"),
            ("#status-banner", "Field cleared!"), at("A1"), history, 9, "app.exportLog()", clear,
            entries=[(place,) for place in clear],
        )),
        saved(layout, Saved(
            at("C3", "C4"), ("#save-field", "#load-field", "#reset-field"), "minesweeper-state",
            ("reveals",), ("reveals",), history, "app.serializeState()", "app.applyState",
            "app.resetField()", "#last-reveal-indicator",
            [*at(*clear), act("app.checkStatus()")], "app.getScoreboard()", {"cleared": 1},
            tuple((f"#scoreboard .{key}-count", key)
                  for key in ("cleared", "detonated", "abandoned")),
        )),
        diagnosed(layout, Diagnosed(
            "#toggle-diagnostics", "#diagnostics", ("depth", "elapsedMs", "nodes", "topLines"),
            "topLines", "hard_cases.json", ("id", "label", "moves", "mines", "winner"), "moves",
            ("#status-banner", "winner"), history, "app.exportLog()", at("A1"),
        )),
    )  # fmt: skip


def _sudoku() -> tuple[PageTask, ...]:
    names = tuple(f"R{row}C{column}" for row in range(1, 10) for column in range(1, 10))
    layout = Layout(
        "#grid", (540, 540), 4, (6, 6), "app.initializeGrid()", "app.describeLayout()", ".cell",
        keys=names, spots=(Spot("generateButton", "#generate-btn", 112, 92),),
        below=("#legend", 72, 6), there=("#grid", "#legend", "#generate-btn"),
        labels=(("#generate-btn", "Generate Puzzle"),),
    )  # fmt: skip

    def enter(*entries: tuple[str, int]) -> list[Step]:
        steps: list[Step] = []
        for cell, digit in entries:
            steps += [tap(f"app.describeLayout().cells[{cell!r}]"), press(str(digit))]
        return steps

    row = [(f"R1C{n}", n) for n in range(1, 10)]
    history = "app.debugState().entries"

    def conflicts(value: Any) -> None:
        need(bool(value), "the refused entry is not among the conflicts")

    def said(entries: Sequence[tuple[str, int]]) -> list[tuple[str, str]]:
        return [(cell, str(digit)) for cell, digit in entries]

    second = turns(layout, Turns(
        enter(("R1C1", 5)), enter(("R1C2", 6)), enter(("R1C1", 6)), history,
        said([("R1C1", 5), ("R1C2", 6)]), "#status-bar",
        ("Select a cell", "Digit placed: 5", "~contains 6"),
        Ring("#last-entry-indicator", '[data-cell="R1C2"]', 30, 4),
        "app.debugState().conflicts", conflicts,
    ))  # fmt: skip
    # The task names a row; the rules are of columns and boxes as well.
    entries = [("R1C1", 5), ("R5C1", 5), ("R2C2", 5), ("R2C4", 5), ("R4C2", 5)]
    ruled = [(entries[n][0], "5") for n in (0, 3, 4)]
    second = replace(
        second,
        scenes={**second.scenes, "rules": [*enter(*entries), pause(0.2), see("h", history)]},
        points=(
            *second.points,
            Point(
                "rules", 0.1, "columns and boxes hold each digit once", "rules",
                lambda seen: records(seen["h"], ruled, "the entries"),
            ),
        ),
    )  # fmt: skip
    return (
        first_task(layout),
        second,
        ended(layout, Ended(
            enter(*row), "app.checkSolution()", _says("Solved"),
            ("#completion-banner", "Puzzle solved!"), enter(("R5C5", 1)), history, 9,
            "app.exportJournal()", [cell for cell, _ in row], entries=said(row),
        )),
        saved(layout, Saved(
            enter(("R1C1", 5), ("R1C2", 6)), ("#save-grid", "#load-grid", "#reset-puzzle"),
            "sudoku-state", ("entries",), ("entries",), history, "app.serializeState()",
            "app.applyState", "app.resetPuzzle()", "#last-entry-indicator",
            [*enter(*row), act("app.checkSolution()")], "app.getSolveStats()", {"solved": 1},
            tuple((f"#scoreboard .{key}-count", key)
                  for key in ("solved", "invalid", "abandoned")),
        )),
        diagnosed(layout, Diagnosed(
            "#toggle-diagnostics", "#diagnostics", ("depth", "elapsedMs", "nodes", "topLines"),
            "topLines", "hard_cases.json", ("id", "label", "grid", "solution"), "grid",
            ("#completion-banner", "label"), None, "app.exportJournal()", counts=False, paced=False,
        )),
    )  # fmt: skip


#: Scenario to its tasks.
TASKS: dict[str, Callable[[], tuple[PageTask, ...]]] = {
    "Game/scenario1": lambda: _stones(
        columns="ABCDEFGHIJKLMNO", rows=15, size=640, gap=80, label="Start Match",
        marks=("Black", "White"), ring=("H8", "H9"),
        win=("H8", "H9", "I8", "I9", "J8", "J9", "K8", "K9", "L8"), free="A1",
        other=("A1", "C5", "A3", "D6", "A5", "E7", "A7", "F8", "C1", "G9"),
        storage="gomoku-state", keys=("black", "white"),
    ),
    "Game/scenario4": lambda: _stones(
        columns="ABC", rows=3, size=360, gap=60, label="Start Round", marks=("X", "O"),
        ring=("B2", "B3"), win=("A1", "B1", "A2", "B2", "A3"), free="C3",
        other=("A1", "B1", "A2", "B2", "C3", "B3"),
        storage="tictactoe-state", keys=("x", "o"),
    ),
    "Game/scenario5": _mines,
    "Game/scenario9": _sudoku,
}  # fmt: skip
