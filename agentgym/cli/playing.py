"""Who plays an evaluation: a language model, or a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from agentgym.arguments import parse_pairs
from agentgym.cli import policies
from agentgym.cli.eval_config import EvalConfig
from agentgym.collector import Collector, CollectorConfig
from agentgym.evaluation import EpisodeResult
from agentgym.guarded import GuardedEnv
from agentgym.info import Info, StopReason
from agentgym.policy import FinishReason, PolicyError, Sampling
from agentgym.prompts import make_renderer
from agentgym.registry import EnvSpec, load
from agentgym.trajectory import EpisodeSpec, Trajectory, Turn

__all__ = ["Player", "open_player"]

MakeEnv = Callable[[], gym.Env[Any, Any]]
Played = tuple[Trajectory, EpisodeResult, Mapping[str, int]]


class Player(Protocol):
    """Plays episodes, once."""

    def stream(self, todo: Sequence[EpisodeSpec]) -> AsyncGenerator[Played, None]:
        """The episodes in order of completion, each with how often its answers ended oddly."""
        ...

    async def aclose(self) -> None:
        """Free what it holds."""
        ...


def open_player(
    config: EvalConfig,
    entry: EnvSpec,
    env_args: Mapping[str, Any],
    make_env: MakeEnv,
    say: Callable[[str], None],
) -> Player:
    """Who plays: everything that can be refused is refused here.

    Raises:
        ValueError: If something asked for does not exist or does not fit together.
        ImportError: If something is not installed.
        PolicyError: If the engine of the policy does not start.
    """
    if config.policy in policies.SCRIPTED:
        return _Script(make_env, policies.actor(config.policy, entry))
    form = config.action_format or ("bare" if config.tiny else "tags")
    prompt = load(entry.prompt, entry.extra)(action_format=form)
    limits = CollectorConfig(
        slots=config.slots,
        sampling=Sampling(config.temperature, config.max_action_tokens),
        turn_deadline=config.turn_deadline,
        episode_deadline=config.episode_deadline,
        run_seed=config.seed,
    )
    try:
        policy, tokenizer = policies.open_policy(
            config.policy, _options(config, entry, env_args, say)
        )
    except PolicyError:
        raise
    except (OSError, RuntimeError, AssertionError) as error:
        # As libraries say that there is no such model, device or memory.
        raise ValueError(
            f"--policy {config.policy} cannot be opened: {type(error).__name__}: {error}"
        ) from error
    meter = policies.Meter(policy)
    try:
        renderer = make_renderer(
            config.prompt_mode,
            tokenizer,
            prompt,
            window=config.window,
            on_rewrite=config.on_rewrite,
        )
    except BaseException:
        asyncio.run(meter.aclose())
        raise
    return _Model(meter, lambda: Collector(make_env, renderer, meter, limits))


class _Model:
    """A language model."""

    def __init__(self, meter: policies.Meter, collector: Callable[[], Collector]) -> None:
        self._meter, self._collector = meter, collector

    async def stream(self, todo: Sequence[EpisodeSpec]) -> AsyncGenerator[Played, None]:
        collector = self._collector()
        try:
            async with aclosing(collector.stream(todo)) as stream:
                async for trajectory in stream:
                    item = trajectory.spec
                    used = self._meter.take(item.group_id, item.member)
                    trajectory.error = trajectory.error or used.error
                    result = EpisodeResult.of(trajectory, used.prompt_tokens, used.action_tokens)
                    yield trajectory, result, used.odd_ends
        finally:
            collector.close()

    async def aclose(self) -> None:
        await self._meter.aclose()


def _options(
    config: EvalConfig, entry: EnvSpec, env_args: Mapping[str, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    """What the policy's ``open_policy`` is told."""
    if config.policy == "openai":
        return {
            "model": config.model,
            "base_url": config.base_url,
            "tokenizer": config.tokenizer,
            "api": config.api,
            "key_variable": config.key_variable,
            "max_context": config.max_context,
            "exact_logprobs": config.exact_logprobs,
            "concurrency": config.slots,
            "requests_per_minute": config.requests_per_minute,
            "tokens_per_minute": config.tokens_per_minute,
            "request_timeout": config.request_timeout,
            "deadline": config.deadline,
            "retries": config.retries,
            "extra_body": parse_pairs(config.extra_body, "--extra-body"),
        }
    return {
        "model": config.model,
        "env_id": entry.id,
        "env_args": dict(env_args),
        "slots": config.slots,
        "max_context": config.max_context,
        "device": config.device,
        "threads": config.threads,
        "say": say,
    }


class _Script:
    """A script, which plays one episode after another."""

    def __init__(self, make_env: MakeEnv, act: policies.Actor) -> None:
        self._make_env, self._act = make_env, act

    async def stream(self, todo: Sequence[EpisodeSpec]) -> AsyncGenerator[Played, None]:
        env = GuardedEnv(self._make_env)
        try:
            for item in todo:
                trajectory = self._play(env, item)
                yield trajectory, EpisodeResult.of(trajectory, 0, 0), {}
                await asyncio.sleep(0)  # Ctrl-C is heard here
        finally:
            env.close()

    async def aclose(self) -> None:
        """Nothing is held between streams."""

    def _play(self, env: GuardedEnv, item: EpisodeSpec) -> Trajectory:
        observation, info = env.reset(seed=item.seed, task_id=item.task_id, split=item.split)
        trajectory = Trajectory(
            spec=item,
            task_id=info.get("task_id") or item.task_id or "",
            task_type=info.get("task_type", ""),
            split=info.get("split") or item.split or "",
            goal=info.get("goal", ""),
        )
        try:
            if env.error is None:
                for action in self._act(env.env, info, item.seed):
                    before = observation
                    observation, reward, terminated, truncated, info = env.step(action)
                    trajectory.turns.append(_written(action, before, reward, info))
                    trajectory.terminated, trajectory.truncated = terminated, truncated
                    if terminated or truncated:
                        break
        except Exception as error:  # the script's own fault, which says nothing about the task
            trajectory.error = f"{type(error).__name__}: {error}"
        trajectory.error = env.error or trajectory.error
        trajectory.details = info.get("details", {})
        trajectory.score = float(info.get("score", 0.0))
        trajectory.success = bool(info.get("success", False))
        if trajectory.error is not None:
            trajectory.truncated, trajectory.stop_reason = True, StopReason.INFRA_ERROR
        else:
            # A script that gives up has failed, though the environment would have let it go on.
            trajectory.stop_reason = StopReason(info.get("stop_reason") or StopReason.FAILED)
        return trajectory


def _written(action: str, observation: str, reward: float, info: Info) -> Turn:
    none = np.zeros(0, np.int32)
    return Turn(
        context_ids=none,
        extends=False,
        action_ids=none,
        logprobs=none.astype(np.float32),
        versions=none,
        trainable=none.astype(bool),
        finish_reason=FinishReason.STOP,
        text=action,
        action=action,
        action_valid=bool(info.get("action_valid", True)),
        reward=reward,
        observation=observation,
        score=float(info.get("score", 0.0)),
    )
