"""The learner: recomputes log-probs and values, and takes the optimiser's steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from agentgym.packing import Batch, Row, collate, gather_turns, pack
from agentgym.trajectory import Trajectory
from trainers.advantages.kl import kl_penalized_rewards
from trainers.aggregation import Reduction, merge_metrics
from trainers.algorithm import Algorithm, CreditBatch, TrajectoryValues, masked_from_loss
from trainers.config import TrainConfig
from trainers.critic import Critic
from trainers.losses import correction_weights, entropy_loss, kl_loss, value_loss

if TYPE_CHECKING:
    from adapters.policies.causal_lm import CausalLM

__all__ = ["Learner"]

# Names of the losses' metrics in the run's log.
_LOGGED = {
    "loss": "loss_policy",
    "value_loss": "loss_value",
    "advantage_rms": "adv_rms",
    "entropy": "entropy",
    "ratio_mean": "ratio_mean",
    "ratio_max": "ratio_max",
    "clip_frac": "clip_frac",
    "reject_low": "dis_rejected_low",
    "reject_high": "dis_rejected_high",
    "nonfinite": "dis_rejected_nonfinite",
    "correction_mean": "is_weight_mean",
    "correction_cut": "is_rejected",
    "value_mean": "value_mean",
    "target_mean": "target_mean",
    "logp_diff_max": "logp_diff_max",
}


class Learner:
    """Trains a causal LM, and a critic where the algorithm has one.

    Args:
        lm: The model. Its weights change in place.
        algorithm: Supplies the loss.
        config: Settings.
    """

    def __init__(self, lm: CausalLM, algorithm: Algorithm, config: TrainConfig) -> None:
        self.lm, self.algorithm, self.config = lm, algorithm, config
        # Any id will do: nothing looks at padding on the right.
        self._pad_id = int(getattr(lm.tokenizer, "pad_token_id", None) or 0)
        self.critic: Critic | None = None
        self.critic_optimizer: torch.optim.Optimizer | None = None
        self.reference: CausalLM | None = None
        shared = config.critic_trunk == "shared"
        actor_parameters = [p for p in lm.model.parameters() if p.requires_grad]
        if algorithm.uses_critic:
            freeze = config.freeze_attention
            if freeze is None:
                freeze = config.model != "tiny" and not shared
            self.critic = Critic(lm, shared=shared, freeze_attention=freeze)
            if config.critic is not None:
                self.critic.load(config.critic)
            own = self.critic.trained_parameters()
            if shared:
                actor_parameters = actor_parameters + own
            else:
                self.critic_optimizer = self._adamw(own, config.critic_learning_rate)
        self.optimizer = self._adamw(actor_parameters, config.learning_rate)
        if config.kl_coef > 0:
            self.reference = lm.clone()
            self.reference.model.requires_grad_(False)

    def _adamw(self, parameters: list[Any], rate: float) -> torch.optim.Optimizer:
        config = self.config
        return torch.optim.AdamW(
            parameters, lr=rate, betas=config.adam_betas, weight_decay=config.weight_decay
        )

    # Before the update --------------------------------------------------------------------------

    def values(self, trajectories: Sequence[Trajectory]) -> list[TrajectoryValues]:
        """The critic's values of trajectories, with its weights as they are.

        Returns:
            One a trajectory; turns without a sampled token have an empty array.
        """
        if self.critic is None:
            raise RuntimeError(f"{self.algorithm.name} has no critic")
        rows = pack(trajectories, tail=True)
        said: list[np.ndarray] = [np.zeros(0)] * len(rows)
        boot = [0.0] * len(trajectories)
        with torch.no_grad():
            for indices, batch in self._microbatches(rows):
                values_BT, v_boot_B = self.critic(
                    self._tensor(batch.token_ids), self._tensor(batch.attention)
                )
                for at, index in enumerate(indices):
                    said[index] = values_BT[at, : len(rows[index])].double().cpu().numpy()
                    # Rows come in order of turns, so the last one of an episode stays.
                boots = v_boot_B.double().cpu().tolist()
                for at, index in enumerate(indices):
                    if _is_last_row(rows, index):
                        boot[rows[index].trajectory] = boots[at]
        turns = gather_turns(rows, said, [len(item.turns) for item in trajectories])
        return [TrajectoryValues(own, end) for own, end in zip(turns, boot, strict=True)]

    def penalise_kl(self, trajectories: Sequence[Trajectory]) -> float:
        """Subtract the KL to the reference from the rewards, turn by turn.

        Returns:
            Mean KL estimate a sampled token.
        """
        if self.reference is None:
            return 0.0
        rows = pack(trajectories)
        logps = self._logprobs(self.reference, rows)
        total, tokens = 0.0, 0
        for row, logp_T in zip(rows, logps, strict=True):
            trajectory = trajectories[row.trajectory]
            for turn, start, stop in row.spans:
                penalty = -kl_penalized_rewards(
                    np.zeros(stop - start),
                    row.logprobs[start:stop],
                    logp_T[start:stop],
                    beta=1.0,
                    kind=self.config.kl_kind,
                ).sum()
                trajectory.turns[turn].reward -= self.config.kl_coef * float(penalty)
                total, tokens = total + float(penalty), tokens + stop - start
        return total / max(tokens, 1)

    # The update ---------------------------------------------------------------------------------

    def update(self, credited: CreditBatch, step: int) -> dict[str, float]:
        """Take the optimiser steps of one batch.

        Args:
            credited: Trajectories with their credit.
            step: 0-based number of the step (for learning rates and shuffling).

        Returns:
            Metrics of the update.
        """
        config = self.config
        rows = pack(credited.trajectories, credited.credit)
        for row in rows:
            if masked_from_loss(credited.trajectories[row.trajectory], config.on_length_limit):
                row.loss_mask[:] = False
        self._set_rates(step)
        old = self._logprobs(self.lm, rows) if config.old_logprobs == "recompute" else None
        actor_parts: list[dict[str, float]] = []
        critic_parts: list[dict[str, float]] = []
        norms: dict[str, list[float]] = {"actor": [], "critic": []}
        for epoch in range(config.epochs):
            for number, chosen in enumerate(self._minibatches(rows, step, epoch)):
                if self.critic_optimizer is not None:
                    for _ in range(config.critic_updates):
                        parts, norm = self._critic_step(rows, chosen)
                        critic_parts += parts
                        norms["critic"].append(norm)
                if credited.train_actor:
                    parts, norm = self._actor_step(rows, chosen, old)
                    first = epoch == 0 and number == 0
                    if not first:
                        for part in parts:
                            part.pop("logp_diff_max", None)
                    actor_parts += parts
                    norms["actor"].append(norm)
        return self._metrics(actor_parts, critic_parts, norms)

    def _critic_step(
        self, rows: Sequence[Row], chosen: Sequence[int]
    ) -> tuple[list[dict[str, float]], float]:
        critic, optimizer = self.critic, self.critic_optimizer
        assert critic is not None
        assert optimizer is not None
        reduction = Reduction.over([int(rows[index].action_mask.sum()) for index in chosen])
        optimizer.zero_grad(set_to_none=True)
        parts = []
        for _, batch in self._microbatches(rows, chosen):
            values_BT, _ = critic(self._tensor(batch.token_ids), self._tensor(batch.attention))
            out = value_loss(
                values_BT,
                self._tensor(batch.targets),
                self._tensor(batch.action_mask),
                reduction=reduction,
            )
            out.loss.backward()
            parts.append(out.metrics)
        norm = torch.nn.utils.clip_grad_norm_(critic.trained_parameters(), self.config.grad_clip)
        optimizer.step()
        return parts, float(norm)

    def _actor_step(
        self, rows: Sequence[Row], chosen: Sequence[int], old: list[np.ndarray] | None
    ) -> tuple[list[dict[str, float]], float]:
        config = self.config
        tokens_of: dict[int, int] = {}
        for index in chosen:
            row = rows[index]
            tokens_of[row.trajectory] = tokens_of.get(row.trajectory, 0) + int(row.loss_mask.sum())
        # One denominator for the whole minibatch: cutting it into microbatches changes nothing.
        reduction = Reduction.over(
            list(tokens_of.values()), config.aggregation, max_length=config.constant_length
        )
        self.optimizer.zero_grad(set_to_none=True)
        parts = []
        for indices, batch in self._microbatches(rows, chosen):
            tokens_B = self._tensor(np.array([max(tokens_of[int(t)], 1) for t in batch.trajectory]))
            shared = replace(reduction, sequence_tokens_B=tokens_B)
            loss, metrics = self._actor_loss(batch, indices, old, shared)
            loss.backward()
            parts.append(metrics)
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_(parameters, config.grad_clip)
        if torch.isfinite(norm):
            self.optimizer.step()
        return parts, float(norm)

    def _actor_loss(
        self,
        batch: Batch,
        indices: Sequence[int],
        old: list[np.ndarray] | None,
        reduction: Reduction,
    ) -> tuple[Tensor, dict[str, float]]:
        config = self.config
        token_ids, attention = self._tensor(batch.token_ids), self._tensor(batch.attention)
        mask, rolled = self._tensor(batch.loss_mask), self._tensor(batch.logprobs)
        scores = self.lm.token_logprobs(
            token_ids, mask, temperature=config.temperature, entropy=True
        )
        logp, entropy = scores.logprobs, scores.entropy
        assert entropy is not None
        logp_old, weights = rolled, None
        metrics: dict[str, float] = {}
        if old is not None:
            logp_old = self._tensor(_pad([old[index] for index in indices], mask.shape[1]))
            if config.correction != "off":
                weights, corrected = correction_weights(
                    logp_old,
                    rolled,
                    mask,
                    rule=config.correction,
                    level=config.correction_level,
                    low=config.correction_low,
                    high=config.correction_high,
                )
                metrics |= corrected
        advantages = self._tensor(batch.advantages)
        out = self.algorithm.loss(
            logp, logp_old, advantages, mask, weights=weights, reduction=reduction
        )
        loss = out.loss
        bonus = entropy_loss(entropy, mask, reduction=reduction)
        if config.entropy_coef > 0:
            loss = loss + config.entropy_coef * bonus.loss
        metrics |= out.metrics | bonus.metrics
        if self.reference is not None and config.kl_in == "loss":
            with torch.no_grad():
                logp_ref = self.reference.token_logprobs(
                    token_ids, mask, temperature=config.temperature
                ).logprobs
            pull = kl_loss(logp, logp_ref, mask, kind=config.kl_kind, reduction=reduction)
            loss = loss + config.kl_coef * pull.loss
            metrics |= pull.metrics
        if self.critic is not None and self.critic.shared:
            values_BT, _ = self.critic(token_ids, attention)
            fit = value_loss(values_BT, self._tensor(batch.targets), mask, reduction=reduction)
            loss = loss + config.vf_coef * fit.loss
            metrics |= fit.metrics
        with torch.no_grad():
            difference = torch.where(mask, logp - rolled, torch.zeros_like(rolled)).abs()
            metrics["logp_diff_max"] = float(difference.max())
        return loss, metrics

    # Machinery ----------------------------------------------------------------------------------

    def _logprobs(self, lm: CausalLM, rows: Sequence[Row]) -> list[np.ndarray]:
        out: list[np.ndarray] = [np.zeros(0)] * len(rows)
        with torch.no_grad():
            for indices, batch in self._microbatches(rows):
                logp = lm.token_logprobs(
                    self._tensor(batch.token_ids),
                    self._tensor(batch.action_mask),
                    temperature=self.config.temperature,
                ).logprobs
                for at, index in enumerate(indices):
                    out[index] = logp[at, : len(rows[index])].float().cpu().numpy()
        return out

    def _minibatches(self, rows: Sequence[Row], step: int, epoch: int) -> Iterator[list[int]]:
        """Split rows by trajectory, in an order fixed by (seed, step, epoch)."""
        trajectories = sorted({row.trajectory for row in rows})
        rng = np.random.default_rng([self.config.seed, step, epoch, 0x5EED])
        shuffled = rng.permutation(trajectories)
        by_trajectory: dict[int, list[int]] = {}
        for index, row in enumerate(rows):
            by_trajectory.setdefault(row.trajectory, []).append(index)
        for part in np.array_split(shuffled, min(self.config.minibatches, len(shuffled) or 1)):
            chosen = [index for item in sorted(part) for index in by_trajectory[int(item)]]
            if chosen:
                yield chosen

    def _microbatches(
        self, rows: Sequence[Row], chosen: Sequence[int] | None = None
    ) -> Iterator[tuple[list[int], Batch]]:
        """Rows of similar length together, at most ``microbatch_tokens`` with padding."""
        indices = list(range(len(rows))) if chosen is None else list(chosen)
        indices.sort(key=lambda index: (len(rows[index]), index))
        part: list[int] = []
        for index in indices:
            if part and (len(part) + 1) * len(rows[index]) > self.config.microbatch_tokens:
                yield part, collate([rows[i] for i in part], self._pad_id)
                part = []
            part.append(index)
        if part:
            yield part, collate([rows[i] for i in part], self._pad_id)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.lm.device)

    def _set_rates(self, step: int) -> None:
        factor = self._rate_factor(step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * factor
        if self.critic_optimizer is not None:
            for group in self.critic_optimizer.param_groups:
                group["lr"] = self.config.critic_learning_rate * factor

    def _rate_factor(self, step: int) -> float:
        config = self.config
        if step < config.warmup_steps:
            return (step + 1) / config.warmup_steps
        if config.decay_steps is None:
            return 1.0
        done = min((step - config.warmup_steps) / config.decay_steps, 1.0)
        return 1.0 + (config.decay_to - 1.0) * done

    def _metrics(
        self,
        actor: list[dict[str, float]],
        critic: list[dict[str, float]],
        norms: dict[str, list[float]],
    ) -> dict[str, float]:
        """Metrics of the update under the names of :mod:`trainers.metrics`."""
        merged = merge_metrics(actor + critic) if actor or critic else {}
        merged["clip_frac"] = merged.pop("clip_low", 0.0) + merged.pop("clip_high", 0.0)
        # Losses are summed over updates; the log wants their mean.
        for name, count in (("loss", len(norms["actor"])), ("value_loss", len(norms["critic"]))):
            if name in merged:
                merged[name] /= max(count or len(norms["actor"]), 1)
        out = {new: merged[old] for old, new in _LOGGED.items() if old in merged}
        if "kl" in merged:
            out[f"kl_{self.config.kl_kind}"] = merged["kl"]
        for name, values in norms.items():
            if values:
                out[f"grad_norm_{name}"] = float(np.mean(values))
        out["lr_actor"] = float(self.optimizer.param_groups[0]["lr"])
        if self.critic_optimizer is not None:
            out["lr_critic"] = float(self.critic_optimizer.param_groups[0]["lr"])
        return out

    # State --------------------------------------------------------------------------------------

    def weights(self) -> dict[str, Tensor]:
        """A copy of the policy's weights, safe to hand to another thread."""
        return {name: value.detach().clone() for name, value in self.lm.model.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """All that an exact resume needs."""
        state: dict[str, Any] = {
            "model": self.lm.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "torch_rng": torch.get_rng_state(),
        }
        if self.critic is not None:
            state["critic"] = self.critic.state_dict()
        if self.critic_optimizer is not None:
            state["critic_optimizer"] = self.critic_optimizer.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.lm.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch_rng"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
        if self.critic_optimizer is not None:
            self.critic_optimizer.load_state_dict(state["critic_optimizer"])


def _is_last_row(rows: Sequence[Row], index: int) -> bool:
    return index + 1 == len(rows) or rows[index + 1].trajectory != rows[index].trajectory


def _pad(arrays: Sequence[np.ndarray], width: int) -> np.ndarray:
    out = np.zeros((len(arrays), width), np.float32)
    for line, array in zip(out, arrays, strict=True):
        line[: len(array)] = array
    return out
