"""The critic: a transformer trunk with a scalar head that starts at zero."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from agentgym.files import write_atomically
from trainers.token_outputs import prefix_values

if TYPE_CHECKING:
    from adapters.policies.causal_lm import CausalLM

__all__ = ["Critic", "check_critic_folder", "default_freeze", "read_critic_facts"]

_WEIGHTS, _FACTS = "critic.safetensors", "critic.json"
_FORMAT = "agentgym-critic-1"
# Parts of parameter names under which models keep their self-attention, and their input table.
_ATTENTION = frozenset({"self_attn", "self_attention", "attn", "attention"})
_EMBEDDINGS = frozenset({"embed_tokens", "wte", "wpe", "embed_in", "word_embeddings"})


class Critic(nn.Module):
    """Value of every prefix of a token row.

    SAO starts the critic from the policy's own backbone, keeps its attention frozen and trains
    the rest. The head is zero at first, so that an untrained critic says 0 everywhere and adds no
    noise to the advantages.

    Args:
        lm: Policy whose trunk is copied (``own``) or used (``shared``).
        shared: Use the policy's trunk itself; only the head belongs to the critic then.
        freeze_attention: Of the copied trunk, train only MLPs and norms; self-attention and
            embeddings stay as they are. The paper names projections of its experts as trained and
            attention as frozen; for dense models that leaves MLPs, norms and head.
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
        self.head = nn.Linear(lm.hidden_size, 1, dtype=torch.float32, device=lm.device)
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
        trunk: Any = self._trunk if self.shared else self.trunk
        # Rows are padded on the right and the trunk is causal: no token sees the padding.
        hidden = trunk(input_ids=token_ids_BT, use_cache=False).last_hidden_state
        return self.read(hidden, attention_BT)

    def read(self, hidden_BTH: Tensor, attention_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Values from the trunk's last hidden states; see :meth:`forward`."""
        said_BT = self.head(hidden_BTH.to(self.head.weight.dtype)).squeeze(-1)
        return prefix_values(said_BT, attention_BT.sum(-1))

    def trained_parameters(self) -> list[nn.Parameter]:
        """What the critic's optimiser updates."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def _freeze_attention(self) -> None:
        frozen = 0
        for name, parameter in self.trunk.named_parameters():
            parts = set(name.split("."))
            if parts & (_ATTENTION | _EMBEDDINGS):
                parameter.requires_grad_(False)
                frozen += bool(parts & _ATTENTION)
        if not frozen:
            raise ValueError(
                f"freeze_attention found no attention among the parameters of "
                f"{type(self.trunk).__name__}; use --freeze-attention False"
            )

    # Files --------------------------------------------------------------------------------------

    def save(
        self, folder: str | os.PathLike[str], tokenizer: Any, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Write the weights where :meth:`load` finds them.

        Args:
            folder: Made if absent.
            tokenizer: The model's; a critic understands its token ids only.
            facts: Further values for the description beside the weights.

        Raises:
            ValueError: For a critic on a shared trunk, which is not one without its policy.
        """
        from safetensors.torch import save

        if self.shared:
            raise ValueError("a critic on a shared trunk cannot be saved alone")
        state = {
            name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()
        }
        description = {
            "format": _FORMAT,
            "trunk": type(self.trunk).__name__,
            "vocabulary": vocabulary_digest(tokenizer),
            **(facts or {}),
        }
        write_atomically(Path(folder) / _WEIGHTS, save(state))
        write_atomically(Path(folder) / _FACTS, json.dumps(description, indent=2) + "\n")

    def load(self, folder: str | os.PathLike[str], tokenizer: Any) -> dict[str, Any]:
        """Read weights written by :meth:`save`.

        Args:
            folder: Where they are.
            tokenizer: The model's.

        Returns:
            The description beside them.

        Raises:
            ValueError: If the folder holds no critic, or one of another architecture or
                vocabulary.
        """
        from safetensors.torch import load_file

        facts = read_critic_facts(folder)
        state = load_file(Path(folder) / _WEIGHTS)
        own = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        given = {name: tuple(value.shape) for name, value in state.items()}
        if own != given:
            name = sorted({name for name, _ in set(own.items()) ^ set(given.items())})[0]
            raise ValueError(
                f"the critic in {folder} does not fit this model: its {name} is "
                f"{given.get(name, 'absent')}, the model's is {own.get(name, 'absent')}; pretrain "
                "one for it with python -m trainers.value_pretrain"
            )
        digest = vocabulary_digest(tokenizer)
        if facts.get("vocabulary") != digest:
            raise ValueError(
                f"the critic in {folder} was trained on another vocabulary ({facts['vocabulary']}) "
                f"than the model's ({digest}): the same token ids mean other texts; pretrain one "
                "for this model with python -m trainers.value_pretrain"
            )
        self.load_state_dict(state)
        return facts


def default_freeze(model: str) -> bool:
    """Whether a critic's attention stays frozen by default: that of a pretrained model does."""
    return model != "tiny"


def check_critic_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that holds no critic, before any work is done.

    Raises:
        ValueError: Naming what is missing.
    """
    read_critic_facts(folder)


def read_critic_facts(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The description beside a critic's weights.

    Raises:
        ValueError: If the folder holds no critic.
    """
    path = Path(folder)
    for name in (_WEIGHTS, _FACTS):
        if not (path / name).is_file():
            raise ValueError(
                f"--critic is {folder}, which has no {name}; make one with "
                "python -m trainers.value_pretrain"
            )
    try:
        facts = json.loads((path / _FACTS).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path / _FACTS} is damaged: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != _FORMAT:
        raise ValueError(f"{path / _FACTS} does not describe a critic of this project")
    return facts


def vocabulary_digest(tokenizer: Any) -> str:
    """A short hash of what each token id stands for; ``none`` without a vocabulary."""
    get_vocab = getattr(tokenizer, "get_vocab", None)
    if get_vocab is None:
        return "none"
    text = json.dumps(sorted(get_vocab().items(), key=lambda item: item[1]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
