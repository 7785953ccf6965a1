"""Tinker (tinker-cookbook): groups of environments in tokens, and the data sets that make them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.task_rows import evaluation_rows, task_rows
from adapters.token_episode import TokenEpisode
from adapters.versions import require
from agentgym.guarded import blank_info
from agentgym.info import ABORTED, StopReason
from agentgym.seats import EnvironmentHang, ThreadSeat

require("tinker-cookbook", "0.6.1", "0.7", "tinker")

import chz
import tinker
from tinker_cookbook.rl import types
from tinker_cookbook.tokenizer_utils import get_tokenizer

__all__ = ["AgentGymDatasetBuilder", "AgentGymEnv", "AgentGymGroup"]


@dataclass
class AgentGymGroup(types.EnvGroupBuilder):
    """Environments that all play the episode of one row.

    Attributes:
        env_id: Id of the environment.
        model_name: Names the tokenizer; its chat template has to keep earlier turns.
        row: Its ``task_id`` and ``seed``.
        group_size: How many.
        settings: Those of :class:`~adapters.token_episode.TokenEpisode`.
        call_s: Seconds that one call into an environment may take.
    """

    env_id: str
    model_name: str
    row: Mapping[str, Any]
    group_size: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    call_s: float = 600.0
    _made: list[AgentGymEnv] = field(default_factory=list, init=False, repr=False)

    async def make_envs(self) -> Sequence[AgentGymEnv]:
        """New environments, none of which has begun."""
        self._made += (envs := [AgentGymEnv(self) for _ in range(self.group_size)])
        return envs

    async def cleanup(self) -> None:
        """Close all environments made so far; those that hang are abandoned."""
        seats, self._made = [env.seat for env in self._made], []
        for seat in seats:
            seat.close()
        await asyncio.gather(*(asyncio.to_thread(seat.join) for seat in seats if not seat.busy))

    def logging_tags(self) -> list[str]:
        """Its id."""
        return [self.env_id]


class AgentGymEnv(types.Env):
    """One episode; its last transition has ``stop/REASON`` and some numbers as metrics."""

    def __init__(self, group: AgentGymGroup) -> None:
        self._group, self._info = group, blank_info()
        self.seat = ThreadSeat(self._make, group.call_s)  # type: ignore[arg-type]

    async def initial_observation(self) -> Any:
        """The first prompt; an episode that cannot begin, or one too long, is over at once."""
        reason = await self._call("begin", self._group.row, False)
        if reason is not None:
            return types.InitialObservationOverflow(0.0, self._metrics(reason))
        return tinker.ModelInput.from_ints(self._episode.ids.tolist()), self._stops

    async def step(self, action: list[int], *, extra: Any = None) -> types.StepResult:
        """Take the action that stands in the model's tokens."""
        reason = await self._call("answer", action)
        seen = tinker.ModelInput.from_ints(self._episode.ids.tolist())
        reward = 0.0 if reason in ABORTED else self._episode.reward
        metrics = {} if reason is None else self._metrics(reason)
        return types.StepResult(reward, bool(reason), seen, self._stops, metrics)

    def _make(self) -> TokenEpisode:
        group, tokenizer = self._group, get_tokenizer(self._group.model_name)
        self._stops = [*(group.settings.get("stop_token_ids") or [tokenizer.eos_token_id])]
        self._episode = TokenEpisode(group.env_id, tokenizer, deadline=None, **group.settings)
        return self._episode

    async def _call(self, method: str, *arguments: Any) -> StopReason | None:
        """Call the episode; why it is over, or None."""
        try:
            await self.seat.call(method, *arguments)
        except EnvironmentHang:
            return StopReason.DEADLINE
        self._info = self._episode.info
        return self._info["stop_reason"]

    def _metrics(self, reason: StopReason) -> dict[str, float]:
        info, lost, key = self._info, reason in ABORTED, f"{types.STOP_METRIC_PREFIX}{reason}"
        told: dict[str, float] = {"score": info["score"], "success": info["success"] and not lost}
        told |= {key: True, "truncated": lost or self._episode.truncated}
        return {name: float(value) for name, value in told.items()}


class _Batches(types.RLDataset):
    def __init__(self, groups: Sequence[AgentGymGroup], size: int) -> None:
        if not 1 <= size <= len(groups):
            raise ValueError(f"batch_size must be 1 to {len(groups)}, the rows; got {size}")
        self._groups, self._size = groups, size

    def get_batch(self, index: int) -> Sequence[AgentGymGroup]:
        return self._groups[index * self._size : (index + 1) * self._size]

    def __len__(self) -> int:
        return len(self._groups) // self._size


@chz.chz
class AgentGymDatasetBuilder(types.RLDatasetBuilder):
    """``dataset_builder`` of Tinker's training loop: a group for each row, in batches.

    Its test set: ``test_rows`` episodes of ``test_split`` (None: the last one for evaluation).
    """

    env_id: str
    model_name: str
    batch_size: int
    group_size: int
    rows: int = 1000
    seed: int = 0
    test_rows: int = 0
    test_split: str | None = None
    call_s: float = 600.0
    settings: dict[str, Any] = chz.field(default_factory=dict)
    env_args: dict[str, Any] = chz.field(default_factory=dict)

    async def __call__(self) -> tuple[types.RLDataset, types.RLDataset | None]:
        """Draw the rows from the training split; what fills no batch is left out."""
        args, of = self.env_args, (self.env_id, self.model_name)
        settings = {**self.settings, **args}, self.call_s
        rows = task_rows(self.env_id, self.rows, seed=self.seed, **args)
        train = [AgentGymGroup(*of, row, self.group_size, *settings) for row in rows]
        number, split = self.test_rows, self.test_split
        rows = evaluation_rows(self.env_id, number, split=split, **args) if number else []
        test = [AgentGymGroup(*of, row, 1, *settings) for row in rows]
        return _Batches(train, self.batch_size), _Batches(test, len(test)) if test else None
