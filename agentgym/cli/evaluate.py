"""``python -m agentgym eval``: play a split with a policy and write what came of it."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
import platform
import sys
import time
import urllib.parse
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np

import agentgym
from agentgym.arguments import parse_pairs
from agentgym.cli import policies
from agentgym.cli.journal import Journal
from agentgym.collector import Collector, CollectorConfig
from agentgym.evaluation import EpisodeResult, evaluation_specs, summarize
from agentgym.files import write_atomically
from agentgym.info import LOST, StopReason
from agentgym.parsing import ActionFormat
from agentgym.policy import FinishReason, PolicyError, Sampling
from agentgym.prompts import PromptMode, make_renderer
from agentgym.recording import readable
from agentgym.registry import EnvSpec, load, missing_extra, spec
from agentgym.trajectory import EpisodeSpec, Trajectory, Turn

__all__ = ["EvalConfig", "evaluate", "main"]

_FORMAT = "agentgym-evaluation/1"


@dataclass(kw_only=True)
class EvalConfig:
    """Play held-out tasks with a policy and write a result file.

    An evaluation that was stopped goes on with the same command: finished episodes are kept in a
    file beside the result, and those lost to faults are played again.

    Attributes:
        env: Id of a registered environment; ``package:Id`` imports the package first.
        policy: Who acts. ``openai`` is any OpenAI-compatible server; ``oracle`` and ``random`` need
            no model.
        model: Name that the server knows the model by; for ``torch`` and ``vllm`` a folder, a hub
            id, or ``tiny``.
        env_arg: Arguments of the environment, each ``KEY=VALUE``.
        split: Split to play; None takes the environment's last evaluation split.
        episodes: Tasks to play; None plays each task of the split once.
        repeats: Episodes of each task.
        out: Result file; None makes one under ``runs/``.
        keep: What to keep of every episode beside the result: its ``numbers``, also its ``text``,
            or also its ``tokens`` with log-probs.
        restart: Start over where there is a file of that name.
        seed: Enters the key of every random draw of the policy.
        slots: Episodes in flight (and requests at a time).
        temperature: Sampling temperature; 0 is greedy.
        max_action_tokens: Most tokens of one action.
        max_context: Most tokens of a prompt and its answer; None leaves it to the policy.
        prompt_mode: One append-only conversation an episode, or a fresh prompt a decision.
        window: Observation/action pairs quoted in windowed prompts.
        action_format: ``tags`` or ``bare``; None takes ``bare`` for the tiny model, else ``tags``.
        on_rewrite: What to do with a chat template that rewrites earlier turns.
        turn_deadline: Seconds for one environment call or generation; None for no limit.
        episode_deadline: Seconds for one episode; None for no limit.
        base_url: The server, for instance ``http://127.0.0.1:8000/v1``.
        api: ``chat`` works everywhere; ``tokens`` wants token ids and log-probs of the server.
        key_variable: Environment variable that holds the server's key.
        tokenizer: Folder or hub id of the tokenizer, for ``--api tokens``.
        exact_logprobs: The server was started with processed log-probs (``--api tokens``).
        requests_per_minute: Rate limit of the server.
        tokens_per_minute: Rate limit of the server.
        request_timeout: Seconds for one request.
        deadline: Seconds for one generation with all its retries.
        retries: Most retries of a request.
        extra_body: Further fields of every request, each ``KEY=VALUE``; ``None`` leaves one out.
        device: Torch device; None takes CUDA where there is one.
        threads: Torch threads for one operation on CPU.
    """

    env: str
    policy: Literal["openai", "torch", "vllm", "oracle", "random"] = "torch"
    model: str = "tiny"
    env_arg: tuple[str, ...] = ()
    split: str | None = None
    episodes: int | None = None
    repeats: int = 1
    out: Path | None = None
    keep: Literal["numbers", "text", "tokens"] = "text"
    restart: bool = False
    seed: int = 0

    slots: int = 16
    temperature: float = 0.0
    max_action_tokens: int = 512
    max_context: int | None = None
    prompt_mode: PromptMode = "conversation"
    window: int = 2
    action_format: ActionFormat | None = None
    on_rewrite: Literal["refuse", "branch"] = "refuse"
    turn_deadline: float | None = None
    episode_deadline: float | None = None

    base_url: str | None = None
    api: Literal["chat", "tokens"] = "chat"
    key_variable: str = "OPENAI_API_KEY"
    tokenizer: str | None = None
    exact_logprobs: bool = False
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    request_timeout: float = 120.0
    deadline: float = 600.0
    retries: int = 6
    extra_body: tuple[str, ...] = ()

    device: str | None = None
    threads: int = 1

    def validate(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: With the offending value and what would be right.
        """
        for name in ("slots", "repeats", "max_action_tokens", "threads", "episodes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} is {value}; it must be at least 1")
        if self.policy == "openai" and self.model == "tiny":
            raise ValueError("--policy openai needs --model, the name that the server knows")

    @property
    def tiny(self) -> bool:
        """Whether the model that is made here for the environment acts."""
        return self.model == "tiny" and self.policy in ("torch", "vllm")


#: What does not decide the outcome of an episode, and may differ when an evaluation goes on.
_FREE = frozenset(
    {"out", "restart", "slots", "repeats", "episodes", "base_url", "key_variable", "device"}
    | {"requests_per_minute", "tokens_per_minute", "request_timeout", "deadline", "retries"}
    | {"threads"}
)


def main(argv: Sequence[str]) -> int:
    """Run the command line.

    Returns:
        0 when all is played, 1 when the policy failed (what was played is kept), 2 when something
        was refused, 130 when the user ended it.
    """
    try:
        import tyro
    except ModuleNotFoundError as error:
        raise missing_extra("tyro", "cli") from error
    config = tyro.cli(
        EvalConfig,
        args=list(argv),
        prog="python -m agentgym eval",
        config=(tyro.conf.FlagConversionOff,),
    )
    try:
        result = evaluate(config)
    except PolicyError as error:
        print(f"error: {error}", file=sys.stderr)
        print("what was played is kept; the same command goes on", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    except (ValueError, LookupError, ImportError) as error:
        print(f"error: {error.args[0] if error.args else error}", file=sys.stderr)
        return 2
    show(result)
    return 0


def evaluate(config: EvalConfig, say: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Play what is left of an evaluation, and write its result file.

    Args:
        config: What to play.
        say: Is told how it goes; printing by default.

    Returns:
        The content of the result file.

    Raises:
        ValueError: If something asked for does not exist or does not fit together.
        PolicyError: If the policy failed; what was played is kept and summed up.
    """
    config.validate()
    say = say or partial(print, flush=True)
    entry = spec(config.env)
    env_args = {**(entry.tiny if config.tiny else {}), **parse_pairs(config.env_arg)}
    make_env = partial(gym.make, entry.id, **env_args)
    specs, split = _specs(entry, make_env, config)
    out = config.out or _fresh(entry.id, config.policy)
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file, for instance {out / 'eval.json'}")
    about = _about(config, entry, env_args, split)
    # What follows a dot is not always a suffix: model-2.5 and model-2.7 are two results.
    episodes = out.with_name(out.name.removesuffix(".json") + ".episodes.jsonl")
    journal = Journal(episodes, about, restart=config.restart)
    todo = [item for item in specs if _unplayed(journal, item)]
    say(
        f"{entry.id}, split {split or 'default'}: {len(specs)} episodes, "
        f"{len(specs) - len(todo)} of them played before; {out}"
    )
    began = time.monotonic()
    try:
        if todo:
            _play(config, entry, env_args, make_env, todo, journal, say)
    finally:
        result = _result(config, about, entry, specs, journal, time.monotonic() - began)
        write_atomically(out, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    return result


def show(result: dict[str, Any]) -> None:
    """Print the result as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{result['env']} {result['split'] or ''}, {result['policy']}")
    table.add_column("tasks", overflow="fold")
    for heading in ("episodes", "lost", "success", "95 %", "score", "turns", "tokens"):
        table.add_column(heading, justify="right", no_wrap=True)
    summary = result["summary"]
    rows = {**summary["by_type"], "all": summary["all"]} if len(summary["by_type"]) > 1 else {
        "all": summary["all"]
    }  # fmt: skip
    for name, part in rows.items():
        if not part["episodes"]:
            table.add_row(name, "0", str(part["lost"]))
            continue
        ends = [f"{end:.0%}" if end is not None else "?" for end in part["success"]["interval"]]
        table.add_row(
            name,
            str(part["episodes"]),
            str(part["lost"]),
            f"{part['success']['mean']:.1%}",
            "-".join(ends),
            f"{part['score']['mean']:.3f}",
            f"{part['turns']['mean']:.1f}",
            f"{part['action_tokens']['mean']:.0f}",
        )
    Console().print(table)


# What is played ---------------------------------------------------------------------------------


def _specs(
    entry: EnvSpec, make_env: Callable[[], gym.Env[Any, Any]], config: EvalConfig
) -> tuple[list[EpisodeSpec], str | None]:
    try:
        probe = make_env()
    except TypeError as error:
        raise ValueError(f"--env-arg does not suit {entry.id}: {error}") from error
    tasks = getattr(probe.unwrapped, "tasks", None)
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
    """The row of an episode; another number of tasks gives its place to another task."""
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
        if name not in _FREE | unused and name not in ("env", "env_arg", "split", "policy")
    }
    return {
        "env": entry.id,
        "env_args": {name: _plain(value) for name, value in env_args.items()},
        "split": split,
        "policy": config.policy,
        "settings": settings,
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _fresh(env_id: str, policy: str) -> Path:
    stamp = dt.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"eval-{env_id}-{policy}-{stamp}.json"


# Playing ----------------------------------------------------------------------------------------


def _play(
    config: EvalConfig,
    entry: EnvSpec,
    env_args: dict[str, Any],
    make_env: Callable[[], gym.Env[Any, Any]],
    todo: Sequence[EpisodeSpec],
    journal: Journal,
    say: Callable[[str], None],
) -> None:
    if config.policy in policies.SCRIPTED:
        act = policies.actor(config.policy, entry)
        stream = _scripted(make_env, act, todo)
    else:
        stream = _sampled(config, entry, env_args, make_env, todo, say)

    async def record() -> None:
        step = max(1, len(todo) // 20)
        done = won = 0
        async with aclosing(stream) as episodes:
            async for trajectory, result in episodes:
                journal.add(_row(trajectory, result, config.keep))
                done, won = done + 1, won + result.success
                if done % step == 0 or done == len(todo):
                    say(f"{done}/{len(todo)} played, {won} solved")

    asyncio.run(record())


async def _sampled(
    config: EvalConfig,
    entry: EnvSpec,
    env_args: dict[str, Any],
    make_env: Callable[[], gym.Env[Any, Any]],
    todo: Sequence[EpisodeSpec],
    say: Callable[[str], None],
) -> AsyncGenerator[tuple[Trajectory, EpisodeResult], None]:
    """Episodes of a language model, in order of completion."""
    policy, tokenizer = policies.open_policy(config.policy, _options(config, entry, env_args, say))
    meter = policies.Meter(policy)
    try:
        form = config.action_format or ("bare" if config.tiny else "tags")
        prompt = load(entry.prompt, entry.extra)(action_format=form)
        renderer = make_renderer(
            config.prompt_mode,
            tokenizer,
            prompt,
            window=config.window,
            on_rewrite=config.on_rewrite,
        )
        limits = CollectorConfig(
            slots=config.slots,
            sampling=Sampling(config.temperature, config.max_action_tokens),
            turn_deadline=config.turn_deadline,
            episode_deadline=config.episode_deadline,
            run_seed=config.seed,
        )
        collector = Collector(make_env, renderer, meter, limits)
        try:
            async with aclosing(collector.stream(todo)) as stream:
                async for trajectory in stream:
                    item = trajectory.spec
                    prompts, answers, error = meter.take(item.group_id, item.member)
                    trajectory.error = trajectory.error or error
                    yield trajectory, EpisodeResult.of(trajectory, prompts, answers)
        finally:
            collector.close()
    finally:
        await meter.aclose()


def _options(
    config: EvalConfig, entry: EnvSpec, env_args: dict[str, Any], say: Callable[[str], None]
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
        "env_args": env_args,
        "slots": config.slots,
        "max_context": config.max_context,
        "device": config.device,
        "threads": config.threads,
        "say": say,
    }


async def _scripted(
    make_env: Callable[[], gym.Env[Any, Any]], act: policies.Actor, todo: Sequence[EpisodeSpec]
) -> AsyncGenerator[tuple[Trajectory, EpisodeResult], None]:
    """Episodes of a script, one after another."""
    env = make_env()
    try:
        for item in todo:
            trajectory = _script(env, act, item)
            yield trajectory, EpisodeResult.of(trajectory, 0, 0)
    finally:
        env.close()


def _script(env: gym.Env[Any, Any], act: policies.Actor, item: EpisodeSpec) -> Trajectory:
    options = {"task_id": item.task_id, "split": item.split}
    observation, info = env.reset(
        seed=item.seed, options={name: value for name, value in options.items() if value}
    )
    trajectory = Trajectory(
        spec=item,
        task_id=info["task_id"],
        task_type=info["task_type"],
        split=info["split"],
        goal=info["goal"],
    )
    for action in act(env, info, item.seed):
        before = observation
        observation, reward, terminated, truncated, info = env.step(action)
        trajectory.turns.append(_written(action, before, float(reward), info))
        trajectory.terminated, trajectory.truncated = terminated, truncated
        if terminated or truncated:
            break
    trajectory.score, trajectory.success = float(info["score"]), bool(info["success"])
    trajectory.details = info["details"]
    # A script that gives up has failed, though the environment would have let it go on.
    trajectory.stop_reason = StopReason(info["stop_reason"] or StopReason.FAILED)
    return trajectory


def _written(action: str, observation: str, reward: float, info: dict[str, Any]) -> Turn:
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
        action_valid=bool(info["action_valid"]),
        reward=reward,
        observation=observation,
        score=float(info["score"]),
    )


# The result -------------------------------------------------------------------------------------


def _row(trajectory: Trajectory, result: EpisodeResult, keep: str) -> dict[str, Any]:
    row = dataclasses.asdict(result)
    row["details"] = json.loads(json.dumps(dict(result.details), default=str))
    if keep != "numbers":
        episode = readable(trajectory, tokens=keep == "tokens")
        row |= {name: episode[name] for name in ("split", "goal", "terminated")}
        row["steps"] = episode["turns"]
    return row


def _result(
    config: EvalConfig,
    about: dict[str, Any],
    entry: EnvSpec,
    specs: Sequence[EpisodeSpec],
    journal: Journal,
    seconds: float,
) -> dict[str, Any]:
    """The content of the result file."""
    names = {field.name for field in dataclasses.fields(EpisodeResult)}
    rows = [row for item in specs if (row := _played(journal, item)) is not None]
    results = [
        EpisodeResult(**{name: value for name, value in row.items() if name in names})
        for row in rows
    ]
    played = [item for item in results if not item.lost]
    out = {
        "format": _FORMAT,
        **about,
        "server": _server(config.base_url),
        "complete": len(played) == len(specs),
        "episodes_planned": len(specs),
        "summary": summarize(results, entry.diagnostics),
        "episodes": [
            {name: row[name] for name in row if name not in ("details", "steps")} for row in rows
        ],
        "episodes_file": journal.path.name,
        "seconds_of_this_session": round(seconds, 3),
        "software": {"python": platform.python_version(), "agentgym": agentgym.__version__},
    }
    if entry.metrics is not None and played:
        out["metrics"] = load(entry.metrics, entry.extra)(played)
    return out


def _server(base_url: str | None) -> str | None:
    """Where the model was, without a login that the address may hold."""
    if base_url is None:
        return None
    parts = urllib.parse.urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
