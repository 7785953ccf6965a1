"""Command lines, before a parser reads them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.arguments import gathered, parse_pairs


@dataclass
class Settings:
    """Some flags take several values."""

    env: str = ""
    env_arg: tuple[str, ...] = ()
    extra: tuple[int, ...] = ()
    betas: tuple[float, float] = (0.9, 0.99)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", ""),
        ("--env E --env-arg a=1 b=2", "--env E --env-arg a=1 b=2"),
        ("--env-arg a=1 --env E --env-arg b=2 c=3", "--env-arg a=1 b=2 c=3 --env E"),
        ("--env_arg a=1 --env-arg=b=2 --extra 1", "--env-arg a=1 b=2 --extra 1"),
        ("--env-arg --env E --env-arg b=2", "--env-arg b=2 --env E"),
        ("--betas 1 2 --betas 3 4", "--betas 1 2 --betas 3 4"),
        ("--help --env-arg", "--help --env-arg"),
    ],
)
def test_values_of_a_flag_that_comes_again_are_gathered(words: str, expected: str) -> None:
    assert gathered(words.split(), Settings) == expected.split()


@given(st.lists(st.sampled_from(["--env", "--extra", "1", "x=2", "--env-arg", "--env-arg=y"])))
def test_no_value_is_lost(words: list[str]) -> None:
    found = gathered(words, Settings)
    values = [word.removeprefix("--env-arg=") for word in words if word != "--env-arg"]
    assert sorted(word for word in found if word not in ("--env-arg", "--extra")) == sorted(
        word for word in values if word != "--extra"
    )
    assert gathered(found, Settings) == found


def test_pairs_are_read_as_python_where_they_can() -> None:
    assert parse_pairs(["a=1", "b=[1, 2]", "c=x=y", "d="]) == {
        "a": 1, "b": [1, 2], "c": "x=y", "d": "",
    }  # fmt: skip
    for pairs, message in ((["a"], "KEY=VALUE"), (["a-b=1"], "KEY=VALUE"), (["a=1"] * 2, "twice")):
        with pytest.raises(ValueError, match=message):
            parse_pairs(pairs)
