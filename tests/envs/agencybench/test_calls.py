# ruff: noqa: E501 - spellings of calls stand on one line
"""One tool call in the usual spellings; what is malformed is answered in words."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.agencybench.calls import Call, Malformed, find_call, write_call

READ = Call("read_file", {"path": "a.py", "limit": 3})
OBJECT = '{"path": "a.py", "limit": 3}'

SPELLINGS = {
    "tool": f'{{"tool": "read_file", "arguments": {OBJECT}}}',
    "name": f'{{"name": "read_file", "arguments": {OBJECT}}}',
    "parameters": f'{{"name": "read_file", "parameters": {OBJECT}}}',
    "arguments as text": json.dumps({"name": "read_file", "arguments": OBJECT}),
    "function": json.dumps({"type": "function", "function": {"name": "read_file", "arguments": OBJECT}}),
    "tool_calls": f'{{"tool_calls": [{{"name": "read_file", "arguments": {OBJECT}}}]}}',
    "fenced": f'I read it.\n```json\n{{"tool": "read_file", "arguments": {OBJECT}}}\n```\nDone.',
    "fenced without a name": f'```\n{{"tool": "read_file", "arguments": {OBJECT}}}\n```',
    "tags": f'Now:\n<tool_call>\n{{"name": "read_file", "arguments": {OBJECT}}}\n</tool_call>',
    "open tag": f'<tool_call>{{"name": "read_file", "arguments": {OBJECT}}}',
    "tags around a fence": f'<tool_call>```json\n{{"tool": "read_file", "arguments": {OBJECT}}}\n```</tool_call>',
    "prose": f'First I look at {{it}}: {{"tool": "read_file", "arguments": {OBJECT}}} and then on.',
    "list of one": f'[{{"tool": "read_file", "arguments": {OBJECT}}}]',
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_usual_spellings(name):
    assert find_call(SPELLINGS[name]) == READ


def test_functions_with_parameters():
    text = "<tool_call>\n<function=write_file>\n<parameter=path>\na.html\n</parameter>\n"
    text += "<parameter=content>\n<p>\n  x</p>\n\n</parameter>\n</function>\n</tool_call>"
    assert find_call(text) == Call("write_file", {"path": "a.html", "content": "<p>\n  x</p>\n"})


def test_content_that_looks_like_a_call_stays_content():
    content = 'x = "</tool_call>"\n```json\n{"tool": "submit"}\n```'
    call = Call("write_file", {"content": content})
    written = write_call("write_file", {"content": content})
    assert find_call(written) == call
    assert find_call(f"So:\n<tool_call>\n{written}\n</tool_call>") == call
    assert find_call(f"So:\n```json\n{written}\n```") == call


def test_no_arguments():
    assert find_call('{"tool": "submit"}') == Call("submit", {})
    assert find_call('{"tool": "submit", "arguments": null}') == Call("submit", {})
    assert find_call('{"tool": "submit", "arguments": ""}') == Call("submit", {})


MALFORMED = {
    "": "empty",
    "   \n": "empty",
    "ls -la": "No tool call was found",
    "{": "not valid JSON",
    '{"tool": "read_file", "arguments": {"path": }}': "not valid JSON",
    '{"path": "a.py"}': "no tool call",
    '{"tool": 3}': "no tool call",
    '{"tool": "x", "arguments": [1]}': "must be a JSON object",
    '{"tool": "x", "arguments": "{"}': "text that is not JSON",
    '{"tool": "x", "arguments": {"a": NaN}}': "not valid JSON",
    '{"tool": "a"} {"tool": "b"}': "not valid JSON",
    'do {"tool": "a"} and {"tool": "b"}': "2 tool calls",
    '[{"tool": "a"}, {"tool": "b"}]': "2 tool calls",
    '<tool_call>{"tool": "a"}</tool_call><tool_call>{"tool": "b"}</tool_call>': "2 tool calls",
    "<function=a></function><function=b></function>": "2 tool calls",
    "<tool_call></tool_call>": "hold nothing",
    '{"tool": "x", "arguments": {"a": "\\ud800"}}': "surrogate",
    '{"a":' * 20_000: "nested too deeply",
}


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:30])
def test_malformed_calls_are_answered(text):
    found = find_call(text)
    assert isinstance(found, Malformed)
    assert MALFORMED[text] in found.reason
    assert "for instance" in found.reason


@given(st.text())
def test_no_text_raises(text):
    assert isinstance(find_call(text), Call | Malformed)


@given(st.text(alphabet='{}[]":,<>/tool_calnme \\`\n', max_size=80))
def test_nothing_like_a_call_raises(text):
    assert isinstance(find_call(text), Call | Malformed)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner),
    max_leaves=5,
)


@given(st.dictionaries(st.text(min_size=1), json_values))
def test_calls_come_back(arguments):
    text = write_call("write_file", arguments)
    assert find_call(text) == Call("write_file", arguments)
    assert find_call(f"<tool_call>{text}</tool_call>") == Call("write_file", arguments)


@pytest.mark.parametrize("piece", ["{", '{"a":', "<tool_call>", "```\n", "<function=a>", "[{"])
def test_time_stays_in_bounds(piece):
    begun = time.process_time()
    find_call("x " + piece * (65_000 // len(piece)))
    assert time.process_time() - begun < 5
