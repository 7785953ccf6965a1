"""One vLLM engine: started, asked, given new weights, and found out when it dies."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adapters.policies.draws import fold_key
from adapters.policies.vllm_version import check_vllm
from agentgym.policy import Completion, FinishReason, Request

__all__ = ["EngineDied", "EngineOptions", "VllmEngine", "Weights"]

OnUpdate = Literal["recompute", "keep", "abort", "wait"]

_FINISH = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.ABORT,
}
_WORKER = "adapters.policies.vllm_worker.WorkerExtension"
_BACKEND = "agentgym-file"
# By its path: under its short name vLLM puts a worker process in its place on CPU, to bind threads
# to cores. Two processes that wait for each other in a loop take turns badly on few cores.
_ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"

_LAUNCHING = threading.Lock()
# Arguments of vLLM's without whose values the policy's promises would not hold.
_SETTLED = frozenset(
    {
        "generation_config",
        "logprobs_mode",
        "override_generation_config",
        "skip_tokenizer_init",
        "weight_transfer_config",
        "worker_extension_cls",
    }
)


class EngineDied(RuntimeError):
    """The engine's process is gone."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights in use.

    Attributes:
        version: Their version.
        path: A safetensors file; None where they are those of the model's folder.
        serial: Number of the publication: other weights may have the same version.
    """

    version: int
    path: Path | None = None
    serial: int = 0


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How engines are set up.

    Attributes:
        model: Model folder, or hub id.
        max_context: Most tokens of prompt and completion.
        slots: Most requests that an engine works on at a time.
        dtype: Type of weights and computation; ``auto`` takes the model's, and float32 on CPU.
        on_update: What becomes of running requests when new weights come: ``recompute`` drops
            their cached keys and values, reads their tokens again under the new weights and goes
            on; ``keep`` goes on with the old ones (tokens that follow are marked as not
            trainable); ``abort`` ends them with what they have; ``wait`` lets them end first.
        prefix_cache: Reuse keys and values of equal beginnings; never across weight versions.
        keyed_draws: Seed every request by its key, so that a draw does not depend on what else is
            in the batch. Costs a little speed on a GPU.
        memory: Share of a GPU's memory that an engine takes; what a learner on the same GPU needs
            has to be left.
        cache_gib: GiB of keys and values on CPU.
        threads: Threads of an operation on CPU.
        tensor_parallel: GPUs that one engine spans.
        eager: Run without compilation and CUDA graphs; None does so on CPU alone.
        engine_args: Further arguments of vLLM's ``EngineArgs``.
    """

    model: str
    max_context: int
    slots: int = 64
    dtype: str = "auto"
    on_update: OnUpdate = "recompute"
    prefix_cache: bool = True
    keyed_draws: bool = True
    memory: float = 0.85
    cache_gib: int = 1
    threads: int = 1
    tensor_parallel: int = 1
    eager: bool | None = None
    engine_args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("max_context", "slots", "threads", "tensor_parallel", "cache_gib"):
            least = 2 if name == "max_context" else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be >= {least}, got {getattr(self, name)!r}")
        if self.on_update not in ("recompute", "keep", "abort", "wait"):
            raise ValueError(
                f"on_update must be recompute, keep, abort or wait, got {self.on_update!r}"
            )
        if not 0 < self.memory <= 1:
            raise ValueError(f"memory must lie in (0, 1], got {self.memory!r}")
        for name in _SETTLED & set(self.engine_args):
            raise ValueError(
                f"engine_args must leave {name} alone: log-probs and weight updates rest on it"
            )


class VllmEngine:
    """One engine in a process of its own; all methods belong to one event loop.

    Args:
        options: How it is set up.
        devices: ``CUDA_VISIBLE_DEVICES`` of its process; None leaves it as it is.
    """

    def __init__(self, options: EngineOptions, devices: str | None = None) -> None:
        self.options, self.devices = options, devices
        self.weights: Weights | None = None
        self.pids: frozenset[int] = frozenset()
        self._llm: Any = None
        self._serial = itertools.count()
        self._open = asyncio.Event()  # closed while weights are replaced
        self._updating = asyncio.Lock()
        self._calls: set[asyncio.Task[Any]] = set()
        self._watcher: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether the engine was started and has not died."""
        return self._llm is not None and not self._llm.errored

    # Life -------------------------------------------------------------------------------------

    async def start(self, weights: Weights) -> None:
        """Start the process and give it weights; takes many seconds.

        Raises:
            ImportError: If vLLM is missing or of another series.
            RuntimeError: If it does not start; vLLM's own words are the cause.
        """
        check_vllm()
        # It blocks until the process is ready; other engines go on meanwhile.
        self._llm = await asyncio.get_running_loop().run_in_executor(None, self._launch)
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        self._watcher = asyncio.create_task(self._watch(self._llm))
        await self._llm.init_weight_transfer_engine(WeightTransferInitRequest({}))
        if weights.path is not None:
            await self.update(weights)
        else:
            await self._llm.update_weight_version(str(weights.version))
            self.weights = weights
            self._open.set()

    def _launch(self) -> Any:
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM

        cpu = current_platform.is_cpu()
        # One at a time: what a process inherits is this process's environment for the moment.
        with _LAUNCHING, _environment(self.options, self.devices, cpu):
            before = _children()
            llm = AsyncLLM.from_engine_args(self._arguments(cpu))
            self.pids = frozenset(_children() - before)
        return llm

    def stop(self) -> None:
        """End the process."""
        self._open.clear()
        if self._watcher is not None:
            self._watcher.cancel()
        llm, self._llm = self._llm, None
        if llm is not None:
            llm.shutdown()

    def wake(self) -> None:
        """Let those who wait for an engine that will not come back find out."""
        self._open.set()

    # Work -------------------------------------------------------------------------------------

    async def generate(self, request: Request, stops: tuple[int, ...]) -> Completion:
        """Continue a prompt that leaves room for at least one token.

        Raises:
            EngineDied: If the process is gone.
        """
        from vllm.inputs import tokens_input

        await self._open.wait()
        llm = self._llm
        weights = self.weights
        if not self.running or weights is None:
            raise EngineDied("the engine has stopped")
        prompt = tokens_input(
            [int(token) for token in request.token_ids],
            # Cached keys and values of other weights are never found.
            cache_salt=f"weights {weights.serial}",
        )
        last: Any = None
        name = f"{request.session or ''}/{next(self._serial)}"
        async with self._call(llm):
            async for output in llm.generate(prompt, self._sampling(request, stops), name):
                last = output
        return self._completion(last, weights.version)

    async def update(self, weights: Weights) -> None:
        """Replace the weights; running requests fare as the options say.

        Raises:
            EngineDied: If the process is gone.
        """
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        mode = self.options.on_update
        pause = "keep" if mode == "recompute" else mode
        async with self._updating:
            llm = self._llm
            self._open.clear()
            async with self._call(llm):
                # Clearing the cache sends kept requests back to the queue, to be read anew.
                await llm.pause_generation(mode=pause, clear_cache=mode != "keep")
                await llm.start_weight_update()
                await llm.update_weights(WeightTransferUpdateRequest({"path": str(weights.path)}))
                await llm.finish_weight_update(weight_version=str(weights.version))
                await llm.resume_generation()
            self.weights = weights
            self._open.set()

    # Death ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _call(self, llm: Any) -> AsyncIterator[None]:
        """A call into the engine; its death ends the call as :class:`EngineDied`."""
        from vllm.v1.engine.exceptions import EngineDeadError

        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            yield
        except EngineDeadError as error:
            raise EngineDied(str(error)) from error
        except asyncio.CancelledError:
            if not llm.errored:
                raise  # the caller has lost interest
            task.uncancel()
            raise EngineDied("the engine's process has ended") from None
        finally:
            self._calls.discard(task)

    async def _watch(self, llm: Any) -> None:
        """End all calls when the engine dies: vLLM leaves some of them waiting."""
        while not llm.errored:
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)  # its own errors first
        for task in list(self._calls):
            task.cancel()

    # Between the suite and vLLM ---------------------------------------------------------------

    def _arguments(self, cpu: bool) -> Any:
        from vllm.config import WeightTransferConfig
        from vllm.engine.arg_utils import AsyncEngineArgs

        options = self.options
        chosen: dict[str, Any] = {
            "model": options.model,
            "skip_tokenizer_init": True,
            "dtype": "float32" if cpu and options.dtype == "auto" else options.dtype,
            "max_model_len": options.max_context,
            "max_num_seqs": options.slots,
            "enforce_eager": cpu if options.eager is None else options.eager,
            "enable_prefix_caching": options.prefix_cache,
            "tensor_parallel_size": options.tensor_parallel,
            "worker_extension_cls": _WORKER,
            "weight_transfer_config": WeightTransferConfig(backend=_BACKEND),
            # Log-probs of the distribution that was sampled, temperature included.
            "logprobs_mode": "processed_logprobs",
            # What a model's folder recommends for sampling would bend the distribution.
            "generation_config": "vllm",
            "disable_log_stats": True,
            "enable_log_requests": False,
        }
        if not cpu:
            chosen["gpu_memory_utilization"] = options.memory
        else:
            # A prompt cut into chunks winds its seeded generator back, which those of CPU refuse.
            chosen["enable_chunked_prefill"] = False
            chosen["max_num_batched_tokens"] = max(options.max_context, 2048)
        if cpu and options.tensor_parallel == 1:
            chosen["distributed_executor_backend"] = _ONE_PROCESS
        return AsyncEngineArgs(**(chosen | dict(options.engine_args)))

    def _sampling(self, request: Request, stops: tuple[int, ...]) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = request.sampling
        keyed = self.options.keyed_draws and request.key
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=1.0,
            top_k=0,
            min_p=0.0,
            repetition_penalty=1.0,
            max_tokens=min(sampling.max_tokens, self.options.max_context - len(request.token_ids)),
            stop_token_ids=list(stops),
            ignore_eos=True,  # the stop tokens alone end an answer
            seed=fold_key(request.key) >> 1 if keyed else None,
            logprobs=0,  # of the sampled token alone
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _completion(self, output: Any, submitted: int) -> Completion:
        answer = output.outputs[0]
        reason = answer.finish_reason
        if reason not in _FINISH:
            raise RuntimeError(f"a request ended as {reason!r}")
        ids = tuple(int(token) for token in answer.token_ids)
        flat = answer.logprobs
        # A position holds the sampled token first.
        logprobs = [flat.logprobs[start] for start in flat.start_indices] if ids else []
        versions = np.full(len(ids), submitted, np.int32)
        for span in answer.weight_versions or ():
            versions[span.start : span.end] = int(span.version)
        trainable = None
        if self.options.on_update == "keep" and bool((versions != submitted).any()):
            trainable = versions == submitted
        return Completion(
            ids,
            np.asarray(logprobs[: len(ids)], np.float32),
            versions,
            _FINISH[reason],
            trainable,
            {"cached_tokens": int(output.num_cached_tokens or 0)},
        )


@contextmanager
def _environment(options: EngineOptions, devices: str | None, cpu: bool) -> Iterator[None]:
    """Variables that the engine's process inherits; what the user has set stays."""
    wanted = {
        # A process of its own from the start: a forked one would inherit torch's threads.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        # A busy machine may take long for a step; five minutes were seen to be too few.
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800",
        "VLLM_CPU_KVCACHE_SPACE": f"{options.cache_gib}",
        # Binding to cores would put all engines, and the learner, on the same ones.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(options.threads),
    }
    if cpu and options.eager is not False:
        # Its sampler would be compiled all the same, with a compiler that may not be there.
        wanted["TORCH_COMPILE_DISABLE"] = "1"
    added = [name for name in wanted if name not in os.environ]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ.update({name: wanted[name] for name in added})
    if devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
        if devices is not None:
            if visible is None:
                os.environ.pop("CUDA_VISIBLE_DEVICES", None)
            else:
                os.environ["CUDA_VISIBLE_DEVICES"] = visible


def _children() -> set[int]:
    """Process ids of this process's children, where the platform tells.

    The process that cleans up after multiprocessing is no engine, and outlives them.
    """
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has just ended
            found |= {int(word) for word in file.read_text().split()}
    for pid in list(found):
        with suppress(OSError):
            if b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.discard(pid)
    return found
