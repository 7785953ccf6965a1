from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3ForCausalLM  # noqa: E402

from adapters.policies.causal_lm import CausalLM  # noqa: E402
from adapters.policies.tiny import TinyConfig, build_tiny  # noqa: E402
from adapters.policies.tokenization import build_tokenizer  # noqa: E402


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer([f"name{number}" for number in range(200)])


def test_shape_and_size(tokenizer) -> None:
    lm = build_tiny(tokenizer)
    config = lm.model.config
    assert type(lm.model) is Qwen3ForCausalLM
    assert 100_000 <= lm.model.num_parameters() <= 1_000_000
    assert config.head_dim == 32  # what vLLM's kernels ask for at least
    assert config.tie_word_embeddings
    assert lm.model.lm_head.weight is lm.model.model.embed_tokens.weight
    assert lm.vocab_size == len(tokenizer)
    assert lm.stop_token_ids() == (tokenizer.eos_token_id,)
    assert lm.end_of_turn_id() == tokenizer.eos_token_id
    wide = build_tiny(tokenizer, TinyConfig(layers=3, heads=3, intermediate=200))
    assert (wide.hidden_size, wide.model.config.num_hidden_layers) == (96, 3)


def test_the_seed_decides_the_weights_and_nothing_else_is_touched(tokenizer) -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first, second = build_tiny(tokenizer, seed=3), build_tiny(tokenizer, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name])
    other = build_tiny(tokenizer, seed=4).model.state_dict()
    assert not torch.equal(other["model.embed_tokens.weight"], first.model.lm_head.weight)


def test_the_first_layer_looks_one_token_back(tokenizer) -> None:
    lm = build_tiny(tokenizer)
    lm.model.set_attn_implementation("eager")
    ids = torch.randint(0, lm.vocab_size, (2, 400), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        weights = lm.model(ids, output_attentions=True).attentions[0][:, 0]
    back = weights.diagonal(-1, dim1=1, dim2=2)
    assert float(back[:, :60].min()) > 0.95
    assert float(back.min()) > 0.75  # far off, the frequencies come round again


def copied(config: TinyConfig, tokenizer) -> float:
    """Share of the tokens in the second half of (x, x) that come out as the likeliest."""
    lm = build_tiny(tokenizer, config)
    generator = torch.Generator().manual_seed(0)
    once = torch.stack([torch.randperm(200, generator=generator)[:60] for _ in range(8)]) + 260
    with torch.no_grad():
        logits = lm.project(lm.features(torch.cat([once, once], 1)))
    return float((logits[:, 60:-1].argmax(-1) == once[:, 1:]).float().mean())


def test_untrained_it_copies_what_followed(tokenizer) -> None:
    with_circuit = copied(TinyConfig(), tokenizer)
    assert with_circuit > 0.1  # chance is 1 in 700
    assert with_circuit > 10 * copied(TinyConfig(induction=False), tokenizer)


def test_a_saved_model_is_an_ordinary_folder(tokenizer, tmp_path: Path) -> None:
    lm = build_tiny(tokenizer)
    folder = lm.save(tmp_path / "model", {"about.json": "{}"})
    assert (folder / "about.json").read_text() == "{}"
    model = AutoModelForCausalLM.from_pretrained(folder)
    plain = AutoTokenizer.from_pretrained(folder)
    text = "<|user|>name3 name4<|act|>name3<|end|>"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert plain.encode(text, add_special_tokens=False) == ids
    for name, value in lm.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
    again = CausalLM.load(folder)
    assert again.stop_token_ids() == lm.stop_token_ids()
    assert again.tokenizer.chat_template == tokenizer.chat_template


def test_a_numbered_name_starts_as_its_kind_and_its_number() -> None:
    phrases = ["mug", "mug 1", "mug 2", "cup", "cup 1", "cup 2", "sink basin", "sink basin 1", "7"]
    tokenizer = build_tokenizer(phrases)
    with torch.no_grad():
        weights = build_tiny(tokenizer).model.get_input_embeddings().weight
        vector = {text: weights[only(tokenizer, text)] for text in phrases}
        one, two = (vector[f"mug {n}"] - vector["mug"] for n in (1, 2))
        for kind in ("cup", "sink basin"):
            assert torch.allclose(vector[f"{kind} 1"] - vector[kind], one, atol=1e-6)
        assert torch.allclose(vector["cup 2"] - vector["cup"], two, atol=1e-6)
        assert not torch.allclose(one, two, atol=1e-2)
        plain = build_tiny(tokenizer, TinyConfig(numbered=False)).model
        others = plain.get_input_embeddings().weight
        changed = {
            text for text in phrases if not torch.equal(others[only(tokenizer, text)], vector[text])
        }
    assert changed == {text for text in phrases if text[-1] in "12"}


def only(tokenizer, text: str) -> int:
    ids = tokenizer.encode(text)
    assert len(ids) == 1, (text, ids)
    return ids[0]


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="heads must be >= 1, got 0"):
        TinyConfig(heads=0)
    with pytest.raises(ValueError, match="spans two layers"):
        TinyConfig(layers=1)
    assert TinyConfig(layers=1, induction=False).hidden == 64
