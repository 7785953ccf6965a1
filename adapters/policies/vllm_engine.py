"""One vLLM engine: started, asked, given new weights, and found out when it dies."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from adapters.policies.draws import fold_key
from adapters.policies.vllm_life import EngineDied, Launch, Life
from adapters.policies.vllm_version import check_vllm
from agentgym.policy import Completion, FinishReason, PolicyError, Request, Sampling

__all__ = ["EngineDied", "EngineOptions", "VllmEngine", "Weights", "check_temperature"]

T = TypeVar("T")

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

# What vLLM samples at: below, it would take the lower bound without a word, and not at all above.
_TEMPERATURES = (0.01, 2.0)
# Arguments of vLLM's without whose values the policy's promises would not hold.
_SETTLED = frozenset(
    {
        "generation_config",
        "logprobs_mode",
        "max_model_len",
        "model",
        "override_generation_config",
        "skip_tokenizer_init",
        "weight_transfer_config",
        "worker_extension_cls",
    }
)


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
        silence: Seconds without a sign of life after which an engine is taken for hung, and ended
            like one that died. A step of the engine has to be shorter.
        start_deadline: Seconds in which an engine has to be ready, with all that it downloads and
            compiles.
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
    silence: float = 600.0
    start_deadline: float = 3600.0
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
        for name in ("silence", "start_deadline"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}")
        for name in _SETTLED & set(self.engine_args):
            raise ValueError(
                f"engine_args must leave {name} alone: log-probs, weight updates or the room for "
                "prompts rest on it"
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
        self._life: Life | None = None
        self._launch: Launch | None = None
        self._vocabulary = 0
        self._serial = itertools.count()
        self._open = asyncio.Event()  # closed while weights are replaced
        self._updating = asyncio.Lock()

    @property
    def running(self) -> bool:
        """Whether the engine was started and has not died."""
        return self._life is not None and self._life.running

    # Life -------------------------------------------------------------------------------------

    async def start(self, weights: Weights) -> None:
        """Start the process and give it weights; takes many seconds.

        Raises:
            ImportError: If vLLM is missing or of another series.
            EngineDied: If it was killed meanwhile, or is not ready in time.
            RuntimeError: If it does not start; vLLM's own words are the cause.
        """
        check_vllm()
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest
        from vllm.platforms import current_platform

        cpu = current_platform.is_cpu()
        environ = _environment(self.options, cpu)
        self._launch = launch = Launch(environ, self.devices, self.options.start_deadline)
        # It blocks until the process is ready; other engines go on meanwhile.
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, launch.run, lambda: self._make(cpu))
        self._launch = None
        self.pids, llm, launch.llm = launch.pids, launch.llm, None
        self._life = life = Life(llm, self.options.silence)
        self._vocabulary = int(llm.model_config.get_vocab_size())
        await life.call(llm.init_weight_transfer_engine(WeightTransferInitRequest({})))
        if weights.path is not None:
            await self.update(weights)
        else:
            await life.call(llm.update_weight_version(str(weights.version)))
            self.weights = weights
            self._open.set()

    def _make(self, cpu: bool) -> Any:
        from vllm.v1.engine.async_llm import AsyncLLM

        return AsyncLLM.from_engine_args(self._arguments(cpu))

    def stop(self) -> None:
        """End the process, also one that is only starting."""
        self._open.clear()
        self.weights = None
        if self._launch is not None:
            self._launch.give_up("the engine was stopped")
        life, self._life = self._life, None
        if life is not None:
            life.end("the engine was stopped")

    def wake(self) -> None:
        """Let those who wait for an engine that will not come back find out."""
        self._open.set()

    # Work -------------------------------------------------------------------------------------

    async def generate(self, request: Request, stops: tuple[int, ...]) -> Completion:
        """Continue a prompt that leaves room for at least one token.

        Raises:
            EngineDied: If the process is gone.
            PolicyError: If what it computes is not finite.
            ValueError: If the prompt is not one of the model's, or vLLM does not sample so.
        """
        from vllm.inputs import tokens_input

        if not self.running:
            raise EngineDied("the engine has stopped")
        await self._open.wait()
        life, weights = self._life, self.weights
        if life is None or not life.running or weights is None:
            raise EngineDied("the engine has stopped")
        check_temperature(request.sampling)
        prompt = tokens_input(
            self._checked(request.token_ids),
            # Cached keys and values of other weights are never found.
            cache_salt=f"weights {weights.serial}",
        )
        name = f"{request.session or ''}/{next(self._serial)}"
        answers = life.llm.generate(prompt, self._sampling(request, stops), name)
        return self._completion(await life.call(_last(answers)), weights.version)

    async def update(self, weights: Weights) -> None:
        """Replace the weights; running requests fare as the options say.

        Raises:
            EngineDied: If the process is gone.
        """
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        mode = self.options.on_update
        pause = "keep" if mode == "recompute" else mode
        async with self._updating:
            life = self._life
            if life is None:
                raise EngineDied("the engine has stopped")
            llm = life.llm
            self._open.clear()
            # Clearing the cache sends kept requests back to the queue, to be read anew.
            await life.call(llm.pause_generation(mode=pause, clear_cache=mode != "keep"))
            await life.call(llm.start_weight_update())
            path = WeightTransferUpdateRequest({"path": str(weights.path)})
            await life.call(llm.update_weights(path))
            await life.call(llm.finish_weight_update(weight_version=str(weights.version)))
            await life.call(llm.resume_generation())
            self.weights = weights
            self._open.set()

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

    def _checked(self, token_ids: Sequence[int] | np.ndarray) -> list[int]:
        """A prompt's tokens; an engine would not survive those that its model does not have."""
        ids = np.asarray(token_ids)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ValueError(
                f"a prompt is a flat sequence of token ids, got {ids.dtype} of shape {ids.shape}"
            )
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self._vocabulary:
            raise ValueError(
                f"token id {low if low < 0 else high} is outside the vocabulary "
                f"0..{self._vocabulary - 1}"
            )
        out: list[int] = ids.tolist()
        return out

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
        values = [flat.logprobs[start] for start in flat.start_indices] if ids else []
        logprobs = np.asarray(values[: len(ids)], np.float32)
        versions = np.full(len(ids), submitted, np.int32)
        for span in answer.weight_versions or ():
            versions[span.start : span.end] = int(span.version)
        if not np.isfinite(logprobs).all():
            raise PolicyError(
                f"vLLM's log-probs under the weights of version {versions[-1]} are not finite: the "
                "weights hold, or lead to, numbers that are no numbers or too large"
            )
        trainable = None
        if self.options.on_update == "keep" and bool((versions != submitted).any()):
            trainable = versions == submitted
        return Completion(
            ids,
            logprobs,
            versions,
            _FINISH[reason],
            trainable,
            {"cached_tokens": int(output.num_cached_tokens or 0)},
        )


def check_temperature(sampling: Sampling) -> None:
    """Verify that vLLM samples at that temperature.

    Raises:
        ValueError: If it does not.
    """
    low, high = _TEMPERATURES
    if sampling.temperature and not low <= sampling.temperature <= high:
        raise ValueError(
            f"vLLM samples at temperatures from {low:g} to {high:g}, or at 0 (the most likely "
            f"token), not at {sampling.temperature:g}"
        )


async def _last(outputs: AsyncIterator[T]) -> T:
    """The last of what an engine says about a request."""
    last: T | None = None
    async for output in outputs:
        last = output
    assert last is not None
    return last


def _environment(options: EngineOptions, cpu: bool) -> dict[str, str]:
    """Variables for the engine's process."""
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
    return wanted
