"""Texts as hashed vectors and actions by number, for libraries that know arrays only.

What the agent is shown is turned into vectors by a keyed hash of its words: the goal, the current
observation, each admissible action, and for each action what was answered when it was last taken
in the episode. Nothing else is computed: no score, no comparison of texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import gymnasium as gym
import numpy as np

from agentgym.guarded import GuardedEnv

__all__ = ["HashedTextEnv", "hashed"]

_WORD, _BLANK = re.compile(r"[^\W_]+"), re.compile(r"<[a-z_]+>")
_PLACES = 4  # of a word; two words share one of them now and then, hardly ever all


@lru_cache(maxsize=1 << 16)
def hashed(text: str, size: int, key: bytes = b"agentgym") -> np.ndarray:
    """The words of a text as one vector, the same in every process; float32 (size,).

    Each word adds a vector of length 1 with four entries, whose places and signs are a keyed hash.
    """
    vector = np.zeros(size, np.float32)
    for word in _WORD.findall(text.lower()):
        digest = blake2b(word.encode(), key=key, digest_size=4 * _PLACES).digest()
        for place in range(_PLACES):
            number = int.from_bytes(digest[4 * place : 4 * place + 4], "little")
            vector[(number >> 1) % size] += (1 - 2 * (number & 1)) / np.sqrt(_PLACES)
    vector.setflags(write=False)
    return vector


class HashedTextEnv(gym.Env[dict[str, np.ndarray], int]):
    """A text environment with hashed observations and numbered admissible actions.

    The observation is a dict: ``goal`` and ``observation``, shape (size,), ``actions`` and
    ``replies``, shape (max_actions, size), rows of zeros beyond the last action. Action ``k`` is
    entry ``k`` of ``info["admissible_actions"]``; :meth:`action_masks` tells how many there are.
    A placeholder, as in ``search[<query>]``, is filled with the goal. An environment that fails
    ends its episode, truncated (see :class:`~agentgym.guarded.GuardedEnv`).

    Args:
        make_env: Makes the text environment.
        size: Length of the vectors.
        max_actions: Most actions at a time.
        split: Split to draw tasks from; None for the environment's own.
        task_ids: Tasks to draw from instead of all of the split.

    Raises:
        ValueError: If one of the numbers is not positive.
    """

    def __init__(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        *,
        size: int = 128,
        max_actions: int = 64,
        split: str | None = None,
        task_ids: tuple[str, ...] | None = None,
    ) -> None:
        if min(size, max_actions) < 1:
            raise ValueError(f"size={size} and max_actions={max_actions} must be at least one")
        self.guarded = GuardedEnv(make_env)
        self.size, self.max_actions = size, max_actions
        self.split, self.task_ids = split, task_ids
        shapes: dict[str, tuple[int, ...]] = {"goal": (size,), "observation": (size,)}
        shapes |= dict.fromkeys(("actions", "replies"), (max_actions, size))
        self.observation_space: Any = gym.spaces.Dict(
            {name: gym.spaces.Box(-np.inf, np.inf, shape) for name, shape in shapes.items()}
        )
        self.action_space: Any = gym.spaces.Discrete(max_actions)
        self._actions: tuple[str, ...] = ()
        self._replies: dict[str, str] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Start an episode; ``options`` may name ``task_id`` and ``split``."""
        super().reset(seed=seed)
        chosen = {"split": self.split} | (options or {})
        if self.task_ids and not (options or {}).get("task_id"):
            chosen = {"task_id": self.task_ids[int(self.np_random.integers(len(self.task_ids)))]}
        own = int(self.np_random.integers(1 << 31)) if seed is None else seed
        observation, info = self.guarded.reset(seed=own, **chosen)
        self._replies = {}
        return self._seen(observation), dict(info)

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Take an action by its number; one beyond the list is an empty, inadmissible action."""
        text = self._actions[int(action)] if int(action) < len(self._actions) else ""
        filled = _BLANK.sub(lambda _: self.guarded.info["goal"], text)
        observation, reward, terminated, truncated, info = self.guarded.step(filled)
        self._replies[text] = observation
        return self._seen(observation), reward, terminated, truncated, dict(info)

    def action_masks(self) -> np.ndarray:
        """Which numbers stand for an action; bool (max_actions,)."""
        return np.arange(self.max_actions) < len(self._actions)

    def close(self) -> None:
        """Close the text environment."""
        self.guarded.close()

    def _seen(self, observation: str) -> dict[str, np.ndarray]:
        info = self.guarded.info
        listed = info["admissible_actions"]
        if self.guarded.error is not None or (self.guarded.over and not listed):
            listed = ("",)  # a failed episode takes one more step, an ended one is still shown
        if not listed or len(listed) > self.max_actions:
            raise ValueError(
                f"{info['task_id']!r} offers {listed and len(listed)} actions; this adapter needs "
                f"a list of 1 to max_actions={self.max_actions}"
            )
        self._actions = tuple(listed)
        actions, replies = np.zeros((2, self.max_actions, self.size), np.float32)
        for place, text in enumerate(listed):
            actions[place] = hashed(text, self.size)
            replies[place] = hashed(self._replies.get(text, ""), self.size)
        return {
            "goal": hashed(info["goal"], self.size).copy(),
            "observation": hashed(observation, self.size).copy(),
            "actions": actions,
            "replies": replies,
        }
