"""The tiny model's warm start: built once for an environment, then found in the cache.

The cache is addressed by content: the key covers whatever decides the weights (environment and
arguments, vocabulary, recipe, model shape, seed, and a sample of the demonstrations themselves, so
that a changed world, oracle or prompt makes a new model).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

from adapters.policies.causal_lm import CausalLM
from adapters.policies.models import TINY, cache_folder
from adapters.policies.tiny import TinyConfig
from agentgym.registry import load, spec
from agentgym.run_lock import RunLock, RunLocked
from trainers.command_line import with_preset
from trainers.demonstrations import demonstrated_texts, record
from trainers.setup import Setup, World
from trainers.sft import SFTConfig, demonstrations, learn, new_tiny, variants_of

__all__ = ["RECIPE", "warm_start"]

#: Raised when the same settings would give other weights.
RECIPE = 1

_PROBED = 8  # demonstrations that enter the key
_WAIT = 1.0  # seconds between looks at a warm start that another process is making


def warm_start(
    env_id: str,
    env_args: Mapping[str, Any],
    *,
    seed: int = 0,
    config: SFTConfig | None = None,
    shape: TinyConfig | None = None,
    say: Callable[[str], None] = print,
) -> CausalLM:
    """A tiny model that plays an environment poorly, the same one every time.

    Args:
        env_id: Id of a registered environment.
        env_args: Its arguments.
        seed: Seed of the weights, the demonstrations and their order.
        config: How to clone; None takes the preset of :class:`trainers.sft.SFTConfig`.
        shape: Shape of the model.
        say: Is told where the model comes from and how its training goes.

    Raises:
        ValueError: If the environment has no oracle.
    """
    entry = spec(env_id)
    base = config if config is not None else with_preset(SFTConfig, "tiny", TINY, entry.id)
    config = dataclasses.replace(base, env=entry.id, model=TINY, seed=seed)
    config.validate()
    shape = shape or TinyConfig()
    world = _world(config, env_args)
    folder = cache_folder() / "tiny" / f"{entry.id}-{_key(config, world, shape)}"
    waiting = False
    while True:
        if (folder / "config.json").is_file():
            say(f"warm-started tiny model: {folder}")
            return CausalLM.load(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = RunLock(folder.with_name(f".{folder.name}.lock"))
        except RunLocked:
            if not waiting:
                say("another process is making the warm start; waiting for it")
            waiting = True
            time.sleep(_WAIT)
            continue
        try:
            if not (folder / "config.json").is_file():
                _make(folder, config, world, shape, say)
        finally:
            lock.release()


def _make(
    folder: Path,
    config: SFTConfig,
    world: World,
    shape: TinyConfig,
    say: Callable[[str], None],
) -> None:
    say(f"warm-starting the tiny model for {world.spec.id} (once; kept in {folder})")
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        pools = demonstrations(config, world)
        lm = new_tiny(world, pools[-1], config.seed, shape)
        numbers = learn(config, Setup.around(config, world, lm), pools, say)
    finally:
        torch.set_num_threads(threads)
    about = {"env_args": world.env_args, "recipe": RECIPE, "metrics": numbers}
    lm.save(folder, {"warm_start.json": json.dumps(about, indent=1, default=str) + "\n"})


def _world(config: SFTConfig, env_args: Mapping[str, Any]) -> World:
    entry = spec(config.env)
    make_env = partial(gym.make, entry.id, **env_args)
    probe = make_env()
    tasks = getattr(probe.unwrapped, "tasks", None)
    probe.close()
    prompt = load(entry.prompt, entry.extra)(action_format=config.action_format or "bare")
    return World(entry, dict(env_args), make_env, prompt, tasks)


def _key(config: SFTConfig, world: World, shape: TinyConfig) -> str:
    settings = dataclasses.asdict(config)
    for unimportant in ("out", "eval_episodes", "eval_split", "device", "slots"):
        del settings[unimportant]
    phrases: list[str] = []
    if world.spec.vocabulary is not None:
        phrases = list(load(world.spec.vocabulary, world.spec.extra)(**world.env_args))
    sample = record(
        world.spec,
        world.make_env,
        episodes=_PROBED,
        noise=config.noise,
        seed=config.seed,
        slips=config.slips,
        split=config.split,
    )
    content = {
        "recipe": RECIPE,
        "settings": settings,
        "shape": dataclasses.asdict(shape),
        "env_args": world.env_args,
        "vocabulary": phrases,
        "variants": [dict(variant) for variant in variants_of(config, world)],
        "sample": demonstrated_texts(sample, world.prompt),
        "scores": [episode.score for episode in sample],
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
