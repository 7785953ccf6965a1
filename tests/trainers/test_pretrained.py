"""Two steps of Li2SAO with a real pretrained model, through its own chat template."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.pretrained]


def test_two_li2sao_steps_with_smollm2_in_the_shop(tmp_path: Path) -> None:
    import torch
    from smollm2 import smollm2_folder

    from adapters.policies.causal_lm import CausalLM
    from trainers.command_line import parse_args
    from trainers.li2sao import Li2SAO, Li2SAOConfig
    from trainers.loop import Trainer
    from trainers.run_dir import read_metrics

    folder = smollm2_folder(tmp_path / "model")
    before = CausalLM.load(folder, dtype=torch.float32)
    template = before.tokenizer.apply_chat_template(
        [{"role": "user", "content": "x"}], tokenize=False, add_generation_prompt=True
    )
    assert "<|im_start|>assistant" in template
    run_dir = tmp_path / "run"
    config = parse_args(
        Li2SAOConfig,
        [
            "--env", "WebShop-v0", "--model", str(folder), "--run-dir", str(run_dir),
            "--env-arg", "difficulty=small", "observation_mode=text", "page_size=2", "max_steps=2",
            "--steps", "2", "--trajectories", "4", "--group-size", "2", "--slots", "4",
            "--max-action-tokens", "12", "--eval-episodes", "1", "--learning-rate", "1e-5",
            "--critic-updates", "1", "--microbatch-tokens", "1024",
            # A model of this size earns nothing in two turns, so that every group ties; the
            # entropy bonus gives the update a gradient all the same.
            "--entropy-coef", "0.01",
        ],
    )  # fmt: skip
    trainer = Trainer(Li2SAO, config)
    assert trainer.run() == 0

    rows = read_metrics(run_dir)
    assert [row["step"] for row in rows] == [0, 1, 2]
    for row in rows[1:]:
        assert math.isfinite(float(row["loss_policy"]))
        assert math.isfinite(float(row["loss_value"]))
        assert row["batch_trajectories"] == 4
        # What the learner recomputes is what the sampler recorded.
        assert float(row["logp_diff_max"]) < 1e-4
        assert float(row["grad_norm_actor"]) > 0
    weights = dict(before.model.named_parameters())
    changed = [
        name
        for name, value in trainer.learner.lm.model.named_parameters()
        if not torch.equal(value.detach(), weights[name].detach())
    ]
    assert changed
