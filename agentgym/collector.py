"""The rollout collector: many episodes over one policy, without a barrier between them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
)
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np

from agentgym.info import Info, StopReason
from agentgym.policy import Completion, FinishReason, Policy, Request, Sampling
from agentgym.prompts import ConversationRenderer, Dialogue, Rendered, WindowedRenderer
from agentgym.seats import (
    EnvironmentFault,
    InlineSeat,
    Seat,
    ThreadSeat,
    check_reset,
    check_step,
)
from agentgym.trajectory import EpisodeSpec, Trajectory, Turn

__all__ = ["Collector", "CollectorConfig"]


@dataclass(frozen=True, slots=True)
class CollectorConfig:
    """Limits of a collector.

    Attributes:
        slots: Episodes in flight; a finished one's place is refilled at once.
        sampling: How actions are drawn. ``max_tokens`` bounds one action.
        max_episode_tokens: Most tokens (prompt and actions) of an episode; None for no limit but
            the policy's context.
        turn_deadline: Seconds that one call into the environment, or one generation, may take.
            None runs environments inline: deterministic, without protection from a hang.
        episode_deadline: Seconds that an episode may take; None for no limit.
        run_seed: Enters the key of every random draw.
    """

    slots: int = 64
    sampling: Sampling = field(default_factory=Sampling)
    max_episode_tokens: int | None = None
    turn_deadline: float | None = None
    episode_deadline: float | None = None
    run_seed: int = 0

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"slots must be >= 1, got {self.slots!r}")
        for name in ("turn_deadline", "episode_deadline", "max_episode_tokens"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive or None, got {value!r}")


class Collector:
    """Plays episodes and returns them as trajectories.

    An environment that raises, hangs past the deadline or returns nonsense ends its own episode
    with ``INFRA_ERROR`` and is replaced; the others go on. ``counters`` tells how many episodes
    ended for which reason, and what was dropped: ``episodes``, ``stop/<reason>``, ``env_made``,
    ``env_lost``, ``format_errors``, ``invalid_actions``, ``action_tokens``, ``prompt_tokens``.

    Args:
        make_env: Makes one environment; called once a slot and after each loss.
        renderer: Turns observations into prompts.
        policy: Continues the prompts.
        config: Limits.
    """

    def __init__(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        renderer: ConversationRenderer | WindowedRenderer,
        policy: Policy,
        config: CollectorConfig | None = None,
    ) -> None:
        self.make_env, self.renderer, self.policy = make_env, renderer, policy
        self.config = config or CollectorConfig()
        self.counters: Counter[str] = Counter()
        self.env_seconds = 0.0
        self._idle: list[Seat] = []
        self._serial = 0

    # Public -----------------------------------------------------------------------------------

    async def stream(
        self, specs: Iterable[EpisodeSpec] | AsyncIterable[EpisodeSpec]
    ) -> AsyncGenerator[Trajectory, None]:
        """Play ``specs`` and yield each trajectory as it ends.

        The source is read lazily: the next episode is taken when a slot is free, so it may be
        endless. An asynchronous source may also make the collector wait, while the episodes in
        flight go on. Closing the generator cancels what is in flight.

        Args:
            specs: Episodes to play.

        Yields:
            Finished trajectories, in order of completion.

        Raises:
            Exception: Whatever the policy or the source raises. A broken engine is not one
                episode's outcome.
        """
        feed = _Feed(specs)
        running: dict[asyncio.Task[Trajectory], int] = {}
        try:
            while True:
                while len(running) < self.config.slots and (spec := feed.take()) is not None:
                    running[asyncio.ensure_future(self.run_episode(spec))] = self.counters[
                        "started"
                    ]
                    self.counters["started"] += 1
                waits: set[asyncio.Future[Any]] = set(running)
                if feed.pending is not None and len(running) < self.config.slots:
                    waits.add(feed.pending)
                if not waits:
                    return
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finished = [task for task in running if task in done]
                results = [task.result() for task in finished]
                for task in finished:
                    del running[task]
                for trajectory in results:
                    yield trajectory
        finally:
            await feed.close()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def collect(
        self, specs: Iterable[EpisodeSpec], check: Callable[[], None] | None = None
    ) -> list[Trajectory]:
        """Play all of ``specs``; the result is in their order, whatever finished first.

        Args:
            specs: Episodes to play.
            check: Called after each episode; what it raises ends the collection.
        """
        listed = [replace(spec) for spec in specs]  # copies: one object may be listed twice
        place = {id(spec): index for index, spec in enumerate(listed)}
        out: list[Trajectory | None] = [None] * len(listed)
        stream = self.stream(listed)
        try:
            async for trajectory in stream:
                out[place[id(trajectory.spec)]] = trajectory
                if check is not None:
                    check()
        finally:
            await stream.aclose()
        return [trajectory for trajectory in out if trajectory is not None]

    async def run_episode(self, spec: EpisodeSpec) -> Trajectory:
        """Play one episode. Only a fault of the policy raises."""
        trajectory = Trajectory(spec=spec)
        self._serial += 1
        session = f"{spec.group_id}/{spec.member}#{self._serial}"
        seat: Seat | None = None
        try:
            seat = self._take_seat()
            limit = self.config.episode_deadline
            async with asyncio.timeout(limit):
                await self._play(seat, trajectory, session)
            self._idle.append(seat)
            seat = None
        except EnvironmentFault as fault:
            trajectory.stop_reason, trajectory.error = StopReason.INFRA_ERROR, str(fault)
        except TimeoutError:
            trajectory.stop_reason, trajectory.truncated = StopReason.DEADLINE, True
        finally:
            self.policy.release(session)
            if seat is not None:  # its environment is in an unknown state
                seat.close()
                self.counters["env_lost"] += 1
        self.counters["episodes"] += 1
        self.counters[f"stop/{trajectory.stop_reason}"] += 1
        return trajectory

    def close(self) -> None:
        """Close the environments."""
        while self._idle:
            self._idle.pop().close()

    # One episode ------------------------------------------------------------------------------

    async def _play(self, seat: Seat, trajectory: Trajectory, session: str) -> None:
        spec = trajectory.spec
        observation, raw_info = check_reset(
            await self._call(seat, "reset", seed=spec.seed, options=_reset_options(spec))
        )
        info = _as_info(raw_info)
        trajectory.task_id = str(info.get("task_id", spec.task_id or ""))
        trajectory.task_type = str(info.get("task_type", "default"))
        trajectory.split = str(info.get("split", spec.split or ""))
        trajectory.goal = str(info.get("goal", ""))
        key = (self.config.run_seed, spec.seed, _stable_hash(trajectory.task_id), spec.member)
        dialogue: Dialogue = self.renderer.dialogue()
        prompt = _render(dialogue.open, observation, info)
        used = 0
        while True:
            room = self._room(prompt, used)
            if room <= 0:
                trajectory.truncated = True
                trajectory.stop_reason = self._full_reason(prompt)
                return
            completion = await self._generate(prompt, room, (*key, len(trajectory.turns)), session)
            used += len(prompt.context_ids) + len(completion.token_ids)
            if completion.finish_reason in (FinishReason.CONTEXT_OVERFLOW, FinishReason.ABORT):
                overflow = completion.finish_reason is FinishReason.CONTEXT_OVERFLOW
                if completion.token_ids:
                    trajectory.turns.append(self._turn(prompt, completion, observation))
                trajectory.truncated = True
                trajectory.stop_reason = (
                    StopReason.CONTEXT_OVERFLOW if overflow else StopReason.CANCELLED
                )
                return
            turn = self._turn(prompt, completion, observation)
            trajectory.turns.append(turn)
            observation, turn.reward, terminated, truncated, raw_info = check_step(
                await self._call(seat, "step", turn.action)
            )
            info = _as_info(raw_info)
            turn.action_valid = bool(info.get("action_valid", True))
            turn.score = trajectory.score = float(info.get("score", trajectory.score))
            trajectory.success = bool(info.get("success", False))
            self.counters["format_errors"] += not turn.format_ok
            self.counters["invalid_actions"] += not turn.action_valid
            if terminated or truncated:
                trajectory.terminated, trajectory.truncated = terminated, truncated
                trajectory.stop_reason = _stop_reason(info, terminated, trajectory.success)
                trajectory.details = dict(info.get("details", {}))
                if truncated and not terminated:
                    after = _render(
                        dialogue.reply, turn.action_ids, turn.text, turn.action, observation, info
                    )
                    trajectory.tail_ids = after.context_ids
                return
            prompt = _render(
                dialogue.reply, turn.action_ids, turn.text, turn.action, observation, info
            )

    def _turn(self, prompt: Rendered, completion: Completion, observation: str) -> Turn:
        ids = np.asarray(completion.token_ids, np.int32)
        stopped = completion.finish_reason is FinishReason.STOP
        text = str(self.renderer.tokenizer.decode(list(ids[:-1] if stopped else ids)))
        parsed = self.renderer.prompt.parse(text)
        self.counters["action_tokens"] += len(ids)
        self.counters["prompt_tokens"] += len(prompt.context_ids)
        trainable = completion.trainable
        return Turn(
            context_ids=prompt.context_ids,
            extends=prompt.extends,
            action_ids=ids,
            logprobs=np.asarray(completion.logprobs, np.float32),
            versions=np.asarray(completion.versions, np.int32),
            trainable=np.ones(len(ids), bool) if trainable is None else trainable,
            finish_reason=completion.finish_reason,
            text=text,
            action=parsed.action,
            # An answer cut off by the token limit has no form to speak of.
            format_ok=parsed.format_ok and stopped,
            observation=observation,
        )

    async def _generate(
        self, prompt: Rendered, room: int, key: tuple[int, ...], session: str
    ) -> Completion:
        sampling = self.config.sampling
        if room < sampling.max_tokens:
            sampling = Sampling(sampling.temperature, room, sampling.stop_token_ids)
        request = Request(prompt.ids, sampling, key, session)
        async with asyncio.timeout(self.config.turn_deadline):
            return await self.policy.generate(request)

    def _room(self, prompt: Rendered, used: int) -> int:
        room = self.policy.max_context - len(prompt.ids)
        if self.config.max_episode_tokens is not None:
            left = self.config.max_episode_tokens - used - len(prompt.context_ids)
            room = min(room, left)
        return room

    def _full_reason(self, prompt: Rendered) -> StopReason:
        full = len(prompt.ids) >= self.policy.max_context
        return StopReason.CONTEXT_OVERFLOW if full else StopReason.MAX_TOKENS

    # Environments -----------------------------------------------------------------------------

    async def _call(self, seat: Seat, method: str, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return await seat.call(method, *args, **kwargs)
        finally:
            self.env_seconds += time.perf_counter() - began

    def _take_seat(self) -> Seat:
        if self._idle:
            return self._idle.pop()
        self.counters["env_made"] += 1
        if self.config.turn_deadline is None:
            return InlineSeat(self.make_env)
        return ThreadSeat(self.make_env, self.config.turn_deadline)


class _Feed:
    """Takes episodes one by one from a source of either kind, without waiting."""

    def __init__(self, specs: Iterable[EpisodeSpec] | AsyncIterable[EpisodeSpec]) -> None:
        self._sync: Iterator[EpisodeSpec] | None = None
        self._async: AsyncIterator[EpisodeSpec] | None = None
        self.pending: asyncio.Future[EpisodeSpec] | None = None
        if isinstance(specs, AsyncIterable):
            self._async = aiter(specs)
            self._ask()
        else:
            self._sync = iter(specs)

    def take(self) -> EpisodeSpec | None:
        """The next episode if there is one now."""
        if self._sync is not None:
            return next(self._sync, None)
        if self.pending is None or not self.pending.done():
            return None
        try:
            spec = self.pending.result()
        except StopAsyncIteration:
            self.pending = None
            return None
        self._ask()
        return spec

    def _ask(self) -> None:
        async def ask(source: AsyncIterator[EpisodeSpec]) -> EpisodeSpec:
            return await anext(source)

        assert self._async is not None
        self.pending = asyncio.ensure_future(ask(self._async))

    async def close(self) -> None:
        """Stop waiting for the source."""
        if self.pending is not None:
            self.pending.cancel()
            await asyncio.gather(self.pending, return_exceptions=True)


def _render(function: Callable[..., Rendered], *args: Any) -> Rendered:
    """Render a prompt; a prompt that chokes on an environment's info is that episode's fault."""
    try:
        return function(*args)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EnvironmentFault(f"the prompt could not be rendered: {error!r}") from error


def _reset_options(spec: EpisodeSpec) -> dict[str, Any]:
    options = {"task_id": spec.task_id, "split": spec.split}
    return {name: value for name, value in options.items() if value is not None}


def _as_info(raw: dict[str, Any]) -> Info:
    return raw  # type: ignore[return-value]


def _stop_reason(info: Info, terminated: bool, success: bool) -> StopReason:
    given = info.get("stop_reason")
    if given is not None:
        try:
            return StopReason(given)
        except ValueError:
            raise EnvironmentFault(f"info['stop_reason'] is {given!r}, no known reason") from None
    if terminated:
        return StopReason.SOLVED if success else StopReason.FAILED
    return StopReason.MAX_TURNS


def _stable_hash(text: str) -> int:
    """A hash that is the same in every process, unlike Python's own."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")
