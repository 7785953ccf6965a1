"""LiSAO and SAO: single rollouts, a critic, and token-level GAE that skips observations.

SAO (arXiv 2607.07508) samples one rollout a task, filters tokens by a two-sided band on the
importance ratio (DIS), and takes advantages from a critic pretrained on values. LiSAO is the same
without the pretraining: its critic starts from the policy's trunk with a zero head. Give
``--critic PATH`` (see ``trainers.value_pretrain``) and this module is SAO.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from agentgym.packing import Credit
from agentgym.trajectory import Trajectory, TrajectoryGroup
from trainers.advantages.gae import (
    EndRule,
    EndRules,
    end_of_episode,
    length_adaptive_lambda,
    reward_to_go,
    skip_observation_gae,
    turn_level_gae,
)
from trainers.advantages.group import AdvantageNorm
from trainers.advantages.targets import recenter_rewards
from trainers.advantages.turns import concatenate, place_turn_rewards, split_by_turn, turn_index
from trainers.algorithm import (
    Algorithm,
    CreditBatch,
    Plan,
    TrajectoryValues,
    explained_metrics,
    normalise_turns,
    turn_rewards,
)
from trainers.command_line import parse_args
from trainers.config import TrainConfig, require
from trainers.critic import read_critic_facts
from trainers.losses import PolicyLossKind

__all__ = ["LiSAO", "LiSAOConfig", "main", "single_rollout_credit"]


@dataclass(kw_only=True)
class LiSAOConfig(TrainConfig):
    """Train with single rollouts and a critic.

    Attributes:
        loss: Policy loss. DIS has no old policy and no clipping, only the band.
        clip_low: The band starts at ``1 - clip_low``. Published: 0.3 for mathematics, 0.8 for
            agents.
        clip_high: The band ends at ``1 + clip_high``. Published: 5.0 and 3.0.
        gamma: Discount per action token. The paper does not state it; 1 leaves the return as it
            is whatever the number of tokens.
        lambda_alpha: lambda = 1 - 1/(alpha l) with l action tokens.
        credit_level: Advantages by token (SAO), or by turn (Turn-PPO, arXiv 2512.17008).
        turn_gamma: Discount per turn, with ``--credit-level turn``.
        turn_lambda: Trace decay per turn, with ``--credit-level turn``.
        adv_norm: Scale of the batch's advantages. ``batch_std`` divides only: no advantage
            changes its sign. The paper does not state any.
        critic_warmup_steps: Steps that train only the critic. The paper's "10-step warm-up" is
            not explained; 0 keeps LiSAO the plain baseline.
        end_length_limit: Value after an episode that ran out of tokens. ``zero``: running out is
            the policy's own failure.
        end_deadline: Value after an episode that ran out of time.
    """

    trajectories: int = 128
    loss: PolicyLossKind = "dis"
    clip_low: float | None = 0.8
    clip_high: float | None = 3.0
    gamma: float = 1.0
    lambda_alpha: float = 1.5
    credit_level: Literal["token", "turn"] = "token"
    turn_gamma: float = 0.99
    turn_lambda: float = 0.9
    adv_norm: AdvantageNorm = "batch_std"
    critic_warmup_steps: int = 0
    end_length_limit: EndRule = "zero"
    end_deadline: EndRule = "bootstrap"

    def validate(self) -> None:
        """See :meth:`trainers.config.TrainConfig.validate`."""
        super().validate()
        unit = ("gamma", "turn_gamma", "turn_lambda")
        self._check("between 0 and 1", lambda v: 0 <= v <= 1, *unit)
        self._check("above 0", lambda v: v > 0, "lambda_alpha")
        self._check("0 or more", lambda v: v >= 0, "critic_warmup_steps")
        require(
            self.critic_trunk == "own" or not self.critic_warmup_steps,
            "critic_warmup_steps",
            self.critic_warmup_steps,
            "0 with --critic-trunk shared: training the critic alone would move the actor",
        )
        if self.critic is not None and self.resume is None:
            taught = read_critic_facts(self.critic).get("gamma", self.gamma)
            right = f"{taught}, with which the critic of {self.critic} was trained"
            require(self.gamma == taught, "gamma", self.gamma, right)


class LiSAO(Algorithm):
    """See the module's docstring.

    Args:
        config: Settings.
    """

    name = "lisao"
    uses_critic = True
    config: LiSAOConfig

    def __init__(self, config: LiSAOConfig) -> None:
        super().__init__(config)
        self._steps = 0

    def plan(self, step: int) -> Plan:
        """Every rollout plays a task of its own."""
        return Plan(self.config.trajectories, 1)

    def credit(
        self, groups: Sequence[TrajectoryGroup], values: Sequence[TrajectoryValues] | None
    ) -> CreditBatch:
        """Skip-observation GAE from the critic's values."""
        batch = single_rollout_credit(
            [member for group in groups for member in group], values, self.config
        )
        self._steps += 1
        batch.train_actor = self._steps > self.config.critic_warmup_steps
        return batch

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`trainers.algorithm.Algorithm.state_dict`."""
        return {"steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See :meth:`trainers.algorithm.Algorithm.load_state_dict`."""
        self._steps = int(state["steps"])


def single_rollout_credit(
    trajectories: Sequence[Trajectory],
    values: Sequence[TrajectoryValues] | None,
    config: LiSAOConfig,
    level: float | None = None,
) -> CreditBatch:
    """Advantages and value targets of rollouts that have no group.

    Left out are rollouts lost to faults, those that the end rules drop, and those whose return is
    not a finite number.

    Args:
        trajectories: The rollouts.
        values: The critic's values of each, from before its update.
        config: Settings.
        level: Mean return to subtract once from each episode that is not bootstrapped, for a
            critic that was taught centred returns; None for a critic on the raw scale.
    """
    if values is None:
        raise ValueError("single-rollout credit needs the critic's values")
    rules = EndRules(config.end_max_turns, config.end_length_limit, config.end_deadline)
    assign = _turn_credit if config.credit_level == "turn" else _token_credit
    kept: list[Trajectory] = []
    advantages: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    seen: list[np.ndarray] = []
    for trajectory, value in zip(trajectories, values, strict=True):
        rewards_K = turn_rewards(trajectory, config.invalid_penalty)
        if not trajectory.usable or not np.isfinite(rewards_K).all():
            continue
        end = end_of_episode(
            trajectory.stop_reason,
            terminated=trajectory.terminated,
            v_boot=value.v_boot,
            rules=rules,
        )
        if not end.keep:
            continue
        turn_n = turn_index([turn.n_actions for turn in trajectory.turns])
        rewards_n = place_turn_rewards(rewards_K, turn_n)
        if level is not None:
            rewards_n = recenter_rewards(rewards_n, level, bootstrapped=end.bootstrapped)
        values_n = concatenate(value.turns)
        advantages_n, targets_n = assign(rewards_n, values_n, turn_n, end.v_end, config)
        kept.append(trajectory)
        advantages.append(advantages_n)
        targets.append(targets_n)
        seen.append(values_n)
    credit = [
        Credit(by_turn, split_by_turn(targets_n, [len(turn) for turn in by_turn]))
        for by_turn, targets_n in zip(
            normalise_turns(kept, advantages, config.adv_norm), targets, strict=True
        )
    ]
    return CreditBatch(kept, credit, metrics=explained_metrics(targets, seen))


def _token_credit(
    rewards_n: np.ndarray,
    values_n: np.ndarray,
    turn_n: np.ndarray,
    v_end: float,
    config: LiSAOConfig,
) -> tuple[np.ndarray, np.ndarray]:
    """SAO: one GAE step an action token; the critic's target has lambda 1."""
    advantages_n = skip_observation_gae(
        rewards_n,
        values_n,
        v_end=v_end,
        gamma=config.gamma,
        lam=length_adaptive_lambda(len(turn_n), config.lambda_alpha),
    )
    return advantages_n, reward_to_go(rewards_n, v_end=v_end, gamma=config.gamma)


def _turn_credit(
    rewards_n: np.ndarray,
    values_n: np.ndarray,
    turn_n: np.ndarray,
    v_end: float,
    config: LiSAOConfig,
) -> tuple[np.ndarray, np.ndarray]:
    """Turn-PPO: one GAE step a turn; the critic is asked at turn starts only (NaN elsewhere)."""
    earned_K = np.bincount(turn_n, weights=rewards_n, minlength=int(turn_n[-1]) + 1)
    by_turn = turn_level_gae(
        earned_K, values_n, turn_n, v_end=v_end, gamma=config.turn_gamma, lam=config.turn_lambda
    )
    return by_turn.advantages_n, np.where(by_turn.critic_mask_n, by_turn.targets_n, np.nan)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of ``python -m trainers.lisao``."""
    from trainers.loop import run

    config = parse_args(LiSAOConfig, argv, "python -m trainers.lisao")
    return run(LiSAO, config)


if __name__ == "__main__":
    raise SystemExit(main())
