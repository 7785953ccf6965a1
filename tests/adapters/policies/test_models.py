from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from adapters.policies.causal_lm import ModelLoadError  # noqa: E402
from adapters.policies.models import cache_folder, resolve_model  # noqa: E402
from adapters.policies.tiny import build_tiny  # noqa: E402
from adapters.policies.tokenization import build_tokenizer  # noqa: E402


def test_a_folder_is_loaded_in_float32_by_default(tmp_path: Path) -> None:
    lm = build_tiny(build_tokenizer(["red"]))
    lm.model.to(torch.bfloat16)
    lm.save(tmp_path / "model")
    assert resolve_model(str(tmp_path / "model"), "any").model.dtype == torch.float32
    half = resolve_model(str(tmp_path / "model"), "any", dtype=torch.bfloat16)
    assert half.model.dtype == torch.bfloat16


def test_a_model_that_is_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="'tinny' is neither a folder nor a hub id"):
        resolve_model("tinny", "any")


@pytest.mark.parametrize("device", ["nonsense", "meta"])
def test_a_device_that_is_not_there_is_refused_before_anything_is_made(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.policies.models.load", lambda *_: pytest.fail("warmed up"))
    with pytest.raises(ValueError, match=f"device '{device}' cannot be used .*; take cpu"):
        resolve_model("tiny", "WebShop-v0", device=device)


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("AGENTGYM_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "agentgym"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "agentgym"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == tmp_path / "Library" / "Caches" / "agentgym"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "agentgym"
