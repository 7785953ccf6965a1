"""What is read from the outputs of vLLM, in the layout that it gives them."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deselected anyway")
pytestmark = pytest.mark.torch

from adapters.policies.vllm_engine import EngineOptions, VllmEngine  # noqa: E402
from agentgym.policy import Completion, FinishReason, PolicyError  # noqa: E402


class Span:
    def __init__(self, version: str, start: int, end: int) -> None:
        self.version, self.start, self.end = version, start, end


class Flat:
    """The layout of vLLM's flat log-probs: a position may hold more than the sampled token."""

    def __init__(self, values: list[list[float]]) -> None:
        self.logprobs = [value for position in values for value in position]
        self.start_indices, at = [], 0
        for position in values:
            self.start_indices.append(at)
            at += len(position)


def output(reason: str, spans: list[Span] | None, ids: list[int], flat: Flat | None) -> Any:
    class Part:
        token_ids, logprobs, finish_reason, weight_versions = ids, flat, reason, spans

    class Whole:
        outputs = [Part()]  # noqa: RUF012 - vLLM's own shape
        num_cached_tokens = None

    return Whole()


@pytest.mark.parametrize(
    ("mode", "trainable"), [("recompute", None), ("keep", [True, True, False])]
)
def test_versions_are_read_from_spans(mode: Any, trainable: list[bool] | None) -> None:
    async def read() -> Completion:
        engine = VllmEngine(EngineOptions(model="m", max_context=9, on_update=mode))
        flat = Flat([[-0.1], [-0.2, -9.0], [-0.3]])
        spans = [Span("6", 0, 2), Span("7", 2, 3)]
        return engine._completion(output("length", spans, [1, 2, 3], flat), 6)

    answer = asyncio.run(read())
    assert answer.versions.tolist() == [6, 6, 7]
    np.testing.assert_array_equal(answer.logprobs, np.float32([-0.1, -0.2, -0.3]))
    found = None if answer.trainable is None else answer.trainable.tolist()
    assert found == trainable
    assert answer.finish_reason is FinishReason.LENGTH


def test_an_output_without_tokens_and_one_that_went_wrong() -> None:
    async def read(reason: str) -> Completion:
        engine = VllmEngine(EngineOptions(model="m", max_context=9))
        return engine._completion(output(reason, None, [], None), 0)

    answer = asyncio.run(read("abort"))
    assert answer.finish_reason is FinishReason.ABORT
    assert answer.token_ids == ()
    with pytest.raises(RuntimeError, match="ended as 'error'"):
        asyncio.run(read("error"))


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_numbers_that_are_none_are_never_a_sample(value: float) -> None:
    async def read() -> Completion:
        engine = VllmEngine(EngineOptions(model="m", max_context=9))
        spans = [Span("6", 0, 2)]
        return engine._completion(output("length", spans, [1, 2], Flat([[-0.1], [value]])), 6)

    with pytest.raises(PolicyError, match="under the weights of version 6 are not finite"):
        asyncio.run(read())
