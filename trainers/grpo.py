"""GRPO and its relatives: advantages from comparing rollouts of the same task.

Switches turn the one module into GRPO (arXiv 2402.03300), Dr.GRPO (``--adv-std none
--aggregation constant``, 2503.20783), RLOO (``--adv-center loo --adv-std none``), DAPO
(``--clip-high 0.28 --dynamic-sampling True``, 2503.14476), GSPO (``--loss gspo``, 2507.18071),
CISPO (``--loss cispo``, 2506.13585) and GRPO+DIS (``--loss dis``, 2607.07508).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from agentgym.packing import Credit
from agentgym.trajectory import Trajectory, TrajectoryGroup
from trainers.advantages.group import (
    AdvantageNorm,
    Center,
    Std,
    group_advantages,
    soft_overlong_penalty,
)
from trainers.algorithm import (
    Algorithm,
    CreditBatch,
    Plan,
    TrajectoryValues,
    group_metrics,
    normalise_turns,
    turn_rewards,
)
from trainers.command_line import parse_args
from trainers.config import TrainConfig, require

__all__ = ["GRPO", "GRPOConfig", "main"]


@dataclass(kw_only=True)
class GRPOConfig(TrainConfig):
    """Train with group-relative advantages.

    Attributes:
        group_size: Rollouts of one task (G).
        adv_std: Divide advantages by the standard deviation of the group, of the batch, or by
            nothing.
        adv_center: Subtract the group's mean, or the mean of the other members.
        adv_ddof: 1 for the sample deviation (as TRL and verl), 0 for the population's.
        adv_eps: Added to the deviation (verl 1e-6, TRL 1e-4; the paper does not say).
        adv_norm: Bring the advantages of the whole batch to unit scale afterwards.
        dynamic_sampling: Leave out groups whose members all earned the same (DAPO), and sample
            more tasks until the batch is full.
        max_resamples: How many times as many tasks may be tried for one batch; then it is trained
            on as it is.
        mask_zero_variance: Leave such groups out without a replacement. Their policy gradient is
            0 either way, but they count in the loss's denominator and feel its KL term.
        overlong_length: Length at which DAPO's soft penalty reaches -1, in tokens; None for none.
        overlong_cache: Width of its slope, in tokens.
    """

    group_size: int = 8
    adv_std: Std = "group"
    adv_center: Center = "mean"
    adv_ddof: int = 1
    adv_eps: float = 1e-6
    adv_norm: AdvantageNorm = "none"
    dynamic_sampling: bool = False
    max_resamples: int = 4
    mask_zero_variance: bool = False
    overlong_length: int | None = None
    overlong_cache: int = 4096

    TINY: ClassVar[Mapping[str, Any]] = {**TrainConfig.TINY, "clip_high": 0.28}

    def validate(self) -> None:
        """See :meth:`trainers.config.TrainConfig.validate`."""
        super().validate()
        check_groups(self.group_size, self.trajectories)
        self._check("0 or 1", lambda v: v in (0, 1), "adv_ddof")
        self._check("a finite number, 0 or more", lambda v: 0 <= v < math.inf, "adv_eps")
        self._check("at least 1", lambda v: v >= 1, "max_resamples", "overlong_cache")
        self._check(
            f"at least --overlong-cache ({self.overlong_cache}), or None",
            lambda v: v is None or v >= self.overlong_cache,
            "overlong_length",
        )


def check_groups(group_size: int, trajectories: int) -> None:
    """Refuse groups that leave nobody to compare with, or do not divide the batch.

    Raises:
        ValueError: Naming the flag and what would be right.
    """
    right = "at least 2: advantages compare rollouts of one task with each other"
    require(group_size >= 2, "group_size", group_size, right)
    right = f"a multiple of --group-size ({group_size})"
    require(trajectories % group_size == 0, "trajectories", trajectories, right)


class GRPO(Algorithm):
    """See the module's docstring.

    Args:
        config: Settings.
    """

    name = "grpo"
    uses_critic = False
    config: GRPOConfig

    def plan(self, step: int) -> Plan:
        """The same number of groups each step."""
        size = self.config.group_size
        return Plan(self.config.trajectories // size, size)

    def credit(
        self, groups: Sequence[TrajectoryGroup], values: Sequence[TrajectoryValues] | None
    ) -> CreditBatch:
        """One advantage a rollout, on all its tokens."""
        config = self.config
        trajectories = [member for group in groups for member in group]
        returns_N = np.array([self._return(trajectory) for trajectory in trajectories])
        result = group_advantages(
            returns_N,
            [trajectory.spec.group_id for trajectory in trajectories],
            valid_N=[trajectory.usable for trajectory in trajectories],
            center=config.adv_center,
            std=config.adv_std,
            ddof=config.adv_ddof,
            eps=config.adv_eps,
            planned_size=config.group_size,
        )
        keep_N = result.kept_N
        if config.dynamic_sampling or config.mask_zero_variance:
            keep_N = keep_N & ~result.zero_variance_N
        kept = [trajectory for trajectory, keep in zip(trajectories, keep_N, strict=True) if keep]
        missing = 0
        tried, most = len(trajectories), config.max_resamples * config.trajectories
        if config.dynamic_sampling and len(kept) < config.trajectories and tried < most:
            short = min(config.trajectories - len(kept), most - tried)
            missing = -(-short // config.group_size) * config.group_size  # whole groups
        credit, metrics = self.assign(kept, result.advantages_N[keep_N], final=not missing)
        return CreditBatch(kept, credit, metrics=group_metrics(result) | metrics, missing=missing)

    def assign(
        self, kept: Sequence[Trajectory], advantages_N: np.ndarray, *, final: bool
    ) -> tuple[list[Credit], dict[str, float]]:
        """Credit of the rollouts that are kept.

        Args:
            kept: The rollouts.
            advantages_N: Advantage of each relative to its group.
            final: The batch is full. If not, it comes again with more groups, so nothing may be
                remembered of it.

        Returns:
            Credit of each, and metrics.
        """
        return spread(kept, advantages_N, self.config.adv_norm), {}

    def _return(self, trajectory: Trajectory) -> float:
        total = float(turn_rewards(trajectory, self.config.invalid_penalty).sum())
        return total + self._overlong(trajectory)

    def _overlong(self, trajectory: Trajectory) -> float:
        if self.config.overlong_length is None:
            return 0.0
        penalty = soft_overlong_penalty(
            [trajectory.n_actions],
            max_length=self.config.overlong_length,
            cache_length=self.config.overlong_cache,
        )
        return float(penalty[0])


def spread(
    trajectories: Sequence[Trajectory], advantages_N: np.ndarray, norm: AdvantageNorm
) -> list[Credit]:
    """Put one advantage a trajectory on all its tokens and bring the batch to scale.

    Args:
        trajectories: The rollouts.
        advantages_N: Advantage of each.
        norm: See :func:`trainers.advantages.group.normalise`; tokens are what is averaged over.
    """
    per_token = [
        np.full(trajectory.n_actions, advantage, np.float64)
        for trajectory, advantage in zip(trajectories, advantages_N, strict=True)
    ]
    return [Credit(turns) for turns in normalise_turns(trajectories, per_token, norm)]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of ``python -m trainers.grpo``."""
    from trainers.loop import run

    config = parse_args(GRPOConfig, argv, "python -m trainers.grpo")
    return run(GRPO, config)


if __name__ == "__main__":
    raise SystemExit(main())
