"""Pages written for tests, one for each of the benchmark's games and frontends.

Each page fulfils all five tasks of its scenario. :func:`page` gives its files; :func:`still` a page
with the elements of the first task alone, whose interface tells what is wanted and does nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_KIT = Path(__file__).with_suffix(".js").read_text("utf-8")
_STYLE = (
    "body{margin:0;height:2400px}@keyframes pulse{from{opacity:1}to{opacity:.4}}"
    ".ring{position:absolute;box-sizing:border-box;border:2px solid red;border-radius:50%;"
    "pointer-events:none;display:none;animation:pulse 1s infinite}"
)


def rules(name: str) -> str:
    """What is a scenario's own of a page's script."""
    return (Path(__file__).parent / "pages" / f"{name}.js").read_text("utf-8")


def _html() -> str:
    return (
        '<!doctype html><meta charset="utf-8"><title>t</title>'
        '<link rel="stylesheet" href="styles.css"><script src="app.js"></script><body></body>'
    )


def build(config: dict[str, Any], script: str, cases: list[Any] | None = None) -> dict[str, str]:
    """The files of a page."""
    made = {
        "index.html": _html(),
        "styles.css": _STYLE,
        "app.js": f"const K = {json.dumps(config)};\n{script}\n{_KIT}",
    }
    if config.get("file"):
        made[config["file"]] = json.dumps(cases)
    return made


def at(tag: str, name: str, x: float, y: float, w: float, h: float, text: str = "", **more: Any):
    """An element at a place of the page."""
    return {"tag": tag, "id": name, "x": x, "y": y, "w": w, "h": h, "text": text, **more}


def frame(
    board: dict[str, Any],
    *,
    bottom: float,
    actions: tuple[str, ...],
    save: tuple[str, ...],
    labels: dict[str, str],
    ring: tuple[str, float] | None,
    toggle: str = "toggle-diagnostics",
    aside: str = "diagnostics",
    extra: tuple[dict[str, Any], ...] = (),
    board_id: str = "scoreboard",
) -> list[dict[str, Any]]:
    """A board, and what stands beneath it: a toolbar, a drawer, totals, a sidebar."""
    row = bottom + 120
    inner = [{"tag": "button", "text": name, "data": {"action": name}} for name in actions]
    page = [
        board,
        {"id": "controls", "inner": inner, "x": 300, "y": row + 40, "w": 500, "h": 30},
        {
            "id": "persistence", "x": 300, "y": row + 90, "w": 600, "h": 60,
            "inner": [
                *({"tag": "button", "id": name, "text": name} for name in save),
                {"tag": "textarea", "id": "state-json", "attrs": {"readonly": "1"}},
            ],
        },
        {
            "id": board_id, "x": 300, "y": row + 170, "w": 500, "h": 30,
            "inner": [{"tag": "span", "class": selector.rsplit(".", 1)[-1]} for selector in labels],
        },
        at("button", toggle, 300, row + 220, 200, 30, "diagnostics"),
        {
            "tag": "aside", "id": aside,
            "attrs": {"style": "display:none;position:fixed;right:60px;width:260px;top:20px"},
        },
        *extra,
    ]  # fmt: skip
    if ring is not None:
        name, size = ring
        style = f"width:{size}px;height:{size}px"
        page.append({"id": name, "class": "ring", "attrs": {"style": style}})
    return page


def cells(names: list[list[str]], w: float, h: float, kind: str) -> list[dict[str, Any]]:
    """Cells that fill a board, row by row."""
    wide, high = w / len(names[0]), h / len(names)
    return [
        {"class": kind, "data": {"cell": name}, "x": n * wide, "y": m * high, "w": wide, "h": high}
        for m, row in enumerate(names)
        for n, name in enumerate(row)
    ]


NAMES = {
    "undo": "undo", "redo": "redo", "replay": "startReplay", "export": "exportLog",
    "serialize": "serializeState", "apply": "applyState", "load": "loadScenario",
    "run": "playScenario", "diagnose": "getDiagnostics", "heap": "estimateHeap",
}  # fmt: skip
_CASES = [{"id": n, "label": f"case {n}", "mines": [], "hazards": []} for n in range(2)]


def _board_game(
    *, board: str, grid: list[list[str]], size: tuple[int, int], kind: str, init: str, status: str,
    banner: str, ring: tuple[str, float], save: tuple[str, str, str], names: dict[str, str],
    labels: dict[str, str], totals: dict[str, int], legend: float, start: dict[str, Any],
    moves: list[list[str]], result: list[str], storage: str, listed: str, script: str,
    extra: tuple[dict[str, Any], ...] = (), fields: str = "moves", result_field: str = "winner",
    **more: Any,
) -> dict[str, str]:  # fmt: skip
    w, h = size
    x, y = (1280 - w) / 2, (720 - h) / 2
    element = {"id": board, "x": x, "y": y, "w": w, "h": h, "inner": cells(grid, w, h, kind)}
    page = frame(
        element, bottom=y + h + legend, actions=("undo", "redo", "replay"), save=save,
        labels=labels, ring=ring,
        extra=(
            start,
            at("div", "legend", x, y + h + legend, 300, 20, "legend"),
            at("div", "status-bar", x, y + h + legend + 30, 400, 20, status),
            at("div", banner.lstrip("#"), x, y + h + legend + 60, 400, 20),
            *extra,
        ),
    )  # fmt: skip
    cases = [
        {**case, fields: made, result_field: word}
        for case, made, word in zip(_CASES, moves, result, strict=True)
    ]
    config = {
        "page": page, "keys": ["depth", "elapsedMs", "nodes", "topLines"], "listed": "topLines",
        "aside": "diagnostics", "toggle": "toggle-diagnostics", "ring": ring[0],
        "ringSize": ring[1], "status": status, "statusAt": "#status-bar", "bannerAt": banner,
        "labels": labels, "totals": totals, "list": listed, "storage": storage,
        "names": {"init": init, **NAMES, **names}, "save": save, "pace": 320,
        "actions": {
            "undo": names.get("undo", "undo"), "redo": names.get("redo", "redo"),
            "replay": "startReplay",
        },
        "file": "hard_cases.json",
        **more,
    }  # fmt: skip
    return build(config, script, cases)


def letters(columns: str, rows: int) -> list[list[str]]:
    return [[f"{column}{row}" for column in columns] for row in range(1, rows + 1)]


_STONES = rules("stones")
_TOTALS = {"reset": "resetMatch", "totals": "getScoreboard"}


def gomoku() -> dict[str, str]:
    return _board_game(
        board="board", grid=letters("ABCDEFGHIJKLMNO", 15), size=(640, 640), kind="intersection",
        init="initializeBoard", status="Black to move", banner="#winner-banner",
        ring=("last-move-indicator", 26), save=("save-game", "load-game", "reset-match"),
        names=_TOTALS, labels={".black-wins": "black", ".white-wins": "white", ".draws": "draws"},
        totals={"black": 0, "white": 0, "draws": 0}, legend=80,
        start=at("button", "start-btn", 36, 84, 120, 24, "Start Match"),
        moves=[["A1", "B1", "A2"], ["C1", "D1", "C2", "D2"]], result=["Nobody", "White"],
        storage="gomoku-state", listed="moves", script=_STONES, marks=["Black","White"], win=5,
    )  # fmt: skip


def noughts() -> dict[str, str]:
    return _board_game(
        board="board", grid=letters("ABC", 3), size=(360, 360), kind="intersection",
        init="initializeBoard", status="X to move", banner="#winner-banner",
        ring=("last-move-indicator", 26), save=("save-game", "load-game", "reset-match"),
        names=_TOTALS, labels={".x-wins": "x", ".o-wins": "o", ".draws": "draws"},
        totals={"x": 0, "o": 0, "draws": 0}, legend=60,
        start=at("button", "start-btn", 36, 84, 120, 24, "Start Round"),
        moves=[["A1", "B1", "A2"], ["C1", "B2", "C2", "B3"]], result=["Nobody", "O"],
        storage="tictactoe-state", listed="moves", script=_STONES, marks=["X","O"], win=3,
    )  # fmt: skip


_MINES = rules("mines")


def mines() -> dict[str, str]:
    return _board_game(
        board="field", grid=letters("ABCDEFGHIJKL", 12), size=(540, 540), kind="cell",
        init="initializeField", status="Cells cleared: 0 | Flags: 0", banner="#status-banner",
        ring=("last-reveal-indicator", 24), save=("save-field", "load-field", "reset-field"),
        names={
            "undo": "undoReveal", "redo": "redoReveal", "reset": "resetField",
            "totals": "getScoreboard",
        },
        labels={f".{k}-count": k for k in ("cleared", "detonated", "abandoned")},
        totals={"cleared": 0, "detonated": 0, "abandoned": 0}, legend=72,
        start=at("button", "start-btn", 36, 84, 120, 24, "New Sweep"),
        moves=[["A1", "B1", "A2"], ["C1", "D1", "C2", "D2"]], result=["lost", "won"],
        storage="minesweeper-state", listed="reveals", script=_MINES,
        extra=(
            at("div", "hud", 500, 20, 300, 40,
               inner=[{"id": "mine-count", "text": "9"}, {"id": "timer", "text": "0"},
                      {"class": "level-pill", "text": "easy"}]),
        ),
    )  # fmt: skip


_SUDOKU = rules("sudoku")


def sudoku() -> dict[str, str]:
    pad = [{"tag": "button", "text": str(n), "data": {"digit": str(n)}} for n in range(1, 10)]
    return _board_game(
        board="grid", grid=[[f"R{r}C{c}" for c in range(1, 10)] for r in range(1, 10)],
        size=(540, 540), kind="cell", init="initializeGrid", status="Select a cell",
        banner="#completion-banner", ring=("last-entry-indicator", 30),
        save=("save-grid", "load-grid", "reset-puzzle"),
        names={"reset": "resetPuzzle", "totals": "getSolveStats", "export": "exportJournal"},
        labels={f".{k}-count": k for k in ("solved", "invalid", "abandoned")},
        totals={"solved": 0, "invalid": 0, "abandoned": 0}, legend=72,
        start=at("button", "generate-btn", 52, 80, 120, 24, "Generate Puzzle"),
        moves=[[1, 2, 3], [4, 5, 6, 7]], result=[[1], [2]], storage="sudoku-state",
        listed="entries", script=_SUDOKU, fields="grid", result_field="solution",
        extra=(at("div", "number-pad", 20, 300, 200, 60, inner=pad),),
    )  # fmt: skip


PAGES = {
    "Game/scenario1": gomoku,
    "Game/scenario4": noughts,
    "Game/scenario5": mines,
    "Game/scenario9": sudoku,
}
