"""Where things stand on a page: sizes, centres, cells, and what the page itself says of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from envs.agencybench.assessment import Unmet
from envs.agencybench.browser import need
from envs.agencybench.upstream.checks.pages.scenes import (
    PageTask,
    Point,
    Seen,
    Step,
    act,
    number,
    pause,
    see,
)

__all__ = ["Layout", "Spot", "box", "first_task", "holds", "layout_scene", "near"]

#: How far a place that the page tells may lie outside of the element that it tells of.
_SLACK = 3.0


@dataclass(frozen=True, slots=True)
class Spot:
    """A place that the page tells: where it must be, and the element that must be there.

    Attributes:
        path: In what the page tells: ``startButton`` or ``hud.startButton``.
        element: Selector of the element.
        x: In the viewport; None if it does not matter.
        y: Likewise.
        within: Tolerance in pixels.
    """

    path: str
    element: str
    x: float | None = None
    y: float | None = None
    within: float = 6.0


@dataclass(frozen=True, slots=True)
class Layout:
    """What the first task of a scenario asks for.

    Attributes:
        board: Selector of the board.
        size: Its width and height in pixels.
        within: Tolerance of both, or of each.
        centred: How far its centre may be from the viewport's, across and down; None if it does
            not matter.
        init: Sets the page up; doing it again changes nothing.
        told: The page's own description.
        cells: Selector of the board's cells; empty if it has none.
        name: Attribute after ``data-`` that names a cell; empty if none does.
        keys: Names of the cells, in any order.
        least: How many cells there are at least, where their names do not matter.
        places: Where in the description the cells' places stand; empty if they do not.
        told_keys: Cells whose places must be told; all of them if empty.
        spots: Places told.
        below: Element, and how far its top is below the board's bottom, with the tolerance.
        there: Selectors of elements that must be there.
        labels: Selector to the text that must stand there.
        more: Judges anything else in the facts.
        watched: Selector of what changes while things are played; empty for the board.
    """

    board: str
    size: tuple[float, float]
    within: float | tuple[float, float]
    centred: tuple[float | None, float | None]
    init: str
    told: str
    cells: str = ""
    name: str = "cell"
    keys: tuple[str, ...] = ()
    least: int = 0
    places: str = "cells"
    told_keys: tuple[str, ...] = ()
    spots: tuple[Spot, ...] = ()
    below: tuple[str, float, float] | None = None
    there: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    more: Callable[[Mapping[str, Any]], None] | None = None
    watched: str = ""


def box(value: Any, what: str) -> tuple[float, float, float, float]:
    """Place and size of an element.

    Raises:
        Unmet: If it is not there or takes no room.
    """
    need(isinstance(value, list) and len(value) == 4, f"{what} is missing")
    x, y, width, height = (number(part, what) for part in value)
    need(width > 0 and height > 0, f"{what} is not visible")
    return x, y, width, height


def near(value: float, target: float, within: float, what: str) -> None:
    """Whether a number is what it must be.

    Raises:
        Unmet: If not.
    """
    if abs(value - target) > within + 0.5:
        raise Unmet(f"{what} is {value:g}; required: {target:g} ± {within:g}")


def _facts(layout: Layout) -> str:
    boxes = [spot.element for spot in layout.spots]
    boxes += [layout.below[0]] if layout.below else []
    boxes += layout.there
    labels = json.dumps([selector for selector, _ in layout.labels])
    named = f"e.dataset[{json.dumps(layout.name)}]" if layout.name else "''"
    cells = f"all({json.dumps(layout.cells)}).map(e=>[{named},...box(e)])" if layout.cells else "[]"
    return (
        "(scrollTo(0,0),{"
        f"boards:all({json.dumps(layout.board)}).length,board:box({json.dumps(layout.board)}),"
        f"cells:{cells},view:[innerWidth,innerHeight],"
        f"counts:Object.fromEntries({json.dumps(list(layout.there))}.map(s=>[s,all(s).length])),"
        f"boxes:Object.fromEntries({json.dumps(boxes)}.map(s=>[s,box(s)])),"
        f"texts:Object.fromEntries({labels}.map(s=>[s,text(s)]))"
        "})"
    )


def layout_scene(layout: Layout) -> list[Step]:
    """Look, set up twice more, and look again."""
    facts = _facts(layout)
    told = f"(scrollTo(0,0),JSON.parse(JSON.stringify({layout.told})))"
    return [
        see("f", facts), see("f told", told), act(layout.init), act(layout.init), pause(0.1),
        see("again", facts), see("again told", told),
    ]  # fmt: skip


def _seen(seen: Seen, label: str) -> dict[str, Any]:
    """What is there, and what the page tells of it."""
    return {**seen[label], "told": seen[f"{label} told"]}


def _geometry(layout: Layout, facts: Mapping[str, Any]) -> None:
    x, y, width, height = box(facts["board"], layout.board)
    wide, high = (
        layout.within if isinstance(layout.within, tuple) else (layout.within, layout.within)
    )
    near(width, layout.size[0], wide, f"width of {layout.board}")
    near(height, layout.size[1], high, f"height of {layout.board}")
    across, down = layout.centred
    view = facts["view"]
    if across is not None:
        near(x + width / 2, view[0] / 2, across, f"centre of {layout.board} across")
    if down is not None:
        near(y + height / 2, view[1] / 2, down, f"centre of {layout.board} down")
    room: set[tuple[int, int]] = set()
    for name, *place in facts["cells"]:
        left, top, wide, high = box(place, f"cell {name}")
        inside = x - 12 <= left + wide / 2 <= x + width + 12
        inside = inside and y - 12 <= top + high / 2 <= y + height + 12
        need(inside, f"cell {name} lies outside of {layout.board}")
        room.add((round(left + wide / 2), round(top + high / 2)))
    need(not layout.keys or len(room) == len(facts["cells"]), "cells lie on top of each other")


def _at(told: Any, path: str) -> Any:
    for part in path.split("."):
        told = told.get(part) if isinstance(told, dict) else None
    return told


def _place(value: Any, what: str) -> tuple[float, float]:
    need(isinstance(value, dict), f"the description lacks {what}")
    return number(value.get("x"), f"{what}.x"), number(value.get("y"), f"{what}.y")


def _on(place: tuple[float, float], element: tuple[float, ...], what: str) -> None:
    x, y, width, height = element
    inside = x - _SLACK <= place[0] <= x + width + _SLACK
    need(
        inside and y - _SLACK <= place[1] <= y + height + _SLACK,
        f"{what} is told to be at {place[0]:g}, {place[1]:g}, where its element is not",
    )


def _controls(layout: Layout, facts: Mapping[str, Any]) -> None:
    for spot in layout.spots:
        place = _place(_at(facts["told"], spot.path), spot.path)
        if spot.x is not None:
            near(place[0], spot.x, spot.within, f"{spot.path}.x")
        if spot.y is not None:
            near(place[1], spot.y, spot.within, f"{spot.path}.y")
        _on(place, box(facts["boxes"].get(spot.element), spot.element), spot.path)
    _, top, _, height = box(facts["board"], layout.board)
    if layout.below is not None:
        element, distance, within = layout.below
        gap = box(facts["boxes"].get(element), element)[1] - top - height
        near(gap, distance, within, f"distance of {element} from {layout.board}")
    wanted = layout.told_keys or layout.keys
    if wanted and layout.places:
        places = _at(facts["told"], layout.places)
        known = {name: place for name, *place in facts["cells"]}
        for key in wanted:
            place = _place(_at(places, key), f"{layout.places}.{key}")
            _on(place, box(known.get(key), f"cell {key}"), key)
    if layout.more is not None:
        layout.more(facts)


def _contract(layout: Layout, facts: Mapping[str, Any]) -> None:
    for selector in layout.there:
        need(facts["counts"].get(selector), f"{selector} is missing")
    for selector, label in layout.labels:
        found = " ".join(str(facts["texts"].get(selector) or "").split())
        need(label.casefold() in found.casefold(), f"{selector} does not read {label!r}")
    names = [name for name, *_ in facts["cells"]]
    if layout.keys:
        need(len(names) == len(layout.keys), f"there are {len(names)} {layout.cells}")
        need(set(names) == set(layout.keys), f"data-{layout.name} is not as required")
    need(len(names) >= layout.least, f"there are {len(names)} {layout.cells}")


def _bootstrap(layout: Layout, seen: Seen) -> None:
    first, again = _seen(seen, "f"), _seen(seen, "again")
    need(bool(first["told"]), "nothing is described")
    need(first["boards"] == again["boards"] == 1, f"there is not one {layout.board}")
    need(len(first["cells"]) == len(again["cells"]), "setting up again changes the cells")
    need(first["counts"] == again["counts"], "setting up again changes the elements")
    need(first["told"] == again["told"], "setting up again changes the description")
    _geometry(layout, again)
    _controls(layout, again)


def first_task(layout: Layout) -> PageTask:
    """The first task: the page as it is after loading."""

    def facts(judge: Callable[[Layout, Mapping[str, Any]], None]) -> Callable[[Seen], None]:
        return lambda seen: judge(layout, _seen(seen, "f"))

    return PageTask(
        {"layout": layout_scene(layout)},
        (
            Point("geometry", 0.3, "sizes and centring", "layout", facts(_geometry)),
            Point(
                "controls", 0.3, "controls stand where required, and as described", "layout",
                facts(_controls),
            ),
            Point("contract", 0.15, "the elements asked for", "layout", facts(_contract)),
            Point(
                "bootstrap", 0.25, "setting up again changes nothing", "layout",
                lambda seen: _bootstrap(layout, seen),
            ),
        ),
    )  # fmt: skip


def holds(layout: Layout, weight: float = 0.15) -> Point:
    """What the first task asked for still holds; its scene is ``layout``."""

    def judge(seen: Seen) -> None:
        for part in (_geometry, _controls, _contract):
            part(layout, _seen(seen, "f"))
        _bootstrap(layout, seen)

    return Point("regression", weight, "the layout of the first task holds", "layout", judge)
