"""BLPO: GiGPO, balanced, with a memory of task progress across tasks and updates.

``A = A_episode + omega * mean of the active step terms``. The local term gives equal actions in one
situation equal credit; the progress term says what a kind of action was worth, over all tasks of a
kind and the recent updates, in the state of progress the row was in. So rows whose situation
occurred once, and tasks that were failed (or solved) throughout, still learn.

Written from the mathematics; ``--estimator paper`` is the published estimator, ``ours`` differs
where docs/blpo.md says so. With ``--memory False`` and ``--action-balance False`` it is GiGPO, bit
for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from trainers.advantages.blpo import (
    Balance,
    Baseline,
    ProgressOptions,
    Support,
    collect_effects,
    fuse,
    progress_advantages,
    relative_returns,
    reliable_scores,
)
from trainers.advantages.gigpo import local_advantages
from trainers.advantages.memory import ProgressMemory
from trainers.advantages.steps import StepRows
from trainers.command_line import parse_args
from trainers.config import not_negative, positive, require
from trainers.gigpo import GiGPO, GiGPOConfig

__all__ = ["BLPO", "BLPOConfig", "main"]

_SHOWN_CELLS = 80


@dataclass(kw_only=True)
class BLPOConfig(GiGPOConfig):
    """Train with balanced local credit and a memory of task progress.

    Attributes:
        estimator: ``paper`` takes the published estimator; ``ours`` sets, for what is None below,
            ``--cross-steps False``, ``--support kish_capped`` and ``--memory-min-weight 1e-4``, and
            takes the abstraction ``compact``.
        action_balance: Equal actions in a situation get equal credit; False is GiGPO's term.
        prior_local: Weight of the local term among those that are active.
        prior_progress: Weight of the progress term.
        memory: Keep a memory; False leaves the progress term out.
        memory_half_life: Updates after which evidence counts half.
        memory_max_cells: Beyond so many, cells that were written longest ago are forgotten.
        memory_min_weight: Cells of less weight are forgotten; None: 1e-6 (published), 1e-4 (ours).
        read_before_write: Read the memory before this batch is written into it, so that no row's
            own return is among its evidence (published: after).
        effect_balance: What counts once: a situation (published), a task, or a row.
        support: How evidence is counted, see
            :class:`trainers.advantages.blpo.ProgressOptions`; None: ``kish`` (published),
            ``kish_capped`` (ours).
        baseline: What kinds of action are compared with.
        kappa: Units of evidence at which the progress term has half of its size.
        tau: Floor of its scale, in units of the return; published for a reward of 10.
        center_progress: Subtract the mean over the batch's rows of a state (published for WebShop).
    """

    action_balance: bool = True
    prior_local: float = 1.0
    prior_progress: float = 0.5
    memory: bool = True
    memory_half_life: float = 8.0
    memory_max_cells: int = 200_000
    memory_min_weight: float | None = None
    read_before_write: bool = False
    effect_balance: Balance = "context"
    support: Support | None = None
    baseline: Baseline = "uniform"
    kappa: float = 4.0
    tau: float = 0.05
    center_progress: bool = False

    steps: int = 160

    # The tiny preset's environments pay 1 where the published setting pays 10.
    TINY: ClassVar[Mapping[str, Any]] = {**GiGPOConfig.TINY, "tau": 0.005}

    def validate(self) -> None:
        """See :meth:`trainers.config.TrainConfig.validate`."""
        super().validate()
        require(self.hgpo == "off", "hgpo", self.hgpo, "off: BLPO has levels of its own")
        right = "None: BLPO compares within exact situations"
        require(self.similarity is None, "similarity", self.similarity, right)
        self._check("a finite number above 0", positive, "memory_half_life", "kappa")
        self._check(
            "a finite number, 0 or more", not_negative, "prior_local", "prior_progress", "tau"
        )
        self._check("at least 1", lambda v: v >= 1, "memory_max_cells")
        self._check(
            "between 0 and 1, or None", lambda v: v is None or 0 < v < 1, "memory_min_weight"
        )

    @property
    def progress_preset(self) -> str | None:
        """See :attr:`trainers.config.PlayConfig.progress_preset`."""
        return self._preset() if self.memory else super().progress_preset

    def reading(self) -> ProgressOptions:
        """How the memory is read."""
        published = self.estimator == "paper"
        return ProgressOptions(
            kappa=self.kappa,
            tau=self.tau,
            support=self.support or ("kish" if published else "kish_capped"),
            baseline=self.baseline,
            center=self.center_progress,
        )

    def new_memory(self) -> ProgressMemory:
        """An empty memory."""
        least = self.memory_min_weight or (1e-6 if self.estimator == "paper" else 1e-4)
        return ProgressMemory(self.memory_half_life, least, self.memory_max_cells)


class BLPO(GiGPO):
    """See the module's docstring.

    Args:
        config: Settings.
    """

    name = "blpo"
    config: BLPOConfig

    def __init__(self, config: BLPOConfig) -> None:
        super().__init__(config)
        self.memory = config.new_memory()

    def step_term(
        self, rows: StepRows, anchor_R: np.ndarray, episode_R: np.ndarray, *, final: bool
    ) -> tuple[np.ndarray, dict[str, float]]:
        """See :meth:`trainers.gigpo.GiGPO.step_term`."""
        config = self.config
        returns_R = rows.returns(config.gamma, config.invalid_penalty)
        local_R, local_on_R = local_advantages(
            returns_R,
            anchor_R,
            rows.action_R if config.action_balance else None,
            std=config.adv_std,
            eps=config.adv_eps,
            ddof=config.adv_ddof,
        )
        terms = [(config.prior_local, local_R, local_on_R)]
        metrics = {"local_active": float(local_on_R.mean()) if len(rows) else 0.0}
        if config.memory:
            progress_R, progress_on_R, numbers = self._progress_term(
                rows, relative_returns(returns_R, anchor_R), anchor_R, final
            )
            terms.append((config.prior_progress, progress_R, progress_on_R))
            metrics |= numbers
        return fuse(terms), metrics

    def _progress_term(
        self, rows: StepRows, relative_R: np.ndarray, anchor_R: np.ndarray, final: bool
    ) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
        config, memory = self.config, self.memory
        written = 0
        if final:  # a batch that comes again, with more in it, must not be written twice
            memory.tick()
        effects = collect_effects(rows, relative_R, anchor_R, config.effect_balance)
        if final and not config.read_before_write:
            written = memory.absorb(effects)
        progress_R, active_R = progress_advantages(memory, rows, config.reading())
        if final and config.read_before_write:
            written = memory.absorb(effects)
        on = progress_R[active_R]
        return (
            progress_R,
            active_R,
            {
                "progress_active": float(active_R.mean()) if len(rows) else 0.0,
                "adv_progress_rms": float(np.sqrt(np.mean(on**2))) if len(on) else 0.0,
                "shareable_rows": float(rows.shareable_R.mean()) if len(rows) else 0.0,
                "memory_written": written,
                "memory_cells": len(memory),
                "memory_states": memory.states,
                "memory_evicted": memory.evicted,
            },
        )

    def findings(self) -> dict[str, Any]:
        """The strongest cells of the memory, for the report."""
        if not self.config.memory:
            return {}
        reading = self.config.reading()
        return {
            "memory": {
                "updates": self.memory.step,
                "cells": len(self.memory),
                "states": self.memory.states,
                "half_life": self.memory.half_life,
                "strongest": self.memory.strongest(
                    _SHOWN_CELLS, lambda cells: reliable_scores(cells, reading)
                ),
            }
        }

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`trainers.algorithm.Algorithm.state_dict`."""
        return {"memory": self.memory.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See :meth:`trainers.algorithm.Algorithm.load_state_dict`.

        Raises:
            MemoryMismatch: The memory was kept with another half-life.
        """
        self.memory.load_state_dict(state["memory"])


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of ``python -m trainers.blpo``."""
    from trainers.loop import run

    config = parse_args(BLPOConfig, argv, "python -m trainers.blpo")
    return run(BLPO, config)


if __name__ == "__main__":
    raise SystemExit(main())
