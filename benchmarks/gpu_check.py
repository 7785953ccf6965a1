"""A check of the whole path on a GPU, in under ten minutes and without anything to fetch.

    python -m benchmarks.gpu_check [--sizes 0.5B 1.5B] [--policies torch vllm]

For each size a model of Qwen2.5's shape is made with random weights in bfloat16. Then, with the
embedded sampler and, where it is installed, with vLLM:

* parity: log-probs of the sampler against the learner's forward pass, on the same weights;
* update: the same after other weights were loaded (old ones in a cache would show here);
* throughput: 64 prompts of 512 tokens at a time, 256 tokens each;

and one training step (float32 weights and AdamW, bfloat16 computation): time and memory. The last
line is ``passed`` or names what failed. ``--sizes toy --device cpu`` tries the script itself.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adapters.policies.causal_lm import CausalLM
from adapters.policies.vllm_version import check_vllm
from agentgym.policy import Request, Sampling

__all__ = ["SHAPES", "Check", "main"]

#: Layers, width, MLP width, heads, key/value heads, of Qwen2.5's models of that size.
SHAPES: dict[str, tuple[int, int, int, int, int]] = {
    "toy": (2, 64, 128, 2, 2),
    "0.5B": (24, 896, 4864, 14, 2),
    "1.5B": (28, 1536, 8960, 12, 2),
    "7B": (28, 3584, 18944, 28, 4),
}
_CONTEXT = 2048
# Mean difference in nats between two ways of computing in that precision.
_BOUNDS = {torch.float32: 1e-3, torch.bfloat16: 0.1}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        text: What came out.
        passed: Whether it is as it should be.
    """

    name: str
    text: str
    passed: bool = True

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'} {self.name}: {self.text}"


def build(size: str, device: str, dtype: torch.dtype, seed: int = 0) -> CausalLM:
    """A model of that shape with random weights, without a tokenizer."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    layers, width, inner, heads, kv_heads = SHAPES[size]
    config = Qwen2Config(
        vocab_size=512 if size == "toy" else 151_936,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        # So large that distributions are far from uniform.
        initializer_range=0.06,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            model = Qwen2ForCausalLM(config)
        finally:
            torch.set_default_dtype(before)
    return CausalLM(model.to(device))


def torch_policy(lm: CausalLM) -> Any:
    """The embedded sampler."""
    from adapters.policies.torch_policy import TorchPolicy

    return TorchPolicy(lm.clone(), max_slots=64, max_context=_CONTEXT)


def vllm_policy(lm: CausalLM) -> Any:
    """The engine of vLLM, with room for a learner beside it."""
    from adapters.policies.vllm_policy import VllmPolicy

    return VllmPolicy.around(lm, max_context=_CONTEXT, slots=64, memory=0.4)


POLICIES: dict[str, Callable[[CausalLM], Any]] = {"torch": torch_policy, "vllm": vllm_policy}


async def parity(policy: Any, lm: CausalLM, key: int) -> float:
    """Mean difference of log-probs on 16 prompts of 300 tokens, 32 tokens each."""
    rng = np.random.default_rng(key)
    prompts = rng.integers(1, lm.vocab_size, size=(16, 300), dtype=np.int64)
    sampling = Sampling(1.0, 32, (0,))
    answers = await asyncio.gather(
        *(policy.generate(Request(ids, sampling, (key, n))) for n, ids in enumerate(prompts))
    )
    differences = []
    for ids, answer in zip(prompts, answers, strict=True):
        whole = torch.from_numpy(np.concatenate([ids, answer.token_ids]))[None].to(lm.device)
        mask = torch.zeros_like(whole, dtype=torch.bool)
        mask[:, len(ids) :] = True
        with torch.no_grad():
            own = lm.token_logprobs(whole, mask).logprobs[mask].float().cpu().numpy()
        differences.append(np.abs(own - answer.logprobs))
    return float(np.concatenate(differences).mean())


async def throughput(policy: Any, lm: CausalLM, prompt: int, new: int) -> tuple[float, float]:
    """Tokens sampled a second, 64 requests at a time, and seconds it took."""
    rng = np.random.default_rng(1)
    # A stop token that is none: all answers have the full length.
    sampling = Sampling(1.0, new, (lm.vocab_size - 1,))
    requests = [
        Request(rng.integers(1, lm.vocab_size - 1, size=prompt), sampling, (2, n))
        for n in range(64)
    ]
    began = time.perf_counter()
    answers = await asyncio.gather(*map(policy.generate, requests))
    seconds = time.perf_counter() - began
    return sum(len(answer.token_ids) for answer in answers) / seconds, seconds


async def check_policy(
    name: str, size: str, device: str, dtype: torch.dtype, tokens: int
) -> list[Check]:
    """Parity, update and throughput of one policy."""
    lm, other = build(size, device, dtype), build(size, device, dtype, seed=1)
    began = time.perf_counter()
    policy = POLICIES[name](lm)
    label = f"{name} {size}"
    checks = []
    try:
        await policy.load_weights(lm.model.state_dict(), 0)
        checks.append(Check(f"{label} start", f"{time.perf_counter() - began:.1f} s"))
        bound = _BOUNDS[dtype]
        found = await parity(policy, lm, 1)
        checks.append(Check(f"{label} parity", f"{found:.2g} nats on average", found <= bound))
        began = time.perf_counter()
        await policy.load_weights(other.model.state_dict(), 1)
        seconds = time.perf_counter() - began
        found = await parity(policy, other, 1)
        checks.append(
            Check(f"{label} update", f"{found:.2g} nats after {seconds:.2f} s", found <= bound)
        )
        rate, seconds = await throughput(policy, lm, 2 * tokens, tokens)
        checks.append(Check(f"{label} throughput", f"{rate:,.0f} tokens/s ({seconds:.1f} s)"))
    finally:
        await policy.aclose()
    return checks


def check_training(size: str, device: str, tokens: int) -> Check:
    """One optimiser step on 8 sequences, after one that is not timed."""
    lm = build(size, device, torch.float32)
    model = lm.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    ids = torch.randint(1, lm.vocab_size, (8, tokens), device=device)
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    seconds, before, norm = (
        0.0,
        torch.cat([p.detach().flatten()[:8] for p in model.parameters()]),
        0.0,
    )
    for _ in range(2):
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for row in range(0, 8, 2):
            with torch.autocast(torch.device(device).type, torch.bfloat16):
                scores = lm.token_logprobs(ids[row : row + 2], mask[row : row + 2])
            (-scores.logprobs.sum() / mask.sum()).backward()
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        if device != "cpu":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    after = torch.cat([p.detach().flatten()[:8] for p in model.parameters()])
    memory = torch.cuda.max_memory_allocated() / 2**30 if device != "cpu" else 0.0
    moved = bool((before != after).any()) and bool(np.isfinite(norm))
    return Check(
        f"training {size}",
        f"a step of {8 * tokens:,} tokens in {seconds:.2f} s, gradient norm {norm:.3g}, "
        f"{memory:.1f} GiB at most",
        moved,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check")
    parser.add_argument("--sizes", nargs="+", choices=tuple(SHAPES), default=["0.5B", "1.5B"])
    parser.add_argument("--policies", nargs="+", choices=tuple(POLICIES))
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(argv)
    if options.device != "cpu" and not torch.cuda.is_available():
        print(
            "error: there is no CUDA device; --sizes toy --device cpu tries the script",
            file=sys.stderr,
        )
        return 2
    dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
    tokens = 32 if options.device == "cpu" else 256
    chosen = options.policies or ["torch", *(["vllm"] if _has_vllm() else [])]
    place = torch.cuda.get_device_name() if options.device != "cpu" else "CPU"
    print(f"torch {torch.__version__} on {place}; policies: {', '.join(chosen)}", flush=True)
    failed = []
    for size in options.sizes:
        for name in chosen:
            for check in asyncio.run(check_policy(name, size, options.device, dtype, tokens)):
                print(check, flush=True)
                failed += [] if check.passed else [check.name]
        check = check_training(size, options.device, 4 * tokens)
        print(check, flush=True)
        failed += [] if check.passed else [check.name]
        if options.device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    print("passed" if not failed else f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _has_vllm() -> bool:
    try:
        check_vllm()
    except ImportError as error:
        print(f"without vLLM: {error}", flush=True)
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
