"""GRPO and its relatives: advantages from comparing rollouts of the same task.

Switches turn the one module into GRPO (arXiv 2402.03300), Dr.GRPO (``--adv-std none
--aggregation constant``, 2503.20783), RLOO (``--adv-center loo --adv-std none``), DAPO
(``--clip-high 0.28 --dynamic-sampling True``, 2503.14476), GSPO (``--loss gspo``, 2507.18071),
CISPO (``--loss cispo``, 2506.13585) and GRPO+DIS (``--loss dis``, 2607.07508).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentgym.packing import Credit
from agentgym.trajectory import Trajectory, TrajectoryGroup
from trainers.advantages.group import (
    AdvantageNorm,
    Center,
    Std,
    check_group_size,
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
from trainers.config import TrainConfig, parse_args

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
        max_resamples: How many times as many tasks may be tried for one batch.
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
    overlong_length: int | None = None
    overlong_cache: int = 4096

    TINY = {**TrainConfig.TINY, "clip_high": 0.28}  # noqa: RUF012

    def validate(self) -> None:
        """See :meth:`trainers.config.TrainConfig.validate`."""
        super().validate()
        check_group_size(self.group_size, "GRPO")
        check_divides(self.group_size, self.trajectories)
        if self.max_resamples < 1:
            raise ValueError(f"--max-resamples is {self.max_resamples}; it must be at least 1")


def check_divides(group_size: int, trajectories: int) -> None:
    """Refuse a batch that groups do not divide.

    Raises:
        ValueError: If there is a rest.
    """
    if trajectories % group_size:
        raise ValueError(
            f"--trajectories is {trajectories}; it must be a multiple of --group-size "
            f"({group_size})"
        )


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
        if config.dynamic_sampling:
            keep_N = keep_N & ~result.zero_variance_N
        kept = [trajectory for trajectory, keep in zip(trajectories, keep_N, strict=True) if keep]
        credit = spread(kept, result.advantages_N[keep_N], config.adv_norm)
        missing = 0
        if (
            config.dynamic_sampling
            and len(trajectories) < config.max_resamples * config.trajectories
        ):
            short = max(config.trajectories - len(kept), 0)
            missing = -(-short // config.group_size) * config.group_size
        return CreditBatch(
            kept,
            credit,
            metrics=group_metrics(result),
            dropped=len(trajectories) - len(kept),
            missing=missing,
        )

    def _return(self, trajectory: Trajectory) -> float:
        total = float(turn_rewards(trajectory, self.config.invalid_penalty).sum())
        if self.config.overlong_length is not None:
            total += float(
                soft_overlong_penalty(
                    [trajectory.n_actions],
                    max_length=self.config.overlong_length,
                    cache_length=self.config.overlong_cache,
                )[0]
            )
        return total


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
