"""Which checks a task of a clone has."""

from __future__ import annotations

from collections.abc import Callable

from envs.agencybench.scenario import Check
from envs.agencybench.upstream.checks import (
    chat,
    desktop,
    equations,
    events,
    filings,
    judged,
    pages,
    patches,
    players,
    puzzles,
    reports,
    runners,
    tickets,
    todo,
    webhooks,
)
from envs.agencybench.upstream.checks.forms import guarded
from envs.agencybench.upstream.sections import Sections

__all__ = ["checks_for"]

#: Scenario to the function that gives the checks of task ``number``.
_RULES: dict[str, Callable[[int], tuple[Check, ...]]] = {
    "Backend/scenario1": chat.checks,
    "Backend/scenario2": todo.checks,
    "MCP/scenario1": tickets.checks,
    "MCP/scenario2": desktop.checks,
    "Research/scenario2": players.checks,
    "Research/scenario3": filings.checks,
}
#: Likewise, where a judge decides the rest.
_MIXED: dict[str, Callable[[int, Sections], tuple[Check, ...]]] = {
    "Backend/scenario3": events.checks,
    "Code/scenario1": equations.rate_checks,
    "Code/scenario2": patches.checks,
    "Code/scenario3": patches.checks,
    "Code/scenario4": puzzles.checks,
    "Code/scenario6": equations.discovery_checks,
    "Code/scenario7": equations.discovery_checks,
    "Code/scenario8": webhooks.checks,
    "Code/scenario9": runners.checks,
    "Research/scenario1": reports.dataset_checks,
    "Research/scenario4": reports.report_checks,
    "Research/scenario5": reports.report_checks,
}


def checks_for(name: str, number: int, sections: Sections) -> tuple[Check, ...]:
    """The checks of one task.

    Args:
        name: ``Code/scenario1``.
        number: Of the task, from 1.
        sections: The task's text.
    """
    if name in _RULES:
        made = _RULES[name](number)
    elif name in _MIXED:
        made = _MIXED[name](number, sections)
    elif name.startswith(("Frontend/", "Game/")):
        made = pages.checks(name, number, sections)
    else:
        made = judged.text_checks(sections)
    return tuple(guarded(check) for check in made)
