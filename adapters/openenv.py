"""OpenEnv: the suite's environments behind its server, and a typed client.

``python -m agentgym serve`` speaks the same protocol without the library, with request ids,
deadlines and sessions that survive a broken connection; :class:`TextClient` works with both.
OpenEnv knows ``done`` only: ``terminated``, ``truncated`` and the whole ``info``, ``stop_reason``
in it, stand in the metadata.
"""

from __future__ import annotations

from typing import Any

from adapters.versions import require
from agentgym.guarded import GuardedEnv
from agentgym.info import Info
from agentgym.recording import plain
from agentgym.tasks import TaskSet
from agentgym.timed import timed_maker

require("openenv", "0.10", "0.11", "openenv")

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

__all__ = ["TextAction", "TextClient", "TextEnvironment", "TextObservation", "create_app"]


class TextAction(Action):
    """One action."""

    action: str = Field(description="The action, as text")


class TextObservation(Observation):
    """What the agent sees."""

    text: str = ""
    goal: str = ""
    admissible_actions: list[str] | None = None


class TextEnvironment(Environment[TextAction, TextObservation, State]):
    """One session's environment; arguments as in :func:`create_app`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env_id: str, **env_args: Any) -> None:
        super().__init__()
        self._guarded = GuardedEnv(timed_maker(env_id, **env_args))
        self._state = State(episode_id=None, step_count=0)

    @property
    def _tasks(self) -> TaskSet:
        return self._guarded.env.unwrapped.tasks  # type: ignore[attr-defined]

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task_id: str | None = None,
        split: str | None = None,
        **_: Any,
    ) -> TextObservation:
        """Begin an episode."""
        text, info = self._guarded.reset(seed=seed, task_id=task_id, split=split)
        self._state = State(episode_id=episode_id, step_count=0)
        return _seen(text, None, False, False, info)

    def step(self, action: TextAction, timeout_s: float | None = None, **_: Any) -> TextObservation:
        """Apply an action."""
        self._state.step_count += 1
        text, reward, terminated, truncated, info = self._guarded.step(action.action)
        return _seen(text, reward, terminated, truncated, info)

    def list_splits(self) -> list[str]:
        """Names of the splits; this and the next three are OpenEnv's way to find tasks."""
        return list(self._tasks.splits)

    def num_tasks(self, split: str) -> int:
        """How many tasks a split has."""
        return len(self._tasks.ids(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """One task; ``reset(task_id=...)`` takes its ``id``."""
        return {"id": self._tasks.ids(split)[index], "index": index}

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """All tasks of a split."""
        return [self.get_task(split, index) for index in range(self.num_tasks(split))]

    @property
    def state(self) -> State:
        """Where the episode stands."""
        return self._state

    def close(self) -> None:
        """Close the environment."""
        self._guarded.close()


def _seen(
    text: str, reward: float | None, terminated: bool, truncated: bool, info: Info
) -> TextObservation:
    listed = info["admissible_actions"]
    return TextObservation(
        text=text,
        goal=info["goal"],
        admissible_actions=None if listed is None else list(listed),
        reward=reward,
        done=terminated or truncated,
        metadata={"terminated": terminated, "truncated": truncated, "info": plain(info)},
    )


class TextClient(EnvClient[TextAction, TextObservation, State]):
    """A typed client, for :func:`create_app` and for ``python -m agentgym serve``."""

    def _step_payload(self, action: TextAction | str) -> dict[str, Any]:
        return {"action": action if isinstance(action, str) else action.action}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[TextObservation]:
        shown = dict(payload["observation"])
        metadata = payload.get("metadata") or shown.get("metadata") or {}
        done, reward = payload.get("done", False), payload.get("reward")
        seen = TextObservation(**(shown | {"done": done, "reward": reward, "metadata": metadata}))
        return StepResult(observation=seen, reward=reward, done=done, metadata=metadata)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


def create_app(env_id: str, *, max_sessions: int = 64, **env_args: Any) -> Any:
    """OpenEnv's own server (FastAPI), one environment a session.

    Args:
        env_id: Id of an environment of the suite.
        max_sessions: Most sessions at a time; OpenEnv's own default is 1.
        **env_args: Arguments of the environment, and ``deadline`` (see :mod:`agentgym.timed`).
    """
    return create_fastapi_app(
        lambda: TextEnvironment(env_id, **env_args),
        TextAction,
        TextObservation,
        max_concurrent_envs=max_sessions,
        env_name=env_id,
    )
