"""What a run is made of: environment, model, prompts, collector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

from adapters.policies.causal_lm import CausalLM
from adapters.policies.models import resolve_model
from adapters.policies.torch_policy import TorchPolicy
from adapters.policies.vllm_engine import check_temperature
from adapters.policies.vllm_version import check_vllm
from agentgym.collector import Collector, CollectorConfig
from agentgym.policy import Policy, Sampling
from agentgym.progress import ProgressAbstraction, make_progress
from agentgym.prompts import ConversationRenderer, EnvPrompt, WindowedRenderer, make_renderer
from agentgym.registry import EnvSpec, load, spec
from agentgym.tasks import TaskSet
from agentgym.trajectory import EpisodeSpec
from trainers.config import PlayConfig, TrainConfig, parse_env_args
from trainers.cursor import TaskCursor

__all__ = ["Setup", "World", "announce", "check_policy"]

_LONGEST_DEFAULT_CONTEXT = 8192


def announce(text: str) -> None:
    """Print a line at once, also where the output is a file."""
    print(text, flush=True)


def check_policy(config: PlayConfig) -> None:
    """Verify that the engine asked for is there.

    Raises:
        ImportError: If it is not installed, or in another version.
        ValueError: If it does not sample at that temperature.
    """
    if config.policy == "vllm":
        check_temperature(Sampling(config.temperature))
        check_vllm()


@dataclass
class World:
    """The environment's side of a run: all that can be known, and refused, before a model is.

    Attributes:
        spec: The environment's entry in the registry.
        env_args: Its arguments.
        make_env: Makes one environment.
        prompt: Its words.
        tasks: Its tasks, or None.
        easy_first: Training plays the easier tasks first.
        order_stretch: Among so many tasks; None means all.
        make_progress: Makes the progress abstraction that watches training episodes, or None.
    """

    spec: EnvSpec
    env_args: dict[str, Any]
    make_env: Callable[[], gym.Env[Any, Any]]
    prompt: EnvPrompt
    tasks: TaskSet | None
    easy_first: bool = False
    order_stretch: int | None = None
    make_progress: Callable[[], ProgressAbstraction] | None = None

    @classmethod
    def open(cls, config: PlayConfig) -> World:
        """Look up and try out the environment.

        Raises:
            KeyError: If there is no such environment.
            ValueError: If it does not take an argument.
            ImportError: If something it needs is not installed.
        """
        entry = spec(config.env)
        tiny = config.model == "tiny"
        env_args = {**(entry.tiny if tiny else {}), **parse_env_args(config.env_arg)}
        make_env = partial(gym.make, entry.id, **env_args)
        try:
            probe = make_env()
        except TypeError as error:
            raise ValueError(f"--env-arg does not suit {entry.id}: {error}") from error
        tasks = getattr(probe.unwrapped, "tasks", None)
        max_steps = getattr(probe.unwrapped, "max_steps", None)
        probe.close()
        form = config.action_format or ("bare" if tiny else "tags")
        prompt = load(entry.prompt, entry.extra)(action_format=form)
        world = cls(entry, env_args, make_env, prompt, tasks)
        if isinstance(config, TrainConfig):
            world.easy_first = config.task_order == "easy_first"
            world.order_stretch = config.order_stretch
        if config.progress_preset is not None:
            world.make_progress = make_progress(entry, config.progress_preset, max_steps)
        if config.needs_reference:
            world._check_reference()
        return world

    def make_expert_env(self) -> gym.Env[Any, Any]:
        """An environment that tells its reference."""
        return gym.make(self.spec.id, **{**self.env_args, "expert": True})

    def _check_reference(self) -> None:
        """Try out whether there is guidance to be had."""
        ids, split = self.training_tasks()
        options = {"task_id": ids[0], "split": split} if ids else {}
        try:
            env = self.make_expert_env()
            _, info = env.reset(seed=0, options=options)
            env.close()
        except (TypeError, NotImplementedError) as error:
            raise ValueError(
                f"guidance needs a reference, and {self.spec.id} has none: {error}; train with "
                "--guidance none"
            ) from error
        if not info.get("reference"):
            raise ValueError(
                f"guidance needs a reference, and task {info.get('task_id')!r} of {self.spec.id} "
                "has none; give data that have, or train with --guidance none"
            )

    def training_tasks(self) -> tuple[tuple[str, ...] | None, str | None]:
        """Ids and name of the split that training plays; None and None without a task set.

        Raises:
            ValueError: If there is no such split, or no task in it.
        """
        if self.tasks is None:
            return None, None
        return self._split(self.env_args.get("split") or self.tasks.train_split)

    def evaluation_tasks(self, split: str | None) -> tuple[tuple[str, ...] | None, str | None]:
        """Ids and name of the split that evaluations play.

        Args:
            split: Its name; None takes the environment's last evaluation split.

        Raises:
            ValueError: If there is no such split, or no task in it.
        """
        if self.tasks is None:
            if split is not None:
                raise ValueError(
                    f"--eval-split is {split}, but {self.spec.id} lists no tasks; leave it out"
                )
            return None, None
        if split is None and not self.tasks.eval_splits:
            raise ValueError(
                f"{self.spec.id} names no split for evaluation; choose one of "
                f"{list(self.tasks.splits)} with --eval-split"
            )
        return self._split(split or self.tasks.eval_splits[-1])

    def _split(self, name: str) -> tuple[tuple[str, ...], str]:
        assert self.tasks is not None
        ids = self.tasks.ids(name)
        if not ids:
            raise ValueError(f"split {name!r} of {self.spec.id} holds no task")
        return ids, name

    def cursor(self, seed: int) -> TaskCursor:
        """A walk through the training tasks."""
        ids, split = self.training_tasks()
        ranks = self.tasks.difficulty if self.tasks is not None else None
        if self.easy_first and ranks is None:
            raise ValueError(
                f"--task-order is easy_first, but {self.spec.id} does not rank its tasks; leave it "
                "out"
            )
        ranks = ranks if self.easy_first else None
        return TaskCursor(ids, split, seed, ranks, self.order_stretch)

    def baselines(self, episodes: Sequence[EpisodeSpec]) -> dict[str, dict[str, float]]:
        """What the environment's fixed rules achieve on some episodes: rule, quantity, value."""
        if self.spec.baselines is None:
            return {}
        env = self.make_env()
        try:
            found: dict[str, dict[str, float]] = load(self.spec.baselines, self.spec.extra)(
                env, episodes
            )
        finally:
            env.close()
        return found


@dataclass
class Setup:
    """A world and a model to act in it.

    Attributes:
        config: Settings.
        world: The environment's side.
        lm: The model.
        renderer: Observations to prompts.
    """

    config: PlayConfig
    world: World
    lm: CausalLM
    renderer: ConversationRenderer | WindowedRenderer

    @classmethod
    def make(cls, config: PlayConfig, world: World, say: Callable[[str], None]) -> Setup:
        """Load the model, or build and warm-start the tiny one.

        Args:
            config: Settings.
            world: The environment's side.
            say: Is told what takes time.

        Raises:
            ValueError: If there is no such model, or it does not fit the settings.
        """
        device = config.device or ("cuda" if torch.cuda.is_available() else "cpu")
        lm = resolve_model(config.model, world.spec.id, world.env_args, device=device, say=say)
        return cls.around(config, world, lm)

    @classmethod
    def around(cls, config: PlayConfig, world: World, lm: CausalLM) -> Setup:
        """The setup of a model that is there already."""
        renderer = make_renderer(
            config.prompt_mode,
            lm.tokenizer,
            world.prompt,
            window=config.window,
            on_rewrite=config.on_rewrite,
        )
        return cls(config, world, lm, renderer)

    def policy(self) -> Policy:
        """The engine that samples; it has weights of its own, which ``publish`` replaces."""
        config = self.config
        context = config.max_context
        if context is None:
            context = min(
                self.lm.max_positions or _LONGEST_DEFAULT_CONTEXT, _LONGEST_DEFAULT_CONTEXT
            )
        if config.policy == "vllm":
            from adapters.policies.vllm_policy import VllmPolicy, place_engines

            # A folder or a hub id; models made here are saved for the engines.
            named = Path(config.model).is_dir() or "/" in config.model
            return VllmPolicy.around(
                self.lm,
                max_context=context,
                model=config.model if named else None,
                slots=config.slots,
                engines=config.engines,
                devices=place_engines(config.engines),
                on_update=config.on_update,
                memory=config.engine_memory,
                threads=config.threads,
            )
        return TorchPolicy(
            self.lm.clone(), max_slots=config.slots, max_context=context, threads=config.threads
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
        expert = None if evaluation else self.world.make_expert_env
        progress = None if evaluation else self.world.make_progress
        return Collector(self.world.make_env, self.renderer, policy, limits, expert, progress)
