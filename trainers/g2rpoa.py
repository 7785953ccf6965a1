"""Guided GRPO and G2RPO-A: some rollouts of each group begin with steps of a reference.

G2RPO-A (arXiv 2508.13023) gives ``ceil(alpha n)`` of a group's ``n`` rollouts the first tokens of a
reference solution and adapts their number to the success of training. ``--guidance fixed`` keeps
the number, ``linear`` lets it fall, ``none`` is GRPO; so is a share or a length of 0, bit for bit.

Guidance is context: it is in no loss, KL, clip statistic or length. Rewards and the group's
baseline are those of the whole episodes, guided and not. In environments whose reference is a list
of actions, the oracle plays the first turns instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from agentgym.guidance import Guidance
from agentgym.packing import Credit
from agentgym.trajectory import Trajectory, TrajectoryGroup
from trainers.advantages.guidance import (
    ControllerMode,
    GuidanceKind,
    GuidanceSchedule,
    LengthController,
    ZeroRule,
    guided_count,
)
from trainers.aggregation import Aggregation
from trainers.algorithm import CreditBatch, Plan, TrajectoryValues
from trainers.command_line import parse_args
from trainers.config import require
from trainers.grpo import GRPO, GRPOConfig

__all__ = ["G2RPOA", "G2RPOAConfig", "main"]


@dataclass(kw_only=True)
class G2RPOAConfig(GRPOConfig):
    """Train with groups of which some members are given the beginning of a solution.

    Attributes:
        guidance: ``adaptive`` (G2RPO-A), ``fixed``, ``linear`` decay, or ``none`` (GRPO).
        guided_share: Share alpha of each group that is guided; ceil(alpha n) rollouts. Best
            published values: 1/4 (Qwen3-1.7B) and 3/4 (Qwen3-0.6B), on mathematics.
        guidance_length: First length, in tokens of the reference, or in turns where the reference
            is a list of actions; 0 for none.
        guidance_longest: Longest length of ``adaptive``; None takes the first one.
        guidance_last: Last length of ``linear``.
        guidance_steps: Steps over which ``linear`` falls. Independent of ``steps``, so that a
            resumed run is the same.
        guidance_window: Steps before (T) whose success a step is compared with.
        guidance_mode: Change the length after each step, or every T + 1 steps (published code).
        guidance_factor: The length changes by this factor a step at most; None for no bound
            (published code).
        guidance_zero: What a success rate of 0 does: ``double`` (by the factor), ``keep`` the
            length (published code), or ``epsilon``.
        guidance_signal: Whose success drives the length. ``unguided`` keeps longer guidance from
            raising the rate that shortens it.
        guidance_cap: Most that is given of a reference, as a share of its length. The final answer
            and an oracle's last action are never given.
        loss_on_guidance: Put given tokens into the loss, as the published code does. Needs
            ``--old-logprobs recompute``: nobody sampled them.
    """

    guidance: GuidanceKind = "adaptive"
    guided_share: float = 0.25
    guidance_length: int = 3072
    guidance_longest: int | None = None
    guidance_last: int = 0
    guidance_steps: int = 150
    guidance_window: int = 2
    guidance_mode: ControllerMode = "sliding"
    guidance_factor: float | None = 2.0
    guidance_zero: ZeroRule = "double"
    guidance_signal: Literal["all", "unguided"] = "all"
    guidance_cap: float = 0.8
    loss_on_guidance: bool = False

    group_size: int = 10
    trajectories: int = 280
    adv_eps: float = 1e-4
    learning_rate: float = 1e-5
    aggregation: Aggregation = "seq_mean_token_mean"
    max_action_tokens: int = 4096

    TINY: ClassVar[Mapping[str, Any]] = {
        **GRPOConfig.TINY,
        "group_size": 8,
        "guided_share": 0.5,
        "guidance_length": 16,
    }

    def validate(self) -> None:
        """See :meth:`trainers.config.TrainConfig.validate`."""
        super().validate()
        self._check("between 0 and 1", lambda v: 0 <= v <= 1, "guided_share", "guidance_cap")
        self._check("0 or more", lambda v: v >= 0, "guidance_length", "guidance_last")
        self._check("at least 1", lambda v: v >= 1, "guidance_steps", "guidance_window")
        self._check(
            f"at least --guidance-length ({self.guidance_length}), or None",
            lambda v: v is None or v >= self.guidance_length,
            "guidance_longest",
        )
        self._check(
            f"at most --guidance-length ({self.guidance_length})",
            lambda v: self.guidance != "linear" or v <= self.guidance_length,
            "guidance_last",
        )
        self._check(
            "a finite number above 1, or None",
            lambda v: v is None or 1 < v < float("inf"),
            "guidance_factor",
        )
        require(
            self.guidance_signal == "all" or self.guided < self.group_size,
            "guidance_signal",
            self.guidance_signal,
            f"all where the whole group is guided (--guided-share {self.guided_share})",
        )
        if self.loss_on_guidance:
            require(
                self.old_logprobs == "recompute" and self.correction == "off",
                "loss_on_guidance",
                True,
                "used with --old-logprobs recompute and --correction off: given tokens have no "
                "log-prob from the sampler",
            )

    @property
    def guided(self) -> int:
        """Guided rollouts of each group."""
        return guided_count(self.guided_share, self.group_size)

    @property
    def needs_reference(self) -> bool:
        """See :attr:`trainers.config.PlayConfig.needs_reference`."""
        return self.guidance != "none" and self.guided > 0 and self.guidance_length > 0

    def schedule(self) -> GuidanceSchedule:
        """The controller's own settings."""
        return GuidanceSchedule(
            kind=self.guidance,
            length=self.guidance_length,
            longest=self.guidance_longest,
            last=self.guidance_last if self.guidance == "linear" else 0,
            steps=self.guidance_steps,
            window=self.guidance_window,
            mode=self.guidance_mode,
            factor=self.guidance_factor,
            zero=self.guidance_zero,
        )


class G2RPOA(GRPO):
    """See the module's docstring.

    Args:
        config: Settings.
    """

    name = "g2rpoa"
    config: G2RPOAConfig

    def __init__(self, config: G2RPOAConfig) -> None:
        super().__init__(config)
        self.controller = LengthController(config.schedule())

    def plan(self, step: int) -> Plan:
        """GRPO's groups; the first members of each are guided."""
        plan = super().plan(step)
        length, guided = self.controller.length, self.config.guided
        if not length or not guided:
            return plan
        given = Guidance(length, self.config.guidance_cap)
        rest = plan.group_size - guided
        return replace(plan, guidance=(given,) * guided + (None,) * rest)

    def credit(
        self, groups: Sequence[TrajectoryGroup], values: Sequence[TrajectoryValues] | None
    ) -> CreditBatch:
        """GRPO's advantages, guided and free rollouts compared with each other."""
        batch = super().credit(groups, values)
        played = [member for group in groups for member in group if member.usable]
        batch.metrics |= _guidance_metrics(played)
        batch.metrics["guidance_length"] = self.controller.length
        if not batch.missing:  # once a step, when all of it is there
            self.controller.observe(self._success_rate(played))
        if self.config.loss_on_guidance:
            pairs = [
                _with_given_tokens(trajectory, credit)
                for trajectory, credit in zip(batch.trajectories, batch.credit, strict=True)
            ]
            batch.trajectories = [trajectory for trajectory, _ in pairs]
            batch.credit = [credit for _, credit in pairs]
        return batch

    def _success_rate(self, played: Sequence[Trajectory]) -> Fraction | None:
        if self.config.guidance_signal == "unguided":
            played = [item for item in played if item.spec.guidance is None]
        return Fraction(sum(item.success for item in played), len(played)) if played else None

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`trainers.algorithm.Algorithm.state_dict`."""
        return {"controller": self.controller.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See :meth:`trainers.algorithm.Algorithm.load_state_dict`."""
        self.controller.load_state_dict(state["controller"])


def _guidance_metrics(played: Sequence[Trajectory]) -> dict[str, float]:
    """Guided and free rollouts apart."""
    guided = [item for item in played if item.given]
    free = [item for item in played if not item.given]
    out: dict[str, float] = {"guided_frac": len(guided) / max(len(played), 1)}
    if guided:
        out["given_mean"] = float(np.mean([item.given for item in guided]))
        out["success_guided"] = float(np.mean([item.success for item in guided]))
    if free:
        out["success_unguided"] = float(np.mean([item.success for item in free]))
    return out


def _with_given_tokens(trajectory: Trajectory, credit: Credit) -> tuple[Trajectory, Credit]:
    """The rollout as if it had written all of its responses, with its advantage on every token."""
    advantage = float(np.concatenate(credit.advantages)[0])
    turns, advantages = [], []
    for turn in trajectory.turns:
        given = turn.given
        if given:
            turn = replace(
                turn,
                context_ids=turn.context_ids[:-given],
                action_ids=turn.response_ids,
                logprobs=np.concatenate([np.full(given, np.nan, np.float32), turn.logprobs]),
                versions=np.concatenate([np.full(given, -1, np.int32), turn.versions]),
                trainable=np.concatenate([np.ones(given, bool), turn.trainable]),
                given=0,
            )
        turns.append(turn)
        advantages.append(np.full(turn.n_actions, advantage))
    return replace(trajectory, turns=turns), Credit(advantages)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of ``python -m trainers.g2rpoa``."""
    from trainers.loop import run

    config = parse_args(G2RPOAConfig, argv, "python -m trainers.g2rpoa")
    return run(G2RPOA, config)


if __name__ == "__main__":
    raise SystemExit(main())
