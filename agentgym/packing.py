"""From turns to flat token rows and padded batches.

Credit is assigned turn by turn before anything is packed, so packing changes no number: the same
tokens carry the same advantages whether a row holds an episode or a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agentgym.trajectory import Trajectory

__all__ = ["Batch", "Credit", "Row", "collate", "gather_turns", "pack"]

PackUnit = Literal["sequence", "turn"]


@dataclass(slots=True)
class Credit:
    """What an algorithm assigns to one trajectory: one array a turn, aligned with its actions.

    Attributes:
        advantages: Advantage of each sampled token; list over turns of float64 (n_actions,).
        targets: Value target of each sampled token, or None where no critic is trained.
    """

    advantages: list[np.ndarray]
    targets: list[np.ndarray] | None = None


@dataclass(slots=True)
class Row:
    """One token sequence for the learner; arrays have shape (T,).

    Attributes:
        token_ids: What was read and sampled, int32.
        action_mask: True on sampled tokens.
        loss_mask: True on sampled tokens that may enter the loss.
        logprobs: Log-prob at sampling time, 0 elsewhere; float32.
        versions: Weight version, -1 elsewhere; int32.
        turn: Turn index of sampled tokens, -1 elsewhere; int32.
        advantages: Advantage, 0 elsewhere; float32.
        targets: Value target, 0 elsewhere; float32.
        spans: (turn, start, stop) of each turn's actions in this row.
        trajectory: Index of the trajectory in the packed list.
        n_tail: Trailing context tokens kept for the bootstrap value.
    """

    token_ids: np.ndarray
    action_mask: np.ndarray
    loss_mask: np.ndarray
    logprobs: np.ndarray
    versions: np.ndarray
    turn: np.ndarray
    advantages: np.ndarray
    targets: np.ndarray
    spans: list[tuple[int, int, int]]
    trajectory: int
    n_tail: int = 0

    def __len__(self) -> int:
        return len(self.token_ids)


def pack(
    trajectories: Sequence[Trajectory],
    credit: Sequence[Credit] | None = None,
    *,
    unit: PackUnit = "sequence",
    tail: bool = False,
) -> list[Row]:
    """Lay trajectories out as rows.

    Args:
        trajectories: What to pack.
        credit: Credit of each, or None (advantages and targets are then 0).
        unit: ``sequence`` makes one row of each run of turns that extend one another (an episode,
            in conversation mode); ``turn`` makes one row a turn, with its whole prefix as context.
        tail: Add the context after the last action, for a bootstrap value: at the end of the
            last row where it continues it, else as a row of its own without a sampled token. The
            value stands at the row's last token.

    Returns:
        Rows in the order of trajectories and turns. Turns without a sampled token make no row of
        their own.

    Raises:
        ValueError: If credit and turns do not match in number or length, or the unit is unknown.
    """
    if unit not in ("sequence", "turn"):
        raise ValueError(f"unknown unit {unit!r}; known: sequence, turn")
    if credit is not None and len(credit) != len(trajectories):
        raise ValueError(f"{len(credit)} credits for {len(trajectories)} trajectories")
    rows: list[Row] = []
    for index, trajectory in enumerate(trajectories):
        own = credit[index] if credit is not None else None
        if own is not None:
            _check_credit(trajectory, own)
        start = 0
        turns = trajectory.turns
        nothing = trajectory.tail_ids[:0]
        while start < len(turns):
            stop = start + 1
            while stop < len(turns) and turns[stop].extends:
                stop += 1
            appended = tail and trajectory.tail_extends and stop == len(turns)
            tail_ids = trajectory.tail_ids if appended else nothing
            if unit == "sequence":
                rows.append(_row(trajectory, own, index, start, stop, start, tail_ids))
            else:
                for turn in range(start, stop):
                    last = tail_ids if turn == stop - 1 else nothing
                    rows.append(_row(trajectory, own, index, start, turn + 1, turn, last))
            start = stop
        if tail and turns and not trajectory.tail_extends:
            rows.append(_row(trajectory, None, index, start, start, start, trajectory.tail_ids))
    return [row for row in rows if row.spans or row.n_tail]


def _check_credit(trajectory: Trajectory, credit: Credit) -> None:
    for name, arrays in (("advantages", credit.advantages), ("targets", credit.targets)):
        if arrays is None:
            continue
        expected = [turn.n_actions for turn in trajectory.turns]
        if [len(array) for array in arrays] != expected:
            raise ValueError(
                f"{name} of task {trajectory.task_id!r} have lengths {[len(a) for a in arrays]}; "
                f"its turns have {expected} sampled tokens"
            )


def _row(
    trajectory: Trajectory,
    credit: Credit | None,
    index: int,
    start: int,
    stop: int,
    first_trained: int,
    tail_ids: np.ndarray,
) -> Row:
    turns = trajectory.turns[start:stop]
    total = sum(len(turn.context_ids) + turn.n_actions for turn in turns) + len(tail_ids)
    token_ids = np.zeros(total, np.int32)
    action_mask, loss_mask = np.zeros(total, bool), np.zeros(total, bool)
    logprobs = np.zeros(total, np.float32)
    versions, turn_index = np.full(total, -1, np.int32), np.full(total, -1, np.int32)
    advantages, targets = np.zeros(total, np.float32), np.zeros(total, np.float32)
    spans: list[tuple[int, int, int]] = []
    at = 0
    for number, turn in enumerate(turns, start):
        token_ids[at : at + len(turn.context_ids)] = turn.context_ids
        at += len(turn.context_ids)
        end = at + turn.n_actions
        token_ids[at:end] = turn.action_ids
        if number >= first_trained and turn.n_actions:
            action_mask[at:end] = True
            loss_mask[at:end] = turn.trainable
            logprobs[at:end] = turn.logprobs
            versions[at:end] = turn.versions
            turn_index[at:end] = number
            if credit is not None:
                advantages[at:end] = credit.advantages[number]
                if credit.targets is not None:
                    targets[at:end] = credit.targets[number]
            spans.append((number, at, end))
        at = end
    token_ids[at:] = tail_ids
    return Row(
        token_ids, action_mask, loss_mask, logprobs, versions, turn_index, advantages, targets,
        spans, index, len(tail_ids),
    )  # fmt: skip


def gather_turns(
    rows: Sequence[Row], values: Sequence[np.ndarray], n_turns: Sequence[int]
) -> list[list[np.ndarray]]:
    """Per-token values of rows, back to one array a turn.

    Args:
        rows: Rows made by :func:`pack`.
        values: For each row an array of shape (T,), aligned with its tokens.
        n_turns: Number of turns of each packed trajectory.

    Returns:
        ``out[trajectory][turn]``, each of shape (n_actions,).
    """
    empty: np.ndarray = np.zeros(0)
    out: list[list[np.ndarray]] = [[empty] * count for count in n_turns]
    for row, value in zip(rows, values, strict=True):
        for turn, start, stop in row.spans:
            out[row.trajectory][turn] = np.asarray(value[start:stop], np.float64)
    return out


@dataclass(slots=True)
class Batch:
    """Right-padded rows; every array has shape (B, T).

    Attributes:
        token_ids: int64, padded with the pad token.
        attention: True on real tokens.
        action_mask: True on sampled tokens.
        loss_mask: True on sampled tokens that may enter the loss.
        logprobs: float32.
        versions: int32, -1 where nothing was sampled.
        turn: int32, -1 where nothing was sampled.
        advantages: float32.
        targets: float32.
        trajectory: Index of each row's trajectory; int64 (B,).
        n_tail: Trailing bootstrap tokens of each row; int64 (B,).
    """

    token_ids: np.ndarray
    attention: np.ndarray
    action_mask: np.ndarray
    loss_mask: np.ndarray
    logprobs: np.ndarray
    versions: np.ndarray
    turn: np.ndarray
    advantages: np.ndarray
    targets: np.ndarray
    trajectory: np.ndarray
    n_tail: np.ndarray

    def __len__(self) -> int:
        return len(self.token_ids)


def collate(rows: Sequence[Row], pad_id: int) -> Batch:
    """Pad rows on the right to the longest.

    Raises:
        ValueError: If there is no row.
    """
    if not rows:
        raise ValueError("no rows to collate")
    width = max(len(row) for row in rows)

    def padded(name: str, fill: float | bool, dtype: type) -> np.ndarray:
        out: np.ndarray = np.full((len(rows), width), fill, dtype)
        for line, row in zip(out, rows, strict=True):
            line[: len(row)] = getattr(row, name)
        return out

    lengths = np.array([len(row) for row in rows])
    return Batch(
        token_ids=padded("token_ids", pad_id, np.int64),
        attention=np.arange(width)[None, :] < lengths[:, None],
        action_mask=padded("action_mask", False, np.bool_),
        loss_mask=padded("loss_mask", False, np.bool_),
        logprobs=padded("logprobs", 0.0, np.float32),
        versions=padded("versions", -1, np.int32),
        turn=padded("turn", -1, np.int32),
        advantages=padded("advantages", 0.0, np.float32),
        targets=padded("targets", 0.0, np.float32),
        trajectory=np.array([row.trajectory for row in rows], np.int64),
        n_tail=np.array([row.n_tail for row in rows], np.int64),
    )
