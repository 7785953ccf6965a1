"""What the fixed rule and the oracle reach in WebShop-v0, for each split.

    python -m benchmarks.webshop_baselines [--difficulty small full] [--catalogue builtin:1000]
    python -m benchmarks.webshop_baselines --data DIR [--nouns FILE] [--goals human]

The rule searches the whole instruction, opens the first result, clicks the options that match and
buys. The oracle knows the hidden goal. ``first`` is the share of purchases that were the first
result of their search. For loaded data the goals that nobody can meet are listed, each with the
best reward there is and where; ``--max-steps`` replaces the difficulty's turn limit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

import agentgym  # noqa: F401 - registers the environments
from envs.webshop.oracle import best_basket, demonstrate
from envs.webshop.rule import FixedRule

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one episode went.

    Attributes:
        task_id: What was asked for.
        score: Reward of the purchase; 0 without one.
        success: Whether it is 1.
        turns: Actions taken.
        first: Whether the first result was bought; None without a purchase.
    """

    task_id: str
    score: float
    success: bool
    turns: int
    first: bool | None


@dataclass(frozen=True, slots=True)
class Rates:
    """Averages over episodes.

    Attributes:
        episodes: Number of episodes.
        success: Share with reward 1.
        score: Mean reward.
        turns: Mean number of actions.
        first: Share of the purchases that were the first result.
    """

    episodes: int
    success: float
    score: float
    turns: float
    first: float

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Rates:
        """The averages; zeros where there is nothing to average."""
        number = max(len(outcomes), 1)
        bought = [o.first for o in outcomes if o.first is not None]
        return cls(
            len(outcomes),
            sum(o.success for o in outcomes) / number,
            sum(o.score for o in outcomes) / number,
            sum(o.turns for o in outcomes) / number,
            sum(bought) / max(len(bought), 1),
        )


def rule_actions(env: gym.Env[str, str]) -> Iterator[str]:
    """The fixed rule's actions, one for each state of ``env``."""
    rule, shop_env = FixedRule(), env.unwrapped
    while True:
        yield rule.act(shop_env.goal(), shop_env.admissible_actions())  # type: ignore[attr-defined]


def oracle_actions(env: gym.Env[str, str]) -> Iterator[str]:
    """The oracle's actions, one for each state of ``env``."""
    return demonstrate(env, _Never(), 0.0)


class _Never:
    def random(self) -> float:
        raise AssertionError("the oracle without noise draws nothing")


def play(
    env: gym.Env[str, str], actor: Callable[[gym.Env[str, str]], Iterator[str]], task_id: str
) -> Outcome:
    """One episode."""
    _, info = env.reset(seed=0, options={"task_id": task_id})
    session = env.unwrapped.session  # type: ignore[attr-defined]
    for action in actor(env):
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    bought = session.purchase
    first = None
    if bought is not None:
        first = bool(session.results) and session.results[0].asin == bought.asin
    return Outcome(task_id, info["score"], info["success"], info["turn"], first)


def rates(
    env: gym.Env[str, str],
    actor: Callable[[gym.Env[str, str]], Iterator[str]],
    task_ids: Sequence[str],
) -> Rates:
    """Averages over some tasks."""
    return Rates.of([play(env, actor, task_id) for task_id in task_ids])


@dataclass(frozen=True, slots=True)
class Unmet:
    """A goal that the oracle did not meet.

    Attributes:
        reachable: Whether some purchase would be worth more than what the oracle got.
        line: What it got, what is best, and where.
    """

    reachable: bool
    line: str


def unmet(env: gym.Env[str, str], task_ids: Sequence[str]) -> list[Unmet]:
    """The tasks that the oracle does not solve."""
    missed = []
    shop = env.unwrapped.shop  # type: ignore[attr-defined]
    for task_id in task_ids:
        outcome = play(env, oracle_actions, task_id)
        if outcome.success:
            continue
        goal = shop.goals[task_id]
        best = best_basket(shop, goal)
        chosen = ", ".join(name for _, name in best.choices) or "no option"
        line = (
            f"{task_id}: reached {outcome.score:.3f}, best {best.reward:.3f} with {best.asin} "
            f"({chosen}): {goal.instruction}"
        )
        missed.append(Unmet(best.reward > outcome.score, line))
    return missed


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if options.max_steps is not None:
        arguments["max_steps"] = options.max_steps
    if options.data is None:
        return {"catalogue": options.catalogue, **arguments}
    nouns = options.nouns
    if nouns is None:
        found = sorted(Path(options.data).glob("nouns*.json"))
        nouns = str(found[0]) if found else None
    return {"data": options.data, "nouns": nouns, "split_by": options.split_by, **arguments}


def report(arguments: dict[str, Any], most: int | None) -> list[Unmet]:
    """Print the rates of one environment; returns the goals that were not met."""
    env: gym.Env[str, str] = gym.make("WebShop-v0", **arguments)
    tasks = env.unwrapped.tasks  # type: ignore[attr-defined]
    missed: list[Unmet] = []
    for split in tasks.splits:
        ids = tasks.ids(split)[:most]
        limit = env.unwrapped.max_steps  # type: ignore[attr-defined]
        kind = f"{arguments['difficulty']:5} {arguments['goals']:9} {split:10} {limit:5}"
        if not ids:
            print(f"{kind}  no goals")
            continue
        for name, actor in (("rule", rule_actions), ("oracle", oracle_actions)):
            r = rates(env, actor, ids)
            print(
                f"{kind} {r.episodes:6} {name:6} {r.success:8.3f} {r.score:6.3f} {r.turns:6.2f} "
                f"{r.first:6.3f}"
            )
        missed += unmet(env, ids)
    env.close()
    return missed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns 1 if the oracle fails on a built-in catalogue."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.webshop_baselines")
    parser.add_argument("--catalogue", default="builtin:1000", help="builtin:N or builtin:N:SEED")
    parser.add_argument("--difficulty", nargs="+", choices=("small", "full"), default=None)
    parser.add_argument("--goals", nargs="+", choices=("synthetic", "human"), default=None)
    parser.add_argument("--data", help="folder with the original's data")
    parser.add_argument("--nouns", help="nouns of the loaded products; default nouns*.json in DIR")
    parser.add_argument("--split-by", choices=("index", "product"), help="of loaded data")
    parser.add_argument("--max-steps", type=int, help="turn limit instead of the difficulty's")
    parser.add_argument("--most", type=int, help="play only so many goals of each split")
    options = parser.parse_args(argv)
    loaded = options.data is not None
    difficulties = options.difficulty or (["full"] if loaded else ["small", "full"])
    print("level goals     split      limit  goals player  success  score  turns  first")
    missed: list[Unmet] = []
    for difficulty in difficulties:
        for goals in options.goals or ["synthetic", "human"]:
            arguments = {**_arguments(options), "difficulty": difficulty, "goals": goals}
            missed += report(arguments, options.most)
    could = sum(goal.reachable for goal in missed)
    print(f"goals that the oracle does not meet: {len(missed)} ({could} of them could be met)")
    for goal in sorted(missed, key=lambda goal: not goal.reachable)[:_SHOWN]:
        print(f"  {goal.line}")
    if len(missed) > _SHOWN:
        print(f"  and {len(missed) - _SHOWN} more")
    return 1 if missed and not loaded else 0


if __name__ == "__main__":
    sys.exit(main())
