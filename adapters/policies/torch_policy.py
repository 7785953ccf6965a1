"""The embedded policy: a transformers model with its own batched sampler, on CPU or CUDA."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch

from adapters.policies.causal_lm import CausalLM
from adapters.policies.engine import Engine, Job
from adapters.policies.models import resolve_model
from agentgym.policy import Completion, FinishReason, PolicyError, Request

__all__ = ["PolicyError", "TorchPolicy", "open_policy"]

# Rounds of the event loop without a new request after which a step begins.
_QUIET_ROUNDS = 2
_MOST_ROUNDS = 64


class TorchPolicy:
    """A :class:`~agentgym.policy.Policy` over a :class:`CausalLM`.

    Concurrent ``generate`` calls of one event loop share forward passes. A session keeps its keys
    and values between calls; where its next prompt starts with the same tokens, only the rest is
    computed. When rows run out, the session that has been silent longest loses its row and is
    recomputed if it comes back.

    Forward steps run inside the event loop that calls ``generate``, which may be a loop of its
    own in any thread; one loop at a time. With one loop, no deadlines and environments that step
    inline, the order of everything is fixed, and the same requests give the same bits. Every
    drawn token has a random number of its own, keyed by the request's key and the token's index,
    so a draw does not depend on what else is in the batch.

    ``load_weights`` may be called from any thread and loop. It takes effect between two forward
    steps; running requests are recomputed from their tokens under the new weights and go on. Each
    token records the version it was sampled under.

    Args:
        lm: The model. It is used in place; give the learner's :meth:`CausalLM.clone` where
            learner and sampler work at the same time.
        max_slots: Rows of the cache: requests that run together and sessions that are kept. Where
            so many of ``max_context`` tokens do not fit into ``cache_bytes``, there are fewer, with
            a warning; requests wait for one another, and what is sampled stays the same.
        max_context: Most tokens of prompt and completion; None takes what the model allows, at
            most 8192.
        device: Where the model goes; None leaves it where it is.
        prefill_tokens: Most tokens of one prefill pass, which bounds its memory.
        threads: Torch threads for one operation on CPU, set in the thread that samples. More
            than one slows small models down. None leaves torch's setting.
        version: Version of the weights at the start.
        cache_bytes: Most memory for keys and values; None takes half of the device's.

    Raises:
        ValueError: If an argument is out of range, or one sequence too long for the memory.
    """

    def __init__(
        self,
        lm: CausalLM,
        *,
        max_slots: int = 64,
        max_context: int | None = None,
        device: str | torch.device | None = None,
        prefill_tokens: int = 4096,
        threads: int | None = 1,
        version: int = 0,
        cache_bytes: int | None = None,
    ) -> None:
        for name, value in (
            ("max_slots", max_slots),
            ("prefill_tokens", prefill_tokens),
            ("cache_bytes", cache_bytes),
        ):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value!r}")
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be >= 1 or None, got {threads!r}")
        allowed = lm.max_positions
        if max_context is None:
            max_context = min(allowed or 8192, 8192)
        if max_context < 2 or (allowed is not None and max_context > allowed):
            raise ValueError(
                f"max_context must lie in 2..{allowed or 'any'} for this model, got {max_context!r}"
            )
        if device is not None:
            lm.model.to(torch.device(device))
        self.lm = lm
        self.stop_token_ids = lm.stop_token_ids()
        self._threads = threads if lm.device.type == "cpu" else None
        self._set_threads()
        self._engine = Engine(lm, max_slots, max_context, prefill_tokens, version, cache_bytes)
        self._pump: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrivals = 0
        self._closed = False
        # Held while the model computes or changes. Updates that find it taken are left for its
        # holder, who looks again after letting go, so none is ever forgotten.
        self._busy = threading.Lock()
        self._updates: deque[tuple[Mapping[str, Any], int, Future[None]]] = deque()
        self._released: deque[str] = deque()

    # The protocol -----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Version of the weights in use."""
        return self._engine.version

    @property
    def max_context(self) -> int:
        """Most tokens of prompt and completion together."""
        return self._engine.max_context

    @property
    def stats(self) -> dict[str, int]:
        """Totals since the start.

        ``prefill_tokens`` and ``decode_tokens`` were computed, ``reused_tokens`` found in the
        cache; ``passes`` (forward passes), ``completions``, ``evictions``, ``weight_updates``.
        """
        return dict(self._engine.counters)

    async def generate(self, request: Request) -> Completion:
        """Continue ``request.token_ids``; see :meth:`agentgym.policy.Policy.generate`.

        Cancelling the call frees its row. Where the request names no stop tokens, those of the
        model and its chat template end the answer.

        Raises:
            ValueError: If the prompt is empty or holds an id outside the vocabulary.
            PolicyError: If the sampler fails or the policy is closed.
        """
        job = self._job(request)
        if len(job.prompt) >= self.max_context:
            none = np.zeros(0, np.float32)
            return Completion((), none, none.astype(np.int32), FinishReason.CONTEXT_OVERFLOW)
        loop = self._enter_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        job.owner = future
        self._engine.submit(job)
        self._arrivals += 1
        if self._pump is None or self._pump.done():
            self._pump = loop.create_task(self._run())
        try:
            return await future
        finally:
            if not future.done() or future.cancelled():
                self._engine.cancel(job)

    async def load_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Replace the weights; returns when the new ones are in use.

        Args:
            state: Tensors by name, as in ``model.state_dict()``; tied copies may be left out.
            version: Their version.

        Raises:
            ValueError: If names or shapes do not fit; the weights in use stay.
        """
        self.lm.check_state(state)
        if self._busy.acquire(blocking=False):
            try:
                self._drain_updates()  # older ones first
                self._engine.set_weights(state, version)
            finally:
                self._busy.release()
            self._apply_updates()
            return
        # A step is running in another thread. The caller may change its tensors once we wait.
        with torch.no_grad():
            copy = {name: torch.as_tensor(value).clone() for name, value in state.items()}
        applied: Future[None] = Future()
        self._updates.append((copy, version, applied))
        self._apply_updates()
        await asyncio.wrap_future(applied)

    def release(self, session: str) -> None:
        """Forget a session's cache; unknown sessions are ignored. Callable from any thread."""
        self._released.append(session)

    async def aclose(self) -> None:
        """Stop the sampler; calls in flight end with :class:`PolicyError`."""
        self._closed = True
        self._fail_all(PolicyError("the policy was closed"))
        if self._loop is asyncio.get_running_loop() and self._pump is not None:
            self._pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pump

    # The sampling loop ------------------------------------------------------------------------

    def _job(self, request: Request) -> Job:
        if self._closed:
            raise PolicyError("the policy is closed")
        prompt = np.asarray(request.token_ids)
        if prompt.ndim != 1 or not len(prompt) or prompt.dtype.kind not in "iu":
            raise ValueError(
                f"a prompt is a non-empty flat sequence of token ids, got {prompt.dtype} of shape "
                f"{prompt.shape}"
            )
        low, high = int(prompt.min()), int(prompt.max())
        if low < 0 or high >= self.lm.vocab_size:
            raise ValueError(
                f"token id {low if low < 0 else high} is outside the vocabulary "
                f"0..{self.lm.vocab_size - 1}"
            )
        stops = tuple(request.sampling.stop_token_ids or self.stop_token_ids)
        for token in stops:
            if not 0 <= token < self.lm.vocab_size:
                raise ValueError(
                    f"stop token {token} is outside the vocabulary 0..{self.lm.vocab_size - 1}"
                )
        return Job(request, prompt.astype(np.int32, copy=False), stops)

    def _enter_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None and self._engine.busy:
                if not self._loop.is_closed():
                    raise PolicyError("this policy is serving another event loop")
                with self._busy:
                    self._engine.reset()  # its callers went with their loop
            self._loop, self._pump = loop, None
        return loop

    async def _run(self) -> None:
        """Step while there is work; every job ends with a result or an error."""
        try:
            self._set_threads()
            while True:
                await self._settle()
                if not self._engine.busy:
                    return
                with self._busy:
                    while self._released:
                        self._engine.release(self._released.popleft())
                    done = self._engine.step()
                self._apply_updates()
                for job in done:
                    if not job.owner.done():
                        job.owner.set_result(job.completion)
        except asyncio.CancelledError:
            self._fail_all(PolicyError("the sampling loop was cancelled"))
            raise
        except Exception as error:
            self._fail_all(error)

    async def _settle(self) -> None:
        """Let every coroutine that can go on do so: the next batch then holds its request."""
        quiet = 0
        for _ in range(_MOST_ROUNDS):
            before = self._arrivals
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._arrivals == before else 0
            if quiet == _QUIET_ROUNDS:
                return

    def _fail_all(self, cause: BaseException) -> None:
        jobs = self._engine.jobs()
        with self._busy:
            self._engine.reset()
        for job in jobs:
            if job.owner is None or job.owner.done():
                continue
            error = cause if isinstance(cause, PolicyError) else None
            if error is None:
                error = PolicyError(f"the sampler failed: {cause!r}")
                error.__cause__ = cause
            with contextlib.suppress(RuntimeError):  # its loop may be gone
                job.owner.set_exception(error)

    def _apply_updates(self) -> None:
        while self._updates:
            if not self._busy.acquire(blocking=False):
                return  # its holder looks again after letting go
            try:
                self._drain_updates()
            finally:
                self._busy.release()

    def _drain_updates(self) -> None:
        while self._updates:
            state, version, applied = self._updates.popleft()
            if not applied.set_running_or_notify_cancel():
                continue
            try:
                self._engine.set_weights(state, version)
            except Exception as error:
                applied.set_exception(error)
            else:
                applied.set_result(None)

    def _set_threads(self) -> None:
        if self._threads is not None and torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)


def open_policy(
    *,
    model: str,
    env_id: str,
    env_args: Mapping[str, Any] | None = None,
    slots: int = 64,
    max_context: int | None = None,
    device: str | None = None,
    threads: int = 1,
    say: Callable[[str], None] = print,
) -> tuple[TorchPolicy, Any]:
    """The policy and the tokenizer its prompts are rendered with, for command lines.

    Args:
        model: ``tiny``, a folder, or a hub id; see :func:`adapters.policies.models.resolve_model`.
        env_id: Environment that it is to act in.
        env_args: The environment's arguments.
        slots: Requests that run together.
        max_context: Most tokens of prompt and answer.
        device: Torch device; None takes CUDA where there is one.
        threads: Torch threads for one operation on CPU.
        say: Is told what takes time.
    """
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    lm = resolve_model(model, env_id, env_args, device=place, dtype="auto", say=say)
    policy = TorchPolicy(lm, max_slots=slots, max_context=max_context, threads=threads)
    return policy, lm.tokenizer
