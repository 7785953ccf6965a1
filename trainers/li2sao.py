"""Li2SAO: group-relative advantages until the critic is warm, single rollouts from then on.

Phase A samples groups. The group-relative advantage trains the actor, and the group-centred return
trains the critic. Once the critic predicts returns better than the group baseline does, on fresh
data and for several steps, training goes over to phase B, which is LiSAO re-centred by the running
mean return: the critic was taught progress relative to the task, whose mean is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from agentgym.packing import Credit
from agentgym.trajectory import Trajectory, TrajectoryGroup
from trainers.advantages.gate import GateConfig, GateMode, PhaseGate, skill_sums
from trainers.advantages.group import (
    AdvantageNorm,
    Center,
    GroupAdvantages,
    group_advantages,
)
from trainers.advantages.targets import CriticTarget, ReturnLevel, critic_targets
from trainers.advantages.turns import (
    concatenate,
    earned_before,
    place_turn_rewards,
    split_by_turn,
    turn_index,
    turn_starts,
)
from trainers.algorithm import (
    CreditBatch,
    Plan,
    TrajectoryValues,
    explained_metrics,
    group_metrics,
    turn_rewards,
)
from trainers.command_line import parse_args
from trainers.config import require
from trainers.grpo import check_groups, spread
from trainers.lisao import LiSAO, LiSAOConfig, single_rollout_credit

__all__ = ["Li2SAO", "Li2SAOConfig", "main"]


@dataclass(kw_only=True)
class Li2SAOConfig(LiSAOConfig):
    """Train with groups first, and with single rollouts and a critic afterwards.

    Attributes:
        group_size: Rollouts of one task in phase A (G).
        critic_target: What the critic learns in phase A; see
            :func:`trainers.advantages.targets.critic_targets`.
        critic_center: Baseline of the critic's centred return. The mean of the *other* members
            (``loo``) is unbiased; the group's mean shrinks the target by 1 - 1/G.
        adv_norm: Scale of the batch's advantages, the same in both phases. Group deviations are
            not offered: phase B has no groups, and the scale would jump at the switch.
        gate_mode: ``skill`` switches by the critic's skill S; ``fixed_step`` and
            ``critic_only_warmup`` after ``switch_step`` steps; ``per_step_gate`` decides in each
            step anew (EVPO, arXiv 2604.19485).
        gate_tau: The moving average of S must exceed this.
        gate_beta: Memory of that average.
        gate_patience: For so many defined steps in a row.
        gate_min_steps: Not before this many steps.
        gate_max_steps: Force the switch after this many steps (logged as forced); None never.
        gate_positions: Judge S on all action tokens, or on the first of each turn. Returns are
            easy to predict late in an episode, so ``turn_start`` is the stricter choice.
        switch_step: For the modes with a fixed step.
        gate_tau_off: Go back to groups when the moving average of the explained variance stays
            below this after the switch; None makes the switch final.
        level_beta: Memory of the running mean return b.
    """

    group_size: int = 8
    critic_target: CriticTarget = "group_centered"
    critic_center: Center = "loo"
    adv_norm: AdvantageNorm = "batch_std"
    gate_mode: GateMode = "skill"
    gate_tau: float = 0.0
    gate_beta: float = 0.9
    gate_patience: int = 3
    gate_min_steps: int = 10
    gate_max_steps: int | None = None
    gate_positions: Literal["all", "turn_start"] = "all"
    switch_step: int | None = None
    gate_tau_off: float | None = None
    level_beta: float = 0.9

    def validate(self) -> None:
        """See :meth:`trainers.config.TrainConfig.validate`."""
        super().validate()
        check_groups(self.group_size, self.trajectories)
        undiscounted = "1: the returns of a group are compared undiscounted"
        require(self.gamma == 1, "gamma", self.gamma, undiscounted)
        if self.credit_level == "turn":
            require(self.turn_gamma == 1, "turn_gamma", self.turn_gamma, undiscounted)
        self._check("in [0, 1)", lambda v: 0 <= v < 1, "level_beta", "gate_beta")
        require(
            self.critic is None or self.critic_target != "group_centered",
            "critic",
            self.critic,
            "used with --critic-target raw or group_mean: a pretrained critic foresees returns, "
            "not returns relative to a group",
        )
        require(
            self.gate_mode != "critic_only_warmup" or self.critic_trunk == "own",
            "gate_mode",
            self.gate_mode,
            "another mode with --critic-trunk shared: a critic-only step would move the actor",
        )
        self.gate()

    def gate(self) -> GateConfig:
        """The gate's own settings."""
        return GateConfig(
            mode=self.gate_mode,
            tau=self.gate_tau,
            beta=self.gate_beta,
            patience=self.gate_patience,
            min_steps=self.gate_min_steps,
            max_steps=self.gate_max_steps,
            switch_step=self.switch_step,
            tau_off=self.gate_tau_off,
        )


class Li2SAO(LiSAO):
    """See the module's docstring.

    Args:
        config: Settings.
    """

    name = "li2sao"
    uses_critic = True
    config: Li2SAOConfig

    def __init__(self, config: Li2SAOConfig) -> None:
        super().__init__(config)
        self.gate = PhaseGate(config.gate())
        self.level = ReturnLevel(config.level_beta)

    def plan(self, step: int) -> Plan:
        """Groups in phase A, single rollouts in phase B; the same number of trajectories."""
        size = self.config.group_size if self.gate.samples_groups else 1
        return Plan(self.config.trajectories // size, size)

    def credit(
        self, groups: Sequence[TrajectoryGroup], values: Sequence[TrajectoryValues] | None
    ) -> CreditBatch:
        """Credit by the phase this batch is consumed in."""
        if values is None:
            raise ValueError("Li2SAO needs the critic's values")
        level = self.level.value  # from before this batch enters it
        trains_actor = self.gate.trains_actor  # a switch takes effect with the next batch
        if self.gate.samples_groups:
            batch = self._group_credit(groups, values, level)
        else:
            batch = self._single_credit(groups, values, level)
            self.gate.judge(batch.metrics.get("explained_variance_mse"))
            batch.metrics["phase"] = "single"
        self.level.update(self._usable_returns(groups))
        self._steps += 1
        batch.train_actor = trains_actor and self._steps > self.config.critic_warmup_steps
        batch.metrics |= {
            "baseline_b": level,
            "forced": self.gate.forced,
            "fallbacks": self.gate.fallbacks,
            "switch_step": self.gate.switched_at,
        }
        return batch

    def _single_credit(
        self,
        groups: Sequence[TrajectoryGroup],
        values: Sequence[TrajectoryValues],
        level: float,
    ) -> CreditBatch:
        """Phase B: LiSAO, on the level that phase A taught the critic."""
        centred = self.config.critic_target == "group_centered"
        return single_rollout_credit(
            [member for group in groups for member in group],
            values,
            self.config,
            level if centred else None,
        )

    def _group_credit(
        self,
        groups: Sequence[TrajectoryGroup],
        values: Sequence[TrajectoryValues],
        level: float,
    ) -> CreditBatch:
        """Phase A: centred returns for the actor and for the critic; the gate looks on."""
        config = self.config
        trajectories = [member for group in groups for member in group]
        actor = self._relative(trajectories, "mean")
        critic = self._relative(trajectories, config.critic_center)
        kept, targets, outcomes, seen, starts, centred = [], [], [], [], [], []
        for index in np.flatnonzero(actor.kept_N).tolist():
            item = trajectories[index]
            lengths_K = [turn.n_actions for turn in item.turns]
            turn_n = turn_index(lengths_K)
            rewards_n = place_turn_rewards(turn_rewards(item, config.invalid_penalty), turn_n)
            c = float(critic.centered_N[index])
            targets_n = critic_targets(
                rewards_n,
                config.critic_target,
                centered_return=c,
                group_mean=float(actor.mean_N[index]),
                gamma=config.gamma,
            )
            # What the critic should have foreseen, on the scale it is taught.
            total = c if config.critic_target == "group_centered" else float(rewards_n.sum())
            kept.append(item)
            targets.append(split_by_turn(targets_n, lengths_K))
            outcomes.append(total - earned_before(rewards_n))
            seen.append(concatenate(values[index].turns))
            starts.append(turn_starts(turn_n))
            centred.append(c)

        # The values are from before the update, so this batch is fresh to the critic.
        skill = skill_sums(centred, outcomes, seen).skill
        strict = skill_sums(centred, outcomes, seen, positions=starts).skill
        phase = self.gate.judge(strict if config.gate_positions == "turn_start" else skill)
        if phase == "single":  # only the per-step gate credits a group by the critic
            batch = self._single_credit(groups, values, level)
        else:
            actor_credit = spread(kept, actor.advantages_N[actor.kept_N], config.adv_norm)
            credit = [
                Credit(one.advantages, y) for one, y in zip(actor_credit, targets, strict=True)
            ]
            batch = CreditBatch(kept, credit, metrics=explained_metrics(outcomes, seen))
        batch.metrics |= group_metrics(actor) | {
            "phase": phase,
            "skill_raw": skill,
            "skill_turn_start": strict,
            "skill_ema": self.gate.ema,
            "gate_streak": self.gate.metrics()["gate_streak"],
        }
        return batch

    def _relative(self, trajectories: Sequence[Trajectory], center: Center) -> GroupAdvantages:
        return group_advantages(
            self._returns(trajectories),
            [item.spec.group_id for item in trajectories],
            valid_N=[item.usable for item in trajectories],
            center=center,
            planned_size=self.config.group_size,
        )

    def _returns(self, trajectories: Sequence[Trajectory]) -> np.ndarray:
        penalty = self.config.invalid_penalty
        return np.array([turn_rewards(item, penalty).sum() for item in trajectories], np.float64)

    def _usable_returns(self, groups: Sequence[TrajectoryGroup]) -> np.ndarray:
        usable = [member for group in groups for member in group if member.usable]
        returns = self._returns(usable)
        return returns[np.isfinite(returns)]

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`trainers.algorithm.Algorithm.state_dict`."""
        own = {"gate": self.gate.state_dict(), "level": self.level.state_dict()}
        return super().state_dict() | own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See :meth:`trainers.algorithm.Algorithm.load_state_dict`."""
        super().load_state_dict(state)
        self.gate.load_state_dict(state["gate"])
        self.level.load_state_dict(state["level"])


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of ``python -m trainers.li2sao``."""
    from trainers.loop import run

    config = parse_args(Li2SAOConfig, argv, "python -m trainers.li2sao")
    return run(Li2SAO, config)


if __name__ == "__main__":
    raise SystemExit(main())
