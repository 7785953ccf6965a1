"""Trains a critic: its values before an update, and its own optimiser's steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agentgym.packing import Row, gather_turns, pack
from agentgym.trajectory import Trajectory
from trainers.aggregation import Reduction
from trainers.algorithm import TrajectoryValues
from trainers.critic import Critic
from trainers.losses import value_loss
from trainers.microbatches import microbatches, pad_rows, to_tensor

__all__ = ["ValueLearner", "ValueOptions", "asked_mask"]


@dataclass(frozen=True, kw_only=True)
class ValueOptions:
    """How a critic is trained.

    Attributes:
        learning_rate: Peak learning rate.
        adam_betas: Exponential decay rates of AdamW.
        weight_decay: Decoupled weight decay.
        grad_clip: Largest gradient norm.
        microbatch_tokens: Most padded tokens of one forward pass.
        value_clip: Clip of the value loss, or None.
    """

    learning_rate: float
    adam_betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    microbatch_tokens: int = 16384
    value_clip: float | None = None


class ValueLearner:
    """A critic and, where its trunk is its own, an optimiser for it.

    Args:
        critic: The critic; its weights change in place.
        options: How it is trained.
    """

    def __init__(self, critic: Critic, options: ValueOptions) -> None:
        self.critic, self.options = critic, options
        self.optimizer: torch.optim.Optimizer | None = None
        if not critic.shared:
            self.optimizer = torch.optim.AdamW(
                critic.trained_parameters(),
                lr=options.learning_rate,
                betas=options.adam_betas,
                weight_decay=options.weight_decay,
            )

    def row_values(self, rows: Sequence[Row]) -> tuple[list[np.ndarray], list[float]]:
        """Values of rows with the weights as they are.

        Returns:
            For each row its values before each token, float64 (T,), and the value after the last.
        """
        said: list[np.ndarray] = [np.zeros(0)] * len(rows)
        after = [0.0] * len(rows)
        device = self.critic.head.weight.device
        with torch.no_grad():
            for indices, batch in microbatches(rows, self.options.microbatch_tokens):
                values_BT, v_boot_B = self.critic(
                    to_tensor(batch.token_ids, device), to_tensor(batch.attention, device)
                )
                lines, boots = values_BT.double().cpu().numpy(), v_boot_B.double().tolist()
                for index, line, boot in zip(indices, lines, boots, strict=True):
                    said[index], after[index] = line[: len(rows[index])], boot
        return said, after

    def values(self, trajectories: Sequence[Trajectory]) -> list[TrajectoryValues]:
        """Values of trajectories with the weights as they are.

        Returns:
            One a trajectory; turns without a sampled token have an empty array.
        """
        rows = pack(trajectories, tail=True)
        said, after = self.row_values(rows)
        # Rows come in the order of turns: the last of a trajectory holds its end.
        boot = dict(zip((row.trajectory for row in rows), after, strict=True))
        turns = gather_turns(rows, said, [len(item.turns) for item in trajectories])
        return [TrajectoryValues(own, boot.get(i, 0.0)) for i, own in enumerate(turns)]

    def step(
        self, rows: Sequence[Row], chosen: Sequence[int], old: Sequence[np.ndarray] | None = None
    ) -> tuple[list[dict[str, float]], float]:
        """One optimiser step on the mean squared error of some rows.

        Args:
            rows: All rows, with targets; NaN where the critic is not asked.
            chosen: Indices of the rows of this step.
            old: Values from before the update, for ``value_clip``.

        Returns:
            Metrics of the microbatches, and the gradient norm. A norm that is not finite means
            that the step was not taken.
        """
        if self.optimizer is None:
            raise RuntimeError("a critic on a shared trunk is trained by the policy's optimiser")
        reduction = Reduction.over([int(asked_mask(rows[index]).sum()) for index in chosen])
        device = self.critic.head.weight.device
        self.optimizer.zero_grad(set_to_none=True)
        parts = []
        for indices, batch in microbatches(rows, self.options.microbatch_tokens, chosen):
            values_BT, _ = self.critic(
                to_tensor(batch.token_ids, device), to_tensor(batch.attention, device)
            )
            width = batch.token_ids.shape[1]
            out = value_loss(
                values_BT,
                to_tensor(batch.targets, device),
                to_tensor(asked_mask(batch), device),
                clip=self.options.value_clip,
                old_values=None
                if old is None
                else to_tensor(pad_rows([old[i] for i in indices], width), device),
                reduction=reduction,
            )
            out.loss.backward()
            parts.append(out.metrics)
        parameters = self.critic.trained_parameters()
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.options.grad_clip)
        if torch.isfinite(norm):
            self.optimizer.step()
        return parts, float(norm)

    def set_rate(self, factor: float) -> None:
        """Set the learning rate to a fraction of its peak."""
        if self.optimizer is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self.options.learning_rate * factor

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimiser."""
        optimizer = None if self.optimizer is None else self.optimizer.state_dict()
        return {"critic": self.critic.state_dict(), "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.critic.load_state_dict(state["critic"])
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])


def asked_mask(row: Any) -> np.ndarray:
    """Where the critic is trained: sampled tokens with a target (of a row or a batch of rows)."""
    return row.action_mask & np.isfinite(row.targets)
