"""Verifiers: a taskset, the environment that plays its tasks, and a harness without a program.

Verifiers finds plug-ins by the name of a module: one of your own, say ``shop.py``, that imports the
three and names them in ``__all__``. ``vf-eval shop --env.taskset.env-id WebShop-v0`` plays it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from adapters.chat import ChatEpisode, Reply
from adapters.task_rows import task_rows
from adapters.versions import require
from agentgym.parsing import ActionFormat
from agentgym.seats import EnvironmentFault, ThreadSeat

require("verifiers", "0.4", "0.5", "verifiers")

import openai
import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.dialects.chat import message_to_wire

__all__ = ["AgentGymEnv", "AgentGymTaskset", "ChatHarness"]


class AgentGymData(vf.TaskData):
    """A task of an environment, and the seed of its episode."""

    task_id: str
    seed: int


class AgentGymTask(vf.Task[AgentGymData]):
    """See :class:`AgentGymData`; all rollouts of a task play the same episode."""

    @property
    def key(self) -> str:
        """What the rollouts of a group share."""
        return f"{self.data.task_id}#{self.data.seed}"


class AgentGymConfig(vf.TasksetConfig):
    """Which environment, and which of its tasks."""

    env_id: str = ""
    """Id of an environment of the suite."""
    env_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the environment."""
    split: str | None = None
    """Split to draw tasks from; None for the training split."""
    num_tasks: int = Field(1000, ge=1)
    """How many tasks to draw."""
    seed: int = 0
    """Seed of the draws."""


class AgentGymTaskset(vf.Taskset[AgentGymTask, AgentGymConfig]):
    """Tasks drawn from a split."""

    def load(self) -> Iterator[AgentGymTask]:
        """Draw the tasks."""
        config = self.config
        drawn = {"split": config.split, "seed": config.seed, **config.env_args}
        for row in task_rows(config.env_id, config.num_tasks, **drawn):
            task_id, seed = row["task_id"], row["seed"]
            data = AgentGymData(name=f"{task_id}#{seed}", task_id=task_id, seed=seed)
            yield AgentGymTask(data, config.task)


class AgentGymEnvConfig(vf.EnvConfig):
    """How episodes are played."""

    player: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    action_format: ActionFormat = "tags"
    """``tags`` or ``bare``."""
    call_s: float = Field(60.0, gt=0)
    """Seconds that one call into the environment may take."""


class AgentGymEnv(vf.Env[AgentGymEnvConfig]):
    """One episode: the environment, on a thread of its own, is the user of the conversation.

    The trace stops with the environment's ``stop_reason``, has the return as its reward, ``score``,
    ``success`` and ``truncated`` as metrics, and the rest in ``info["agentgym"]``. Where the
    environment fails, the episode has an error and is not ok.
    """

    async def run(self, task: AgentGymTask, agents: vf.Agents) -> None:
        """Play the episode of a task."""
        config, made = self.taskset.config, []

        def make() -> ChatEpisode:
            given = {**config.env_args, "deadline": None}  # the seat has one
            made.append(ChatEpisode(config.env_id, self.config.action_format, **given))
            return made[0]

        seat = ThreadSeat(make, self.config.call_s)  # type: ignore[arg-type]
        try:
            data = task.data
            *system, first = await seat.call("start", task_id=data.task_id, seed=data.seed)
            if made[0].guarded.error is not None:
                raise EnvironmentFault(made[0].guarded.error)
            if system:
                task = task.with_system_prompt(system[0]["content"])
            await self._exchange(task, agents, seat, first["content"])
        finally:
            seat.close()
            if not seat.busy:
                await asyncio.to_thread(seat.join)

    async def _exchange(self, task: Any, agents: vf.Agents, seat: ThreadSeat, text: str) -> None:
        total, reply = 0.0, None
        async with agents.player.interaction(task) as interaction:
            while not (segment := await interaction.turn(text)).terminated:
                reply = await seat.call("say", segment.last_reply)
                text, total = reply.text, total + reply.reward
                if reply.done:
                    interaction.trace.stop(str(reply.info["stop_reason"]))
                    break
        _record(interaction.trace, total, reply)


def _record(trace: Any, total: float, reply: Reply | None) -> None:
    if reply is None:  # the model never answered; the trace says why
        return
    facts = trace.info["agentgym"] = reply.facts()
    if facts["stop_reason"] == "infra_error":
        raise EnvironmentFault(reply.info["details"]["error"])
    trace.record_reward("episode_return", total)
    trace.record_metrics({name: facts[name] for name in ("score", "success", "truncated")})


class ChatHarness(vf.Harness[vf.HarnessConfig]):
    """One request a turn, sent from this process: the agent needs no tools and so no program."""

    APPENDS_SYSTEM_PROMPT, SUPPORTS_RESUME = True, True
    EXECUTES_CODE, NEEDS_CONTAINER = False, False

    async def launch(self, ctx: Any, *wired: Any) -> vf.ProgramResult:
        """Send the conversation and read one answer, as the library asks for it."""
        _trace, _runtime, endpoint, secret, _tools, data = wired
        system, prompt = self.resolve_prompt(data)
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages += [message_to_wire(message) for message in prompt]
        async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            await client.chat.completions.create(model=ctx.model, messages=messages)
        return vf.ProgramResult(0, "", "")
