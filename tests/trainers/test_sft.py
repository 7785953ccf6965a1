from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tyro")

import toy_names  # noqa: E402

import trainers.warm_start as warm_start_module  # noqa: E402
from adapters.policies.causal_lm import CausalLM  # noqa: E402
from adapters.policies.models import resolve_model  # noqa: E402
from agentgym.packing import pack  # noqa: E402
from agentgym.run_lock import RunLock  # noqa: E402
from trainers.cloning import Stage, clone  # noqa: E402
from trainers.command_line import with_preset  # noqa: E402
from trainers.demonstrations import to_trajectory  # noqa: E402
from trainers.setup import Setup, World  # noqa: E402
from trainers.sft import (  # noqa: E402
    SFTConfig,
    demonstrations,
    evaluate,
    learn,
    main,
    new_tiny,
    variants_of,
)
from trainers.warm_start import warm_start  # noqa: E402

torch.set_num_threads(1)
QUICK = {
    "env": "ToyNames-v0", "episodes": 60, "updates": 6, "noise": 0.2, "worlds": 2,
    "eval_episodes": 8, "warmup": 2,
}  # fmt: skip


def quick(**changes) -> SFTConfig:
    config = dataclasses.replace(with_preset(SFTConfig, "tiny", "tiny"), **(QUICK | changes))
    config.validate()
    return config


def prepared(config: SFTConfig):
    world = World.open(config)
    pools = demonstrations(config, world)
    setup = Setup.around(config, world, new_tiny(world, pools[-1], config.seed))
    return setup, pools


def trained(config: SFTConfig):
    setup, pools = prepared(config)
    numbers = learn(config, setup, pools, lambda text: None)
    return setup, numbers


def weights(lm: CausalLM) -> dict:
    return {name: value.clone() for name, value in lm.model.state_dict().items()}


def same(one: dict, two: dict) -> bool:
    return all(torch.equal(one[name], two[name]) for name in one)


def test_cloning_learns_to_read_and_to_copy() -> None:
    setup, numbers = trained(quick(episodes=600, updates=250, worlds=1, eval_episodes=60))
    assert numbers["action_loss"] < 0.35
    results = evaluate(quick(eval_episodes=60), setup)
    # Held-out lists; picking any listed item at random gives a third.
    assert results["eval/test/greedy/success"] > 0.85
    assert results["eval/test/sampled/success"] > 0.5
    assert results["eval/test/greedy/invalid_rate"] < 0.1


def test_the_same_settings_give_the_same_bits_whatever_torch_was_seeded_with() -> None:
    torch.manual_seed(1)
    first, _ = trained(quick())
    torch.manual_seed(2)
    second, _ = trained(quick())
    assert same(weights(first.lm), weights(second.lm))
    other, _ = trained(quick(seed=1))
    assert not torch.equal(other.lm.model.model.norm.weight, first.lm.model.model.norm.weight)


def test_the_loss_is_the_weighted_mean_of_its_definition() -> None:
    config = quick(observation_weight=0.3, slips=0.5, batch_size=4)
    setup, pools = prepared(config)
    rows = pack([to_trajectory(e, setup.renderer, setup.lm.end_of_turn_id()) for e in pools[0]])[:4]
    assert any((row.action_mask & ~row.loss_mask).any() for row in rows)
    total = weight = acted = actions = 0.0
    with torch.no_grad():
        for row in rows:
            ids = torch.tensor(row.token_ids.astype(np.int64))[None]
            logp = torch.log_softmax(setup.lm.model(input_ids=ids).logits[0], -1)
            for t in range(1, len(row)):
                w = 0.3
                if row.action_mask[t]:
                    w = float(row.loss_mask[t])
                nll = -float(logp[t - 1, row.token_ids[t]])
                total, weight = total + w * nll, weight + w
                if row.loss_mask[t]:
                    acted, actions = acted + nll, actions + 1
    seen: list[dict] = []
    clone(setup.lm, [Stage(rows, 1)], config.cloning(), lambda done, numbers: seen.append(numbers))
    assert seen[0]["loss"] == pytest.approx(total / weight, abs=1e-4)
    assert seen[0]["action_loss"] == pytest.approx(acted / actions, abs=1e-4)


def test_rates_warm_up_and_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    config = quick(updates=5, warmup=2, decay_to=0.1, learning_rate=1.0)
    setup, pools = prepared(config)
    rates: list[float] = []
    monkeypatch.setattr(
        torch.optim.AdamW, "step", lambda self: rates.append(self.param_groups[0]["lr"])
    )
    learn(config, setup, pools, lambda text: None)
    assert rates == pytest.approx([0.5, 1.0, 1.0, 0.7, 0.4])


def test_a_first_stage_of_short_pages() -> None:
    config = quick(short_env_arg=("items=1",), short_share=0.5)
    setup, pools = prepared(config)
    assert [len(pool) for pool in pools] == [30, 60]
    assert {episode.observations[0].count(",") for episode in pools[0]} == {0}
    assert {episode.observations[0].count(",") for episode in pools[1]} == {2}
    told: list[str] = []
    learn(config, setup, pools, told.append)
    assert [line for line in told if "(short)" in line][-1].startswith("update 3/6 (short)")
    assert told[-1].startswith("update 6/6:")
    with pytest.raises(ValueError, match="ToyNames-v0 cannot be made with"):
        prepared(quick(short_env_arg=("pages=1",)))


def test_demonstrations_spread_over_worlds() -> None:
    config = quick(worlds=4, episodes=10)
    world = World.open(config)
    assert list(variants_of(config, world)) == [{"world": n} for n in (1, 2, 3, 4)]
    (pool,) = demonstrations(config, world)
    assert len(pool) == 10
    assert list(variants_of(quick(worlds=1), world)) == [{}]


def test_too_long_demonstrations_are_left_out_and_said() -> None:
    with pytest.raises(ValueError, match="longer than 5 tokens; raise --max-context"):
        trained(quick(max_context=5))
    setup, pools = prepared(quick())
    end = setup.lm.end_of_turn_id()
    lengths = [len(pack([to_trajectory(e, setup.renderer, end)])[0]) for e in pools[0]]
    config = quick(max_context=min(lengths))
    told: list[str] = []
    learn(config, setup, pools, told.append)
    left = sum(length > min(lengths) for length in lengths)
    assert 0 < left < 60
    assert told[0] == f"left out {left} of 60 rows: longer than {min(lengths)} tokens"


def test_a_loss_that_is_not_finite_stops_training() -> None:
    config = quick()
    setup, pools = prepared(config)
    with torch.no_grad():
        setup.lm.model.model.norm.weight.fill_(float("inf"))
    with pytest.raises(FloatingPointError, match="loss of update 1 is nan"):
        learn(config, setup, pools, lambda text: None)


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        ("updates", 0, "at least 1"),
        ("noise", 1.2, r"in \[0, 1\]"),
        ("learning_rate", 0.0, "above 0"),
        ("observation_weight", -0.1, "0 or more"),
        ("adam_betas", (0.9, 1.0), r"two numbers in \[0, 1\)"),
        ("worlds", 0, "at least 1"),
    ],
)
def test_bad_settings_are_refused(field: str, value, right: str) -> None:
    with pytest.raises(ValueError, match=right):
        quick(**{field: value})


# The command -------------------------------------------------------------------------------------

ARGUMENTS = [
    "--env", "ToyNames-v0", "--episodes", "30", "--updates", "4", "--worlds", "1",
    "--eval-episodes", "4",
]  # fmt: skip


def test_the_command_writes_a_model_that_can_be_cloned_further(tmp_path: Path, capsys) -> None:
    out = tmp_path / "first"
    assert main([*ARGUMENTS, "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "eval/test/greedy/success" in told
    about = json.loads((out / "sft.json").read_text())
    assert about["config"]["updates"] == 4
    assert about["env_args"] == {"items": 3}
    assert {"loss", "demo_success", "eval/test/sampled/score"} <= set(about["metrics"])
    before = weights(CausalLM.load(out))
    again = tmp_path / "second"
    options = ["--model", str(out), "--out", str(again), "--action-format", "bare"]
    assert main([*ARGUMENTS, *options]) == 0
    after = weights(CausalLM.load(again))
    assert list(after) == list(before)
    assert not same(before, after)


def test_the_command_does_not_overwrite(tmp_path: Path, capsys) -> None:
    assert main([*ARGUMENTS, "--out", str(tmp_path)]) == 2
    assert "exists already; choose another folder" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main([*ARGUMENTS, "--noise", "2"])
    assert stopped.value.code == 2


# The warm start ----------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(SFTConfig, "TINY", SFTConfig.TINY | QUICK)
    return tmp_path / "cache" / "tiny"


def started(told: list[str], **options) -> CausalLM:
    return resolve_model("tiny", "ToyNames-v0", {"items": 3}, say=told.append, **options)


def test_a_warm_start_is_made_once(cache: Path) -> None:
    told: list[str] = []
    first = weights(started(told))
    assert any("once; kept in" in line for line in told)
    (folder,) = cache.iterdir()
    assert folder.name.startswith("ToyNames-v0-")
    assert json.loads((folder / "warm_start.json").read_text())["env_args"] == {"items": 3}
    told.clear()
    assert same(weights(started(told)), first)
    assert told == [f"warm-started tiny model: {folder}"]
    assert [path.name for path in cache.iterdir()] == [folder.name]


def test_whatever_decides_the_weights_makes_another(cache: Path, monkeypatch) -> None:
    def folders() -> int:
        return len(list(cache.iterdir()))

    started([])
    started([], seed=1)
    assert folders() == 2
    resolve_model("tiny", "ToyNames-v0", {"items": 4}, say=lambda text: None)
    assert folders() == 3
    monkeypatch.setattr(toy_names, "KINDS", tuple(reversed(toy_names.KINDS)))  # another world
    started([])
    assert folders() == 4
    monkeypatch.setattr(warm_start_module, "RECIPE", 10**6)
    started([])
    assert folders() == 5
    started([])
    assert folders() == 5


def test_a_failed_warm_start_leaves_nothing(cache: Path, monkeypatch) -> None:
    def broken(*args) -> None:
        raise RuntimeError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(warm_start_module, "learn", broken)
        with pytest.raises(RuntimeError, match="interrupted"):
            started([])
    assert list(cache.iterdir()) == []
    started([])


def test_a_second_process_waits_for_the_first(cache: Path, monkeypatch) -> None:
    told: list[str] = []
    made = weights(started(told))
    (folder,) = cache.iterdir()
    hidden = folder.with_name("hidden")
    folder.rename(hidden)
    lock = RunLock(folder.with_name(f".{folder.name}.lock"))

    def finish(seconds: float) -> None:  # the other process ends while this one sleeps
        lock.release()
        hidden.rename(folder)

    monkeypatch.setattr(warm_start_module.time, "sleep", finish)
    told.clear()
    assert same(weights(started(told)), made)
    assert told[0] == "another process is making the warm start; waiting for it"


def test_no_oracle_no_warm_start(cache: Path, monkeypatch) -> None:
    import agentgym

    agentgym.register(
        agentgym.EnvSpec(id="Mute-v1", env="toy_names:ToyNames", prompt="toy_names:ToyPrompt")
    )
    with pytest.raises(ValueError, match="Mute-v1 has no oracle"):
        warm_start("Mute-v1", {})


@pytest.mark.slow
def test_the_recipe_makes_a_mediocre_shopper(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    config = dataclasses.replace(with_preset(SFTConfig, "tiny", "tiny"), eval_episodes=400)
    world = World.open(config)
    lm = resolve_model("tiny", world.spec.id, world.env_args, say=lambda text: None)
    results = evaluate(config, Setup.around(config, world, lm))
    assert 0.1 < results["eval/test/sampled/success"] < 0.5
    assert results["eval/test/greedy/success"] > results["eval/test/sampled/success"]
