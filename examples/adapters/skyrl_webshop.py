"""An episode as SkyRL's generator plays it. ``pip install 'agentgym-suite[skyrl]'``."""

import skyrl_gym

from adapters.skyrl_gym import register
from adapters.task_rows import task_rows

name = register("WebShop-v0", difficulty="small")
row = task_rows("WebShop-v0", 1, difficulty="small")[0] | {"env_class": name}
env = skyrl_gym.make(row["env_class"], env_config={}, extras=row)
messages, _ = env.init(row["prompt"])
done = False
while not done:
    out = env.step("<action>search[red shirt]</action>")  # a model's answer to the messages
    done = out["done"]
print(out["metadata"]["stop_reason"], env.get_metrics()["score"], "score")
