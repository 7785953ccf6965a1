"""``python -m agentgym eval`` refuses what cannot work before it makes or changes a file."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import toy_text
from chat_server import ChatServer, always
from evaluating import doors, lines, read, run
from processes import run_ok

import agentgym
from agentgym.cli.evaluate import EvalConfig, evaluate, main

agentgym.register(toy_text.SPEC)

KEY = "sk-hush-0123"
RANDOM = ("--policy", "random")
OPENAI = ("--policy", "openai", "--model", "m", "--base-url", "http://127.0.0.1:1/v1")


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "SOME_KEY", KEY):
        monkeypatch.delenv(name, raising=False)


REFUSED = [
    (("--env", "Nowhere-v0"), "unknown environment"),
    (("--env", "no_such_package:Nowhere-v0"), "no_such_package"),
    ((*RANDOM, "--split", "x"), "x"),
    ((*RANDOM, "--env-arg", "doors"), "--env-arg 'doors' is not of the form KEY=VALUE"),
    ((*RANDOM, "--env-arg", "gates=1"), "gates"),
    ((*RANDOM, "--episodes", "0"), "--episodes is 0; it must be at least 1"),
    ((*RANDOM, "--episodes", "99999999999"), "more than can be played"),
    ((*RANDOM, "--repeats", "-1"), "--repeats is -1; it must be at least 1"),
    ((*RANDOM, "--slots", "0"), "--slots is 0"),
    ((*RANDOM, "--seed", "-1"), "--seed is -1; it must be at least 0"),
    ((*RANDOM, "--window", "-1"), "--window is -1"),
    ((*RANDOM, "--threads", "0"), "--threads is 0"),
    ((*RANDOM, "--max-context", "0"), "--max-context is 0"),
    ((*RANDOM, "--max-action-tokens", "0"), "--max-action-tokens is 0"),
    ((*RANDOM, "--temperature", "nan"), "--temperature is nan"),
    ((*RANDOM, "--temperature", "-0.5"), "--temperature is -0.5"),
    ((*RANDOM, "--turn-deadline", "0"), "--turn-deadline is 0.0"),
    ((*RANDOM, "--turn-deadline", "nan"), "--turn-deadline is nan"),
    ((*RANDOM, "--episode-deadline", "-3"), "--episode-deadline is -3.0"),
    ((*RANDOM, "--episode-deadline", "inf"), "--episode-deadline is inf"),
    ((*RANDOM, "--model", ""), "--model is empty"),
    ((*RANDOM, "--base-url", "http://127.0.0.1/v1"), "--base-url is for --policy openai"),
    ((*RANDOM, "--tokenizer", "x"), "--tokenizer is for --policy openai"),
    (("--policy", "openai"), "--model"),
    (("--policy", "openai", "--model", "m"), "--base-url"),
    ((*OPENAI, "--request-timeout", "-1"), "--request-timeout is -1.0"),
    ((*OPENAI, "--deadline", "0"), "--deadline is 0.0"),
    ((*OPENAI, "--deadline", "inf"), "--deadline is inf"),
    ((*OPENAI, "--retries", "-1"), "--retries is -1; it must be at least 0"),
    ((*OPENAI, "--requests-per-minute", "-5"), "--requests-per-minute is -5"),
    ((*OPENAI, "--tokens-per-minute", "0"), "--tokens-per-minute is 0"),
    ((*OPENAI, "--base-url", "127.0.0.1:8000"), "not of the form"),
    ((*OPENAI, "--base-url", "http://h:99999/v1"), "not of the form"),
    ((*OPENAI, "--base-url", "http://me:hush@127.0.0.1/v1"), "holds a user or a password"),
    ((*OPENAI, "--base-url", "https://models.invalid/v1"), "OPENAI_API_KEY"),
    ((*OPENAI, "--key-variable", "SOME_KEY"), "--key-variable is SOME_KEY, an environment"),
    ((*OPENAI, "--key-variable", KEY), "--key-variable is no name"),
    ((*OPENAI, "--tokenizer", "x"), "--tokenizer is for --api tokens"),
    ((*OPENAI, "--exact-logprobs", "True"), "--exact-logprobs is for --api tokens"),
    ((*OPENAI, "--extra-body", "top_k"), "--extra-body 'top_k' is not of the form KEY=VALUE"),
    ((*OPENAI, "--extra-body", "stream=True"), "must not set stream"),
    ((*OPENAI, "--extra-body", "x={1}"), "extra_body is no JSON object"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=lambda item: str(item)[-60:])
def test_what_cannot_work_is_refused(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--env", "ToyDoors-v0", *words, "--out", str(tmp_path / "deep" / "r.json")]
    assert main(command) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "hush" not in told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "vlm"}, "--policy is 'vlm'; it must be one of openai, torch, vllm"),
        ({"keep": "all"}, "--keep is 'all'; it must be one of numbers, text, tokens"),
        ({"prompt_mode": "long"}, "--prompt-mode is 'long'"),
        ({"action_format": "xml"}, r"--action-format is 'xml'; it must be one of \w+, \w+, None"),
        ({"on_rewrite": "x"}, "--on-rewrite is 'x'"),
        ({"api": "x"}, "--api is 'x'"),
    ],
)
def test_words_that_are_none_of_the_choices_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    values: dict[str, Any] = {"env": "ToyDoors-v0", "policy": "random", "out": tmp_path / "r"}
    with pytest.raises(ValueError, match=message):
        evaluate(EvalConfig(**(values | changes)))
    assert not list(tmp_path.iterdir())


def test_an_environment_without_an_oracle_says_so(tmp_path: Path) -> None:
    plain = dataclasses.replace(toy_text.SPEC, id="ToyPlain-v0", oracle=None)
    agentgym.register(plain)
    with pytest.raises(ValueError, match="ToyPlain-v0 has no oracle"):
        evaluate(EvalConfig(env="ToyPlain-v0", policy="oracle", out=tmp_path / "r.json"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("missing", ["torch", "vllm"])
def test_a_policy_that_is_not_installed_names_its_extra(missing: str, tmp_path: Path) -> None:
    code = (
        f"import sys\nsys.modules[{missing!r}] = None\n"
        "from pathlib import Path\nimport agentgym, toy_text\n"
        "from agentgym.cli.evaluate import EvalConfig, evaluate\n"
        "agentgym.register(toy_text.SPEC)\n"
        f"out = Path({str(tmp_path / 'deep' / 'r.json')!r})\n"
        "try:\n"
        f"    evaluate(EvalConfig(env='ToyDoors-v0', policy={missing!r}, out=out))\n"
        "except ImportError as error:\n    print(error)"
    )
    assert f"agentgym-suite[{missing}]" in run_ok(code)
    assert not list(tmp_path.iterdir())


# Files ------------------------------------------------------------------------------------------


def test_a_folder_is_no_result_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--env", "ToyDoors-v0", "--policy", "random", "--out", str(tmp_path)]
    assert main(words) == 2
    assert "is a folder; name a file" in capsys.readouterr().err
    assert not tmp_path.with_name(f"{tmp_path.name}.episodes.jsonl").exists(), "nothing is played"


def test_the_episodes_of_a_result_are_not_written_over(tmp_path: Path) -> None:
    config = EvalConfig(env="ToyDoors-v0", policy="random", out=tmp_path / "r.json", episodes=1)
    evaluate(config, say=lambda text: None)
    before = lines(tmp_path / "r.episodes.jsonl")
    config.out = tmp_path / "r.episodes.jsonl"
    with pytest.raises(ValueError, match=r"name the result, for instance .*/r\.json"):
        evaluate(config)
    assert lines(tmp_path / "r.episodes.jsonl") == before


def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    words = ["--env", "ToyDoors-v0", "--policy", "random", "--out", str(tmp_path / "file/r.json")]
    assert main(words) == 2
    assert f"--out {tmp_path}/file/r.json cannot be written" in capsys.readouterr().err


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """A pipe stands for what lies under /dev here."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "r.episodes.jsonl").mkdir()
    for name in ("pipe", "r.json"):
        config = EvalConfig(env="ToyDoors-v0", policy="random", out=tmp_path / name, restart=True)
        with pytest.raises(ValueError, match=f"--out .*{name} cannot be written: .* no file"):
            evaluate(config)
    assert (tmp_path / "pipe").is_fifo()


def test_a_name_that_is_too_long_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--env", "ToyDoors-v0", "--policy", "random", "--out", str(tmp_path / ("r" * 300))]
    assert main(words) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_starting_over_keeps_what_was_played_until_the_policy_is_open(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    with ChatServer(doors) as server:
        first = run(server, out, episodes=2)
    journal = lines(tmp_path / "r.episodes.jsonl")
    with ChatServer(always()) as server, pytest.raises(ValueError, match="must not set n"):
        run(server, out, episodes=2, restart=True, extra_body=("n=2",))
    assert read(out) == first
    assert lines(tmp_path / "r.episodes.jsonl") == journal
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.episodes.jsonl", "r.json"]
