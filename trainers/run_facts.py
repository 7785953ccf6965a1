"""What ``config.json`` tells about a run: its configuration, command and software, no secrets."""

from __future__ import annotations

import enum
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

import agentgym
from agentgym.recording import spelled

__all__ = ["command_line", "config_differences", "software", "to_json"]

_PACKAGES = (
    "numpy", "gymnasium", "torch", "transformers", "tokenizers", "safetensors", "vllm", "openai",
)  # fmt: skip
_SECRET = re.compile(
    r"(^|[_-])(api[_-]?key|secret([_-]?key)?|password|passwd|passphrase|credentials?|"
    r"(auth|access|hf|bearer|api|refresh)[_-]?token|token|authorization|private[_-]?key)$",
    re.IGNORECASE,
)
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_HIDDEN = "<hidden>"


def to_json(value: Any, *, place: str = "config") -> Any:
    """Turn a configuration into plain JSON values.

    Dataclasses and mappings become objects, sequences lists, enums their values, paths texts,
    NumPy scalars numbers, non-finite floats the texts ``NaN``, ``Infinity`` and ``-Infinity``;
    classes and functions their dotted names. The value of a field whose name says that it is a
    secret (an API key, a password) and logins inside URLs are replaced by ``<hidden>``.

    Raises:
        TypeError: A value has no JSON form; the message names its place.
    """
    if isinstance(value, enum.Enum):
        return to_json(value.value, place=place)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _URL_LOGIN.sub(_HIDDEN, value)
    if isinstance(value, float):
        return spelled(value)
    if isinstance(value, os.PathLike):
        return _URL_LOGIN.sub(_HIDDEN, os.fspath(value))
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {
            str(key): _HIDDEN
            if _SECRET.search(str(key)) and isinstance(item, str) and item
            else to_json(item, place=f"{place}.{key}")
            for key, item in value.items()
        }
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [to_json(item, place=f"{place}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        return [to_json(item, place=place) for item in sorted(value, key=repr)]
    if isinstance(value, type) or callable(value):
        name = getattr(value, "__qualname__", type(value).__qualname__)
        return f"{getattr(value, '__module__', '')}.{name}"
    if type(value).__module__ == "torch":  # torch.float32, torch.device("cpu")
        return str(value)
    raise TypeError(f"{place} is a {type(value).__qualname__}, which has no JSON form: {value!r}")


def command_line(argv: Sequence[str] | None = None) -> list[str]:
    """The command that started the process, with secrets hidden.

    Args:
        argv: The words; by default those the interpreter was called with.
    """
    words = list(sys.orig_argv if argv is None else argv)
    if argv is None and words:
        words[0] = Path(words[0]).name
    shown, hide_next = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        is_secret = bool(_SECRET.search(name))
        if hide_next and not word.startswith("--"):
            shown.append(_HIDDEN)
        elif is_secret and equals:
            shown.append(f"{name}={_HIDDEN}")
        else:
            shown.append(_URL_LOGIN.sub(_HIDDEN, word))
        hide_next = is_secret and not equals and word.startswith("-")
    return shown


def software() -> dict[str, Any]:
    """Versions and machine facts that help to explain a result."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    facts: dict[str, Any] = {
        "agentgym": agentgym.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "packages": versions,
    }
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads:
        facts["omp_num_threads"] = threads
    torch = sys.modules.get("torch")  # asked only where the run uses it anyway
    if torch is not None:
        facts["torch_threads"] = torch.get_num_threads()
        if torch.cuda.is_initialized():
            facts["cuda_device"] = torch.cuda.get_device_name()
    return facts


def config_differences(old: Any, new: Any) -> dict[str, tuple[Any, Any]]:
    """Compare two configurations in their JSON form.

    Returns:
        Dotted place to (old, new) for every leaf that differs; a missing one counts as None.
    """
    left, right = dict(_leaves(to_json(old), "")), dict(_leaves(to_json(new), ""))
    return {
        key: (left.get(key), right.get(key))
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    }


def _leaves(value: Any, place: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        found = []
        for key, item in value.items():
            found += _leaves(item, f"{place}.{key}" if place else key)
        return found
    return [(place, value)]
