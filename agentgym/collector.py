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
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from agentgym.info import Info, StopReason
from agentgym.policy import Completion, FinishReason, Policy, Request, Sampling
from agentgym.progress import ProgressAbstraction, ProgressWatch
from agentgym.prompts import ConversationRenderer, Dialogue, Rendered, WindowedRenderer
from agentgym.seats import (
    EnvironmentFault,
    EnvironmentHang,
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
            The first call also makes the environment. None runs environments inline:
            deterministic, without protection from a hang.
        episode_deadline: Seconds that an episode may take; None for no limit. An environment that
            runs inline can only be cut off between its calls.
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


class _TurnDeadlineError(Exception):
    """A generation took longer than a turn may."""


class Collector:
    """Plays episodes and returns them as trajectories.

    An environment that raises, hangs past the deadline or returns nonsense ends its own episode
    with ``INFRA_ERROR`` and is replaced; the others go on.

    ``counters`` tells what happened, and what was dropped:

    * ``started``, ``episodes`` (ended for a reason of their own), ``stop/<reason>``, ``dropped``
      (cut off because the stream was closed or the policy failed: ``started`` is ``episodes`` plus
      ``dropped`` plus those in flight), ``undelivered`` (episodes that ended but whose trajectory
      the reader of the stream did not wait for);
    * ``env_made``, ``env_lost`` (faulty or in an unknown state), ``env_hung`` (calls or closes
      that missed the deadline; each holds a thread until it returns, if ever);
    * ``format_errors``, ``invalid_actions`` (turns), ``action_tokens``, ``prompt_tokens``.

    Args:
        make_env: Makes one environment; called once a slot and after each loss.
        renderer: Turns observations into prompts.
        policy: Continues the prompts.
        config: Limits.
        make_progress: Makes the progress abstraction that annotates the turns; None for none.
    """

    def __init__(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        renderer: ConversationRenderer | WindowedRenderer,
        policy: Policy,
        config: CollectorConfig | None = None,
        make_progress: Callable[[], ProgressAbstraction] | None = None,
    ) -> None:
        self.make_env, self.renderer, self.policy = make_env, renderer, policy
        self.config = config or CollectorConfig()
        self.make_progress = make_progress
        self.counters: Counter[str] = Counter()
        self.env_seconds = 0.0
        self._idle: list[Seat] = []
        self._serial = 0  # apart from the counters, which readers may clear

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
        async with aclosing(self._stream(specs)) as results:
            async for _, trajectory in results:
                yield trajectory

    async def collect(
        self, specs: Iterable[EpisodeSpec], check: Callable[[], None] | None = None
    ) -> list[Trajectory]:
        """Play all of ``specs``; the result is in their order, whatever finished first.

        Args:
            specs: Episodes to play.
            check: Called after each episode; what it raises ends the collection.

        Raises:
            Exception: Whatever the policy, the source or ``check`` raises.
        """
        out: dict[int, Trajectory] = {}
        async with aclosing(self._stream(specs)) as results:
            async for place, trajectory in results:
                out[place] = trajectory
                if check is not None:
                    check()
        return [out[place] for place in sorted(out)]

    async def run_episode(self, spec: EpisodeSpec) -> Trajectory:
        """Play one episode. Only a fault of the policy raises."""
        trajectory = Trajectory(spec=spec)
        self.counters["started"] += 1
        self._serial += 1
        session = f"{spec.group_id}/{spec.member}#{self._serial}"
        seat: Seat | None = None
        sound = True
        clock = asyncio.timeout(self.config.episode_deadline)
        try:
            seat = self._take_seat()
            async with clock:
                await self._play(seat, trajectory, session)
        except EnvironmentFault as fault:
            sound = False
            self.counters["env_hung"] += isinstance(fault, EnvironmentHang)
            trajectory.stop_reason, trajectory.error = StopReason.INFRA_ERROR, str(fault)
        except _TurnDeadlineError:
            _cut_off(trajectory, f"a generation took over {self.config.turn_deadline:g} s")
        except TimeoutError:
            if not clock.expired():  # the policy's own
                self.counters["dropped"] += 1
                raise
            _cut_off(trajectory, f"the episode took over {self.config.episode_deadline:g} s")
        except BaseException:
            self.counters["dropped"] += 1
            raise
        finally:
            self.policy.release(session)
            if seat is not None and sound and not seat.busy:
                self._idle.append(seat)
            elif seat is not None:
                seat.close()
                self.counters["env_lost"] += 1
        self.counters["episodes"] += 1
        self.counters[f"stop/{trajectory.stop_reason}"] += 1
        return trajectory

    def close(self) -> None:
        """Close the environments that wait for an episode."""
        seats, self._idle = self._idle, []
        for seat in seats:
            seat.close()
        for seat in seats:
            self.counters["env_hung"] += not seat.join()

    # Many episodes ----------------------------------------------------------------------------

    async def _stream(
        self, specs: Iterable[EpisodeSpec] | AsyncIterable[EpisodeSpec]
    ) -> AsyncGenerator[tuple[int, Trajectory], None]:
        """Trajectories with their place among ``specs``, in order of completion."""
        feed = _Feed(specs)
        running: dict[asyncio.Task[Trajectory], int] = {}
        finished: list[tuple[int, asyncio.Task[Trajectory]]] = []
        serial = 0
        try:
            while True:
                while len(running) < self.config.slots and (spec := feed.take()) is not None:
                    running[asyncio.ensure_future(self.run_episode(spec))] = serial
                    serial += 1
                # Places are refilled before anything is handed over: the reader may take long.
                while finished:
                    place, task = finished.pop(0)
                    yield place, task.result()
                waits: set[asyncio.Future[Any]] = set(running)
                if feed.pending is not None and len(running) < self.config.slots:
                    waits.add(feed.pending)
                if not waits:
                    return
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task in done]:
                    finished.append((running.pop(task), task))
                if any(_failed(task) for _, task in finished):
                    feed.stop()
                    # What was played well is handed over before the policy's error is.
                    finished.sort(key=lambda entry: _failed(entry[1]))
        finally:
            await feed.close()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            left = [*running, *(task for _, task in finished)]
            self.counters["undelivered"] += sum(not _failed(task) for task in left)

    # One episode ------------------------------------------------------------------------------

    async def _play(self, seat: Seat, trajectory: Trajectory, session: str) -> None:
        spec = trajectory.spec
        observation, info = check_reset(
            await self._call(seat, "reset", seed=spec.seed, options=_reset_options(spec))
        )
        trajectory.task_id = info.get("task_id", spec.task_id or "")
        trajectory.task_type = info.get("task_type", "default")
        trajectory.split = info.get("split", spec.split or "")
        trajectory.goal = info.get("goal", "")
        key = (self.config.run_seed, spec.seed, _stable_hash(trajectory.task_id), spec.member)
        dialogue: Dialogue = self.renderer.dialogue()
        watch = ProgressWatch(self.make_progress, observation, info)
        prompt = _render(dialogue.open, observation, info)
        used = 0
        while True:
            room = self._room(prompt, used)
            if room <= 0:
                trajectory.truncated = True
                trajectory.stop_reason = self._full_reason(prompt)
                self._keep_tail(trajectory, prompt)
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
            observation, turn.reward, terminated, truncated, info = check_step(
                await self._call(seat, "step", turn.action)
            )
            turn.action_valid = bool(info.get("action_valid", True))
            turn.score = trajectory.score = float(info.get("score", trajectory.score))
            trajectory.success = bool(info.get("success", False))
            watch.took(turn, observation, info)
            trajectory.details = info.get("details", {})
            self.counters["format_errors"] += not turn.format_ok
            self.counters["invalid_actions"] += not turn.action_valid
            if terminated or truncated:
                trajectory.terminated, trajectory.truncated = terminated, truncated
                trajectory.stop_reason = _stop_reason(info, terminated, trajectory.success)
                if terminated:
                    return
            prompt = _render(
                dialogue.reply, turn.action_ids, turn.text, turn.action, observation, info
            )
            if truncated:
                self._keep_tail(trajectory, prompt)
                return

    def _keep_tail(self, trajectory: Trajectory, prompt: Rendered) -> None:
        """Keep what the agent would have read next, for the value of a truncated episode."""
        if trajectory.turns and len(prompt.ids) <= self.policy.max_context:
            trajectory.tail_ids = prompt.context_ids
            trajectory.tail_extends = prompt.extends

    def _turn(self, prompt: Rendered, completion: Completion, observation: str) -> Turn:
        ids = np.asarray(completion.token_ids, np.int32)
        stopped = completion.finish_reason is FinishReason.STOP
        text = str(self.renderer.tokenizer.decode((ids[:-1] if stopped else ids).tolist()))
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
            trainable=np.ones(len(ids), bool) if trainable is None else np.asarray(trainable, bool),
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
        clock = asyncio.timeout(self.config.turn_deadline)
        try:
            async with clock:
                completion = await self.policy.generate(request)
        except TimeoutError:
            if clock.expired():
                raise _TurnDeadlineError from None
            raise
        _check_completion(completion)
        return completion

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

    def stop(self) -> None:
        """Take nothing more."""
        self._sync = iter(())
        if self.pending is not None:
            self.pending.cancel()

    async def close(self) -> None:
        """Stop waiting for the source."""
        if self.pending is not None:
            self.pending.cancel()
            await asyncio.gather(self.pending, return_exceptions=True)


def _cut_off(trajectory: Trajectory, why: str) -> None:
    trajectory.stop_reason, trajectory.truncated = StopReason.DEADLINE, True
    trajectory.error = why


def _failed(task: asyncio.Task[Trajectory]) -> bool:
    return task.cancelled() or task.exception() is not None


def _check_completion(completion: Completion) -> None:
    """Verify that a policy kept its contract; a breach is an error of the run."""
    n = len(completion.token_ids)
    for name in ("logprobs", "versions", "trainable"):
        array = getattr(completion, name)
        if array is not None and len(array) != n:
            raise ValueError(f"the policy returned {len(array)} {name} for {n} tokens")
    if not np.isfinite(np.asarray(completion.logprobs, np.float64)).all():
        raise ValueError(f"the policy returned non-finite log-probs: {completion.logprobs!r}")
    if not isinstance(completion.finish_reason, FinishReason):
        raise TypeError(
            f"the policy returned finish_reason {completion.finish_reason!r}, not a FinishReason"
        )


def _render(function: Callable[..., Rendered], *args: Any) -> Rendered:
    """Render a prompt; a prompt that chokes on an environment's info is that episode's fault."""
    try:
        return function(*args)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise EnvironmentFault(f"the prompt could not be rendered: {error!r}") from error


def _reset_options(spec: EpisodeSpec) -> dict[str, Any]:
    options = {"task_id": spec.task_id, "split": spec.split}
    return {name: value for name, value in options.items() if value is not None}


def _stop_reason(info: Info, terminated: bool, success: bool) -> StopReason:
    given = info.get("stop_reason")
    if given is not None:
        return StopReason(given)
    if terminated:
        return StopReason.SOLVED if success else StopReason.FAILED
    return StopReason.MAX_TURNS


def _stable_hash(text: str) -> int:
    """A hash that is the same in every process, unlike Python's own."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")
