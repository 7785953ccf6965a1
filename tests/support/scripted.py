"""A policy that plays from a script, and environments that misbehave on some tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from templates import CharTokenizer
from toy_text import ToyDoors

from agentgym.policy import Completion, FinishReason, Request
from agentgym.trajectory import EpisodeSpec

Answer = str | Completion | BaseException


class ScriptedPolicy:
    """Answers each request with what ``answer`` makes of it.

    Args:
        tokenizer: Reads the prompts and writes the answers.
        answer: From the request and the text of its prompt to an answer. A text is cut at the
            token limit and else ends with the stop token; an exception is raised.
        pauses: How often the event loop turns before the answer comes.
        max_context: Most tokens of prompt and answer.
    """

    def __init__(
        self,
        tokenizer: CharTokenizer,
        answer: Callable[[Request, str], Answer],
        pauses: Callable[[Request], int] = lambda request: 0,
        max_context: int = 100_000,
    ) -> None:
        self.tokenizer, self.answer, self.pauses = tokenizer, answer, pauses
        self.max_context, self.version = max_context, 0
        self.requests: list[Request] = []
        self.released: list[str] = []
        self.in_flight: set[str] = set()
        self.most_in_flight = 0
        self.cancelled = 0

    async def generate(self, request: Request) -> Completion:
        self.requests.append(request)
        self.in_flight.add(request.session)
        self.most_in_flight = max(self.most_in_flight, len(self.in_flight))
        try:
            for _ in range(self.pauses(request)):
                await asyncio.sleep(0)
            answer = self.answer(request, self.tokenizer.decode(list(request.token_ids)))
            if isinstance(answer, BaseException):
                raise answer
            while answer == "hang":
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight.discard(request.session)
        return answer if isinstance(answer, Completion) else self.completion(answer, request)

    def completion(self, text: str, request: Request) -> Completion:
        ids = [*self.tokenizer.encode(text), self.tokenizer.stop_id]
        most = request.sampling.max_tokens
        reason = FinishReason.STOP if len(ids) <= most else FinishReason.LENGTH
        ids = ids[:most]
        draws = np.random.default_rng([abs(part) for part in request.key]).random(len(ids))
        return Completion(
            tuple(ids),
            -draws.astype(np.float32),
            np.full(len(ids), self.version, np.int32),
            reason,
        )

    async def load_weights(self, state: Mapping[str, Any], version: int) -> None:
        self.version = version

    def release(self, session: str) -> None:
        self.released.append(session)

    async def aclose(self) -> None:
        self.requests.clear()


def keyed(request: Request, text: str) -> str:
    """A door that depends on the key of the request alone."""
    return f"open {int(np.random.default_rng(list(request.key)).integers(1, 5))}"


def in_turn(request: Request, text: str) -> str:
    """The doors one after another."""
    return f"open {request.key[-1] + 1}"


def count_pauses(request: Request) -> int:
    """Different for every episode and turn, the same in every run."""
    return sum(request.key[1:]) % 7


class Faulty(ToyDoors):
    """Doors, except where the task has a fault.

    Args:
        faults: Task id to the method that misbehaves and what it does: a function of the
            environment and the proper result.
        kwargs: See :class:`toy_text.ToyDoors`.
    """

    def __init__(
        self, faults: Mapping[str, tuple[str, Callable[[Any, Any], Any]]], **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.faults = faults
        self.closed = False

    def reset(self, *, seed=None, options=None):
        return self._spoil("reset", super().reset(seed=seed, options=options))

    def step(self, action):
        return self._spoil("step", super().step(action))

    def _spoil(self, method: str, result: Any) -> Any:
        where, what = self.faults.get(self.task_id, ("", None))
        return what(self, result) if where == method else result

    def close(self) -> None:
        self.closed = True


def episodes(count: int, *, members: int = 1, seed: int = 0) -> list[EpisodeSpec]:
    """Groups of ``members`` replicas of the training tasks."""
    return [
        EpisodeSpec(f"train-{group % 8}", "train", seed + group, f"group-{group}", member)
        for group in range(count)
        for member in range(members)
    ]
