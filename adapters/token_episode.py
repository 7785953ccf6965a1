"""An episode in tokens, for libraries that ask the model themselves, a turn at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentgym.guarded import GuardedEnv, blank_info
from agentgym.info import Info, StopReason
from agentgym.parsing import ActionFormat
from agentgym.prompts import make_renderer
from agentgym.registry import load, spec
from agentgym.timed import timed_maker

__all__ = ["TokenEpisode"]


class TokenEpisode:
    """One environment, and the tokens of the episode that it plays.

    Every prompt is the one before, the answer as it was sampled, and what the environment said.

    Args:
        env_id: Id of the environment.
        tokenizer: Tokenizer with a chat template that keeps earlier turns.
        stop_token_ids: Tokens that end an answer; None for the tokenizer's own.
        max_prompt_tokens: An episode whose next prompt is longer ends, truncated; None for no
            limit.
        action_format: ``tags`` or ``bare``.
        **env_args: Arguments of the environment, and ``deadline`` (see :mod:`agentgym.timed`).

    Attributes:
        ids: The prompt; after the end, all tokens up to the last answer. Shape (n,), int32.
        written: Which of them the model wrote; bool (n,).
        reward: Reward of the last step.
        terminated: The environment ended the episode.
        truncated: It was cut off.
        info: The last info; ``stop_reason`` says why an episode ended.
    """

    def __init__(
        self,
        env_id: str,
        tokenizer: Any,
        *,
        stop_token_ids: Sequence[int] | None = None,
        max_prompt_tokens: int | None = None,
        action_format: ActionFormat = "tags",
        **env_args: Any,
    ) -> None:
        prompt = load(spec(env_id).prompt)(action_format)
        self._renderer = make_renderer("conversation", tokenizer, prompt)
        stops = [tokenizer.eos_token_id] if stop_token_ids is None else stop_token_ids
        self._stops, self._most = frozenset(stops), max_prompt_tokens
        self.guarded = GuardedEnv(timed_maker(env_id, **env_args))
        self.ids, self.written = np.zeros(0, np.int32), np.zeros(0, bool)
        self.reward, self.terminated, self.truncated = 0.0, False, False
        self.info: Info = blank_info()

    @property
    def failed(self) -> bool:
        """The environment failed: the episode says nothing about the model."""
        return self.guarded.error is not None

    def begin(self, row: Mapping[str, Any], strict: bool = True) -> None:
        """Begin the episode that ``task_id``, ``split`` and ``seed`` of a row name.

        An environment that fails here ends the episode with the first answer.

        Args:
            row: The row.
            strict: Raise where the first prompt is too long; False ends the episode there,
                truncated, like any other whose next prompt is too long.

        Raises:
            ValueError: If the first prompt is longer than ``max_prompt_tokens``.
        """
        asked = {name: row.get(name) for name in ("seed", "task_id", "split")}
        observation, self.info = self.guarded.reset(**asked)
        self.reward, self.terminated, self.truncated = 0.0, False, False
        self._dialogue = self._renderer.dialogue()
        if self.failed:
            self.ids = self._renderer.encode("The environment failed.")
        else:
            self.ids = self._dialogue.open(observation, self.info).ids
        self.written = np.zeros(len(self.ids), bool)
        if self.failed or not self._too_long(self.ids):
            return
        if strict:
            raise ValueError(
                f"the first prompt of {self.info['task_id']!r} has {len(self.ids)} tokens, more "
                f"than max_prompt_tokens={self._most}"
            )
        self._cut()

    def answer(self, ids: Sequence[int]) -> None:
        """Take the action that stands in the model's tokens.

        Args:
            ids: What was sampled, the token that ended it included.
        """
        stopped = len(ids) > 0 and ids[-1] in self._stops
        text = str(self._renderer.tokenizer.decode(ids[:-1] if stopped else ids))
        action = self._renderer.prompt.parse(text).action
        observation, self.reward, self.terminated, self.truncated, self.info = self.guarded.step(
            action
        )
        before = len(self.ids)
        prompt = np.concatenate([self.ids, np.asarray(ids, np.int32)])
        if not (self.terminated or self.truncated):
            longer = self._dialogue.reply(ids, text, action, observation, self.info).ids
            if self._too_long(longer):
                self._cut()
            else:
                prompt = longer
        written = np.zeros(len(prompt), bool)
        written[:before] = self.written
        written[before : before + len(ids)] = True
        self.ids, self.written = prompt, written

    def close(self) -> None:
        """Close the environment."""
        self.guarded.close()

    def _cut(self) -> None:
        self.truncated = True
        self.info = {**self.info, "stop_reason": StopReason.MAX_TOKENS}

    def _too_long(self, ids: np.ndarray) -> bool:
        return self._most is not None and len(ids) > self._most
