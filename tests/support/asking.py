"""Asking a server through the OpenAI policy."""

from __future__ import annotations

import asyncio
from typing import Any

from chat_server import ChatServer

from adapters.policies.chat_text import ChatText
from adapters.policies.openai_policy import EndpointConfig, OpenAIPolicy
from agentgym.policy import Request, Sampling


def prompt(*messages: tuple[str, str]) -> list[int]:
    chat = ChatText()
    listed = [{"role": role, "content": content} for role, content in messages]
    return chat.encode(chat.apply_chat_template(listed, add_generation_prompt=True))


ASKED = prompt(("system", "s"), ("user", "Where am I?"))


class Waits(list[float]):
    """Waits by noting them."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


def make(server: ChatServer, sleep: Any = asyncio.sleep, **settings: Any) -> OpenAIPolicy:
    return OpenAIPolicy(EndpointConfig(base_url=server.url, model="m", **settings), sleep)


def ask(policy: OpenAIPolicy, request: Request | None = None) -> Any:
    async def once() -> Any:
        try:
            return await policy.generate(request or Request(ASKED, Sampling(0.7, 9), (1, 2)))
        finally:
            await policy.aclose()

    return asyncio.run(once())
