"""TRL's GRPOTrainer trains the tiny policy on WebShop. ``pip install 'agentgym-suite[trl]'``.

    python examples/adapters/trl_webshop.py [STEPS]

The first run makes the tiny policy by behaviour cloning, which takes about a minute.
"""

import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from adapters.policies.models import resolve_model
from adapters.task_rows import task_rows
from adapters.trl import Rollouts, episode_reward
from agentgym.registry import spec

SHOP = spec("WebShop-v0").tiny
lm = resolve_model("tiny", "WebShop-v0", SHOP)
trainer = GRPOTrainer(
    model=lm.model, processing_class=lm.tokenizer, reward_funcs=episode_reward,
    rollout_func=Rollouts("WebShop-v0", turn_tokens=24, action_format="bare", **SHOP),
    train_dataset=Dataset.from_list(task_rows("WebShop-v0", 2000, **SHOP)),
    args=GRPOConfig(
        output_dir="runs/trl", max_steps=int(sys.argv[1]) if len(sys.argv) > 1 else 20,
        per_device_train_batch_size=64, num_generations=8, max_completion_length=1024,
        learning_rate=5e-4, adam_beta2=0.99, use_cpu=True, bf16=False,
        gradient_checkpointing=False, logging_steps=1, save_strategy="no", report_to=[],
    ),
)  # fmt: skip
trainer.train()
