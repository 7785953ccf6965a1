"""A group of episodes as Tinker's training loop plays it. ``pip install 'agentgym-suite[tinker]'``.

A completer that always writes the same stands for the model. For training, the builder is the
``dataset_builder`` of ``tinker_cookbook.rl.train.Config``, and ``model_name`` that of the model.
"""

import asyncio

from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.tokenizer_utils import register_tokenizer

from adapters.policies.tokenization import build_tokenizer
from adapters.tinker import AgentGymDatasetBuilder

tokenizer = build_tokenizer(["search", "red shirt"])
register_tokenizer("local", lambda: tokenizer)


class Searches(TokenCompleter):
    """Searches, always."""

    async def __call__(self, model_input, stop, *, max_tokens=None):  # noqa: D102
        tokens = tokenizer.encode("search[red shirt]", add_special_tokens=False) + stop[:1]
        return TokensWithLogprobs(tokens, [0.0] * len(tokens))


builder = AgentGymDatasetBuilder(
    env_id="WebShop-v0", model_name="local", batch_size=1, group_size=4, rows=1,
    env_args={"difficulty": "small"}, settings={"action_format": "bare"},
)  # fmt: skip
dataset, _ = asyncio.run(builder())
group = asyncio.run(do_group_rollout(dataset.get_batch(0)[0], Searches()))
print(group.trajectories_G[0].stop_reason, group.get_total_rewards())
