"""TorchRL: an ``EnvBase`` in tokens, for its LLM wrappers with ``input_mode="tokens"``.

No text is tokenized twice (see :class:`~adapters.token_episode.TokenEpisode`). After the last
answer ``("next", "tokens", "prompt")`` is the whole episode, and ``("next", "masks",
"all_assistant_mask")`` tells which of its tokens the model wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adapters.token_episode import TokenEpisode
from adapters.versions import require

require("torchrl", "0.14.1", "0.15", "torchrl")

import torch
from tensordict import NonTensorData, TensorDict, TensorDictBase, lazy_stack
from torchrl.data import Binary, Composite, NonTensor, Unbounded
from torchrl.envs import EnvBase
from torchrl.modules.llm.policies import Masks, Tokens

__all__ = ["TokenEnv"]


class TokenEnv(EnvBase):
    """Episodes side by side, one a place of the batch; a place that is reset takes the next row.

    Beside reward and done flags there are, of shape (num_envs, 1), ``group`` (a number that the
    members of a group share, for ``MCAdvantage(prompt_key="group")``), ``score``, ``success``, and
    ``failed`` (the environment failed: the episode says nothing about the model); and
    ``stop_reason``, a text that is empty while an episode runs.

    Args:
        env_id: Id of the environment.
        tokenizer: The model's tokenizer. Its padding has to be another token than what ends an
            answer: TorchRL drops all padding.
        rows: Episodes, such as :func:`~adapters.task_rows.task_rows` makes. After the last comes
            the first again.
        num_envs: Places of the batch.
        group_size: How often each row is played, in episodes that begin one after the other.
        **settings: ``stop_token_ids``, ``max_prompt_tokens``, ``action_format`` (see
            :class:`~adapters.token_episode.TokenEpisode`) and the arguments of the environment.

    Raises:
        ValueError: If one of the numbers is not positive, or padding ends answers.
    """

    def __init__(
        self,
        env_id: str,
        tokenizer: Any,
        rows: Sequence[Mapping[str, Any]],
        *,
        num_envs: int = 1,
        group_size: int = 1,
        **settings: Any,
    ) -> None:
        if min(len(rows), num_envs, group_size) < 1:
            raise ValueError(
                "rows, num_envs and group_size must be at least one, got "
                f"{len(rows)} rows, num_envs={num_envs}, group_size={group_size}"
            )
        padding = tokenizer.pad_token_id
        if padding in (settings.get("stop_token_ids") or [tokenizer.eos_token_id]):
            raise ValueError(
                f"token {padding} is the padding and ends answers; TorchRL drops all padding, so "
                "give the tokenizer another pad_token"
            )
        super().__init__(batch_size=(num_envs,))
        self._rows, self._order, self._begun = rows, np.arange(len(rows)), 0
        self._group_size, self._groups = group_size, [0] * num_envs
        self._episodes = [TokenEpisode(env_id, tokenizer, **settings) for _ in range(num_envs)]
        batch, column = (num_envs,), (num_envs, 1)
        self.full_observation_spec = Composite(
            tokens=Tokens.default_spec(batch, ["prompt"]),
            masks=Masks.default_spec(batch),
            group=Unbounded(column, dtype=torch.int64),
            score=Unbounded(column),
            success=Binary(shape=column, dtype=torch.bool),
            failed=Binary(shape=column, dtype=torch.bool),
            stop_reason=NonTensor(batch, example_data=""),
            shape=batch,
        )
        self.full_action_spec = Composite(
            tokens=Tokens.default_spec(batch, ["response"]), shape=batch
        )
        self.full_reward_spec = Composite(reward=Unbounded((num_envs, 1, 1)), shape=batch)
        flags = ("done", "terminated", "truncated")
        self.full_done_spec = Composite(
            {flag: Binary(shape=column, dtype=torch.bool) for flag in flags}, shape=batch
        )

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDictBase:
        for place, episode in self._chosen(tensordict, "_reset"):
            self._groups[place], self._begun = self._begun // self._group_size, self._begun + 1
            episode.begin(self._rows[self._order[self._groups[place] % len(self._rows)]])
        return self._seen().exclude("reward")

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        answers = tensordict.get(("tokens", "response"), as_list=True)
        for place, episode in self._chosen(tensordict, "_step"):
            episode.answer(answers[place].tolist())
        return self._seen()

    def _set_seed(self, seed: int | None) -> None:
        """Begin again with the first row, in an order that the seed draws."""
        self._order, self._begun = np.random.default_rng(seed).permutation(len(self._rows)), 0

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Close all environments."""
        for episode in self._episodes:
            episode.close()
        super().close(raise_if_closed=raise_if_closed)

    def _chosen(
        self, tensordict: TensorDictBase | None, key: str
    ) -> list[tuple[int, TokenEpisode]]:
        mask = None if tensordict is None else tensordict.get(key, None)
        every = enumerate(self._episodes)
        return [item for item in every if mask is None or bool(mask[item[0]].any())]

    def _seen(self) -> TensorDictBase:
        return lazy_stack(
            [_row(item, group) for item, group in zip(self._episodes, self._groups, strict=True)]
        )


def _row(episode: TokenEpisode, group: int) -> TensorDict:
    """What is shown of an episode, its rewards and its end."""
    ids = torch.from_numpy(episode.ids.astype(np.int64))
    written = torch.from_numpy(episode.written)
    info, ended = episode.info, (episode.terminated, episode.truncated)
    masks = Masks(all_attention_mask=torch.ones_like(written), all_assistant_mask=written)
    columns: dict[str, Any] = {
        "group": torch.tensor([group]),
        "score": torch.tensor([info["score"]], dtype=torch.float32),
        "reward": torch.tensor([[episode.reward]], dtype=torch.float32),
    }
    flags = {"success": info["success"], "failed": episode.failed, "done": any(ended)}
    flags |= {"terminated": ended[0], "truncated": ended[1]}
    columns |= {name: torch.tensor([bool(value)]) for name, value in flags.items()}
    columns |= {"tokens": Tokens(prompt=ids), "masks": masks}
    reason = str(info["stop_reason"]) if any(ended) else ""
    return TensorDict({**columns, "stop_reason": NonTensorData(reason)})
