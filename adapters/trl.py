"""TRL's GRPOTrainer: whole episodes by ``rollout_func``, or tools by ``environment_factory``.

``rollout_func`` trains on the tokens that were sampled: an episode is one sequence, and
``env_mask`` marks what the model wrote. With ``environment_factory`` the model calls the
environment as a tool, through the chat template of the tokenizer.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from adapters.lockstep import play
from adapters.sequences import episode_tokens
from adapters.task_rows import read_prompt
from adapters.versions import require
from agentgym.guarded import GuardedEnv
from agentgym.parsing import ActionFormat
from agentgym.prompts import make_renderer
from agentgym.registry import load, spec
from agentgym.timed import CheckedMaker, timed_maker
from agentgym.trajectory import Trajectory

require("trl", "1.16", "1.17", "trl")

__all__ = ["EnvironmentTool", "Rollouts", "environment_factory", "episode_reward"]


def episode_reward(*, episode_return: Sequence[float | None], **_: Any) -> list[float | None]:
    """The reward function that goes with :class:`Rollouts`: what each episode earned.

    One that the environment failed has None, which TRL leaves out of its group.
    """
    return list(episode_return)


class Rollouts:
    """A ``rollout_func``: each prompt of :func:`~adapters.task_rows.task_rows` becomes one episode.

    The trainer generates, for all episodes in lockstep. Reward functions get as columns
    ``episode_return``, ``score``, ``success``, ``truncated`` and ``stop_reason``.

    Args:
        env_id: Id of the environment.
        turn_tokens: Most tokens of one action. TRL's ``max_completion_length`` bounds the whole
            episode, its first prompt included.
        action_format: ``tags`` or ``bare``.
        **env_args: Arguments of the environment, and ``deadline`` (see :mod:`agentgym.timed`).

    Attributes:
        trajectories: The episodes of the last call.
    """

    def __init__(
        self,
        env_id: str,
        turn_tokens: int = 64,
        action_format: ActionFormat = "tags",
        **env_args: Any,
    ) -> None:
        self._make_env, self._turn_tokens = CheckedMaker(env_id, **env_args), turn_tokens
        self._prompt = load(spec(env_id).prompt)(action_format)
        self.trajectories: list[Trajectory] = []

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Play; what TRL calls."""
        settings, tokenizer = trainer.generation_config, trainer.processing_class
        rows = [read_prompt(prompt) for prompt in prompts]
        self._make_env.check(rows)

        def generate(batch: list[list[int]]) -> Any:
            whole, settings.max_new_tokens = settings.max_new_tokens, self._turn_tokens
            try:
                return trainer._generate_single_turn(batch, None, {}, num_generations=1)
            finally:
                settings.max_new_tokens = whole

        self.trajectories, known = play(
            rows,
            self._make_env,
            make_renderer("conversation", tokenizer, self._prompt),
            generate,
            stop_token_ids=trainer.eos_token_ids,
            turn_tokens=self._turn_tokens,
            episode_tokens=trainer.max_completion_length,
        )
        told = [_row(item, tokenizer.eos_token_id) for item in self.trajectories]
        columns: dict[str, Any] = {name: [row[name] for row in told] for name in told[0]}
        return columns if known else columns | {"logprobs": None}


def _row(episode: Trajectory, filler: int) -> dict[str, Any]:
    """One episode as TRL wants it."""
    tokens = episode_tokens(episode, filler)
    return {
        "prompt_ids": tokens.prompt_ids,
        "completion_ids": tokens.response_ids,
        "env_mask": tokens.response_mask,
        "logprobs": tokens.logprobs,
        "episode_return": None if tokens.lost else episode.total_reward,
        "score": episode.score,
        "success": episode.success,
        "truncated": episode.truncated,
        "stop_reason": str(episode.stop_reason),
    }


class EnvironmentTool:
    """An environment as TRL's tool: its public methods are what the model can call."""

    def __init__(self, env_id: str, env_args: dict[str, Any]) -> None:
        self._guarded, self._return = GuardedEnv(timed_maker(env_id, **env_args)), 0.0
        weakref.finalize(self, self._guarded.close)  # TRL never closes its pool

    def reset(self, task_id: str | None = None, seed: int | None = None, **_: Any) -> str:
        """Start an episode; TRL passes the row of the dataset."""
        observation, _info = self._guarded.reset(task_id=task_id, seed=seed)
        self._return = 0.0
        return observation

    def act(self, action: str) -> str:
        """Take one action in the environment and read what happens.

        Args:
            action: The action, as the instructions describe it.

        Returns:
            What the environment answers.
        """
        if self._guarded.over:
            return "The episode is over."
        observation, reward, terminated, truncated, info = self._guarded.step(action)
        self._return += reward
        ended = terminated or truncated
        return (
            f"{observation}\nThe episode is over: {info['stop_reason']}." if ended else observation
        )

    def get_reward(self) -> float | None:
        """The return of the episode; None where the environment failed."""
        return None if self._guarded.error is not None else self._return


def environment_factory(env_id: str, **env_args: Any) -> Callable[[], EnvironmentTool]:
    """The ``environment_factory`` for :func:`~adapters.task_rows.task_rows`; it can be pickled."""
    return functools.partial(EnvironmentTool, env_id, env_args)
