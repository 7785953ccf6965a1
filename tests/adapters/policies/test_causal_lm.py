from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import (  # noqa: E402
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import adapters.policies.causal_lm as module  # noqa: E402
from adapters.policies.causal_lm import CausalLM, ModelLoadError  # noqa: E402

SHAPE: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "bos_token_id": None,
    "eos_token_id": 7,
    "pad_token_id": 0,
}


def make(seed: int = 0) -> CausalLM:
    torch.manual_seed(seed)
    return CausalLM(Qwen3ForCausalLM(Qwen3Config(**SHAPE)))


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 50, (3, 12), generator=generator)
    mask = torch.rand(3, 12, generator=generator) < 0.5
    mask[:, 0] = False
    mask[2, 8:] = False  # right padding
    return ids, mask


def test_scores_are_those_of_a_plain_softmax(batch) -> None:
    ids, mask = batch
    lm = make()
    scores = lm.token_logprobs(ids, mask, temperature=0.7, entropy=True)
    logp = torch.log_softmax(lm.model(input_ids=ids).logits / 0.7, -1)
    for row, at in mask.nonzero().tolist():
        assert scores.logprobs[row, at].item() == pytest.approx(
            logp[row, at - 1, ids[row, at]].item(), abs=1e-6
        )
        spread = -(logp[row, at - 1].exp() * logp[row, at - 1]).sum().item()
        assert scores.entropy[row, at].item() == pytest.approx(spread, abs=1e-5)
    assert bool((scores.logprobs[~mask] == 0).all())
    assert lm.token_logprobs(ids, mask).entropy is None


def test_padding_changes_nothing(batch) -> None:
    ids, mask = batch
    lm = make()
    short = lm.token_logprobs(ids[2:, :8], mask[2:, :8]).logprobs
    assert torch.allclose(lm.token_logprobs(ids, mask).logprobs[2:, :8], short, atol=1e-6)


def test_chunks_give_the_same_values_and_gradients(batch, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, mask = batch
    lm = make()

    def both() -> tuple[Any, Any]:
        lm.model.zero_grad()
        scores = lm.token_logprobs(ids, mask, entropy=True)
        (scores.logprobs.sum() + 0.3 * scores.entropy.sum()).backward()
        return scores, [p.grad.clone() for p in lm.model.parameters()]

    whole, gradients = both()
    monkeypatch.setattr(module, "_CHUNK_LOGITS", 50 * 4)
    pieces, again = both()
    assert torch.allclose(whole.logprobs, pieces.logprobs, atol=1e-6)
    assert torch.allclose(whole.entropy, pieces.entropy, atol=1e-6)
    for one, two in zip(gradients, again, strict=True):
        assert torch.allclose(one, two, atol=1e-5)


def test_features_can_be_shared_and_ids_may_be_int32(batch) -> None:
    ids, mask = batch
    lm = make()
    features = lm.features(ids)
    one = lm.token_logprobs(ids, mask, features_BTF=features).logprobs
    assert torch.equal(one, lm.token_logprobs(ids, mask).logprobs)
    assert torch.equal(one, lm.token_logprobs(ids.int(), mask).logprobs)


def test_an_empty_mask_scores_nothing(batch) -> None:
    ids, mask = batch
    scores = make().token_logprobs(ids, torch.zeros_like(mask), entropy=True)
    assert float(scores.logprobs.detach().abs().sum()) == 0.0
    scores.logprobs.sum().backward()


def test_bad_arguments_are_refused(batch) -> None:
    ids, mask = batch
    lm = make()
    with pytest.raises(ValueError, match="temperature must be > 0, got 0"):
        lm.token_logprobs(ids, mask, temperature=0.0)
    with pytest.raises(ValueError, match=r"mask must be bool of shape \(3, 12\)"):
        lm.token_logprobs(ids, mask[:, 1:])
    with pytest.raises(ValueError, match="first token of a row"):
        lm.token_logprobs(ids, torch.ones_like(mask))


def test_models_that_rework_their_logits_are_found_out(batch) -> None:
    ids, mask = batch
    torch.manual_seed(0)
    capped = CausalLM(Gemma2ForCausalLM(Gemma2Config(**SHAPE, final_logit_softcapping=2.0)))
    scaled = CausalLM(GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=3.0)))
    assert make().split_head
    for lm in (capped, scaled):
        assert not lm.split_head
        logp = torch.log_softmax(lm.model(input_ids=ids).logits, -1)
        expected = logp[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]
        scores = lm.token_logprobs(ids, mask).logprobs[:, 1:]
        assert torch.allclose(scores[mask[:, 1:]], expected[mask[:, 1:]], atol=1e-6)


def test_saving_replaces_a_folder_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    first, second = make(0), make(1)
    first.save(target, {"old.txt": "x"})
    second.save(target)
    assert not (target / "old.txt").exists()
    assert [path.name for path in target.parent.iterdir()] == ["model"]
    model = Qwen3ForCausalLM.from_pretrained(target)
    for name, value in second.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


def test_a_failed_save_leaves_the_old_folder(tmp_path: Path, monkeypatch) -> None:
    target = tmp_path / "model"
    lm = make()
    lm.save(target)
    before = sorted(path.name for path in target.iterdir())

    def broken(folder: Any) -> None:
        (Path(folder) / "config.json").write_text("{")
        raise OSError("disk full")

    monkeypatch.setattr(lm.model, "save_pretrained", broken)
    with pytest.raises(OSError, match="disk full"):
        lm.save(target)
    assert sorted(path.name for path in target.iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "plainword", "a/b/c"])
def test_what_is_no_model_is_refused_without_asking_the_hub(name: str) -> None:
    with pytest.raises(ModelLoadError, match="neither a folder nor a hub id"):
        CausalLM.load(name)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="cannot be loaded"):
        CausalLM.load(tmp_path)


def test_clones_are_independent_and_weights_are_copied_in_place() -> None:
    lm = make()
    twin = lm.clone()
    weight = twin.model.model.norm.weight
    state = {name: value + 1 for name, value in lm.model.state_dict().items()}
    twin.copy_weights(state)
    assert twin.model.model.norm.weight is weight
    assert torch.equal(weight, lm.model.model.norm.weight + 1)
    del state["lm_head.weight"]
    assert lm.model.config.tie_word_embeddings is False
    with pytest.raises(ValueError, match=r"1 missing weights: lm_head\.weight"):
        twin.check_state(state)


def test_tied_weights_may_be_left_out() -> None:
    lm = CausalLM(Qwen3ForCausalLM(Qwen3Config(**SHAPE, tie_word_embeddings=True)))
    state = {n: v + 1 for n, v in lm.model.state_dict().items() if n != "lm_head.weight"}
    lm.copy_weights(state)
    assert torch.equal(lm.model.lm_head.weight, state["model.embed_tokens.weight"])
