"""Runs inside the sandbox: plays scenes with a service that runs in a process of its own.

A scene is a service that is started anew; what its steps gave is told, and judged outside.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from envs.agencybench.inside.places import put, read
from envs.agencybench.inside.prelude import PAYLOAD, Lines, report


def filled(value: Any, made: list[Any]) -> Any:
    """Arguments in which ``{"from": 3}`` stands for what step 3 returned."""
    if isinstance(value, dict) and set(value) == {"from"}:
        earlier = made[value["from"]] if value["from"] < len(made) else None
        return earlier.get("value") if isinstance(earlier, dict) else None
    if isinstance(value, dict):
        return {key: filled(one, made) for key, one in value.items()}
    return [filled(one, made) for one in value] if isinstance(value, list) else value


def play(program: str, scene: Any, first: float, seconds: float) -> list[Any]:
    """Answers to the steps of one scene; None for those that did not answer."""
    for path, (text, mode) in scene["files"].items():
        put(path, text, mode)
    place = {**os.environ, **scene["env"]}
    if "path" in scene:
        place["PATH"] = scene["path"] + os.pathsep + place["PATH"]
    child = Lines([sys.executable, "-P", "-c", program], env=place)
    made: list[Any] = []
    try:
        for name, *arguments in scene["steps"]:
            answer = child.ask([name, filled(arguments, made)], seconds if made else first)
            made.append(answer)
            if answer is None:
                break
    finally:
        child.end()
    for path in scene.get("read", []):
        text = read(path, 1 << 18)
        if text is not None:
            made.append({"value": text})
    return made


if __name__ == "__main__":
    patience = (PAYLOAD["start"], PAYLOAD["seconds"])
    told = [play(PAYLOAD["program"], scene, *patience) for scene in PAYLOAD["scenes"]]
    # Answers may be nested as deeply as they could just be read.
    sys.setrecursionlimit(20_000)
    report(told)
