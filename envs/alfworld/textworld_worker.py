"""The original engine behind pipes; run as a script by :mod:`envs.alfworld.textworld_backend`.

One JSON object a line: ``{"game": {...}}`` loads and starts a game, ``{"command": "..."}`` takes a
step. The answer holds ``observation``, ``admissible`` and ``won``, or ``error``. The process is a
closed world on purpose: TextWorld overwrites ``sys.argv``, swaps ``sys.stdout`` while it loads a
game, and never gives back the memory of its planner library.
"""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from typing import Any


def main() -> None:
    """Answer requests until the pipe closes."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Whatever else is printed must not come between the answers.
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        # Importing alfworld makes this folder; by default it would be one in the user's home.
        os.environ.setdefault("ALFWORLD_DATA", folder)
        _answer(answers, {"ready": True} | _start())
        for line in requests:
            try:
                answer = _serve(json.loads(line))
            except Exception:
                answer = {"error": traceback.format_exc(limit=8)}
            _answer(answers, answer)


def _answer(answers: Any, content: dict[str, Any]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


_env: Any = None


def _start() -> dict[str, Any]:
    global _env
    try:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs.pddl import PddlEnv

        infos = textworld.EnvInfos(won=True, admissible_commands=True)
        _env = AlfredDemangler(PddlEnv(infos))
    except ModuleNotFoundError as error:
        return {"missing": error.name}
    except Exception:
        return {"error": traceback.format_exc(limit=8)}
    return {}


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    if "game" in request:
        _env.load(request["game"])
        state = _env.reset()
    else:
        state, _, _ = _env.step(request["command"])
    return {
        "observation": state.feedback,
        "admissible": state.admissible_commands,
        "won": bool(state["won"]),
    }


if __name__ == "__main__":
    main()
