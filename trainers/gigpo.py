"""GiGPO (arXiv 2505.10978): what was done in one situation, compared across a task's rollouts.

``A = A_episode + omega A_step``: a rollout's score relative to its group, and each decision's
discounted return relative to those of the rows that answered the same observation. With
``--omega 0`` and ``--cross-steps False`` it is GRPO, bit for bit. ``--hgpo`` compares rows of ever
longer common histories instead (HGPO, arXiv 2602.22817).

A row is a turn, however the policy is prompted: one prompt a turn as published (``windowed``), or
one sequence an episode in which each turn's tokens carry that turn's advantage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from agentgym.packing import Credit
from agentgym.prompts import PromptMode
from agentgym.trajectory import Trajectory
from trainers.advantages.gigpo import episode_advantages, history_advantages, local_advantages
from trainers.advantages.steps import Anchor, PenaltyOn, StepRows, anchor_groups, step_rows
from trainers.algorithm import normalise_turns
from trainers.command_line import parse_args
from trainers.config import not_negative, require
from trainers.grpo import GRPO, GRPOConfig

__all__ = ["Estimator", "GiGPO", "GiGPOConfig", "main"]

Estimator = Literal["paper", "ours"]


@dataclass(kw_only=True)
class GiGPOConfig(GRPOConfig):
    """Train with episode-level and step-level groups.

    Attributes:
        estimator: ``paper`` takes the published estimator; ``ours`` sets, for what is None below,
            ``--cross-steps False``.
        gamma: Discount of a turn, for the step term's returns.
        omega: Weight of the step term.
        cross_steps: Mean and deviation of the episode term over all rows of a group, so that long
            rollouts weigh more; False counts each rollout once. None: as the estimator has it.
        anchor: What makes two situations the same: the observation, or the observation in the same
            progress state (one text such as "Nothing happens." can mean many situations).
        similarity: Rows of nearly equal observations share a situation, from this ratio on (0.95,
            search 0.9); None asks for equality.
        invalid_penalty: Subtracted from the score and the return of each bad row; earlier rows do
            not pay for it.
        penalty_on: Rows of the wrong form are bad (published), or inadmissible ones too.
        abstraction: Progress abstraction: a preset of the environment, or ``generic``. ``auto``
            is ``paper`` with that estimator, else ``compact``, or what the environment has.
        hgpo: Compare rows of common histories instead: weights and deviation by the ``formula``, or
            as the published code has them (``release``).
        hgpo_history: Longest history, in observations before the present one (K).
        hgpo_alpha: Exponent of the levels' weights.
        hgpo_base: Make the episode term one of the levels; False leaves it out.
    """

    estimator: Estimator = "paper"
    gamma: float = 0.95
    omega: float = 1.0
    cross_steps: bool | None = None
    anchor: Anchor = "observation"
    similarity: float | None = None
    penalty_on: PenaltyOn = "format"
    abstraction: str = "auto"
    hgpo: Literal["off", "formula", "release"] = "off"
    hgpo_history: int = 2
    hgpo_alpha: float = 1.0
    hgpo_base: bool = False

    invalid_penalty: float = 0.1
    prompt_mode: PromptMode = "windowed"
    steps: int = 150
    minibatches: int = 16
    dual_clip: float | None = 3.0
    entropy_coef: float = 0.001
    kl_coef: float = 0.01

    TINY: ClassVar[Mapping[str, Any]] = {
        **GRPOConfig.TINY,
        "estimator": "ours",
        "invalid_penalty": 0.0,
        # In few updates the step term learns little else from a penalty than to shun refusals.
        "penalty_on": "format",
        "anchor": "observation_state",
        "omega": 0.5,
        "prompt_mode": "conversation",
        "dual_clip": None,
        "entropy_coef": 0.0,
        "kl_coef": 0.0,
    }

    def validate(self) -> None:
        """See :meth:`trainers.config.TrainConfig.validate`."""
        super().validate()
        self._check("between 0 and 1", lambda v: 0 <= v <= 1, "gamma")
        self._check("a finite number, 0 or more", not_negative, "omega", "hgpo_alpha")
        self._check("0 or more", lambda v: v >= 0, "hgpo_history")
        self._check(
            "above 0 and at most 1, or None", lambda v: v is None or 0 < v <= 1, "similarity"
        )
        exact = self.similarity is None or self.hgpo == "off"
        require(exact, "similarity", self.similarity, "None: HGPO compares exact histories")
        require(self.adv_center == "mean", "adv_center", self.adv_center, "mean")
        require(bool(self.abstraction), "abstraction", "empty", "auto, generic or a preset's name")
        right = "auto: nothing here reads the progress (--anchor observation_state does)"
        unused = self.progress_preset is None and self.abstraction != "auto"
        require(not unused, "abstraction", self.abstraction, right)

    @property
    def by_row(self) -> bool:
        """Whether the episode term compares rows rather than rollouts."""
        return self.estimator == "paper" if self.cross_steps is None else self.cross_steps

    @property
    def progress_preset(self) -> str | None:
        """See :attr:`trainers.config.PlayConfig.progress_preset`."""
        return self._preset() if self.anchor == "observation_state" else None

    def _preset(self) -> str:
        if self.abstraction != "auto":
            return self.abstraction
        return "paper" if self.estimator == "paper" else "compact"


class GiGPO(GRPO):
    """See the module's docstring.

    Args:
        config: Settings.
    """

    name = "gigpo"
    config: GiGPOConfig

    def assign(
        self, kept: Sequence[Trajectory], advantages_N: np.ndarray, *, final: bool
    ) -> tuple[list[Credit], dict[str, float]]:
        """One advantage a turn, on all its tokens."""
        config = self.config
        rows = step_rows(
            kept,
            penalty_on=config.penalty_on,
            extra=[self._overlong(trajectory) for trajectory in kept],
        )
        anchor_R = self._situations(rows)
        episode_R = episode_advantages(
            rows.scores(config.invalid_penalty),
            rows.group_R,
            rows.trajectory_R,
            cross_steps=config.by_row,
            std=config.adv_std,
            eps=config.adv_eps,
            ddof=config.adv_ddof,
        )
        step_R, metrics = self.step_term(rows, anchor_R, episode_R, final=final)
        total_R = episode_R + config.omega * step_R if config.hgpo == "off" else step_R
        sizes = np.bincount(anchor_R, minlength=1)
        metrics |= {
            "adv_episode_rms": _rms(episode_R),
            "adv_step_rms": _rms(step_R),
            "rows": len(rows),
            "situations": len(sizes) if len(rows) else 0,
            "singleton_rows": float((sizes[anchor_R] == 1).mean()) if len(rows) else 0.0,
        }
        return self._on_tokens(kept, total_R), metrics

    def step_term(
        self, rows: StepRows, anchor_R: np.ndarray, episode_R: np.ndarray, *, final: bool
    ) -> tuple[np.ndarray, dict[str, float]]:
        """What is added to the episode term, times omega, and metrics.

        Args:
            rows: The rows.
            anchor_R: Situation of each.
            episode_R: Episode term of each.
            final: See :meth:`trainers.grpo.GRPO.assign`.
        """
        config = self.config
        returns_R = rows.returns(config.gamma, config.invalid_penalty)
        std, eps = config.adv_std, config.adv_eps
        if config.hgpo != "off":
            levels_R = history_advantages(
                returns_R,
                rows.group_R,
                rows.trajectory_R,
                rows.observation_R,
                history=config.hgpo_history,
                alpha=config.hgpo_alpha,
                weights=config.hgpo,
                base_R=episode_R if config.hgpo_base else None,
                std=std,
                eps=eps,
            )
            return levels_R, {}
        local_R, active_R = local_advantages(
            returns_R, anchor_R, std=std, eps=eps, ddof=config.adv_ddof
        )
        return local_R, {"local_active": _share(active_R)}

    def _situations(self, rows: StepRows) -> np.ndarray:
        config = self.config
        if config.anchor == "observation":
            return anchor_groups(rows.group_R, rows.observation_R, config.similarity)
        seen = anchor_groups(rows.group_R, rows.observation_R, config.similarity)
        return anchor_groups(seen, rows.state_R)

    def _return(self, trajectory: Trajectory) -> float:
        """What decides whether a group varies; penalties stand on rows and do not count."""
        return trajectory.total_reward + self._overlong(trajectory)

    def _on_tokens(self, kept: Sequence[Trajectory], advantages_R: np.ndarray) -> list[Credit]:
        """Put each row's advantage on its tokens, and bring the batch to scale."""
        per_token, at = [], 0
        for trajectory in kept:
            lengths = [turn.n_actions for turn in trajectory.turns if turn.n_actions]
            per_token.append(np.repeat(advantages_R[at : at + len(lengths)], lengths))
            at += len(lengths)
        return [Credit(turns) for turns in normalise_turns(kept, per_token, self.config.adv_norm)]


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2))) if len(values) else 0.0


def _share(active: np.ndarray) -> float:
    return float(active.mean()) if len(active) else 0.0


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of ``python -m trainers.gigpo``."""
    from trainers.loop import run

    config = parse_args(GiGPOConfig, argv, "python -m trainers.gigpo")
    return run(GiGPO, config)


if __name__ == "__main__":
    raise SystemExit(main())
