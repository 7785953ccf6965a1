"""Generalised advantage estimation over action tokens or over turns.

Index convention: position ``t`` denotes the *token*. ``logp[t] = log pi(x_t | x_<t)`` and
``V[t]`` is the value of the prefix *before* ``x_t`` is emitted, i.e. the value head applied to the
hidden state of token ``t - 1``. ``v_end`` is the value after the last token of all, the last
observation included, where an episode was cut off, and 0 where it ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from trainers.advantages.turns import BoolArray, FloatArray, place_turn_rewards, turn_starts

EndRule = Literal["bootstrap", "zero", "drop"]


def skip_observation_gae(
    rewards_T: ArrayLike,
    values_T: ArrayLike,
    mask_T: ArrayLike | None = None,
    *,
    v_end: ArrayLike = 0.0,
    gamma: float = 1.0,
    lam: ArrayLike = 1.0,
) -> FloatArray:
    r"""Token-level GAE that steps from action token to action token (SAO, arXiv 2607.07508).

    With ``t_1 < ... < t_n`` the action tokens and ``V[t_{n+1}] := v_end``::

        delta_k = r[t_k] + gamma V[t_{k+1}] - V[t_k]
        A[t_k]  = delta_k + gamma lam A[t_{k+1}]

    An observation between two actions, however long, costs exactly one step. Values off the mask
    are never read.

    Args:
        rewards_T: Rewards, standing on action tokens (`place_turn_rewards`,
            `place_token_rewards`): one trajectory ``(T,)`` or padded rows ``(N, T)``.
        values_T: Value of the prefix before each token, same shape.
        mask_T: True on action tokens; omitted, every entry is one.
        v_end: Value after the end, a number or one a row; see `end_of_episode`.
        gamma: Discount per action token.
        lam: Trace decay per action token, a number or one a row; see `length_adaptive_lambda`.

    Returns:
        Advantages in the shape given, 0 off the mask. Rows never influence each other.

    Raises:
        ValueError: Shapes differ, a value on an action token is not finite, a reward stands off
            the mask (it would be lost), or ``gamma``, ``lam`` lie outside [0, 1].
    """
    rewards, values, mask = _rows(rewards_T, values_T, mask_T)
    v_end_N = _one_a_row(v_end, len(mask), "v_end")
    lam_N = _one_a_row(lam, len(mask), "lam")
    _check_unit_interval([gamma], "gamma")
    _check_unit_interval(lam_N, "lam")
    advantages = np.zeros(mask.shape, dtype=np.float64)
    for i, chosen in enumerate(mask):
        r, v = rewards[i, chosen].tolist(), values[i, chosen].tolist()
        a = [0.0] * len(r)
        value_next, accumulated = float(v_end_N[i]), 0.0
        decay = gamma * float(lam_N[i])
        for k in range(len(r) - 1, -1, -1):  # plain floats: faster than NumPy one by one
            accumulated = r[k] + gamma * value_next - v[k] + decay * accumulated
            a[k], value_next = accumulated, v[k]
        advantages[i, chosen] = a
    return advantages.reshape(np.shape(rewards_T))


def reward_to_go(
    rewards_T: ArrayLike,
    mask_T: ArrayLike | None = None,
    *,
    v_end: ArrayLike = 0.0,
    gamma: float = 1.0,
) -> FloatArray:
    """Critic target: what is still earned from each action token on (GAE target at lambda 1).

    ``y[t_k] = sum_{j >= k} gamma^(j-k) r[t_j] + gamma^(n-k+1) v_end``, over action tokens only; the
    sum is never restarted at an observation. It is computed from rewards alone, so it does not
    depend on the critic unless the episode is bootstrapped.

    Args, Returns and Raises are those of `skip_observation_gae`.
    """
    shape = np.shape(rewards_T)
    return skip_observation_gae(
        rewards_T, np.zeros(shape), mask_T, v_end=v_end, gamma=gamma, lam=1.0
    )


def length_adaptive_lambda(length: ArrayLike, alpha: float = 1.5) -> FloatArray:
    """``lambda = 1 - 1/(alpha l)``, clamped to [0, 1] (VAPO arXiv 2504.05118; SAO: alpha 1.5).

    The credit that reaches the first of ``l`` tokens through lambda alone is then
    ``lambda^(l-1) -> exp(-1/alpha)`` whatever the length.

    Args:
        length: Number of *action* tokens of the trajectory. The papers do not say whether
            observations count; here they do not, since a trace takes no step on them. A caller
            that wants them counted passes the larger number.
        alpha: Larger is longer memory; infinity is lambda 1. Small alphas (VAPO's 0.05) would give
            a negative lambda for short trajectories, hence the clamp.

    Returns:
        Lambda of each length; 0 for length 0.

    Raises:
        ValueError: ``alpha`` is not positive or a length is negative.
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be > 0, got {alpha}")
    lengths = np.asarray(length, dtype=np.float64)
    if (lengths < 0).any():
        raise ValueError(f"lengths must be >= 0, got {lengths.min()}")
    lam = np.clip(1.0 - 1.0 / (alpha * np.maximum(lengths, 1.0)), 0.0, 1.0)
    return np.where(lengths > 0, lam, 0.0)


@dataclass(frozen=True)
class TurnAdvantages:
    """Turn-level estimates, spread over the action tokens of one trajectory.

    Attributes:
        advantages_n: The turn's advantage on each of its action tokens.
        targets_n: Critic target at the first action token of each turn, 0 elsewhere.
        critic_mask_n: True where the critic is to be trained: the first action token of a turn.
    """

    advantages_n: FloatArray
    targets_n: FloatArray
    critic_mask_n: BoolArray


def turn_level_gae(
    rewards_K: ArrayLike,
    values_n: ArrayLike,
    turn_n: ArrayLike,
    *,
    v_end: float = 0.0,
    gamma: float = 0.99,
    lam: float = 0.9,
) -> TurnAdvantages:
    """GAE with one step a turn (Turn-PPO, arXiv 2512.17008).

    The state is the start of the turn: ``V_k`` is the value at its first action token, and
    ``delta_k = r_k + gamma V_{k+1} - V_k``. ``gamma`` and ``lam`` are per *turn*; they must never
    enter a recursion over tokens (0.99 to the power 2000 is 2e-9). Turns without action tokens
    are no states; their reward goes to the turn before.

    Args:
        rewards_K: Reward of each turn.
        values_n: Value at each action token; only those at turn starts are read.
        turn_n: Turn of each action token.
        v_end: Value after the end of the episode.
        gamma: Discount per turn.
        lam: Trace decay per turn.
    """
    starts = turn_starts(turn_n)
    first = np.flatnonzero(starts)
    placed = place_turn_rewards(rewards_K, turn_n)
    earned = np.add.reduceat(placed, first) if first.size else placed
    values = np.asarray(values_n, dtype=np.float64)[first]
    advantages = skip_observation_gae(earned, values, v_end=v_end, gamma=gamma, lam=lam)
    targets_n = np.zeros(starts.size, dtype=np.float64)
    targets_n[first] = reward_to_go(earned, v_end=v_end, gamma=gamma)
    lengths = np.diff(np.append(first, starts.size))
    return TurnAdvantages(np.repeat(advantages, lengths), targets_n, starts)


@dataclass(frozen=True)
class EndRules:
    """What an unfinished episode is worth after its end.

    Public descriptions of SAO say nothing about it, so each case is a choice:

    Attributes:
        time_limit: ``max_turns``. ``"bootstrap"``: the state is not terminal, the critic says what
            it is worth. Choose ``"zero"`` where the limit is visible to the agent and part of the
            task.
        length_limit: ``max_tokens`` and ``context_overflow``. ``"zero"``: running out of room is
            the policy's own failure, and bootstrapping would reward rambling.
        deadline: Wall-clock deadline. ``"bootstrap"``: the clock is no part of the task.
    """

    time_limit: EndRule = "bootstrap"
    length_limit: EndRule = "zero"
    deadline: EndRule = "bootstrap"

    def __post_init__(self) -> None:
        for name in ("time_limit", "length_limit", "deadline"):
            if getattr(self, name) not in get_args(EndRule):
                raise ValueError(
                    f"{name} must be one of {get_args(EndRule)}, got {getattr(self, name)!r}"
                )


@dataclass(frozen=True)
class EpisodeEnd:
    """How a trajectory ends for GAE.

    Attributes:
        keep: False if neither actor nor critic may learn from it.
        bootstrapped: True if ``v_end`` is the critic's estimate.
        v_end: Value after the last token.
    """

    keep: bool
    bootstrapped: bool
    v_end: float


def end_of_episode(
    stop_reason: str,
    *,
    terminated: bool,
    v_boot: float | None = None,
    rules: EndRules = EndRules(),
) -> EpisodeEnd:
    """Value after the end of an episode, by the reason it stopped.

    =======================================  ========================  =====================
    situation                                v_end                     learned from
    =======================================  ========================  =====================
    ``infra_error``, ``cancelled``           -                         no
    terminated (truncated as well or not)    0                         yes
    ``max_turns``                            ``rules.time_limit``      yes, unless "drop"
    ``max_tokens``, ``context_overflow``     ``rules.length_limit``    yes, unless "drop"
    ``deadline``                             ``rules.deadline``        yes, unless "drop"
    =======================================  ========================  =====================

    Args:
        stop_reason: Why the episode stopped.
        terminated: Gymnasium's ``terminated`` at the last step.
        v_boot: Value of the whole context, the last observation included; a plain number, so no
            gradient flows through it. Needed only where it is used.
        rules: Choices for unfinished episodes.

    Raises:
        ValueError: The reason is unknown, or a bootstrapped end has no finite ``v_boot``.
    """
    reason = str(stop_reason)
    if reason in ("infra_error", "cancelled"):
        return EpisodeEnd(keep=False, bootstrapped=False, v_end=0.0)
    if terminated or reason in ("solved", "failed"):
        return EpisodeEnd(keep=True, bootstrapped=False, v_end=0.0)
    if reason == "max_turns":
        rule = rules.time_limit
    elif reason in ("max_tokens", "context_overflow"):
        rule = rules.length_limit
    elif reason == "deadline":
        rule = rules.deadline
    else:
        raise ValueError(
            f"unknown stop reason {reason!r}; expected solved, failed, max_turns, max_tokens, "
            "context_overflow, deadline, infra_error or cancelled"
        )
    if rule == "drop":
        return EpisodeEnd(keep=False, bootstrapped=False, v_end=0.0)
    if rule == "zero":
        return EpisodeEnd(keep=True, bootstrapped=False, v_end=0.0)
    if v_boot is None or not np.isfinite(v_boot):
        raise ValueError(f"an episode stopped by {reason} is bootstrapped, but v_boot is {v_boot}")
    return EpisodeEnd(keep=True, bootstrapped=True, v_end=float(v_boot))


def _rows(
    rewards_T: ArrayLike, values_T: ArrayLike, mask_T: ArrayLike | None
) -> tuple[FloatArray, FloatArray, BoolArray]:
    rewards = np.asarray(rewards_T, dtype=np.float64)
    values = np.asarray(values_T, dtype=np.float64)
    given = np.ones(rewards.shape, np.bool_) if mask_T is None else np.asarray(mask_T)
    if not rewards.shape == values.shape == given.shape or rewards.ndim not in (1, 2):
        raise ValueError(
            "rewards, values and mask must share one shape (T,) or (N, T), got "
            f"{rewards.shape}, {values.shape}, {given.shape}"
        )
    mask = given.astype(np.bool_)
    for name, array in (("reward", rewards), ("value", values)):
        bad = mask & ~np.isfinite(array)
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ValueError(f"{name} {array[where]} at action token {where} is not finite")
    lost = ~mask & (rewards != 0)
    if lost.any():
        where = tuple(int(i) for i in np.argwhere(lost)[0])
        raise ValueError(
            f"reward {rewards[where]} at position {where} is not on an action token and would be "
            "lost; move it with place_turn_rewards or place_token_rewards"
        )
    return np.atleast_2d(rewards), np.atleast_2d(values), np.atleast_2d(mask)


def _one_a_row(value: ArrayLike, rows: int, name: str) -> FloatArray:
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in ((), (rows,)):
        raise ValueError(f"{name} must be a number or one a row ({rows}), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array.tolist()}")
    return np.broadcast_to(array, (rows,))


def _check_unit_interval(values: Iterable[float], name: str) -> None:
    for value in values:
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1], got {value}")
