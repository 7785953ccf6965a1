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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

import agentgym  # noqa: F401 - registers the environments
from envs.webshop.baselines import oracle_actions, play, rates, rule_actions
from envs.webshop.oracle import best_basket

_SHOWN = 20


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
