"""The learner: recomputes log-probs and values, and takes the optimiser's steps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from agentgym.packing import Batch, Row, pack
from agentgym.trajectory import Trajectory, TrajectoryGroup
from trainers.advantages.kl import kl_penalized_rewards
from trainers.aggregation import TOKEN_MEAN, Reduction, merge_metrics
from trainers.algorithm import Algorithm, CreditBatch, TrajectoryValues, masked_from_loss
from trainers.config import TrainConfig
from trainers.critic import Critic, default_freeze
from trainers.losses import correction_weights, entropy_loss, kl_loss, value_loss
from trainers.microbatches import microbatches, pad_rows, to_tensor
from trainers.value_learner import ValueLearner, ValueOptions, asked_mask

if TYPE_CHECKING:
    from adapters.policies.causal_lm import CausalLM

__all__ = ["Learner"]

# Names of the losses' metrics in the run's log.
_LOGGED = {
    "loss": "loss_policy",
    "value_loss": "loss_value",
    "advantage_rms": "adv_rms",
    "advantage_mean": "adv_mean",
    "entropy": "entropy",
    "ratio_mean": "ratio_mean",
    "ratio_max": "ratio_max",
    "clip_frac": "clip_frac",
    "reject_low": "dis_rejected_low",
    "reject_high": "dis_rejected_high",
    "nonfinite": "dis_rejected_nonfinite",
    "correction_mean": "is_weight_mean",
    "correction_cut": "is_rejected",
    "scaled_kl_loss": "loss_kl",
    "logp_diff_max": "logp_diff_max",
    "logp_diff_mean": "logp_diff_mean",
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
        self.critic: Critic | None = None
        self.value_learner: ValueLearner | None = None
        self.reference: CausalLM | None = None
        parameters = [p for p in lm.model.parameters() if p.requires_grad]
        if algorithm.uses_critic:
            shared = config.critic_trunk == "shared"
            freeze = config.freeze_attention
            if freeze is None:
                freeze = default_freeze(config.model) and not shared
            self.critic = Critic(lm, shared=shared, freeze_attention=freeze)
            options = ValueOptions(
                learning_rate=config.critic_learning_rate,
                adam_betas=config.adam_betas,
                weight_decay=config.weight_decay,
                grad_clip=config.grad_clip,
                microbatch_tokens=config.microbatch_tokens,
                value_clip=config.value_clip,
            )
            self.value_learner = ValueLearner(self.critic, options)
            if shared:
                parameters += self.critic.trained_parameters()
        self._parameters = parameters
        self.optimizer = torch.optim.AdamW(
            parameters,
            lr=config.learning_rate,
            betas=config.adam_betas,
            weight_decay=config.weight_decay,
        )
        if config.kl_coef > 0:
            self.reference = lm.clone()
            self.reference.model.requires_grad_(False)
        self._digest: str | None = None

    def load_critic(self, folder: Path) -> dict[str, Any]:
        """Start from a pretrained critic; see :meth:`trainers.critic.Critic.load`."""
        if self.critic is None:
            raise ValueError(f"--critic is {folder}, but {self.algorithm.name} has no critic")
        return self.critic.load(folder, self.lm.tokenizer)

    # Before the update --------------------------------------------------------------------------

    def values(self, trajectories: Sequence[Trajectory]) -> list[TrajectoryValues] | None:
        """The critic's values of trajectories, with its weights as they are; None without one."""
        return None if self.value_learner is None else self.value_learner.values(trajectories)

    def shaped(
        self, groups: Sequence[TrajectoryGroup]
    ) -> tuple[list[TrajectoryGroup], dict[str, float]]:
        """Groups with the rewards that are trained on, which may differ from those earned.

        With ``kl_in="reward"`` each turn's reward is less by the KL of its tokens to the
        reference, times ``kl_coef``. What was earned stays as it is for the log.

        Returns:
            The groups (the same ones where nothing is to be changed), and metrics.
        """
        if self.reference is None or self.config.kl_in != "reward":
            return list(groups), {}
        trajectories = [member for group in groups for member in group]
        rows = pack(trajectories)
        logps = self._logprobs(self.reference, rows)
        turns = [list(trajectory.turns) for trajectory in trajectories]
        total, tokens = 0.0, 0
        for row, logp_T in zip(rows, logps, strict=True):
            for number, start, stop in row.spans:
                kl = -kl_penalized_rewards(
                    np.zeros(stop - start),
                    row.logprobs[start:stop],
                    logp_T[start:stop],
                    beta=1.0,
                    kind=self.config.kl_kind,
                ).sum()
                old = turns[row.trajectory][number]
                reward = old.reward - self.config.kl_coef * float(kl)
                turns[row.trajectory][number] = replace(old, reward=reward)
                total, tokens = total + float(kl), tokens + stop - start
        new = iter(replace(t, turns=own) for t, own in zip(trajectories, turns, strict=True))
        shaped = [TrajectoryGroup(group.group_id, [next(new) for _ in group]) for group in groups]
        return shaped, {f"kl_{self.config.kl_kind}": total / max(tokens, 1)}

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
        old_values = None
        if self.value_learner is not None and config.value_clip is not None:
            old_values, _ = self.value_learner.row_values(rows)
        actor_parts: list[dict[str, float]] = []
        critic_parts: list[dict[str, float]] = []
        norms: dict[str, list[float]] = {"actor": [], "critic": []}
        for epoch in range(config.epochs):
            for chosen in self._minibatches(rows, step, epoch):
                if self.value_learner is not None and self.value_learner.optimizer is not None:
                    for _ in range(config.critic_updates):
                        parts, norm = self.value_learner.step(rows, chosen, old_values)
                        critic_parts += parts
                        norms["critic"].append(norm)
                if credited.train_actor:
                    parts, norm = self._actor_step(rows, chosen, old, old_values)
                    if norms["actor"]:  # the sampler's weights are no longer the learner's
                        for part in parts:
                            del part["logp_diff_max"], part["logp_diff_mean"]
                    actor_parts += parts
                    norms["actor"].append(norm)
        return self._metrics(actor_parts, critic_parts, norms)

    def _actor_step(
        self,
        rows: Sequence[Row],
        chosen: Sequence[int],
        old: list[np.ndarray] | None,
        old_values: list[np.ndarray] | None,
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
        asked = Reduction.over([int(asked_mask(rows[index]).sum()) for index in chosen])
        limit = float("inf") if self.algorithm.whole_minibatch else config.microbatch_tokens
        self.optimizer.zero_grad(set_to_none=True)
        parts = []
        for indices, batch in microbatches(rows, limit, chosen):
            tokens_B = self._tensor(np.array([max(tokens_of[int(t)], 1) for t in batch.trajectory]))
            loss, metrics = self._actor_loss(
                batch,
                None if old is None else [old[index] for index in indices],
                None if old_values is None else [old_values[index] for index in indices],
                replace(reduction, sequence_tokens_B=tokens_B),
                asked,
            )
            loss.backward()
            parts.append(metrics)
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, config.grad_clip)
        if torch.isfinite(norm):
            self.optimizer.step()
        return parts, float(norm)

    def _actor_loss(
        self,
        batch: Batch,
        old: list[np.ndarray] | None,
        old_values: list[np.ndarray] | None,
        reduction: Reduction,
        asked: Reduction,
    ) -> tuple[Tensor, dict[str, float]]:
        """One microbatch's share of the minibatch's loss, all terms, and its metrics."""
        config = self.config
        token_ids, mask = self._tensor(batch.token_ids), self._tensor(batch.loss_mask)
        rolled, advantages = self._tensor(batch.logprobs), self._tensor(batch.advantages)
        features = self.lm.features(token_ids)
        scores = self.lm.token_logprobs(
            token_ids,
            mask,
            temperature=config.temperature,
            entropy=True,
            features_BTF=features,
        )
        logp, entropy = scores.logprobs, scores.entropy
        assert entropy is not None
        logp_old, weights = rolled, None
        metrics: dict[str, float] = {}
        if old is not None:
            logp_old = self._tensor(pad_rows(old, mask.shape[1]))
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
        policy = self.algorithm.loss(
            logp,
            logp_old,
            advantages,
            mask,
            weights=weights,
            reduction=TOKEN_MEAN if self.algorithm.whole_minibatch else reduction,
        )
        loss = policy.loss
        bonus = entropy_loss(entropy, mask, reduction=reduction)
        if config.entropy_coef > 0:
            loss = loss + config.entropy_coef * bonus.loss
        metrics |= policy.metrics | bonus.metrics
        if self.reference is not None and config.kl_in == "loss":
            with torch.no_grad():
                logp_ref = self.reference.token_logprobs(
                    token_ids, mask, temperature=config.temperature
                ).logprobs
            pull = kl_loss(logp, logp_ref, mask, kind=config.kl_kind, reduction=reduction)
            loss = loss + config.kl_coef * pull.loss
            metrics |= pull.metrics
            metrics["scaled_kl_loss"] = config.kl_coef * pull.metrics["kl_loss"]
        metrics["loss"] = float(loss.detach())
        if self.critic is not None and self.critic.shared:
            attention = self._tensor(batch.attention)
            if self.lm.split_head:  # the features are the trunk's hidden states
                values_BT, _ = self.critic.read(features, attention)
            else:
                values_BT, _ = self.critic(token_ids, attention)
            fit = value_loss(
                values_BT,
                self._tensor(batch.targets),
                self._tensor(asked_mask(batch)),
                clip=config.value_clip,
                old_values=None
                if old_values is None
                else self._tensor(pad_rows(old_values, mask.shape[1])),
                reduction=asked,
            )
            loss = loss + config.vf_coef * fit.loss
            metrics["value_loss"] = fit.metrics["value_loss"]
        with torch.no_grad():
            count = mask.sum().clamp(min=1)
            known = mask & ~torch.isnan(rolled)  # tokens that nobody sampled have no log-prob
            difference = torch.where(known, logp - rolled, torch.zeros_like(rolled)).abs()
            metrics["logp_diff_max"] = float(difference.max())
            metrics["logp_diff_mean"] = float(difference.sum() / known.sum().clamp(min=1))
            metrics["advantage_mean"] = float((advantages * mask).sum() / count)
        return loss, metrics

    # Machinery ----------------------------------------------------------------------------------

    def _logprobs(self, lm: CausalLM, rows: Sequence[Row]) -> list[np.ndarray]:
        """Log-probs of every sampled token of rows under a model, float32 (T,) each."""
        out: list[np.ndarray] = [np.zeros(0)] * len(rows)
        with torch.no_grad():
            for indices, batch in microbatches(rows, self.config.microbatch_tokens):
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
        by_trajectory: dict[int, list[int]] = {}
        for index, row in enumerate(rows):
            by_trajectory.setdefault(row.trajectory, []).append(index)
        if not by_trajectory:
            return
        rng = np.random.default_rng([self.config.seed, step, epoch, 0x5EED])
        shuffled = rng.permutation(sorted(by_trajectory))
        for part in np.array_split(shuffled, min(self.config.minibatches, len(shuffled))):
            yield [index for item in sorted(part.tolist()) for index in by_trajectory[item]]

    def _tensor(self, array: np.ndarray) -> Tensor:
        return to_tensor(array, self.lm.device)

    def _set_rates(self, step: int) -> None:
        factor = self._rate_factor(step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * factor
        if self.value_learner is not None:
            self.value_learner.set_rate(factor)

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
        merged = merge_metrics(critic) | merge_metrics(actor)
        if "clip_low" in merged:
            merged["clip_frac"] = merged["clip_low"] + merged["clip_high"]
        # Losses are summed over updates; the log wants their mean.
        actor_updates, critic_updates = len(norms["actor"]), len(norms["critic"])
        for name in ("loss", "scaled_kl_loss"):
            if name in merged:
                merged[name] /= actor_updates
        if "value_loss" in merged:
            merged["value_loss"] /= critic_updates or actor_updates
        out = {new: merged[old] for old, new in _LOGGED.items() if old in merged}
        if "kl" in merged:
            out[f"kl_{self.config.kl_kind}"] = merged["kl"]
        for name, values in norms.items():
            if values:
                out[f"grad_norm_{name}"] = float(np.mean(values))
        out["updates_skipped"] = sum(not np.isfinite(v) for one in norms.values() for v in one)
        out["lr_actor"] = float(self.optimizer.param_groups[0]["lr"])
        if self.value_learner is not None and self.value_learner.optimizer is not None:
            out["lr_critic"] = float(self.value_learner.optimizer.param_groups[0]["lr"])
        return out

    # State --------------------------------------------------------------------------------------

    def weights(self) -> dict[str, Tensor]:
        """The policy's weights. They change with the next update; copy what is to last."""
        return {name: value.detach() for name, value in self.lm.model.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """All that an exact resume needs."""
        return {
            "model": self.lm.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "torch_rng": torch.get_rng_state(),
            "critic": None if self.value_learner is None else self.value_learner.state_dict(),
            "reference": self._reference_digest(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            ValueError: If the reference policy of the KL is not the one of the checkpoint.
        """
        if state["reference"] != self._reference_digest():
            raise ValueError(
                "the initial model is not the one that this run started from, so the KL would be "
                f"taken to another reference; put the original weights of {self.config.model!r} "
                "back in place"
            )
        self.lm.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch_rng"])
        if self.value_learner is not None:
            self.value_learner.load_state_dict(state["critic"])

    def _reference_digest(self) -> str | None:
        """Hash of the reference's weights; a checkpoint does not hold these themselves."""
        if self.reference is None:
            return None
        if self._digest is None:
            digest = hashlib.sha256()
            for name, value in sorted(self.reference.model.state_dict().items()):
                digest.update(name.encode())
                raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                digest.update(raw.numpy().tobytes())
            self._digest = digest.hexdigest()
        return self._digest
