"""Stable-Baselines3's MaskablePPO learns AlfWorld-v0 from hashed texts.

    python -m benchmarks.sb3_alfworld [--steps 409600] [--seed 0] [--picture curve.svg]

Trains on embedded games of the pick family (``pick_and_place_simple``) of the training split, with
``difficulty="small"`` and up to 100 steps an episode, so that a random policy wins now and then.
Evaluates, with the 20 steps that this difficulty has by default, on all games of the family in
rooms that occur in no other split (``valid_unseen``), and prints beside it what random actions and
the first of the admissible actions reach. The features are keyed hashes of goal, observation,
admissible actions and earlier answers (``adapters.hashed_text``).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from adapters.hashed_text import HashedTextEnv
from adapters.sb3 import ScoringPolicy, make
from agentgym.files import write_atomically
from trainers.report.chart import Chart, Line, Rule, draw
from trainers.report.style import standalone_style

# No deadline: the embedded engine cannot hang, and a thread for each would cost.
ENV = {"difficulty": "small", "max_actions": 32, "deadline": None}
FAMILY = "pick_and_place_simple"
LONG_STEPS = 100

#: From features, masks and the number of admissible actions to a number.
Chooser = Callable[[Any, np.ndarray, int], int]


def games(split: str) -> tuple[str, ...]:
    """The family's tasks of a split."""
    env = gym.make("AlfWorld-v0", difficulty="small")
    ids = env.unwrapped.tasks.ids(split)
    env.close()
    return tuple(task_id for task_id in ids if task_id.split("/")[1].startswith(FAMILY))


def success(env: HashedTextEnv, tasks: tuple[str, ...], choose: Chooser, repeats: int = 1) -> float:
    """Share of episodes won."""
    won = 0
    for repeat in range(repeats):
        for task_id in tasks:
            seen, info = env.reset(seed=repeat, options={"task_id": task_id})
            over = False
            while not over:
                masks = env.action_masks()
                number = choose(seen, masks, int(masks.sum()))
                seen, _, terminated, truncated, info = env.step(number)
                over = terminated or truncated
            won += info["success"]
    return won / (repeats * len(tasks))


class Watch(BaseCallback):
    """Keeps the success of training episodes, and evaluates now and then."""

    def __init__(self, evaluate: Callable[[], float], every: int) -> None:
        super().__init__()
        self.evaluate, self.every = evaluate, every
        self.wins: list[bool] = []
        self.trained: list[tuple[int, float]] = []
        self.unseen: list[tuple[int, float]] = [(0, evaluate())]
        self.rounds, self.eval_seconds = 0, 0.0

    def _on_step(self) -> bool:
        ended = zip(self.locals["dones"], self.locals["infos"], strict=True)
        self.wins += [info["success"] for done, info in ended if done]
        return True

    def _on_rollout_end(self) -> None:
        self.rounds += 1
        if self.rounds % 4 == 0 and self.wins:
            self.trained.append((self.num_timesteps, float(np.mean(self.wins))))
            self.wins.clear()
        if self.rounds % self.every == 0:
            began = time.process_time()
            self.unseen.append((self.num_timesteps, self.evaluate()))
            self.eval_seconds += time.process_time() - began
            print(f"{self.num_timesteps:8} steps: unseen {self.unseen[-1][1]:.1%}", flush=True)


def picture(watch: Watch, floor: float) -> str:
    """The curve as a picture that stands alone."""
    lines = [
        Line([x for x, _ in points], [y for _, y in points], label=label, color=color, dots=dots)
        for points, label, color, dots in (
            (watch.trained, f"training games, {LONG_STEPS} steps, sampled", 1, False),
            (watch.unseen, "unseen rooms, 20 steps, greedy", 0, True),
        )
    ]
    rules = [Rule(floor, "random")]
    title = "MaskablePPO on AlfWorld-v0, pick family: share of episodes won"
    svg = draw(
        Chart(title, lines, x_label="steps", percent=True, rules=rules, zero=True, width=640)
    )
    head, _, body = svg.partition(">")
    return f'{head} width="640" height="240"><style>{standalone_style()}</style>{body}\n'


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=409600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    unseen, rng = games("valid_unseen"), random.Random(args.seed)
    env = make("AlfWorld-v0", **ENV)
    floor = success(env, unseen, lambda _seen, _masks, count: rng.randrange(count), repeats=10)
    first = success(env, unseen, lambda _seen, _masks, _count: 0)
    print(f"{len(unseen)} games in unseen rooms; random {floor:.1%}, first action {first:.1%}")

    training = games("train")
    vec = DummyVecEnv(
        [lambda: make("AlfWorld-v0", **ENV, max_steps=LONG_STEPS, task_ids=training)] * 16
    )
    vec.seed(args.seed)
    model = MaskablePPO(
        ScoringPolicy, vec, n_steps=256, batch_size=512, n_epochs=4, learning_rate=1e-3,
        gamma=0.95, gae_lambda=0.95, ent_coef=0.02, seed=args.seed, device="cpu",
    )  # fmt: skip

    def greedy(seen: Any, masks: np.ndarray, _count: int) -> int:
        return int(model.predict(seen, action_masks=masks, deterministic=True)[0])

    def sampled(seen: Any, masks: np.ndarray, _count: int) -> int:
        return int(model.predict(seen, action_masks=masks)[0])

    watch = Watch(lambda: success(env, unseen, greedy), every=max(args.steps // 4096 // 8, 1))
    began, cpu = time.perf_counter(), time.process_time()
    model.learn(args.steps, callback=watch)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(
        f"{args.steps} steps in {wall / 60:.1f} min, {cpu / 60:.1f} CPU-min, of which "
        f"{watch.eval_seconds / 60:.1f} for evaluations; {len(training)} training games"
    )
    print(
        f"seed {args.seed}, unseen rooms: greedy {success(env, unseen, greedy):.1%}, sampled "
        f"{success(env, unseen, sampled, repeats=5):.1%}; random {floor:.1%}, first action "
        f"{first:.1%}"
    )
    if args.picture is not None:
        write_atomically(args.picture, picture(watch, floor))


if __name__ == "__main__":
    main()
