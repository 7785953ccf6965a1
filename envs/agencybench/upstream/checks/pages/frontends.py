"""Frontend/1 (a map), 2 (fitting squares) and 3 (a solar system)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from envs.agencybench.browser import need
from envs.agencybench.upstream.checks.pages.diagnostics import Diagnosed, diagnosed
from envs.agencybench.upstream.checks.pages.judging import Ring, reads, spread, watch
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
    see,
    tap,
    until,
)
from envs.agencybench.upstream.checks.pages.stages import Saved, Turns, saved, turns

__all__ = ["TASKS"]


def _added(task: PageTask, name: str, steps: list[Step], point: Point) -> PageTask:
    return replace(task, scenes={**task.scenes, name: steps}, points=(*task.points, point))


def _near_either(place: tuple[float, ...], x: float | None, y: float | None, within: float) -> bool:
    """Whether the corner or the centre of an element is at a place."""
    corner, centre = place[:2], (place[0] + place[2] / 2, place[1] + place[3] / 2)
    return any(
        (x is None or abs(at[0] - x) <= within + 0.5)
        and (y is None or abs(at[1] - y) <= within + 0.5)
        for at in (corner, centre)
    )


# A map ------------------------------------------------------------------------------------------


def _map_more(facts: Mapping[str, Any]) -> None:
    button = box(facts["boxes"]["#render-map"], "#render-map")
    need(_near_either(button, 120, 120, 8), "#render-map is not at 120, 120")
    told = facts["told"].get("mapBounds")
    need(isinstance(told, dict), "mapBounds is not described")
    x, _, width, _ = box(facts["board"], "#map-container")
    near(number(told.get("x"), "mapBounds.x"), x, 8, "mapBounds.x")
    near(number(told.get("width"), "mapBounds.width"), width, 6, "mapBounds.width")
    need(isinstance(facts["told"].get("pins"), list), "pins is no list")


def _map() -> tuple[PageTask, ...]:
    layout = Layout(
        "#map-container", (900, 560), 6, (8, 8), "app.initializeMap()", "app.describeLayout()",
        "[data-state]", "state", least=10, places="states", told_keys=("CA", "TX", "NY"),
        below=("#legend", 80, 8), there=("#map-container svg", "#legend", "#render-map"),
        labels=(("#render-map", "Render Map"),), more=_map_more,
    )  # fmt: skip

    def at(*states: str) -> list[Step]:
        return [tap(f"app.describeLayout().states.{state}") for state in states]

    history, bar = "app.debugState().selected", "text('#route-banner')"
    route = ("CA", "NV", "UT", "CO")
    pins = [act(f"app.addPin({{id:'p{s}',label:'{s}',state:'{s}'}})") for s in route]

    def start(*states: str) -> list[Step]:
        options = f"{json.dumps(list(states))},{{intervalMs:260}}"
        return [act(f"window.__d=0,Promise.resolve(app.startTour({options})).then(()=>{{__d=1}})")]

    tour = [
        *pins, see("pins", "app.listPins()"), see("h0", history), watch("#map-container"),
        *start(*route), pause(0.1), *at("TX"), see("late", "window.__d"),
        until("/tour complete/i.test(text('#route-banner')||'')", 8), pause(0.3),
        see("banner", bar), see("cover", "app.checkCoverage()"), see("h1", history),
        see("times", "window.__w.t.slice(0,4000)"), see("log", "app.exportLog()"),
    ]  # fmt: skip
    pinned = "app.listPins().length"
    tools = [
        pins[0], see("n0", pinned),
        click('#controls button[data-action="undo"]'), pause(0.2), see("n1", pinned),
        click('#controls button[data-action="redo"]'), pause(0.2), see("n2", pinned),
        see("buttons", "all('#controls button[data-action]').map(e=>e.dataset.action)"),
    ]  # fmt: skip

    def toured(seen: Seen) -> None:
        need(len(seen["pins"]) == 4, f"there are {len(seen['pins'])} pins, not 4")
        reads(seen["banner"], "Tour complete", "#route-banner", whole=False)
        absent = [state for state in route if state not in json.dumps(seen["cover"])]
        need(not absent, f"the coverage lacks {', '.join(absent)}")

    def blocked(seen: Seen) -> None:
        counts = "TX" in json.dumps(seen["h1"])
        need(not counts or bool(seen["late"]), "a click counts during the tour")
        spread(seen["times"], 4, 240, "the tour")

    def toolbar(seen: Seen) -> None:
        need(seen["buttons"] == ["undo", "redo", "tour"], f"the toolbar holds {seen['buttons']}")
        counts = [seen[label] for label in ("n0", "n1", "n2")]
        need(counts == [1, 0, 1], f"there are {counts} pins, undone and redone")

    def log(seen: Seen) -> None:
        text = str(seen["log"])
        need(len(text.strip().splitlines()) >= 6, "the log has fewer than six lines")
        need(all(state in text for state in route), "the log lacks a state")
        low = text.casefold()
        ends = any(word in low for word in ("finish", "complete", "end", "stop"))
        need("start" in low and ends, "the log does not mark start and finish")

    third = PageTask(
        {"tour": tour, "tools": tools, "layout": layout_scene(layout)},
        (
            Point("tour", 0.3, "a tour visits its states", "tour", toured),
            Point("playback", 0.25, "a tour has its pace and blocks clicks", "tour", blocked),
            Point("toolbar", 0.15, "undo and redo", "tools", toolbar),
            Point("log", 0.15, "the log tells of the tour", "tour", log),
            holds(layout),
        ),
    )

    def last(value: Any) -> None:
        need(value == "TX", f"the last state is {value!r}")

    return (
        first_task(layout),
        turns(layout, Turns(
            at("CA"), at("TX"), at("TX"), history, [("CA",), ("TX",)], "#status-bar",
            ("No state selected", "Selected: CA", "Selected: TX"),
            Ring("#active-indicator", '[data-state="TX"]', 26, 4), "app.debugState().last", last,
        )),
        third,
        saved(layout, Saved(
            [*at("CA", "NY"), pins[0]], ("#save-map", "#load-map", "#reset-map"),
            "usa-map-state", ("states", "pins"), ("states", "pins"), history,
            "app.serializeState()", "app.applyState", "app.resetMap()", "#active-indicator",
            [*start("CA", "NV"), until("window.__d", 6)], "app.getMetrics()", {"routes": 1},
            (("#metrics .states-selected", "states"), ("#metrics .pins-dropped", "pins"),
             ("#metrics .routes-run", "routes")),
        )),
        diagnosed(layout, Diagnosed(
            "#toggle-diagnostics", "#diagnostics",
            ("coverage", "elapsedMs", "nodes", "topRegions"), "topRegions", "", (), "",
            ("#route-banner", "label"), history, "app.exportLog()", at("TX"),
        )),
    )  # fmt: skip


# Fitting squares --------------------------------------------------------------------------------


def _fit_more(facts: Mapping[str, Any]) -> None:
    told, boxes = facts["told"], facts["boxes"]
    for name, selector in (("playfield", "#playfield"), ("target", "#target-area")):
        element = box(boxes[selector], selector)
        value = told.get(name)
        need(isinstance(value, dict), f"{name} is not described")
        for key, real in zip(("x", "y", "width", "height"), element, strict=True):
            near(number(value.get(key), f"{name}.{key}"), real, 6, f"{name}.{key}")
    _, top, width, height = box(boxes["#target-area"], "#target-area")
    need(all(134 <= side <= 226 for side in (width, height)), "#target-area has another size")
    middle = top + height / 2
    need(any(424 <= y <= 526 for y in (top, middle)), "#target-area is not where required")
    button = box(boxes["#start-btn"], "#start-btn")
    need(_near_either(button, None, 140, 30), "#start-btn is not in the top third")
    need(isinstance(told.get("theme"), str), "theme is no text")


def _fit() -> tuple[PageTask, ...]:
    layout = Layout(
        "#stage", (640 * 2 / 3, 640), 6, (6, None), "app.initializeScene()",
        "app.describeLayout()",
        there=("#stage", "#playfield", "#target-area", "#hud", "#start-btn"),
        labels=(("#start-btn", "Begin Fit"),), more=_fit_more, watched="body",
    )  # fmt: skip
    history = "app.debugState().attempts"

    def attempt(duration: int, seed: str) -> list[Step]:
        call = f"app.simulateAttempt({duration},{{seed:'{seed}'}})"
        return [
            act(f"window.__d=0,Promise.resolve({call}).then(()=>{{__d=1}})"),
            until("window.__d", 6), pause(0.25),
        ]  # fmt: skip

    two = [*attempt(650, "fit"), *attempt(1200, "overshoot")]
    play = [
        see("c0", "app.debugState().currentSize"), *attempt(650, "fit"),
        see("s1", "text('#status')"), see("m1", "box('#last-attempt')"),
        *attempt(1200, "overshoot"), see("s2", "text('#status')"),
        see("m2", "box('#last-attempt')"), see("h", history),
        see("c2", "app.debugState().currentSize"),
    ]  # fmt: skip

    def loop(seen: Seen) -> None:
        made = seen["h"]
        need(isinstance(made, list) and len(made) == 2, "there are not two attempts")
        results = [entry.get("success") if isinstance(entry, dict) else None for entry in made]
        need(results == [True, False], f"attempts succeed as {results}")
        need(seen["c2"] == seen["c0"], "currentSize is not reset")

    def status(seen: Seen) -> None:
        reads(seen["s1"], "Perfect fit!", "#status", whole=False)
        need(bool(seen["s2"]) and seen["s2"] != seen["s1"], "#status does not tell of the failure")
        need(len(seen["h"]) == 2, "there are not two attempts")

    def mark(seen: Seen) -> None:
        one, other = box(seen["m1"], "#last-attempt"), box(seen["m2"], "#last-attempt")
        need(one != other, "#last-attempt does not move to the new square")
        need(other[2] > one[2], "#last-attempt does not wrap the larger square")

    second = PageTask(
        {"play": play, "layout": layout_scene(layout)},
        (
            Point("attempts", 0.35, "attempts succeed and fail as they must", "play", loop),
            Point("status", 0.25, "the status tells of each", "play", status),
            Point("mark", 0.25, "the last attempt is marked", "play", mark),
            holds(layout),
        ),
    )
    stored = "JSON.parse(localStorage.getItem('squarefit-progress'))"
    wanted = {"growTimeMs": 800, "minTarget": 0.25, "maxTarget": 0.6}
    settings = [
        act(f"app.applySettings({json.dumps(wanted)})"), pause(0.2),
        see("made", "app.getSettings()"), see("stored", stored), see("there", "!!q('#settings')"),
    ]  # fmt: skip
    level = [
        *attempt(650, "fit"), see("h0", history), see("l0", "app.debugState().level"),
        act("app.advanceLevel()"), pause(0.2), see("l1", "app.debugState().level"),
        see("h1", history), see("stored", stored),
        see("made", "JSON.parse(plain(app.exportProgress()))"),
        see("shown", "text('#level-indicator')"),
    ]  # fmt: skip
    colours = (
        "['body','#stage','#playfield','#target-area','#hud','#start-btn'].map(s=>{"
        "const c=getComputedStyle(q(s));return [c.backgroundColor,c.backgroundImage,c.color,"
        "c.borderColor].join()})"
    )
    theme = [
        see("c0", colours), act("app.setTheme('neon')"), pause(0.6), see("c1", colours),
        see("theme", "app.describeLayout().theme"), see("a0", "app.getAudioState()"),
        act("q('#audio-toggle').click()"), pause(0.1), see("a1", "app.getAudioState()"),
        see("options", "all('.theme-option').length"),
    ]  # fmt: skip

    def configured(seen: Seen) -> None:
        made = seen["made"]
        need(
            isinstance(made, dict) and wanted.items() <= made.items(), f"settings are {made}"[:120]
        )
        need("800" in json.dumps(seen["stored"]), "the settings are not stored")
        need(seen["there"] is True, "#settings is missing")

    def advanced(seen: Seen) -> None:
        need(seen.number("l1") == seen.number("l0") + 1, "the level does not rise by one")
        need(bool(seen["h0"]) and seen["h1"] == [], "the attempts are not cleared")
        need(seen["made"] == seen["stored"], "the progress told is not the one stored")
        need(f"{seen.number('l1'):g}" in str(seen["shown"]), "#level-indicator shows another level")

    def skinned(seen: Seen) -> None:
        reads(seen["theme"], "neon", "theme")
        need(seen["c0"] != seen["c1"], "no colour changes")
        need(seen["options"] >= 1, ".theme-option is missing")

    def sound(seen: Seen) -> None:
        one, other = seen["a0"], seen["a1"]
        need(isinstance(one, dict) and {"muted", "music", "sfx"} <= set(one), "keys are missing")
        need(isinstance(other, dict) and other["muted"] == (not one["muted"]), "muted stays")

    third = PageTask(
        {"settings": settings, "level": level, "theme": theme, "layout": layout_scene(layout)},
        (
            Point("settings", 0.25, "settings are taken and stored", "settings", configured),
            Point("level", 0.3, "levels advance", "level", advanced),
            Point("theme", 0.15, "a theme changes colours", "theme", skinned),
            Point("audio", 0.15, "sound can be switched off", "theme", sound),
            holds(layout),
        ),
    )
    sync = [
        act("window.__b=null,window.__t=performance.now(),app.mockBackendSync().then("
            "v=>{window.__b=v;window.__t=performance.now()-window.__t})"),
        until("window.__b", 3), see("made", "window.__b"), see("took", "window.__t"),
    ]  # fmt: skip

    def synced(seen: Seen) -> None:
        made = seen["made"]
        need(isinstance(made, dict) and made.get("synced") is True, "nothing is synchronised")
        need(made.get("source") == "client" and "timestamp" in made, f"it gives {made}"[:100])
        need(seen.number("took") <= 1500, "it takes longer than a second")

    fourth = _added(
        saved(layout, Saved(
            two, ("#save-state", "#load-state", "#reset-game"), "squarefit-state",
            ("attempts", "level"), ("attempts",), history, "app.serializeState()",
            "app.applyState", "app.resetGame()", "#last-attempt",
            [act("app.advanceLevel()"), *attempt(650, "fit")], "app.getProgress()", {"level": 1},
            (("#progress", "level"),), free=("bestFit", "attempts"),
        )),
        "sync", sync, Point("backend", 0.1, "a synchronisation is imitated", "sync", synced),
    )  # fmt: skip
    ads = [
        click("#toggle-diagnostics"), pause(0.8), click("#show-rewarded"), pause(0.2),
        click("#show-interstitial"), pause(0.2), see("text", "text('#ads')+' '+text('#hud')"),
    ]  # fmt: skip

    def shown(seen: Seen) -> None:
        for word in ("rewarded shown", "interstitial shown"):
            low = str(seen["text"]).casefold()
            need(word in low or f"{word.split()[0]} ad shown" in low, f"it does not tell: {word}")

    fifth = _added(
        diagnosed(layout, Diagnosed(
            "#toggle-diagnostics", "#diagnostics", ("depth", "elapsedMs", "nodes", "topFits"),
            "topFits", "", (), "", ("#hud", "label"), history, None,
        )),
        "ads", ads, Point("ads", 0.1, "advertisements are told of", "ads", shown),
    )  # fmt: skip
    return (first_task(layout), second, third, fourth, fifth)


# A solar system ---------------------------------------------------------------------------------

_PLANETS = ("mercury", "venus", "earth", "mars", "jupiter", "saturn", "uranus", "neptune")


def _sky_more(facts: Mapping[str, Any]) -> None:
    boxes = facts["boxes"]
    _, _, width, _ = box(facts["board"], "#view-3d")
    strip = box(boxes["#view-2d"], "#view-2d")
    need(strip[2] >= 0.2 * width - 1, "#view-2d is narrower than a fifth")
    need(strip[0] + strip[2] / 2 > facts["view"][0] / 2, "#view-2d is not on the right")
    for name in ("view3d", "view2d", "menu", "info"):
        value = facts["told"].get(name)
        need(isinstance(value, dict), f"{name} is not described")
        for key in ("x", "y", "width", "height"):
            number(value.get(key), f"{name}.{key}")
    need(bool(facts["told"].get("toggles")), "toggles are not described")


def _sky() -> tuple[PageTask, ...]:
    buttons = tuple(f'#planet-menu button[data-planet="{planet}"]' for planet in _PLANETS)
    layout = Layout(
        "#view-3d", (940, 530), (40, 30), (180, None), "app.initializeScene()",
        "app.describeLayout()",
        spots=(Spot("view3d", "#view-3d"), Spot("view2d", "#view-2d"), Spot("menu", "#planet-menu"),
               Spot("info", "#info-panel")),
        there=("#view-3d *", "#view-2d *", "#view-2d", "#planet-menu", "#info-panel", "#toggle-3d",
               "#toggle-2d", "#start-btn", *buttons),
        labels=(("#start-btn", "Launch Explorer"),), more=_sky_more, watched="body",
    )  # fmt: skip
    mode, bar = "app.debugState().viewMode", "text('#status-bar')"
    active = "String(app.debugState().activePlanet)"
    look = "(e=>{const c=getComputedStyle(e);return [c.backgroundColor,c.color,c.outline,c.border,"
    look += "c.boxShadow,e.className,e.getAttribute('aria-pressed')].join()})"
    views = [
        see("s0", bar), click("#toggle-2d"), pause(0.2), see("m1", mode), see("s1", bar),
        click("#toggle-3d"), pause(0.2), see("m2", mode), click("#toggle-3d"), pause(0.2),
        see("m3", mode), click("#toggle-2d"), pause(0.2), see("m4", mode),
    ]  # fmt: skip
    planets = [
        click(buttons[0]), pause(0.2), see("a1", active), see("i1", "text('#info-panel')"),
        click(buttons[1]), pause(0.2), see("a2", active), see("i2", "text('#info-panel')"),
        see("s", bar), see("looks", f"[1,0].map(n=>{look}(all('#planet-menu button')[n]))"),
    ]  # fmt: skip

    def toggled(seen: Seen) -> None:
        modes = [seen[label] for label in ("m1", "m2", "m3", "m4")]
        need(modes == ["compare", "2d", "compare", "3d"], f"the view modes are {modes}")

    def focused(seen: Seen) -> None:
        for label, planet in (("a1", "mercury"), ("a2", "venus")):
            reads(seen[label], planet, "activePlanet")
        one, other = str(seen["i1"]), str(seen["i2"])
        digits = [[c for c in text if c.isdigit()] for text in (one, other)]
        need(all(digits) and one != other, "#info-panel shows no other numbers")
        need(seen["looks"][0] != seen["looks"][1], "the active planet's button looks as others")

    def line(seen: Seen) -> None:
        reads(seen["s0"], "3D global view", "#status-bar", whole=False)
        reads(seen["s1"], "2D comparison", "#status-bar", whole=False)
        need(seen["m1"] == "compare", "the view does not change")

    second = PageTask(
        {"views": views, "planets": planets, "layout": layout_scene(layout)},
        (
            Point("toggles", 0.3, "views are switched", "views", toggled),
            Point("planets", 0.3, "planets are chosen", "planets", focused),
            Point("status", 0.15, "the status line tells the view", "views", line),
            Point("named", 0.1, "the status line names the planet", "planets",
                  lambda seen: reads(seen["s"], "venus", "#status-bar", whole=False)),
            holds(layout),
        ),
    )  # fmt: skip
    speed = [
        act("(e=>{e.value=0.8;e.dispatchEvent(new Event('input',{bubbles:true}));"
            "e.dispatchEvent(new Event('change',{bubbles:true}))})(q('#orbit-speed'))"),
        pause(0.2), see("v0", "app.telemetry().speed"), pause(0.4),
        see("v1", "app.telemetry().speed"), see("there", "!!q('#controls #orbit-speed')"),
    ]  # fmt: skip
    motion = [
        see("f0", "app.telemetry().frameCount"), click("#play-tour"), pause(1.5),
        see("on", "app.telemetry().playing"), see("f1", "app.telemetry().frameCount"),
        see("keys", "app.exportKeyframes()"), click(buttons[2]), pause(0.3), see("a", active),
    ]  # fmt: skip

    def bound(seen: Seen) -> None:
        need(abs(seen.number("v0") - 0.8) <= 0.05, f"speed is {seen['v0']}")
        need(seen["v1"] == seen["v0"], "the speed is not stable")

    def moving(seen: Seen) -> None:
        need(seen["on"] is True, "playing is not true")
        need(seen.number("f1") >= seen.number("f0") + 3, "frames do not advance")
        keys = seen["keys"]
        need(isinstance(keys, list) and len(keys) >= 3, "there are fewer than three keyframes")
        need(len({json.dumps(key) for key in keys}) >= 3, "keyframes do not evolve")

    def usable(seen: Seen) -> None:
        need(seen["on"] is True, "nothing plays")
        reads(seen["a"], "earth", "activePlanet")

    third = PageTask(
        {"speed": speed, "motion": motion, "layout": layout_scene(layout)},
        (
            Point("speed", 0.25, "the speed follows its control", "speed", bound),
            Point("motion", 0.35, "the tour moves and keeps its frames", "motion", moving),
            Point("usable", 0.25, "planets can be chosen while it plays", "motion", usable),
            holds(layout),
        ),
    )
    listed = "app.getComparison().list"
    chosen = [act("app.setComparison(['earth','mars'])"), pause(0.1)]
    compared = [
        *chosen, click("#compare-view"), pause(0.3), see("list", listed),
        see("view", "app.getComparison().view"), see("text", "document.body.innerText"),
    ]  # fmt: skip

    def compare(seen: Seen) -> None:
        need(seen["list"] == ["earth", "mars"], f"compared are {seen['list']}")
        need(isinstance(seen["view"], str) and bool(seen["view"]), "the view is not told")
        text = str(seen["text"]).casefold()
        counts = [text.count(planet) for planet in ("earth", "mars")]
        need(min(counts) > text.count("uranus"), "both planets are not shown side by side")

    fourth = _added(
        saved(layout, Saved(
            [*chosen, click(buttons[2])],
            ("#save-view", "#load-view", "#reset-view"), "solar-state", (), (), listed,
            "app.serializeState()", "app.applyState", "app.resetScene()", None, (), "", {},
            (), reloads=False,
        )),
        "compare", compared,
        Point("comparison", 0.25, "two planets are compared", "compare", compare),
    )  # fmt: skip
    return (
        first_task(layout),
        second,
        third,
        fourth,
        diagnosed(layout, Diagnosed(
            "#toggle-diagnostics", "#diagnostics",
            ("depth", "elapsedMs", "nodes", "view", "topLines"), "topLines", "", (), "", None, None,
            None,
        )),
    )  # fmt: skip


#: Scenario to its tasks.
TASKS: dict[str, Callable[[], tuple[PageTask, ...]]] = {
    "Frontend/scenario1": _map,
    "Frontend/scenario2": _fit,
    "Frontend/scenario3": _sky,
}
