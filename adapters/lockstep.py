"""A policy made of a function that answers many prompts at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from agentgym.collector import Collector, CollectorConfig
from agentgym.policy import Completion, FinishReason, Request, Sampling
from agentgym.prompts import ConversationRenderer, WindowedRenderer
from agentgym.trajectory import EpisodeSpec, Trajectory

__all__ = ["BatchGenerate", "LockstepPolicy", "play"]

#: From prompts to answers and the log-probs of their tokens, or None where they are not known.
BatchGenerate = Callable[
    [list[list[int]]], tuple[Sequence[Sequence[int]], Sequence[Sequence[float]] | None]
]


class LockstepPolicy:
    """Waits until every running episode has asked, then answers all of them in one call.

    For libraries that generate by batch. Environments must run inline, and there must be as many
    slots as episodes: otherwise some would never ask, and the others wait for them.

    Args:
        generate_batch: Answers a batch; answers end with a stop token unless they were cut off.
        episodes: How many will play.
        stop_token_ids: Tokens that end an answer.
        max_context: Most tokens of prompt and answer.

    Attributes:
        knows_logprobs: The log-probs of the completions are real; else they are zeros.
        calls: How many batches were answered.
    """

    version = 0

    def __init__(
        self,
        generate_batch: BatchGenerate,
        episodes: int,
        stop_token_ids: Sequence[int],
        max_context: int = 1 << 30,
    ) -> None:
        self._generate_batch, self._running = generate_batch, episodes
        self._stops, self.max_context = frozenset(stop_token_ids), max_context
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self.knows_logprobs, self.calls = True, 0

    async def generate(self, request: Request) -> Completion:
        """Wait for the others, then answer; see :class:`agentgym.policy.Policy`."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        self._answer_when_all_wait()
        return await future

    def release(self, session: str) -> None:
        """An episode has ended: nobody waits for it any longer."""
        self._running -= 1
        self._answer_when_all_wait()

    async def load_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Refused: the library looks after its own weights."""
        raise NotImplementedError("the library that generates looks after its own weights")

    async def aclose(self) -> None:
        """Nothing is held."""

    def _answer_when_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self._running:
            return
        waiting, self._waiting = self._waiting, []
        try:
            answers, logprobs = self._generate_batch(
                [[int(token) for token in request.token_ids] for request, _ in waiting]
            )
        except BaseException as error:
            for _, future in waiting:
                future.set_exception(error)
            return
        self.calls += 1
        self.knows_logprobs = logprobs is not None
        for place, (request, future) in enumerate(waiting):
            ids = [int(token) for token in answers[place]][: request.sampling.max_tokens]
            given = np.zeros(len(ids)) if logprobs is None else logprobs[place][: len(ids)]
            stopped = bool(ids) and ids[-1] in self._stops
            future.set_result(
                Completion(
                    tuple(ids),
                    np.asarray(given, np.float32),
                    np.zeros(len(ids), np.int32),
                    FinishReason.STOP if stopped else FinishReason.LENGTH,
                )
            )


def play(
    rows: Sequence[Mapping[str, Any]],
    make_env: Callable[[], gym.Env[Any, Any]],
    renderer: ConversationRenderer | WindowedRenderer,
    generate_batch: BatchGenerate,
    *,
    stop_token_ids: Sequence[int],
    turn_tokens: int,
    episode_tokens: int | None,
) -> tuple[list[Trajectory], bool]:
    """Play one episode for each row, all in lockstep.

    Args:
        rows: Each with ``task_id`` and ``seed``.
        make_env: Makes an environment.
        renderer: Turns observations into prompts.
        generate_batch: Answers a batch of prompts.
        stop_token_ids: Tokens that end an answer.
        turn_tokens: Most tokens of an answer.
        episode_tokens: Most tokens of an episode, prompt included; None for no limit.

    Returns:
        The episodes in the order of the rows, and whether their log-probs are known.
    """
    policy = LockstepPolicy(generate_batch, len(rows), stop_token_ids)
    config = CollectorConfig(
        slots=max(len(rows), 1),
        sampling=Sampling(max_tokens=turn_tokens),
        max_episode_tokens=episode_tokens,
    )
    collector = Collector(make_env, renderer, policy, config)
    specs = [
        EpisodeSpec(row["task_id"], None, row["seed"], str(place)) for place, row in enumerate(rows)
    ]
    try:
        return asyncio.run(collector.collect(specs)), policy.knows_logprobs
    finally:
        collector.close()
