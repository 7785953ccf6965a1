"""One episode over a library's own asynchronous generation, token for token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentgym.collector import Collector, CollectorConfig
from agentgym.parsing import ActionFormat
from agentgym.policy import Completion, FinishReason, Request, Sampling
from agentgym.prompts import make_renderer
from agentgym.registry import load, spec
from agentgym.timed import CheckedMaker
from agentgym.trajectory import EpisodeSpec, Trajectory

__all__ = ["Answer", "Ask", "EpisodePlayer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a library's engine generated.

    Attributes:
        token_ids: The tokens, the one that ended the answer included.
        logprobs: Their log-probs.
        stopped: It ended by itself; False where it was cut off.
        versions: Weight version of each token; None where the engine does not tell.
        aborted: The engine gave the request up.
    """

    token_ids: Sequence[int]
    logprobs: Sequence[float]
    stopped: bool
    versions: Sequence[int] | None = None
    aborted: bool = False


#: From a prompt and the most tokens of its answer to the answer.
Ask = Callable[[list[int], int], Awaitable[Answer]]


class _Asking:
    """A policy that asks."""

    version = 0

    def __init__(self, ask: Ask, max_context: int, max_response: int | None) -> None:
        self._ask, self.max_context, self._max_response = ask, max_context, max_response

    async def generate(self, request: Request) -> Completion:
        if self._max_response is not None:  # the first prompt is the only one that is not response
            whole = len(request.token_ids) + self._max_response
            self.max_context, self._max_response = min(self.max_context, whole), None
        most = min(request.sampling.max_tokens, self.max_context - len(request.token_ids))
        answer = await self._ask([int(token) for token in request.token_ids], most)
        count = min(len(answer.token_ids), most)
        reason = FinishReason.STOP if answer.stopped else FinishReason.LENGTH
        versions = [0] * count if answer.versions is None else answer.versions[:count]
        return Completion(
            tuple(int(token) for token in answer.token_ids[:count]),
            np.asarray(answer.logprobs[:count], np.float32),
            np.asarray(versions, np.int32),
            FinishReason.ABORT if answer.aborted else reason,
        )

    def release(self, session: str) -> None:
        return

    async def load_weights(self, state: Mapping[str, Any], version: int) -> None:
        raise NotImplementedError("the library that generates looks after its own weights")

    async def aclose(self) -> None:
        return


class EpisodePlayer:
    """Plays single episodes of an environment.

    Each has an environment of its own, on a thread: one that hangs is abandoned, and its episode
    ends with ``infra_error``.

    Args:
        env_id: Id of the environment.
        tokenizer: Tokenizer with a chat template that keeps earlier turns.
        turn_tokens: Most tokens of one action.
        max_tokens: Most tokens of an episode, prompt included.
        max_response_tokens: Most tokens after the first prompt; None for no limit but the other.
        action_format: ``tags`` or ``bare``.
        deadline: Seconds that one call into the environment, or one generation, may take.
        **env_args: Arguments of the environment.
    """

    def __init__(
        self,
        env_id: str,
        tokenizer: Any,
        *,
        turn_tokens: int,
        max_tokens: int,
        max_response_tokens: int | None = None,
        action_format: ActionFormat = "tags",
        deadline: float = 600.0,
        **env_args: Any,
    ) -> None:
        prompt = load(spec(env_id).prompt)(action_format)
        config = CollectorConfig(
            slots=1,
            sampling=Sampling(max_tokens=turn_tokens),
            max_episode_tokens=max_tokens,
            turn_deadline=deadline,
        )
        self._max_tokens, self._config = max_tokens, config
        self._max_response = max_response_tokens
        self._renderer = make_renderer("conversation", tokenizer, prompt)
        # The collector has the deadline, so no other is needed here.
        self._make_env = CheckedMaker(env_id, deadline=None, **env_args)

    async def play(self, row: Mapping[str, Any], ask: Ask) -> Trajectory:
        """Play the episode that ``task_id``, ``split`` and ``seed`` of a row name.

        Raises:
            KeyError: If there is no such task.
            ValueError: If there is no such split.
        """
        self._make_env.check([row])
        policy = _Asking(ask, self._max_tokens, self._max_response)
        collector = Collector(self._make_env, self._renderer, policy, self._config)
        episode = EpisodeSpec(row.get("task_id"), row.get("split"), int(row.get("seed") or 0), "0")
        try:
            return await collector.run_episode(episode)
        finally:
            collector.close()
