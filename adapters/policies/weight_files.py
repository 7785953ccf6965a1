"""Files through which a learner's weights reach engines in other processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

__all__ = ["bases", "roomy", "write"]

_SHARED_MEMORY = Path("/dev/shm")


def bases() -> list[Path]:
    """Where weights may be written, the best first."""
    found = [_SHARED_MEMORY] if _SHARED_MEMORY.is_dir() else []
    return [*found, Path(tempfile.gettempdir())]


def roomy(folders: list[Path], state: Mapping[str, Any]) -> Path:
    """The first folder with room for the weights; shared memory in containers is often small.

    Raises:
        OSError: If none has.
    """
    tensors = map(torch.as_tensor, state.values())
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors) + (1 << 20)
    free = [shutil.disk_usage(folder).free for folder in folders]
    for folder, room in zip(folders, free, strict=True):
        if room > needed:
            return folder
    shown = ", ".join(
        f"{folder.parent} has {room / 2**30:.2f} GiB"
        for folder, room in zip(folders, free, strict=True)
    )
    raise OSError(f"weights of {needed / 2**30:.2f} GiB have no room to be handed over: {shown}")


def write(state: Mapping[str, Any], path: Path) -> None:
    """Weights to a file; tensors that share memory are written one by one."""
    seen: set[int] = set()
    out: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        tensor = torch.as_tensor(value).detach().contiguous()
        place = tensor.untyped_storage().data_ptr()
        out[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    scratch = path.with_suffix(".part")
    save_file(out, scratch)
    scratch.replace(path)
