"""``python -m agentgym eval``: play a split with a policy and write what came of it."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym

from agentgym.arguments import gathered, parse_pairs
from agentgym.cli import policies
from agentgym.cli.eval_config import FREE, EvalConfig
from agentgym.cli.journal import Journal
from agentgym.cli.playing import Player, open_player
from agentgym.cli.result_file import result_of, row_of, show
from agentgym.evaluation import evaluation_specs
from agentgym.files import write_atomically
from agentgym.info import LOST
from agentgym.policy import PolicyError
from agentgym.recording import plain
from agentgym.registry import EnvSpec, missing_extra, spec
from agentgym.run_lock import RunLocked
from agentgym.trajectory import EpisodeSpec

__all__ = ["EvalConfig", "evaluate", "main"]

_EPISODES = ".episodes.jsonl"


def main(argv: Sequence[str]) -> int:
    """Run the command line.

    Returns:
        0 when all is played, 1 when the policy or the disk failed or episodes were lost to faults
        (what was played is kept), 2 when something was refused, 130 when the user ended it.
    """
    try:
        import tyro
    except ModuleNotFoundError as error:
        raise missing_extra("tyro", "cli") from error
    config = tyro.cli(
        EvalConfig,
        args=gathered(argv, EvalConfig),
        prog="python -m agentgym eval",
        config=(tyro.conf.FlagConversionOff,),
    )
    try:
        result = evaluate(config)
    except (PolicyError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        print("what was played is kept; the same command goes on", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    except (ValueError, LookupError, ImportError, RunLocked) as error:
        # A KeyError shows its message in quotes.
        print(f"error: {error.args[0] if len(error.args) == 1 else error}", file=sys.stderr)
        return 2
    show(result)
    return 0 if result["complete"] else _incomplete(result)


def _incomplete(result: dict[str, Any]) -> int:
    """Say what is missing."""
    errors = [row["error"] for row in result["episodes"] if row["error"] is not None]
    why = f", the last one to: {errors[-1]}" if errors else ""
    print(
        f"error: {result['summary']['all']['lost']} of {result['episodes_planned']} episodes were "
        f"lost to faults{why}\nthe same command plays them again",
        file=sys.stderr,
    )
    return 1


def evaluate(config: EvalConfig, say: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Play what is left of an evaluation, and write its result file.

    Args:
        config: What to play.
        say: Is told how it goes; printing by default.

    Returns:
        The content of the result file.

    Raises:
        ValueError: If something asked for does not exist or does not fit together; no file was made
            or changed.
        ImportError: If something is not installed; likewise.
        RunLocked: If another evaluation writes the same file.
        PolicyError: If the policy failed; what was played is kept and summed up.
        OSError: If a file could not be written in the middle of it.
    """
    config.validate()
    say = say or partial(print, flush=True)
    entry = spec(config.env)
    env_args = {**(entry.tiny if config.tiny else {}), **parse_pairs(config.env_arg)}
    make_env = partial(gym.make, entry.id, **env_args)
    specs, split = _specs(entry, make_env, config)
    about = _about(config, entry, env_args, split)
    try:
        out = _result_path(config, entry)
        journal = Journal(_episodes_path(out), about, restart=config.restart)
    except OSError as error:
        raise ValueError(f"--out {config.out or 'runs'} cannot be written: {error}") from error
    with journal:
        todo = [item for item in specs if _unplayed(journal, item)]
        player = open_player(config, entry, env_args, make_env, say) if todo else None
        began = time.monotonic()
        try:
            say(
                f"{entry.id}, split {split or 'default'}: {len(specs)} episodes, "
                f"{len(specs) - len(todo)} of them played before; {out}"
            )
            if player is None:
                journal.begin()
            else:
                asyncio.run(_record(player, todo, journal, config.keep, say))
        finally:
            rows = [row for item in specs if (row := _played(journal, item)) is not None]
            result = result_of(about, entry, config.base_url, len(specs), rows)
            result["episodes_file"] = journal.path.name
            result["seconds_of_this_session"] = round(time.monotonic() - began, 3)
            text = json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False)
            write_atomically(out, text + "\n")
    return result


async def _record(
    player: Player,
    todo: Sequence[EpisodeSpec],
    journal: Journal,
    keep: str,
    say: Callable[[str], None],
) -> None:
    """Play, and write down each episode as it ends."""
    step = max(1, len(todo) // 20)
    done = won = 0
    try:
        journal.begin()
        async with aclosing(player.stream(todo)) as episodes:
            async for trajectory, result, odd_ends in episodes:
                journal.add(row_of(trajectory, result, odd_ends, keep))
                done, won = done + 1, won + result.success
                if done % step == 0 or done == len(todo):
                    say(f"{done}/{len(todo)} played, {won} solved")
    finally:
        await player.aclose()


# Files ------------------------------------------------------------------------------------------


def _result_path(config: EvalConfig, entry: EnvSpec) -> Path:
    """The result file.

    Raises:
        ValueError: If it cannot be one.
    """
    if config.out is None:
        return _fresh(entry.id.replace("/", "-"), config.policy)
    out = config.out
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file, for instance {out / 'eval.json'}")
    if out.name.endswith(_EPISODES):
        raise ValueError(
            f"--out {out} has the name of the episodes of a result; name the result, for instance "
            f"{out.with_name(out.name.removesuffix(_EPISODES) + '.json')}"
        )
    for path in (out, _episodes_path(out)):
        if path.exists() and not path.is_file():  # a device would be replaced
            raise ValueError(f"--out {out} cannot be written: {path} is there and no file")
    return out


def _fresh(env_id: str, policy: str) -> Path:
    stamp = dt.datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"eval-{env_id}-{policy}-{stamp}.json"
    out, number = base, 1
    while out.exists() or _episodes_path(out).exists():
        number += 1
        out = base.with_name(f"{base.stem}-{number}.json")
    return out


def _episodes_path(out: Path) -> Path:
    # What follows a dot is not always a suffix: model-2.5 and model-2.7 are two results.
    return out.with_name(out.name.removesuffix(".json") + _EPISODES)


# What is played ---------------------------------------------------------------------------------


def _specs(
    entry: EnvSpec, make_env: Callable[[], gym.Env[Any, Any]], config: EvalConfig
) -> tuple[list[EpisodeSpec], str | None]:
    try:
        probe = make_env()
    except (TypeError, OSError) as error:
        raise ValueError(f"--env-arg does not suit {entry.id}: {error}") from error
    try:
        tasks = getattr(probe.unwrapped, "tasks", None)
    finally:
        probe.close()
    if tasks is None:
        if config.split is not None:
            raise ValueError(f"--split is {config.split}, but {entry.id} lists no tasks")
        if config.episodes is None:
            raise ValueError(f"{entry.id} lists no tasks; say how many --episodes to play")
        return evaluation_specs(None, None, config.episodes, config.repeats), None
    if config.split is None and not tasks.eval_splits:
        raise ValueError(f"{entry.id} names no split for evaluation; choose --split of its "
                         f"{list(tasks.splits)}")  # fmt: skip
    split = config.split or tasks.eval_splits[-1]
    ids = tasks.ids(split)
    if not ids:
        raise ValueError(f"split {split!r} of {entry.id} holds no task")
    return evaluation_specs(ids, split, config.episodes or len(ids), config.repeats), split


def _played(journal: Journal, item: EpisodeSpec) -> dict[str, Any] | None:
    """The row of an episode, unless its place has another task now: data may have changed."""
    row = journal.rows.get((item.group_id, item.member))
    if row is None or row["seed"] != item.seed:
        return None
    return row if item.task_id in (None, row["task_id"]) else None


def _unplayed(journal: Journal, item: EpisodeSpec) -> bool:
    row = _played(journal, item)
    return row is None or row["stop_reason"] in LOST


def _about(
    config: EvalConfig, entry: EnvSpec, env_args: dict[str, Any], split: str | None
) -> dict[str, Any]:
    """What decides the outcome; two evaluations that agree in it may be put together."""
    fields = dataclasses.asdict(config)
    scripted = config.policy in policies.SCRIPTED
    unused = {"model", "temperature"} if scripted else set()
    settings = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in fields.items()
        if name not in FREE | unused and name not in ("env", "env_arg", "split", "policy")
    }
    return {
        "env": entry.id,
        "env_args": plain(env_args),
        "split": split,
        "policy": config.policy,
        "settings": settings,
    }
