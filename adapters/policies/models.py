"""From what ``--model`` says to a model."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from adapters.policies.causal_lm import CausalLM
from agentgym.registry import load

__all__ = ["TINY", "cache_folder", "resolve_model"]

#: The name of the model that is built and warm-started on this machine.
TINY = "tiny"

# Cloning an oracle is a trainer's work, and adapters do not import trainers: it is looked up by
# name, like any other entry point.
_WARM_START = "trainers.warm_start:warm_start"


def resolve_model(
    model: str,
    env_id: str,
    env_args: Mapping[str, Any] | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str = torch.float32,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> CausalLM:
    """The model of that name.

    Args:
        model: ``tiny``, a model folder, or a Hugging Face hub id. The tiny model is made for
            ``env_id`` and warm-started by behaviour cloning; it is kept in
            :func:`cache_folder` and found there the next time.
        env_id: Environment that it is to act in.
        env_args: The environment's arguments.
        device: Where the model goes.
        dtype: Type of a loaded model's weights; ``auto`` takes that of the file. Training wants
            float32: steps of 1e-6 vanish in bfloat16 weights.
        seed: Seed of the tiny model and its warm start.
        say: Is told what takes time.

    Raises:
        ModelLoadError: If there is no such model.
        ValueError: If the environment cannot warm-start a tiny model, or the device cannot be used.
    """
    _check_device(device)
    if model == TINY:
        lm = load(_WARM_START, "torch")(env_id, dict(env_args or {}), seed=seed, say=say)
        lm.model.to(torch.device(device))
        return lm
    return CausalLM.load(model, dtype=dtype, device=device)


def _check_device(device: str | torch.device) -> None:
    """Put something there, before anything that takes long."""
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).partition("\n")[0]
        there = "cpu or cuda" if torch.cuda.is_available() else "cpu"
        raise ValueError(f"device {str(device)!r} cannot be used ({why}); take {there}") from error


def cache_folder() -> Path:
    """Where things made on this machine are kept.

    ``AGENTGYM_CACHE`` if it is set, else ``agentgym`` in the user's cache folder of the platform.
    """
    chosen = os.environ.get("AGENTGYM_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "agentgym"
