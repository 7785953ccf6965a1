"""Critic targets around a group baseline, and the level of the critic after the switch.

While rollouts come in groups, the critic is taught *progress relative to the prompt*,
``U(s) = V(s) - V(prompt)``, whose mean over a prompt's rollouts is zero: a zero-initialised head is
unbiased from the start. When rollouts come singly, rewards are shifted by the running mean return,
so that the critic keeps working on the level it was taught.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from trainers.advantages.gae import reward_to_go
from trainers.advantages.turns import FloatArray, earned_before

CriticTarget = Literal["group_centered", "raw", "group_mean"]


def critic_targets(
    rewards_n: ArrayLike,
    kind: CriticTarget = "group_centered",
    *,
    centered_return: float | None = None,
    group_mean: float | None = None,
    gamma: float = 1.0,
) -> FloatArray:
    """Critic target at every action token of a rollout that has a group.

    The one published sentence on Li2SAO, that a "group-centered return" trains the critic, allows
    three readings:

    * ``"group_centered"``: ``y[t] = c_i - e_t`` with ``c_i`` the rollout's return minus the group
      baseline and ``e_t`` the reward earned strictly before ``t``; the reward-to-go minus the
      baseline. With a leave-one-out baseline ``c_i`` is unbiased, with the group mean it is
      shrunk by ``1 - 1/G``.
    * ``"raw"``: the plain reward-to-go; only the actor's advantage is centred.
    * ``"group_mean"``: the group's mean return on every token, a denoised value of the prompt.

    Truncated rollouts count with the sum they were seen to earn: there is no critic yet to say
    what came after.

    Args:
        rewards_n: Rewards placed on action tokens.
        kind: Which reading.
        centered_return: ``c_i``, `GroupAdvantages.centered_N` of this rollout.
        group_mean: `GroupAdvantages.mean_N` of this rollout.
        gamma: Must be 1. The bookkeeping of ``e_t`` holds for undiscounted returns only.

    Raises:
        ValueError: ``gamma`` is not 1, or what ``kind`` needs is missing or not finite.
    """
    if gamma != 1.0:
        raise ValueError(f"group baselines need undiscounted returns: gamma must be 1, got {gamma}")
    if kind == "raw":
        return reward_to_go(rewards_n)
    if kind == "group_centered":
        return _needed(centered_return, "centered_return", kind) - earned_before(rewards_n)
    if kind == "group_mean":
        return np.full(np.shape(rewards_n), _needed(group_mean, "group_mean", kind))
    raise ValueError(f"kind must be 'group_centered', 'raw' or 'group_mean', got {kind!r}")


def recenter_rewards(rewards_n: ArrayLike, level: float, *, bootstrapped: bool) -> FloatArray:
    """Subtract the mean return ``level`` once, at the last action token.

    A critic taught centred returns predicts around zero. Raw rewards would leave an offset at the
    final step of every episode, which decays backwards with lambda and so favours short or long
    episodes. A bootstrapped episode is left alone: its ``v_end`` is on the centred scale already.

    Args:
        rewards_n: Rewards placed on action tokens of one rollout.
        level: `ReturnLevel.value` from before this batch.
        bootstrapped: `EpisodeEnd.bootstrapped`.
    """
    rewards = np.array(rewards_n, dtype=np.float64)
    if rewards.size and not bootstrapped:
        rewards[-1] -= level
    return rewards


class BiasCorrectedEMA:
    """Exponential moving average whose start is not pulled towards zero.

    ``m <- beta m + (1 - beta) x``, ``value = m / (1 - beta^n)``.

    Args:
        beta: Memory, in [0, 1).
    """

    def __init__(self, beta: float = 0.9) -> None:
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"beta must lie in [0, 1), got {beta}")
        self.beta = beta
        self._sum = 0.0
        self._count = 0

    @property
    def value(self) -> float | None:
        """The average, None before the first update."""
        if self._count == 0:
            return None
        return self._sum / (1.0 - self.beta**self._count)

    def update(self, x: float) -> None:
        """Take in one value.

        Raises:
            ValueError: The value is not finite (it would stay forever).
        """
        if not np.isfinite(x):
            raise ValueError(f"a moving average takes finite values only, got {x}")
        self._sum = self.beta * self._sum + (1.0 - self.beta) * float(x)
        self._count += 1

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers that restore the average exactly, also through JSON."""
        return {"sum": self._sum, "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._sum, self._count = float(state["sum"]), int(state["count"])


class ReturnLevel:
    """Running mean return ``b`` that re-centres single rollouts.

    Tracked from the first step on, also while rollouts come in groups. Read ``value`` before
    `update`: a batch must not be centred by its own mean, which depends on its actions.

    Args:
        beta: Memory of the moving average over steps.
    """

    def __init__(self, beta: float = 0.9) -> None:
        self._mean = BiasCorrectedEMA(beta)

    @property
    def value(self) -> float:
        """Mean return so far, 0 before the first batch."""
        mean = self._mean.value
        return 0.0 if mean is None else mean

    def update(self, returns_N: ArrayLike) -> None:
        """Take in the returns of one batch; an empty batch changes nothing."""
        returns = np.asarray(returns_N, dtype=np.float64)
        if returns.size:
            self._mean.update(float(returns.mean()))

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return self._mean.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._mean.load_state_dict(state)


def _needed(value: float | None, name: str, kind: str) -> float:
    if value is None or not np.isfinite(value):
        raise ValueError(f"{kind!r} targets need a finite {name}, got {value}")
    return float(value)
