"""The critic: a transformer trunk with a scalar head that starts at zero."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainers.token_outputs import prefix_values

if TYPE_CHECKING:
    from adapters.policies.causal_lm import CausalLM

__all__ = ["Critic"]

_HEAD_FILE, _CONFIG_FILE, _TRUNK = "critic.safetensors", "critic.json", "trunk"


class Critic(nn.Module):
    """Value of every prefix of a token row.

    SAO starts the critic from the policy's own backbone, keeps its attention frozen and trains
    the rest. The head is zero at first, so that an untrained critic says 0 everywhere and adds no
    noise to the advantages.

    Args:
        lm: Policy whose trunk is copied (``own``) or used (``shared``).
        shared: Use the policy's trunk itself; only the head belongs to the critic then.
        freeze_attention: Leave the self-attention of the copied trunk as it is.
    """

    def __init__(
        self, lm: CausalLM, *, shared: bool = False, freeze_attention: bool = False
    ) -> None:
        super().__init__()
        trunk = lm.model.base_model
        self.shared = shared
        if shared:
            # Hidden from nn.Module: its parameters are the policy's and are saved with it.
            object.__setattr__(self, "_trunk", trunk)
        else:
            self.trunk = copy.deepcopy(trunk)
        size = lm.hidden_size
        self.head = nn.Linear(size, 1, dtype=torch.float32, device=lm.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if freeze_attention and not shared:
            self._freeze_attention()

    def forward(self, token_ids_BT: Tensor, attention_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Values before each token, and after the last one.

        Args:
            token_ids_BT: Rows, padded on the right; int64.
            attention_BT: True on real tokens.

        Returns:
            ``values_BT`` with ``values[t] = v(x_<t)`` and ``v_boot_B``; float32.
        """
        trunk: nn.Module = self._trunk if self.shared else self.trunk
        # Rows are padded on the right and the trunk is causal: no token sees the padding.
        hidden = trunk(input_ids=token_ids_BT, use_cache=False).last_hidden_state
        said_BT = self.head(hidden.to(self.head.weight.dtype)).squeeze(-1)
        return prefix_values(said_BT, attention_BT.sum(-1))

    def trained_parameters(self) -> list[nn.Parameter]:
        """What the critic's optimiser updates."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def _freeze_attention(self) -> None:
        frozen = 0
        for name, parameter in self.trunk.named_parameters():
            if "attn" in name or "attention" in name:
                parameter.requires_grad_(False)
                frozen += 1
        if not frozen:
            raise ValueError(
                f"freeze_attention found no attention among the parameters of "
                f"{type(self.trunk).__name__}; use --freeze-attention False"
            )

    def save(self, folder: Path, facts: dict[str, Any] | None = None) -> None:
        """Write the weights where :meth:`load` finds them.

        Args:
            folder: Made if absent.
            facts: Further values for the description beside the weights.

        Raises:
            ValueError: For a critic on a shared trunk, which is not one without its policy.
        """
        from safetensors.torch import save_file

        if self.shared:
            raise ValueError("a critic on a shared trunk cannot be saved alone")
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()
        }
        temporary = folder / (_HEAD_FILE + ".part")
        save_file(state, temporary)
        temporary.replace(folder / _HEAD_FILE)
        description = {"format": "agentgym-critic-1", **(facts or {})}
        (folder / _CONFIG_FILE).write_text(json.dumps(description, indent=2) + "\n")

    def load(self, folder: Path) -> None:
        """Read weights written by :meth:`save`.

        Raises:
            ValueError: If the folder holds no critic, or one of another architecture.
        """
        from safetensors.torch import load_file

        path = folder / _HEAD_FILE
        if not path.is_file():
            raise ValueError(
                f"{folder} holds no {_HEAD_FILE}; make one with python -m trainers.value_pretrain"
            )
        state = load_file(path)
        own = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        given = {name: tuple(value.shape) for name, value in state.items()}
        if own != given:
            odd = sorted(set(own.items()) ^ set(given.items()))[:3]
            raise ValueError(f"the critic in {folder} does not fit this model, e.g. {odd}")
        self.load_state_dict(state)
