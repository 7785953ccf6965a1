"""Checkpoints: a nested state written and read back bit for bit, without pickle.

A checkpoint is a folder: ``state.json`` holds the structure and every plain value,
``tensors.safetensors`` the PyTorch tensors, ``arrays.npz`` the NumPy arrays, and ``manifest.json``
the size and SHA-256 of each, so that a damaged file is noticed and named. The folder is written
under a temporary name, forced to disk and renamed: one that carries its proper name is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.files import sync_folder
from trainers.state_codec import Packed, StateError, pack_state, unpack_state

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointInfo",
    "DamagedCheckpoint",
    "StateError",
    "list_checkpoints",
    "load_checkpoint",
    "load_latest",
    "prune_checkpoints",
    "save_checkpoint",
    "tidy_checkpoints",
]

_FORMAT = "agentgym-checkpoint"
_FORMAT_VERSION = 1
_NAME = re.compile(r"step_(\d{6,})")
_MANIFEST = "manifest.json"
_STATE, _TENSORS, _ARRAYS = "state.json", "tensors.safetensors", "arrays.npz"
_MISSING = (
    "{name} needs the package safetensors; install it with: pip install 'agentgym-suite[torch]'"
)


class CheckpointError(RuntimeError):
    """A folder is not a checkpoint, or not one this version can read."""


class DamagedCheckpoint(CheckpointError):
    """A file of a checkpoint is missing or not as it was written."""


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What a complete checkpoint's manifest says.

    Attributes:
        path: The folder.
        step: Learner steps done.
        score: What it scored in evaluation (higher is better), or None.
    """

    path: Path
    step: int
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint in memory.

    Attributes:
        info: Where it came from.
        state: The state; tensors are on the CPU and own their memory.
    """

    info: CheckpointInfo
    state: Any

    @property
    def step(self) -> int:
        """Learner steps done."""
        return self.info.step


def save_checkpoint(
    root: str | os.PathLike[str], step: int, state: Any, *, score: float | None = None
) -> Path:
    """Write ``root/step_000123`` in one step, replacing one of the same name.

    Args:
        root: Folder of the run's checkpoints; made if missing.
        step: Learner steps done, >= 0.
        state: Dicts, lists and tuples of PyTorch tensors, NumPy arrays and scalars, numbers,
            texts, bytes and None. Dict keys may be anything hashable among these (optimiser
            states have integers). Tied tensors are stored once and come back tied.
        score: For keeping the best; higher is better.

    Returns:
        The checkpoint's folder.

    Raises:
        StateError: The state holds something else; the message names where.
    """
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"step must be an integer >= 0, got {step!r}")
    packed = pack_state(state)
    folder = Path(root)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"step_{step:06d}"
    temporary = folder / f".writing-{target.name}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        _write_files(temporary, step, score, packed)
        old = folder / f".replaced-{target.name}"
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(target, old)
        os.rename(temporary, target)
        sync_folder(folder)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return target


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read one checkpoint folder, every file verified.

    Raises:
        CheckpointError: ``path`` is no checkpoint, or of a newer format.
        DamagedCheckpoint: A file is missing, cut or altered; the message names it.
    """
    folder = Path(path)
    manifest = _read_manifest(folder)
    for name, expected in manifest["files"].items():
        _verify(folder / name, expected)
    state = json.loads((folder / _STATE).read_bytes())
    tensors: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    if _TENSORS in manifest["files"]:
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            raise ImportError(_MISSING.format(name="reading a checkpoint")) from error
        # Cloned, because the library maps the file, which may be pruned or rewritten later.
        tensors = {k: v.clone() for k, v in load_file(folder / _TENSORS).items()}
    if _ARRAYS in manifest["files"]:
        import numpy as np

        with np.load(folder / _ARRAYS, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    info = CheckpointInfo(folder, manifest["step"], manifest["score"])
    return Checkpoint(info, unpack_state(Packed(state, tensors, arrays)))


def list_checkpoints(root: str | os.PathLike[str]) -> list[CheckpointInfo]:
    """Complete checkpoints in a folder, oldest step first.

    Folders under temporary names are never listed. One whose manifest cannot be read is listed
    without a score, so that loading it can say what is wrong.
    """
    folder = Path(root)
    found = []
    for entry in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.fullmatch(entry.name)
        if match and entry.is_dir():
            try:
                score = _read_manifest(entry)["score"]
            except CheckpointError:
                score = None
            found.append(CheckpointInfo(entry, int(match[1]), score))
    return sorted(found, key=lambda info: info.step)


def load_latest(
    root: str | os.PathLike[str], *, say: Callable[[str], None] = warnings.warn
) -> Checkpoint | None:
    """Read the newest checkpoint that is intact.

    Damaged ones are reported through ``say`` and set aside under the name
    ``damaged-step_000123``, so that the run can write that step again.

    Returns:
        The checkpoint, or None if there has never been one.

    Raises:
        DamagedCheckpoint: There are checkpoints and all are damaged; the message names each fault.
        CheckpointError: The newest is foreign or of a newer format.
    """
    faults: list[str] = []
    candidates = list_checkpoints(root)
    for info in reversed(candidates):
        try:
            checkpoint = load_checkpoint(info.path)
        except DamagedCheckpoint as error:
            faults.append(str(error))
            continue
        for damaged, fault in zip(reversed(candidates), faults, strict=False):
            aside = damaged.path.with_name(f"damaged-{damaged.path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(damaged.path, aside)
            say(f"{fault}; going back to step {checkpoint.step}, damaged one kept as {aside.name}")
        return checkpoint
    if faults:
        raise DamagedCheckpoint("no intact checkpoint is left: " + "; ".join(faults))
    return None


def prune_checkpoints(root: str | os.PathLike[str], keep_last: int) -> list[Path]:
    """Delete all but the last ``keep_last`` checkpoints and the best-scored one (newest of equals).

    Returns:
        The folders deleted.
    """
    if keep_last < 1:
        raise ValueError(f"keep_last must be >= 1, got {keep_last!r}")
    infos = list_checkpoints(root)
    kept = {info.step for info in infos[-keep_last:]}
    scored = [info for info in infos if info.score is not None]
    if scored:
        kept.add(max(scored, key=lambda info: (info.score, info.step)).step)
    doomed = [info.path for info in infos if info.step not in kept]
    for path in doomed:
        _discard(path)
    return doomed


def tidy_checkpoints(root: str | os.PathLike[str], *, after: int | None = None) -> list[Path]:
    """Clear what a killed process left behind, and checkpoints of steps later than ``after``.

    A checkpoint that was being replaced when the process died is put back.

    Returns:
        The folders deleted.
    """
    folder = Path(root)
    deleted = []
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if entry.name.startswith(".replaced-"):
            original = folder / entry.name.removeprefix(".replaced-")
            if not original.exists():
                os.rename(entry, original)
                continue
        if entry.name.startswith((".writing-", ".replaced-", ".deleting-")):
            shutil.rmtree(entry)
            deleted.append(entry)
    if after is not None:
        for info in list_checkpoints(folder):
            if info.step > after:
                _discard(info.path)
                deleted.append(info.path)
    return deleted


def _write_files(folder: Path, step: int, score: float | None, packed: Packed) -> None:
    (folder / _STATE).write_text(json.dumps(packed.structure, allow_nan=False), "ascii")
    names = [_STATE]
    if packed.tensors:
        try:
            from safetensors.torch import save_file
        except ImportError as error:
            raise ImportError(_MISSING.format(name="writing a checkpoint")) from error
        save_file(packed.tensors, folder / _TENSORS)
        names.append(_TENSORS)
    if packed.arrays:
        import numpy as np

        named: dict[str, Any] = dict(packed.arrays)
        np.savez(folder / _ARRAYS, **named)
        names.append(_ARRAYS)
    manifest = {
        "format": _FORMAT,
        "version": _FORMAT_VERSION,
        "step": step,
        "score": None if score is None or score != score else float(score),
        "files": {
            name: {"bytes": (folder / name).stat().st_size, "sha256": _digest(folder / name)}
            for name in names
        },
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1, allow_nan=False), "ascii")
    for name in (*names, _MANIFEST):
        with open(folder / name, "rb") as file:
            os.fsync(file.fileno())
    sync_folder(folder)


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / _MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        if _NAME.fullmatch(folder.name) and (folder / _STATE).exists():
            raise DamagedCheckpoint(f"checkpoint file {path} is missing") from None
        raise CheckpointError(
            f"{folder} is not a checkpoint of this project (it has no {_MANIFEST}); expected a "
            "folder such as RUN_DIR/checkpoints/step_000100"
        ) from None
    except ValueError as error:
        raise DamagedCheckpoint(f"checkpoint file {path} is damaged: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise CheckpointError(f"{path} is not the manifest of a checkpoint of this project")
    if manifest.get("version") != _FORMAT_VERSION:
        raise CheckpointError(
            f"{folder} has checkpoint format {manifest.get('version')!r}; this version reads "
            f"format {_FORMAT_VERSION}"
        )
    score = manifest.get("score")
    sound = (
        isinstance(manifest.get("step"), int)
        and isinstance(manifest.get("files"), dict)
        and set(manifest["files"]) <= {_STATE, _TENSORS, _ARRAYS}
        and _STATE in manifest["files"]
        and all(isinstance(entry, dict) for entry in manifest["files"].values())
        and (score is None or isinstance(score, int | float))
    )
    if not sound:
        raise DamagedCheckpoint(f"checkpoint file {path} is damaged: fields are missing or wrong")
    return manifest


def _verify(path: Path, expected: dict[str, Any]) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise DamagedCheckpoint(f"checkpoint file {path} is missing") from None
    if size != expected.get("bytes"):
        raise DamagedCheckpoint(
            f"checkpoint file {path} is damaged: {size} bytes, {expected.get('bytes')} were written"
        )
    if _digest(path) != expected.get("sha256"):
        raise DamagedCheckpoint(f"checkpoint file {path} is damaged: its content was altered")


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _discard(path: Path) -> None:
    """Delete a checkpoint; a kill in the middle leaves nothing that looks complete."""
    doomed = path.with_name(f".deleting-{path.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(path, doomed)
    shutil.rmtree(doomed)
