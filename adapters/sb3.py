"""Stable-Baselines3 with sb3-contrib's MaskablePPO: admissible actions by number, and masks.

:class:`~adapters.hashed_text.HashedTextEnv` turns texts into vectors and compares nothing. The
comparing is learned, by :class:`ScoringPolicy`, which scores every action with the same weights.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from adapters.hashed_text import HashedTextEnv
from adapters.versions import require
from agentgym.timed import timed_maker

require("stable-baselines3", "2.9", "2.10", "sb3")
require("sb3-contrib", "2.9", "2.10", "sb3")

import torch
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

__all__ = ["ActionScores", "ScoringPolicy", "make"]


def make(
    env_id: str,
    *,
    size: int = 128,
    max_actions: int = 64,
    split: str | None = None,
    task_ids: tuple[str, ...] | None = None,
    **env_args: Any,
) -> HashedTextEnv:
    """An environment for ``MaskablePPO(ScoringPolicy, env)``.

    Args:
        env_id: Id of a text environment that lists its admissible actions.
        size: Length of the hashed vectors.
        max_actions: Most actions at a time.
        split: Split to draw tasks from; None for the environment's own.
        task_ids: Tasks to draw from instead of all of the split.
        **env_args: Arguments of the environment, and ``deadline`` (see :mod:`agentgym.timed`).
    """
    maker = timed_maker(env_id, **env_args)
    return HashedTextEnv(maker, size=size, max_actions=max_actions, split=split, task_ids=task_ids)


class ActionScores(BaseFeaturesExtractor):
    """A score for each action, and a summary of the state for the value; (max_actions + width,).

    An action is seen as a projection of its text, one of its last reply, products of pairs of
    texts (each the sum over the vectors' entries, weighted by learned weights), and the state: a
    projection of goal, observation and the sum of all actions.

    Args:
        observation_space: That of :class:`~adapters.hashed_text.HashedTextEnv`.
        width: Units of each hidden layer.
        heads: Weightings of each product.
    """

    def __init__(self, observation_space: gym.spaces.Dict, width: int = 32, heads: int = 4) -> None:
        places, size = observation_space["actions"].shape or (0, 0)
        super().__init__(observation_space, places + width)
        self.places, self.width = places, width
        self.text, self.reply = nn.Linear(size, width), nn.Linear(size, width)
        self.state = nn.Linear(3 * size, width)
        # All ones count the words that two texts share; learning departs from there.
        self.product = nn.Parameter(1 + 0.1 * torch.randn(5, size, heads))
        self.hidden = nn.Linear(3 * width + 5 * heads, width)
        self.score, self.summary = nn.Linear(width, 1), nn.Linear(3 * width, width)

    def forward(self, seen: dict[str, torch.Tensor]) -> torch.Tensor:
        """Scores and summary; (N, max_actions + width)."""
        goal, observation, offered = seen["goal"], seen["observation"], seen["actions"].sum(1)
        there = seen["actions"].abs().sum(-1) > 0  # (N, max_actions)
        row = there.nonzero()[:, 0]  # of each action that is there: what is shown beside it
        action, reply = seen["actions"][there], seen["replies"][there]
        beside = (goal[row], observation[row], offered[row])
        pairs = (*(action * other for other in beside), reply * goal[row], reply * action)
        products = [pair @ weights for pair, weights in zip(pairs, self.product, strict=True)]
        state = torch.relu(self.state(torch.cat([goal, observation, 0.1 * offered], -1)))
        texts = torch.relu(self.text(action)), torch.relu(self.reply(reply))
        each = torch.relu(self.hidden(torch.cat([*texts, state[row], *products], -1)))
        scores = torch.zeros_like(there, dtype=each.dtype)
        scores[there] = self.score(each).squeeze(-1)
        hidden = each.new_zeros(*there.shape, self.width)
        hidden[there] = each
        mean = hidden.sum(1) / there.sum(1, keepdim=True).clamp(min=1)
        summary = torch.relu(self.summary(torch.cat([hidden.amax(1), mean, state], -1)))
        return torch.cat([scores, summary], -1)


class _Split(nn.Module):
    """Scores go to the actor, the summary to the critic."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.latent_dim_pi, self.latent_dim_vf = places, width

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        return features[:, : self.latent_dim_pi]

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        return features[:, self.latent_dim_pi :]


class ScoringPolicy(MaskableMultiInputActorCriticPolicy):
    """The policy for MaskablePPO whose logits are the scores of :class:`ActionScores`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs = {"features_extractor_class": ActionScores, "ortho_init": False} | kwargs
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()
        self.optimizer = self.optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )

    def _build_mlp_extractor(self) -> None:
        extractor = self.features_extractor
        self.mlp_extractor = _Split(extractor.places, extractor.width)
