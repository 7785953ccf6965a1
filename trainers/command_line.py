"""How a trainer's config is read from the command line.

Presets are looked up first, so that ``--help`` shows the values that would be used. With
``--resume`` the configuration comes from the run directory.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from agentgym.arguments import gathered
from agentgym.registry import missing_extra, spec
from trainers.config import PlayConfig, Preset, TrainConfig, require
from trainers.run_dir import RunDirError, read_config, read_status

__all__ = ["parse_args", "with_preset"]

Config = TypeVar("Config", bound=PlayConfig)


def parse_args(kind: type[Config], argv: Sequence[str] | None = None, program: str = "") -> Config:
    """Read the command line into a config.

    Args:
        kind: Its class.
        argv: The words; by default those of this process.
        program: What ``--help`` calls the command.

    Raises:
        SystemExit: For ``--help``, or with status 2 for flags or values that are refused.
    """
    try:
        import tyro
    except ModuleNotFoundError as error:
        raise missing_extra("tyro", "torch") from error
    arguments = gathered(sys.argv[1:] if argv is None else argv, kind)
    try:
        resume = _peek(arguments, "--resume") if issubclass(kind, TrainConfig) else None
        if resume is not None:
            default = _stored_config(kind, Path(resume), arguments)
        else:
            preset = _peek(arguments, "--preset") or "auto"
            require(preset in get_args(Preset), "preset", preset, "auto, tiny or paper")
            model, env = _peek(arguments, "--model"), _peek(arguments, "--env")
            default = with_preset(kind, preset, model, env)  # type: ignore[arg-type]
        config = tyro.cli(
            kind,
            args=arguments,
            default=default,
            prog=program or None,
            description=inspect.cleandoc(kind.__doc__ or "").split("\n\nAttributes:")[0],
            config=(tyro.conf.FlagConversionOff,),
        )
        config = dataclasses.replace(config, preset=default.preset)
        config.validate()
        if resume is not None:
            _check_steps(config, default)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    return config


def with_preset(
    kind: type[Config],
    preset: Preset = "auto",
    model: str | None = None,
    env: str | None = None,
) -> Config:
    """A config's defaults under a preset; its ``preset`` field names the one that was taken.

    The preset ``tiny`` is the config's own (``TINY``), with what the environment's registry entry
    changes of it.

    Args:
        kind: The config's class.
        preset: ``auto`` takes ``tiny`` for the model ``tiny`` and ``paper`` for others.
        model: The model; None is the default one.
        env: The environment's id; None is the default one.
    """
    given = {"model": model, "env": env}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    plain = kind(**changes)
    name = preset if preset != "auto" else ("tiny" if plain.model == "tiny" else "paper")
    values = {**kind.TINY, **_settings_of_env(kind, plain.env)} if name == "tiny" else {}
    return kind(**(values | changes | {"preset": name}))


def _settings_of_env(kind: type[PlayConfig], env: str) -> dict[str, Any]:
    try:
        entry = spec(env)
    except (KeyError, ImportError):  # refused, with the reason, where the environment is opened
        return {}
    names = {field.name for field in dataclasses.fields(kind)}
    settings = getattr(entry, kind.TINY_OF_ENV)
    return {name: value for name, value in settings.items() if name in names}


def _stored_config(kind: type[Config], folder: Path, arguments: Sequence[str]) -> Config:
    """The configuration of the run that is resumed.

    Raises:
        ValueError: If it is no run of this trainer, or flags would change it.
    """
    others = sorted({flag for flag, _ in _flags(arguments)} - {"--resume", "--steps", "--help"})
    if others:
        raise ValueError(
            f"{', '.join(others)} cannot be given with --resume: the run keeps the configuration "
            "it was started with; only --steps may be raised"
        )
    require(folder.is_dir(), "resume", folder, "an existing run directory")
    try:
        about = read_config(folder)
    except RunDirError as error:
        raise ValueError(str(error)) from error
    stored: dict[str, Any] = about["config"]
    hints = get_type_hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    if set(stored) != names:
        odd = ", ".join(sorted(set(stored) ^ names)[:5])
        raise ValueError(
            f"{folder} is a run of {about['name']!r} with other settings than this trainer's "
            f"(they differ in {odd}); resume it with python -m trainers.{about['name']} of the "
            "version that made it"
        )
    values = {name: _from_json(stored[name], hints[name]) for name in names}
    planned = read_status(folder).get("total_steps")  # a former resume may have raised it
    if planned is not None:
        values["steps"] = max(values["steps"], int(planned))
    return kind(**{**values, "run_dir": None, "resume": folder})


def _check_steps(config: Any, default: Any) -> None:
    require(
        config.steps >= default.steps,
        "steps",
        config.steps,
        f"at least the {default.steps} that the run was planned with; with --resume it may only "
        "be raised",
    )


def _from_json(value: Any, hint: Any) -> Any:
    """Undo what :func:`trainers.run_facts.to_json` did to a field."""
    if isinstance(value, list):
        return tuple(value)
    if value in ("Infinity", "-Infinity", "NaN") and float in (hint, *get_args(hint)):
        return float(value)
    return Path(value) if value is not None and Path in (hint, *get_args(hint)) else value


def _peek(arguments: Sequence[str], flag: str) -> str | None:
    """The last value given for a flag, before the flags are really parsed."""
    return next((value for name, value in reversed(_flags(arguments)) if name == flag), None)


def _flags(arguments: Sequence[str]) -> list[tuple[str, str | None]]:
    """Flags with what follows them; underscores are as good as hyphens."""
    found: list[tuple[str, str | None]] = []
    for word, following in zip(arguments, [*arguments, None][1:], strict=True):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found.append((name.replace("_", "-"), value if equals else following))
    return found
