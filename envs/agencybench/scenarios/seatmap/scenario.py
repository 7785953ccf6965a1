"""frontend/seatmap as a scenario."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentgym.dice import Dice
from envs.agencybench.assessment import Assessment
from envs.agencybench.browser import (
    Answer,
    colour_of,
    keep,
    look,
    need,
    read_png,
    value_of,
)
from envs.agencybench.scenario import Finding, Scenario, World
from envs.agencybench.scenarios.page import page_scenario

__all__ = ["scenario"]

_ROWS, _COLUMNS, _MOST = "ABCDEFGH", 12, 6
_NAMES = [f"{row}{column}" for row in _ROWS for column in range(1, _COLUMNS + 1)]

_BRIEF = """\
Build a page on which seats are chosen: one static `index.html`, without any request to elsewhere. \
It reads `seats.json` beside it: `taken`, a list of seats, and `prices`, the price of a seat by \
row. \
Hidden checks serve the page over HTTP with a `seats.json` of their own."""

_QUERIES = (
    (
        "The map. 8 rows (A to H, A nearest to the stage) of 12 seats, elements with "
        '`data-seat="A1"` and so on, each 24 to 44 pixels wide and high at 1280 x 720, apart from '
        "each other, the map centred. `#stage` lies above all seats. Taken seats have "
        '`aria-disabled="true"` and another colour. `#legend` explains the colours with elements '
        "`data-kind` `free`, `taken` and `selected`, each with a patch (`<i>`) of that colour.",
        "- 96 seats, sizes, apart, in order: 0.3\n- centred, below the stage: 0.2\n- those "
        "taken are "
        "marked: 0.2\n- colours, and the same in the legend: 0.3",
    ),
    (
        "Choosing. A click on a free seat chooses it (`aria-pressed` `true`), another click "
        "gives it "
        "back; at most 6 seats, a seventh is ignored. `#total` shows the sum of their prices as a "
        "plain number. The arrow keys move the focus from seat to seat, taken ones too, and the "
        "space bar chooses.",
        "- choosing and giving back: 0.3\n- taken seats, and a seventh, are not chosen: 0.2\n- the "
        "total: 0.2\n- keyboard: 0.3",
    ),
    (
        "Memory. What was chosen is there again after a reload, by `localStorage`. Where what is "
        "stored is broken, or names seats that are taken meanwhile or do not exist, the page "
        "works, without those seats.",
        "- after a reload: 0.5\n- broken storage: 0.3\n- seats that cannot be: 0.2",
    ),
    (
        "For everybody. At a width of 375 pixels nothing needs to be scrolled sideways, seats "
        "are at "
        "least 20 pixels wide and do not overlap. Texts have a contrast of at least 4.5. The focus "
        "is visible, by an outline or a shadow of its own. Nothing is logged as an error, and "
        "nothing "
        "is requested from elsewhere.",
        "- 375 pixels: 0.3\n- contrast: 0.3\n- focus: 0.2\n- log and requests: 0.2",
    ),
)

_Run = Callable[[Assessment], Finding]
# Where seats stand in the page itself, what it reads comes a moment later.
_READY = [
    "await",
    "return document.querySelectorAll('[data-seat]').length >= 96 && performance.now() > 700",
    8,
]
_SEATS = """
return [...document.querySelectorAll('[data-seat]')].map(e => {
  const b = e.getBoundingClientRect();
  return [e.dataset.seat, e.getAttribute('aria-disabled') === 'true' || e.disabled === true,
          e.getAttribute('aria-pressed') === 'true', b.x, b.y, b.width, b.height];
});
"""
_CHOSEN = [
    "see",
    "return [[...document.querySelectorAll('[data-seat][aria-pressed=\"true\"]')]"
    ".map(e => e.dataset.seat).sort(), document.querySelector('#total').textContent.trim()]",
]
_PATCHES = """
const box = e => {
  const b = e.getBoundingClientRect();
  return [b.x + window.scrollX, b.y + window.scrollY, b.width, b.height];
};
return Object.fromEntries([...document.querySelectorAll('#legend [data-kind]')]
  .map(e => [e.dataset.kind, box(e.querySelector('i') || e)]));
"""
_STAGE = """
const b = document.querySelector('#stage').getBoundingClientRect();
return [b.y, b.bottom, b.height];
"""
_CONTRAST = """
const brush = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const parse = text => {  // any colour that the browser knows
  brush.clearRect(0, 0, 1, 1);
  brush.fillStyle = '#000';
  brush.fillStyle = text;
  brush.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
};
const over = (top, low) => [0, 1, 2].map(n => top[n] * top[3] + low[n] * (1 - top[3]));
const stops = /(?:rgba?|hsla?|lab|lch|oklab|oklch|color)\\([^()]*\\)|#[0-9a-f]{3,8}/gi;
const behind = e => {  // every colour that may lie behind
  if (!e) return [[255, 255, 255]];
  const s = getComputedStyle(e), plain = parse(s.backgroundColor);
  let below = plain[3] > 0.99 ? [plain] : behind(e.parentElement).map(low => over(plain, low));
  if (s.backgroundImage.includes('gradient'))
    below = (s.backgroundImage.match(stops) || []).map(parse)
      .flatMap(stop => below.map(low => over(stop, low))).slice(0, 50);
  return below.length ? below : [[255, 255, 255]];
};
const light = ([r, g, b]) => {
  const f = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
};
const worst = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement;
  if (!walk.currentNode.textContent.trim() || ['SCRIPT', 'STYLE'].includes(e.tagName)) continue;
  const b = e.getBoundingClientRect();
  if (!b.width || !b.height) continue;
  const front = parse(getComputedStyle(e).color);
  for (const low of behind(e)) {
    const [x, y] = [light(over(front, low)), light(low)].sort((p, q) => q - p);
    worst.push([(x + 0.05) / (y + 0.05), walk.currentNode.textContent.trim().slice(0, 20)]);
  }
}
worst.sort((p, q) => p[0] - q[0]);
return [worst.length, worst[0]];
"""
_FOCUS = """
const e = document.activeElement, s = getComputedStyle(e);
const own = !['none', 'auto'].includes(s.outlineStyle) && parseFloat(s.outlineWidth) >= 1;
const outlined = own || (s.outlineStyle === 'auto' && parseFloat(s.outlineWidth) >= 2);
return [e.dataset.seat || '', outlined, s.boxShadow];
"""
_REQUESTS = """
return performance.getEntriesByType('resource').map(e => e.name)
  .filter(name => !name.startsWith(location.origin) && !name.startsWith('data:'));
"""


def _plan(dice: Dice) -> dict[str, Any]:
    taken = sorted(dice.draw(_NAMES, dice.between(18, 30)))
    prices = {row: dice.between(12, 60) for row in _ROWS}
    return {"taken": taken, "prices": prices}


def _free(plan: dict[str, Any]) -> list[str]:
    return [name for name in _NAMES if name not in plan["taken"]]


def _with(assessment: Assessment, plan: dict[str, Any]) -> dict[str, bytes]:
    return {**assessment.files, "seats.json": json.dumps(plan).encode()}


def _click(name: str) -> list[Any]:
    return ["click", f'[data-seat="{name}"]']


def _marked(answer: Answer, plan: dict[str, Any]) -> None:
    """Seats are marked as the page was told, and not as the workspace's own file says."""
    marked = sorted(seat[0] for seat in value_of(answer) if seat[1])
    need(marked == plan["taken"], "seats that are taken are not marked as in seats.json")


def _shown(answer: Answer) -> tuple[list[str], str]:
    names, total = value_of(answer)
    return sorted(names), total


def _is_chosen(answer: Answer, names: list[str], plan: dict[str, Any]) -> None:
    """The seats and the total are those due."""
    found, total = _shown(answer)
    need(found == sorted(names), f"{len(found)} seats are chosen, or others than were clicked")
    due = sum(plan["prices"][name[0]] for name in names)
    need(total == str(due), f"the total shows {total[:20]!r}")


# Task 1 -----------------------------------------------------------------------------------------


def _mapped(assessment: Assessment) -> dict[str, Any]:
    plan = _plan(assessment.dice("map"))
    steps: list[Any] = [_READY, ["see", _SEATS], ["see", _STAGE], ["see", _PATCHES]]
    steps += [["wait", 0.5], ["screenshot", "page"]]
    return {"plan": plan, "answers": look(assessment, steps, files=_with(assessment, plan))}


def _boxes(
    answer: Answer, least: float, most: float, lowest: float = 0.0
) -> dict[str, list[float]]:
    seats = value_of(answer)
    need(isinstance(seats, list) and len(seats) == 96, f"there are {len(seats)} seats, not 96")
    boxes = {seat[0]: seat[3:] for seat in seats}
    need(sorted(boxes) == sorted(_NAMES), "data-seat does not run from A1 to H12")
    for name, (_, _, width, height) in boxes.items():
        fits = least <= width <= most and (lowest or least) <= height <= most
        need(fits, f"seat {name} is {width:.0f} x {height:.0f}")
    places = sorted(boxes.values())
    for n, (x, y, width, height) in enumerate(places):
        for other_x, other_y, _, other_height in places[n + 1 :]:
            if other_x >= x + width - 0.5:
                break
            apart = other_y >= y + height - 0.5 or y >= other_y + other_height - 0.5
            need(apart, "seats overlap")
    return boxes


def _map(part: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        found = assessment.once("map", lambda: _mapped(assessment))
        answers, plan = found["answers"], found["plan"]
        boxes = _boxes(answers[1], 24, 44)
        if part == "seats":
            for row in _ROWS:
                line = [boxes[f"{row}{n}"] for n in range(1, 13)]
                need(line == sorted(line), f"row {row} does not run from left to right")
                need(
                    max(b[1] for b in line) - min(b[1] for b in line) <= 1,
                    f"row {row} is not level",
                )
            tops = [boxes[f"{row}1"][1] for row in _ROWS]
            need(tops == sorted(tops), "row A is not nearest to the stage")
        if part == "place":
            middle = (
                min(b[0] for b in boxes.values()) + max(b[0] + b[2] for b in boxes.values())
            ) / 2
            # Names of rows on one side are part of the map.
            need(abs(middle - 640) <= 24, f"the map's middle is at {middle:.0f} of 1280")
            _, bottom, height = value_of(answers[2])
            need(height > 5 and bottom <= boxes["A1"][1] + 0.5, "the stage is not above the seats")
        if part != "seats":
            _marked(answers[1], plan)
        if part == "colours":
            shot = base64.b64decode(value_of(answers[5]))
            keep(assessment, "map.png", shot)
            picture, patches = read_png(shot), value_of(answers[3])
            need(set(patches) == {"free", "taken", "selected"}, "the legend's kinds")

            free = next(name for name in _NAMES if name not in plan["taken"])
            pair = {
                "free": colour_of(picture, boxes[free]),
                "taken": colour_of(picture, boxes[plan["taken"][0]]),
            }
            need(_distance(*pair.values()) >= 60, "free and taken seats look alike")
            for kind, seen in pair.items():
                patch = colour_of(picture, patches[kind])
                need(_distance(seen, patch) <= 12, f"the legend's {kind} has another colour")
            selected = colour_of(picture, patches["selected"])
            need(min(_distance(selected, c) for c in pair.values()) >= 60, "selected looks alike")
        return Finding(1.0)

    return run


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


# Task 2 -----------------------------------------------------------------------------------------


def _picked(assessment: Assessment) -> dict[str, Any]:
    dice = assessment.dice("pick")
    plan = _plan(dice)
    free = list(dice.draw(_free(plan), 8))
    steps: list[Any] = [_READY, _click(free[0]), _click(free[1]), _CHOSEN]  # 0 to 3
    steps += [_click(free[0]), _CHOSEN, _click(plan["taken"][0]), _CHOSEN]  # 4 to 7
    steps += [*map(_click, free[2:8]), _CHOSEN]  # 8 to 14; the last is one too many
    steps += [_click(free[2]), _click(free[7]), _CHOSEN]  # 15 to 17
    keys: list[Any] = [_READY, ["focus", '[data-seat="C4"]'], ["keys", "ARROW_RIGHT", "ARROW_DOWN"]]
    where = ["see", "return document.activeElement.dataset.seat || ''"]
    keys += [where, ["keys", "ARROW_LEFT", "ARROW_LEFT", "ARROW_UP", "ARROW_UP"], where]  # 3 to 5
    keys += [
        ["focus", f'[data-seat="{free[0]}"]'],
        ["keys", "SPACE"],
        _CHOSEN,
        ["keys", "SPACE"],
        _CHOSEN,
        ["see", _SEATS],
    ]
    files = _with(assessment, plan)
    return {
        "plan": plan,
        "free": free,
        "answers": look(assessment, steps, files=files),
        "keys": look(assessment, keys, files=files),
    }


def _pick(part: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        found = assessment.once("pick", lambda: _picked(assessment))
        plan, free, answers = found["plan"], found["free"], found["answers"]
        names = {3: free[:2], 5: free[1:2], 7: free[1:2], 14: free[1:7]}
        names[17] = [*free[1:2], *free[3:8]]
        _marked(found["keys"][11], plan)
        need(_shown(answers[3])[0] == sorted(names[3]), "two clicks do not choose two seats")
        if part == "choose":
            need(_shown(answers[5])[0] == names[5], "a second click does not give a seat back")
            need(
                _shown(answers[17])[0] == sorted(names[17]),
                "after giving one back another is not chosen",
            )
        if part == "limits":
            need(_shown(answers[7])[0] == names[7], "a taken seat can be chosen")
            need(_shown(answers[14])[0] == sorted(names[14]), "a seventh seat can be chosen")
        if part == "total":
            for place, due in names.items():
                _is_chosen(answers[place], due, plan)
        if part == "keyboard":
            keys = found["keys"]
            need(value_of(keys[3]) == "D5", "arrow keys do not lead from C4 to D5")
            need(value_of(keys[5]) == "B3", "arrow keys do not lead from D5 to B3")
            need(_shown(keys[8])[0] == free[:1], "the space bar does not choose")
            need(_shown(keys[10])[0] == [], "the space bar does not give back")
        return Finding(1.0)

    return run


# Task 3 -----------------------------------------------------------------------------------------


_BROKEN = ("{oops", "null", '"text"', '[null, {"a": []}]')
# On another page: what a page stores as it goes must not undo it.
_AWAY = ["open", "seats.json"]
_BACK = [["open", "index.html"], _READY]
_STORES = "for (const store of [localStorage, sessionStorage]) for (const k of Object.keys(store)) "
_SPOIL = _STORES + "store.setItem(k, arguments[0])"
_SWAP = _STORES + "store.setItem(k, store.getItem(k).replaceAll(arguments[0], arguments[1]))"


def _kept(assessment: Assessment) -> dict[str, Any]:
    dice = assessment.dice("kept")
    plan = _plan(dice)
    # The name of none is the beginning of another's, which would be swapped with it.
    free = list(dice.draw([name for name in _free(plan) if name[1:] != "1"], 3))
    later = {**plan, "taken": sorted([*plan["taken"], free[0]])}
    steps: list[Any] = [_READY, *map(_click, free), _CHOSEN, ["reload"], _READY, _CHOSEN]  # 0 to 7
    steps += [_AWAY, ["write", "seats.json", json.dumps(later)]]
    steps += [["see", _SWAP, free[1], "Z99"], *_BACK, _CHOSEN]  # 8 to 13
    steps += [["write", "seats.json", json.dumps(plan)]]  # 14
    for broken in _BROKEN:
        steps += [_AWAY, ["see", _SPOIL, broken], *_BACK, _CHOSEN]  # 15 to 19, and so on
        steps += [_click(free[0]), _CHOSEN, _click(free[0])]  # given back for the next
    steps += [["console"]]
    return {
        "plan": plan,
        "free": free,
        "answers": look(assessment, steps, files=_with(assessment, plan)),
    }


def _keep(part: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        found = assessment.once("kept", lambda: _kept(assessment))
        plan, free, answers = found["plan"], found["free"], found["answers"]
        _is_chosen(answers[4], free, plan)
        _is_chosen(answers[7], free, plan)
        if part == "cannot":
            names, _ = _shown(answers[13])
            need(free[0] not in names, "a seat that is taken is chosen after a reload")
            # Where seats are stored by another name than their own, nothing was changed.
            need(free[2] in names and set(names) <= set(free[1:]), "other seats are chosen then")
            _is_chosen(answers[13], names, plan)
        if part == "broken":
            for n in range(len(_BROKEN)):
                _is_chosen(answers[19 + 8 * n], [], plan)
                _is_chosen(answers[21 + 8 * n], free[:1], plan)
            loud = [line for line in value_of(answers[-1]) if "Uncaught" in line]
            need(not loud, f"broken storage raises an error: {loud[:1]}")
        return Finding(1.0)

    return run


# Task 4 -----------------------------------------------------------------------------------------


def _open_to_all(assessment: Assessment) -> dict[str, Any]:
    plan = _plan(assessment.dice("all"))
    free = _free(plan)
    steps: list[Any] = [_READY, _click(free[0]), ["see", _CONTRAST]]  # 0 to 2
    steps += [["focus", f'[data-seat="{free[5]}"]'], ["keys", "ARROW_RIGHT", "ARROW_LEFT"]]
    steps += [["see", _FOCUS], ["js", "document.activeElement.blur()"]]  # 5, 6
    steps += [
        [
            "see",
            f"return "
            f"getComputedStyle(document.querySelector('[data-seat=\"{free[5]}\"]')).boxShadow",
        ]
    ]
    steps += [["console"], ["see", _REQUESTS], ["viewport", 375, 720], ["wait", 0.3]]  # 8 to 11
    steps += [["see", "return [document.documentElement.scrollWidth, document.body.scrollWidth]"]]
    steps += [["see", _SEATS], ["screenshot"], _CHOSEN]
    return {
        "chosen": free[:1],
        "plan": plan,
        "answers": look(assessment, steps, files=_with(assessment, plan)),
        "seat": free[5],
    }


def _all(part: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        found = assessment.once("all", lambda: _open_to_all(assessment))
        answers = found["answers"]
        boxes = _boxes(answers[13], 20, 44, 10)
        _marked(answers[13], found["plan"])
        need(_shown(answers[15])[0] == found["chosen"], "a click does not choose a seat")
        if part == "narrow":
            keep(assessment, "narrow.png", base64.b64decode(value_of(answers[14])))
            widths = value_of(answers[12])
            need(max(widths) <= 375, f"the page is {max(widths)} pixels wide")
            inside = all(b[0] >= -0.5 and b[0] + b[2] <= 375.5 for b in boxes.values())
            need(inside, "seats lie outside the width")
        if part == "contrast":
            count, worst = value_of(answers[2])
            need(count >= 4, "there is hardly any text")
            need(worst[0] >= 4.5, f"the contrast of {worst[1]!r} is {worst[0]:.1f}")
        if part == "focus":
            seat, outlined, shadow = value_of(answers[5])
            need(seat == found["seat"], "arrow keys do not lead there and back")
            need(outlined or shadow != value_of(answers[7]), "the focus cannot be seen")
        if part == "clean":
            log = [line for line in value_of(answers[8]) if "/favicon.ico" not in line]
            bad = [line for line in log if line.startswith(("SEVERE", "FAULT"))]
            need(not bad, f"logged: {bad[0][:120] if bad else ''}")
            elsewhere = value_of(answers[9])
            need(not elsewhere, f"requested from elsewhere: {elsewhere[:1]}")
        return Finding(1.0)

    return run


# All --------------------------------------------------------------------------------------------

_PARTS: tuple[dict[str, tuple[float, str, _Run]], ...] = (
    {
        "seats": (0.3, "96 seats, sizes, apart, in order", _map("seats")),
        "place": (0.2, "the map centred, below the stage", _map("place")),
        "taken": (0.2, "seats that are taken are marked", _map("taken")),
        "colours": (0.3, "colours, and the same in the legend", _map("colours")),
    },
    {
        "choose": (0.3, "choosing and giving back", _pick("choose")),
        "limits": (0.2, "taken seats and a seventh are not chosen", _pick("limits")),
        "total": (0.2, "the total", _pick("total")),
        "keyboard": (0.3, "arrow keys and space bar", _pick("keyboard")),
    },
    {
        "reload": (0.5, "what was chosen is there after a reload", _keep("reload")),
        "broken": (0.3, "broken storage does no harm", _keep("broken")),
        "cannot": (0.2, "stored seats that are taken are left out", _keep("cannot")),
    },
    {
        "narrow": (0.3, "375 pixels suffice", _all("narrow")),
        "contrast": (0.3, "contrast of at least 4.5", _all("contrast")),
        "focus": (0.2, "the focus is visible", _all("focus")),
        "clean": (0.2, "no errors, no requests to elsewhere", _all("clean")),
    },
)


def _build(dice: Dice) -> World:
    return World({"seats.json": (json.dumps(_plan(dice), indent=1) + "\n").encode()})


def scenario() -> Scenario:
    """The scenario, ready to be played."""
    page = Path(__file__).with_name("page.txt")
    return page_scenario("frontend/seatmap", "Frontend", _BRIEF, _QUERIES, _PARTS, _build, page)
