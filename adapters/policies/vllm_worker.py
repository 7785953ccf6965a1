"""What runs inside vLLM's worker processes: weights from a file, and what vLLM leaves open.

vLLM imports this module in each worker before the model is built, because the policy names
:class:`WorkerExtension` as its ``worker_extension_cls``. Importing it registers a weight transfer
engine of the name :data:`BACKEND` through vLLM's public registry. It also ends the engine with the
process that it works for, and mends the CPU backend.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.platforms import current_platform

from adapters.policies.vllm_life import OWNER
from adapters.policies.vllm_version import check_vllm

__all__ = ["BACKEND", "FileTransfer", "WorkerExtension"]

BACKEND = "agentgym-file"

check_vllm()


@dataclass
class FileInit(WeightTransferInitInfo):
    """Nothing to agree on."""


@dataclass
class FileUpdate(WeightTransferUpdateInfo):
    """Where the new weights are.

    Attributes:
        path: A safetensors file under the names of the Hugging Face model; in shared memory where
            the machine has any.
    """

    path: str


class FileTransfer(WeightTransferEngine[FileInit, FileUpdate]):
    """Reads weights from a file that every worker can see, tensor by tensor.

    ``load_weights`` of the model maps names to fused and sharded parameters, and copies into the
    tensors in use, which CUDA graphs go on reading.
    """

    init_info_cls = FileInit
    update_info_cls = FileUpdate
    supports_draft_weight_update = False

    def init_transfer_engine(self, init_info: FileInit) -> None:
        """Nothing to set up."""

    def start_weight_update(self) -> None:
        """Nothing to prepare: weights are replaced in place."""

    def finish_weight_update(self) -> None:
        """Nothing to complete."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load a file; the base class would synchronise an accelerator, which may not be there."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: FileUpdate) -> None:
        """Load a file."""
        with safe_open(update_info.path, framework="pt", device=str(self.device)) as file:
            names = list(file.keys())
            self.model.load_weights((name, file.get_tensor(name)) for name in names)

    def shutdown(self) -> None:
        """Nothing is held."""


class WorkerExtension:
    """Gives the worker nothing; naming it makes vLLM import this module."""


WeightTransferEngineFactory.register_engine(BACKEND, FileTransfer)


def _leave_with(owner: int) -> None:
    """End the engine when the process that it works for is gone.

    vLLM's engine does not notice: it would keep its memory, and a GPU's, for ever.
    """
    try:
        watched = os.pidfd_open(owner)
    except ProcessLookupError:  # it went while this process started
        os.kill(os.getpid(), signal.SIGKILL)
        raise
    # Several workers have the engine's process between them and the owner.
    above, engine = os.getppid(), -1
    with suppress(OSError):
        engine = os.pidfd_open(above) if _parent(above) == owner else -1

    def wait() -> None:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        poll.poll()
        if engine >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(engine, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="agentgym-owner", daemon=True).start()


def _parent(pid: int) -> int:
    """Process id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


if OWNER in os.environ:
    _leave_with(int(os.environ[OWNER]))


def _plain_linear(layer: torch.nn.Module, remove_weight: bool) -> None:
    """Multiply by the weight itself."""
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]


if current_platform.is_cpu():
    # The CPU backend multiplies by a packed copy of each weight that is made once, and drops the
    # weight: new ones would be refused or, worse, loaded without effect.
    from vllm.model_executor.layers import utils as _layers

    _layers.dispatch_cpu_unquantized_gemm = _plain_linear
