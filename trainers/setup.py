"""What a run is made of: environment, model, prompts, collector, learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from adapters.policies.models import resolve_model

from adapters.policies.causal_lm import CausalLM
from adapters.policies.torch_policy import TorchPolicy
from agentgym.collector import Collector, CollectorConfig
from agentgym.policy import Policy, Sampling
from agentgym.prompts import ConversationRenderer, WindowedRenderer, make_renderer
from agentgym.registry import EnvSpec, load, spec
from agentgym.tasks import TaskSet
from agentgym.trajectory import EpisodeSpec
from trainers.algorithm import Algorithm
from trainers.config import TrainConfig, parse_env_args
from trainers.learner import Learner
from trainers.rollouts import TaskCursor

__all__ = ["Setup"]

_LONGEST_DEFAULT_CONTEXT = 8192


@dataclass
class Setup:
    """The parts of a run that do not depend on the algorithm.

    Attributes:
        config: Settings.
        spec: The environment's entry in the registry.
        env_args: Its arguments.
        lm: The model that is trained.
        renderer: Observations to prompts.
        tasks: The environment's tasks, or None.
        make_env: Makes one environment.
    """

    config: TrainConfig
    spec: EnvSpec
    env_args: dict[str, Any]
    lm: CausalLM
    renderer: ConversationRenderer | WindowedRenderer
    tasks: TaskSet | None
    make_env: Callable[[], gym.Env[Any, Any]]

    @classmethod
    def make(cls, config: TrainConfig, say: Callable[[str], None]) -> Setup:
        """Build everything, warm start of the tiny model included.

        Args:
            config: Settings.
            say: Is told what takes time.

        Raises:
            ValueError: If something asked for does not exist or does not fit together.
        """
        entry = spec(config.env)
        tiny = config.model == "tiny"
        env_args = {**(entry.tiny if tiny else {}), **parse_env_args(config.env_arg)}
        make_env = partial(gym.make, entry.id, **env_args)
        probe = make_env()
        tasks = getattr(probe.unwrapped, "tasks", None)
        probe.close()
        device = config.device or ("cuda" if torch.cuda.is_available() else "cpu")
        lm = resolve_model(config.model, entry.id, env_args, device=device, say=say)
        form = config.action_format or ("bare" if tiny else "tags")
        prompt = load(entry.prompt, entry.extra)(action_format=form)
        renderer = make_renderer(
            config.prompt_mode,
            lm.tokenizer,
            prompt,
            window=config.window,
            on_rewrite=config.on_rewrite,
        )
        return cls(config, entry, env_args, lm, renderer, tasks, make_env)

    @property
    def max_context(self) -> int:
        """Most tokens of an episode."""
        if self.config.max_context is not None:
            return self.config.max_context
        return min(self.lm.max_positions or _LONGEST_DEFAULT_CONTEXT, _LONGEST_DEFAULT_CONTEXT)

    def learner(self, algorithm: Algorithm) -> Learner:
        """The learner of the model."""
        return Learner(self.lm, algorithm, self.config)

    def policy(self, learner: Learner) -> Policy:
        """The engine that samples; it has weights of its own, which ``publish`` replaces."""
        return TorchPolicy(
            learner.lm.clone(), max_slots=self.config.slots, max_context=self.max_context
        )

    def collector(
        self, policy: Policy, temperature: float, *, evaluation: bool = False
    ) -> Collector:
        """A collector over ``policy``.

        Args:
            policy: Continues prompts.
            temperature: 0 is greedy.
            evaluation: Random draws then do not depend on the run's seed.
        """
        config = self.config
        limits = CollectorConfig(
            slots=config.slots,
            sampling=Sampling(temperature, config.max_action_tokens, self.lm.stop_token_ids()),
            turn_deadline=config.turn_deadline,
            episode_deadline=config.episode_deadline,
            run_seed=0 if evaluation else config.seed,
        )
        return Collector(self.make_env, self.renderer, policy, limits)

    def cursor(self) -> TaskCursor:
        """The walk through the training tasks."""
        if self.tasks is None:
            return TaskCursor(None, None, self.config.seed)
        split = self.env_args.get("split") or self.tasks.train_split
        return TaskCursor(self.tasks.ids(split), split, self.config.seed)

    def evaluation_tasks(self) -> tuple[tuple[str, ...] | None, str | None]:
        """Ids and name of the split that evaluations play."""
        if self.tasks is None:
            return None, None
        split = self.config.eval_split or self.tasks.eval_splits[-1]
        return self.tasks.ids(split), split

    def baselines(self, episodes: Sequence[EpisodeSpec]) -> dict[str, float]:
        """What the environment's fixed rules achieve on the episodes of an evaluation."""
        if self.spec.baselines is None:
            return {}
        env = self.make_env()
        try:
            found = load(self.spec.baselines, self.spec.extra)(env, episodes)
        finally:
            env.close()
        _, split = self.evaluation_tasks()
        return {
            f"eval/{split}/{name}/{quantity}": value
            for name, quantities in found.items()
            for quantity, value in quantities.items()
        }
