"""The rollout collector: many episodes over one policy, without a barrier between them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Iterable,
)
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np

from agentgym.feed import Feed
from agentgym.guidance import Guidance, given_tokens, given_turns
from agentgym.info import Info, StopReason, stop_reason
from agentgym.policy import Completion, FinishReason, Policy, Request, Sampling
from agentgym.progress import ProgressAbstraction, ProgressWatch
from agentgym.prompts import ConversationRenderer, Dialogue, Rendered, WindowedRenderer
from agentgym.seats import (
    EnvironmentFault,
    EnvironmentHang,
    InlineSeat,
    Seat,
    ThreadSeat,
    check_reference,
    check_reset,
    check_step,
)
from agentgym.trajectory import EpisodeSpec, Trajectory, Turn

__all__ = ["Collector", "CollectorConfig"]

T = TypeVar("T")


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
        make_expert_env: Makes one that tells its reference (``expert=True``), for episodes with
            guidance; None refuses these.
        make_progress: Makes the progress abstraction that annotates the turns; None for none.
    """

    def __init__(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        renderer: ConversationRenderer | WindowedRenderer,
        policy: Policy,
        config: CollectorConfig | None = None,
        make_expert_env: Callable[[], gym.Env[Any, Any]] | None = None,
        make_progress: Callable[[], ProgressAbstraction] | None = None,
    ) -> None:
        self.make_env, self.renderer, self.policy = make_env, renderer, policy
        self.config = config or CollectorConfig()
        self.make_progress = make_progress
        self.counters: Counter[str] = Counter()
        self.env_seconds = 0.0
        self.make_expert_env = make_expert_env
        self._idle: dict[bool, list[Seat]] = {False: [], True: []}  # without and with an expert
        self._closing: list[Seat] = []
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
        guided = spec.guidance is not None
        sound = True
        clock = asyncio.timeout(self.config.episode_deadline)
        try:
            seat = self._take_seat(guided)
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
                self._idle[guided].append(seat)
            elif seat is not None:
                hangs = seat.busy
                seat.close()
                self._closing = [other for other in self._closing if not other.closed]
                if not hangs:
                    self._closing.append(seat)
                self.counters["env_lost"] += 1
        self.counters["episodes"] += 1
        self.counters[f"stop/{trajectory.stop_reason}"] += 1
        return trajectory

    def close(self) -> None:
        """Close the environments that wait for an episode.

        It returns when these and the faulty ones are closed, or late. One whose call hangs is
        closed when the call returns, if it ever does.
        """
        seats = [seat for idle in self._idle.values() for seat in idle]
        for idle in self._idle.values():
            idle.clear()
        for seat in seats:
            seat.close()
        seats += self._closing
        self._closing = []
        for seat in seats:
            self.counters["env_hung"] += not seat.join()

    # Many episodes ----------------------------------------------------------------------------

    async def _stream(
        self, specs: Iterable[EpisodeSpec] | AsyncIterable[EpisodeSpec]
    ) -> AsyncGenerator[tuple[int, Trajectory], None]:
        """Trajectories with their place among ``specs``, in order of completion."""
        feed = Feed(specs)
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
        lead, replayed = self._given(spec.guidance, prompt, info)
        while True:
            room = self._room(prompt, used)
            if room <= 0:
                trajectory.truncated = True
                trajectory.stop_reason = self._full_reason(prompt)
                self._keep_tail(trajectory, prompt)
                return
            number = len(trajectory.turns)
            if number < replayed and len(reference := check_reference(info)) > 1:
                turn = self._replayed(prompt, observation, reference[0])
            else:
                asked = prompt.begun(lead) if len(lead) else prompt
                most = min(room, self.config.sampling.max_tokens) - len(lead)
                completion = await self._generate(asked, most, (*key, number), session)
                given, lead = len(lead), lead[:0]
                if completion.finish_reason in (FinishReason.CONTEXT_OVERFLOW, FinishReason.ABORT):
                    overflow = completion.finish_reason is FinishReason.CONTEXT_OVERFLOW
                    if completion.token_ids:
                        turn = self._turn(asked, completion, observation, given)
                        trajectory.turns.append(turn)
                    trajectory.truncated = True
                    trajectory.stop_reason = (
                        StopReason.CONTEXT_OVERFLOW if overflow else StopReason.CANCELLED
                    )
                    return
                turn = self._turn(asked, completion, observation, given)
            used += len(turn.context_ids) + turn.n_actions
            trajectory.turns.append(turn)
            observation, turn.reward, terminated, truncated, info = check_step(
                await self._call(seat, "step", turn.action)
            )
            turn.action_valid = bool(info.get("action_valid", True))
            if turn.replayed and not turn.action_valid:
                raise EnvironmentFault(f"the oracle's action was refused: {turn.action!r:.200}")
            turn.score = trajectory.score = float(info.get("score", trajectory.score))
            trajectory.success = bool(info.get("success", False))
            watch.took(turn, observation, info)
            trajectory.details = info.get("details", {})
            self.counters["format_errors"] += not turn.format_ok
            self.counters["invalid_actions"] += not turn.action_valid
            if terminated or truncated:
                trajectory.terminated, trajectory.truncated = terminated, truncated
                trajectory.stop_reason = stop_reason(info, terminated)
                if terminated:
                    return
            prompt = _render(
                dialogue.reply, turn.response_ids, turn.text, turn.action, observation, info
            )
            if truncated:
                self._keep_tail(trajectory, prompt)
                return

    def _keep_tail(self, trajectory: Trajectory, prompt: Rendered) -> None:
        """Keep what the agent would have read next, for the value of a truncated episode."""
        if trajectory.turns and len(prompt.ids) <= self.policy.max_context:
            trajectory.tail_ids = prompt.context_ids
            trajectory.tail_extends = prompt.extends

    def _given(
        self, guidance: Guidance | None, prompt: Rendered, info: Info
    ) -> tuple[np.ndarray, int]:
        """Tokens that open the first response, and the number of turns that are the oracle's."""
        nothing: np.ndarray = np.zeros(0, np.int32)
        if guidance is None:
            return nothing, 0
        reference = check_reference(info)
        solution = _render(self.renderer.prompt.solution, info)
        if solution is None:
            return nothing, given_turns(reference, guidance)
        # Of the budget of the response something is left for the policy.
        room = min(self._room(prompt, 0), self.config.sampling.max_tokens) - 1
        return given_tokens(self.renderer.tokenizer, solution, guidance, room), 0

    def _replayed(self, prompt: Rendered, observation: str, action: str) -> Turn:
        """A turn of the oracle: all of it is context."""
        text = self.renderer.prompt.written(action)
        ids = np.asarray(self.renderer.tokenizer.encode(text, add_special_tokens=False), np.int32)
        if not len(ids):
            raise EnvironmentFault("the oracle's action is empty")
        asked = prompt.begun(ids)
        self.counters["prompt_tokens"] += len(asked.context_ids)
        return Turn(
            context_ids=asked.context_ids,
            extends=asked.extends,
            action_ids=ids[:0],
            logprobs=np.zeros(0, np.float32),
            versions=np.zeros(0, np.int32),
            trainable=np.zeros(0, bool),
            finish_reason=FinishReason.STOP,
            text=text,
            action=action,
            observation=observation,
            given=len(ids),
        )

    def _turn(
        self, prompt: Rendered, completion: Completion, observation: str, given: int = 0
    ) -> Turn:
        ids = np.asarray(completion.token_ids, np.int32)
        stopped = completion.finish_reason is FinishReason.STOP
        written = (ids[:-1] if stopped else ids).tolist()
        if given:
            written = [*prompt.context_ids[-given:].tolist(), *written]
        text = str(self.renderer.tokenizer.decode(written))
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
            given=given,
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

    def _take_seat(self, guided: bool) -> Seat:
        if self._idle[guided]:
            return self._idle[guided].pop()
        make_env = self.make_expert_env if guided else self.make_env
        if make_env is None:
            raise ValueError(
                "an episode asks for guidance, but this collector was given no make_expert_env to "
                "make environments that tell their reference"
            )
        self.counters["env_made"] += 1
        if self.config.turn_deadline is None:
            return InlineSeat(make_env)
        return ThreadSeat(make_env, self.config.turn_deadline)


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


def _render(function: Callable[..., T], *args: Any) -> T:
    """Ask the prompt; one that chokes on an environment's info is that episode's fault."""
    try:
        return function(*args)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise EnvironmentFault(f"the prompt could not be rendered: {error!r}") from error


def _reset_options(spec: EpisodeSpec) -> dict[str, Any]:
    options = {"task_id": spec.task_id, "split": spec.split}
    return {name: value for name, value in options.items() if value is not None}


def _stable_hash(text: str) -> int:
    """A hash that is the same in every process, unlike Python's own."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")
