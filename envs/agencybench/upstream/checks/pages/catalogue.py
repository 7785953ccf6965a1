"""Which scenarios are played by rule, and how much of their tasks that decides."""

from __future__ import annotations

from functools import cache

from envs.agencybench.scenario import Check
from envs.agencybench.upstream.checks.judged import vision_check
from envs.agencybench.upstream.checks.pages import (
    board_games,
    frontends,
    motion_games,
    number_game,
    tile_games,
)
from envs.agencybench.upstream.checks.pages.scenes import PageTask, checks_of
from envs.agencybench.upstream.sections import Sections

__all__ = ["checks", "played"]

_ALL = {
    **board_games.TASKS,
    **frontends.TASKS,
    **motion_games.TASKS,
    **number_game.TASKS,
    **tile_games.TASKS,
}
#: Share of a task's weight that rules decide; how a page looks is for a vision judge.
_SHARES = {"Game": 0.85, "Frontend": 0.8}


@cache
def played(name: str) -> tuple[PageTask, ...]:
    """The tasks of a scenario, as they are played."""
    return _ALL[name]()


def checks(name: str, number: int, sections: Sections) -> tuple[Check, ...]:
    """The checks of a task: by rule, and of its looks."""
    share = _SHARES[name.partition("/")[0]]
    ready = "game" if name == "Game/scenario2" else "app"
    rules = checks_of(played(name)[number - 1], ready, share)
    return (*rules, vision_check(sections, round(1.0 - share, 6)))
