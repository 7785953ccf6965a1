"""The two files with which verl trains on WebShop. ``pip install 'agentgym-suite[verl]'``."""

from datasets import Dataset

from adapters.verl import verl_rows, write_config

shop = {"difficulty": "small"}
write_config("agentgym.yaml", "WebShop-v0", env_args=shop, turn_tokens=64)
Dataset.from_list(verl_rows("WebShop-v0", 2000, **shop)).to_parquet("train.parquet")
print("python -m verl.trainer.main_ppo data.train_files=train.parquet \\")
print("  actor_rollout_ref.rollout.agent.agent_loop_config_path=agentgym.yaml ...")
