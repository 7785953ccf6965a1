"""More pages written for tests: games that are not boards of cells with turns, and frontends."""

from __future__ import annotations

from typing import Any

from page_kit import NAMES, at, build, cells, frame, letters, rules

_DIAGNOSTICS = ["depth", "elapsedMs", "nodes", "topLines"]


def config_of(page: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A page's settings; those that are not given mean that it lacks the thing."""
    config: dict[str, Any] = {
        "page": page, "keys": _DIAGNOSTICS, "listed": "topLines", "aside": "diagnostics",
        "toggle": "toggle-diagnostics", "status": "", "statusAt": "#status-bar", "bannerAt": "",
        "labels": {}, "totals": {}, "list": "list", "storage": "s", "pace": 320,
        "save": ["save", "load", "reset"], "actions": {},
    }  # fmt: skip
    names = {**NAMES, **more.pop("names", {})}
    return {**config, **more, "names": names}


def under(y: float, *names: str) -> tuple[dict[str, Any], ...]:
    return tuple(at("div", name, 60, y + 25 * n, 400, 20) for n, name in enumerate(names))


_TILES = rules("tiles")


def tiles() -> dict[str, str]:
    board = {
        "id": "tile-grid", "x": 320, "y": 104, "w": 640, "h": 512,
        "inner": cells(letters("ABCDEFGHIJ", 8), 640, 512, "tile"),
    }  # fmt: skip
    hud = [
        {"tag": "span", "id": name} for name in ("timer", "lives-remaining", "combo-indicator")
    ] + [{"tag": "button", "id": name, "text": name} for name in ("hint-button", "shuffle-button")]
    labels = {".perfect-clears": "perfectClears", ".hints-used": "hints", ".shuffles": "shuffles"}
    save = ("save-puzzle", "load-puzzle", "reset-puzzle")
    steps = [
        [{"id": f"{name}{n}", "coords": [f"A{2 * n + 1}", f"A{2 * n + 2}"]} for n in range(count)]
        for name, count in (("x", 2), ("y", 3))
    ]
    cases = [
        {"id": n, "label": "l", "layout": [], "steps": s, "winner": f"case {n}"}
        for n, s in enumerate(steps)
    ]
    page = frame(
        board, bottom=700, actions=("undo", "redo", "replay"), save=save, labels=labels, ring=None,
        toggle="toggle-lab", aside="lab-inspector",
        extra=(
            at("div", "hud", 320, 56, 640, 40, inner=hud),
            at("button", "start-btn", 60, 98, 120, 24, "Start Puzzle"),
            at("div", "legend", 320, 686, 300, 20, "legend"),
            *under(720, "status-bar", "status-message", "winner-banner"),
        ),
    )  # fmt: skip
    config = config_of(
        page, keys=["depth", "elapsedMs", "nodes", "topRoutes"], listed="topRoutes",
        aside="lab-inspector", toggle="toggle-lab", bannerAt="#winner-banner", labels=labels,
        totals={"perfectClears": 0, "hints": 0, "shuffles": 0}, list="moves", save=save,
        storage="lianliankan-state", file="hard_cases.json",
        names={"init": "initializeGrid", "undo": "undoMatch", "redo": "redoMatch",
               "reset": "resetPuzzle", "totals": "getScoreboard"},
        actions={"undo": "undoMatch", "redo": "redoMatch", "replay": "startReplay"},
    )  # fmt: skip
    return build(config, _TILES, cases)


_FRUIT = rules("fruit")


def fruit() -> dict[str, str]:
    lanes = [
        {"class": "lane", "data": {"lane": f"L{n + 1}"}, "x": 180 * n, "y": 0, "w": 180, "h": 540}
        for n in range(5)
    ]
    labels = {f".{key}": key for key in ("perfect", "fails", "combos")}
    save = ("save-run", "load-run", "reset-run")
    page = frame(
        {"id": "playfield", "x": 190, "y": 60, "w": 900, "h": 540, "inner": lanes}, bottom=690,
        actions=("undo", "redo", "replay"), save=save, labels=labels,
        ring=("last-slice-indicator", 27),
        extra=(
            at("div", "hud", 20, 10, 300, 30, "score"),
            at("button", "start-btn", 580, 408, 120, 24, "Start slicing"),
            at("div", "legend", 190, 680, 300, 20, "legend"),
            *under(710, "status-bar", "combo-banner"),
        ),
    )  # fmt: skip
    cases = [
        {"id": n, "label": "l", "slices": s, "hazards": [], "winner": f"case {n}"}
        for n, s in enumerate((["L1", "L2", "L3"], ["L1", "L2", "L3", "L4"]))
    ]
    config = config_of(
        page, ring="last-slice-indicator", ringSize=27, status="Blades idle",
        bannerAt="#combo-banner", labels=labels, totals=dict.fromkeys(labels.values(), 0),
        list="slices", save=save, storage="fruitninja-state", file="hard_cases.json",
        names={"init": "initializeField", "serialize": "serializeRun", "apply": "applyRun",
               "reset": "resetRun", "totals": "getRunSummary"},
        actions={"undo": "undo", "redo": "redo", "replay": "startReplay"},
    )  # fmt: skip
    return build(config, _FRUIT, cases)


_SNAKE = rules("snake")


def snake() -> dict[str, str]:
    grid = [[f"r{r}c{c}" for c in range(1, 21)] for r in range(1, 21)]
    labels = {".best-score": "best", ".games-played": "games", ".longest-run": "longest"}
    save = ("save-state", "load-state", "reset-world")
    ways = [
        {"tag": "button", "text": name, "data": {"dir": name}}
        for name in ("up", "down", "left", "right")
    ]
    board = {
        "id": "snake-grid", "x": 340, "y": 60, "w": 600, "h": 600,
        "inner": cells(grid, 600, 600, "cell"),
    }  # fmt: skip
    page = frame(
        board, bottom=740, actions=("pause", "resume", "replay"), save=save, labels=labels,
        ring=("head-indicator", 26),
        extra=(
            at("button", "start-btn", 36, 84, 120, 24, "Launch Snake"),
            at("div", "legend", 340, 740, 300, 20, "legend"),
            at("div", "score-value", 20, 20, 50, 20),
            at("div", "control-pad", 20, 200, 250, 30, inner=ways), *under(770, "status-bar"),
        ),
    )  # fmt: skip
    cases = [
        {"id": n, "label": "l", "path": p, "apples": [], "winner": f"case {n}"}
        for n, p in enumerate((["right", "down"], ["right", "right", "down", "down"]))
    ]
    config = config_of(
        page, keys=["depth", "elapsedMs", "fps", "topSegments"], listed="topSegments",
        ring="head-indicator", ringSize=26, status="Press Start", labels=labels,
        totals=dict.fromkeys(labels.values(), 0), list="segments", save=save,
        storage="snake-state", file="tracks.json",
        names={"init": "initializeArena", "reset": "resetWorld", "totals": "getScoreboard"},
        actions={"pause": "pause", "resume": "resume", "replay": "startReplay"},
    )  # fmt: skip
    return build(config, _SNAKE, cases)


_JUMP = rules("jump")


def jump() -> dict[str, str]:
    labels = {".best-distance": "best", ".perfect-landings": "perfect", ".misses": "fails"}
    save = ("save-run", "load-run", "reset-session")
    inner = [
        {"id": "p0", "class": "platform", "x": 100, "y": 230, "w": 80, "h": 40},
        {"id": "p1", "class": "platform", "x": 500, "y": 200, "w": 80, "h": 40},
        {"class": "avatar", "x": 120, "y": 190, "w": 30, "h": 40},
    ]
    page = frame(
        {"id": "jump-stage", "x": 280, "y": 120, "w": 720, "h": 480, "inner": inner}, bottom=720,
        actions=("rewind", "fast-forward", "replay"), save=save, labels=labels,
        ring=("last-landing", 34),
        extra=(
            at("button", "launch-btn", 36, 84, 120, 24, "Prime Jump"),
            at("div", "instruction-card", 20, 300, 200, 60, "Hold and release"),
            at("div", "charge-meter", 280, 610, 100, 10),
            *under(640, "status-panel", "combo-banner"),
        ),
    )  # fmt: skip
    scripts = [
        [
            {"id": f"{name}{n}", "holdMs": 260, "target": "near", "result": "landed"}
            for n in range(m)
        ]
        for name, m in (("a", 2), ("b", 3))
    ]
    cases = [
        {"id": n, "label": "l", "script": s, "result": f"case {n}"} for n, s in enumerate(scripts)
    ]
    config = config_of(
        page, ring="last-landing", ringSize=34, status="Ready", statusAt="#status-panel",
        bannerAt="#combo-banner", labels=labels, totals=dict.fromkeys(labels.values(), 0),
        list="jumps", save=save, storage="jump-session-state", file="run_cases.json",
        names={"init": "initializeStage", "serialize": "serializeSession", "apply": "applySession",
               "reset": "resetSession", "totals": "getMilestones", "load": "loadChallenge",
               "run": "playChallenge", "heap": "estimateEngineLoad", "export": "exportRunLog"},
        actions={"rewind": "rewind", "fast-forward": "fastForward", "replay": "startReplay"},
    )  # fmt: skip
    return build(config, _JUMP, cases)


_FLAP = rules("flap")


def flap() -> dict[str, str]:
    labels = {".best-score": "best", ".attempts": "attempts", ".crash-count": "crashes"}
    save = ("save-flight", "load-flight", "reset-flight")
    inner = [
        {"class": "pipe", "data": {"pipe": "upper"}, "x": 250, "y": 0, "w": 60, "h": 200},
        {"class": "pipe", "data": {"pipe": "lower"}, "x": 250, "y": 440, "w": 60, "h": 200},
        {"class": "bird", "x": 80, "y": 300, "w": 20, "h": 20},
    ]
    page = frame(
        {"id": "stage", "x": 460, "y": 40, "w": 360, "h": 640, "inner": inner,
         "data": {"theme": "day"}},
        bottom=740, actions=("rewind", "resume", "instant-replay"), save=save, labels=labels,
        ring=("last-input-indicator", 24),
        extra=(
            at("div", "hud", 20, 20, 200, 20, "hud"),
            at("button", "start-btn", 580, 268, 120, 24, "Start Flight"),
            *under(45, "status-bar", "run-banner"),
        ),
    )  # fmt: skip
    cases = [
        {"id": n, "label": "l", "inputs": [{"tick": t, "action": "flap"} for t in range(m)],
         "result": f"case {n}", "notes": ""}
        for n, m in enumerate((2, 3))
    ]  # fmt: skip
    config = config_of(
        page, keys=["depth", "elapsedMs", "pipesCleared", "topLines"], ring="last-input-indicator",
        ringSize=24, status="Tap or press space", bannerAt="#run-banner", labels=labels,
        totals=dict.fromkeys(labels.values(), 0), list="flaps", save=save, storage="flappy-state",
        file="hard_cases.json",
        names={"init": "initializeStage", "reset": "resetFlight", "totals": "getScoreboard"},
        actions={"rewind": "rewind", "resume": "resume", "instant-replay": "startReplay"},
    )  # fmt: skip
    return build(config, _FLAP, cases)


_TWO_THOUSAND = rules("two_thousand")


def numbers() -> dict[str, str]:
    grid = [
        {"class": "cell", "data": {"cell": f"r{r + 1}c{c + 1}"}, "x": 124 * c, "y": 124 * r,
         "w": 108, "h": 108}
        for r in range(4)
        for c in range(4)
    ]  # fmt: skip
    labels = {
        ".games-played": "gamesPlayed", ".best-tile": "bestTile", ".total-score": "totalScore",
    }  # fmt: skip
    save = ("save-run", "load-run", "reset-board")
    cards = [
        {"class": f"score-card {name}", "x": x, "y": 0, "w": 90, "h": 30, "text": name}
        for name, x in (("current", 0), ("best", 110))
    ]
    moves = [
        {"tag": "button", "class": "move-btn", "text": m, "data": {"move": m}}
        for m in ("up", "right", "down", "left")
    ]
    page = frame(
        {"id": "grid", "x": 400, "y": 150, "w": 480, "h": 480, "inner": grid}, bottom=640,
        actions=("undo", "redo", "replay"), save=save, labels=labels, ring=None, board_id="stats",
        extra=(
            at("div", "scoreboard", 400, 40, 480, 40, inner=cards),
            at("button", "new-game", 24, 108, 120, 24, "New"),
            at("div", "tagline", 400, 10, 400, 20, "Play 2048 in the browser"),
            at("div", "pad", 20, 300, 300, 30, inner=moves),
            *under(650, "status-bar", "milestone-banner"),
        ),
    )  # fmt: skip
    spawns = [{"value": 2, "row": 0, "col": n} for n in range(4)]
    cases = [
        {"id": n, "label": "l", "moves": ["left"] * m, "spawns": spawns[:m], "targetTile": 4 + n}
        for n, m in enumerate((3, 4))
    ]
    config = config_of(
        page, space="game", keys=["depth", "elapsedMs", "maxTile", "branching", "topLines"],
        bannerAt="#milestone-banner", labels=labels, totals=dict.fromkeys(labels.values(), 0),
        save=save, storage="2048-state", file="hard_cases.json",
        names={"init": "initializeGrid", "reset": "resetGame", "totals": "getStats",
               "heap": "estimateLoad", "replay": "beginReplay"},
        actions={"undo": "undo", "redo": "redo", "replay": "beginReplay"},
    )  # fmt: skip
    return build(config, _TWO_THOUSAND, cases)


PAGES = {
    "Game/scenario2": numbers,
    "Game/scenario3": snake,
    "Game/scenario6": tiles,
    "Game/scenario7": jump,
    "Game/scenario8": flap,
    "Game/scenario10": fruit,
}
