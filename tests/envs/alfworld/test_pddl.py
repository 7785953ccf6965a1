import pytest

from envs.alfworld.pddl import GameError, read_facts, read_objects, read_tree, sections


def facts(text):
    return {name: {tuple(row[1:]) for row in rows} for name, rows in read_facts(text).items()}


def test_sections_are_cut_in_lower_case_without_comments():
    text = "(define (problem P)\n(:domain D)\n( :objects A - agent ; (:init\n)\n(:INIT (At A X))\n)"
    found = sections(text)
    assert list(found) == ["domain", "objects", "init"]
    assert read_objects(found["objects"]) == {"a": "agent"}
    assert facts(found["init"]) == {"at": {("a", "x")}}


def test_a_section_may_stand_once():
    with pytest.raises(GameError, match=r"two sections \(:init"):
        sections("(:init (a b)) (:init (c d))")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a - x b - y)", {"a": "x", "b": "y"}),
        ("a b c - x\n d - y)", {"a": "x", "b": "x", "c": "x", "d": "y"}),
        ("a-b - x", {"a-b": "x"}),
        (")", {}),
    ],
)
def test_typed_lists(text, expected):
    assert read_objects(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a - x a - y", "'a' is declared twice"),
        ("a b - x b - y", "'b' is declared twice"),
        ("a - x b", "'b' is declared without a type"),
        ("- x", "not a list of 'names - type'"),
        ("a -", "not a list of 'names - type'"),
    ],
)
def test_bad_typed_lists(text, message):
    with pytest.raises(GameError, match=message):
        read_objects(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(on a b)(on b c)\n\t(clear a)\n)", {"on": {("a", "b"), ("b", "c")}, "clear": {("a",)}}),
        ("(handempty))", {"handempty": {()}}),
        ("( on  a\n b )", {"on": {("a", "b")}}),
        ("(on a b)\n  (on a b)\n(on a  b)", {"on": {("a", "b")}}),
        ("(= (total-cost) 0)(on a b)(not (on b a)) ) )", {"on": {("a", "b")}}),
        (" ) ", {}),
    ],
)
def test_facts(text, expected):
    assert facts(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(on a b) (on a", "ends within a fact"),
        ("(on a b) stray)", "holds 'stray'"),
        ("((on a) b))", "no plain fact"),
        ("(on (f a) b))", "no plain fact"),
        ("())", "no fact"),
    ],
)
def test_bad_facts(text, message):
    with pytest.raises(GameError, match=message):
        read_facts(text)


def test_trees():
    text = " (and (p ?a)\n(not (= ?a b))) rest)"
    assert read_tree(text) == ["and", ["p", "?a"], ["not", ["=", "?a", "b"]]]
    for text, message in (("(and (p)", "is missing"), ("and", "expected"), (") (", "too many")):
        with pytest.raises(GameError, match=message):
            read_tree(text)
