"""TorchRL collects a tiny policy's episodes on WebShop. ``pip install 'agentgym-suite[torchrl]'``.

The first run makes the tiny policy by behaviour cloning, which takes about a minute.
"""

from torchrl.collectors.llm import LLMCollector
from torchrl.modules.llm import TransformersWrapper

from adapters.policies.models import resolve_model
from adapters.task_rows import task_rows
from adapters.torchrl import TokenEnv

SHOP = {"difficulty": "small"}
lm = resolve_model("tiny", "WebShop-v0", SHOP)
rows = task_rows("WebShop-v0", 100, **SHOP)
env = TokenEnv(
    "WebShop-v0", lm.tokenizer, rows, num_envs=8, group_size=4, action_format="bare", **SHOP
)
sampling = {"max_new_tokens": 24, "do_sample": True}
policy = TransformersWrapper(
    lm.model, tokenizer=lm.tokenizer, input_mode="tokens", generate_kwargs=sampling
)
collector = LLMCollector(
    env, policy=policy, dialog_turns_per_batch=64, total_dialog_turns=64,
    yield_completed_trajectories=True,
)  # fmt: skip
for turns in collector:  # ready for MCAdvantage(4, "group", trajectory_return="sum") and GRPOLoss
    print(len(turns), "turns, mean reward", float(turns["next", "reward"].mean()))
env.close()
