"""Layout of a trajectory's action tokens, and where its rewards stand among them.

Credit works on the *action tokens* of one trajectory, laid end to end: ``x_n`` has one entry an
action token (``n`` of them), ``x_K`` one entry a turn, and ``turn_n`` says which turn each action
token belongs to. Turn boundaries come from that recorded index alone, so a turn that earns nothing
is still a turn. ``x_T`` is a full token row with an action mask, for callers that hold one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def turn_index(lengths_K: ArrayLike) -> IntArray:
    """Index of the turn of every action token.

    Args:
        lengths_K: Number of action tokens of each turn, 0 allowed.

    Returns:
        ``turn_n``, non-decreasing, ``n = sum(lengths_K)``; ``[2, 0, 1]`` gives ``[0, 0, 2]``.

    Raises:
        ValueError: A length is negative.
    """
    lengths = np.asarray(lengths_K, dtype=np.int64)
    if lengths.size and lengths.min() < 0:
        raise ValueError(f"action-token counts must be >= 0, got {int(lengths.min())}")
    return np.repeat(np.arange(lengths.size, dtype=np.int64), lengths)


def split_by_turn(values_n: NDArray[Any], lengths_K: ArrayLike) -> list[NDArray[Any]]:
    """Cut a flat per-action-token array into one array a turn (empty where a turn has no token).

    Raises:
        ValueError: The lengths do not add up to the size of ``values_n``.
    """
    lengths = np.asarray(lengths_K, dtype=np.int64)
    if int(lengths.sum()) != len(values_n):
        raise ValueError(
            f"turn lengths add up to {int(lengths.sum())} action tokens, the array has "
            f"{len(values_n)}"
        )
    if not lengths.size:
        return []
    return np.split(values_n, np.cumsum(lengths)[:-1])


def turn_starts(turn_n: ArrayLike) -> BoolArray:
    """Mark the first action token of every turn that has one."""
    turn = _checked_turns(turn_n)
    starts = np.ones(turn.size, dtype=np.bool_)
    starts[1:] = turn[1:] != turn[:-1]
    return starts


def place_turn_rewards(rewards_K: ArrayLike, turn_n: ArrayLike) -> FloatArray:
    """Put each turn's reward on the last action token of that turn.

    The reward of a turn without action tokens moves left to the nearest earlier action token: it
    followed from what was done by then. Where there is none (a turn before the first action), it
    goes to the very first action token, so that the rewards of a trajectory always add up to its
    return and nothing is lost.

    Args:
        rewards_K: Environment reward of each turn.
        turn_n: Turn of each action token, see `turn_index`.

    Returns:
        ``rewards_n``; empty if the trajectory has no action token (there is nothing to credit).

    Raises:
        ValueError: A reward is not finite, or ``turn_n`` names a turn that has no reward.
    """
    rewards = np.asarray(rewards_K, dtype=np.float64)
    turn = _checked_turns(turn_n)
    if not np.isfinite(rewards).all():
        bad = int(np.flatnonzero(~np.isfinite(rewards))[0])
        raise ValueError(
            f"reward of turn {bad} is {rewards[bad]}; drop trajectories with a non-finite reward "
            "before crediting the others"
        )
    if turn.size and turn[-1] >= rewards.size:
        raise ValueError(f"turn index {int(turn[-1])} has no reward: {rewards.size} turns given")
    placed = np.zeros(turn.size, dtype=np.float64)
    if turn.size:
        # Last action token whose turn is <= k, for every turn k at once.
        position_K = np.searchsorted(turn, np.arange(rewards.size), side="right") - 1
        np.add.at(placed, np.maximum(position_K, 0), rewards)
    return placed


def place_token_rewards(rewards_T: ArrayLike, mask_T: ArrayLike) -> FloatArray:
    """Move rewards that stand on masked tokens left to the nearest action token.

    A reward computed for a padding, end-of-text or observation position belongs to the action
    before it. Rewards before the first action token go to the first one.

    Args:
        rewards_T: Reward of each token of one row.
        mask_T: True on action tokens.

    Returns:
        ``rewards_T`` with the same sum and zeros off the mask; all zeros if the mask is empty.

    Raises:
        ValueError: The shapes differ or a reward is not finite.
    """
    rewards = np.asarray(rewards_T, dtype=np.float64)
    mask = np.asarray(mask_T).astype(np.bool_)
    if rewards.ndim != 1 or rewards.shape != mask.shape:
        raise ValueError(
            f"rewards and mask must be one row of equal length, got {rewards.shape} and "
            f"{mask.shape}"
        )
    placed = np.zeros_like(rewards)
    # Seen as turns, token t is "turn t" and the action tokens are those turns that have a token.
    placed[mask] = place_turn_rewards(rewards, np.flatnonzero(mask))
    return placed


def earned_before(rewards_n: ArrayLike) -> FloatArray:
    """Reward earned strictly before each action token, from rewards placed on action tokens."""
    rewards = np.asarray(rewards_n, dtype=np.float64)
    earned = np.zeros_like(rewards)
    np.cumsum(rewards[:-1], out=earned[1:])
    return earned


def concatenate(arrays: Sequence[ArrayLike]) -> FloatArray:
    """Lay arrays end to end as float64; no arrays give an empty one."""
    if not arrays:
        return np.zeros(0, dtype=np.float64)
    return np.concatenate([np.asarray(array, dtype=np.float64) for array in arrays])


def _checked_turns(turn_n: ArrayLike) -> IntArray:
    turn = np.asarray(turn_n, dtype=np.int64)
    if turn.ndim != 1 or (turn.size and (turn[0] < 0 or (np.diff(turn) < 0).any())):
        raise ValueError(
            f"turn_n must be a flat, non-decreasing array of turn indices >= 0, got {turn.tolist()}"
        )
    return turn
