"""The words around the environment."""

from __future__ import annotations

import re

import gymnasium as gym
import pytest

import agentgym  # noqa: F401 - registers the environments
from envs.math_reasoning.prompt import MathPrompt, vocabulary
from envs.math_reasoning.tools import Tool, ToolReply


def started(**arguments):
    env = gym.make("MathReasoning-v0", **arguments)
    return env, *env.reset(seed=0)


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        ("Steps.\n\\boxed{7}", True),
        ("<think>hm \\boxed{1}</think>\n\\boxed{7}", True),
        ("<action>\\boxed{7}</action>", True),
        ("<calculator>1+1</calculator>", True),
        ("the answer is 7", False),
        ("<think>\\boxed{7}</think>", False),
        ("<think>\\boxed{7}", False),
        ("\\boxed{}", False),
        ("\\boxed{7", False),
        ("", False),
    ],
)
def test_format_in_tags(text, ok):
    assert MathPrompt("tags").parse(text).format_ok is ok


def test_the_action_is_the_whole_response():
    parsed = MathPrompt("tags").parse("<think>Two.</think> Steps.\n\\boxed{2}\n")
    assert parsed.action == "<think>Two.</think> Steps.\n\\boxed{2}"
    assert parsed.thought == "Two."
    assert MathPrompt("tags").parse("<action>\\boxed{2}</action>").action == "\\boxed{2}"


@pytest.mark.parametrize(
    ("text", "ok"),
    [("tom 2+3=5; \\boxed{5}", True), ("tom 2+3=5;\n\\boxed{5}", False), ("5", False)],
)
def test_format_in_the_bare_form(text, ok):
    parsed = MathPrompt("bare").parse(text)
    assert (parsed.action, parsed.format_ok) == (text, ok)


def test_instructions_name_what_there_is():
    _, _, info = started()
    plain = MathPrompt().system(info)
    assert "\\boxed{answer}" in plain
    assert "tool" not in plain
    assert "attempts" not in plain
    own = Tool("python", lambda source: ToolReply(""), "<python>code</python> runs Python code")
    _, _, info = started(turns=3, tools=("calculator", own, Tool("odd", own.run)), tool_calls=5)
    full = MathPrompt().system(info)
    for part in ("3 attempts", "5 times", "<calculator>", "runs Python code", "<odd>input</odd>"):
        assert part in full
    assert MathPrompt("bare").system(info) is None


def test_messages():
    _, observation, info = started()
    assert MathPrompt().first(observation, info) == observation
    assert MathPrompt("bare").first(observation, info) == observation.lower()
    assert MathPrompt("bare").next("Not correct.", info) == "not correct."


def test_windows_quote_what_was_answered():
    env, observation, info = started(turns=3)
    prompt = MathPrompt()
    assert prompt.windowed([], observation, info) == observation
    after, _, _, _, info = env.step("\\boxed{1}")
    text = prompt.windowed([(observation, "\\boxed{1}")], after, info)
    assert text == f"{observation}\nYour response: \\boxed{{1}}\nReply: Not correct."
    again, _, _, _, info = env.step("hm")
    history = [(observation, "\\boxed{1}"), (after, "hm")]
    text = prompt.windowed(history, again, info)
    assert text.count("Reply:") == 2
    assert text.startswith(observation)
    bare = MathPrompt("bare").windowed(history, again, info)
    assert bare.splitlines()[:3] == [observation.lower(), "\\boxed{1}", "not correct."]


def test_the_vocabulary_covers_what_is_said():
    phrases = vocabulary(difficulty="small")
    assert len(phrases) == len(set(phrases))
    assert "\\boxed{" in phrases
    numbers = [phrase for phrase in phrases if re.search(r"\d", phrase)]
    assert numbers == [str(number) for number in range(100)], "small numbers are copied as a whole"
    full = vocabulary()
    assert not any(re.search(r"\d", phrase) for phrase in full), "digits are read one by one"
    assert len(full) > len(phrases)
    assert "\\boxed{" in vocabulary(data="some.jsonl")


@pytest.mark.torch
def test_a_tokenizer_reads_problems_in_few_tokens():
    from adapters.policies.tokenization import build_tokenizer
    from envs.math_reasoning.oracle import response

    tokenizer = build_tokenizer(vocabulary(difficulty="small"))
    env, observation, info = started(difficulty="small")
    import numpy as np

    for task_id in env.unwrapped.tasks.ids("train")[:50]:
        observation, info = env.reset(options={"task_id": task_id})
        for text in (
            MathPrompt("bare").first(observation, info),
            response(env.unwrapped, np.random.default_rng(0)),
        ):
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert tokenizer.decode(ids) == text
            assert len(ids) < 50
