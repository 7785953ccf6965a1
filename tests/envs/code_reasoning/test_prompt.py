"""The words around the environment."""

from __future__ import annotations

import gymnasium as gym
import pytest

import agentgym  # noqa: F401 - registers the environments
from envs.code_reasoning.prompt import CodePrompt, vocabulary

F = "def f(x): return x"


def started(**arguments):
    env = gym.make("CodeReasoning-v0", **arguments)
    return env, *env.reset(seed=0)


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        (f"Simple.\n```python\n{F}\n```", True),
        (f"<think>```python\nx\n```</think>\n```python\n{F}\n```", True),
        (f"<action>```python\n{F}\n```</action>", True),
        (F, False),
        (f"```python\n{F}\n```\n```python\nf(1)\n```", False),
        (f"<think>```python\n{F}\n```</think>", False),
        ("```python\n```", False),
        ("", False),
    ],
)
def test_format_in_tags(text, ok):
    assert CodePrompt("tags").parse(text).format_ok is ok


@pytest.mark.parametrize(
    ("text", "ok"), [(F, True), (f"```python\n{F}\n```", False), ("x + 1", False), ("", False)]
)
def test_format_in_the_bare_form(text, ok):
    parsed = CodePrompt("bare").parse(text)
    assert (parsed.action, parsed.format_ok) == (text, ok)


def test_the_action_is_the_whole_response():
    text = f"<think>Easy.</think> So:\n```python\n{F}\n```"
    parsed = CodePrompt("tags").parse(f"{text}\n")
    assert parsed.action == text
    assert parsed.thought == "Easy."


def test_instructions():
    _, _, info = started()
    plain = CodePrompt().system(info)
    assert "```python" in plain
    assert "attempts" not in plain
    _, _, info = started(turns=3)
    assert "3 attempts" in CodePrompt().system(info)
    assert CodePrompt("bare").system(info) is None


@pytest.mark.parametrize("difficulty", ["small", "full"])
@pytest.mark.parametrize("form", ["tags", "bare"])
def test_a_solution_is_a_response_of_the_right_form(difficulty, form):
    env, _, info = started(difficulty=difficulty, expert=True)
    prompt = CodePrompt(form)
    known = prompt.solution(info)
    assert prompt.parse(known.text).format_ok
    pieces = env.unwrapped.program.solution()
    assert known.text[known.answer_at :].startswith(pieces[-2])
    assert pieces[-2] not in known.text[: known.answer_at]
    assert CodePrompt(form).solution(started()[2]) is None


def test_windows_quote_what_was_answered():
    _, observation, info = started(turns=3)
    prompt = CodePrompt()
    assert prompt.windowed([], observation, info) == observation
    text = prompt.windowed([(observation, F)], "Not correct.", info)
    assert text == f"{observation}\nYour response:\n{F}\nReply: Not correct."
    bare = CodePrompt("bare").windowed([(observation, F)], "Not correct.", info)
    assert bare == f"{observation}\n{F}\nnot correct."
    assert CodePrompt("bare").next("Not correct.", info) == "not correct."


def test_the_vocabulary():
    assert len(vocabulary(data="x.jsonl")) < len(vocabulary(difficulty="small"))
    assert "return" in vocabulary()


@pytest.mark.torch
def test_a_tokenizer_reads_tasks_in_few_tokens():
    from adapters.policies.tokenization import build_tokenizer

    tokenizer = build_tokenizer(vocabulary(difficulty="small"))
    env, observation, info = started(difficulty="small")
    for task_id in env.unwrapped.tasks.ids("train")[:60]:
        observation, info = env.reset(options={"task_id": task_id})
        code = " ".join(env.unwrapped.task.reference)
        for text in (CodePrompt("bare").first(observation, info), code):
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert tokenizer.decode(ids) == text
            assert len(ids) < 20, text
