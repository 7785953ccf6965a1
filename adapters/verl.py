"""verl: an ``AgentLoopBase`` that plays an environment of the suite, token for token.

:func:`write_config` makes the file for ``actor_rollout_ref.rollout.agent.agent_loop_config_path``,
and :func:`verl_rows` the rows of a data set; the prompt of a row is replaced by the environment's.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adapters.sequences import episode_tokens
from adapters.single import Answer, EpisodePlayer
from adapters.task_rows import task_rows
from adapters.versions import require
from agentgym.files import write_atomically
from agentgym.info import ABORTED

require("verl", "0.9.1", "0.10", "verl")

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

__all__ = ["AgentGymLoop", "verl_rows", "write_config"]


class AgentGymLoop(AgentLoopBase):
    """One episode of an environment; verl makes one of these for each sample.

    An episode that the environment failed, or that came to a deadline, has a mask of zeros and no
    reward. ``score``, ``success``, ``truncated`` and ``failed`` are among verl's metrics, and
    ``stop_reason`` among the extra fields.

    Args:
        *args: What verl passes.
        env_id: Id of an environment of the suite.
        env_args: Its arguments.
        turn_tokens: Most tokens of one action; ``rollout.response_length`` bounds an episode.
        stop_token_ids: Tokens that end an answer; None for the tokenizer's own.
        settings: ``action_format`` and ``deadline`` (see :class:`~adapters.single.EpisodePlayer`).
        **kwargs: What verl passes.
    """

    def __init__(
        self,
        *args: Any,
        env_id: str,
        env_args: Mapping[str, Any] | None = None,
        turn_tokens: int | None = None,
        stop_token_ids: Sequence[int] | None = None,
        settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        eos = self.tokenizer.eos_token_id
        self._stops = frozenset([eos] if stop_token_ids is None else stop_token_ids)
        self._player = EpisodePlayer(
            env_id,
            self.tokenizer,
            turn_tokens=turn_tokens or self.rollout_config.response_length,
            max_tokens=1 << 30,
            max_response_tokens=self.rollout_config.response_length,
            **(settings or {}),
            **(env_args or {}),
        )

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Play the episode that ``extra_info`` of a row names; what verl calls.

        Raises:
            ValueError: If the environment's first prompt is longer than ``rollout.prompt_length``.
        """
        request, longest = uuid.uuid4().hex, self.rollout_config.prompt_length
        known, seconds, fields = bool(sampling_params.get("logprobs")), 0.0, dict[str, Any]()

        async def ask(prompt: list[int], most: int) -> Answer:
            nonlocal seconds
            if not seconds and len(prompt) > longest:
                raise ValueError(
                    f"the first prompt of {kwargs['extra_info']} has {len(prompt)} tokens, more "
                    f"than actor_rollout_ref.rollout.prompt_length={longest}"
                )
            began, limited = time.perf_counter(), {**sampling_params, "max_tokens": most}
            told = await self.server_manager.generate(
                request_id=request, prompt_ids=prompt, sampling_params=limited
            )
            seconds += time.perf_counter() - began
            # The first answer's fields, with the last weights that wrote in this episode.
            newest = told.extra_fields.get("max_global_steps")
            fields.update({"max_global_steps": newest} if fields else told.extra_fields)
            ids = list(told.token_ids)
            return Answer(
                ids,
                (told.log_probs or ()) if known else [0.0] * len(ids),
                stopped=bool(ids) and ids[-1] in self._stops,
                aborted=told.stop_reason in ("aborted", "abort"),
            )

        episode = await self._player.play(kwargs["extra_info"], ask)
        tokens = episode_tokens(episode, self.tokenizer.eos_token_id)
        failed, reason = episode.stop_reason in ABORTED, str(episode.stop_reason)
        told = {
            "score": float(episode.score),
            "success": float(episode.success),
            "truncated": float(episode.truncated),
            "failed": float(failed),
        }
        return AgentLoopOutput(
            prompt_ids=tokens.prompt_ids,
            response_ids=tokens.response_ids,
            response_mask=[0] * len(tokens.response_mask) if failed else tokens.response_mask,
            response_logprobs=tokens.logprobs if known else None,
            reward_score=0.0 if failed else float(episode.total_reward),
            num_turns=2 * len(episode.turns),
            metrics={"generate_sequences": seconds},
            extra_fields={**fields, "stop_reason": reason, "reward_extra_info": told},
        )


def write_config(path: str | Path, env_id: str, name: str = "agentgym", **settings: Any) -> None:
    """Write the file that tells verl of an environment, in YAML.

    Args:
        path: The file.
        env_id: Id of an environment of the suite.
        name: What rows call it in ``agent_name``.
        **settings: The other arguments of :class:`AgentGymLoop`.
    """
    loop = {"name": name, "_target_": f"{__name__}.AgentGymLoop", "_convert_": "all"}
    write_atomically(Path(path), json.dumps([{**loop, "env_id": env_id, **settings}], indent=1))


def verl_rows(env_id: str, number: int, name: str = "agentgym", **options: Any) -> list[Any]:
    """Rows of a data set for verl; see :func:`adapters.task_rows.task_rows` for the arguments."""
    rows = task_rows(env_id, number, **options)
    return [
        {
            "data_source": env_id, "agent_name": name,
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": place, "task_id": row["task_id"], "seed": row["seed"]},
        }
        for place, row in enumerate(rows)
    ]  # fmt: skip
