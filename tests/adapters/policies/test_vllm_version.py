"""The gate in front of vLLM: what is said where it is missing or another one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from adapters.policies import vllm_version
from adapters.policies.vllm_version import SUPPORTED, check_vllm


@pytest.fixture
def without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "vllm" else find(name, *rest),
    )


@pytest.mark.parametrize("version", ["0.32.0", "0.32.7", "0.32.0+cpu", "0.32.1.dev3"])
def test_the_series_it_is_written_for_is_taken(version: str) -> None:
    assert check_vllm(version) == version


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "0.3.2", "1.32.0"])
def test_another_series_is_refused_by_name(version: str) -> None:
    with pytest.raises(ImportError, match=rf"vLLM {version} is installed.*vllm=={SUPPORTED}\.0"):
        check_vllm(version)


def test_a_missing_one_names_its_extra(without_vllm: None) -> None:
    with pytest.raises(ImportError, match=r"'vllm' is not installed.*agentgym-suite\[vllm\]"):
        check_vllm()


def test_the_build_for_cpu_counts_as_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: object())

    def version(name: str) -> str:
        if name == "vllm":
            raise vllm_version.importlib.metadata.PackageNotFoundError(name)
        return "0.32.0"

    monkeypatch.setattr(vllm_version.importlib.metadata, "version", version)
    assert check_vllm() == "0.32.0"


@pytest.mark.torch
def test_a_run_is_refused_before_anything_is_made(
    without_vllm: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainers.grpo import GRPO, GRPOConfig
    from trainers.loop import run

    folder = tmp_path / "run"
    assert run(GRPO, GRPOConfig(policy="vllm", run_dir=folder)) == 2
    assert "agentgym-suite[vllm]" in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.torch
@pytest.mark.parametrize("temperature", [0.005, 2.5])
def test_a_run_at_a_temperature_that_vllm_does_not_know_begins_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], temperature: float
) -> None:
    from trainers.grpo import GRPO, GRPOConfig
    from trainers.loop import run

    folder = tmp_path / "run"
    config = GRPOConfig(policy="vllm", run_dir=folder, temperature=temperature)
    assert run(GRPO, config) == 2
    assert (
        f"temperatures from 0.01 to 2, or at 0 (the most likely token), not at {temperature}"
        in (capsys.readouterr().err)
    )
    assert not folder.exists()


@pytest.mark.torch
def test_engines_are_a_matter_of_vllm() -> None:
    from trainers.grpo import GRPOConfig

    with pytest.raises(ValueError, match="--engines is 2; it must be 1 with --policy torch"):
        GRPOConfig(engines=2).validate()
    GRPOConfig(engines=2, policy="vllm").validate()
    with pytest.raises(ValueError, match="--engine-memory is 0"):
        GRPOConfig(engine_memory=0).validate()
    with pytest.raises(ValueError, match="--on-update is x"):
        GRPOConfig(on_update="x").validate()  # type: ignore[arg-type]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("gpus", "visible", "engines", "places"),
    [
        (0, None, 2, None),
        (1, None, 2, None),
        (2, None, 1, ("1",)),
        (4, None, 3, ("1", "2", "3")),
        (2, "5, 7", 3, ("7", "5", "7")),
    ],
)
def test_engines_are_put_beside_the_learner(
    gpus: int,
    visible: str | None,
    engines: int,
    places: tuple[str, ...] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    from adapters.policies.vllm_policy import place_engines

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert place_engines(engines) == places
