"""Scoring workspaces of AgencyBench's scenarios without an environment around them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentgym.dice import Dice
from agentgym.sandbox import Snapshot
from envs.agencybench.assessment import Assessment
from envs.agencybench.assessor import Verdict, assess, protect
from envs.agencybench.calls import write_call
from envs.agencybench.catalogue import builtin
from envs.agencybench.oracle import demonstrate
from envs.agencybench.scenario import World

LOOK = "sleep 0.2; ls units"


def looks_first(env: Any, rng: Any, noise: float = 0.0) -> Iterator[str]:
    """The oracle, after a command in the sandbox."""
    yield write_call("run_shell_command", {"command": LOOK})
    yield from demonstrate(env, rng, noise)


def world_of(scenario_id: str, seed: int = 0) -> World:
    return builtin(scenario_id).build(Dice(f"{seed}/{scenario_id}/world"))


def written(files: Mapping[str, Any]) -> dict[str, bytes]:
    """Texts, bytes and JSON values as files."""

    def content(value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        return (value if isinstance(value, str) else json.dumps(value)).encode()

    return {path: content(value) for path, value in files.items()}


def solution(scenario_id: str, world: World, task: int) -> dict[str, bytes]:
    """The files of the oracle up to and with ``task``."""
    scenario = builtin(scenario_id)
    files = dict(world.files)
    for index in range(task + 1):
        for tool, arguments in scenario.oracle(world, index):
            if tool == "write_file":
                files[arguments["path"]] = arguments["content"].encode()
            elif tool == "replace":
                old, new = arguments["old"].encode(), arguments["new"].encode()
                assert files[arguments["path"]].count(old) == 1, arguments
                files[arguments["path"]] = files[arguments["path"]].replace(old, new)
    return files


def score(
    scenario_id: str,
    world: World,
    task: int,
    files: Mapping[str, Any],
    *,
    seed: int = 0,
    sandbox: Any = None,
    **more: Any,
) -> Verdict:
    """How a task is scored on ``files`` (beside those that the world starts with)."""
    made = builtin(scenario_id).tasks[task]
    snapshot = protect(Snapshot({**world.files, **written(files)}), made, world.files)
    return assess(made, Assessment(snapshot, world, sandbox, f"{seed}/{made.id}/0", **more))
