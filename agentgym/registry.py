"""The one table from environment ids to code.

Entry points are dotted strings (``package.module:attribute``) that are resolved on first use, so
that importing :mod:`agentgym` loads no environment. Third parties call :func:`register` too.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from agentgym.rooms import check_room

__all__ = ["EnvSpec", "load", "make_env", "missing_extra", "register", "registered", "spec"]


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """Everything the suite knows of one environment.

    Attributes:
        id: Gymnasium id, for instance ``WebShop-v0``.
        env: Entry point of the :class:`~agentgym.env.TextEnv` subclass.
        prompt: Entry point of its :class:`~agentgym.prompts.EnvPrompt`.
        oracle: Entry point of ``demonstrate(env, rng, noise) -> Iterator[str]`` or None.
        vector_env: Entry point of a vector environment of its own; None for the suite's, which
            steps any environment (:class:`~agentgym.vector.TextVectorEnv`).
        abstractions: Preset name to entry point of ``abstraction(env_id, max_steps) ->
            ProgressAbstraction``, see :mod:`agentgym.progress`.
        vocabulary: Entry point of ``vocabulary(**env_args) -> list[str]``, words and phrases
            for the tiny policy's tokenizer, or None.
        baselines: Entry point of ``baselines(env, specs) -> dict[str, dict[str, float]]``: fixed
            rules to print beside a policy's evaluation (name to quantity to value), or None.
        diagnostics: Metric name to the key of ``info["details"]`` that an evaluation averages.
        metrics: Entry point of ``metrics(results) -> dict[str, float | None]``: the environment's
            own measures over the :class:`~agentgym.evaluation.EpisodeResult` of an evaluation, for
            ``python -m agentgym eval``, or None.
        variants: Entry point of ``variants(number, **env_args) -> list[dict]``: changes of the
            arguments that give other worlds of the same kind, to practise in, or None.
        tiny: Keyword arguments of ``gym.make`` that suit the tiny policy.
        tiny_cloning: Settings of ``trainers.sft`` (its fields) that suit the tiny policy here,
            where those of the preset ``tiny`` do not.
        tiny_training: The same for the algorithms; settings that one does not have are left out.
        extra: Extra of this suite to install before the environment can be made, or a whole
            requirement such as ``my-envs[browser]``; None where nothing is needed.

    Raises:
        ValueError: If an entry point is not of the form ``package.module:name``.
    """

    id: str
    env: str
    prompt: str
    oracle: str | None = None
    vector_env: str | None = None
    abstractions: Mapping[str, str] = field(default_factory=dict)
    vocabulary: str | None = None
    baselines: str | None = None
    diagnostics: Mapping[str, str] = field(default_factory=dict)
    metrics: str | None = None
    variants: str | None = None
    tiny: Mapping[str, Any] = field(default_factory=dict)
    tiny_cloning: Mapping[str, Any] = field(default_factory=dict)
    tiny_training: Mapping[str, Any] = field(default_factory=dict)
    extra: str | None = None

    def __post_init__(self) -> None:
        given = (
            self.env, self.prompt, self.oracle, self.vector_env, self.vocabulary, self.baselines,
            self.variants, self.metrics,
        )  # fmt: skip
        for entry_point in (*given, *self.abstractions.values()):
            if entry_point is not None:
                _split(entry_point)


_TABLE: dict[str, EnvSpec] = {}
_MAKE = "agentgym.registry:make_env"


def register(entry: EnvSpec) -> None:
    """Add an environment to the suite and to Gymnasium.

    Registering the same entry again changes nothing.

    Raises:
        ValueError: If the id is taken by another entry, or by an environment of Gymnasium's own.
    """
    known = _TABLE.get(entry.id)
    if known == entry:
        return
    if known is not None:
        raise ValueError(f"environment id {entry.id!r} is already registered for {known.env!r}")
    foreign = gym.registry.get(entry.id)
    if foreign is not None and foreign.entry_point != _MAKE:
        raise ValueError(
            f"environment id {entry.id!r} is already registered with Gymnasium for "
            f"{foreign.entry_point!r}; choose another id"
        )
    # Strings, so that specs pickle and turn to JSON; the id travels as an argument.
    gym.register(
        id=entry.id,
        entry_point=_MAKE,
        vector_entry_point="agentgym.registry:make_vector_env",
        disable_env_checker=True,
        order_enforce=False,
        kwargs={"env_id": entry.id},
    )
    _TABLE[entry.id] = entry


def registered() -> tuple[str, ...]:
    """Ids of all environments, in order of registration."""
    return tuple(_TABLE)


def spec(env_id: str) -> EnvSpec:
    """The entry of ``env_id``; a ``module:`` prefix imports that module first, as Gymnasium does.

    Raises:
        KeyError: If there is none; the message lists those that exist.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    try:
        return _TABLE[name]
    except KeyError:
        raise KeyError(
            f"unknown environment {env_id!r}; registered are {', '.join(_TABLE) or 'none'}"
        ) from None


def load(entry_point: str, extra: str | None = None) -> Any:
    """Import ``package.module:attribute``.

    Args:
        entry_point: Dotted module and attribute.
        extra: Extra that provides what the module needs, named if an import fails.

    Raises:
        ImportError: If a requirement is missing, or a foreign package hides one of the suite's.
    """
    module_name, attribute = _split(entry_point)
    check_room(module_name)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").split(".")[0] == module_name.split(".")[0]:
            raise
        raise missing_extra(error.name or str(error), extra) from error
    return getattr(module, attribute)


def _split(entry_point: str) -> tuple[str, str]:
    module, _, attribute = entry_point.partition(":")
    if not (attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ValueError(f"entry point {entry_point!r} is not of the form 'package.module:name'")
    return module, attribute


def missing_extra(package: str, extra: str) -> ImportError:
    """The error for an optional requirement that is not installed.

    Args:
        package: What could not be imported.
        extra: An extra of this suite, or a whole requirement such as ``my-envs[browser]``.
    """
    requirement = extra if "[" in extra else f"agentgym-suite[{extra}]"
    return ImportError(f"{package!r} is not installed; it comes with: pip install '{requirement}'")


def make_env(env_id: str, **kwargs: Any) -> gym.Env[Any, Any]:
    """Make a registered environment; what ``gym.make`` calls."""
    entry = spec(env_id)
    env: gym.Env[Any, Any] = load(entry.env, entry.extra)(**kwargs)
    return env


def make_vector_env(env_id: str, **kwargs: Any) -> Any:
    """Make a vector environment in this process; what ``gym.make_vec`` calls."""
    entry = spec(env_id)
    if entry.vector_env is not None:
        return load(entry.vector_env, entry.extra)(**kwargs)
    from agentgym.vector import make_text_vector

    return make_text_vector(env_id, **kwargs)
