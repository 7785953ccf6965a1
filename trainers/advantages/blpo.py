"""BLPO's terms: local action-balanced, global task progress, and how they are put together.

``A = A_episode + omega * micro``, where ``micro`` is the weighted mean of the terms that are active
for a row: what its action was worth against the other actions taken in the same situation, and what
its kind of action was worth in its state of progress over all tasks and recent updates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainers.advantages.memory import CellView, Effect, ProgressMemory
from trainers.advantages.steps import StepRows
from trainers.advantages.turns import BoolArray, FloatArray, IntArray

__all__ = [
    "Balance",
    "Baseline",
    "ProgressOptions",
    "Support",
    "collect_effects",
    "fuse",
    "progress_advantages",
    "relative_returns",
    "reliable_scores",
]

Balance = Literal["context", "task", "row"]
Support = Literal["kish", "kish_capped"]
Baseline = Literal["uniform", "support_weighted"]
_ENOUGH = 2.0 - 1e-9  # units that a comparison needs; equal weights give 2 up to rounding
_EPS = 1e-6


@dataclass(frozen=True)
class ProgressOptions:
    """How the memory is read.

    Attributes:
        kappa: Units of evidence at which the progress term has half of its size.
        tau: Floor of the scale, in units of the return: smaller differences are not blown up.
        support: ``kish`` counts units by Kish's formula, which decay leaves as it is;
            ``kish_capped`` by no more than their decayed weight, so that what was seen long ago
            counts less.
        baseline: Mean over the kinds of action in a state, each alike, or weighted by support.
        center: Subtract the mean over the batch's active rows of a state.
    """

    kappa: float = 4.0
    tau: float = 0.05
    support: Support = "kish"
    baseline: Baseline = "uniform"
    center: bool = False


def relative_returns(returns_R: FloatArray, anchor_R: IntArray) -> FloatArray:
    """Return of each row minus the mean of all rows of its situation.

    What a task is worth on the whole cancels: a hard one does not drag its actions down.
    """
    if not len(returns_R):
        return np.zeros(0)
    mean = np.bincount(anchor_R, weights=returns_R) / np.maximum(np.bincount(anchor_R), 1)
    return returns_R - mean[anchor_R]


def collect_effects(
    rows: StepRows, relative_R: FloatArray, anchor_R: IntArray, balance: Balance = "context"
) -> list[Effect]:
    """What this batch has to tell the memory.

    A situation is heard if at least two of its rows can be shared and at least two kinds of action
    are among them. Repetition within a situation adds nothing: of each state, kind of action and
    situation there is one effect, the mean over its rows.

    Args:
        rows: The rows.
        relative_R: See :func:`relative_returns`.
        anchor_R: Situation of each row.
        balance: ``context`` gives each situation the weight 1, and its context is the unit of
            evidence. ``task`` gives each task the weight 1, divided evenly among its situations,
            and the task is the unit. ``row`` gives each row the weight 1.
    """
    shared: dict[int, list[int]] = {}
    for row, anchor in enumerate(anchor_R.tolist()):
        if rows.shareable_R[row]:
            shared.setdefault(anchor, []).append(row)
    values = relative_R.tolist()
    found: dict[tuple[str, str, int], list[int]] = {}
    for anchor, own in shared.items():
        if len(own) >= 2 and len({rows.abstract_R[row] for row in own}) >= 2:
            for row in own:
                key = (rows.state_R[row], rows.abstract_R[row], anchor)
                found.setdefault(key, []).append(row)
    if balance == "row":
        return [
            Effect(state, action, rows.context_R[row], values[row])
            for (state, action, _), own in found.items()
            for row in own
        ]
    situations: dict[tuple[str, str, str], int] = {}
    if balance == "task":
        for (state, action, _), own in found.items():
            place = (state, action, rows.task_R[own[0]])
            situations[place] = situations.get(place, 0) + 1
    effects = []
    for (state, action, _), own in found.items():
        mean = math.fsum(values[row] for row in own) / len(own)
        if balance == "task":
            task = rows.task_R[own[0]]
            weight = 1.0 / situations[state, action, task]
            effects.append(Effect(state, action, task, mean, weight))
        else:
            effects.append(Effect(state, action, rows.context_R[own[0]], mean))
    return effects


def progress_advantages(
    memory: ProgressMemory, rows: StepRows, options: ProgressOptions
) -> tuple[FloatArray, BoolArray]:
    """What the memory says of each row's action.

    Returns:
        The advantages, 0 where inactive, and whether each row is active: it can be shared, its
        kind of action is known in its state, and so is another, their means differ, and the
        evidence comes from at least two units.
    """
    known: dict[str, dict[str, float]] = {}
    values = np.zeros(len(rows))
    active = np.zeros(len(rows), np.bool_)
    members: dict[str, list[int]] = {}
    for row in np.flatnonzero(rows.shareable_R).tolist():
        state = rows.state_R[row]
        if state not in known:
            enough = memory.union_support(state) >= _ENOUGH
            known[state] = reliable_scores(memory.cells(state), options) if enough else {}
        score = known[state].get(rows.abstract_R[row])
        if score is not None:
            values[row], active[row] = score, True
            members.setdefault(state, []).append(row)
    if options.center:
        for own in members.values():
            values[own] -= values[own].mean()
            if np.abs(values[own]).max() <= _EPS:
                values[own], active[own] = 0.0, False
    return values, active


def reliable_scores(cells: Mapping[str, CellView], options: ProgressOptions) -> dict[str, float]:
    """Advantage of each kind of action in a state, by the cells of that state.

    ``rho (mu_b - mean) / sqrt(sigma^2 + SE^2 + tau^2)``: sigma is the deviation of the means, SE
    the standard error of the numerator, and rho grows from 0 to 1 with the evidence for the action
    and for those it is compared with.

    Returns:
        Nothing where there is no spread or nothing to compare with.
    """
    heard = {action: cell for action, cell in cells.items() if cell.weight > _EPS}
    K = len(heard)
    if K < 2:
        return {}
    views = list(heard.values())
    mu = np.array([view.mean for view in views])
    variance = float(mu.var(ddof=1))
    if not variance > _EPS**2:
        return {}
    n = np.array([view.support for view in views])
    if options.support == "kish_capped":
        n = np.minimum(n, [view.weight for view in views])
    share = n / n.sum() if options.baseline == "support_weighted" else np.full(K, 1.0 / K)
    noise = np.array([view.variance for view in views]) / np.maximum(n, 1.0)
    parts = share**2 * noise
    error = (1.0 - share) ** 2 * noise + (parts.sum() - parts)
    others = (K - 1) / ((1.0 / n).sum() - 1.0 / n)  # harmonic mean of the others' support
    evidence = 2.0 / (1.0 / n + 1.0 / others)
    rho = evidence / (evidence + options.kappa)
    scores = rho * (mu - share @ mu) / np.sqrt(variance + error + options.tau**2)
    return dict(zip(heard, scores.tolist(), strict=True))


def fuse(terms: Sequence[tuple[float, FloatArray, BoolArray]]) -> FloatArray:
    """Weighted mean of the terms that are active, row by row; 0 where none is.

    Args:
        terms: Prior weight, values and activity of each term. A term of weight 0 is never active.
    """
    total = np.zeros(len(terms[0][1]))
    weight = np.zeros(len(total))
    for prior, values, active in terms:
        total += np.where(active, prior * values, 0.0)
        weight += np.where(active, prior, 0.0)
    return np.divide(total, weight, out=np.zeros(len(total)), where=weight > 0)
