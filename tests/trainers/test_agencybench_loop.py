"""GRPO on AgencyBench: groups, what is learned and what is not, and sandboxes that are killed."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from agency_world import LOOK
from processes import SUPPORT
from sandbox_leader import kill_when_seen, killed_meanwhile
from scripted import ScriptedPolicy
from templates import char_tokenizer
from toy_training import Bench, rows

from adapters.policies.causal_lm import CausalLM
from agentgym.collector import Collector, CollectorConfig
from agentgym.dice import Dice
from agentgym.info import StopReason
from agentgym.packing import pack
from agentgym.policy import Sampling
from agentgym.prompts import make_renderer
from agentgym.registry import load, spec
from agentgym.trajectory import EpisodeSpec, TrajectoryGroup, group_trajectories
from envs.agencybench.calls import write_call
from envs.agencybench.catalogue import builtin
from trainers.checkpoint import load_latest
from trainers.command_line import with_preset
from trainers.demonstrations import record
from trainers.grpo import GRPO, GRPOConfig
from trainers.run_dir import read_status
from trainers.setup import Setup, World
from trainers.sft import SFTConfig, learn, new_tiny

ENV = "AgencyBench-v0"
#: A few of the ten replacements of the first task; what is there is scored then.
ARGS = ("scenario=code/units", "max_steps=3")


@pytest.fixture(scope="module")
def beginner() -> CausalLM:
    """A tiny model that has seen three demonstrations, and errs."""
    config = with_preset(SFTConfig, "tiny", "tiny", ENV)
    config = dataclasses.replace(config, env=ENV, env_arg=ARGS, batch_size=3, updates=45)
    world = World.open(config)
    entry = dataclasses.replace(world.spec, oracle="agency_world:looks_first")
    shown = record(entry, world.make_env, episodes=3, noise=0.0, seed=0)
    lm = new_tiny(world, shown, 0)
    learn(config, Setup.around(config, world, lm), [shown], lambda text: None)
    return lm


def config(**changes: Any) -> GRPOConfig:
    base = with_preset(GRPOConfig, "tiny", "tiny", ENV)
    return dataclasses.replace(
        base, env=ENV, env_arg=ARGS, trajectories=8, group_size=4, slots=8, learning_rate=1e-3,
        **changes,
    )  # fmt: skip


def check_groups(groups: list[TrajectoryGroup]) -> None:
    """Members of a group begin alike, and are rewarded by what they built."""
    assert [len(group.trajectories) for group in groups] == [4, 4]
    for group in groups:
        assert len({t.turns[0].observation for t in group.trajectories}) == 1
        assert len({(t.spec.seed, t.task_id) for t in group.trajectories}) == 1
        for member in group.trajectories:
            assert member.total_reward == pytest.approx(member.score)
            mended = member.details["verdict"]["checks"]
            assert member.score == pytest.approx(sum(c["value"] for c in mended) / 6 / 5)


def check_masks(groups: list[TrajectoryGroup], tokenizer: Any) -> None:
    """What is learned is what the policy wrote; what tools said is read alone."""
    members = [member for group in groups for member in group.trajectories]
    packed = pack(members)
    assert len(packed) == len(members)  # an episode is one row
    for row, member in zip(packed, members, strict=True):
        assert np.array_equal(row.loss_mask, row.action_mask)
        learned = tokenizer.decode(row.token_ids[row.loss_mask].tolist())
        read = tokenizer.decode(row.token_ids[~row.loss_mask].tolist())
        written = [turn.action_ids for turn in member.turns]
        assert np.array_equal(row.token_ids[row.loss_mask], np.concatenate(written))
        for turn in member.turns:
            assert turn.observation in read
            assert turn.observation not in learned
        assert row.loss_mask.sum() < len(row) / 2


def scripted(answer: Any, **arguments: Any) -> Collector:
    tokenizer = char_tokenizer("compact")
    prompt = load(spec(ENV).prompt)(action_format="bare")
    return Collector(
        partial(gym.make, ENV, **arguments),
        make_renderer("conversation", tokenizer, prompt),
        ScriptedPolicy(tokenizer, answer),
        CollectorConfig(sampling=Sampling(max_tokens=500)),
    )


def test_groups_rewards_and_masks() -> None:
    """Each member of a group mends one fault more than the one before; the last one babbles."""
    world = builtin("code/units").build(Dice("any: the faults are the same"))
    edits = [write_call(*call) for call in builtin("code/units").oracle(world, 0)[:2]]

    def answer(request: Any, text: str) -> str:
        member, turn = request.key[-2:]
        return "babble" if member == 3 else edits[turn] if turn < member else write_call("glob")

    made = scripted(answer, scenario="code/units", max_steps=2)
    episodes = [
        EpisodeSpec("code/units", "builtin", seed, f"g{seed}", member)
        for seed in range(2)
        for member in range(4)
    ]
    groups = group_trajectories(asyncio.run(made.collect(episodes)))
    made.close()
    check_groups(groups)
    check_masks(groups, made.renderer.tokenizer)
    for group in groups:
        rewards = [member.total_reward for member in group]
        assert rewards == pytest.approx([0, 1 / 30, 2 / 30, 0])
        assert [turn.format_ok for turn in group.trajectories[3].turns] == [False, False]
    batch = GRPO(config()).credit(groups, None)
    for place, credit in enumerate(batch.credit):
        sign = (-1, 1, 1, -1)[place % 4]
        assert all((turn * sign > 0).all() for turn in credit.advantages)


@pytest.mark.slow
def test_two_steps_of_grpo(beginner: CausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toy_training.toy_rounds.build_model", lambda *_: beginner.clone())
    one = Bench(GRPO, config())
    before = {name: value.clone() for name, value in one.learner.weights().items()}
    rewards = []
    try:
        for step in range(2):
            groups = one.play()
            check_groups(groups)
            check_masks(groups, beginner.tokenizer)
            rewards += [member.total_reward for group in groups for member in group.trajectories]
            metrics = one.learner.update(one.credit(groups), step)
            assert np.isfinite(metrics["loss_policy"])
            assert metrics["updates_skipped"] == 0
            one.source.publish(one.learner.weights(), step + 1)
    finally:
        one.close()
    assert len(set(rewards)) > 1
    assert 0 < max(rewards) <= 0.2
    after = one.learner.weights()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_a_killed_sandbox_is_one_failed_sample() -> None:
    """The sandbox of one member is killed while its command runs; the others go on."""
    last = write_call("run_shell_command", {"command": "sleep 4713.0; true"})

    def answer(request: Any, text: str) -> str:
        member, turn = request.key[-2:]
        other = write_call("run_shell_command", {"command": "ls"})
        return last if (member, turn) == (2, 1) else other

    made = scripted(answer, scenario="mcp/issuedesk", max_steps=3)
    episodes = [EpisodeSpec("mcp/issuedesk", "builtin", 3, "g", member) for member in range(4)]
    with killed_meanwhile("sleep 4713.0") as killed:
        played = asyncio.run(made.collect(episodes))
    made.close()
    assert killed[0] is not None
    assert [member.stop_reason for member in played] == [
        StopReason.MAX_TURNS, StopReason.MAX_TURNS, StopReason.INFRA_ERROR, StopReason.MAX_TURNS,
    ]  # fmt: skip
    assert [member.usable for member in played] == [True, True, False, True]
    assert len(played[2].turns) == 2


@pytest.mark.slow
def test_a_run_goes_on_without_a_sandbox_and_comes_back_from_a_kill(
    beginner: CausalLM, tmp_path: Path
) -> None:
    """First a sandbox is killed under an episode, then the trainer in mid-step."""
    model, run = tmp_path / "model", tmp_path / "run"
    beginner.save(model, {})
    arguments = [
        *("--env", ENV, "--model", str(model), "--preset", "tiny", "--action-format", "bare"),
        *("--steps", "4", "--trajectories", "8", "--group-size", "4", "--slots", "8"),
        *("--eval-episodes", "1"),
        *("--checkpoint-every", "1", "--run-dir", str(run)),
        *("--env-arg", *ARGS),
    ]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "trainers.grpo", *arguments],
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if line.startswith("step 1/"):
                assert kill_when_seen(LOOK) is not None
            if line.startswith("step 3/"):  # by now there is a checkpoint of step 2
                process.send_signal(signal.SIGKILL)
                break
        process.wait(60)
    finally:
        process.kill()
        process.stdout.close()
    assert process.returncode == -signal.SIGKILL, "".join(said)
    assert read_status(run)["state"] == "killed"
    lost = {row["step"]: row.get("dropped_infra") for row in rows(run)}
    assert lost == {0: None, 1: 0, 2: 1, 3: 0}
    resumed = subprocess.run(
        [sys.executable, "-m", "trainers.grpo", "--resume", str(run)],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    played = rows(run)
    assert [row["step"] for row in played] == [0, 1, 2, 3, 4]
    assert [row["dropped_infra"] for row in played[1:]] == [0, 1, 0, 0]
    assert all(np.isfinite(row["loss_policy"]) for row in played[1:])
    checkpoint = load_latest(run / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.step == 4
    assert read_status(run)["sessions"][1]["after_killed"] is True
