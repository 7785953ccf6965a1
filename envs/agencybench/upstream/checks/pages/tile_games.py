"""Game/6 (matching tiles) and 10 (slicing fruit)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from envs.agencybench.browser import need
from envs.agencybench.upstream.checks.pages.diagnostics import Diagnosed, diagnosed
from envs.agencybench.upstream.checks.pages.judging import Ring, reads
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
    pause,
    see,
    tap,
    until,
)
from envs.agencybench.upstream.checks.pages.stages import Ended, Saved, Turns, ended, saved, turns

__all__ = ["TASKS"]

# Matching tiles ---------------------------------------------------------------------------------


def _tiles_more(facts: Mapping[str, Any]) -> None:
    need(facts["counts"][".tile[data-value]"] == 80, "tiles lack data-value")
    _, top, _, _ = box(facts["board"], "#tile-grid")
    _, above, _, height = box(facts["boxes"]["#hud"], "#hud")
    # "A top offset of 48 px" may be measured in three ways.
    offsets = (top - above, top - above - height, above)
    need(any(abs(offset - 48) <= 6.5 for offset in offsets), f"#hud has offsets {offsets}")


def _matching() -> tuple[PageTask, ...]:
    names = tuple(f"{column}{row}" for column in "ABCDEFGHIJ" for row in range(1, 9))
    layout = Layout(
        "#tile-grid", (640, 512), 4, (6, 6), "app.initializeGrid()", "app.describeLayout()",
        ".tile", keys=names, places="tiles", spots=(Spot("startButton", "#start-btn", 120, 110),),
        below=("#legend", 70, 6),
        there=("#hud", "#tile-grid", "#legend", "#start-btn", ".tile[data-value]"),
        labels=(("#start-btn", "Start Puzzle"),), more=_tiles_more,
    )  # fmt: skip

    def at(*cells: str) -> list[Step]:
        steps: list[Step] = []
        for cell in cells:
            steps += [tap(f"app.describeLayout().tiles[{cell!r}]"), pause(0.25)]
        return steps

    def seed(**pairs: tuple[str, str]) -> Step:
        made = [{"id": n, "coords": list(p), "value": f"{n}-icon"} for n, p in pairs.items()]
        return act(f"app.setDemoPairs({json.dumps(made)})")

    history = "app.debugState().matchedPairs"
    cleared = (
        "['C3','E3'].filter(c=>q(`[data-cell=\"${c}\"]`).classList.contains('cleared')).length"
    )
    play = [
        seed(tutorial=("C3", "E3"), blocked=("D5", "D6")), *at("C3", "E3"), pause(0.3),
        see("pairs", history), see("cleared", cleared), see("combo", "text('#combo-indicator')"),
        *at("D5", "D5"), see("told", "text('#status-message')"), see("still", history),
        see("chosen", "app.debugState().selections"),
    ]  # fmt: skip
    mixed = [
        see("n0", "app.debugState().shuffleCount"), click("#shuffle-button"),
        until("/tiles shuffled/i.test((text('#status-bar')||'')+(text('#status-message')||''))", 1),
        see("n1", "app.debugState().shuffleCount"),
        see("bar", "(text('#status-bar')||'')+' '+(text('#status-message')||'')"),
    ]  # fmt: skip

    def match(seen: Seen) -> None:
        need(seen["pairs"] == ["tutorial"], f"matched are {seen['pairs']}")
        need(seen["cleared"] == 2, "the tiles do not gain the class cleared")
        reads(seen["combo"], "Combo x1", "#combo-indicator", whole=False)

    def invalid(seen: Seen) -> None:
        need(seen["still"] == seen["pairs"] == ["tutorial"], "matched pairs change")
        reads(seen["told"], "Select a different tile", "#status-message")
        need(seen["chosen"] == [], "the highlight is not reset")

    def shuffle(seen: Seen) -> None:
        need(seen.number("n1") == seen.number("n0") + 1, "the count does not rise by one")
        reads(seen["bar"], "Tiles shuffled", "the status bar", whole=False)

    second = PageTask(
        {"play": play, "mixed": mixed, "layout": layout_scene(layout)},
        (
            Point("match", 0.35, "two matching tiles are cleared", "play", match),
            Point("invalid", 0.25, "the same tile twice is refused", "play", invalid),
            Point("shuffle", 0.25, "shuffling is counted and told", "mixed", shuffle),
            holds(layout),
        ),
    )
    three = {"tutorial": ("C3", "E3"), "b": ("B4", "B6"), "c": ("H2", "H4")}

    def over(verdict: Any) -> None:
        told = [verdict.get(key) for key in ("cleared", "remaining")]
        need(told == [True, 0], f"the page says {verdict}"[:80])

    third = ended(layout, Ended(
        [seed(**three), *at("C3", "E3", "B4", "B6", "H2", "H4")], "app.checkCleared()", over,
        ("#winner-banner", "Board cleared!"), at("A1"), history, 3, "app.exportLog()", (),
        lines=3, later=("undo", "redo", "replay_start", "replay_end"),
        weights=(0.3, 0.25, 0.15, 0.15), wait=0.5,
    ))  # fmt: skip
    clock = [
        see("timer", "text('#timer')"), see("l0", "text('#lives-remaining')"),
        act("app.registerStrike()"), pause(0.2), see("l1", "text('#lives-remaining')"),
        pause(1.2), see("later", "text('#timer')"),
    ]  # fmt: skip

    def lives(seen: Seen) -> None:
        times = [re.search(r"(\d+):(\d\d)", str(seen[label])) for label in ("timer", "later")]
        need(all(times), f"#timer reads {seen['timer']!r}")
        first, later = (int(t[1]) * 60 + int(t[2]) for t in times if t)
        need(first >= 89, "#timer starts below 90 seconds")
        need(later <= first, "#timer counts upwards")
        left = [re.search(r"\d+", str(seen[label])) for label in ("l0", "l1")]
        need(all(left), "#lives-remaining shows no number")
        before, after = (int(found[0]) for found in left if found)
        need(after == before - 1, "a strike does not take a life")

    third = replace(
        third,
        scenes={**third.scenes, "clock": clock},
        points=(*third.points, Point("lives", 0.15, "a timer and lives", "clock", lives)),
    )
    return (
        first_task(layout),
        second,
        third,
        saved(layout, Saved(
            [seed(save_a=("A1", "A2"), save_b=("B1", "B2")), *at("A1", "A2"), pause(0.3)],
            ("#save-puzzle", "#load-puzzle", "#reset-puzzle"), "lianliankan-state",
            ("moves", "timer", "scoreboard"), ("moves",), history, "app.serializeState()",
            "app.applyState", "app.resetPuzzle()", None,
            [seed(only=("C3", "E3")), *at("C3", "E3"), pause(0.3), act("app.checkCleared()")],
            "app.getScoreboard()",
            {"perfectClears": 1},
            (("#scoreboard .perfect-clears", "perfectClears"), ("#scoreboard .hints-used", "hints"),
             ("#scoreboard .shuffles", "shuffles")), volatile=("timer",),
        )),
        diagnosed(layout, Diagnosed(
            "#toggle-lab", "#lab-inspector", ("depth", "elapsedMs", "nodes", "topRoutes"),
            "topRoutes", "hard_cases.json", ("id", "label", "layout", "steps", "winner"), "steps",
            ("#winner-banner", "winner"), history, "app.exportLog()", at("J8"), interval=240,
            counts=False,
        )),
    )  # fmt: skip


# Slicing fruit ----------------------------------------------------------------------------------

_LANES = ("L1", "L2", "L3", "L4", "L5")


def _below_middle(facts: Mapping[str, Any]) -> None:
    _, top, _, height = box(facts["board"], "#playfield")
    told = facts["told"].get("playButton") or {}
    near(float(told.get("y") or 0) - top - height / 2, 90, 10, "playButton beneath the middle")


def _blades(history: Any) -> None:
    text = [json.dumps(entry).casefold() for entry in history]
    colours = [next((c for c in ("red", "blue") if c in entry), "") for entry in text]
    need(all(colours) and colours[0] != colours[1], "blades do not alternate")


def _slicing() -> tuple[PageTask, ...]:
    layout = Layout(
        "#playfield", (900, 540), 6, (6, None), "app.initializeField()", "app.describeLayout()",
        ".lane", "lane", _LANES, places="targets", spots=(Spot("playButton", "#start-btn"),),
        below=("#legend", 80, 10), there=("#playfield", "#legend", "#hud", "#start-btn"),
        labels=(("#start-btn", "Start slicing"),), more=_below_middle, watched="body",
    )  # fmt: skip

    def at(*lanes: str) -> list[Step]:
        return [tap(f"app.describeLayout().targets.{lane}") for lane in lanes]

    history = "app.debugState().laneHistory"
    combo = ("L2", "L3", "L4", "L5", "L1")

    def perfect(verdict: Any) -> None:
        need("perfect combo" in str(verdict).casefold(), f"the page says {verdict!r}"[:80])

    return (
        first_task(layout),
        turns(layout, Turns(
            at("L3"), at("L4"), at("L4"), history, [("L3",), ("L4",)], "#status-bar",
            ("Blades idle", "Combo building", "Lane already cleared"),
            Ring("#last-slice-indicator", '[data-lane="L4"]', 27, 3, inside=True),
            history, _blades,
        )),
        ended(layout, Ended(
            at(*combo), "app.checkCombo()", perfect, ("#combo-banner", "Perfect combo!"),
            at("L2"), history, 5, "app.exportLog()", combo, entries=[(lane,) for lane in combo],
        )),
        saved(layout, Saved(
            at("L1", "L2"), ("#save-run", "#load-run", "#reset-run"), "fruitninja-state",
            ("slices",), ("slices",), history, "app.serializeRun()", "app.applyRun",
            "app.resetRun()", "#last-slice-indicator", [*at(*combo), act("app.checkCombo()")],
            "app.getRunSummary()", {"perfect": 1},
            tuple((f"#scoreboard .{key}", key) for key in ("perfect", "fails", "combos")),
        )),
        diagnosed(layout, Diagnosed(
            "#toggle-diagnostics", "#diagnostics", ("depth", "elapsedMs", "nodes", "topLines"),
            "topLines", "hard_cases.json", ("id", "label", "slices", "hazards", "winner"),
            "slices", ("#combo-banner", "winner"), history, "app.exportLog()", at("L5"),
        )),
    )  # fmt: skip


#: Scenario to its tasks.
TASKS: dict[str, Callable[[], tuple[PageTask, ...]]] = {
    "Game/scenario6": _matching,
    "Game/scenario10": _slicing,
}
