"""An episode as a chat, for libraries that pass messages to and fro."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentgym.guarded import GuardedEnv
from agentgym.info import Info
from agentgym.parsing import ActionFormat
from agentgym.registry import load, spec
from agentgym.timed import timed_maker

__all__ = ["ChatEpisode", "Reply"]

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model's message led to.

    Attributes:
        text: The next user message; also after the end, for those who show it.
        reward: Reward of the step.
        terminated: The environment ended the episode.
        truncated: It was cut off, by the step limit or a fault.
        format_ok: The message had the form asked for.
        info: The environment's info; ``stop_reason`` says why an episode ended.
    """

    text: str
    reward: float
    terminated: bool
    truncated: bool
    format_ok: bool
    info: Info

    @property
    def done(self) -> bool:
        """The episode is over."""
        return self.terminated or self.truncated

    def facts(self) -> dict[str, Any]:
        """What libraries without words for it can carry along, JSON-able."""
        info, reason = self.info, self.info["stop_reason"]
        return {
            "terminated": self.terminated,
            "truncated": self.truncated,
            "stop_reason": None if reason is None else str(reason),
            "task_id": info["task_id"],
            "task_type": info["task_type"],
            "score": float(info["score"]),
            "success": bool(info["success"]),
            "action_valid": bool(info["action_valid"]),
            "format_ok": self.format_ok,
        }


class ChatEpisode:
    """One environment with its own words: instructions, observations, and what reads answers.

    Args:
        env_id: Id of the environment.
        action_format: ``tags`` or ``bare``.
        **env_args: Arguments of the environment, and ``deadline`` (see :mod:`agentgym.timed`).
    """

    def __init__(self, env_id: str, action_format: ActionFormat = "tags", **env_args: Any) -> None:
        self.guarded = GuardedEnv(timed_maker(env_id, **env_args))
        self._prompt = load(spec(env_id).prompt)(action_format)

    def start(
        self, *, seed: int | None = None, task_id: str | None = None, split: str | None = None
    ) -> list[Message]:
        """Begin an episode; returns its opening messages.

        An environment that fails here ends the episode with the first answer.
        """
        observation, info = self.guarded.reset(seed=seed, task_id=task_id, split=split)
        if self.guarded.error is not None:
            return [{"role": "user", "content": "The environment failed."}]
        system = self._prompt.system(info)
        opening = [] if not system else [{"role": "system", "content": system}]
        return [*opening, {"role": "user", "content": self._prompt.first(observation, info)}]

    def say(self, text: str) -> Reply:
        """Take the action that stands in a model's message."""
        parsed = self._prompt.parse(text)
        observation, reward, terminated, truncated, info = self.guarded.step(parsed.action)
        if self.guarded.error is None:
            observation = self._prompt.next(observation, info)
        return Reply(observation, reward, terminated, truncated, parsed.format_ok, info)

    def written(self, action: str) -> str:
        """An action as the model is to write it."""
        return str(self._prompt.written(action))

    def close(self) -> None:
        """Close the environment."""
        self.guarded.close()
