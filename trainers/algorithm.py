"""What an algorithm is to the training loop: a plan, credit, a loss and a state.

The loop samples what ``plan`` asks for, hands the groups to ``credit``, packs the result, lowers
``loss`` and publishes the weights. It knows nothing else about an algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from agentgym.guidance import Guidance
from agentgym.info import StopReason
from agentgym.packing import Credit
from agentgym.trajectory import Trajectory, TrajectoryGroup
from trainers.advantages.gate import explained_variance
from trainers.advantages.group import AdvantageNorm, GroupAdvantages, normalise
from trainers.aggregation import LossOutput
from trainers.config import TrainConfig
from trainers.losses import DisOptions, policy_loss

__all__ = [
    "Algorithm",
    "CreditBatch",
    "Plan",
    "TrajectoryValues",
    "explained_metrics",
    "group_metrics",
    "masked_from_loss",
    "normalise_turns",
    "turn_rewards",
]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to sample for one step.

    Attributes:
        tasks: Number of different tasks.
        group_size: Rollouts of each task.
        guidance: What is given to each member of a group, in their order; nothing to any where it
            is empty.
    """

    tasks: int
    group_size: int
    guidance: tuple[Guidance | None, ...] = ()

    def __post_init__(self) -> None:
        if self.guidance and len(self.guidance) != self.group_size:
            raise ValueError(
                f"guidance for {len(self.guidance)} members of groups of {self.group_size}"
            )

    @property
    def trajectories(self) -> int:
        """Rollouts in all."""
        return self.tasks * self.group_size


@dataclass(slots=True)
class TrajectoryValues:
    """The critic's view of one trajectory, from before its update.

    Attributes:
        turns: Value before each sampled token; list over turns of float64 (n_actions,).
        v_boot: Value after the whole context.
    """

    turns: list[np.ndarray]
    v_boot: float


@dataclass(slots=True)
class CreditBatch:
    """What the learner trains on.

    Attributes:
        trajectories: Those kept.
        credit: Credit of each.
        train_actor: False while only the critic learns.
        metrics: Numbers for the run's log.
        missing: Trajectories still to be sampled before the batch is full.
    """

    trajectories: list[Trajectory]
    credit: list[Credit]
    train_actor: bool = True
    metrics: dict[str, Any] = field(default_factory=dict)
    missing: int = 0


class Algorithm:
    """Base of the algorithms.

    Args:
        config: The trainer's settings.
    """

    #: Name in reports and run directories.
    name: str = ""
    #: Whether a critic is trained and its values are handed to ``credit``.
    uses_critic: bool = False

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    def plan(self, step: int) -> Plan:
        """What to sample for ``step`` (0-based)."""
        raise NotImplementedError

    def credit(
        self, groups: Sequence[TrajectoryGroup], values: Sequence[TrajectoryValues] | None
    ) -> CreditBatch:
        """Assign advantages (and value targets) to every sampled token.

        Called once a step, or again with more groups where ``missing`` asked for them.

        Args:
            groups: What was sampled for this step. Members may have been lost to faults, and
                without groups (``group_size`` 1) a group holds any number of rollouts.
            values: The critic's values of the trajectories, in the order of the groups and their
                members; None without a critic.
        """
        raise NotImplementedError

    @property
    def whole_minibatch(self) -> bool:
        """Whether the loss needs a whole minibatch in one call, to count what it divides by."""
        return self.config.loss == "dis" and not self.config.dis_keep_rejected

    def loss(
        self,
        logp: torch.Tensor,
        logp_old: torch.Tensor,
        advantages: torch.Tensor,
        mask: torch.Tensor,
        **options: Any,
    ) -> LossOutput:
        """Policy loss of some rows; see :func:`trainers.losses.policy_loss`."""
        config = self.config
        return policy_loss(
            logp,
            logp_old,
            advantages,
            mask,
            kind=config.loss,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            dual_clip=config.dual_clip,
            dis=DisOptions(
                config.dis_stop_gradient, config.dis_closed_band, config.dis_keep_rejected
            ),
            **options,
        )

    def findings(self) -> dict[str, Any]:
        """What the algorithm has found out, beside weights, in JSON-able values for the report."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Plain values that resume the algorithm exactly."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        if state:
            raise ValueError(f"{self.name} keeps no state, but the checkpoint has {sorted(state)}")


def turn_rewards(trajectory: Trajectory, invalid_penalty: float) -> np.ndarray:
    """Rewards of the turns, with the penalty for bad actions spread over the turns that had one.

    The penalties add up to ``invalid_penalty`` times the share of inadmissible or malformed
    actions, and each stands on its own turn. Turns that were given are not the policy's actions.

    Args:
        trajectory: The episode.
        invalid_penalty: Weight.

    Returns:
        float64 (turns,).
    """
    rewards = trajectory.rewards
    if invalid_penalty and trajectory.turns:
        bad = [not (turn.format_ok and turn.action_valid) for turn in trajectory.turns]
        own = sum(not turn.replayed for turn in trajectory.turns)
        rewards = rewards - invalid_penalty * np.asarray(bad, np.float64) / max(own, 1)
    return rewards


def masked_from_loss(trajectory: Trajectory, rule: str) -> bool:
    """Whether an episode that ran out of tokens is kept out of the loss."""
    limits = (StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW)
    return rule == "mask" and trajectory.stop_reason in limits


def normalise_turns(
    trajectories: Sequence[Trajectory], advantages: Sequence[np.ndarray], norm: AdvantageNorm
) -> list[list[np.ndarray]]:
    """Normalise over all tokens of the batch, and cut into turns.

    Args:
        trajectories: The rollouts.
        advantages: One flat array of shape (n_actions,) a trajectory.
        norm: The rule.
    """
    flat = np.concatenate(advantages) if advantages else np.zeros(0)
    flat = normalise(flat, how=norm)
    out, at = [], 0
    for trajectory in trajectories:
        turns = []
        for turn in trajectory.turns:
            turns.append(flat[at : at + turn.n_actions])
            at += turn.n_actions
        out.append(turns)
    return out


def explained_metrics(
    targets: Sequence[np.ndarray], values: Sequence[np.ndarray]
) -> dict[str, float]:
    """How well the critic, before its update, foresaw its targets.

    Args:
        targets: What the critic should have said; one flat array a trajectory, NaN where it is
            not asked.
        values: What it said.

    Returns:
        Both means, and the explained variance in both forms where the targets vary.
    """
    y = np.concatenate(targets) if targets else np.zeros(0)
    v = np.concatenate(values) if values else np.zeros(0)
    asked = np.isfinite(y)
    y, v = y[asked], v[asked]
    if not y.size:
        return {}
    out = {"value_mean": float(v.mean()), "target_mean": float(y.mean())}
    for name, value in (
        ("explained_variance", explained_variance(y, v, form="var")),
        ("explained_variance_mse", explained_variance(y, v, form="mse")),
    ):
        if value is not None:
            out[name] = value
    return out


def group_metrics(groups: GroupAdvantages) -> dict[str, float]:
    """What became of the groups, under the names of the run's log."""
    return {
        "groups": groups.groups,
        "groups_dropped": groups.groups - groups.groups_kept,
        "frac_zero_variance": groups.groups_zero_variance / max(groups.groups_kept, 1),
    }
