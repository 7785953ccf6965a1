"""The fifth task of games and frontends: scenarios that are played, and a sidebar of metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from envs.agencybench.browser import need
from envs.agencybench.upstream.checks.pages.judging import CHANGES, reads, spread, watch
from envs.agencybench.upstream.checks.pages.layout import Layout, box, holds, layout_scene
from envs.agencybench.upstream.checks.pages.scenes import (
    PageTask,
    Point,
    Seen,
    Step,
    act,
    click,
    pause,
    see,
    until,
)

__all__ = ["Diagnosed", "diagnosed"]


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A sidebar, and scenarios that are loaded and played.

    Attributes:
        space: ``app`` or ``game``.
        toggle: Selector of the button; ``aside`` of the sidebar.
        keys: Keys of the diagnostics; ``listed`` of them holds a list.
        fixture: File of the scenarios, with ``fields`` that each has; empty if they are inline.
        steps: Field that holds what a scenario plays; its length counts.
        banner: Selector, and the field whose text it must show.
        history: What was played, or None where a scenario does not fill it.
        log: The log's text, or None.
        names: Functions that load, play and summarize, and that estimates.
        blocked: Steps that must have no effect while a scenario plays.
        interval: Milliseconds asked for between two steps.
        counts: The history and the summary count the scenario's steps.
        paced: A replay has a change for each of the scenario's steps.
    """

    toggle: str
    aside: str
    keys: tuple[str, ...]
    listed: str
    fixture: str
    fields: tuple[str, ...]
    steps: str
    banner: tuple[str, str] | None
    history: str | None
    log: str | None
    blocked: Sequence[Step] = ()
    space: str = "app"
    names: tuple[str, str, str, str] = (
        "loadScenario", "playScenario", "summarizeScenario", "estimateHeap",
    )  # fmt: skip
    interval: int = 220
    counts: bool = True
    paced: bool = True


def _numbers(value: Any) -> list[float]:
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [float(value)]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [found for part in parts for found in _numbers(part)]


def diagnosed(layout: Layout, what: Diagnosed) -> PageTask:
    """The fifth task: scenarios, their replay, a sidebar, and steady estimates."""
    load, play, summarize, estimate = (f"{what.space}.{name}" for name in what.names)
    history, log = what.history or "[]", what.log or "''"
    banner = f"text({json.dumps(what.banner[0])})" if what.banner else "null"
    aside = json.dumps(what.aside)
    diagnose = f"{what.space}.getDiagnostics()"
    steps = [
        pause(0.3), see("log0", log), act(f"window.__l=Promise.resolve({load}(0))"), pause(0.5),
        see("h", history), see("banner", banner), see("log", log),
        see("summary", f"{summarize}(0)"), see("d0", diagnose),
        watch(layout.watched or layout.board),
        act(
            f"window.__a=performance.now(),window.__p={play}(1,{{intervalMs:{what.interval}}}),"
            "window.__then=!!(window.__p&&window.__p.then),"
            "Promise.resolve(window.__p).then(()=>{window.__b=performance.now()},"
            "e=>{window.__e=String(e)})"
        ),
        pause(0.15), *what.blocked,
        see("late", "!!window.__b"),
        until("!!window.__b||!!window.__e", 20), see("promise", "window.__then"),
        see("took", "window.__b?window.__b-window.__a:null"), see("times", CHANGES),
        see("played", history), see("d1", diagnose),
        click(what.toggle), pause(0.8), see("view", "[innerWidth,innerHeight]"),
        see("aside", f"box({aside})"),
        see("table", f"box(q({aside}).querySelector('table'))"),
        see("heads", f"[...q({aside}).querySelectorAll('th')].map(e=>e.textContent.trim())"),
        see("rows", f"q({aside}).textContent"), see("d2", diagnose),
        see("heap", f"[0,1,2,3,4].map(()=>{estimate}())"),
    ]  # fmt: skip

    def entries(seen: Seen) -> list[Any]:
        if not what.fixture:
            return []
        made = seen.fixture(what.fixture)
        for entry in made[:2]:
            absent = [name for name in what.fields if name not in entry]
            need(not absent, f"an entry of {what.fixture} lacks {', '.join(absent)}")
        return made

    def size(entry: Any) -> int:
        return len(entry[what.steps]) if isinstance(entry.get(what.steps), list) else 2

    def imported(seen: Seen) -> None:
        made = entries(seen)
        if what.history and made and what.counts:
            found = seen["h"]
            need(isinstance(found, list), "the history is no list")
            wanted = size(made[0])
            need(len(found) == wanted, f"the scenario gives {len(found)} entries, not {wanted}")
        elif what.history:
            need(bool(seen["h"]), "loading a scenario shows nothing")
        if what.banner and made and what.banner[1] in made[0]:
            reads(seen["banner"], str(made[0][what.banner[1]]), what.banner[0], whole=False)
        elif what.banner:
            need(bool(seen["banner"]), f"{what.banner[0]} is empty")
        if what.log:
            need(len(str(seen["log"])) > len(str(seen["log0"])), "the log tells nothing of it")
        summary = seen["summary"]
        need(isinstance(summary, dict) and bool(_numbers(summary)), "the summary has no numbers")
        if made and what.counts:
            need(size(made[0]) in _numbers(summary), "the summary's total is another one")

    def playback(seen: Seen) -> None:
        made = entries(seen)
        need(seen["promise"] is True, "it gives no Promise")
        count = size(made[1]) if made and what.paced else 2
        least = 0.85 * 200 * (count - 1)
        took = seen.number("took")
        need(took >= least, f"it is over after {took:.0f} ms")
        spread(seen["times"], count, 200, "the scenario")
        if what.history and made and what.counts:
            # On a busy machine the click may come when all is over, and then counts.
            left = len(seen["played"])
            need(left == count or (seen["late"] and left > count), f"it ends with {left} entries")

    def sidebar(seen: Seen) -> None:
        told = seen["d2"]
        need(isinstance(told, dict), "there are no diagnostics")
        absent = [key for key in what.keys if key not in told]
        need(not absent, f"the diagnostics lack {', '.join(absent)}")
        need(isinstance(told[what.listed], list), f"{what.listed} is no list")
        need(seen["d0"] != seen["d1"], "the diagnostics do not change with what is played")
        need(bool(seen["promise"]) and seen.number("took") > 100, "nothing was played")
        need([head.casefold() for head in seen["heads"][:2]] == ["metric", "value"], "table heads")
        fits = False
        for label in ("aside", "table"):
            if seen[label]:
                x, _, width, _ = box(seen[label], label)
                right = seen["view"][0] - x - width
                fits = fits or (abs(width - 260) <= 6.5 and abs(right - 60) <= 6.5)
        need(fits, "the sidebar is not 260 px wide, 60 px from the right edge")
        rows = str(seen["rows"]).casefold()
        for key in what.keys:
            bare = key.casefold()
            spoken = "".join(f" {c.lower()}" if c.isupper() else c for c in key)
            need(bare in rows or spoken in rows or bare[:5] in rows, f"the sidebar lacks {key}")

    def steady(seen: Seen) -> None:
        heap = seen["heap"]
        right = all(isinstance(v, int | float) and v == int(v) and 0 < v <= 64e6 for v in heap)
        need(right and heap == sorted(heap), f"estimates are {heap}")
        need(seen["d0"] != seen["d1"], "the page does nothing")

    return PageTask(
        {"scenarios": steps, "layout": layout_scene(layout)},
        (
            Point("import", 0.3, "a scenario is loaded as its fixture says", "scenarios", imported),
            Point("playback", 0.3, "a scenario plays at its pace", "scenarios", playback),
            Point("diagnostics", 0.2, "the sidebar shows the metrics", "scenarios", sidebar),
            Point("stability", 0.05, "estimates are steady", "scenarios", steady),
            holds(layout, 0.15),
        ),
    )  # fmt: skip
