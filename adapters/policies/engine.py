"""The batched sampler: sessions in rows of a KV cache, one forward step at a time.

No event loop in here: :class:`Engine` is driven by :class:`~.torch_policy.TorchPolicy`, which
waits for its results. Rows are plain numpy arrays, so a decode step has no Python loop over rows.

A row holds one sequence of tokens. ``length`` of them are known and keys and values of the first
``cached`` stand in the cache; the rest is computed when the row is served next. One token left is
a decode, more are a prefill. Dropping a row's keys and values is therefore ``cached = 0``.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adapters.policies.causal_lm import CausalLM
from adapters.policies.draws import draw, fold_key, uniforms
from adapters.policies.kv_cache import (
    AttentionMasks,
    SlotCache,
    UnsupportedAttentionError,
    default_cache_bytes,
)
from agentgym.policy import Completion, FinishReason, Request

__all__ = ["Engine", "Job"]

# The fixed cost of a forward pass of a tiny model, in tokens of prefill.
_PASS_OVERHEAD = 256
# Prompts are held back until they are this many for each row that is decoding, but for so many
# steps at most: a pass costs much the same for few rows as for many.
_PREFILL_SHARE = 1.0
_PREFILL_HOLD = 3
# Steps that a silent session keeps its row while others wait for one: its environment is likely
# to answer within a few steps, and recomputing it then costs more than the wait.
_PATIENCE = 4


@dataclass(eq=False, slots=True)
class Job:
    """A request on its way through the engine.

    Attributes:
        request: What was asked.
        prompt: Its token ids; int32 (n,).
        stop_ids: Tokens that end the answer.
        owner: Whatever the caller wants to find it again by.
        row: Row it is served in, or -1 while it waits.
        reused: Prompt tokens found in the cache.
        completion: The result, once there is one.
    """

    request: Request
    prompt: np.ndarray
    stop_ids: tuple[int, ...]
    owner: Any = None
    row: int = -1
    reused: int = 0
    completion: Completion | None = None


class Engine:
    """Continuous batching over the rows of a KV cache.

    Args:
        lm: The model.
        slots: Rows, which bounds what is decoded together; fewer where ``cache_bytes`` are too
            few for them.
        max_context: Tokens a row can hold.
        prefill_tokens: Most (padded) tokens of one prefill pass.
        version: Version of the weights at the start.
        cache_bytes: Most memory of the keys and values of all rows; None for half of the device's.

    Raises:
        ValueError: If one row is too large for the memory.
    """

    def __init__(
        self,
        lm: CausalLM,
        slots: int,
        max_context: int,
        prefill_tokens: int,
        version: int,
        cache_bytes: int | None = None,
    ) -> None:
        self.lm, self.slots, self.max_context = lm, slots, max_context
        self.prefill_tokens = max(prefill_tokens, 1)
        self.version = version
        self.counters: Counter[str] = Counter()
        self._steps = 0
        implementation = getattr(lm.model.config, "_attn_implementation", "eager")
        if implementation not in ("sdpa", "eager"):
            raise ValueError(
                f"the sampler passes explicit attention masks, which {implementation!r} attention "
                "does not take; load the model with attn_implementation='sdpa'"
            )
        try:
            self._masks: AttentionMasks | None = AttentionMasks(lm.model.config)
            self._masks.dtype = lm.model.dtype
        except UnsupportedAttentionError:
            self._masks = None  # every step recomputes whole rows: slow, but right
        self.waiting: list[Job] = []
        self._stop_sets: dict[tuple[int, ...], int] = {}
        self._stop_table = np.zeros((0, lm.vocab_size), bool)
        if self._masks is not None:
            self._try_cache(default_cache_bytes(lm.device) if cache_bytes is None else cache_bytes)
        self.reset()

    def reset(self) -> None:
        """Forget every row and every waiting job."""
        slots, width = self.slots, self.max_context + 1
        self._cache = SlotCache(slots, self.max_context) if self._masks is not None else None
        self._tokens = np.zeros((slots, width), np.int32)
        self._logprobs = np.zeros((slots, width), np.float32)
        self._versions = np.zeros((slots, width), np.int32)
        self._length = np.zeros(slots, np.int64)
        self._cached = np.zeros(slots, np.int64)
        self._running = np.zeros(slots, bool)
        # Of the job a row is serving:
        self._start = np.zeros(slots, np.int64)
        self._limit = np.zeros(slots, np.int64)
        self._keys = np.zeros(slots, np.uint64)
        self._temperature = np.ones(slots, np.float64)
        self._stop_set = np.zeros(slots, np.int64)
        self._jobs: list[Job | None] = [None] * slots
        self._rows_of: dict[str, int] = {}
        self._session: list[str | None] = [None] * slots
        self._idle: OrderedDict[int, int] = OrderedDict()  # row -> step it fell idle, oldest first
        self._free = list(range(slots))
        self._held = 0
        self.waiting.clear()

    @property
    def keeps_cache(self) -> bool:
        """Whether keys and values are kept between steps."""
        return self._masks is not None

    # Jobs in and out --------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether any job is waiting or running."""
        return bool(self.waiting) or bool(self._running.any())

    def submit(self, job: Job) -> None:
        """Queue a job; it joins the batch at the next step that has a row for it."""
        self.waiting.append(job)

    def cancel(self, job: Job) -> None:
        """Take a job out. What its row has computed stays available to its session."""
        if job.row >= 0 and self._jobs[job.row] is job:
            self._vacate(job.row)
        elif job in self.waiting:
            self.waiting.remove(job)

    def release(self, session: str) -> None:
        """Free a session's row, at once or when its job is done."""
        row = self._rows_of.pop(session, None)
        if row is None:
            return
        self._session[row] = None
        if not self._running[row]:
            self._idle.pop(row)
            self._give_back(row)

    def jobs(self) -> list[Job]:
        """Every job that is waiting or running."""
        return [job for job in self._jobs if job is not None] + list(self.waiting)

    def set_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Load weights between two steps; what was computed with the old ones is dropped."""
        self.lm.copy_weights(state)
        self.version = version
        self._cached[:] = 0
        self.counters["weight_updates"] += 1

    # One step ---------------------------------------------------------------------------------

    @torch.inference_mode()
    def step(self) -> list[Job]:
        """Serve every running row once: one more token for each whose prompt is done.

        Returns:
            The jobs that are finished.
        """
        self._steps += 1
        self._admit()
        done: list[Job] = []
        gap = self._length - self._cached
        prompts = np.flatnonzero(self._running & (gap > 1))
        decoding = int((self._running & (gap == 1)).sum())
        if len(prompts) < _PREFILL_SHARE * decoding and self._held < _PREFILL_HOLD:
            self._held += bool(len(prompts))
        else:
            self._held = 0
            for rows, count in self._prefill_groups(prompts):
                self._serve(rows, count, done)
        rows = np.flatnonzero(self._running & (self._length - self._cached == 1))
        if len(rows):
            self._serve(rows, 1, done)
        return done

    def _serve(self, rows: np.ndarray, count: int, done: list[Job]) -> None:
        """One forward pass over the next ``count`` tokens (or fewer) of each row."""
        left = self._length[rows] - self._cached[rows]
        ready = left <= count
        features = self._forward(rows, count, np.minimum(left, count))
        self._cached[rows] += np.minimum(left, count)
        self.counters["decode_tokens" if count == 1 else "prefill_tokens"] += int(
            np.minimum(left, count).sum()
        )
        self.counters["passes"] += 1
        if not ready.all():
            rows, features = rows[ready], features[torch.from_numpy(ready).to(features.device)]
        if len(rows):
            self._sample(rows, features, done)

    def _forward(self, rows: np.ndarray, count: int, left: np.ndarray) -> torch.Tensor:
        """Features after the last of ``left`` new tokens of each row, shape (rows, features)."""
        device = self.lm.device
        if self._cache is None or self._masks is None:
            return self._forward_whole(rows)
        # Where most rows take part, passing over the others is cheaper than gathering these.
        span = int(rows[-1]) + 1 if count == 1 else 0
        dense = span > 0 and 2 * len(rows) >= span
        chosen = np.arange(span) if dense else rows
        offsets = np.arange(count)
        positions = self._cached[chosen, None] + offsets
        np.minimum(positions, self.max_context, out=positions)
        if not dense:
            positions[offsets >= left[:, None]] = self.max_context
        ids = self._tokens[chosen[:, None], positions]
        seen = int((self._cached[rows] + left).max())
        positions_BT = torch.from_numpy(positions).to(device)
        self._cache.aim(span if dense else torch.from_numpy(chosen).to(device), positions_BT, seen)
        features = self.lm.features(
            torch.from_numpy(ids).long().to(device),
            # Padding sits past the end, which some position tables do not reach.
            positions_BT=positions_BT.clamp(max=self.max_context - 1),
            mask=self._masks.build(positions_BT, seen),
            cache=self._cache,
        )
        if count == 1:
            last = features[:, 0]
            return last[torch.from_numpy(rows).to(device)] if len(rows) < len(chosen) else last
        index = torch.from_numpy(left - 1).to(device)
        return features[torch.arange(len(rows), device=device), index]

    def _forward_whole(self, rows: np.ndarray) -> torch.Tensor:
        lengths = self._length[rows]
        device = self.lm.device
        ids = torch.from_numpy(self._tokens[rows, : int(lengths.max())]).long().to(device)
        index = torch.from_numpy(lengths - 1).to(device)
        return self.lm.features(ids)[torch.arange(len(rows), device=device), index]

    def _sample(self, rows: np.ndarray, features: torch.Tensor, done: list[Job]) -> None:
        length = self._length[rows]
        numbers = uniforms(self._keys[rows], length - self._start[rows])
        chosen, logp = draw(self.lm.project(features), self._temperature[rows], numbers)
        tokens, logprobs = chosen.cpu().numpy(), logp.cpu().numpy()
        if not np.isfinite(logprobs).all():
            raise FloatingPointError(
                f"the model's logits are not finite (weight version {self.version})"
            )
        self._tokens[rows, length] = tokens
        self._logprobs[rows, length] = logprobs
        self._versions[rows, length] = self.version
        self._length[rows] = length + 1
        if self._cache is None:
            self._cached[rows] = 0
        stopped = self._stop_table[self._stop_set[rows], tokens]
        for at in np.flatnonzero(stopped | (length + 1 >= self._limit[rows])):
            done.append(self._finish(int(rows[at]), bool(stopped[at])))

    def _finish(self, row: int, stopped: bool) -> Job:
        job = self._jobs[row]
        assert job is not None  # a running row serves a job
        span = slice(int(self._start[row]), int(self._length[row]))
        reason = FinishReason.STOP
        if not stopped:
            full = self._length[row] - self._start[row] < job.request.sampling.max_tokens
            reason = FinishReason.CONTEXT_OVERFLOW if full else FinishReason.LENGTH
        job.completion = Completion(
            tuple(self._tokens[row, span].tolist()),
            self._logprobs[row, span].copy(),
            self._versions[row, span].copy(),
            reason,
            details={"reused_tokens": job.reused},
        )
        self.counters["completions"] += 1
        self._vacate(row)
        return job

    # Rows -------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Give rows to waiting jobs, oldest first."""
        still: list[Job] = []
        for job in self.waiting:
            row = self._row_for(job)
            if row is None:
                still.append(job)
            else:
                self._seat(job, row)
        self.waiting = still

    def _row_for(self, job: Job) -> int | None:
        own = self._rows_of.get(job.request.session) if job.request.session is not None else None
        if own is not None:
            if self._running[own]:
                return None  # one request of a session at a time
            self._idle.pop(own)
            return own
        if self._free:
            return self._free.pop(0)
        if not self._idle:
            return None
        row, since = next(iter(self._idle.items()))
        if self._steps - since < _PATIENCE and self._running.any():
            return None
        del self._idle[row]
        old = self._session[row]
        if old is not None:
            del self._rows_of[old]
        self._session[row] = None
        self._cached[row] = self._length[row] = 0
        self.counters["evictions"] += 1
        return row

    def _seat(self, job: Job, row: int) -> None:
        prompt, sampling = job.prompt, job.request.sampling
        size = len(prompt)
        known = min(int(self._cached[row]), size - 1)  # the last token's output is needed anew
        differs = np.flatnonzero(self._tokens[row, :known] != prompt[:known])
        reused = int(differs[0]) if len(differs) else known
        self._tokens[row, :size] = prompt
        self._cached[row], self._length[row], self._start[row] = reused, size, size
        self._limit[row] = min(size + sampling.max_tokens, self.max_context)
        self._keys[row] = fold_key(job.request.key)
        self._temperature[row] = sampling.temperature
        self._stop_set[row] = self._stop_index(job.stop_ids)
        self._running[row] = True
        self._jobs[row] = job
        session = job.request.session
        self._session[row] = session
        if session is not None:
            self._rows_of[session] = row
        job.row, job.reused = row, reused
        self.counters["reused_tokens"] += reused

    def _vacate(self, row: int) -> None:
        """The row's job is over; its session, if it has one, keeps the row while there is room."""
        self._running[row] = False
        self._jobs[row] = None
        if self._session[row] is None:
            self._give_back(row)
        else:
            self._idle[row] = self._steps

    def _give_back(self, row: int) -> None:
        self._cached[row] = self._length[row] = 0
        # Low rows first, so that the rows in use stay together.
        self._free.append(row)
        self._free.sort()

    def _stop_index(self, stop_ids: tuple[int, ...]) -> int:
        index = self._stop_sets.get(stop_ids)
        if index is None:
            flags = np.zeros((1, self._stop_table.shape[1]), bool)
            flags[0, list(stop_ids)] = True
            index = self._stop_sets[stop_ids] = len(self._stop_sets)
            self._stop_table = np.concatenate([self._stop_table, flags])
        return index

    def _prefill_groups(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """Split rows into passes of like length, so that little of a pass is padding."""
        if self._cache is None:
            yield from ((part, self.max_context) for part in self._whole_groups(rows))
            return
        left = np.minimum((self._length - self._cached)[rows], self.prefill_tokens)
        order = np.argsort(-left, kind="stable")
        start = 0
        for at in range(1, len(order) + 1):
            longest = int(left[order[start]])
            if at < len(order):
                room = self.prefill_tokens // longest - (at - start)
                # A split here saves this padding in each row that would still join, and costs one
                # more pass.
                saved = (longest - int(left[order[at]])) * min(room, len(order) - at)
                if room > 0 and saved <= _PASS_OVERHEAD:
                    continue
            yield np.sort(rows[order[start:at]]), longest
            start = at

    def _whole_groups(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        start = 0
        for at in range(1, len(rows) + 1):
            group = rows[start : at + 1]
            too_big = len(group) * int(self._length[group].max()) > self.prefill_tokens
            if at == len(rows) or too_big:
                yield rows[start:at]
                start = at

    # Self-test --------------------------------------------------------------------------------

    def _try_cache(self, most: int) -> None:
        """Do without the cache if it is wrong for the model; without some rows if it is large."""
        cache = SlotCache(1, self.max_context)
        assert self._masks is not None
        if not self._cache_agrees(cache, self._masks):
            self._masks = None
            return
        row = cache.bytes_per_position * (self.max_context + 1)
        if row > most:
            raise ValueError(
                f"keys and values of one sequence of {self.max_context} tokens take "
                f"{_gib(row)}, more than the {_gib(most)} they may; choose a smaller max_context "
                "or a larger cache_bytes"
            )
        if row * self.slots > most:
            fewer = most // row
            warnings.warn(
                f"keys and values of {self.slots} sequences of {self.max_context} tokens would "
                f"take {_gib(row * self.slots)}; {fewer} run at a time, in {_gib(most)}. A smaller "
                "max_context lets more run",
                stacklevel=4,
            )
            self.slots = fewer

    @torch.inference_mode()
    def _cache_agrees(self, cache: SlotCache, masks: AttentionMasks) -> bool:
        """Whether a pass over the cache, in pieces, gives the model's own log-probs."""
        size = min(6, self.max_context)
        lm, device = self.lm, self.lm.device
        step = max(1, lm.vocab_size // (size + 1))
        ids = (torch.arange(size, device=device)[None] * step) % lm.vocab_size
        expected = torch.log_softmax(lm.project(lm.features(ids)[0]).float(), -1)
        got = []
        cuts = sorted({0, max(size - 2, 0), size - 1, size})
        for begin, end in itertools.pairwise(cuts):
            positions = torch.arange(begin, end, device=device)[None]
            cache.aim(1, positions, end)
            mask = masks.build(positions, end)
            part = lm.features(ids[:, begin:end], positions_BT=positions, mask=mask, cache=cache)
            got.append(torch.log_softmax(lm.project(part[0]).float(), -1))
        tolerance = 1e-3 if lm.model.dtype in (torch.float32, torch.float64) else 0.25
        return bool((torch.cat(got) - expected).abs().max() <= tolerance)


def _gib(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"
