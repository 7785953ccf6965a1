"""AReaL: a ``RolloutWorkflow`` that plays an environment of the suite.

Written against AReaL 1.0.4 and tested with a stand-in for it: AReaL pins a torch older than this
suite's, so the library itself was not run here.
"""

from __future__ import annotations

import uuid
from typing import Any

from adapters.sequences import episode_tokens
from adapters.single import Answer, EpisodePlayer
from adapters.versions import require

require("areal", "1.0", "1.1", None)

import torch
from areal.api import ModelRequest, RolloutWorkflow

__all__ = ["AgentGymWorkflow"]


class AgentGymWorkflow(RolloutWorkflow):
    """One episode a call; rows are those of :func:`adapters.task_rows.task_rows`.

    An episode that the environment failed is rejected (None), as AReaL has it.

    Args:
        env_id: Id of the environment.
        tokenizer: The model's tokenizer.
        gconfig: AReaL's ``GenerationHyperparameters``; ``max_new_tokens`` bounds one action.
        max_tokens: Most tokens of an episode, prompt included.
        **settings: ``action_format``, ``deadline`` and the arguments of the environment.
    """

    def __init__(
        self, env_id: str, tokenizer: Any, gconfig: Any, max_tokens: int, **settings: Any
    ) -> None:
        self._gconfig = gconfig.new_with_stop_and_pad_token_ids(tokenizer)
        self._tokenizer = tokenizer
        self._player = EpisodePlayer(
            env_id,
            tokenizer,
            turn_tokens=gconfig.max_new_tokens,
            max_tokens=max_tokens,
            **settings,
        )

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, Any] | None:
        """Play one row; tensors with a leading dimension of 1, or None for a lost episode."""

        async def ask(prompt: list[int], most: int) -> Answer:
            request = ModelRequest(
                rid=uuid.uuid4().hex,
                input_ids=prompt,
                gconfig=self._gconfig.new(n_samples=1, max_new_tokens=most),
                tokenizer=self._tokenizer,
            )
            response = await engine.agenerate(request)
            return Answer(
                response.output_tokens,
                response.output_logprobs,
                stopped=response.stop_reason == "stop",
                versions=response.output_versions,
                aborted=response.stop_reason == "abort",
            )

        episode = await self._player.play(data, ask)
        tokens = episode_tokens(episode, self._tokenizer.eos_token_id)
        if tokens.lost or not episode.n_actions:
            return None
        before = len(tokens.prompt_ids)
        columns = {
            "input_ids": (tokens.prompt_ids + tokens.response_ids, torch.int32),
            "logprobs": ([0.0] * before + tokens.logprobs, torch.float32),
            "loss_mask": ([0] * before + tokens.response_mask, torch.int32),
            "versions": ([-1] * before + tokens.versions, torch.int32),
            "attention_mask": ([1] * (before + len(tokens.response_ids)), torch.bool),
        }
        result = {
            name: torch.tensor([values], dtype=kind) for name, (values, kind) in columns.items()
        }
        return result | {"rewards": torch.tensor([episode.total_reward], dtype=torch.float32)}
