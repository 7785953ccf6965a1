"""Verifiers plays WebShop with any model behind an OpenAI endpoint, named in OPENAI_BASE_URL.

``pip install 'agentgym-suite[verifiers]'``. This file is a plug-in, too, where Python finds it::

    export PYTHONPATH=examples/adapters
    vf-eval verifiers_webshop --env.taskset.env-id WebShop-v0 -m MODEL --client.base-url URL
"""

import asyncio
import os

import verifiers.v1 as vf

from adapters.verifiers import AgentGymEnv, AgentGymTaskset, ChatHarness

__all__ = ["AgentGymEnv", "AgentGymTaskset", "ChatHarness"]


async def main() -> None:
    env = vf.load_environment(vf.resolve_env_config({"taskset": {
        "id": "verifiers_webshop", "env_id": "WebShop-v0", "split": "test",
        "env_args": {"difficulty": "small"},
    }}))  # fmt: skip
    client = vf.EvalClientConfig(base_url=os.environ["OPENAI_BASE_URL"])
    async with env.serving():
        for task in env.taskset.take(2):
            episode = await env.run_episode(task, vf.ModelContext("default", client))
            print(episode.traces[0].stop_condition, episode.traces[0].metrics)


if __name__ == "__main__":
    asyncio.run(main())
