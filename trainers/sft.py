"""Behaviour cloning (supervised fine-tuning): learn to write what an environment's oracle did.

    python -m trainers.sft --env WebShop-v0 --model tiny --out runs/webshop-sft

The demonstrations go through the same prompts and packing as every other trainer's episodes. The
result is a model folder for ``--model``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch

from adapters.policies.causal_lm import CausalLM
from adapters.policies.models import TINY, resolve_model
from adapters.policies.tiny import TinyConfig, build_tiny
from adapters.policies.tokenization import build_tokenizer
from agentgym.packing import Row, pack
from agentgym.registry import load
from trainers.cloning import CloningConfig, Stage, clone
from trainers.command_line import parse_args
from trainers.config import PlayConfig, parse_env_args, require
from trainers.demonstrations import (
    Demonstration,
    demonstrated_texts,
    record,
    to_trajectory,
)
from trainers.evaluation import evaluation_metrics, evaluation_specs
from trainers.setup import Setup, World

__all__ = ["SFTConfig", "evaluate", "learn", "main", "new_tiny", "variants_of"]

# Demonstrations whose words the tiny model's tokenizer learns.
_TEXTS_FROM = 200


@dataclass(kw_only=True)
class SFTConfig(PlayConfig):
    """Clone an oracle: supervised fine-tuning on demonstrations that it plays itself.

    Attributes:
        out: Folder for the model; None takes ``runs/sft-<env>-<seed>``. Must not exist.
        episodes: Demonstrations to record.
        noise: How often the oracle errs, in [0, 1]; mistakes keep the clone from being too sure.
        slips: Probability that an inadmissible action is shown (not taught) before a step of the
            oracle, so that the clone learns to go on after one.
        worlds: Over how many worlds of the same kind to spread the demonstrations, where the
            environment can make such (the registry's ``variants``). In a single one a clone learns
            by heart which name answers which task, and does not learn to read.
        split: Split of the demonstrations; None takes the training split.
        short_env_arg: Arguments of the environment for the first stage (a curriculum of shorter
            pages), each ``KEY=VALUE``; without any there is no such stage.
        short_share: Share of the updates in that stage.
        updates: Optimiser updates in all.
        batch_size: Episodes an update. Small ones work best: copying forms with the number of
            updates.
        learning_rate: Peak learning rate of AdamW.
        warmup: Updates of linear warm-up; the rate then falls linearly.
        decay_to: Fraction of the peak that it falls to.
        adam_betas: Exponential decay rates of AdamW.
        weight_decay: Decoupled weight decay of matrices.
        grad_clip: Largest gradient norm.
        observation_weight: Weight of the cross-entropy of what the environment says; that of the
            imitated actions is 1. Foretelling pages teaches to copy before actions do.
        eval_episodes: Episodes of the evaluation at the end, sampled and greedy; 0 for none.
        eval_split: Its split; None takes the last evaluation split.
    """

    out: Path | None = None
    episodes: int = 1000
    noise: float = 0.0
    slips: float = 0.0
    worlds: int = 1
    split: str | None = None
    short_env_arg: tuple[str, ...] = ()
    short_share: float = 0.3
    updates: int = 500
    batch_size: int = 8
    learning_rate: float = 1e-5
    warmup: int = 20
    decay_to: float = 0.1
    adam_betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    grad_clip: float = 1.0
    observation_weight: float = 0.0
    eval_episodes: int = 200
    eval_split: str | None = None

    TINY_OF_ENV: ClassVar[str] = "tiny_cloning"
    TINY: ClassVar[Mapping[str, Any]] = {
        **PlayConfig.TINY,
        "episodes": 3000,
        # Clumsy and short on purpose: a start that RL has something to add to.
        "noise": 0.7,
        "slips": 0.15,
        "worlds": 20,
        "updates": 600,
        "learning_rate": 3e-3,
        "warmup": 50,
        "observation_weight": 0.3,
    }

    def validate(self) -> None:
        """Refuse what cannot work; see :class:`trainers.config.PlayConfig`."""
        super().validate()
        self._check("at least 1", lambda v: v >= 1, "episodes", "updates", "batch_size", "worlds")
        self._check("0 or more", lambda v: v >= 0, "warmup", "eval_episodes")
        self._check("in [0, 1]", _in_unit, "noise", "slips", "short_share", "decay_to")
        self._check("above 0", lambda v: v > 0, "learning_rate", "grad_clip")
        self._check("0 or more", lambda v: v >= 0, "weight_decay", "observation_weight")
        betas = self.adam_betas
        require(all(0 <= b < 1 for b in betas), "adam_betas", betas, "two numbers in [0, 1)")
        parse_env_args(self.short_env_arg)

    def cloning(self) -> CloningConfig:
        """The part that the loss loop reads."""
        names = [field.name for field in dataclasses.fields(CloningConfig)]
        return CloningConfig(**{name: getattr(self, name) for name in names})


def _in_unit(value: float) -> bool:
    return 0.0 <= value <= 1.0


def demonstrations(config: SFTConfig, world: World) -> list[list[Demonstration]]:
    """The oracle's episodes, one list a stage.

    Raises:
        ValueError: If the environment has no oracle, or refuses ``short_env_arg``.
    """
    main = _recorded(config, world, {}, config.episodes)
    short = parse_env_args(config.short_env_arg)
    if not short or config.short_share == 0:
        return [main]
    episodes = max(1, round(config.episodes * config.short_share))
    return [_recorded(config, world, short, episodes), main]


def variants_of(config: SFTConfig, world: World) -> Sequence[Mapping[str, Any]]:
    """Changes of the environment's arguments that make the worlds to demonstrate in."""
    entry_point = world.spec.variants
    if config.worlds == 1 or entry_point is None:
        return ({},)
    found: list[Mapping[str, Any]] = load(entry_point, world.spec.extra)(
        config.worlds, **world.env_args
    )
    if not found:
        raise ValueError(f"{entry_point} names no world for {world.env_args}")
    return found


def _recorded(
    config: SFTConfig, world: World, extra: Mapping[str, Any], episodes: int
) -> list[Demonstration]:
    variants = variants_of(config, world)
    out: list[Demonstration] = []
    for number, variant in enumerate(variants):
        args = {**world.env_args, **variant, **extra}
        first = len(out)
        count = episodes * (number + 1) // len(variants) - first
        if count == 0:
            continue
        try:
            out += record(
                world.spec,
                partial(gym.make, world.spec.id, **args),
                episodes=count,
                noise=config.noise,
                seed=config.seed,
                slips=config.slips,
                split=config.split,
                first=first,
            )
        except TypeError as error:
            raise ValueError(f"{world.spec.id} cannot be made with {args}: {error}") from error
    return out


def new_tiny(
    world: World, episodes: Sequence[Demonstration], seed: int, shape: TinyConfig | None = None
) -> CausalLM:
    """An untrained tiny model whose tokenizer knows the environment's words."""
    phrases: Sequence[str] = ()
    if world.spec.vocabulary is not None:
        phrases = load(world.spec.vocabulary, world.spec.extra)(**world.env_args)
    texts = demonstrated_texts(episodes[:_TEXTS_FROM], world.prompt)
    return build_tiny(build_tokenizer(phrases, texts), shape, seed=seed)


def learn(
    config: SFTConfig,
    setup: Setup,
    pools: Sequence[Sequence[Demonstration]],
    say: Callable[[str], None],
) -> dict[str, float]:
    """Train the setup's model on demonstrations, in place.

    Args:
        config: Settings.
        setup: Model and prompts.
        pools: Demonstrations of each stage, as :func:`demonstrations` returns them.
        say: Is told how it goes.

    Returns:
        ``loss`` and ``action_loss`` (means of the last tenth of the updates), ``demo_success``,
        ``demo_score``, ``cpu_seconds`` (of the updates) and ``tokens`` (length of a row).
    """
    first = config.updates - sum(_updates(config, pools)[1:])
    rows = [_rows(setup, pool, config, say) for pool in pools]
    stages = [
        Stage(part, updates) for part, updates in zip(rows, _updates(config, pools), strict=True)
    ]
    main = pools[-1]
    facts = {
        "demo_success": float(np.mean([episode.success for episode in main])),
        "demo_score": float(np.mean([episode.score for episode in main])),
        "tokens": float(np.mean([len(row) for row in rows[-1]])),
    }
    say(
        f"cloning {len(main)} demonstrations ({facts['demo_success']:.0%} solved, "
        f"{facts['tokens']:.0f} tokens each) in {config.updates} updates"
    )
    recent: list[dict[str, float]] = []
    every = max(1, config.updates // 10)

    def report(done: int, numbers: dict[str, float]) -> None:
        recent.append(numbers)
        if done % every == 0:
            stage = " (short)" if len(stages) > 1 and done <= first else ""
            means = _means(recent[-every:])
            say(
                f"update {done}/{config.updates}{stage}: loss {means['loss']:.3f}, "
                f"actions {means['action_loss']:.3f}"
            )

    began = time.process_time()
    clone(setup.lm, stages, config.cloning(), report)
    facts["cpu_seconds"] = time.process_time() - began
    last = _means(recent[-every:])
    return {"loss": last["loss"], "action_loss": last["action_loss"], **facts}


def _updates(config: SFTConfig, pools: Sequence[Any]) -> list[int]:
    if len(pools) == 1:
        return [config.updates]
    short = round(config.updates * config.short_share)
    return [short, config.updates - short]


def _means(numbers: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([item[key] for item in numbers])) for key in numbers[0]}


def _rows(
    setup: Setup,
    episodes: Sequence[Demonstration],
    config: SFTConfig,
    say: Callable[[str], None],
) -> list[Row]:
    stop = setup.lm.end_of_turn_id()
    rows = pack([to_trajectory(episode, setup.renderer, stop) for episode in episodes])
    limit = config.max_context or setup.lm.max_positions
    kept = [row for row in rows if limit is None or len(row) <= limit]
    if not kept:
        raise ValueError(f"every demonstration is longer than {limit} tokens; raise --max-context")
    if len(kept) < len(rows):
        say(f"left out {len(rows) - len(kept)} of {len(rows)} rows: longer than {limit} tokens")
    return kept


def evaluate(config: SFTConfig, setup: Setup) -> dict[str, float]:
    """Play held-out tasks, sampled and greedy; see :func:`trainers.evaluation`."""
    ids, split = setup.world.evaluation_tasks(config.eval_split)
    specs = evaluation_specs(ids, split, config.eval_episodes)
    policy = setup.policy()
    numbers: dict[str, float] = {}
    for mode, temperature in (("sampled", config.temperature), ("greedy", 0.0)):
        collector = setup.collector(policy, temperature, evaluation=True)
        try:
            played = asyncio.run(collector.collect(specs))
        finally:
            collector.close()
        numbers |= evaluation_metrics(played, split or "all", mode, setup.world.spec.diagnostics)
    return numbers


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    config = parse_args(SFTConfig, argv, "python -m trainers.sft")
    try:
        _run(config)
    except (ValueError, KeyError, ImportError) as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        print(f"error: {text}", file=sys.stderr)
        return 2
    return 0


def _run(config: SFTConfig) -> None:
    say = lambda text: print(text, flush=True)  # noqa: E731
    name = config.env.rpartition(":")[2]
    out = config.out or Path("runs") / f"sft-{name}-{config.seed}"
    if out.exists():
        raise ValueError(f"--out {out} exists already; choose another folder")
    torch.set_num_threads(config.threads)
    world = World.open(config)
    pools = demonstrations(config, world)
    device = config.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if config.model == TINY:
        lm = new_tiny(world, pools[-1], config.seed)
        lm.model.to(torch.device(device))
    else:
        lm = resolve_model(config.model, world.spec.id, world.env_args, device=device, say=say)
    setup = Setup.around(config, world, lm)
    numbers = learn(config, setup, pools, say)
    if config.eval_episodes:
        numbers |= evaluate(config, setup)
        for key, value in numbers.items():
            if key.startswith("eval/") and key.rpartition("/")[2] in ("success", "score"):
                say(f"{key}: {value:.3f}")
    about = {"config": dataclasses.asdict(config), "env_args": world.env_args, "metrics": numbers}
    lm.save(out, {"sft.json": json.dumps(about, indent=1, default=str) + "\n"})
    say(f"wrote {out}")


if __name__ == "__main__":
    raise SystemExit(main())
