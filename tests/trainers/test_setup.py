"""What is looked up, refused and built before a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import toy_rounds
from toy_training import assert_same, make_config

import agentgym
from agentgym.tasks import TaskSet
from trainers.grpo import GRPO, GRPOConfig
from trainers.loop import Trainer, run
from trainers.setup import Setup, World


def test_the_environments_tiny_arguments_belong_to_the_tiny_model() -> None:
    try:
        agentgym.register(
            agentgym.EnvSpec(
                id="ToyTiny-v0",
                env="toy_rounds:ToyRounds",
                prompt="toy_rounds:ToyPrompt",
                tiny={"max_steps": 2},
            )
        )
    except ValueError:
        pytest.fail("the id is this test's own")
    tiny = World.open(GRPOConfig(env="ToyTiny-v0"))
    assert tiny.env_args == {"max_steps": 2}
    assert tiny.prompt.action_format == "bare"
    overridden = World.open(GRPOConfig(env="ToyTiny-v0", env_arg=("max_steps=5",)))
    assert overridden.env_args == {"max_steps": 5}
    other = World.open(GRPOConfig(env="ToyTiny-v0", model="some/model"))
    assert other.env_args == {}
    assert other.prompt.action_format == "tags"
    assert other.make_env().unwrapped.max_steps == 3


def test_splits() -> None:
    world = World.open(make_config(GRPOConfig))
    ids, split = world.training_tasks()
    assert split == "train"
    assert len(ids or ()) == 12
    assert world.evaluation_tasks(None)[1] == "test", "the last evaluation split"
    assert world.evaluation_tasks("validation")[0] == tuple(f"validation-{n}" for n in range(3))
    chosen = World.open(make_config(GRPOConfig, env_arg=("split=validation",)))
    assert chosen.training_tasks()[1] == "validation"
    assert chosen.cursor(0).split == "validation"
    with pytest.raises(ValueError, match="unknown split 'dev'"):
        world.evaluation_tasks("dev")
    world.tasks = TaskSet({"train": ["a"], "rest": []}, train_split="train", eval_splits=())
    with pytest.raises(ValueError, match=r"no split for evaluation; choose one of .*train.*rest"):
        world.evaluation_tasks(None)
    with pytest.raises(ValueError, match="split 'rest' of ToyRounds-v0 holds no task"):
        world.evaluation_tasks("rest")
    world.tasks = None
    assert world.evaluation_tasks(None) == (None, None)
    assert world.cursor(3).take(1, 1)[0].task_id is None
    with pytest.raises(ValueError, match="lists no tasks"):
        world.evaluation_tasks("test")


def test_a_model_folder_is_loaded_and_trained(tmp_path: Path) -> None:
    folder = toy_rounds.save_model(tmp_path / "model", seed=3)
    config = make_config(GRPOConfig, model=str(folder), run_dir=tmp_path / "run", steps=1)
    said: list[str] = []
    trainer = Trainer(GRPO, config, say=said.append)
    start = toy_rounds.build_model(seed=3)
    assert_same(
        {k: v for k, v in trainer.learner.weights().items() if "lm_head" not in k},
        {k: v for k, v in start.model.state_dict().items() if "lm_head" not in k},
    )
    assert trainer.setup.lm.model.dtype == torch.float32
    assert trainer.run() == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "./nowhere"}, "'./nowhere' is neither a folder nor a hub id"),
        ({"env": "Nothing-v0"}, "unknown environment 'Nothing-v0'"),
        ({"env_arg": ("doors=3",)}, "--env-arg does not suit ToyRounds-v0"),
        ({"eval_split": "dev"}, "unknown split 'dev'"),
    ],
    ids=str,
)
def test_refusals_are_one_line_and_status_2(
    changes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(GRPO, make_config(GRPOConfig, run_dir=tmp_path, **changes)) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert message in said
    assert said.count("\n") == 1


def test_what_goes_wrong_in_training_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Setup,
        "make",
        classmethod(
            lambda cls, config, world, say: cls.around(config, world, toy_rounds.build_model())
        ),
    )

    def broken(*_):
        raise ValueError("a bug")

    monkeypatch.setattr("trainers.learner.Learner.update", broken)
    with pytest.raises(ValueError, match="a bug"):
        run(GRPO, make_config(GRPOConfig, run_dir=tmp_path))


def test_a_model_too_short_for_the_context_is_refused(tmp_path: Path) -> None:
    config = make_config(GRPOConfig, max_context=1000)
    setup = Setup.around(config, World.open(config), toy_rounds.build_model())
    with pytest.raises(ValueError, match=r"max_context must lie in 2\.\.256"):
        setup.policy()
    config.max_context = None
    assert setup.policy().max_context == 256
