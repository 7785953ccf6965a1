"""OpenEnv's client on a server of the suite. ``pip install 'agentgym-suite[openenv,serve]'``.

``python -m agentgym serve --env WebShop-v0`` would be the server in a process of its own.
"""

from adapters.openenv import TextClient
from agentgym.guarded import env_maker
from agentgym.serve.background import served

shop = env_maker("WebShop-v0", difficulty="small")
with served(shop) as server, TextClient(base_url=server.url).sync() as env:
    result = env.reset(seed=1, split="test")
    while not result.done:
        result = env.step("search[red shirt]")
    print(result.metadata["info"]["stop_reason"], "score", result.metadata["info"]["score"])
