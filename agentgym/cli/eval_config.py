"""What ``python -m agentgym eval`` plays, and the check that it can."""

from __future__ import annotations

import math
import os
import re
import types
import typing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from agentgym.arguments import parse_pairs
from agentgym.parsing import ActionFormat
from agentgym.prompts import PromptMode

__all__ = ["ENDPOINT", "FREE", "EvalConfig"]

#: What does not decide the outcome of an episode, and may differ when an evaluation goes on.
FREE = frozenset(
    {"out", "restart", "slots", "repeats", "episodes", "base_url", "key_variable", "device"}
    | {"requests_per_minute", "tokens_per_minute", "request_timeout", "deadline", "retries"}
    | {"threads"}
)

#: What only ``--policy openai`` reads.
ENDPOINT = (
    "base_url", "api", "key_variable", "tokenizer", "exact_logprobs", "requests_per_minute",
    "tokens_per_minute", "request_timeout", "deadline", "retries", "extra_body",
)  # fmt: skip

_KEY_VARIABLE = "OPENAI_API_KEY"
_AT_LEAST = {
    1: ("slots", "repeats", "episodes", "max_action_tokens", "max_context", "threads",
        "requests_per_minute", "tokens_per_minute"),
    0: ("retries", "window", "seed"),
}  # fmt: skip
_MOST_EPISODES = 1_000_000
_SECONDS = ("turn_deadline", "episode_deadline", "request_timeout", "deadline")


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
        turn_deadline: Seconds for one environment call or generation; None for no limit. Scripts
            know no deadlines.
        episode_deadline: Seconds for one episode; None for no limit.
        base_url: The server, for instance ``http://127.0.0.1:8000/v1``.
        api: ``chat`` works everywhere; ``tokens`` wants token ids and log-probs of the server.
        key_variable: Environment variable that holds the server's key.
        tokenizer: Folder or hub id of the tokenizer, for ``--api tokens``.
        exact_logprobs: The server was started with processed log-probs (``--api tokens``).
        requests_per_minute: Rate limit of the server.
        tokens_per_minute: Rate limit of the server.
        request_timeout: Seconds for one request.
        deadline: Seconds for one generation with all its retries, from when the rate limits let it
            through.
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
    key_variable: str = _KEY_VARIABLE
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
        """Refuse what cannot work, as far as these values alone tell.

        Raises:
            ValueError: With the offending value and what would be right.
        """
        self._check_choices()
        for least, names in _AT_LEAST.items():
            for name in names:
                value = getattr(self, name)
                if value is not None and not value >= least:
                    raise ValueError(f"{_flag(name)} is {value}; it must be at least {least}")
        if (self.episodes or 0) * self.repeats > _MOST_EPISODES:
            raise ValueError(
                f"--episodes {self.episodes} with --repeats {self.repeats} are more than "
                f"{_MOST_EPISODES}; that is more than can be played"
            )
        for name in _SECONDS:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(
                    f"{_flag(name)} is {value}; it must be a number of seconds above 0"
                )
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(
                f"--temperature is {self.temperature}; it must be a finite number, 0 or more"
            )
        if not self.model:
            raise ValueError("--model is empty; name a model")
        parse_pairs(self.env_arg)
        parse_pairs(self.extra_body, _flag("extra_body"))
        if self.policy == "openai":
            self._check_endpoint()
            return
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ENDPOINT and value != field.default:
                raise ValueError(
                    f"{_flag(field.name)} is for --policy openai, and --policy is {self.policy}"
                )

    def _check_choices(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in fields(self):
            choices = _choices(hints[field.name])
            value = getattr(self, field.name)
            if choices and value not in choices:
                named = ", ".join(str(choice) for choice in choices)
                raise ValueError(f"{_flag(field.name)} is {value!r}; it must be one of {named}")

    def _check_endpoint(self) -> None:
        if self.model == "tiny":
            raise ValueError("--policy openai needs --model, the name that the server knows")
        if self.base_url is None:
            raise ValueError(
                "--policy openai needs --base-url, for instance http://127.0.0.1:8000/v1"
            )
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.key_variable):
            # Without telling what it is: it may be the key.
            raise ValueError(
                "--key-variable is no name of an environment variable; put the key into one, for "
                f"instance {_KEY_VARIABLE}, and give its name"
            )
        if self.key_variable != _KEY_VARIABLE and not os.environ.get(self.key_variable, "").strip():
            raise ValueError(
                f"--key-variable is {self.key_variable}, an environment variable that is not set"
            )
        if self.api != "tokens":
            for name in ("tokenizer", "exact_logprobs"):
                if getattr(self, name):
                    raise ValueError(f"{_flag(name)} is for --api tokens, and --api is {self.api}")

    @property
    def tiny(self) -> bool:
        """Whether the model that is made here for the environment acts."""
        return self.model == "tiny" and self.policy in ("torch", "vllm")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _choices(hint: Any) -> tuple[Any, ...]:
    """What a field of a ``Literal`` type may hold; nothing for other types."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (typing.Union, types.UnionType):
        parts = [_choices(part) for part in get_args(hint)]
        if any(parts):
            return (*(choice for part in parts for choice in part), None)
    return ()
