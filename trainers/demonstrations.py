"""Episodes played by an environment's oracle, for behaviour cloning.

Demonstrations are recorded as text first (the tiny model's tokenizer is made from it) and turned
into trajectories through the same prompt renderer that the policy will meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from agentgym.info import Info, StopReason
from agentgym.policy import FinishReason
from agentgym.prompts import ConversationRenderer, EnvPrompt, WindowedRenderer
from agentgym.registry import EnvSpec, load
from agentgym.trajectory import EpisodeSpec, Trajectory, Turn

__all__ = ["Demonstration", "demonstrated_texts", "record", "to_trajectory"]


@dataclass(slots=True)
class Demonstration:
    """One episode of the oracle.

    Attributes:
        observations: What was seen before each action.
        infos: The info of each observation.
        actions: What was done.
        taught: Whether each action is to be imitated; a slip is not.
        score: Score at the end.
        success: Whether the task was solved.
    """

    observations: list[str]
    infos: list[Info]
    actions: list[str]
    taught: list[bool]
    score: float = 0.0
    success: bool = False


def record(
    entry: EnvSpec,
    make_env: Callable[[], gym.Env[Any, Any]],
    *,
    episodes: int,
    noise: float,
    seed: int,
    slips: float = 0.0,
    split: str | None = None,
    first: int = 0,
) -> list[Demonstration]:
    """Let the oracle play.

    Episode ``i`` depends on ``(seed, i)`` alone. Where the environment lists its tasks, they are
    played in a shuffled order, pass after pass.

    Args:
        entry: The environment's entry in the registry.
        make_env: Makes the environment.
        episodes: How many.
        noise: How often the oracle errs: 0 never; what 1 means is the oracle's business.
        seed: Seed of tasks, environments and errors.
        slips: Probability that an inadmissible action (one from an earlier episode, out of place
            here) goes before the oracle's. It shows how to go on after one and is not imitated.
            For environments in which an inadmissible action changes nothing but the turn.
        split: Split of the tasks; None takes the training split.
        first: Index of the first episode.

    Raises:
        ValueError: If the environment has no oracle, or a number is out of range.
    """
    if entry.oracle is None:
        raise ValueError(f"{entry.id} has no oracle to demonstrate it")
    if episodes < 1:
        raise ValueError(f"episodes must be >= 1, got {episodes!r}")
    for name, value in (("noise", noise), ("slips", slips)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1], got {value!r}")
    demonstrate = load(entry.oracle, entry.extra)
    env = make_env()
    try:
        tasks = getattr(env.unwrapped, "tasks", None)
        ids: Sequence[str] = ()
        if tasks is not None:
            split = split or tasks.train_split
            ids = tasks.ids(split)
        out: list[Demonstration] = []
        for number in range(first, first + episodes):
            options: dict[str, Any] = {}
            if ids:
                turn, place = divmod(number, len(ids))
                order = np.random.default_rng([seed, turn, 0xDE]).permutation(len(ids))
                options = {"task_id": ids[int(order[place])], "split": split}
            rng = np.random.default_rng([seed, number, 0xDF])
            env_seed = int(rng.integers(2**31 - 1))
            observation, info = env.reset(seed=env_seed, options=options)
            episode = Demonstration([observation], [info], [], [])  # type: ignore[list-item]
            oracle = demonstrate(env, rng, noise)
            _play(env, episode, oracle, _Slips(slips, out, seed, number))
            out.append(episode)
        return out
    finally:
        env.close()


class _Slips:
    """Draws inadmissible actions from what was done in earlier episodes."""

    def __init__(self, rate: float, earlier: Sequence[Demonstration], *key: int) -> None:
        self._rate, self._earlier = rate, earlier
        self._rng = np.random.default_rng([*key, 0xE0])

    def draw(self, env: gym.Env[Any, Any]) -> str | None:
        if not self._earlier or self._rng.random() >= self._rate:
            return None
        for _ in range(8):
            episode = self._earlier[int(self._rng.integers(len(self._earlier)))]
            if episode.actions:
                action = episode.actions[int(self._rng.integers(len(episode.actions)))]
                if not env.unwrapped.is_admissible(action):  # type: ignore[attr-defined]
                    return action
        return None


def _play(
    env: gym.Env[Any, Any], episode: Demonstration, oracle: Iterator[str], slips: _Slips
) -> None:
    for action in oracle:
        slip = slips.draw(env)
        over = slip is not None and _step(env, episode, slip, taught=False)
        if over or _step(env, episode, action, taught=True):
            break
    # What is seen after the last action leads to no other.
    del episode.observations[len(episode.actions) :], episode.infos[len(episode.actions) :]


def _step(env: gym.Env[Any, Any], episode: Demonstration, action: str, *, taught: bool) -> bool:
    observation, _, terminated, truncated, info = env.step(action)
    episode.actions.append(action)
    episode.taught.append(taught)
    episode.observations.append(observation)
    episode.infos.append(info)  # type: ignore[arg-type]
    episode.score = float(info.get("score", 0.0))
    episode.success = bool(info.get("success", False))
    return terminated or truncated


def demonstrated_texts(episodes: Sequence[Demonstration], prompt: EnvPrompt) -> list[str]:
    """Every message and every action of some episodes, as the model reads and writes them."""
    texts = []
    for episode in episodes:
        show = prompt.first
        for observation, info, action in zip(
            episode.observations, episode.infos, episode.actions, strict=True
        ):
            texts += [show(observation, info), prompt.written(action)]
            show = prompt.next
    return texts


def to_trajectory(
    episode: Demonstration,
    renderer: ConversationRenderer | WindowedRenderer,
    stop_id: int | None,
) -> Trajectory:
    """The episode in tokens.

    Args:
        episode: What was played.
        renderer: Turns observations into prompts.
        stop_id: Token that ends an answer, or None where the template has none.

    Returns:
        A trajectory with log-probs of 0.
    """
    tokenizer = renderer.tokenizer
    dialogue = renderer.dialogue()
    trajectory = Trajectory(
        spec=EpisodeSpec(None, None, 0, "demonstration"),
        score=episode.score,
        success=episode.success,
        stop_reason=StopReason.SOLVED if episode.success else StopReason.FAILED,
    )
    previous: tuple[list[int], str, str] | None = None
    for observation, info, action, taught in zip(
        episode.observations, episode.infos, episode.actions, episode.taught, strict=True
    ):
        if previous is None:
            prompt = dialogue.open(observation, info)
        else:
            prompt = dialogue.reply(*previous, observation, info)
        text = renderer.prompt.written(action)
        ids = list(tokenizer.encode(text, add_special_tokens=False))
        if stop_id is not None:
            ids.append(stop_id)
        action_ids = np.asarray(ids, np.int32)
        trajectory.turns.append(
            Turn(
                context_ids=prompt.context_ids,
                extends=prompt.extends,
                action_ids=action_ids,
                logprobs=np.zeros(len(ids), np.float32),
                versions=np.zeros(len(ids), np.int32),
                trainable=np.full(len(ids), taught),
                finish_reason=FinishReason.STOP,
                text=text,
                action=action,
                observation=observation,
            )
        )
        previous = (ids, text, action)
    return trajectory
