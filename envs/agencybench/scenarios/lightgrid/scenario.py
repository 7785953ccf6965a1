"""game/lightgrid as a scenario."""

from __future__ import annotations

from pathlib import Path

from agentgym.dice import Dice
from envs.agencybench.scenario import Scenario, World
from envs.agencybench.scenarios.lightgrid.checks import PARTS
from envs.agencybench.scenarios.page import page_scenario

__all__ = ["scenario"]

_BRIEF = """\
Build a puzzle as one static page, `index.html`, without any request to elsewhere. A board of 5 x \
5 \
lights; a move toggles a light and its neighbours above, below, left and right. The page offers \
`window.game`, and is used by hidden checks through it and through the page itself."""

_QUERIES = (
    (
        'The board. 25 elements with `data-cell="<row>,<column>"` (from 0), `aria-pressed` '
        "`true` for "
        "a light that is on. All start off. Cells are squares of 40 to 90 pixels that do not "
        "overlap, "
        "and a light that is on has another colour. `game.size` is 5, `game.state()` gives 5 "
        "rows of "
        "0 and 1, `game.set(rows)` shows a state, and `game.init()` builds the board anew: "
        "twice does "
        "the same as once.",
        "- 25 cells, sizes, no overlap: 0.3\n- colours of on and off: 0.2\n- state and set: 0.3\n"
        "- init twice: 0.2",
    ),
    (
        "Moves. A click on a cell, or `game.toggle(row, column)`, toggles it and its neighbours. "
        "`#moves` shows the number of moves, `game.moves()` gives it; `game.set` starts from 0. "
        "A click "
        "counts once, also after `game.init()` was called twice.",
        "- the rule on all 25 cells, by clicks: 0.5\n- `game.toggle`: 0.2\n- the counter: 0.3",
    ),
    (
        "Play. `game.scramble(seed)` (an integer) shows a board with some lights on that can be "
        "solved; the same seed gives the same board, another one another. When all lights are off "
        "after a scramble, the element `#banner`, hidden before, is shown, and clicks do "
        "nothing until "
        "the next scramble.",
        "- scrambles repeat, differ, and can be solved: 0.4\n- the banner appears with the last "
        "move "
        "and not before: 0.4\n- clicks are blocked then: 0.2",
    ),
    (
        "History. `game.undo()`, `game.redo()` and the buttons `#undo`, `#redo`; the counter goes "
        "along; a new move forgets what was undone. `game.replay()` goes back to the start and "
        "shows "
        "the moves again, at least 150 ms apart.",
        "- undo and redo: 0.4\n- by the buttons: 0.2\n- the replay ends right, its moves at "
        "least 150 "
        "ms apart: 0.4",
    ),
    (
        "Help. `game.hint()` gives `{row, col}` of a move of a shortest solution, null where "
        "all is "
        "off. `game.save()` and `game.load()` keep board, moves and history across a reload, by "
        "`localStorage`; "
        "`game.load()` gives false and changes nothing where what is stored is broken. "
        "`game.exportLog()` gives the moves as JSON text: a list of `{row, col}`.",
        "- hints: 0.4\n- save and load: 0.3\n- broken storage: 0.1\n- the log: 0.2",
    ),
)


def _build(dice: Dice) -> World:
    return World({"NOTES.md": f"Light grid {dice.between(100, 999)}.\n".encode()})


def scenario() -> Scenario:
    """The scenario, ready to be played."""
    page = Path(__file__).with_name("page.txt")
    return page_scenario("game/lightgrid", "Game", _BRIEF, _QUERIES, PARTS, _build, page)
