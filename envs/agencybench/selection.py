"""What an environment plays: its arguments looked at, scenarios chosen, and their splits."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentgym.tasks import TaskSet
from envs.agencybench.scenario import Scenario

__all__ = ["check_arguments", "choose", "split_tasks"]

_CHOICES = {
    "carry": ("best", "first", "last"),
    "reward": ("delta", "sparse", "raw"),
    "rubric_visibility": ("as_shipped", "hidden"),
}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_arguments(
    *,
    sandbox: Any,
    attempts: Any,
    pass_threshold: Any,
    call_cost: Any,
    max_tokens: Any,
    max_seconds: Any,
    halt: Any,
    user: Any,
    judge: Any,
    tokens: Any,
    artefacts: Any,
    **choices: Any,
) -> None:
    """Look at arguments of the environment, which has the same names for them.

    Raises:
        ValueError: If one cannot be used; the message names it.
    """
    for name, value in choices.items():
        if value not in _CHOICES[name]:
            raise ValueError(f"{name} must be one of {_CHOICES[name]}, got {value!r}")
    if attempts is not None and (type(attempts) is not int or attempts < 1):
        raise ValueError(f"attempts must be an int >= 1 or None, got {attempts!r}")
    if pass_threshold is not None and not (_number(pass_threshold) and 0 < pass_threshold <= 1):
        raise ValueError(f"pass_threshold must lie in (0, 1], got {pass_threshold!r}")
    if not (_number(call_cost) and 0 <= call_cost < math.inf):
        raise ValueError(f"call_cost must be a number >= 0, got {call_cost!r}")
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise ValueError(f"max_tokens must be an int >= 1 or None, got {max_tokens!r}")
    if max_seconds is not None and not (_number(max_seconds) and max_seconds > 0):
        raise ValueError(f"max_seconds must be > 0 or None, got {max_seconds!r}")
    if halt is not None and type(halt) is not bool:
        raise ValueError(f"halt must be True, False or None, got {halt!r}")
    if user != "rules" and not hasattr(user, "comment"):
        raise ValueError(f"user must be 'rules' or a Simulator, got {user!r}")
    if not isinstance(sandbox, str) and not hasattr(sandbox, "session"):
        raise ValueError(f"sandbox must be a backend's name or a Sandbox, got {sandbox!r}")
    if judge is not None and not hasattr(judge, "abilities"):
        raise ValueError(f"judge must be a Judge or None, got {judge!r}")
    if not callable(tokens):
        raise ValueError(f"tokens must be a function of a text, got {tokens!r}")
    if artefacts is not None and not callable(artefacts):
        raise ValueError(f"artefacts must be a function or None, got {artefacts!r}")


def choose(
    wanted: str | Sequence[str] | None,
    data: str | os.PathLike[str] | None,
    abilities: frozenset[str],
    *,
    ids: Iterable[str],
    make: Callable[[str], Scenario],
) -> tuple[dict[str, Scenario], dict[str, str]]:
    """The scenarios to play.

    Args:
        wanted: Id, or several; None for all that can be played here.
        data: A clone of AgencyBench; None takes the variable ``AGENCYBENCH_DATA`` if that is set.
        abilities: What is there for checks that need something.
        ids: Scenarios that come with the suite.
        make: Makes one of them.

    Returns:
        Id to scenario, and id to reason of those that cannot be played.

    Raises:
        KeyError: If a scenario is unknown.
        ValueError: If one that is wanted cannot be played.
    """
    names = [wanted] if isinstance(wanted, str) else None if wanted is None else list(wanted)
    if names is not None and not all(isinstance(name, str) for name in names):
        raise ValueError(f"scenario must be a name or names, got {wanted!r}")
    if names is not None and not names:
        raise ValueError("scenario must name at least one scenario, got an empty sequence")
    data = os.environ.get("AGENCYBENCH_DATA") or None if data is None else data
    upstream: Mapping[str, Scenario] = {}
    if data is not None and (names is None or any(n.startswith("upstream/") for n in names)):
        from envs.agencybench.upstream.loader import load_clone

        upstream = load_clone(data)
    chosen: dict[str, Scenario] = {}
    unavailable: dict[str, str] = {}
    for name in [*ids, *upstream] if names is None else names:
        if name.startswith("upstream/") and name not in upstream:
            hint = "" if upstream else "; name the clone with data= or AGENCYBENCH_DATA"
            raise KeyError(f"unknown scenario {name!r}{hint}")
        made = upstream[name] if name in upstream else make(name)
        reason = made.unavailable or _lacking(made, abilities)
        if reason is None:
            chosen[name] = made
            continue
        unavailable[name] = reason
        if names is not None:
            raise ValueError(f"scenario {name!r} cannot be played: {reason}")
    return chosen, unavailable


def _lacking(scenario: Scenario, abilities: frozenset[str]) -> str | None:
    """What is not there without which no check can be run, or None."""
    if scenario.coverage(abilities):
        return None
    lacking = {need for task in scenario.tasks for check in task.checks for need in check.needs}
    reason = f"none of its checks can be run without: {', '.join(sorted(lacking))}"
    if "browser" in lacking:
        from envs.agencybench.browser import browser_missing

        reason += f" ({browser_missing() or 'the browser is there'})"
    return reason


def split_tasks(scenarios: Iterable[str]) -> TaskSet:
    """The splits ``builtin`` and ``upstream``, as far as there is something in them."""
    names = list(scenarios)
    splits = {
        "builtin": [name for name in names if not name.startswith("upstream/")],
        "upstream": [name for name in names if name.startswith("upstream/")],
    }
    held = {name: ids for name, ids in splits.items() if ids}
    return TaskSet(held, train_split=next(iter(held)), eval_splits=tuple(held)[-1:])
