"""What later tasks have in common: turns, an end with its replay, and saving."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.agencybench.assessment import Unmet
from envs.agencybench.browser import need
from envs.agencybench.upstream.checks.pages.judging import (
    CHANGES,
    QUIET,
    Ring,
    reads,
    records,
    spread,
    watch,
)
from envs.agencybench.upstream.checks.pages.layout import Layout, box, holds, layout_scene
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
    until,
)

__all__ = ["Ended", "Saved", "Turns", "ended", "saved", "turns"]

# Turns ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turns:
    """Two turns that count and a third that is refused.

    Attributes:
        first: Steps of the first turn; ``second`` and ``third`` likewise.
        history: What was played.
        entries: Words that each of its entries must hold.
        status: Selector of the status line.
        texts: What it reads at first, after the first turn and after the third; None for what
            does not matter. Texts that start with ``~`` stand somewhere in it; ``=`` is what it
            read after the second turn.
        ring: The ring after the second turn.
        more: Judges what else is seen under ``more``.
        also: The expression seen there, after the third turn.
    """

    first: Sequence[Step]
    second: Sequence[Step]
    third: Sequence[Step]
    history: str
    entries: Sequence[Sequence[str]]
    status: str
    texts: tuple[str | None, str | None, str | None]
    ring: Ring | None
    also: str = "null"
    more: Callable[[Any], None] | None = None


def turns(layout: Layout, what: Turns) -> PageTask:
    """The second task: turns, a status line, a ring."""
    status = f"text({json.dumps(what.status)})"
    steps = [
        see("s0", status),
        *what.first, pause(0.2), see("s1", status),
        *what.second, pause(0.2), see("s2", status), see("h2", what.history),
        *([what.ring.look("ring")] if what.ring else []),
        *what.third, pause(0.2), see("s3", status), see("h3", what.history),
        see("more", what.also),
    ]  # fmt: skip

    def turn(seen: Seen) -> None:
        records(seen["h2"], what.entries, "the history")
        need(seen["h3"] == seen["h2"], "what must be refused changed the history")
        if what.more is not None:
            what.more(seen["more"])

    def line(seen: Seen) -> None:
        labels = ("s0", "s1", "s3")
        for label, wanted in zip(labels, what.texts, strict=True):
            if wanted == "=":
                need(seen["s3"] == seen["s2"], "the status line changes with what is refused")
            elif wanted is not None:
                reads(
                    seen[label], wanted.lstrip("~"), what.status, whole=not wanted.startswith("~")
                )
        need(bool(seen["h2"]), "nothing was played")

    points = [
        Point("turns", 0.35, "turns count in order, what is refused does not", "play", turn),
        Point("status", 0.25, "the status line reads as required", "play", line),
    ]  # fmt: skip
    if what.ring is not None:
        ring = what.ring
        points.append(
            Point("ring", 0.25, "an animated ring surrounds the latest", "play",
                  lambda seen: ring.judge(seen["ring"]))
        )  # fmt: skip
    return PageTask({"play": steps, "layout": layout_scene(layout)}, (*points, holds(layout, 0.15)))


# An end and its replay --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ended:
    """A game that comes to its end, and its replay.

    Attributes:
        play: Steps that end it.
        verdict: What the page says of the end.
        is_over: Judges the verdict.
        banner: Selector and text.
        blocked: Steps that must have no effect any more.
        history: What was played.
        count: How many entries it has in the end.
        apart: Milliseconds between the steps of a replay.
        log: The log's text.
        words: What its lines must name, in this order.
        buttons: ``data-action`` of the toolbar's buttons, in order.
        entries: Words that the entries of the history must hold; not looked at if empty.
        wait: Seconds that ``play`` may need to come to an end.
        weights: Of the end, the replay, the log, and what held before.
        sized: The history has an entry for each of ``count``.
        steps_back: The first two buttons take the last entry back and give it again.
        lines: How many lines the log has at least.
        later: What stands in the log after the replay.
        marked: The log tells of the replay; elsewhere it may.
    """

    play: Sequence[Step]
    verdict: str
    is_over: Callable[[Any], None]
    banner: tuple[str, str] | None
    blocked: Sequence[Step]
    history: str
    count: int
    log: str
    words: Sequence[str]
    buttons: tuple[str, str, str] = ("undo", "redo", "replay")
    apart: float = 300.0
    entries: Sequence[Sequence[str]] = ()
    wait: float = 0.3
    weights: tuple[float, float, float, float] = (0.3, 0.3, 0.25, 0.15)
    sized: bool = True
    steps_back: bool = True
    lines: int = 1
    later: tuple[str, ...] = ()
    marked: bool = False


def ended(layout: Layout, what: Ended) -> PageTask:
    """The third task: an end, a replay, a log."""
    one, two, three = (f'#controls button[data-action="{name}"]' for name in what.buttons)
    banner = f"text({json.dumps(what.banner[0])})" if what.banner else "null"
    shown = "all('#controls button[data-action]').map(e=>e.dataset.action)"
    steps = [
        *what.play, pause(what.wait), see("over", what.verdict), see("banner", banner),
        see("h", what.history), *what.blocked, pause(0.15), see("after", what.history),
        see("buttons", shown), see("log", what.log),
        click(one), pause(0.25), see("back", what.history),
        click(two), pause(0.25), see("again", what.history),
        watch(layout.watched or layout.board), click(three), pause(0.15), *what.blocked,
        until(QUIET, what.count * what.apart / 1000 * 2 + 4), see("times", CHANGES),
        see("last", what.history), see("log2", what.log),
    ]  # fmt: skip

    def end(seen: Seen) -> None:
        what.is_over(seen["over"])
        if what.banner:
            reads(seen["banner"], what.banner[1], what.banner[0], whole=False)
        need(isinstance(seen["h"], list), "the history is no list")
        if what.sized:
            need(len(seen["h"]) == what.count, f"{len(seen['h'])} entries, not {what.count}")
        if what.entries:
            records(seen["h"], what.entries, "the history")
        need(seen["after"] == seen["h"], "the game goes on after its end")

    def replay(seen: Seen) -> None:
        need(list(seen["buttons"]) == list(what.buttons), f"the toolbar holds {seen['buttons']}")
        if what.steps_back:
            left = what.count - 1
            need(len(seen["h"]) == what.count, "the game was not played")
            need(len(seen["back"]) == left, f"{what.buttons[0]} does not take the last back")
            need(seen["again"] == seen["h"], f"{what.buttons[1]} does not give it again")
            need(seen["last"] == seen["again"], "the replay leaves other moves than before")
        spread(seen["times"], what.count, what.apart, "the replay")

    def log(seen: Seen) -> None:
        text = seen["log"]
        need(isinstance(text, str) and bool(text.strip()), "the log is empty")
        lines = [line for line in text.splitlines() if line.strip()]
        need(len(lines) >= what.lines, f"the log has {len(lines)} lines, not {what.lines}")
        at = 0
        for word in what.words:
            found = next(
                (n for n in range(at, len(lines)) if word.casefold() in lines[n].casefold()), None
            )
            if found is None:
                raise Unmet(f"the log has no line with {word!r} where it must stand")
            at = found + 1
        told = not what.marked or len(str(seen["log2"])) > len(text)
        need(told, "the log tells nothing of the replay")
        for word in what.later:
            need(word in str(seen["log2"]), f"the log does not tell of {word}")

    end_weight, replay_weight, log_weight, rest = what.weights
    return PageTask(
        {"end": steps, "layout": layout_scene(layout)},
        (
            Point("end", end_weight, "the end is told, and nothing goes on", "end", end),
            Point(
                "replay", replay_weight, "the toolbar works, the replay has its pace", "end", replay
            ),
            Point("log", log_weight, "the log names what was played", "end", log),
            holds(layout, rest),
        ),
    )  # fmt: skip


# Saving -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Saved:
    """Saving, resetting, loading, and totals that stay.

    Attributes:
        play: Steps that play a little.
        buttons: Selectors that save, load and reset.
        storage: Key in the page's storage.
        keys: Keys of what is saved, and those among them that hold lists.
        lists: Those that must be lists that are not empty.
        history: What was played.
        serialize: Gives what is saved.
        apply: Function that takes it back.
        reset: Empties the board.
        ring: Selector of what marks the latest, or None.
        finish: Steps that bring a total about, on a new page; empty if none does.
        totals: The totals.
        raised: Key to by how much it must rise at least; others must stay.
        labels: Selector to key of the totals; its text holds the number.
        empty: Judges the history after a reset.
        free: Keys of the totals that may change besides.
        reloads: A page that is loaded anew must show what was saved.
        textarea: Selector of where the state is shown.
        wait: Seconds that ``play`` and ``finish`` may need.
        changed: A reset leaves another history, rather than an empty one.
        volatile: Keys of the state that change by themselves.
    """

    play: Sequence[Step]
    buttons: tuple[str, str, str]
    storage: str
    keys: tuple[str, ...]
    lists: tuple[str, ...]
    history: str
    serialize: str
    apply: str
    reset: str
    ring: str | None
    finish: Sequence[Step]
    totals: str
    raised: Mapping[str, int]
    labels: tuple[tuple[str, str], ...]
    empty: Callable[[Any], bool] = lambda history: not history
    free: tuple[str, ...] = ()
    reloads: bool = True
    textarea: str = "#state-json"
    wait: float = 0.2
    changed: bool = False
    volatile: tuple[str, ...] = ()


def _parsed(value: Any, what: str) -> Any:
    need(isinstance(value, str) and bool(value.strip()), f"{what} is empty")
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise Unmet(f"{what} is not valid JSON") from None


def saved(layout: Layout, what: Saved) -> PageTask:
    """The fourth task: saving and totals."""
    save, load, _ = what.buttons
    area, shown = (
        json.dumps(what.textarea),
        f"box({json.dumps(what.ring)})" if what.ring else "null",
    )
    steps = [
        *what.play, pause(what.wait), see("h", what.history), click(save), pause(0.2),
        see("area", f"q({area}).value"), see("readonly", f"!!q({area}).readOnly"),
        see("stored", f"localStorage.getItem({json.dumps(what.storage)})"),
        see("made", f"plain({what.serialize})"),
        act(f"window.__saved=q({area}).value"), act(what.reset), pause(0.2),
        see("empty", what.history), act(f"{what.apply}(window.__saved)"), pause(0.3),
        see("back", what.history), see("ring", shown),
        act(what.reset), pause(0.2), click(load), pause(0.3), see("loaded", what.history),
        click(save), pause(0.2),
        ("", ("reload",)), pause(0.6), see("anew", what.history),
    ]  # fmt: skip
    scenes: dict[str, Sequence[Step]] = {"save": steps, "layout": layout_scene(layout)}

    def save_flow(seen: Seen) -> None:
        value = _parsed(seen["area"], what.textarea)
        need(isinstance(value, dict), f"{what.textarea} holds no object")
        absent = [key for key in what.keys if key not in value]
        need(not absent, f"what is saved lacks {', '.join(absent)}")
        for key in what.lists:
            need(isinstance(value[key], list) and bool(value[key]), f"{key} is no filled list")
        need(_parsed(seen["stored"], "the storage") == value, "the storage holds something else")
        made = _parsed(seen["made"], "what is serialized")
        need(isinstance(made, dict), "what is serialized is no object")
        same = {key for key in {*made, *value} if made.get(key) == value.get(key)}
        need({*made, *value} - same <= set(what.volatile), "serializing gives another state")
        need(seen["readonly"], f"{what.textarea} can be written to")
        need(what.changed or not what.empty(seen["h"]), "nothing was played")

    def restore_flow(seen: Seen) -> None:
        gone = seen["empty"] != seen["h"]
        if not what.changed:
            need(not what.empty(seen["h"]), "nothing was played")
            gone = what.empty(seen["empty"])
        need(gone, "a reset leaves the board as it was")
        need(seen["back"] == seen["h"], "applying what was saved gives another history")
        need(seen["loaded"] == seen["h"], "loading what was saved gives another history")
        if what.reloads:
            need(seen["anew"] == seen["h"], "a page loaded anew does not show what was saved")
        if what.ring:
            box(seen["ring"], what.ring)

    points = [
        Point("save", 0.3, "saving shows and stores the state", "save", save_flow),
        Point("restore", 0.3, "what was saved comes back", "save", restore_flow),
    ]
    if what.finish:
        labels = json.dumps([selector for selector, _ in what.labels])
        scenes["totals"] = [
            see("before", what.totals), *what.finish, pause(what.wait), act(what.reset),
            pause(0.2), see("after", what.totals), see("left", what.history),
            see("labels", f"{labels}.map(text)"),
        ]  # fmt: skip

        def totals(seen: Seen) -> None:
            before, after = seen["before"], seen["after"]
            need(isinstance(before, dict) and isinstance(after, dict), "there are no totals")
            for key, value in after.items():
                if key in what.raised:
                    rise = number(value, key) - number(before.get(key, 0), key)
                    need(rise >= what.raised[key], f"{key} does not rise")
                elif key not in what.free:
                    need(value == before.get(key), f"{key} changes")
            need(set(what.raised) <= set(after), f"totals are {sorted(after)}")
            need(what.changed or what.empty(seen["left"]), "a reset leaves the board as it was")
            for (selector, key), text in zip(what.labels, seen["labels"], strict=True):
                wanted = f"{number(after.get(key), key):g}"
                digits = "".join(c if c.isdigit() or c == "." else " " for c in str(text or ""))
                need(wanted in digits.split(), f"{selector} does not show {wanted}")

        points.append(Point("totals", 0.25, "totals outlive a reset", "totals", totals))
    return PageTask(scenes, (*points, holds(layout, 0.15)))
