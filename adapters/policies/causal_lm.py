"""One causal language model as the sampler and the learner both see it.

Sampler and learner compute log-probs through the same two steps, ``features`` (everything up to
the last hidden state) and ``project`` (features of chosen positions to logits), so that what was
recorded and what is recomputed differ by rounding alone, and the output layer, which dominates
small models with large vocabularies, runs only where a token is read.
"""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.utils import logging as hf_logging

from agentgym.files import write_atomically

__all__ = ["CausalLM", "ModelLoadError", "TokenScores"]

# Logits computed at a time by the learner; more are recomputed in the backward pass in chunks.
_CHUNK_LOGITS = 1 << 26
_ANSWER = "AGENTGYMANSWER"


class ModelLoadError(ValueError):
    """A model that cannot be loaded; the message says what was looked for."""


@dataclass(slots=True)
class TokenScores:
    """What the learner recomputes; position ``t`` is about token ``t`` given those before it.

    Attributes:
        logprobs: Log-probs of the chosen tokens, 0 elsewhere; float32 (B, T).
        entropy: Entropy in nats of the distributions they were drawn from, 0 elsewhere, or None
            where it was not asked for; float32 (B, T).
    """

    logprobs: Tensor
    entropy: Tensor | None = None


class CausalLM:
    """A transformers causal language model with its tokenizer.

    Dropout is off (``eval`` mode): the probability ratios of policy optimisation compare two
    forward passes, and dropout would make them differ.

    Args:
        model: The model. The learner trains it in place.
        tokenizer: Its fast tokenizer; None where only token ids are handled.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any = None) -> None:
        self.model, self.tokenizer = model, tokenizer
        model.eval()
        self._backbone = model.base_model
        self._head = model.get_output_embeddings()
        # Some models do more to the logits than multiply (a soft cap, a scale). Compare bit for
        # bit, and leave such models their own way.
        self.split_head = self._head is not None and self._head_is_plain()

    # Making and storing -----------------------------------------------------------------------

    @classmethod
    def load(
        cls,
        source: str | os.PathLike[str],
        *,
        dtype: torch.dtype | str = "auto",
        device: str | torch.device = "cpu",
    ) -> CausalLM:
        """Load a model folder, or a model from the Hugging Face hub.

        Args:
            source: Folder or hub id.
            dtype: Type of the weights; ``auto`` takes that of the file, and float32 on CPU.
            device: Where it goes.

        Raises:
            ModelLoadError: If there is no such model, or no tokenizer beside it.
        """
        name = os.fspath(source)
        device = torch.device(device)
        if dtype == "auto" and device.type == "cpu":
            dtype = torch.float32
        if not Path(name).is_dir() and (name.startswith((".", "/", "~")) or name.count("/") != 1):
            raise ModelLoadError(
                f"model {name!r} is neither a folder nor a hub id of the form 'owner/name'"
            )
        try:
            with _no_progress_bars():
                model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
                tokenizer = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError, KeyError) as error:
            raise ModelLoadError(f"model {name!r} cannot be loaded: {error}") from error
        return cls(model.to(device), tokenizer)

    def save(self, folder: str | os.PathLike[str], notes: Mapping[str, str] | None = None) -> Path:
        """Write model and tokenizer as a folder that ``load`` reads; never leaves half of one.

        Args:
            folder: Where; an old folder there is replaced.
            notes: Further text files to put beside them, by name.

        Returns:
            The folder.
        """
        target = Path(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            with _no_progress_bars():
                self.model.save_pretrained(scratch)
            if self.tokenizer is not None:
                self.tokenizer.save_pretrained(scratch)
            for name, text in (notes or {}).items():
                write_atomically(scratch / name, text)
            scratch.chmod(0o755)
            _replace_folder(scratch, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return target

    def clone(self) -> CausalLM:
        """An independent copy of the weights (the tokenizer is shared)."""
        return CausalLM(copy.deepcopy(self.model), self.tokenizer)

    # Facts ------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.device

    @property
    def vocab_size(self) -> int:
        """Number of logits."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def hidden_size(self) -> int:
        """Width of the last hidden state."""
        return int(self.model.config.get_text_config().hidden_size)

    @property
    def max_positions(self) -> int | None:
        """Longest sequence the model was made for, in tokens, where its configuration says so."""
        found = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return int(found) if found else None

    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer: the model's ends of sequence, the template's end of turn."""
        found: list[int] = []
        generation = getattr(self.model, "generation_config", None)
        for source in (getattr(generation, "eos_token_id", None), self.model.config.eos_token_id):
            if source is not None:
                found += [source] if isinstance(source, int) else list(source)
        if self.tokenizer is not None and self.tokenizer.eos_token_id is not None:
            found.append(self.tokenizer.eos_token_id)
        turn = self.end_of_turn_id()
        if turn is not None:
            found.append(turn)
        return tuple(dict.fromkeys(int(token) for token in found))

    def end_of_turn_id(self) -> int | None:
        """The token that the chat template writes after an answer; None where it writes none."""
        if self.tokenizer is None or not getattr(self.tokenizer, "chat_template", None):
            return None
        messages = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": _ANSWER},
        ]
        text = str(self.tokenizer.apply_chat_template(messages, tokenize=False))
        _, found, rest = text.rpartition(_ANSWER)
        ids = self.tokenizer.encode(rest, add_special_tokens=False) if found and rest else []
        # Only a token of its own ends a turn; where the template writes words, none does.
        return int(ids[0]) if ids and ids[0] in self.tokenizer.all_special_ids else None

    # Forward passes ---------------------------------------------------------------------------

    def hidden(
        self,
        ids_BT: Tensor,
        *,
        positions_BT: Tensor | None = None,
        mask: Tensor | dict[str, Tensor] | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Last hidden states, shape (B, T, hidden size).

        Rows are padded on the right. A causal model never looks ahead, so a real token does not
        see the padding and no mask is needed.

        Args:
            ids_BT: Token ids; int64.
            positions_BT: Position of each; None counts from 0.
            mask: Explicit attention mask, for a pass over a cache.
            cache: Keys and values of earlier tokens.
        """
        output = self._backbone(
            input_ids=ids_BT,
            attention_mask=mask,
            position_ids=positions_BT,
            past_key_values=cache,
            use_cache=cache is not None,
        )
        return output.last_hidden_state

    def features(
        self,
        ids_BT: Tensor,
        *,
        positions_BT: Tensor | None = None,
        mask: Tensor | dict[str, Tensor] | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """What :meth:`project` turns into logits, shape (B, T, features); see :meth:`hidden`."""
        if self.split_head:
            return self.hidden(ids_BT, positions_BT=positions_BT, mask=mask, cache=cache)
        output = self.model(
            input_ids=ids_BT,
            attention_mask=mask,
            position_ids=positions_BT,
            past_key_values=cache,
            use_cache=cache is not None,
        )
        return output.logits

    def project(self, features_NF: Tensor) -> Tensor:
        """Features of chosen positions to raw logits, shape (N, vocabulary)."""
        if self.split_head and self._head is not None:
            return self._head(features_NF)
        return features_NF

    def token_logprobs(
        self,
        ids_BT: Tensor,
        mask_BT: Tensor,
        *,
        temperature: float = 1.0,
        entropy: bool = False,
        features_BTF: Tensor | None = None,
    ) -> TokenScores:
        """Log-probs of the masked tokens given the tokens before them.

        Args:
            ids_BT: Right-padded token ids; int64.
            mask_BT: True on the tokens to score; bool. Position 0 has nothing before it.
            temperature: The one that they were sampled at; log-probs are of that distribution.
            entropy: Also return the entropies.
            features_BTF: Result of :meth:`features` on the same rows, to save the pass.

        Raises:
            ValueError: If shapes differ, position 0 is asked for, or the temperature is not > 0.
        """
        if not temperature > 0:
            raise ValueError(f"temperature must be > 0, got {temperature!r}")
        if mask_BT.shape != ids_BT.shape or mask_BT.dtype != torch.bool:
            raise ValueError(
                f"mask must be bool of shape {tuple(ids_BT.shape)}, got {mask_BT.dtype} "
                f"{tuple(mask_BT.shape)}"
            )
        if bool(mask_BT[:, 0].any()):
            raise ValueError("the first token of a row has no token before it to predict it from")
        if features_BTF is None:
            features_BTF = self.features(ids_BT)
        chosen = features_BTF[:, :-1][mask_BT[:, 1:]]
        targets = ids_BT[mask_BT].long()
        logp, spread = self._score(chosen, targets, temperature, entropy)
        shape = ids_BT.shape
        return TokenScores(
            _scatter(logp, mask_BT, shape),
            None if spread is None else _scatter(spread, mask_BT, shape),
        )

    def _score(
        self, chosen_NF: Tensor, targets_N: Tensor, temperature: float, entropy: bool
    ) -> tuple[Tensor, Tensor | None]:
        rows = max(1, _CHUNK_LOGITS // self.vocab_size)

        def block(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.project(features).float()
            if temperature != 1.0:
                logits = logits / temperature
            logp = torch.log_softmax(logits, dim=-1)
            taken = logp.gather(-1, targets[:, None])[:, 0]
            spread = -(logp.exp() * logp).sum(-1) if entropy else taken.new_zeros(0)
            return taken, spread

        if len(targets_N) <= rows:
            logp, spread = block(chosen_NF, targets_N)
            return logp, spread if entropy else None
        parts = [
            checkpoint(block, features, targets, use_reentrant=False)
            for features, targets in zip(chosen_NF.split(rows), targets_N.split(rows), strict=True)
        ]
        logp = torch.cat([part[0] for part in parts])
        return logp, torch.cat([part[1] for part in parts]) if entropy else None

    # Weights ----------------------------------------------------------------------------------

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Verify that ``state`` fits this model.

        Raises:
            ValueError: Naming the parameters that are unknown, missing or of another shape.
        """
        own = self.model.state_dict()
        tied = set(getattr(self.model, "all_tied_weights_keys", None) or ())
        unknown = sorted(set(state) - set(own))
        missing = sorted(set(own) - set(state) - tied)
        wrong = [
            f"{name} {tuple(value.shape)} for {tuple(own[name].shape)}"
            for name, value in state.items()
            if name in own and tuple(value.shape) != tuple(own[name].shape)
        ]
        for problem, names in (("unknown", unknown), ("missing", missing), ("misshapen", wrong)):
            if names:
                shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
                raise ValueError(f"{len(names)} {problem} weights: {shown}")

    def copy_weights(self, state: Mapping[str, Any]) -> None:
        """Copy ``state`` into the model's tensors, in place; see :meth:`check_state`."""
        self.check_state(state)
        own = self.model.state_dict()
        with torch.no_grad():
            for name, value in state.items():
                own[name].copy_(torch.as_tensor(value))

    def _head_is_plain(self) -> bool:
        count = min(8, self.vocab_size)
        ids = torch.arange(count, device=self.device)[None] * (self.vocab_size // count)
        with torch.no_grad():
            whole = self.model(input_ids=ids, use_cache=False).logits
            hidden = self._backbone(input_ids=ids, use_cache=False).last_hidden_state
            return torch.equal(self._head(hidden), whole)


@contextlib.contextmanager
def _no_progress_bars() -> Iterator[None]:
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            hf_logging.enable_progress_bar()


def _scatter(flat_N: Tensor, mask_BT: Tensor, shape: torch.Size) -> Tensor:
    return flat_N.new_zeros(shape).masked_scatter(mask_BT, flat_N)


def _replace_folder(new: Path, target: Path) -> None:
    """Move ``new`` to ``target``, which is then whole: the old one or the new one, no mixture."""
    if not target.exists():
        try:
            new.rename(target)
            return
        except OSError:
            if not target.exists():
                raise  # else another process has just written it: replace that
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
    try:
        target.rename(old / "was")
        new.rename(target)
    finally:
        shutil.rmtree(old, ignore_errors=True)
