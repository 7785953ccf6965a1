"""GEM (gem-llm): an environment of the suite as ``gem.Env``.

GEM passes what the model wrote; the action is read from it (``action_format``). Its ``reset`` knows
a seed and nothing else: the task is the one the environment was made with, or drawn by the seed.
"""

from __future__ import annotations

import weakref
from typing import Any

from adapters.chat import ChatEpisode
from adapters.versions import require
from agentgym.parsing import ActionFormat
from agentgym.registry import spec

require("gem-llm", "0.1", "0.2", "gem")

import gem
from gem.envs.registration import ENV_REGISTRY

__all__ = ["GemEnv", "register"]


class GemEnv(gem.Env):
    """See the module's docstring.

    Args:
        name: Id of an environment of the suite (GEM has its own use for ``env_id``).
        task_id: Task to play; None draws one for each episode.
        split: Split to draw from.
        seed: Seed of the first episode where ``reset`` is given none; then the next integers.
            (GEM's vector environment gives it.)
        action_format: ``tags`` or ``bare``.
        **env_args: Arguments of the environment.
    """

    def __init__(
        self,
        name: str,
        *,
        task_id: str | None = None,
        split: str | None = None,
        seed: int = 0,
        action_format: ActionFormat = "tags",
        **env_args: Any,
    ) -> None:
        super().__init__()
        self._settings = {
            "name": name, "task_id": task_id, "split": split, "seed": seed,
            "action_format": action_format, **env_args,
        }  # fmt: skip
        self._task_id, self._split, self._next_seed = task_id, split, seed
        self._chat = ChatEpisode(name, action_format, **env_args)
        weakref.finalize(self, self._chat.close)  # GEM closes nothing

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode; instructions and first observation are one text."""
        # The base class would seed Python's and NumPy's global generators.
        chosen = self._next_seed if seed is None else seed
        self._next_seed = chosen + 1
        messages = self._chat.start(seed=chosen, task_id=self._task_id, split=self._split)
        text = "\n\n".join(message["content"] for message in messages)
        return text, dict(self._chat.guarded.info)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take the action that stands in a model's text."""
        reply = self._chat.say(action)
        info = {**reply.info, "format_ok": reply.format_ok}
        return reply.text, reply.reward, reply.terminated, reply.truncated, info

    def sample_random_action(self) -> str:
        """An admissible action, written as the model is to write it."""
        action = self._chat.guarded.env.action_space.sample()
        return self._chat.written(action)

    def spawn(self, same_state: bool = False, **kwargs: Any) -> GemEnv:
        """Another one with the same settings.

        Raises:
            ValueError: If the same state is asked for; an episode cannot be copied.
        """
        if same_state:
            raise ValueError("same_state=True is not possible; reset both with the same seed")
        return GemEnv(**(self._settings | kwargs))

    def close(self) -> None:
        """Close the environment, which else is closed when nobody refers to it any more."""
        self._chat.close()


def register(env_id: str, *, known_as: str | None = None, **settings: Any) -> str:
    """Register an environment with GEM; returns its id there. A second time changes nothing.

    Args:
        env_id: Id of an environment of the suite.
        known_as: Its id there; None for ``agentgym:ID``.
        **settings: See :class:`GemEnv`.

    Raises:
        KeyError: If the suite has no such environment.
        ValueError: If the id is taken, with other settings too.
    """
    known, given = known_as or f"agentgym:{spec(env_id).id}", {"name": env_id, **settings}
    before = ENV_REGISTRY.get(known)
    if before is None:
        gem.register(known, "adapters.gem:GemEnv", **given)
    elif before.entry_point != "adapters.gem:GemEnv" or before.kwargs != given:
        raise ValueError(f"{known!r} is registered with {before.kwargs}; choose another known_as")
    return known
