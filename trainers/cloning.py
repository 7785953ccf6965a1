"""Behaviour cloning on token rows: the loop that lowers the cross-entropy.

    loss = sum_t w_t * -log pi(x_t | x_<t) / sum_t w_t

with weight 1 on the tokens of imitated actions, ``observation_weight`` on what the environment
said, and 0 on actions that are shown but not imitated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from adapters.policies.causal_lm import CausalLM
from agentgym.packing import Row

__all__ = ["CloningConfig", "Stage", "clone"]

# Batches are cut from this many rows sorted by length, so that little of a batch is padding.
_STRETCH = 16


@dataclass(frozen=True, kw_only=True)
class CloningConfig:
    """How the loss is lowered; :class:`trainers.sft.SFTConfig` explains the fields."""

    batch_size: int
    learning_rate: float
    warmup: int
    decay_to: float
    adam_betas: tuple[float, float]
    weight_decay: float
    grad_clip: float
    observation_weight: float
    seed: int


@dataclass(frozen=True, slots=True)
class Stage:
    """Some updates on some rows.

    Attributes:
        rows: What is learned from.
        updates: Optimiser updates.
    """

    rows: Sequence[Row]
    updates: int


def clone(
    lm: CausalLM,
    stages: Sequence[Stage],
    config: CloningConfig,
    report: Callable[[int, dict[str, float]], None] | None = None,
) -> None:
    """Train ``lm`` in place, for as many updates as the stages say.

    The result depends on the arguments alone: not on time, nor on torch's global generator.

    Args:
        lm: The model.
        stages: One after another, under one learning-rate schedule.
        config: How.
        report: Is told the number of each update and its ``loss`` (weighted), ``action_loss``
            (nats a token of imitated actions) and ``grad_norm``.

    Raises:
        ValueError: If a stage has no row, or no row holds a token to imitate.
        FloatingPointError: If the loss is not finite.
    """
    total = sum(stage.updates for stage in stages)
    parameters = [p for p in lm.model.parameters() if p.requires_grad]
    optimizer = _optimizer(parameters, config)
    done = 0
    for number, stage in enumerate(stages):
        if not any(row.loss_mask.any() for row in stage.rows):
            raise ValueError(f"the demonstrations of stage {number} hold no action to imitate")
        batches = _batches(stage.rows, config.batch_size, config.seed, number)
        for _ in range(stage.updates):
            rate = config.learning_rate * _rate(done, total, config)
            for group in optimizer.param_groups:
                group["lr"] = rate
            chosen = [stage.rows[index] for index in next(batches)]
            numbers = _update(lm, optimizer, parameters, chosen, config, done)
            done += 1
            if report is not None:
                report(done, numbers)


def _update(
    lm: CausalLM,
    optimizer: torch.optim.Optimizer,
    parameters: list[torch.nn.Parameter],
    rows: Sequence[Row],
    config: CloningConfig,
    done: int,
) -> dict[str, float]:
    ids, weights, actions = (
        torch.from_numpy(array).to(lm.device) for array in _arrays(rows, config)
    )
    logp = lm.token_logprobs(ids, weights > 0).logprobs
    loss = -(logp * weights).sum() / weights.sum().clamp(min=1e-6)
    value = float(loss.detach())
    if not np.isfinite(value):
        raise FloatingPointError(
            f"the loss of update {done + 1} is {value}; a smaller learning rate than "
            f"{config.learning_rate} may help"
        )
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(parameters, config.grad_clip)
    optimizer.step()
    action_loss = -(logp.detach() * actions).sum() / actions.sum().clamp(min=1.0)
    return {"loss": value, "action_loss": float(action_loss), "grad_norm": float(norm)}


def _optimizer(
    parameters: Sequence[torch.nn.Parameter], config: CloningConfig
) -> torch.optim.Optimizer:
    matrices = [p for p in parameters if p.ndim > 1]
    vectors = [p for p in parameters if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=config.adam_betas,
        fused=True,
    )


def _rate(done: int, total: int, config: CloningConfig) -> float:
    """Linear warm-up, then linear decay."""
    if done < config.warmup:
        return (done + 1) / config.warmup
    progress = (done - config.warmup) / max(total - config.warmup, 1)
    return 1.0 - (1.0 - config.decay_to) * progress


def _batches(rows: Sequence[Row], size: int, seed: int, stage: int) -> Iterator[list[int]]:
    """Endless passes over the rows; batches of like length, in an order fixed by the seed."""
    size = min(size, len(rows))
    number = 0
    while True:
        rng = np.random.default_rng([seed, stage, number, 0xBC])
        order = rng.permutation(len(rows)).tolist()
        for start in range(0, len(order), size * _STRETCH):
            part = sorted(order[start : start + size * _STRETCH], key=lambda i: (len(rows[i]), i))
            groups = [part[at : at + size] for at in range(0, len(part), size)]
            for at in rng.permutation(len(groups)):
                yield groups[int(at)]
        number += 1


def _arrays(
    rows: Sequence[Row], config: CloningConfig
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token ids, loss weights and the mask of imitated tokens, each (rows, longest)."""
    shape = (len(rows), max(len(row) for row in rows))
    ids = np.zeros(shape, np.int64)
    weights, actions = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    observed = np.zeros(shape, bool)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row.token_ids
        actions[at, : len(row)] = row.loss_mask
        observed[at, : len(row)] = ~row.action_mask
    weights[observed] = config.observation_weight
    weights += actions
    weights[:, 0] = actions[:, 0] = 0.0  # nothing precedes the first token
    return ids, weights, actions
