"""Plain values as trees, and their comparison."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict
from collections import namedtuple as record

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.code_reasoning.compare import agrees
from envs.code_reasoning.inside.plain import NotPlain, decode, dumps, encode, loads
from envs.code_reasoning.tasks import ValueTest

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(),
    st.complex_numbers(allow_nan=False),
)  # fmt: skip
KEYS = st.one_of(st.booleans(), st.integers(-5, 5), st.sampled_from([0.0, 1.0, 1.5, "a", ""]))
VALUES = st.recursive(
    st.one_of(SCALARS, KEYS, st.frozensets(KEYS, max_size=4), st.sets(KEYS, max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=12,
)


def over_the_wire(value):
    return loads(dumps(encode(value)))


def same_types(one, other) -> bool:
    """Equal, and of the same types throughout."""
    return dumps(encode(one)) == dumps(encode(other))


@given(VALUES)
def test_values_come_back_as_they_were(value):
    back = decode(over_the_wire(value))
    assert back == value
    assert type(back) is type(value)


@given(VALUES, VALUES)
def test_equal_is_pythons_equality(one, other):
    test = ValueTest("f", (), encode(one), compare="equal")
    assert agrees(test, over_the_wire(other)) == (one == other)
    assert agrees(test, over_the_wire(one))


@given(VALUES, VALUES)
def test_exact_is_equality_of_values_and_types(one, other):
    test = ValueTest("f", (), encode(one))
    assert agrees(test, over_the_wire(one))
    if one != other:
        assert not agrees(test, over_the_wire(other))


@given(VALUES)
def test_truth_is_pythons(value):
    for compare in ("true", "false"):
        test = ValueTest("f", (), None, compare=compare)
        assert agrees(test, over_the_wire(value)) == (bool(value) is (compare == "true"))


@pytest.mark.parametrize(
    ("expected", "other"),
    [(1, True), (1, 1.0), (0, False), ([1], (1,)), ({1}, frozenset({1})), ("1", 1), (None, False),
     ({"a": 1}, {"a": 1.0}), ([1, [2]], [1, (2,)]), (b"a", "a"), (0.0, -0.0), ({1, 2}, {1}),
     ([1, 2], [2, 1])],
)  # fmt: skip
def test_exact_tells_types_apart(expected, other):
    assert not agrees(ValueTest("f", (), encode(expected)), encode(other))


def test_order_matters_where_it_does():
    assert agrees(ValueTest("f", (), encode({"a": 1, "b": 2})), encode({"b": 2, "a": 1}))
    assert agrees(ValueTest("f", (), encode({1, 2, 30})), ["s", 30, 2, 1])
    assert not agrees(ValueTest("f", (), encode({"a": [1, 2]})), encode({"a": [2, 1]}))


def test_close_values():
    def close(expected, value, tolerance=1e-6):
        test = ValueTest("f", (), encode(expected), compare="close", tolerance=tolerance)
        return agrees(test, encode(value))

    assert close(0.3, 0.1 + 0.2)
    assert close([1.0, {"a": 2.0}], [1 + 1e-9, {"a": 2}])
    assert close(math.inf, math.inf)
    assert not close(1.0, 1.1)
    assert not close(1.0, True)
    assert not close([1.0], (1.0,))
    assert not close([1.0], [1.0, 1.0])
    assert not close({"a": 1.0}, {"b": 1.0})
    assert not close(1.0, math.nan)
    assert not close(1.0, "1.0")


class _Int(int):
    pass


_Point = record("_Point", "x y")


@pytest.mark.parametrize(
    "value",
    [object(), _Int(1), _Point(1, 2), [object()], {1: _Int(2)}, print, iter([]), range(3), int,
     bytearray(b"a"), NotPlain("x"), {_Int(1)}],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_other_types_are_refused(value):
    with pytest.raises(NotPlain, match="of type"):
        encode(value)


def test_dictionaries_of_the_library_are_dictionaries():
    for value in (Counter("aab"), OrderedDict(a=2, b=1), defaultdict(int, a=2, b=1)):
        assert encode(value) == encode({"a": 2, "b": 1})


def test_depth_and_length_are_bounded():
    deep: list = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(NotPlain, match="deep"):
        encode(deep)
    with pytest.raises(NotPlain, match="too long"):
        loads("1" * 300_000)
    with pytest.raises(NotPlain, match="malformed"):
        loads("[" * 150_000)


@pytest.mark.parametrize(
    "tree",
    [[], ["q"], ["i"], ["i", 5], ["i", "zz"], ["f", "x"], ["f", "1", "2"], ["d", 1], ["d", [1]],
     ["d", [["l"], 1]], ["s", ["l"]], ["b", "0"], {"a": 1}, [["l"]], 1.5, ["c", "1"], ["l", {}]],
    ids=dumps,
)  # fmt: skip
def test_malformed_trees_are_no_values(tree):
    with pytest.raises(NotPlain):
        decode(tree)
    for compare in ("exact", "equal", "close"):
        test = ValueTest("f", (), encode([1.0]), compare=compare, tolerance=1.0)
        assert not agrees(test, tree)


def test_numbers_of_any_size():
    for number in (2**53 - 1, 2**53, -(2**53), 10**300, -(7**900)):
        assert decode(over_the_wire(number)) == number
        assert agrees(ValueTest("f", (), encode(number)), over_the_wire(number))
        assert not agrees(ValueTest("f", (), encode(number)), over_the_wire(number + 1))
    assert not agrees(ValueTest("f", (), encode(0), compare="close", tolerance=1e9), 10**400)
