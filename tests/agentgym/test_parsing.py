from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentgym.parsing import ParsedAction, parse_bare, parse_tags, parser

# text, action, format_ok, thought
TAGS = [
    ("<think>why</think><action>go</action>", "go", True, "why"),
    ("<think>why</think>\n\n<action> go north </action>\n", "go north", True, "why"),
    ("<action>go</action>", "go", True, None),
    ("<ACTION>Go</Action>", "Go", True, None),
    ("<think></think><action>go</action>", "go", True, ""),
    ("<think>a\nb</think><action>say\nit</action>", "say\nit", True, "a\nb"),
    ("I will.<action>go</action>Done.", "go", True, None),
    # The prompt opened the thought.
    ("why</think><action>go</action>", "go", True, "why"),
    ("maybe <action>stay</action></think><action>go</action>", "go", True, None),
    # An action that is only considered is no decision.
    ("<think>maybe <action>stay</action></think><action>go</action>", "go", True, None),
    ("<think>maybe <action>stay</action></think>", "", False, "maybe <action>stay</action>"),
    # Bad form, and the best guess.
    ("<action>a</action><action>b</action>", "b", False, None),
    ("<think>x</think><think>y</think><action>go</action>", "go", False, "x"),
    ("<think>never closed <action>go</action>", "go", False, None),
    ("<think>x</think><action></action>", "", False, "x"),
    ("<action>  </action>", "", False, None),
    ("<action>go", "go", False, None),
    ("<think>x</think><action>go", "go", False, "x"),
    ("go north", "go north", False, None),
    ("<think>x</think>go north", "go north", False, "x"),
    ("</action>go", "go", False, None),
    ("go</action>", "go", False, None),
    ("", "", False, None),
    ("<think>only thought", "only thought", False, None),
    ("<thin\u212a>x</think>y", "y", False, "<thin\u212a>x"),  # the sign of the kelvin is no k
    ("<action>日本 🦊</action>", "日本 🦊", True, None),
    ("<action>a<think>b</think>c</action>", "a c", True, "b"),
]


@pytest.mark.parametrize(("text", "action", "ok", "thought"), TAGS)
def test_tags(text, action, ok, thought):
    found = parse_tags(text)
    assert (found.action, found.format_ok) == (action, ok)
    if thought is not None:
        assert found.thought == thought


@pytest.mark.parametrize(
    ("text", "action", "ok"),
    [
        ("go north", "go north", True),
        ("  go north \n", "go north", True),
        ("go\nnorth", "go\nnorth", False),
        ("", "", False),
        (" \n\t", "", False),
        ("<action>go</action>", "<action>go</action>", True),
    ],
)
def test_bare(text, action, ok):
    assert parse_bare(text) == ParsedAction(action, ok)


pieces = st.sampled_from(
    ["<think>", "</think>", "<action>", "</action>", "<Action>", " ", "\n", "go", "🦊", "<", "/>"]
)
texts = st.one_of(st.lists(pieces, max_size=12).map("".join), st.text(st.characters()))


@given(texts)
@example("\ud800<action>\udfff</action>")
def test_nothing_raises_and_good_form_means_one_action(text):
    for name in ("tags", "bare"):
        found = parser(name)(text)
        assert found.action == found.action.strip()
        assert bool(found.action) or not found.format_ok
    found = parse_tags(text)
    assert found.format_ok <= (text.lower().count("</action>") >= 1)
    assert "</action>" not in found.action.lower() or not found.format_ok


@given(st.text(), st.text())
def test_what_is_written_between_the_tags_comes_back(thought, action):
    clean = [part.replace("<", "").replace(">", "") for part in (thought, action)]
    found = parse_tags(f"<think>{clean[0]}</think>\n<action>{clean[1]}</action>")
    assert (found.thought, found.action) == (clean[0].strip(), clean[1].strip())
    assert found.format_ok == bool(clean[1].strip())


@pytest.mark.parametrize(
    "tag", ["<think>", "<action>", "</think>", "</action>", "<think></action>"]
)
def test_a_tag_repeated_without_end_takes_linear_time(tag):
    """A policy that has collapsed repeats one tag; quadratic work would take minutes here."""
    assert not parse_tags(tag * 200_000).format_ok


def test_an_unknown_format_is_told_what_exists():
    with pytest.raises(ValueError, match="unknown action format 'json'; known: tags, bare"):
        parser("json")
