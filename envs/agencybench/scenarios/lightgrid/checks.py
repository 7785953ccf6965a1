"""How game/lightgrid's page is played, and what must come of it."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

from agentgym.dice import Dice
from envs.agencybench.assessment import Assessment, Unmet
from envs.agencybench.browser import Answer, colour_of, keep, look, need, read_png, value_of
from envs.agencybench.scenario import Finding
from envs.agencybench.scenarios.lightgrid import puzzle

__all__ = ["PARTS"]

_Run = Callable[[Assessment], Finding]
_STATE = ["js", "return window.game.state()"]
# A page may draw with the next frame.
# A page may draw with the next frame what it was told.
_DRAWN = "return new Promise(done => setTimeout(done, 40))"
_SET = f"window.game.set(arguments[0]); {_DRAWN}"
_UNDO, _REDO = (["js", f"window.game.{name}(); {_DRAWN}"] for name in ("undo", "redo"))
_MOVES = ["js", "return [window.game.moves(), document.querySelector('#moves').textContent.trim()]"]
_SHOWN = """
const e = document.querySelector('#banner');
if (!e) return null;
const s = getComputedStyle(e), b = e.getBoundingClientRect();
return s.display !== 'none' && s.visibility !== 'hidden' && +s.opacity > 0.1
  && b.width * b.height > 0;
"""
_HIDDEN = f"return !(() => {{ {_SHOWN} }})();"
_BOARD = """
return [...document.querySelectorAll('[data-cell]')].map(e => {
  const b = e.getBoundingClientRect();
  return [e.dataset.cell, e.getAttribute('aria-pressed'), b.x, b.y, b.width, b.height];
});
"""
_LIT = """
return Array.from({length: 5}, (_, r) => Array.from({length: 5}, (_, c) =>
  +(document.querySelector(`[data-cell="${r},${c}"]`).getAttribute('aria-pressed') === 'true')));
"""
# Every state that the board shows, with its time; nobody can tell this clock another time.
_WATCH = """
const shown = () => [...document.querySelectorAll('[data-cell]')]
  .map(e => +(e.getAttribute('aria-pressed') === 'true')).join('');
let last = shown();
window.seen = [];
new MutationObserver(() => {
  const now = shown();
  if (now !== last) window.seen.push(performance.now());
  last = now;
}).observe(document.documentElement,
           {subtree: true, childList: true, attributes: true, attributeFilter: ['aria-pressed']});
"""
# The replay is over: the board has changed for each move and the start, and not for a while.
_STILL = """
const seen = window.seen, quiet = performance.now() - seen[seen.length - 1];
return seen.length >= 6 && quiet > (seen.length >= 7 ? 1500 : 4000);
"""


def _click(row: int, column: int) -> list[Any]:
    return ["click", f'[data-cell="{row},{column}"]']


def _bits(answer: Answer) -> int:
    value = value_of(answer)
    try:
        return puzzle.as_bits(value)
    except (ValueError, TypeError):
        raise Unmet("a state is not 5 rows of 0 and 1") from None


def _random_state(dice: Dice) -> int:
    return dice.between(1, (1 << puzzle.CELLS) - 1)


# Task 1 -----------------------------------------------------------------------------------------


def _first(assessment: Assessment) -> dict[str, Any]:
    dice = assessment.dice("board")
    states = [_random_state(dice) for _ in range(3)]
    steps: list[Any] = [["see", _BOARD], _STATE]
    for state in states:
        steps += [["js", _SET, puzzle.as_rows(state)], _STATE, ["see", _LIT]]
    corner = [[1, 0, 0, 0, 0], *[[0] * 5] * 4]
    steps += [["js", _SET, corner], ["see", _BOARD], ["wait", 0.6], ["screenshot", "page"]]
    steps += [["js", "window.game.init(); window.game.init()"], ["see", _BOARD]]
    steps += [["js", _SET, puzzle.as_rows(states[0])], _STATE, ["js", "return window.game.size"]]
    return {"states": states, "answers": look(assessment, steps)}


def _once(assessment: Assessment) -> dict[str, Any]:
    return assessment.once("first", lambda: _first(assessment))


def _boxes(answer: Answer) -> dict[str, list[float]]:
    cells = value_of(answer)
    need(isinstance(cells, list) and len(cells) == 25, "there are not 25 cells with data-cell")
    made = {str(cell[0]): cell[2:] for cell in cells}
    due = {f"{row},{column}" for row in range(5) for column in range(5)}
    need(set(made) == due, "data-cell does not run from 0,0 to 4,4")
    return made


def _cells(assessment: Assessment) -> Finding:
    answers = _once(assessment)["answers"]
    boxes = _boxes(answers[0])
    for x, y, width, height in boxes.values():
        need(40 <= width <= 90 and abs(width - height) <= 1, f"a cell is {width} x {height}")
        need(x >= 0 and y >= 0, "a cell lies outside the page")
    places = list(boxes.values())
    for n, (x, y, width, height) in enumerate(places):
        for other in places[:n]:
            apart = (
                x >= other[0] + other[2] - 0.5
                or other[0] >= x + width - 0.5
                or y >= other[1] + other[3] - 0.5
                or other[1] >= y + height - 0.5
            )
            need(apart, "cells overlap")
    need(boxes["0,0"][0] < boxes["0,1"][0] and boxes["0,0"][1] < boxes["1,0"][1], "order")
    return Finding(1.0)


def _colours(assessment: Assessment) -> Finding:
    answers = _once(assessment)["answers"]
    boxes, shot = _boxes(answers[12]), base64.b64decode(value_of(answers[14]))
    keep(assessment, "board.png", shot)
    lit = [[cell[0] for cell in value_of(answers[n]) if cell[1] == "true"] for n in (0, 12)]
    need(lit == [[], ["0,0"]], "the board does not show what was set")
    picture = read_png(shot)

    on, off, other = (colour_of(picture, boxes[name]) for name in ("0,0", "4,4", "2,3"))
    need(off == other, "lights that are off differ in colour")
    distance = sum(abs(a - b) for a, b in zip(on, off, strict=True))
    need(distance >= 90, f"on and off differ by {distance} of 765 in colour")
    return Finding(1.0)


def _states(assessment: Assessment) -> Finding:
    found = _once(assessment)
    answers = found["answers"]
    need(_bits(answers[1]) == 0, "not all lights start off")
    need(value_of(answers[-1]) == 5, "game.size is not 5")
    for place, state in enumerate(found["states"]):
        need(_bits(answers[3 + 3 * place]) == state, "game.state differs from what was set")
        need(_bits(answers[4 + 3 * place]) == state, "aria-pressed differs from what was set")
    return Finding(1.0)


def _init(assessment: Assessment) -> Finding:
    found = _once(assessment)
    answers = found["answers"]
    _boxes(answers[16])
    need(_bits(answers[18]) == found["states"][0], "game.set does nothing after game.init")
    return Finding(1.0)


# Task 2 -----------------------------------------------------------------------------------------


def _rule(assessment: Assessment) -> Finding:
    dice = assessment.dice("rule")
    state = _random_state(dice)
    # Built twice: a click must not count twice.
    steps: list[Any] = [["js", "window.game.init(); window.game.init()"]]
    steps += [["js", _SET, puzzle.as_rows(state)]]
    order = dice.draw(range(puzzle.CELLS), puzzle.CELLS)
    for cell in order:
        steps += [_click(*divmod(cell, 5)), _STATE]
    answers = look(assessment, steps)
    good = 0
    for place, cell in enumerate(order):
        before, state = state, _bits(answers[3 + 2 * place])
        good += before ^ state == puzzle.effect(cell)
    told = f"{25 - good} of 25 cells toggle other lights than they should"
    return Finding(float(good == 25), told if good < 25 else "")


def _toggle_call(cell: int) -> list[Any]:
    return ["js", f"window.game.toggle({cell // 5}, {cell % 5}); {_DRAWN}"]


def _toggled(assessment: Assessment) -> dict[str, list[Answer]]:
    dice = assessment.dice("toggle")
    state = _random_state(dice)
    steps: list[Any] = [["js", _SET, puzzle.as_rows(state)], _MOVES]
    for cell in dice.draw(range(25), 5):
        steps += [_toggle_call(cell), _STATE, _MOVES]
        state ^= puzzle.effect(cell)
    steps += [["see", _LIT], ["js", _SET, [[0] * 5] * 5], _MOVES]
    return {str(state): look(assessment, steps)}


def _toggle(part: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        found = assessment.once("toggle", lambda: _toggled(assessment))
        ((state, answers),) = found.items()
        need(_bits(answers[-5]) == int(state), "game.toggle does not follow the rule")
        need(_bits(answers[-3]) == int(state), "the board does not show what game.toggle did")
        if part == "counter":
            counts = [value_of(answers[n]) for n in (1, 4, 7, 10, 13, 16, -1)]
            due = [[n, str(n)] for n in (0, 1, 2, 3, 4, 5, 0)]
            need(counts == due, f"the counter shows {[c[1] for c in counts]}")
        return Finding(1.0)

    return run


# Task 3 -----------------------------------------------------------------------------------------


def _played(assessment: Assessment) -> dict[str, Any]:
    dice = assessment.dice("play")
    seeds = [dice.between(1, 10**6) for _ in range(4)]
    first: list[Any] = []
    for seed in (*seeds, seeds[0]):
        first += [["js", f"window.game.scramble({seed})"], _STATE]
    boards = [_bits(answer) for answer in look(assessment, first)[1::2]]
    solved = puzzle.minimal(boards[1])
    moves = [cell for cell in range(25) if solved and solved[0] >> cell & 1]
    steps: list[Any] = [["js", f"window.game.scramble({seeds[1]})"], _STATE]
    for cell in moves:
        steps += [["see", _SHOWN], _click(*divmod(cell, 5))]
    # It may take a moment to come and to go.
    steps += [
        ["await", _SHOWN, 2],
        _STATE,
        _click(1, 1),
        _STATE,
        ["js", f"window.game.scramble({seeds[2]})"],
    ]
    steps += [["await", _HIDDEN, 2], _STATE, ["see", _LIT]]
    return {"boards": boards, "moves": moves, "answers": look(assessment, steps)}


def _play(part: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        found = assessment.once("play", lambda: _played(assessment))
        boards, moves, answers = found["boards"], found["moves"], found["answers"]
        need(all(boards[:4]), "a scramble leaves all lights off")
        need(boards[0] == boards[4], "the same seed gives another board")
        need(len(set(boards[:4])) >= 3, "seeds give the same board")
        need(all(puzzle.solutions(board) for board in boards), "a board cannot be solved")
        need(_bits(answers[-1]) == _bits(answers[-2]), "the board shows another state")
        if part == "scramble":
            need(_bits(answers[1]) == boards[1], "the same seed gives another board after a reload")
            return Finding(1.0)
        end = 2 + 2 * len(moves)
        need(_bits(answers[end + 1]) == 0, "playing a solution does not turn all lights off")
        before = [value_of(answers[2 + 2 * n]) for n in range(len(moves))]
        need(
            not any(before) and None not in before, "the banner is there before the end, or absent"
        )
        need(value_of(answers[end]) is True, "the banner is not shown at the end")
        if part == "blocked":
            need(_bits(answers[end + 3]) == 0, "a click after the end changes the board")
            need(_bits(answers[-2]) == boards[2], "the next scramble does not start anew")
        need(value_of(answers[-3]) is True, "the banner stays after the next scramble")
        return Finding(1.0)

    return run


# Task 4 -----------------------------------------------------------------------------------------


def _history(assessment: Assessment) -> dict[str, Any]:
    dice = assessment.dice("history")
    state = _random_state(dice)
    cells = dice.draw(range(25), 6)
    states = [state]
    for cell in cells:
        states.append(states[-1] ^ puzzle.effect(cell))
    go = [_toggle_call(cell) for cell in cells]
    script: list[tuple[list[Any], int, int]] = [  # step, state and count after it
        (_UNDO, 3, 3),
        (_UNDO, 2, 2),
        (_REDO, 3, 3),
        (_REDO, 4, 4),
        (_REDO, 4, 4),
        (["click", "#undo"], 3, 3),
        (["click", "#redo"], 4, 4),
        (["click", "#undo"], 3, 3),
    ]
    steps: list[Any] = [["js", _SET, puzzle.as_rows(state)], *go[:4]]
    for step, _, _ in script:
        steps += [step, _STATE, _MOVES]
    steps += [go[4], _REDO, _STATE, _MOVES, *([_UNDO] * 9), _STATE, _MOVES, ["see", _LIT]]
    branch = states[3] ^ puzzle.effect(cells[4])
    replayed: list[Any] = [["js", _SET, puzzle.as_rows(state)], *go]
    replayed += [["wait", 0.1], ["see", _WATCH]]  # the last move may be drawn with the next frame
    replayed += [
        ["js", "window.game.replay()"],
        ["await", _STILL, 20],
        _STATE,
        ["see", "return window.seen"],
        _MOVES,
    ]
    answers = look(assessment, [*steps, *replayed])
    return {
        "script": script,
        "states": states,
        "branch": branch,
        "answers": answers,
        "end": len(steps),
    }


def _undone(part: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        found = assessment.once("history", lambda: _history(assessment))
        states, answers, end = found["states"], found["answers"], found["end"]
        rows = range(5) if part == "calls" else range(8)
        if part != "replay":
            need(
                _bits(answers[end - 1]) == _bits(answers[end - 3]), "the board shows another state"
            )
            for n in rows:
                _, at, count = found["script"][n]
                shown = value_of(answers[7 + 3 * n])
                need(_bits(answers[6 + 3 * n]) == states[at], "the board after undo or redo")
                need(shown == [count, str(count)], f"the counter shows {shown[1]}")
        if part == "calls":
            need(
                _bits(answers[31]) == found["branch"], "a new move does not forget what was undone"
            )
            need(_bits(answers[end - 3]) == states[0], "undoing all does not lead to the start")
        if part == "replay":
            need(_bits(answers[-3]) == states[-1], "the replay does not end where the moves did")
            need(value_of(answers[-1])[0] == 6, "the replay loses moves")
            times = value_of(answers[-2])
            need(len(times) in (6, 7), f"the replay shows {len(times)} changes of the board")
            gaps = [b - a for a, b in itertools.pairwise(times[-6:])]  # the start is no move
            # A timer may be early by a rounding.
            need(min(gaps) >= 148, f"moves follow each other after {min(gaps):.0f} ms")
        return Finding(1.0)

    return run


# Task 5 -----------------------------------------------------------------------------------------


def _helped(assessment: Assessment) -> dict[str, Any]:
    dice = assessment.dice("help")
    boards = []
    for _ in range(4):
        state = 0
        for cell in dice.draw(range(25), dice.between(4, 9)):
            state ^= puzzle.effect(cell)
        boards.append(state)
    hint = ["js", "return window.game.hint()"]
    steps: list[Any] = []
    for board in boards:
        steps += [["js", _SET, puzzle.as_rows(board)], hint]
    steps += [["js", _SET, [[0] * 5] * 5], hint]  # 8, 9
    cells = dice.draw(range(25), 4)
    steps += [["js", f"window.game.scramble({dice.between(1, 999)})"]]  # 10
    steps += [_toggle_call(cell) for cell in cells]  # 11 to 14
    log = ["js", "return window.game.exportLog()"]
    steps += [_STATE, log, ["js", "window.game.save()"], ["reload"]]  # 15 to 18
    steps += [["js", "return window.game.load()"], _STATE, _MOVES, log]  # 19 to 22
    steps += [_UNDO, _STATE]  # 23, 24
    steps += [["js", "for (const k of Object.keys(localStorage)) localStorage.setItem(k, '{oops')"]]
    steps += [["js", "return window.game.load()"], _STATE]  # 26, 27
    steps += [["js", _SET, puzzle.as_rows(boards[0])], ["see", _LIT]]
    return {"boards": boards, "cells": cells, "answers": look(assessment, steps)}


def _help(part: str) -> _Run:
    def run(assessment: Assessment) -> Finding:
        found = assessment.once("help", lambda: _helped(assessment))
        answers, cells = found["answers"], found["cells"]
        places = [{"row": cell // 5, "col": cell % 5} for cell in cells]
        need(_bits(answers[-1]) == found["boards"][0], "the board does not show what was set")
        if part == "hints":
            for n, board in enumerate(found["boards"]):
                hint = value_of(answers[1 + 2 * n])
                fits = isinstance(hint, dict) and {"row", "col"} <= set(hint)
                need(fits, "a hint is not {row, col}")
                row, column = hint["row"], hint["col"]
                need(
                    {type(row), type(column)} == {int}
                    and 0 <= min(row, column) <= max(row, column) < 5,
                    "a hint lies outside",
                )
                good = any(moves >> (row * 5 + column) & 1 for moves in puzzle.minimal(board))
                need(good, "a hint is no move of a shortest solution")
            need(value_of(answers[9]) is None, "there is a hint where all is off")
            return Finding(1.0)
        state = _bits(answers[15])
        if part == "log":
            need(_log(answers[16]) == places, "the log differs from the moves")
            return Finding(1.0)
        need(_bits(answers[20]) == state and state != 0, "the board is not kept across a reload")
        need(value_of(answers[21]) == [4, "4"], "the moves are not kept across a reload")
        need(_log(answers[22]) == places, "the log is not kept across a reload")
        back = state ^ puzzle.effect(cells[-1])
        need(_bits(answers[24]) == back, "the history is not kept across a reload")
        if part == "broken":
            need(value_of(answers[26]) is False, "game.load() does not give false")
            need(_bits(answers[27]) == back, "broken storage changes the board")
        return Finding(1.0)

    return run


def _log(answer: Answer) -> Any:
    try:
        return json.loads(value_of(answer))
    except (ValueError, TypeError):
        raise Unmet("exportLog() gives no JSON text") from None


# All --------------------------------------------------------------------------------------------

PARTS: tuple[dict[str, tuple[float, str, _Run]], ...] = (
    {
        "cells": (0.3, "25 cells, square, 40 to 90 pixels, apart", _cells),
        "colours": (0.2, "on and off differ in colour", _colours),
        "states": (0.3, "state, set and aria-pressed agree", _states),
        "init": (0.2, "init twice does the same as once", _init),
    },
    {
        "rule": (0.5, "clicks toggle a cell and its neighbours", _rule),
        "toggle": (0.2, "game.toggle does the same", _toggle("toggle")),
        "counter": (0.3, "the counter", _toggle("counter")),
    },
    {
        "scramble": (0.4, "scrambles repeat, differ, can be solved", _play("scramble")),
        "banner": (0.4, "the banner at the end and not before", _play("banner")),
        "blocked": (0.2, "clicks are blocked after the end", _play("blocked")),
    },
    {
        "undo": (0.4, "undo and redo", _undone("calls")),
        "buttons": (0.2, "the buttons do the same", _undone("buttons")),
        "replay": (0.4, "the replay, with at least 150 ms between moves", _undone("replay")),
    },
    {
        "hints": (0.4, "hints lie on a shortest solution", _help("hints")),
        "saved": (0.3, "save and load across a reload", _help("saved")),
        "broken": (0.1, "broken storage is refused", _help("broken")),
        "log": (0.2, "the exported log", _help("log")),
    },
)
