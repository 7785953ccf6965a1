"""When is the critic good enough? Skill against the group baseline, and the gate that watches it.

Li2SAO starts with group-relative advantages and goes over to single rollouts once its critic
predicts returns better than the group's mean does. The rule "follow the critic iff its explained
variance is positive" is EVPO's (arXiv 2604.19485), with the group mean in place of the batch mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from trainers.advantages.targets import BiasCorrectedEMA

GateMode = Literal["skill", "fixed_step", "critic_only_warmup", "per_step_gate"]
Phase = Literal["group", "single"]

_UNDEFINED_BELOW = 1e-8


@dataclass(frozen=True)
class SkillSums:
    """Sums behind the skill; add those of several workers before asking for the ratio.

    Attributes:
        gain: ``SSE_g - SSE_c``: by how much the critic's squared error is below the baseline's.
        sse_group: ``SSE_g``, squared error of "the return will equal the group baseline".
    """

    gain: float = 0.0
    sse_group: float = 0.0

    def __add__(self, other: SkillSums) -> SkillSums:
        return SkillSums(self.gain + other.gain, self.sse_group + other.sse_group)

    @property
    def sse_critic(self) -> float:
        """Squared error of the critic, each trajectory counted once."""
        return self.sse_group - self.gain

    @property
    def skill(self) -> float | None:
        """``S = 1 - SSE_c / SSE_g``; None where no group has any variance."""
        if not self.sse_group > _UNDEFINED_BELOW:
            return None
        return self.gain / self.sse_group


def skill_sums(
    centered_N: ArrayLike,
    outcomes: Sequence[ArrayLike],
    values: Sequence[ArrayLike],
    *,
    positions: Sequence[ArrayLike] | None = None,
) -> SkillSums:
    """Compare the critic's error with the group baseline's, on data it was not yet trained on.

    ``SSE_c = sum_i mean_t (y_it - V_it)^2`` and ``SSE_g = sum_i c_i^2``. The errors are mean
    squares and not variances, which would not see a constant bias. Their difference is summed term
    by term, so that a critic that says 0 everywhere has skill 0 exactly and never passes a
    threshold of 0.

    Args:
        centered_N: ``c_i``, return minus group baseline.
        outcomes: What the critic should have said, at the action tokens of each rollout: the
            reward-to-go (minus the group baseline where the critic is taught centred returns).
            For ``group_mean`` targets this is the reward-to-go and not the target: the question
            is whether the critic foresees the *return*.
        values: Critic's values from before its update, aligned with ``outcomes``.
        positions: Which action tokens to look at (all when omitted; `turn_starts` is the stricter
            choice, since late tokens are easy to predict). Rollouts with none are left out.

    Raises:
        ValueError: The arrays do not match.
    """
    centered = np.asarray(centered_N, dtype=np.float64)
    if not len(centered) == len(outcomes) == len(values):
        raise ValueError(
            f"{len(centered)} returns, {len(outcomes)} outcomes and {len(values)} values given"
        )
    gain = sse_group = 0.0
    for i, c in enumerate(centered.tolist()):
        y = np.asarray(outcomes[i], dtype=np.float64)
        v = np.asarray(values[i], dtype=np.float64)
        if y.shape != v.shape:
            raise ValueError(f"rollout {i}: outcomes {y.shape} and values {v.shape} differ")
        if positions is not None:
            at = np.asarray(positions[i], dtype=np.bool_)
            y, v = y[at], v[at]
        if y.size == 0:
            continue
        gain += float(np.mean(c * c - (y - v) * (y - v)))
        sse_group += c * c
    return SkillSums(gain, sse_group)


def explained_variance(
    targets: ArrayLike,
    values: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    form: Literal["mse", "var"] = "mse",
) -> float | None:
    """Share of the targets' variance that the critic explains, at the masked positions.

    ``mse``: ``1 - mean((y - V)^2) / Var(y)``; ``var``: ``1 - Var(y - V) / Var(y)``, the classical
    form, which is blind to a constant bias and must not decide anything.

    Returns:
        At most 1; None if the targets do not vary.
    """
    y = np.asarray(targets, dtype=np.float64)
    v = np.asarray(values, dtype=np.float64)
    if y.shape != v.shape:
        raise ValueError(f"targets {y.shape} and values {v.shape} differ in shape")
    if mask is not None:
        chosen = np.asarray(mask).astype(np.bool_)
        y, v = y[chosen], v[chosen]
    variance = float(y.var()) if y.size else 0.0
    if not variance > _UNDEFINED_BELOW:
        return None
    error = y - v
    wrong = float(np.mean(error * error)) if form == "mse" else float(error.var())
    return 1.0 - wrong / variance


@dataclass(frozen=True)
class GateConfig:
    """When to go over from group-relative advantages to the critic.

    The Li2SAO abstract says only that this happens once the critic has warmed up; every field is a
    choice of this implementation.

    Attributes:
        mode: ``"skill"``: by the rule below. ``"fixed_step"``: after ``switch_step`` steps.
            ``"critic_only_warmup"``: the same, with the actor frozen until then.
            ``"per_step_gate"`` (EVPO): anew in each step by that step's own skill; rollouts come
            in groups for ever.
        tau: The moving average of the skill must exceed this. 0: better than the group mean.
        beta: Memory of the moving average.
        patience: For so many defined steps in a row.
        min_steps: Not before this many steps.
        max_steps: Force the switch after this many steps; None or infinity: never force it.
            0 starts with the critic.
        switch_step: For the two modes with a fixed step; 0 starts with the critic.
        clip: Skills are clipped to ``[-clip, clip]``: a bad critic can have a skill of -50, which
            the average would remember for dozens of steps.
        tau_off: Go back to groups when the moving average of the critic's explained variance
            after the switch stays below this for ``patience`` steps. None: the switch is final.
    """

    mode: GateMode = "skill"
    tau: float = 0.0
    beta: float = 0.9
    patience: int = 3
    min_steps: int = 10
    max_steps: float | None = None
    switch_step: int | None = None
    clip: float = 1.0
    tau_off: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: A field is out of range or does not fit the mode.
        """
        if self.mode not in get_args(GateMode):
            raise ValueError(f"gate mode must be one of {get_args(GateMode)}, got {self.mode!r}")
        if not 0.0 <= self.beta < 1.0:
            raise ValueError(f"gate beta must lie in [0, 1), got {self.beta}")
        if self.patience < 1:
            raise ValueError(f"gate patience must be >= 1, got {self.patience}")
        if self.min_steps < 0:
            raise ValueError(f"gate min_steps must be >= 0, got {self.min_steps}")
        if self.max_steps is not None and not self.max_steps >= 0:
            raise ValueError(f"gate max_steps must be >= 0 or None, got {self.max_steps}")
        if not self.clip > 0:
            raise ValueError(f"gate clip must be > 0, got {self.clip}")
        if math.isnan(self.tau) or (self.tau_off is not None and math.isnan(self.tau_off)):
            raise ValueError("gate thresholds must be numbers, got NaN")
        fixed = self.mode in ("fixed_step", "critic_only_warmup")
        if fixed and (self.switch_step is None or self.switch_step < 0):
            raise ValueError(f"gate mode {self.mode!r} needs switch_step >= 0")
        if not fixed and self.switch_step is not None:
            raise ValueError(f"gate mode {self.mode!r} takes no switch_step")
        if self.tau_off is not None and self.mode != "skill":
            raise ValueError("tau_off works with gate mode 'skill' only")


class PhaseGate:
    """Decides, step by step, whether the group or the critic gives the advantages.

    Once a learner step, call `judge` with the critic's skill on the fresh batch, before the critic
    is updated on it; it returns the phase in which this very batch is to be credited. The phase of
    the rollouts to be sampled next is ``phase`` afterwards.

    Attributes:
        config: The rule.
        phase: ``"group"`` or ``"single"``.
        step: Number of batches judged.
        switched_at: Step after which the critic took over (0: from the start), None before that.
        forced: The switch came from ``max_steps`` and not from the critic's skill.
        fallbacks: How often the gate went back to groups.
    """

    def __init__(self, config: GateConfig) -> None:
        self.config = config
        self.phase: Phase = "group"
        self.step = 0
        self.switched_at: int | None = None
        self.forced = False
        self.fallbacks = 0
        self._phase_step = 0  # batches judged in this phase
        self._streak = 0  # consecutive defined steps beyond the threshold
        self._ema = BiasCorrectedEMA(config.beta)
        self._last: float | None = None  # the signal of the latest batch
        self._last_ema: float | None = None  # and the average with it, kept across a switch
        if self._due_at(0):
            self._switch(forced=config.mode == "skill")

    @property
    def ema(self) -> float | None:
        """Moving average up to the latest batch, of the skill or, after it, explained variance."""
        return self._last_ema

    @property
    def trains_actor(self) -> bool:
        """False while a critic-only warm-up keeps the actor frozen."""
        return self.config.mode != "critic_only_warmup" or self.phase == "single"

    @property
    def samples_groups(self) -> bool:
        """Whether the next rollouts must come in groups."""
        return self.phase == "group" or self.config.mode == "per_step_gate"

    def judge(self, skill: float | None) -> Phase:
        """Take in the verdict on one batch and move on.

        Args:
            skill: In the group phase `SkillSums.skill`; in the single phase the critic's explained
                variance (used for the fallback only). None or NaN where undefined: the step
                counts, the moving average and the streak stay as they are.

        Returns:
            The phase this batch belongs to. A switch takes effect with the next batch, except in
            ``per_step_gate``, where the batch itself is credited by its own verdict.
        """
        self.step += 1
        self._phase_step += 1
        credited: Phase = self.phase
        self._last = None if skill is None or math.isnan(skill) else float(skill)
        if self._last is not None:
            self._ema.update(min(max(self._last, -self.config.clip), self.config.clip))
        self._last_ema = self._ema.value

        if self.config.mode == "per_step_gate":
            trusted = self._last is not None and self._last > self.config.tau
            self.phase = "single" if trusted else "group"
            return self.phase
        if self.phase == "group":
            if self.config.mode == "skill" and self._last is not None:
                above = self.ema is not None and self.ema > self.config.tau
                self._streak = self._streak + 1 if above else 0
            earned = (
                self.config.mode == "skill"
                and self._streak >= self.config.patience
                and self._phase_step >= self.config.min_steps
            )
            if earned:
                self._switch(forced=False)
            elif self._due_at(self._phase_step):
                self._switch(forced=self.config.mode == "skill")
        elif self.config.tau_off is not None and self._last is not None:
            below = self.ema is not None and self.ema < self.config.tau_off
            self._streak = self._streak + 1 if below else 0
            if self._streak >= self.config.patience:
                self._fall_back()
        return credited

    def metrics(self) -> dict[str, float]:
        """Numbers for the run's log; an undefined skill is left out."""
        numbers = {
            "phase_single": float(self.phase == "single"),
            "gate_streak": float(self._streak),
        }
        if self._last is not None:
            numbers["skill"] = self._last
        if self.ema is not None:
            numbers["skill_ema"] = self.ema
        return numbers

    def state_dict(self) -> dict[str, Any]:
        """Plain values that resume the gate exactly, also through JSON."""
        return {
            "config": asdict(self.config),
            "phase": self.phase,
            "step": self.step,
            "switched_at": self.switched_at,
            "forced": self.forced,
            "fallbacks": self.fallbacks,
            "phase_step": self._phase_step,
            "streak": self._streak,
            "ema": self._ema.state_dict(),
            "last": self._last,
            "last_ema": self._last_ema,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: The state was made under another configuration.
        """
        ours = asdict(self.config)
        differing = {k: (v, ours.get(k)) for k, v in state["config"].items() if ours.get(k) != v}
        if differing:
            raise ValueError(
                f"gate was saved under another configuration (saved, now): {differing}"
            )
        if state["phase"] not in get_args(Phase):
            raise ValueError(
                f"saved phase must be one of {get_args(Phase)}, got {state['phase']!r}"
            )
        self.phase = state["phase"]
        self.step = int(state["step"])
        self.switched_at = None if state["switched_at"] is None else int(state["switched_at"])
        self.forced = bool(state["forced"])
        self.fallbacks = int(state["fallbacks"])
        self._phase_step = int(state["phase_step"])
        self._streak = int(state["streak"])
        self._ema.load_state_dict(state["ema"])
        self._last = None if state["last"] is None else float(state["last"])
        self._last_ema = None if state["last_ema"] is None else float(state["last_ema"])

    def _due_at(self, phase_step: int) -> bool:
        """Whether a switch is due by the count of steps alone."""
        if self.config.mode in ("fixed_step", "critic_only_warmup"):
            return self.config.switch_step is not None and phase_step >= self.config.switch_step
        if self.config.mode == "skill":
            return self.config.max_steps is not None and phase_step >= self.config.max_steps
        return False

    def _switch(self, *, forced: bool) -> None:
        self.phase, self.switched_at, self.forced = "single", self.step, forced
        self._restart()

    def _fall_back(self) -> None:
        self.phase, self.switched_at, self.forced = "group", None, False
        self.fallbacks += 1
        self._restart()

    def _restart(self) -> None:
        # Skill and explained variance are different quantities: each phase has its own average.
        self._ema = BiasCorrectedEMA(self.config.beta)
        self._streak = self._phase_step = 0
