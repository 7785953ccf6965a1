"""SkyRL (skyrl-gym): an environment of the suite as ``BaseTextEnv``.

A row of SkyRL's data set has ``env_class`` (what :func:`register` returned), any ``prompt`` (it is
replaced by the environment's own), and beside them ``task_id`` and ``seed``, which arrive in
``extras``. SkyRL knows ``done`` only: ``truncated`` and ``stop_reason`` stand in the metadata.
"""

from __future__ import annotations

from typing import Any

from adapters.chat import ChatEpisode, Reply
from adapters.versions import require
from agentgym.info import ABORTED
from agentgym.registry import spec

require("skyrl-gym", "0.4", "0.5", "skyrl")

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from skyrl_gym.envs.registration import registry

__all__ = ["SkyRLEnv", "register"]


class SkyRLEnv(BaseTextEnv):
    """One episode, as SkyRL uses it.

    Args:
        env_config: SkyRL's settings for this ``env_class``; not used.
        extras: The row: ``task_id``, ``seed`` and ``split``, each optional.
        env_id: Id of an environment of the suite.
        **settings: ``action_format``, ``deadline`` and the arguments of the environment.
    """

    def __init__(
        self,
        env_config: Any = None,
        extras: dict[str, Any] | None = None,
        *,
        env_id: str,
        **settings: Any,
    ) -> None:
        super().__init__()
        row = extras or {}
        self._row = {name: row.get(name) for name in ("task_id", "seed", "split")}
        self._chat = ChatEpisode(env_id, **settings)
        self._last: Reply | None = None
        self._return = 0.0

    def init(self, prompt: Any) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Begin the episode; the environment's opening messages and its info."""
        messages = self._chat.start(**self._row)
        info = self._chat.guarded.info
        return messages, {"task_id": info["task_id"], "goal": info["goal"]}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take the action that stands in a model's answer."""
        self.turns += 1
        reply = self._last = self._chat.say(action)
        self._return += reply.reward
        return BaseTextEnvStepOutput(
            observations=[] if reply.done else [{"role": "user", "content": reply.text}],
            reward=reply.reward,
            done=reply.done,
            metadata=reply.facts(),
        )

    def get_metrics(self) -> dict[str, Any]:
        """Numbers of the episode, which SkyRL averages."""
        if self._last is None:
            return {}
        facts = self._last.facts()
        return {
            "return": self._return,
            "score": facts["score"],
            "success": float(facts["success"]),
            "truncated": float(facts["truncated"]),
            "infra_error": float(facts["stop_reason"] in ABORTED),
        }

    def close(self) -> None:
        """Close the environment."""
        self._chat.close()


def register(env_id: str, *, known_as: str | None = None, **settings: Any) -> str:
    """Register an environment with SkyRL; returns its ``env_class``. A second time changes nothing.

    Args:
        env_id: Id of an environment of the suite.
        known_as: Its ``env_class``; None for ``agentgym/ID``.
        **settings: ``action_format``, ``deadline`` and the arguments of the environment.

    Raises:
        KeyError: If the suite has no such environment.
        ValueError: If the ``env_class`` is taken, with other settings too.
    """
    name, given = known_as or f"agentgym/{spec(env_id).id}", {"env_id": env_id, **settings}
    before = registry.get(name)
    if before is None:
        skyrl_gym.register(id=name, entry_point="adapters.skyrl_gym:SkyRLEnv", kwargs=given)
    elif before.entry_point != "adapters.skyrl_gym:SkyRLEnv" or before.kwargs != given:
        raise ValueError(f"{name!r} is registered with {before.kwargs}; choose another known_as")
    return name
