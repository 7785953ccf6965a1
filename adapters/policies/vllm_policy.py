"""The policy over vLLM: several engines, sticky sessions, weights in flight, engines that die."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from adapters.policies.causal_lm import CausalLM
from adapters.policies.models import resolve_model
from adapters.policies.owned_folders import OwnedFolder
from adapters.policies.vllm_engine import (
    EngineDied,
    EngineOptions,
    VllmEngine,
    Weights,
    check_temperature,
)
from adapters.policies.vllm_version import check_vllm
from adapters.policies.weight_files import bases, roomy, write
from agentgym.policy import Completion, FinishReason, PolicyError, Request

__all__ = ["VllmPolicy", "open_policy", "place_engines"]

T = TypeVar("T")


class VllmPolicy:
    """A :class:`~agentgym.policy.Policy` over vLLM's asynchronous engine, on CPU or CUDA.

    Token ids go in and come out; log-probs are those of the sampling distribution at its
    temperature; every token has the version of the weights that it was sampled under. Engines are
    processes of their own; a session stays with the engine it began on, whose cache holds its
    earlier turns.

    New weights travel through vLLM's weight transfer interface as a file in shared memory. All
    engines get them at the same time, and no cached keys and values of older weights are used
    afterwards (but for ``on_update="keep"``, whose tokens are then marked). An engine that dies is
    started again with the weights in use, and what it was working on is asked for again: equal
    requests give equal draws, so an episode goes on as if nothing had happened.

    The engines' side runs on a thread of its own, so that ``generate`` and ``load_weights`` may be
    called from any thread and event loop.

    Args:
        options: How engines are set up; ``options.model`` has the weights they start with.
        stop_token_ids: Tokens that end an answer where a request names none.
        engines: How many engines.
        devices: ``CUDA_VISIBLE_DEVICES`` of each engine; None leaves them as they are.
        shapes: Shape of every weight by name, to verify what ``load_weights`` is given.
        tied: Names that may be left out of it, being copies of others.
        restarts: How often engines may die, all together, before the policy fails.
        version: Version of the weights at the start.
        own_folder: Folder that goes with the policy, such as that of a model saved for it.

    Raises:
        ImportError: If vLLM is missing or of another series.
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        stop_token_ids: tuple[int, ...],
        engines: int = 1,
        devices: tuple[str, ...] | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        tied: frozenset[str] = frozenset(),
        restarts: int = 3,
        version: int = 0,
        own_folder: OwnedFolder | None = None,
    ) -> None:
        check_vllm()
        if engines < 1:
            raise ValueError(f"engines must be >= 1, got {engines!r}")
        if devices is not None and len(devices) != engines:
            raise ValueError(f"{len(devices)} devices are given for {engines} engines")
        if restarts < 0:
            raise ValueError(f"restarts must be >= 0, got {restarts!r}")
        self.options, self.stop_token_ids = options, stop_token_ids
        self._shapes = dict(shapes) if shapes is not None else None
        self._tied = tied
        self._weights = Weights(version)
        self._restarts_left = restarts
        self._failure: PolicyError | None = None
        self._closed = False
        self._seats: dict[str, int] = {}  # session to engine
        self._load = [0] * engines
        self._seating = threading.Lock()
        #: Totals: ``completions``, ``prompt_tokens``, ``cached_tokens``, ``completion_tokens``,
        #: ``weight_updates``, ``restarts``, ``asked_again``.
        self.stats: Counter[str] = Counter()
        self._folders = [OwnedFolder("agentgym-weights", base) for base in bases()]
        self._own_folder = own_folder
        self._replacing = asyncio.Lock()
        self._publications = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="agentgym-vllm", daemon=True)
        self._thread.start()
        self._engines: list[VllmEngine] = []
        self._lives: list[asyncio.Task[None] | None] = [None] * engines
        self._make(devices)

    @classmethod
    def around(
        cls, lm: CausalLM, *, max_context: int, model: str | None = None, **settings: Any
    ) -> VllmPolicy:
        """A policy that starts with a model's weights.

        Args:
            lm: The model.
            max_context: Most tokens of prompt and completion.
            model: Folder or hub id that holds this very model; None saves it for the engines.
            settings: Arguments of :class:`EngineOptions` and of this class.
        """
        check_vllm()
        names = set(EngineOptions.__dataclass_fields__)
        options = {name: value for name, value in settings.items() if name in names}
        others = {name: value for name, value in settings.items() if name not in names}
        folder = None
        if model is None:
            folder = OwnedFolder("agentgym-model")
            model = str(lm.save(folder.path / "model"))
        shapes = {name: tuple(value.shape) for name, value in lm.model.state_dict().items()}
        return cls(
            EngineOptions(model=model, max_context=max_context, **options),
            stop_token_ids=lm.stop_token_ids(),
            shapes=shapes,
            tied=frozenset(getattr(lm.model, "all_tied_weights_keys", None) or ()),
            own_folder=folder,
            **others,
        )

    # The protocol -----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Version of the weights in use."""
        return self._weights.version

    @property
    def max_context(self) -> int:
        """Most tokens of prompt and completion together."""
        return self.options.max_context

    @property
    def pids(self) -> frozenset[int]:
        """Process ids of the engines that are running."""
        return frozenset().union(*(engine.pids for engine in self._engines if engine.running))

    async def generate(self, request: Request) -> Completion:
        """Continue ``request.token_ids``; see :meth:`agentgym.policy.Policy.generate`.

        Raises:
            ValueError: If the prompt is empty or holds an id outside the vocabulary, or vLLM does
                not sample as is asked (temperatures from 0.01 to 2, or 0).
            PolicyError: If engines died too often, what they compute is not finite, or the policy
                is closed.
        """
        if not len(request.token_ids):
            raise ValueError("a prompt is a non-empty sequence of token ids")
        check_temperature(request.sampling)
        if len(request.token_ids) >= self.max_context:
            none = np.zeros(0, np.float32)
            return Completion((), none, none.astype(np.int32), FinishReason.CONTEXT_OVERFLOW)
        # Here, before the caller can release the session again.
        number = self._seat(request.session)
        return await self._on_thread(self._generate(request, number))

    async def load_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Replace the weights of all engines; returns when the new ones are in use.

        Raises:
            ValueError: If names or shapes do not fit, or numbers are not finite; the weights in use
                stay.
            PolicyError: If engines died too often, or one refuses the weights.
        """
        await asyncio.to_thread(self._check_state, state)
        name = f"version-{version}.{next(self._publications)}.safetensors"
        path = roomy([folder.path for folder in self._folders], state) / name
        # Gigabytes take seconds, and the caller's loop may have episodes to play.
        await asyncio.to_thread(write, state, path)
        await self._on_thread(self._replaced(version, path))

    def release(self, session: str) -> None:
        """Forget where a session's cache is; unknown sessions are ignored."""
        with self._seating:
            engine = self._seats.pop(session, None)
            if engine is not None:
                self._load[engine] -= 1

    async def start(self) -> None:
        """Start the engines now instead of with the first request."""
        await self._on_thread(self._all_alive())

    async def aclose(self) -> None:
        """Stop the engines; calls in flight end with :class:`PolicyError`."""
        if self._closed:
            return
        self._closed = True
        self._failure = self._failure or PolicyError("the policy is closed")
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._stop(), self._loop))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=60)
        # What is left of vLLM's engines refers to itself, and tidies up when it is collected. At
        # the end of the interpreter that fails, aloud.
        gc.collect()
        for folder in (*self._folders, self._own_folder):
            if folder is not None:
                folder.remove()

    # On the engines' thread -------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _make(self, devices: tuple[str, ...] | None) -> None:
        async def make() -> None:
            for number in range(len(self._load)):
                place = None if devices is None else devices[number]
                self._engines.append(VllmEngine(self.options, place))

        asyncio.run_coroutine_threadsafe(make(), self._loop).result()

    async def _on_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work on the engines' loop; cancelling the caller cancels it."""
        if self._closed:
            work.close()
            raise PolicyError("the policy is closed")
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise PolicyError("the policy is closed") from None
            raise

    async def _generate(self, request: Request, number: int) -> Completion:
        while True:
            await self._alive(number)
            try:
                completion = await self._engines[number].generate(request, self._stops(request))
            except EngineDied as death:
                self._bury(number, death)
                self.stats["asked_again"] += 1
                continue
            self.stats["completions"] += 1
            self.stats["prompt_tokens"] += len(request.token_ids)
            self.stats["cached_tokens"] += completion.details["cached_tokens"]
            self.stats["completion_tokens"] += len(completion.token_ids)
            return completion

    async def _replaced(self, version: int, path: Path) -> None:
        # To be cancelled halfway would leave engines paused.
        await asyncio.shield(asyncio.ensure_future(self._replace(version, path)))

    async def _replace(self, version: int, path: Path) -> None:
        async with self._replacing:
            old = self._weights
            weights = self._weights = Weights(version, path, old.serial + 1)
            await self._all_alive()
            results = await asyncio.gather(
                *(self._update(number, weights) for number in range(len(self._engines))),
                return_exceptions=True,
            )
            for result in results:
                if isinstance(result, BaseException):
                    error = result
                    if not isinstance(error, PolicyError):
                        error = PolicyError(f"an engine refused the weights: {result!r}")
                        error.__cause__ = result
                    self._fail(error)
                    raise error
            if old.path is not None:
                old.path.unlink(missing_ok=True)
            self.stats["weight_updates"] += 1

    async def _update(self, number: int, weights: Weights) -> None:
        while self._engines[number].weights != weights:
            try:
                await self._engines[number].update(weights)
            except EngineDied as death:
                self._bury(number, death)
                await self._alive(number)  # it comes back with the new weights

    def _stops(self, request: Request) -> tuple[int, ...]:
        return tuple(request.sampling.stop_token_ids or self.stop_token_ids)

    def _seat(self, session: str | None) -> int:
        """The engine of a session; the emptiest for a new one."""
        with self._seating:
            number = None if session is None else self._seats.get(session)
            if number is None:
                number = min(range(len(self._load)), key=self._load.__getitem__)
                if session is not None:
                    self._seats[session] = number
                    self._load[number] += 1
            return number

    # Life and death ---------------------------------------------------------------------------

    async def _all_alive(self) -> None:
        for number in range(len(self._engines)):
            await self._alive(number)

    async def _alive(self, number: int) -> None:
        """Wait until an engine runs; the first to come starts it."""
        if self._failure is not None:
            raise self._failure
        task = self._lives[number]
        if task is None:
            task = asyncio.ensure_future(self._start(number))
            self._lives[number] = task
        await asyncio.shield(task)

    async def _start(self, number: int) -> None:
        engine = self._engines[number]
        while True:
            try:
                return await engine.start(self._weights)
            except EngineDied as death:
                engine.stop()
                self._count(death)
            except Exception as error:
                failure = PolicyError(f"vLLM's engine does not start: {error}")
                failure.__cause__ = error
                self._fail(failure)
                raise failure from error

    def _bury(self, number: int, death: EngineDied) -> None:
        """Take note of a death; whoever needs the engine next starts it again.

        Raises:
            PolicyError: If engines died too often.
        """
        if self._failure is not None:
            raise self._failure
        engine = self._engines[number]
        life = self._lives[number]
        if engine.running or life is None or not life.done():
            return  # somebody else has seen to it
        engine.stop()
        self._lives[number] = None
        self._count(death)

    def _count(self, death: EngineDied) -> None:
        if self._closed:
            raise PolicyError("the policy is closed") from death
        self._restarts_left -= 1
        if self._restarts_left < 0:
            failure = PolicyError(
                f"vLLM's engine died once more, after {self.stats['restarts']} restarts: {death}"
            )
            failure.__cause__ = death
            self._fail(failure)
            raise failure
        self.stats["restarts"] += 1

    def _fail(self, failure: PolicyError) -> None:
        self._failure = self._failure or failure
        for engine in self._engines:
            engine.wake()

    async def _stop(self) -> None:
        for engine in self._engines:
            engine.stop()
        waiting = [
            task
            for task in asyncio.all_tasks(self._loop)
            if task is not asyncio.current_task(self._loop)
        ]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    # Weights ----------------------------------------------------------------------------------

    def _check_state(self, state: Mapping[str, Any]) -> None:
        shapes = self._shapes
        if shapes is None:
            shapes = {name: tuple(value.shape) for name, value in state.items()}
        known = {name: value for name, value in state.items() if name in shapes}
        problems = {
            "unknown": sorted(set(state) - set(known)),
            "missing": sorted(set(shapes) - set(state) - self._tied),
            "misshapen": [
                f"{name} {tuple(value.shape)} for {shapes[name]}"
                for name, value in known.items()
                if tuple(value.shape) != shapes[name]
            ],
            # In an engine's cache they would outlive the weights.
            "not finite": [
                name
                for name, value in known.items()
                if not bool(torch.isfinite(torch.as_tensor(value)).all())
            ],
        }
        for problem, names in problems.items():
            if names:
                shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
                raise ValueError(f"{len(names)} {problem} weights: {shown}")


def place_engines(engines: int) -> tuple[str, ...] | None:
    """Which GPU each engine gets: those beside the learner's, which is the first, in turn.

    Returns:
        ``CUDA_VISIBLE_DEVICES`` of each engine; None where there are not several GPUs.
    """
    if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
        return None
    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",")[:count] if visible else [str(number) for number in range(count)]
    return tuple(names[(number + 1) % count].strip() for number in range(engines))


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
) -> tuple[VllmPolicy, Any]:
    """The policy and the tokenizer its prompts are rendered with, for command lines.

    Args:
        model: ``tiny``, a folder, or a hub id; see :func:`adapters.policies.models.resolve_model`.
        env_id: Environment that it is to act in.
        env_args: The environment's arguments.
        slots: Requests that run together.
        max_context: Most tokens of prompt and answer.
        device: Unused: vLLM takes the device that it was built for.
        threads: Threads of an operation on CPU.
        say: Is told what takes time.
    """
    check_vllm()
    lm = resolve_model(model, env_id, env_args, device="cpu", dtype="auto", say=say)
    longest = min(lm.max_positions or 8192, 8192)
    say("starting vLLM")
    policy = VllmPolicy.around(
        lm,
        max_context=max_context or longest,
        model=None if model == "tiny" else model,
        slots=slots,
        threads=threads,
    )
    return policy, lm.tokenizer
