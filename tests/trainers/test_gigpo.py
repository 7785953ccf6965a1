"""GiGPO in whole runs: its limits, its rows under both ways of prompting, its settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from step_tables import rollout, step
from toy_training import Bench, actor, assert_same, make_config, make_trainer, rows, state, train

from agentgym.packing import pack
from agentgym.trajectory import TrajectoryGroup
from trainers.command_line import parse_args, with_preset
from trainers.gigpo import GiGPO, GiGPOConfig
from trainers.grpo import GRPO, GRPOConfig

#: GRPO's switches; the defaults are the published ones of GiGPO.
PLAIN: dict[str, Any] = {
    "prompt_mode": "conversation",
    "minibatches": 2,
    "invalid_penalty": 0.0,
    "dual_clip": None,
    "entropy_coef": 0.0,
    "kl_coef": 0.0,
    "cross_steps": False,
}


def bench(**changes: Any) -> Bench:
    return Bench(GiGPO, make_config(GiGPOConfig, **{**PLAIN, **changes}))


# Limits, bit for bit -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"adv_std": "none", "adv_ddof": 0}, {"adv_std": "batch"}, {"adv_norm": "whiten"}],
    ids=str,
)
def test_without_the_step_term_it_is_grpo(changes: dict[str, Any], tmp_path: Path) -> None:
    shared = {"steps": 3, "minibatches": 2, **changes}
    ours = train(GiGPO, GiGPOConfig, tmp_path / "a", **{**PLAIN, **shared}, omega=0.0)
    grpo = train(GRPO, GRPOConfig, tmp_path / "b", **shared)
    assert_same(state(ours)["learner"], state(grpo)["learner"])
    for left, right in zip(rows(tmp_path / "a"), rows(tmp_path / "b"), strict=True):
        for name in left.keys() & right.keys():
            assert left[name] == right[name], name


def test_with_the_step_term_it_is_not(tmp_path: Path) -> None:
    ours = train(GiGPO, GiGPOConfig, tmp_path / "a", **PLAIN)
    grpo = train(GRPO, GRPOConfig, tmp_path / "b", minibatches=2)
    with pytest.raises(AssertionError):
        assert_same(actor(ours), actor(grpo))
    row = rows(tmp_path / "a")[-1]
    assert row["rows"] >= row["situations"] > 0
    assert row["adv_step_rms"] > 0
    assert 0 <= row["singleton_rows"] < 1


@pytest.mark.parametrize(
    "changes",
    [{}, {"hgpo": "release"}, {"anchor": "observation_state"}, {"similarity": 0.9}],
    ids=str,
)
def test_a_resumed_run_goes_on_exactly(changes: dict[str, Any], tmp_path: Path) -> None:
    changes = {**PLAIN, **changes}
    whole = train(GiGPO, GiGPOConfig, tmp_path / "whole", steps=4, **changes)
    train(GiGPO, GiGPOConfig, tmp_path / "parts", steps=2, **changes)
    config = make_config(GiGPOConfig, steps=4, resume=tmp_path / "parts", **changes)
    resumed = make_trainer(GiGPO, config, seed=1)
    assert resumed.run() == 0
    assert_same(state(whole), state(resumed))
    # An evaluation at the end of the first part is all that differs.
    left = rows(tmp_path / "whole", evaluations=False)
    assert left == rows(tmp_path / "parts", evaluations=False)


# Rows --------------------------------------------------------------------------------------------


def groups_of(*groups: list) -> list[TrajectoryGroup]:
    return [
        TrajectoryGroup(
            f"u{number}", [rollout(f"u{number}", m, own) for m, own in enumerate(group)]
        )
        for number, group in enumerate(groups)
    ]


def credited(algorithm: GiGPO, groups: list[TrajectoryGroup]):
    batch = algorithm.credit(groups, None)
    return batch, [[a.tolist() for a in own.advantages] for own in batch.credit]


def test_each_turn_has_an_advantage_of_its_own_on_all_its_tokens() -> None:
    config = make_config(GiGPOConfig, **{**PLAIN, "cross_steps": True})
    won = [step("s0", "a", tokens=2), step("s1", "b", 10.0, tokens=3)]
    lost = [step("s0", "c"), step("s0", "d", tokens=0), step("s0", "e"), step("s2"), step("s2")]
    batch, found = credited(GiGPO(config), groups_of([won, lost]))
    expected = [[2.4457] * 2, [1.2910] * 3], [[-1.2228], [], [-1.2228], [-0.6455], [-0.6455]]
    for own, wanted in zip(found, expected, strict=True):
        for turn, values in zip(own, wanted, strict=True):
            assert turn == pytest.approx(values, abs=1e-4)
    assert batch.metrics["rows"] == 6


@pytest.mark.parametrize("penalty_on", ["format", "invalid"])
def test_only_the_bad_row_pays(penalty_on: str) -> None:
    changes = {**PLAIN, "cross_steps": True, "invalid_penalty": 0.1, "penalty_on": penalty_on}
    algorithm = GiGPO(make_config(GiGPOConfig, **changes))
    won = [step("s0"), step("s1", reward=10.0)]
    for flags, pays in (({"format_ok": False}, True), ({"valid": False}, penalty_on == "invalid")):
        lost = [step("s0"), step("s0", **flags), step("s2"), step("s2")]
        _, found = credited(algorithm, groups_of([won, lost]))
        flat = [value for turn in found[1] for value in turn]
        if pays:
            assert flat == pytest.approx(
                [-0.6407 - 0.5683, -0.66 - 0.5864, -0.6407, -0.6407], abs=2e-4
            )
        else:
            assert flat == pytest.approx([-1.2228, -1.2228, -0.6455, -0.6455], abs=1e-4)


def test_prompting_and_packing_change_no_advantage() -> None:
    """The same decisions as one prompt a turn, and as one sequence an episode."""
    algorithm = bench(trajectories=8).algorithm
    played = bench(trajectories=8).play()
    windowed = [
        TrajectoryGroup(
            group.group_id,
            [
                replace(
                    member,
                    turns=[
                        replace(turn, extends=False, context_ids=np.arange(5, dtype=np.int32))
                        for turn in member.turns
                    ],
                )
                for member in group
            ],
        )
        for group in played
    ]
    per_row = []
    for groups in (played, windowed):
        batch = algorithm.credit(groups, None)
        for unit in ("sequence", "turn"):
            found: dict[tuple[int, int], list[float]] = {}
            for row in pack(batch.trajectories, batch.credit, unit=unit):
                for turn, start, stop in row.spans:
                    assert len(set(row.advantages[start:stop].tolist())) == 1
                    found[row.trajectory, turn] = row.advantages[start:stop].tolist()
            per_row.append(found)
    assert len(per_row[0]) > 8
    assert all(found == per_row[0] for found in per_row)


@pytest.mark.parametrize("mode", ["conversation", "windowed"])
def test_the_collector_plays_rows_either_way(mode: str) -> None:
    one = bench(prompt_mode=mode, trajectories=8)
    groups = one.play()
    turns = [turn for group in groups for member in group for turn in member.turns]
    later = [turn.extends for group in groups for m in group for turn in m.turns[1:]]
    assert later
    assert all(extends is (mode == "conversation") for extends in later)
    batch = one.credit(groups)
    assert batch.metrics["rows"] == sum(turn.n_actions > 0 for turn in turns)
    assert one.learner.update(batch, 0)["grad_norm_actor"] > 0


def test_an_integer_mask_leaves_fractions_alone() -> None:
    import torch

    group = groups_of([[step("x", reward=0.55)], [step("x")]])
    for member in group[0]:
        for turn in member.turns:
            turn.trainable = np.ones(turn.n_actions, np.int64)
    algorithm = bench(adv_std="none", omega=0.0).algorithm
    batch = algorithm.credit(group, None)
    (row, _) = pack(batch.trajectories, batch.credit)
    assert row.advantages.dtype == np.float32
    assert row.advantages[-1] == pytest.approx(0.275)
    mask = torch.ones((1, 1), dtype=torch.int64)
    logp = torch.full((1, 1), -1.0)
    loss = algorithm.loss(logp, logp, torch.full((1, 1), 0.55), mask)
    assert float(loss.loss) == pytest.approx(-0.55)


def test_repeated_rollouts_are_refused() -> None:
    """Padding by repetition belongs behind the advantages."""
    (group,) = groups_of([[step("x", reward=1.0)], [step("x")]])
    padded = TrajectoryGroup("u0", [*group, group.trajectories[0]])
    with pytest.raises(ValueError, match="member 0 of group 'u0' stands twice"):
        bench().algorithm.credit([padded], None)


def test_similar_situations_are_compared_where_that_is_asked_for() -> None:
    groups = groups_of(
        [[step("a drawer and a shelf 1", reward=1.0)], [step("a drawer and a shelf 2")]]
    )
    assert bench().algorithm.credit(groups, None).metrics["situations"] == 2
    near = bench(similarity=0.95).algorithm.credit(groups, None)
    assert near.metrics["situations"] == 1
    assert near.metrics["local_active"] == 1


def test_the_state_can_be_part_of_the_situation() -> None:
    """One text such as "Nothing happens." stands for many situations."""
    said = "Nothing happens."
    groups = groups_of([[step(said, reward=1.0, state="held")], [step(said, state="empty")]])
    assert bench().algorithm.credit(groups, None).metrics["situations"] == 1
    told = bench(anchor="observation_state").algorithm.credit(groups, None)
    assert told.metrics["situations"] == 2


def test_groups_that_vary_by_penalties_alone_can_be_left_out() -> None:
    groups = groups_of([[step("x")], [step("x", format_ok=False)]])
    kept = bench(invalid_penalty=0.1).algorithm.credit(groups, None)
    assert len(kept.trajectories) == 2
    left = bench(invalid_penalty=0.1, mask_zero_variance=True).algorithm.credit(groups, None)
    assert left.trajectories == []
    assert left.metrics["rows"] == left.metrics["situations"] == 0


def test_hgpo_has_no_episode_term_unless_asked_for() -> None:
    paths = [("a", 8.0), ("a", 4.0), ("b", 1.0), ("b", 3.0)]
    groups = groups_of([[step(first), step("x", reward=reward)] for first, reward in paths])
    _, plain = credited(bench(hgpo="formula", hgpo_history=0, omega=0.0).algorithm, groups)
    x = np.array([8.0, 4, 1, 3])
    local = (x - x.mean()) / x.std(ddof=1)
    assert [turns[1][0] for turns in plain] == pytest.approx(local, abs=1e-5)
    _, based = credited(bench(hgpo="formula", hgpo_history=0, hgpo_base=True).algorithm, groups)
    mixed = np.where(local == 0, local, (local + 2 * local) / 3)
    assert [turns[1][0] for turns in based] == pytest.approx(mixed, abs=1e-5)


# Settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adv_center": "loo"}, "--adv-center is loo; it must be mean"),
        ({"gamma": 1.5}, "--gamma is 1.5; it must be between 0 and 1"),
        ({"omega": -1.0}, "--omega is -1.0; it must be a finite number, 0 or more"),
        ({"similarity": 0.0}, "--similarity is 0.0; it must be above 0 and at most 1, or None"),
        ({"similarity": 0.9, "hgpo": "formula"}, "--similarity is 0.9; it must be None: HGPO"),
        ({"hgpo_history": -1}, "--hgpo-history is -1; it must be 0 or more"),
        ({"hgpo": "x"}, "--hgpo is x; it must be one of off, formula, release"),
        ({"abstraction": ""}, "--abstraction is empty"),
        ({"abstraction": "generic"}, "--abstraction is generic; it must be auto: nothing here"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        make_config(GiGPOConfig, **{**PLAIN, **changes}).validate()


def test_an_unknown_abstraction_is_refused_before_a_model_is_built() -> None:
    with pytest.raises(
        ValueError, match="ToyRounds-v0 has no progress abstraction 'x'; it has com"
    ):
        bench(anchor="observation_state", abstraction="x")


def test_presets() -> None:
    paper, tiny = with_preset(GiGPOConfig, "paper"), with_preset(GiGPOConfig, "tiny")
    assert (paper.trajectories, paper.group_size, paper.learning_rate) == (128, 8, 1e-6)
    assert (paper.prompt_mode, paper.window, paper.gamma, paper.omega) == ("windowed", 2, 0.95, 1)
    assert (paper.kl_coef, paper.dual_clip, paper.entropy_coef) == (0.01, 3.0, 0.001)
    assert (paper.invalid_penalty, paper.by_row, tiny.by_row) == (0.1, True, False)
    assert tiny.prompt_mode == "conversation"
    grpo = with_preset(GRPOConfig, "tiny")
    shared = vars(grpo).keys() - {"env"}
    assert {name: getattr(tiny, name) for name in shared} == {n: getattr(grpo, n) for n in shared}
    for config in (paper, tiny):
        config.validate()


def test_the_command_line_takes_its_flags() -> None:
    words = ["--env", "WebShop-v0", "--omega", "0.5", "--estimator", "paper", "--hgpo", "release"]
    config = parse_args(GiGPOConfig, words)
    assert (config.omega, config.estimator, config.hgpo) == (0.5, "paper", "release")
    assert config.preset == "tiny"
