"""The critic: zero at first, apart from the policy, and refused where it does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import toy_rounds

from trainers.critic import Critic, read_critic_facts

IDS = torch.tensor([[5, 6, 7, 8, 0, 0], [9, 10, 11, 12, 13, 14]])
ATTENTION = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6]).bool()


@pytest.fixture(scope="module")
def lm():
    return toy_rounds.build_model(layers=2)


def scrambled(lm, **options) -> Critic:
    critic = Critic(lm, **options)
    torch.manual_seed(1)
    torch.nn.init.normal_(critic.head.weight)
    torch.nn.init.normal_(critic.head.bias)
    return critic


def test_an_untrained_critic_says_zero(lm) -> None:
    values, boot = Critic(lm)(IDS, ATTENTION)
    assert values.shape == (2, 6)
    assert not values.any()
    assert not boot.any()


def test_a_value_is_that_of_the_prefix_before_its_token(lm) -> None:
    critic = scrambled(lm)
    with torch.no_grad():
        values, boot = critic(IDS, ATTENTION)
        for row, length in ((0, 4), (1, 6)):
            for t in range(1, length):
                _, after = critic(IDS[row : row + 1, :t], ATTENTION[row : row + 1, :t])
                assert float(values[row, t]) == pytest.approx(float(after), abs=1e-5)
            _, after = critic(IDS[row : row + 1, :length], ATTENTION[row : row + 1, :length])
            assert float(boot[row]) == pytest.approx(float(after), abs=1e-5)


def test_its_trunk_is_its_own(lm) -> None:
    critic = scrambled(lm)
    before = [p.clone() for p in lm.model.parameters()]
    torch.optim.SGD(critic.trained_parameters(), lr=1.0)
    values, _ = critic(IDS, ATTENTION)
    values.square().sum().backward()
    with torch.no_grad():
        for parameter in critic.trained_parameters():
            parameter -= parameter.grad
    assert all(torch.equal(a, b) for a, b in zip(before, lm.model.parameters(), strict=True))
    assert all(p.grad is None for p in lm.model.parameters())


def test_frozen_attention_leaves_mlps_norms_and_head(lm) -> None:
    critic = scrambled(lm, freeze_attention=True)
    trained = {name for name, p in critic.named_parameters() if p.requires_grad}
    assert {"head.weight", "head.bias", "trunk.norm.weight"} <= trained
    for layer in (0, 1):
        # The norm behind the attention has its name and is no part of it.
        assert f"trunk.layers.{layer}.post_attention_layernorm.weight" in trained
        assert f"trunk.layers.{layer}.input_layernorm.weight" in trained
        assert f"trunk.layers.{layer}.mlp.up_proj.weight" in trained
    assert not [name for name in trained if "self_attn" in name or "embed" in name]
    assert all(p.requires_grad for p in scrambled(lm).parameters())


def test_freezing_an_attention_that_is_not_there_is_refused() -> None:
    class Trunk(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixer = torch.nn.Linear(4, 4)

    class LM:
        hidden_size, device = 4, torch.device("cpu")

        class model:  # noqa: N801
            base_model = Trunk()

    with pytest.raises(ValueError, match="found no attention among the parameters of Trunk"):
        Critic(LM, freeze_attention=True)  # type: ignore[arg-type]


def test_a_shared_trunk_is_the_policys(lm) -> None:
    critic = scrambled(lm, shared=True)
    assert [name for name, _ in critic.named_parameters()] == ["head.weight", "head.bias"]
    own = scrambled(lm)
    with torch.no_grad():
        own.head.load_state_dict(critic.head.state_dict())
        assert torch.equal(critic(IDS, ATTENTION)[0], own(IDS, ATTENTION)[0])
        hidden = lm.hidden(IDS)
        assert torch.equal(critic.read(hidden, ATTENTION)[0], critic(IDS, ATTENTION)[0])
    with pytest.raises(ValueError, match="cannot be saved alone"):
        critic.save("/nowhere", lm.tokenizer)


def test_saved_and_loaded_it_says_the_same(lm, tmp_path: Path) -> None:
    critic = scrambled(lm)
    critic.save(tmp_path / "critic", lm.tokenizer, {"episodes": 12})
    other = Critic(lm)
    facts = other.load(tmp_path / "critic", lm.tokenizer)
    assert facts["episodes"] == 12
    assert torch.equal(critic(IDS, ATTENTION)[0], other(IDS, ATTENTION)[0])
    assert sorted(path.name for path in (tmp_path / "critic").iterdir()) == [
        "critic.json",
        "critic.safetensors",
    ]


def test_a_critic_that_does_not_fit_is_refused(lm, tmp_path: Path) -> None:
    scrambled(lm).save(tmp_path, lm.tokenizer)
    small = toy_rounds.build_model(layers=1)
    with pytest.raises(ValueError, match=r"does not fit this model: its trunk\.layers\.1.* absent"):
        Critic(small).load(tmp_path, small.tokenizer)

    class Other:
        def get_vocab(self) -> dict[str, int]:
            vocabulary = lm.tokenizer.get_vocab()
            first, second = list(vocabulary)[:2]
            vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
            return vocabulary

    with pytest.raises(ValueError, match="another vocabulary"):
        Critic(lm).load(tmp_path, Other())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "critic.json").unlink(), "has no critic.json; make one with"),
        (lambda f: (f / "critic.safetensors").unlink(), "has no critic.safetensors"),
        (lambda f: (f / "critic.json").write_text("{"), "is damaged"),
        (lambda f: (f / "critic.json").write_text("[]"), "does not describe a critic"),
    ],
)
def test_a_folder_without_a_critic_is_refused(lm, damage, message: str, tmp_path: Path) -> None:
    scrambled(lm).save(tmp_path, lm.tokenizer)
    assert read_critic_facts(tmp_path)["trunk"] == "Qwen2Model"
    damage(tmp_path)
    with pytest.raises(ValueError, match=message):
        read_critic_facts(tmp_path)
