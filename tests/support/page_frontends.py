"""Pages written for tests: a map, fitting squares, a solar system."""

from __future__ import annotations

from typing import Any

from page_kit import at, build, frame, rules
from page_more import config_of, under

_MAP = rules("map")


def chart() -> dict[str, str]:
    states = ("CA", "TX", "NY", "NV", "UT", "CO", "WA", "OR", "AZ", "FL", "ME")
    shapes = "".join(
        f'<rect data-state="{s}" x="{20 + 75 * n}" y="{100 + 30 * (n % 3)}" width="60" '
        'height="60"/>'
        for n, s in enumerate(states)
    )
    labels = {".states-selected": "states", ".pins-dropped": "pins", ".routes-run": "routes"}
    save = ("save-map", "load-map", "reset-map")
    board = {
        "id": "map-container", "x": 190, "y": 80, "w": 900, "h": 560,
        "html": f'<svg width="900" height="560">{shapes}</svg>',
    }  # fmt: skip
    page = frame(
        board, bottom=760, actions=("undo", "redo", "tour"), save=save, labels=labels,
        ring=("active-indicator", 26), board_id="metrics",
        extra=(
            at("button", "render-map", 120, 120, 100, 24, "Render Map"),
            at("div", "legend", 190, 720, 300, 20, "legend"),
            *under(750, "status-bar", "route-banner"),
        ),
    )  # fmt: skip
    config = config_of(
        page, keys=["coverage", "elapsedMs", "nodes", "topRegions"], listed="topRegions",
        ring="active-indicator", ringSize=26, status="No state selected", bannerAt="#route-banner",
        labels=labels, totals=dict.fromkeys(labels.values(), 0), list="states", save=save,
        storage="usa-map-state",
        names={"init": "initializeMap", "reset": "resetMap", "totals": "getMetrics"},
        actions={"undo": "undo", "redo": "redo"},
    )  # fmt: skip
    return build(config, _MAP)


_FIT = rules("fit")


def fit() -> dict[str, str]:
    save = ("save-state", "load-state", "reset-game")
    width = 640 * 2 / 3
    left = (1280 - width) / 2
    inner = [
        at("div", "playfield", 20, 20, width - 40, 600),
        at("div", "target-area", width / 2 - 80, 400, 160, 160),
        at("div", "last-attempt", width / 2 - 60, 420, 10, 10),
        at("button", "start-btn", width / 2 - 60, 90, 120, 24, "Begin Fit"),
    ]
    audio = [
        {"tag": "button", "id": "audio-toggle", "text": "mute"},
        {"tag": "button", "class": "theme-option", "text": "neon"},
    ]
    labels = {"#progress": "level"}
    page = frame(
        {"id": "stage", "x": left, "y": 40, "w": width, "h": 640, "inner": inner}, bottom=700,
        actions=(), save=save, labels={}, ring=None,
        extra=(
            at("div", "hud", 20, 20, 300, 60, inner=[{"id": "status", "text": "hold"}]),
            at("div", "settings", 20, 100, 300, 30, inner=audio),
            at("div", "level-indicator", 20, 140, 100, 20),
            at("div", "progress", 20, 170, 100, 20),
        ),
    )  # fmt: skip
    aside = next(spec for spec in page if spec.get("id") == "diagnostics")
    aside["html"] = (
        '<div id="ads"><button id="show-rewarded">r</button>'
        '<button id="show-interstitial">i</button><span id="ad-log"></span></div>'
    )
    config = config_of(
        page, keys=["depth", "elapsedMs", "nodes", "topFits"], listed="topFits", status="Hold",
        statusAt="#status", labels=labels, totals={"level": 1, "bestFit": 90, "attempts": 0},
        list="attempts", save=save, storage="squarefit-state",
        names={"init": "initializeScene", "reset": "resetGame", "totals": "getProgress"},
    )  # fmt: skip
    return build(config, _FIT)


_SKY = rules("sky")


def sky() -> dict[str, str]:
    planets = ("mercury", "venus", "earth", "mars", "jupiter", "saturn", "uranus", "neptune")
    menu: list[dict[str, Any]] = [
        {"tag": "button", "text": planet.title(), "data": {"planet": planet}} for planet in planets
    ]
    save = ("save-view", "load-view", "reset-view")
    orbit = {"class": "orbit", "x": 0, "y": 100, "w": 20, "h": 20}
    page = frame(
        {"id": "view-3d", "x": 60, "y": 20, "w": 940, "h": 530, "inner": [orbit]}, bottom=700,
        actions=(), save=save, labels={}, ring=None,
        extra=(
            at("div", "view-2d", 1020, 20, 230, 530, inner=[{"class": "dot", "text": "."}]),
            at("div", "planet-menu", 60, 570, 700, 30, inner=menu),
            at("div", "info-panel", 800, 570, 300, 30),
            at("button", "toggle-3d", 60, 620, 80, 24, "3D"),
            at("button", "toggle-2d", 150, 620, 80, 24, "2D"),
            at("button", "start-btn", 240, 620, 120, 24, "Launch Explorer"),
            at("button", "compare-view", 400, 620, 120, 24, "Compare"),
            at("div", "cards", 540, 620, 300, 24),
            *under(660, "status-bar"),
        ),
    )  # fmt: skip
    controls = next(spec for spec in page if spec.get("id") == "controls")
    controls["inner"] = [
        {"tag": "input", "id": "orbit-speed",
         "attrs": {"type": "range", "min": "0.1", "max": "2", "step": "0.1"}},
        {"tag": "button", "id": "play-tour", "text": "play"},
    ]  # fmt: skip
    config = config_of(
        page, keys=["depth", "elapsedMs", "nodes", "view", "topLines"], save=save,
        storage="solar-state", names={"init": "initializeScene", "reset": "resetScene"},
    )  # fmt: skip
    return build(config, _SKY)


PAGES = {
    "Frontend/scenario1": chart,
    "Frontend/scenario2": fit,
    "Frontend/scenario3": sky,
}
