"""All scenarios: those that come with the suite, and those of a user's clone."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache

from envs.agencybench.scenario import Scenario

__all__ = ["BUILTIN", "builtin"]

#: Scenario id to the module whose ``scenario()`` makes it.
BUILTIN: Mapping[str, str] = {
    "backend/ledger": "envs.agencybench.scenarios.ledger.scenario",
    "code/units": "envs.agencybench.scenarios.units.scenario",
    "frontend/seatmap": "envs.agencybench.scenarios.seatmap.scenario",
    "game/lightgrid": "envs.agencybench.scenarios.lightgrid.scenario",
    "mcp/issuedesk": "envs.agencybench.scenarios.issuedesk.scenario",
    "research/harbour": "envs.agencybench.scenarios.harbour.scenario",
}


@cache
def builtin(scenario_id: str) -> Scenario:
    """A scenario of the suite.

    Raises:
        KeyError: If there is none of that name.
    """
    try:
        module = BUILTIN[scenario_id]
    except KeyError:
        known = ", ".join(BUILTIN)
        raise KeyError(f"unknown scenario {scenario_id!r}; built in are {known}") from None
    made: Scenario = importlib.import_module(module).scenario()
    return made
