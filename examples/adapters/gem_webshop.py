"""GEM plays WebShop at random. ``pip install 'agentgym-suite[gem]'``."""

import gem

from adapters.gem import register

env = gem.make(register("WebShop-v0", difficulty="small"), split="test")
observation, info = env.reset(seed=1)
terminated = truncated = False
while not (terminated or truncated):
    action = env.sample_random_action()  # a model's text stands here
    observation, reward, terminated, truncated, info = env.step(action)
print(info["stop_reason"], "score", info["score"])
