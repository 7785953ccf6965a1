"""What environments tell, as JSON values."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.recording import plain, spelled


class Mute:
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Shout(str):
    """A text of its own kind."""

    def __str__(self) -> str:
        return "LOUD"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (np.float32("nan"), "NaN"),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1.0, np.inf]]), [[1.0, "Infinity"]]),
        ((1, {"a": {2.0}}), [1, {"a": [2.0]}]),
        ({1: None, (2, 3): True}, {"1": None, "(2, 3)": True}),
        (OrderedDict(b=1), {"b": 1}),
        (frozenset("ba"), ["a", "b"]),
        (Path("x/y"), "x/y"),
        (b"\x00", "b'\\x00'"),
        (Mute(), "<Mute that str() fails on>"),
        (Shout("quiet"), "quiet"),
    ],
)
def test_anything_becomes_plain(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)
    json.dumps(found, allow_nan=False)


def test_what_holds_itself_ends() -> None:
    loop: dict[str, Any] = {}
    loop |= {"a": loop, "b": [loop, loop]}
    found = plain(loop)
    assert found["a"] == str(loop)
    assert found["b"] == [str(loop)] * 2
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    json.dumps(plain(deep))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(JSON)
def test_json_stays_what_it_is(value: Any) -> None:
    assert plain(value) == value
    assert json.dumps(plain(value)) == json.dumps(value)


@given(st.floats())
def test_numbers_are_read_back(value: float) -> None:
    written = json.dumps(spelled(value), allow_nan=False)
    assert float(json.loads(written)) == value or math.isnan(value)
