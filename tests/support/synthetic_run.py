"""Run directories with made-up but plausible content, for tests of what is shown."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.info import StopReason
from agentgym.policy import FinishReason
from agentgym.trajectory import EpisodeSpec, Trajectory, Turn
from trainers.run_dir import RunDir

PAGES = (
    "Instruction: \n\ni need a machine washable navy curtain, size 52 x 84, and price lower than "
    "40.00 dollars\n[button] Search [button_]",
    "[button] Back to Search [button_]\nPage 1 (Total results: 50)\n[button] Next > [button_]\n\n"
    "[button] B07XQ1LZ2P [button_]\nBlackout curtain, thermal, 2 panels\n$35.99\n\n"
    "[clicked button] B09DKR4XNT [clicked button_]\nLinen curtain, machine washable\n$31.50",
    "[button] Back to Search [button_]\n[button] < Prev [button_]\ncolor\n"
    "  [clicked button] navy [clicked button_]\n  [button] grey [button_]\nsize\n"
    "  [button] 52 x 63 [button_]\n  [button] 52 x 84 [button_]\nLinen curtain, machine washable\n"
    "Price: $31.50\n[button] Description [button_]\n[button] Buy Now [button_]",
)
ACTIONS = ("search[machine washable navy curtain]", "click[b09dkr4xnt]", "click[buy now]")
HOSTILE = "<script>alert('x')</script>\x1b[31m & <b> \ud800 \u202e"


def make_turn(i: int, *, reward: float = 0.0, hostile: bool = False, bad: bool = False) -> Turn:
    action = ACTIONS[i % 3]
    text = f"<think>Page {i}: does the price fit?</think><action>{action}</action>"
    return Turn(
        context_ids=np.arange(40),
        extends=True,
        action_ids=np.arange(12),
        logprobs=np.zeros(12, np.float32),
        versions=np.zeros(12, np.int32),
        trainable=np.ones(12, bool),
        finish_reason=FinishReason.STOP,
        text=HOSTILE if hostile else text,
        action=HOSTILE if hostile else action,
        format_ok=not hostile,
        action_valid=not bad,
        reward=reward,
        observation=HOSTILE if hostile else PAGES[i % 3],
    )


def make_episode(
    reward: float, member: int = 0, *, hostile: bool = False, n_turns: int = 3
) -> Trajectory:
    turns = [make_turn(i, bad=reward == 0 and i == 1) for i in range(n_turns - 1)]
    turns.append(make_turn(2, reward=reward, hostile=hostile))
    goal = "machine washable navy curtain, size 52 x 84, price lower than 40.00 dollars"
    return Trajectory(
        spec=EpisodeSpec("goal/17", "train", member, "g", member),
        turns=turns,
        task_id="goal/17",
        split="train",
        goal=HOSTILE if hostile else goal,
        terminated=True,
        stop_reason=StopReason.SOLVED if reward == 1 else StopReason.FAILED,
        score=reward,
        success=reward == 1,
    )


def step_metrics(step: int, total: int, rng: random.Random, switch: int | None) -> dict[str, Any]:
    """A row as a trainer would log it."""
    t = step / total
    noise = rng.gauss
    success = min(max(0.27 + 0.36 * (1 - math.exp(-3 * t)) + noise(0, 0.04), 0), 1)
    skill = -0.25 + 0.75 * (1 - math.exp(-4 * t))
    single = switch is not None and step > switch
    row: dict[str, Any] = {
        "phase": "single" if single else "group",
        "trajectories": 64 * step,
        "action_tokens": int(64 * step * (70 - 12 * t)),
        "prompt_tokens": 64 * step * 900,
        "reward_mean": success * 0.8 + 0.15 + noise(0, 0.02),
        "success_rate": success,
        "score_mean": success * 0.7 + 0.25,
        "turns_mean": 6.5 - 1.8 * t + noise(0, 0.2),
        "invalid_action_rate": max(0.22 * math.exp(-3 * t) + noise(0, 0.01), 0),
        "format_error_rate": max(0.05 * math.exp(-5 * t) + noise(0, 0.003), 0),
        "truncated_frac": 0.12 * math.exp(-2 * t),
        "stop/solved": success,
        "stop/failed": 1 - success - 0.12 * math.exp(-2 * t),
        "stop/max_turns": 0.1 * math.exp(-2 * t),
        "stop/max_tokens": 0.02 * math.exp(-2 * t),
        "adv_rms": 0.45 + noise(0, 0.02),
        "loss_policy": noise(0, 0.01) - 0.002,
        "loss_value": 0.16 * math.exp(-2 * t) + 0.05 + noise(0, 0.005),
        "entropy": 0.62 - 0.25 * t + noise(0, 0.01),
        "ratio_mean": 1 + noise(0, 0.002),
        "ratio_max": 1.5 + abs(noise(0, 0.5)),
        "dis_rejected_low": abs(noise(0, 0.001)),
        "dis_rejected_high": abs(noise(0, 0.0004)),
        "dis_rejected_nonfinite": 0.0,
        "logp_diff_max": 2e-5 + abs(noise(0, 1e-5)),
        "grad_norm_actor": 0.7 + abs(noise(0, 0.15)),
        "grad_norm_critic": 2.5 * math.exp(-t) + abs(noise(0, 0.3)),
        "lr_actor": 5e-4 * min(1, step / 5),
        "lr_critic": 2e-3 * min(1, step / 5),
        "value_mean": 0.02 + 0.05 * t + noise(0, 0.01),
        "target_mean": noise(0, 0.02),
        "explained_variance": skill - 0.05 + noise(0, 0.05),
        "staleness_mean": 0.4 + abs(noise(0, 0.1)),
        "staleness_max": rng.choice([1, 2, 2, 3]),
        "dropped_stale": rng.choice([0, 0, 1]),
        "generate_s": 1.9 + noise(0, 0.1),
        "learn_s": 0.8 + noise(0, 0.05),
        "sync_s": 0.02,
        "step_s": 2.8 + noise(0, 0.1),
        "tokens_per_s": 2100 + noise(0, 80),
        "elapsed_s": 2.8 * step,
        "cpu_s": 2.6 * step,
    }
    if not single:
        row["frac_zero_variance"] = 0.3 + noise(0, 0.05)
        row["skill_raw"] = skill + noise(0, 0.14)
        row["skill_ema"] = skill - 0.06
        row["skill_turn_start"] = skill - 0.1 + noise(0, 0.1)
    else:
        row["baseline_b"] = success
        row["switch_step"], row["forced"] = switch, False
    return row


def make_run(
    path: Path,
    *,
    name: str = "li2sao",
    seed: int = 0,
    steps: int = 60,
    switch: int | None = 27,
    every: int = 20,
    close: str | None = "finished",
) -> RunDir:
    """Write a run; with ``close=None`` it stays open."""
    rng = random.Random(f"{name}/{seed}")
    config = {
        "env": "WebShop-v0",
        "model": "tiny",
        "preset": "tiny",
        "seed": seed,
        "gate": {"tau": 0.0, "patience": 3, "min_steps": 10},
        "rollouts": 64,
        "lr_actor": 5e-4,
    }
    command = ["python", "-m", f"trainers.{name}", "--env", "WebShop-v0", "--seed", str(seed)]
    run = RunDir.create(path, name, config, total_steps=steps, command=command)
    start = 0.24 + 0.02 * seed
    for step in range(steps + 1):
        row = step_metrics(step, steps, rng, switch) if step else {}
        if step == 0:
            row["eval/test/rule/success"], row["eval/test/rule/n"] = 0.42, 500
            row["eval/test/rule/first_result_share"] = 1.0
            row["eval/test/oracle/success"], row["eval/test/oracle/n"] = 1.0, 500
        if step % every == 0:
            gain = 0.34 * (1 - math.exp(-3 * step / steps))
            for mode, extra in (("sampled", 0.0), ("greedy", 0.08)):
                base = f"eval/test/{mode}"
                share = round((start + gain + extra + rng.gauss(0, 0.01)) * 300) / 300
                row |= {
                    f"{base}/success": share,
                    f"{base}/score": share * 0.7 + 0.25,
                    f"{base}/turns": 6.3 - 3 * gain,
                    f"{base}/invalid_rate": 0.2 - 0.4 * gain,
                    f"{base}/first_result_share": 0.5 - gain / 2,
                    f"{base}/n": 300,
                }
        run.log_metrics(step, row)
        if step % 10 == 1:
            episodes = [make_episode(r, m) for m, r in enumerate([1.0, 0.0, 0.66])]
            run.log_trajectories(step, episodes)
    if close is not None:
        run.close(close)  # type: ignore[arg-type]
    return run
