"""slime: a ``--custom-generate-function-path`` that plays an environment of the suite.

Written against slime 0.3.1 and tested with a stand-in for it: slime needs SGLang and Megatron, so
the library itself was not run here. In a module of your own::

    from adapters.slime import make_generate

    generate = make_generate("WebShop-v0", turn_tokens=64, max_tokens=4096)

``--custom-generate-function-path your_module.generate``. The metadata of a sample names ``task_id``
and ``seed``; the prompt is replaced by the environment's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from adapters.sequences import episode_tokens
from adapters.single import Answer, EpisodePlayer
from adapters.versions import require
from agentgym.info import ABORTED, StopReason

__all__ = ["make_generate"]

_CUT = {StopReason.MAX_TOKENS, StopReason.CONTEXT_OVERFLOW}


def make_generate(
    env_id: str, *, turn_tokens: int, max_tokens: int, **settings: Any
) -> Callable[[Any, Any, dict[str, Any]], Awaitable[Any]]:
    """The function that slime calls for each sample.

    The mask covers what the model wrote. An episode that the environment failed, or that came to
    a deadline, is ``ABORTED`` with a mask of zeros and no reward.

    Args:
        env_id: Id of the environment.
        turn_tokens: Most tokens of one action.
        max_tokens: Most tokens of an episode, prompt included.
        **settings: ``action_format``, ``deadline`` and the arguments of the environment.

    Raises:
        ImportError: If slime is missing, or of a version that this was not written for.
    """
    require("slime", "0.3", "0.4", None)
    players: list[EpisodePlayer] = []

    async def generate(args: Any, sample: Any, sampling_params: dict[str, Any]) -> Any:
        from slime.rollout.sglang_rollout import GenerateState
        from slime.utils.http_utils import post

        state = GenerateState(args)
        if not players:
            players.append(
                EpisodePlayer(
                    env_id,
                    state.tokenizer,
                    turn_tokens=turn_tokens,
                    max_tokens=max_tokens,
                    **settings,
                )
            )
        url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"

        async def ask(prompt: list[int], most: int) -> Answer:
            limited = {**sampling_params, "max_new_tokens": most}
            payload = {"input_ids": prompt, "sampling_params": limited, "return_logprob": True}
            told = (await post(url, payload))["meta_info"]
            pairs = told["output_token_logprobs"]
            reason = told["finish_reason"]["type"]
            return Answer(
                [int(pair[1]) for pair in pairs],
                [float(pair[0]) for pair in pairs],
                stopped=reason == "stop",
                aborted=reason == "abort",
            )

        episode = await players[0].play(sample.metadata, ask)
        tokens = episode_tokens(episode, state.tokenizer.eos_token_id)
        failed = episode.stop_reason in ABORTED
        sample.tokens = tokens.prompt_ids + tokens.response_ids
        sample.response_length = len(tokens.response_ids)
        sample.response = state.tokenizer.decode(tokens.response_ids)
        sample.loss_mask = [0] * len(tokens.response_mask) if failed else tokens.response_mask
        sample.rollout_log_probs = tokens.logprobs
        sample.reward = 0.0 if failed else episode.total_reward
        cut = sample.Status.TRUNCATED if episode.stop_reason in _CUT else sample.Status.COMPLETED
        sample.status = sample.Status.ABORTED if failed else cut
        sample.metadata = {
            **sample.metadata,
            "stop_reason": str(episode.stop_reason),
            "truncated": episode.truncated,
            "success": episode.success,
        }
        return sample

    return generate
