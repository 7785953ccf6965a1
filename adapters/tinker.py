"""Tinker (tinker-cookbook): groups of environments in tokens, and the data set that makes them.

No text is tokenized twice (see :class:`~adapters.token_episode.TokenEpisode`): Tinker makes one
``Datum`` of an episode, and its mask covers what the model wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.task_rows import task_rows
from adapters.token_episode import TokenEpisode
from adapters.versions import require
from agentgym.guarded import blank_info
from agentgym.info import StopReason
from agentgym.seats import EnvironmentHang, ThreadSeat

require("tinker-cookbook", "0.6", "0.7", "tinker")

import chz
import tinker
from tinker_cookbook.rl import types
from tinker_cookbook.tokenizer_utils import get_tokenizer

__all__ = ["AgentGymDatasetBuilder", "AgentGymEnv", "AgentGymGroup"]

_LOST = (StopReason.INFRA_ERROR, StopReason.DEADLINE)


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
        envs = [AgentGymEnv(self) for _ in range(self.group_size)]
        self._made += envs
        return envs

    async def cleanup(self) -> None:
        """Close all environments made so far."""
        seats, self._made = [env.seat for env in self._made], []
        for seat in seats:
            seat.close()
        for seat in seats:
            if not seat.busy:  # else it hangs, and is abandoned
                await asyncio.to_thread(seat.join)

    def logging_tags(self) -> list[str]:
        """Its id."""
        return [self.env_id]


class AgentGymEnv(types.Env):
    """One episode; its last transition has ``stop/REASON`` and some numbers as metrics."""

    def __init__(self, group: AgentGymGroup) -> None:
        self._group, self._info = group, blank_info()
        self.seat = ThreadSeat(self._make, group.call_s)  # type: ignore[arg-type]

    async def initial_observation(self) -> Any:
        """The first prompt; an episode that cannot begin is over at once."""
        reason = await self._call("begin", self._group.row)
        if reason is not None:
            return types.InitialObservationOverflow(0.0, self._metrics(reason))
        return tinker.ModelInput.from_ints(self._episode.ids.tolist()), self._stops

    async def step(self, action: list[int], *, extra: Any = None) -> types.StepResult:
        """Take the action that stands in the model's tokens."""
        reason = await self._call("answer", action)
        seen = tinker.ModelInput.from_ints(self._episode.ids.tolist())
        reward = 0.0 if reason in _LOST else self._episode.reward
        metrics = {} if reason is None else self._metrics(reason)
        return types.StepResult(reward, bool(reason), seen, self._stops, metrics)

    def _make(self) -> TokenEpisode:
        group, tokenizer = self._group, get_tokenizer(self._group.model_name)
        self._stops = [*(group.settings.get("stop_token_ids") or [tokenizer.eos_token_id])]
        self._episode = TokenEpisode(group.env_id, tokenizer, **group.settings)
        return self._episode

    async def _call(self, method: str, argument: Any) -> StopReason | None:
        """Call the episode; why it is over, or None."""
        try:
            await self.seat.call(method, argument)
        except EnvironmentHang:
            return StopReason.DEADLINE
        self._info = self._episode.info
        return self._info["stop_reason"]

    def _metrics(self, reason: StopReason) -> dict[str, float]:
        lost = reason in _LOST
        return {
            f"{types.STOP_METRIC_PREFIX}{reason}": 1.0,
            "score": float(self._info["score"]),
            "success": float(self._info["success"] and not lost),
            "truncated": float(lost or self._episode.truncated),
        }


class _Batches(types.RLDataset):
    def __init__(self, groups: Sequence[AgentGymGroup], size: int) -> None:
        self._groups, self._size = groups, size

    def get_batch(self, index: int) -> Sequence[AgentGymGroup]:
        return self._groups[index * self._size : (index + 1) * self._size]

    def __len__(self) -> int:
        return len(self._groups) // self._size


@chz.chz
class AgentGymDatasetBuilder(types.RLDatasetBuilder):
    """``dataset_builder`` of Tinker's training loop: a group for each row, in batches."""

    env_id: str
    model_name: str
    batch_size: int
    group_size: int
    rows: int = 1000
    seed: int = 0
    settings: dict[str, Any] = chz.field(default_factory=dict)
    env_args: dict[str, Any] = chz.field(default_factory=dict)

    async def __call__(self) -> tuple[types.RLDataset, None]:
        """Draw the rows from the training split; what fills no batch is left out."""
        rows = task_rows(self.env_id, self.rows, seed=self.seed, **self.env_args)
        each = self.group_size, {**self.settings, **self.env_args}
        groups = [AgentGymGroup(self.env_id, self.model_name, row, *each) for row in rows]
        return _Batches(groups, self.batch_size), None
